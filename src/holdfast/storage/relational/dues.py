"""What is due: the ``DueStore``. Each question is a range of an index, so it costs what it answers."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from holdfast.core.decisions import Held, RecordFacts, Window, find_hold
from holdfast.core.records import HISTORY, State, Subject
from holdfast.core.rules import resolve
from holdfast.core.values import SECOND, to_json
from holdfast.ports.conversations import Session
from holdfast.ports.rules import Census, Named, Page, Profile, Share
from holdfast.ports.subjects import is_tombstone
from holdfast.storage.relational.database import Database, Transaction
from holdfast.storage.relational.history import PurgedRow
from holdfast.storage.relational.moves import MoveBatch, held_of
from holdfast.storage.relational.rows import KINDS, START, all_keys
from holdfast.storage.relational.rules import ProfileRow, read_book, version_of
from holdfast.storage.relational.sessions import SessionPlace, SessionRow, hold_on

_FIRST: Final = -(2**63)
_LAST: Final = 2**63 - 1
_SOME: Final = 1_000
Place = tuple[int, int]


class CensusRow(NamedTuple):
    """How much of a subject is due; without a kind, of conversations."""

    subject: Subject
    records: int
    bytes: int
    mark: int
    check_mark: int
    kind: int | None = None

    def census(self, kind: str) -> Census:
        """The same, as callers know it."""
        return Census(kind, self.subject, self.records, self.bytes, self.mark, self.check_mark)


class DueRow(NamedTuple):
    """A record that is due; without a kind, a conversation."""

    key: int
    id: str
    subject: Subject
    version: int
    agent_id: str
    session_id: str | None
    size: int
    pack: int | None
    metadata: str
    aged_from: int
    purge_at: int | None = None
    state: str = ""
    kind: int | None = None

    def facts(self, kind: str, state: State) -> RecordFacts:
        """What is decided by."""
        user_id = self.subject.user_id
        metadata = json.loads(self.metadata) if self.metadata != "{}" else {}
        thing = Held(user_id, self.agent_id, self.session_id, self.id, metadata)
        when = (self.version, self.aged_from, self.purge_at)
        return RecordFacts(self.id, kind, self.subject, thing, state, *when, self.size, self.pack is not None)


class AgentCount(NamedTuple):
    """How many records of an agent are due."""

    agent_id: str
    records: int


class ShareRow(NamedTuple):
    """How much is due of what a hold names; the other parts are empty."""

    subject: int | None
    agent_id: str | None
    session_id: str | None
    id: str | None
    records: int
    bytes: int


class TotalRow(NamedTuple):
    """How many records moved, and why."""

    kind: str
    state: str
    cause: str
    records: int


class HoldingRow(NamedTuple):
    """How much the store holds of a kind."""

    kind: int
    bytes: int
    memories: int


class AgesRow(NamedTuple):
    """How many records are of an age, and the sum of what their ages count from."""

    records: int
    total: int


class NumberedProfile(NamedTuple):
    """A profile and its kind."""

    no: int
    kind: str


class SqlDues:
    """The ``DueStore`` of the relational engines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def rules_version(self, tenant: str) -> int:
        with self._database.read() as tx:
            return version_of(tx, tenant)

    def tenants(self) -> list[str]:
        with self._database.read() as tx:
            return tx.values("dues.tenants")

    def profiles(self, tenant: str) -> list[Profile]:
        with self._database.read() as tx:
            book = read_book(tx, tenant)
            found = tx.all(ProfileRow, "dues.profiles", (tenant,))
            together = [(row.no, row.kind, book.together(row.kind, json.loads(row.rules))) for row in found]
        return [Profile(no, kind, resolve(kind, rules, book.defaults), tuple(rules)) for no, kind, rules in together]

    def census(self, profile: Profile, state: State, window: Window, *, without: Iterable[str] = ()) -> list[Census]:
        statement = "dues.session_census" if profile.kind == HISTORY else "dues.census"
        with self._database.read() as tx:
            found = tx.all(CensusRow, statement, (profile.number, state, *_bounds(window), to_json(sorted(without))))
        return [row.census(profile.kind) for row in found if not is_tombstone(row.subject)]

    def census_of_agents(
        self, profile: Profile, state: State, window: Window, *, without: Iterable[str] = ()
    ) -> dict[str, int]:
        if profile.kind == HISTORY:
            return {}
        where = (profile.number, state, *_bounds(window), to_json(sorted(without)))
        with self._database.read() as tx:
            return dict(tx.all(AgentCount, "dues.census_of_agents", where))

    def due(
        self, profile: Profile, state: State, window: Window, *, after: Place = START, limit: int, tags: bool
    ) -> Page:
        statement = "dues.sessions_due" if profile.kind == HISTORY else "dues.due"
        with self._database.read() as tx:
            found = tx.all(DueRow, statement, (profile.number, state, *_bounds(window), *after, tags, limit))
        last = (found[-1].aged_from, found[-1].key) if found else START
        return Page([row.facts(profile.kind, state) for row in found if not is_tombstone(row.subject)], last)

    def due_of(
        self,
        subject: Subject,
        profile: Profile,
        state: State,
        window: Window,
        *,
        after: int = 0,
        limit: int,
        tags: bool,
    ) -> tuple[list[RecordFacts], int]:
        with self._database.read() as tx:
            first, last = all_keys(tx.number_of(subject) or 0)
            where = (profile.number, state, *_bounds(window), max(first, after + 1), last, tags, limit, subject)
            found = tx.all(DueRow, "dues.due_of_subject", where)
        return [row.facts(profile.kind, state) for row in found], found[-1].key if found else after

    def bin_census(self, tenant: str, now: int) -> list[Census]:
        with self._database.read() as tx:
            found = tx.all(CensusRow, "dues.bin_census", (now, tenant))
            found += tx.all(CensusRow, "dues.session_bin_census", (now, tenant))
        return [row.census(_kind(row.kind)) for row in found]

    def message_census(self, tenant: str, now: int) -> list[Census]:
        totals: dict[Subject, list[int]] = {}
        after = START
        with self._database.read() as tx:
            batches: dict[str, MoveBatch] = {}
            while found := tx.all(PurgedRow, "sessions.messages_to_purge", (now, *after, tenant, _SOME)):
                after = found[-1].place
                for row in found:
                    batch = batches.get(row.subject) or MoveBatch(tx, row.subject, row.number, now=now)
                    batches[row.subject] = batch
                    if not _is_kept(tx, batch, row):
                        total = totals.setdefault(row.subject, [0, 0, 0, 0])
                        marks = (zlib.crc32(row.id.encode()), row.purge_at // SECOND)
                        for place, amount in enumerate((1, row.size, *marks)):
                            total[place] += amount
        return [Census("message", subject, *total) for subject, total in sorted(totals.items())]

    def binned(
        self, tenant: str, now: int, *, after: Place = START, limit: int, tags: bool, sessions: bool = False
    ) -> Page:
        statement = "dues.sessions_binned" if sessions else "dues.binned"
        with self._database.read() as tx:
            found = tx.all(DueRow, statement, (now, tenant, *after, tags, limit))
        last = (found[-1].purge_at or 0, found[-1].key) if found else START
        return Page([row.facts(_kind(row.kind), State(row.state)) for row in found], last)

    def binned_sessions(
        self, tenant: str, subject: Subject | None = None, *, after: tuple[int, str] | None = None, limit: int
    ) -> list[Session]:
        with self._database.read() as tx:
            where = (tenant, subject, limit, *(after or (_FIRST, "")))
            found = tx.all(SessionRow, "dues.bin_of_sessions", where)
        return [row.session(row.subject) for row in found]

    def live(self, subject: Subject) -> int:
        with self._database.read() as tx:
            return tx.number("dues.live_of_subject", (tx.number_of(subject) or 0,))

    def expired(self, subject: Subject, kind: str, now: int) -> int:
        tenant = subject.tenant
        with self._database.read() as tx:
            keys = all_keys(tx.number_of(subject) or 0)
            return tx.number("dues.expired", (tenant, kind, now, *keys))

    def live_of_agent(self, tenant: str, agent_id: str) -> int:
        with self._database.read() as tx:
            return tx.number("dues.live_of_agent", (agent_id, tenant))

    def shares(self, tenant: str, profile: Profile, state: State, window: Window, named: Named) -> list[Share]:
        statement = "dues.session_shares" if profile.kind == HISTORY else "dues.shares"
        with self._database.read() as tx:
            numbers = ((tx.number_of(Subject(tenant, user_id)), user_id) for user_id in named.users)
            users = {number: user_id for number, user_id in numbers if number is not None}
            sets = (to_json(dict.fromkeys(sorted(names), 1)) for names in (map(str, users), *named[1:]))
            found = tx.all(ShareRow, statement, (profile.number, state, *_bounds(window), *sets))
        things = (
            Held(users.get(row.subject or 0, ""), row.agent_id or "", row.session_id or "", row.id or "", {})
            for row in found
        )
        return [Share(thing, row.records, row.bytes) for thing, row in zip(things, found, strict=True)]

    def overdue_since(self, tenant: str, now: int) -> Iterator[tuple[str, int]]:
        for profile in self.profiles(tenant):
            with self._database.read() as tx:
                yield from _oldest_due(tx, profile, now)
        with self._database.read() as tx:
            earliest: int | None = tx.value("dues.earliest_binned", (now, tenant))
        if earliest is not None:
            yield "bin", earliest

    def totals(self) -> list[tuple[str, str, str, int]]:
        with self._database.read() as tx:
            return [(row.kind, row.state, row.cause, row.records) for row in tx.all(TotalRow, "dues.totals")]

    def holdings(self) -> list[tuple[str, int, int]]:
        with self._database.read() as tx:
            found = tx.all(HoldingRow, "dues.bytes_by_kind")
        return [(_kind(row.kind), row.bytes, row.memories) for row in found]

    def ages(self, bounds: Sequence[int]) -> dict[str, tuple[list[int], int]]:
        limits = [_LAST, *sorted(bounds, reverse=True), _FIRST]
        counts: dict[str, tuple[list[int], int]] = {}
        with self._database.read() as tx:
            for profile in tx.all(NumberedProfile, "dues.every_profile"):
                found, total = counts.get(profile.kind, ([0] * (len(limits) - 1), 0))
                for place, (newest, oldest) in enumerate(pairwise(limits)):
                    for state in (State.ACTIVE, State.ARCHIVED):
                        (ages,) = tx.all(AgesRow, "dues.ages", (profile.no, state, oldest, newest))
                        found[place] += ages.records
                        total += int(ages.total) * SECOND
                counts[profile.kind] = (found, total)
        return counts

    def give_back(self, pages: int) -> int:
        return self._database.give_back(pages)


def _oldest_due(tx: Transaction, profile: Profile, now: int) -> Iterator[tuple[str, int]]:
    """When the record that has waited longest for its move was due, for each state."""
    if profile.kind == HISTORY:
        found = [(State.ACTIVE, tx.value("dues.earliest_session", (profile.number,)))]
    else:
        states = (State.ACTIVE, State.ARCHIVED)
        found = [(state, tx.value("dues.earliest", (profile.number, state))) for state in states]
    life = profile.life
    for state, earliest in found:
        times = [life.delete_after] + ([life.archive_after] if state is State.ACTIVE else [])
        due = [earliest + after for after in times if earliest is not None and after is not None]
        if due and min(due) <= now:
            yield profile.kind, min(due)


def _is_kept(tx: Transaction, batch: MoveBatch, row: PurgedRow) -> bool:
    """Whether a message stays, for a hold on it, or goes with its conversation, if no hold keeps that."""
    if batch.holds:
        thing = held_of(row.subject, row.agent_id, row.session_id, row.id, row.metadata)
        if find_hold(thing, batch.holds) is not None:
            return True
    place = SessionPlace(row.no, row.item_id, row.agent_id, row.session_id or "")
    return bool(row.is_over) and hold_on(tx, batch, place) is None


def _bounds(window: Window) -> Place:
    return (_FIRST if window.after is None else window.after), window.upto


def _kind(code: int | None) -> str:
    return HISTORY if code is None else KINDS[code].name.value
