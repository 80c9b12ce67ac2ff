"""All that a relational engine keeps of a subject, read from beginning to end: the ``SubjectReader``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.core.chain import Entry, parse_entries
from holdfast.core.records import Fact, Kind, Record, Subject
from holdfast.ports.conversations import Session
from holdfast.ports.subjects import KeptMessage, SetQuota, UserSummary
from holdfast.storage.relational.conversations import as_message
from holdfast.storage.relational.database import Database, Names
from holdfast.storage.relational.facts import as_fact
from holdfast.storage.relational.moves import KINDS
from holdfast.storage.relational.records import EXTRA, as_record
from holdfast.storage.relational.scopes import all_keys, key_range
from holdfast.storage.relational.sessions import SQL as CONVERSATIONS
from holdfast.storage.relational.sessions import as_session, message_keys
from holdfast.storage.relational.subjects import own_sessions

SQL: Final = Names("subjects")
#: A page of records, messages or audit entries has at most so many bytes, or one of them.
_BYTES: Final = 4 * 1024 * 1024


class SqlSubjectReader:
    """The ``SubjectReader`` of the relational engines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def alias(self, subject: Subject) -> str | None:
        with self._database.read() as tx:
            row = tx.one(SQL["alias"], (tx.number_of(subject),))
        return None if row is None else str(row[0].hex())

    def users(self, tenant: str, *, after: str = "", limit: int) -> list[UserSummary]:
        found: list[UserSummary] = []
        place = Subject(tenant, after)
        while len(found) < limit:
            rows = self._database.ask(SQL["users"], (place, f"{tenant}0", limit))
            if not rows:
                break
            page: dict[Subject, list[tuple[int, int, int]]] = {Subject.parse(row[0]): [] for row in rows}
            for subject, kind, count, latest in rows:
                if latest is not None:
                    page[subject].append((kind, count, latest))
            found += [_summary(subject, kinds) for subject, kinds in sorted(page.items()) if kinds]
            place = max(page)
        return found[:limit]

    def size(self, subject: Subject) -> int:
        with self._database.read() as tx:
            number = tx.number_of(subject) or 0
            return tx.value(SQL["size"], (number, *all_keys(number)))

    def records(self, subject: Subject, kind: Kind, *, after: int = 0, limit: int) -> tuple[list[Record], int]:
        with self._database.read() as tx:
            number = tx.number_of(subject) or 0
            first, last = key_range(number, kind)
            found = tx.rows(SQL["records"], (number, max(first, after + 1), last, limit, _BYTES))
        return [as_record(subject, row) for row in found], found[-1][EXTRA] if found else after

    def sessions(self, subject: Subject, *, after: int = 0, limit: int) -> tuple[list[Session], int]:
        with self._database.read() as tx:
            found = tx.rows(SQL["sessions"], (tx.number_of(subject), after, limit))
        return [as_session(subject, row) for row in found], found[-1][0] if found else after

    def messages(self, subject: Subject, item_id: str, *, after: int = 0, limit: int) -> tuple[list[KeptMessage], int]:
        with self._database.read() as tx:
            number = tx.number_of(subject)
            session = tx.one(CONVERSATIONS["session_by_id"], (item_id, number))
            if number is None or session is None:
                return [], after
            _, first, last = message_keys(number, session[0])
            found = tx.rows(SQL["messages"], (number, max(first, after + 1), last, limit, _BYTES))
        return [KeptMessage(as_message(row), row[5]) for row in found], found[-1][6] if found else after

    def facts(self, subject: Subject, *, after: str = "", limit: int) -> tuple[list[Fact], str]:
        with self._database.read() as tx:
            found = tx.rows(SQL["facts"], (tx.number_of(subject), after, limit))
        return [as_fact(row) for row in found], found[-1][0] if found else after

    def audit(self, subject: Subject, *, after: int = 0, limit: int) -> tuple[list[Entry], int]:
        with self._database.read() as tx:
            found = tx.rows(SQL["audit"], (tx.number_of(subject), after, limit, _BYTES))
        return [entry for row in found for entry in parse_entries(*row[:2])], found[-1][2] if found else after

    def quotas(self, tenant: str, user_id: str) -> list[SetQuota]:
        with self._database.read() as tx:
            return [SetQuota(KINDS[row[0]], *row[1:]) for row in tx.rows(SQL["quotas"], (tenant, user_id))]

    def own_sessions(self, subject: Subject, names: Sequence[str]) -> frozenset[str]:
        with self._database.read() as tx:
            return own_sessions(tx, subject, tx.number_of(subject) or 0, names)


def _summary(subject: Subject, counts: list[tuple[int, int, int]]) -> UserSummary:
    kinds = {KINDS[kind].name: count for kind, count, _ in sorted(counts) if kind}
    sessions = sum(count for kind, count, _ in counts if not kind)
    return UserSummary(subject.user_id, kinds, sessions, max(latest for _, _, latest in counts))
