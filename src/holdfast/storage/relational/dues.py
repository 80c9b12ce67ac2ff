"""What is due: the ``DueStore``.

Each question is a range of an index, or a run of keys, so it costs what it answers.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Final, NamedTuple

from holdfast.core.decisions import Held, RecordFacts, Window, first_wait
from holdfast.core.records import HISTORY, State, Subject
from holdfast.core.rules import resolve
from holdfast.core.values import DAY, SECOND, to_json
from holdfast.ports.conversations import Session
from holdfast.ports.rules import AgeCount, Census, DayCensus, Named, Page, Profile, Share, StoreCounts
from holdfast.ports.subjects import is_tombstone
from holdfast.storage.relational.database import SqlStore, Transaction
from holdfast.storage.relational.history import PurgedRow
from holdfast.storage.relational.rows import START, FactsRow, all_keys, kind_name
from holdfast.storage.relational.rules import Holds, ProfileRow, read_book, version_of
from holdfast.storage.relational.sessions import find_session_hold, message_keys

_FIRST: Final = -(2**63)
_SOME: Final = 1_000
#: One statement looks at so many classes of what is due: on a cluster each goes to all shards.
_CLASSES: Final = 8
DueClass = tuple[Profile, State, Window]
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


class ClassRow(NamedTuple):
    """How much of a subject is in one of several windows."""

    subject: Subject
    records: int
    bytes: int
    mark: int
    check_mark: int
    place: int


class DayRow(NamedTuple):
    """How much of a subject becomes due on a day; without a kind, of conversations, or of one that is known."""

    subject: Subject
    agent_id: str
    day: int
    records: int
    bytes: int
    kind: int | None = None

    def census(self, kind: str) -> DayCensus:
        """The same, as callers know it."""
        return DayCensus(kind, self.subject, self.agent_id, self.day, self.records, self.bytes)


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

    def thing(self, users: Mapping[int, str]) -> Held:
        """What is named, as a hold looks at it."""
        return Held(users.get(self.subject or 0, ""), self.agent_id or "", self.session_id or "", self.id or "", {})


class StoreCountRow(NamedTuple):
    """How many records of a kind there are, if the place is the code of that; or ever moved (-1); or how many sessions
    parts have not followed (-2).
    """

    place: int
    kind: str
    state: str
    cause: str
    records: int
    bytes: int


class SqlDues(SqlStore):
    """The ``DueStore`` of the relational engines."""

    def rules_version(self, tenant: str) -> int:
        with self._database.read() as tx:
            return version_of(tx, tenant)

    def tenants(self) -> list[str]:
        return self._database.ask(str, "dues.tenants")

    def profiles(self, tenant: str) -> list[Profile]:
        with self._database.read() as tx:
            book = read_book(tx, tenant)
            found = tx.all(ProfileRow, "dues.profiles", (tenant,))
            together = [(row.no, row.kind, book.together(row.kind, json.loads(row.rules), row.ttl)) for row in found]
        return [Profile(no, kind, resolve(kind, rules, book.defaults), tuple(rules)) for no, kind, rules in together]

    def census(self, profile: Profile, state: State, window: Window, *, without: Iterable[str] = ()) -> list[Census]:
        return self._census([(profile, state, window)], to_json(sorted(without)))[0]

    def census_all(self, classes: Sequence[DueClass]) -> list[list[Census]]:
        return self._census(classes, "[]")

    def _census(self, classes: Sequence[DueClass], without: str) -> list[list[Census]]:
        counted: list[list[Census]] = [[] for _ in classes]
        talks = [place for place, (profile, *_) in enumerate(classes) if profile.kind == HISTORY]
        for place in talks:
            found = self._database.ask(CensusRow, "dues.session_census", (*_bounds(*classes[place]), without))
            counted[place] = [row.census(HISTORY) for row in found if not is_tombstone(row.subject)]
        others = [place for place in range(len(classes)) if place not in talks]
        for start in range(0, len(others), _CLASSES):
            some = others[start : start + _CLASSES]
            asked = to_json([_bounds(*classes[place]) for place in some])
            for row in self._database.ask(ClassRow, "dues.census", (asked, without)):
                (profile, *_), sums = classes[some[row.place]], (row.records, row.bytes, row.mark, row.check_mark)
                if not is_tombstone(row.subject):
                    counted[some[row.place]].append(Census(profile.kind, row.subject, *sums))
        return counted

    def by_day(self, profile: Profile, state: State, *, upto: int, days: int) -> list[DayCensus]:
        statement = "dues.sessions_by_day" if profile.kind == HISTORY else "dues.by_day"
        found = self._database.ask(DayRow, statement, (profile.number, state, upto, upto + days * DAY))
        return [row.census(profile.kind) for row in found if not is_tombstone(row.subject)]

    def bin_by_day(self, tenant: str, *, upto: int, days: int) -> list[DayCensus]:
        found = self._database.ask(DayRow, "dues.bin_by_day", (upto, upto + days * DAY, tenant))
        return [row.census(kind_name(row.kind)) for row in found]

    def census_of_agents(
        self, profile: Profile, state: State, window: Window, *, without: Iterable[str] = ()
    ) -> dict[str, int]:
        if profile.kind == HISTORY:
            return {}
        where = (*_bounds(profile, state, window), to_json(sorted(without)))
        return dict(self._database.ask(AgentCount, "dues.census_of_agents", where))

    def due(
        self, profile: Profile, state: State, window: Window, *, after: Place = START, limit: int, tags: bool
    ) -> Page:
        statement = "dues.sessions_due" if profile.kind == HISTORY else "dues.due"
        found = self._database.ask(FactsRow, statement, (*_bounds(profile, state, window), *after, tags, limit))
        last = (found[-1].aged_from, found[-1].key) if found else START
        return Page([row.facts() for row in found if not is_tombstone(row.subject)], last)

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
            where = (*_bounds(profile, state, window), max(first, after + 1), last, tags, limit, subject)
            found = tx.all(FactsRow, "dues.due_of_subject", where)
        return [row.facts() for row in found], found[-1].key if found else after

    def bin_census(self, tenant: str, now: int) -> list[Census]:
        found = self._database.ask(CensusRow, "dues.bin_census", (now, tenant))
        return [row.census(kind_name(row.kind)) for row in found]

    def message_census(self, tenant: str, now: int) -> list[Census]:
        totals: dict[Subject, list[int]] = {}
        after = START
        with self._database.read() as tx:
            holds = cache(partial(Holds, tx))
            while found := tx.all(PurgedRow, "sessions.messages_to_purge", (now, *after, tenant, _SOME)):
                after = found[-1].place
                for row in found:
                    if not _is_kept(tx, holds(row.subject), row):
                        amounts = (1, row.size, zlib.crc32(row.id.encode()), row.purge_at // SECOND)
                        total = totals.get(row.subject, [0, 0, 0, 0])
                        totals[row.subject] = [so_far + more for so_far, more in zip(total, amounts, strict=True)]
        return [Census("message", subject, *total) for subject, total in sorted(totals.items())]

    def binned(
        self, tenant: str, now: int, *, after: Place = START, limit: int, tags: bool, sessions: bool = False
    ) -> Page:
        statement = "dues.sessions_binned" if sessions else "dues.binned"
        found = self._database.ask(FactsRow, statement, (now, tenant, *after, tags, limit))
        last = (found[-1].purge_at or 0, found[-1].key) if found else START
        return Page([row.facts() for row in found], last)

    def binned_sessions(
        self, tenant: str, subject: Subject | None = None, *, after: tuple[int, str] | None = None, limit: int
    ) -> list[Session]:
        where = (tenant, subject, limit, *(after or (_FIRST, "")))
        return self._database.ask(Session, "dues.bin_of_sessions", where)

    def live(self, subject: Subject) -> int:
        with self._database.read() as tx:
            return tx.number("dues.live_of_subject", (tx.number_of(subject) or 0,))

    def expired(self, subject: Subject, kind: str, now: int) -> int:
        with self._database.read(subject) as tx:
            keys = all_keys(tx.number_of(subject) or 0)
            return tx.number("dues.expired", (subject.tenant, kind, now, *keys))

    def live_of_agent(self, tenant: str, agent_id: str) -> int:
        return sum(self._database.ask(int, "dues.live_of_agent", (agent_id, tenant)))

    def shares(self, tenant: str, profile: Profile, state: State, window: Window, named: Named) -> list[Share]:
        statement = "dues.session_shares" if profile.kind == HISTORY else "dues.shares"
        with self._database.read() as tx:
            numbers = ((tx.number_of(Subject(tenant, user_id)), user_id) for user_id in named.users)
            users = {number: user_id for number, user_id in numbers if number is not None}
            sets = (to_json(dict.fromkeys(sorted(names), 1)) for names in (map(str, users), *named[1:]))
            found = tx.all(ShareRow, statement, (*_bounds(profile, state, window), *sets))
        return [Share(row.thing(users), row.records, row.bytes) for row in found]

    def first_due(self, tenant: str) -> list[tuple[str, int]]:
        waits = [wait for profile in self.profiles(tenant) for wait in _waits(profile)]
        asked = [
            ("dues.earliest_session" if wait.kind == HISTORY else "dues.earliest", (wait.profile, wait.state))
            for wait in waits
        ]
        with self._database.read() as tx:
            tx.ask_ahead(asked)
            found = [tx.find(int, *question) for question in asked]
        pairs = zip(waits, found, strict=True)
        return [(wait.kind, earliest + wait.after) for wait, earliest in pairs if earliest is not None]

    def overdue_since(self, tenant: str, now: int) -> Iterator[tuple[str, int]]:
        yield from ((kind, due) for kind, due in self.first_due(tenant) if due <= now)
        for earliest in filter(None, self._database.ask(int, "dues.earliest_binned", (now, tenant))):
            yield "bin", earliest

    def counts(self) -> StoreCounts:
        moves: dict[tuple[str, str, str], int] = {}
        live: dict[str, tuple[int, int]] = {}
        behind = 0
        for row in self._database.ask(StoreCountRow, "dues.counts"):
            if row.place >= 0:
                live[kind_name(row.place)] = row.records, row.bytes
            elif row.place == -1:
                moves[row.kind, row.state, row.cause] = row.records
            else:
                behind = row.records
        return StoreCounts(moves, live, behind)

    def ages(self, bounds: Sequence[int], now: int) -> list[AgeCount]:
        return self._database.ask(AgeCount, "dues.ages", (to_json(sorted(bounds)), now))

    def give_back(self, pages: int) -> int:
        return self._database.give_back(pages)


class _Wait(NamedTuple):
    """After how long the next move of a profile's records in a state is due."""

    kind: str
    profile: int
    state: State
    after: int


def _waits(profile: Profile) -> Iterator[_Wait]:
    for state in (State.ACTIVE,) if profile.kind == HISTORY else (State.ACTIVE, State.ARCHIVED):
        if (after := first_wait(profile.life, state)) is not None:
            yield _Wait(profile.kind, profile.number, state, after)


def _is_kept(tx: Transaction, holds: Holds, row: PurgedRow) -> bool:
    """Whether a message stays, for a hold on it, or goes with its conversation, if no hold keeps that."""
    if holds.find(row.agent_id, row.session_id, row.id, row.metadata) is not None:
        return True
    keys = message_keys(row.number, row.no)
    return row.is_over and find_session_hold(tx, holds, keys, row.item_id, (row.agent_id, row.session_id)) is None


def _bounds(profile: Profile, state: State, window: Window) -> tuple[object, ...]:
    """What a window of what is due is asked for by."""
    return profile.number, state, (_FIRST if window.after is None else window.after), window.upto
