"""All that is kept of a subject, read from beginning to end: the ``SubjectReader``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from holdfast.core.audit import Entry
from holdfast.core.chain import parse_entries
from holdfast.core.records import Fact, Kind, Record, Subject
from holdfast.ports.conversations import Session
from holdfast.ports.subjects import KeptMessage, SetQuota, UserSummary
from holdfast.storage.relational.audit import EntryRow
from holdfast.storage.relational.conversations.sessions import (
    MessageRow,
    SessionRow,
    as_message,
    find_by_id,
    message_keys,
)
from holdfast.storage.relational.database import Database
from holdfast.storage.relational.facts import parse_fact
from holdfast.storage.relational.record_rows import KINDS, RecordRow, as_record
from holdfast.storage.relational.scopes import all_keys, key_range, read_alias
from holdfast.storage.relational.subjects.erasure import own_sessions

#: A page of records, messages or audit entries has at most so many bytes, or one of them.
_BYTES: Final = 4 * 1024 * 1024


class UserRow(NamedTuple):
    """How much a user has of a kind; of kind 0, conversations."""

    subject: Subject
    kind: int | None
    live: int
    latest: int | None


class KindQuota(NamedTuple):
    """A quota that was set for a user."""

    kind: int
    max_memories: int | None
    max_bytes: int | None


class SqlSubjectReader:
    """The ``SubjectReader`` of the relational engines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def alias(self, subject: Subject) -> str | None:
        with self._database.read() as tx:
            return read_alias(tx, tx.number_of(subject))

    def users(self, tenant: str, *, after: str = "", limit: int) -> list[UserSummary]:
        found: list[UserSummary] = []
        place = Subject(tenant, after)
        while len(found) < limit:
            rows = self._database.ask(UserRow, "subjects.users", (place, f"{tenant}0", limit))
            if not rows:
                break
            page: dict[Subject, list[UserRow]] = {row.subject: [] for row in rows}
            for row in rows:
                if row.latest is not None:
                    page[row.subject].append(row)
            found += [_summarize(subject, kinds) for subject, kinds in sorted(page.items()) if kinds]
            place = max(page)
        return found[:limit]

    def size(self, subject: Subject) -> int:
        with self._database.read() as tx:
            number = tx.number_of(subject) or 0
            return tx.number("subjects.size", (number, *all_keys(number)))

    def records(self, subject: Subject, kind: Kind, *, after: int = 0, limit: int) -> tuple[list[Record], int]:
        with self._database.read() as tx:
            number = tx.number_of(subject) or 0
            first, last = key_range(number, kind)
            found = tx.all(RecordRow, "subjects.records", (number, max(first, after + 1), last, limit, _BYTES))
        return [as_record(subject, row) for row in found], found[-1].key if found else after

    def sessions(self, subject: Subject, *, after: int = 0, limit: int) -> tuple[list[Session], int]:
        with self._database.read() as tx:
            found = tx.all(SessionRow, "subjects.sessions", (tx.number_of(subject), after, limit))
        return [row.session(subject) for row in found], found[-1].no if found else after

    def messages(self, subject: Subject, item_id: str, *, after: int = 0, limit: int) -> tuple[list[KeptMessage], int]:
        with self._database.read() as tx:
            number = tx.number_of(subject)
            session = find_by_id(tx, number, item_id)
            if number is None or session is None:
                return [], after
            _, first, last = message_keys(number, session.no)
            found = tx.all(MessageRow, "subjects.messages", (number, max(first, after + 1), last, limit, _BYTES))
        return [KeptMessage(as_message(row), row.purge_at) for row in found], found[-1].key if found else after

    def facts(self, subject: Subject, *, after: str = "", limit: int) -> tuple[list[Fact], str]:
        with self._database.read() as tx:
            found = tx.all(Fact, "subjects.facts", (tx.number_of(subject), after, limit))
        return [parse_fact(row) for row in found], found[-1].id if found else after

    def audit(self, subject: Subject, *, after: int = 0, limit: int) -> tuple[list[Entry], int]:
        with self._database.read() as tx:
            found = tx.all(EntryRow, "subjects.audit", (tx.number_of(subject), after, limit, _BYTES))
        entries = [entry for row in found for entry in parse_entries(row.text, row.hash)]
        return entries, found[-1].seq if found else after

    def quotas(self, tenant: str, user_id: str) -> list[SetQuota]:
        with self._database.read() as tx:
            found = tx.all(KindQuota, "subjects.quotas", (tenant, user_id))
        return [SetQuota(KINDS[row.kind], row.max_memories, row.max_bytes) for row in found]

    def own_sessions(self, subject: Subject, names: Sequence[str]) -> frozenset[str]:
        with self._database.read() as tx:
            return own_sessions(tx, subject, tx.number_of(subject) or 0, names)


def _summarize(subject: Subject, rows: list[UserRow]) -> UserSummary:
    kinds = {KINDS[row.kind].name: row.live for row in sorted(rows) if row.kind}
    sessions = sum(row.live for row in rows if not row.kind)
    return UserSummary(subject.user_id, kinds, sessions, max(row.latest or 0 for row in rows))
