"""What is due, and what there is: the ``DueStore`` and the ``FigureStore``.

Each question is a range of an index, or a run of keys, so it costs what it answers.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from heapq import merge
from itertools import islice
from typing import Any, Final, NamedTuple

from holdfast.core.decisions import Held, Hold, RecordFacts, Window, is_tagged
from holdfast.core.records import COUNT_BITS, DURABLE, HISTORY, KIND_BITS, MemoryType, State, Subject
from holdfast.core.rules import resolve
from holdfast.core.values import DAY, SECOND, to_json, unpack_beginning
from holdfast.ports.conversations import Session
from holdfast.ports.figures import (
    BinEnds,
    DayCount,
    DueCount,
    ErasureCount,
    ErasureRecord,
    ErasureTime,
    FacetCount,
    Holding,
    Places,
    RecordSummary,
    Selection,
)
from holdfast.ports.rules import Census, DayCensus, Named, Page, Profile, Share
from holdfast.ports.subjects import is_tombstone
from holdfast.storage.relational.database import SqlStore, Transaction
from holdfast.storage.relational.history import PurgedRow
from holdfast.storage.relational.moves import Holds
from holdfast.storage.relational.rows import KINDS, START, FactsRow, all_keys, key_range, kind_name
from holdfast.storage.relational.rules import ProfileRow, read_book, version_of
from holdfast.storage.relational.sessions import find_session_hold, message_keys

_FIRST: Final = -(2**63)
_LAST: Final = 2**63 - 1
_LAST_SUBJECT: Final = (_LAST >> KIND_BITS + COUNT_BITS) - 1
_SOME: Final = 1_000
#: So many records of a kind a page of a list passes over at most.
_PASSED_OVER: Final = 20_000
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
    """How many records of a kind age from between two bounds, and the sum of the moments, in seconds."""

    kind: str
    place: int
    records: int
    seconds: int


class ScopeRow(NamedTuple):
    """A kind of which a subject has, or had, records; and the count that the next one gets."""

    kind: int
    next: int


class SummaryRow(NamedTuple):
    """What a list shows of a record."""

    id: str
    kind: int
    state: State
    revision: int
    agent_id: str
    session_id: str | None
    name: str | None
    created_at: int
    updated_at: int
    archive_at: int | None
    hidden_from: int | None
    moved_at: int | None
    purge_at: int | None
    reason: str | None
    source: str | None
    size: int
    text_hash: int
    metadata: dict[str, Any]
    beginning: str | bytes
    key: int

    def summary(self, chars: int) -> RecordSummary:
        """The same, as callers know it."""
        values = self._asdict()
        del values["key"]
        values |= {"kind": KINDS[self.kind].name, "beginning": unpack_beginning(self.beginning, chars)}
        return RecordSummary(**values)


class FacetRow(NamedTuple):
    """How many records of a subject are alike."""

    kind: int
    state: State
    agent_id: str
    session_id: str | None
    source: str | None
    records: int
    bytes: int


class HoldingsRow(NamedTuple):
    """How much a tenant's users have of a kind."""

    kind: int
    added: int
    memories: int
    bytes: int
    archived: int
    archived_bytes: int
    binned: int
    binned_bytes: int


class KindCount(NamedTuple):
    """How many things of a kind there are."""

    kind: str
    records: int


class CodeCount(NamedTuple):
    """The same, by the kind's code."""

    kind: int
    records: int


class HeldRow(NamedTuple):
    """What a hold looks at."""

    agent_id: str
    session_id: str | None
    metadata: str


class StateCount(NamedTuple):
    """How many things are in a state."""

    state: str
    records: int


class FirstDue(NamedTuple):
    """When the first thing of a kind is due."""

    kind: str
    due: int


class SqlFigures(SqlStore):
    """The ``FigureStore`` of the relational engines. Each kind of a subject is one run of keys, in the order in which
    its records were stored; a list goes through all runs at once.
    """

    def page(
        self, subject: Subject, which: Selection, *, after: Places | None = None, limit: int, chars: int, tags: bool
    ) -> tuple[list[RecordSummary], Places | None]:
        runs: list[list[SummaryRow]] = []
        with self._database.read(subject) as tx:
            places = ends = _ends(tx, subject)
            if after is not None:  # whatever it says, nothing of another user is read by it
                places = {name: min(place, ends[name]) for name, place in zip(DURABLE, after, strict=True)}
            lows: dict[MemoryType, int] = {}
            for name, place in places.items():
                first = ends[name] >> COUNT_BITS << COUNT_BITS
                if place > first and which.kind in (None, name):
                    low = max(first, place - _PASSED_OVER)
                    asked = (low, place - 1, *_where(which), tags, 4 * chars + 1, limit + 1)
                    runs.append(tx.all(SummaryRow, "figures.page", asked))
                    if low > first and len(runs[-1]) <= limit:
                        lows[name] = low
        merged = list(islice(merge(*runs, key=lambda row: (row.created_at, row.id), reverse=True), limit + 1))
        for row in merged[:limit]:
            places[KINDS[row.kind].name] = row.key
        if len(merged) <= limit:  # what was passed over is not looked at again
            places |= lows
        is_last = len(merged) <= limit and not lows
        return [row.summary(chars) for row in merged[:limit]], None if is_last else tuple(places.values())

    def facets(self, subject: Subject, *, most: int) -> tuple[list[FacetCount], bool]:
        found: list[FacetRow] = []
        whole = True
        with self._database.read(subject) as tx:
            for place in filter(None, _ends(tx, subject).values()):
                first = place >> COUNT_BITS << COUNT_BITS
                whole = whole and place - first <= most
                found += tx.all(FacetRow, "figures.facets", (max(first, place - most), place - 1))
        return [FacetCount(**{**row._asdict(), "kind": KINDS[row.kind].name}) for row in found], whole

    # --- a tenant -----------------------------------------------------------------------------------------------

    def holdings(self, tenant: str) -> list[Holding]:
        found = self._database.ask(HoldingsRow, "figures.holdings", (tenant,))
        return [Holding(**{**row._asdict(), "kind": KINDS[row.kind].name}) for row in found]

    def users(self, tenant: str) -> int:
        return sum(self._database.ask(int, "figures.users", (tenant,)))

    def sessions(self, tenant: str) -> dict[str, int]:
        return dict(self._database.ask(StateCount, "figures.sessions", (tenant,)))

    def due(self, tenant: str, at: int, *, most: int) -> list[DueCount]:
        asked = (tenant, at, most)
        with self._database.read() as tx:
            archived = tx.all(KindCount, "figures.due_to_archive", asked)
            recycled = tx.all(KindCount, "figures.due_to_recycle", asked) + tx.all(
                KindCount, "figures.due_sessions", asked
            )
            deleted = tx.all(CodeCount, "figures.due_in_bin", asked)
        counts = [DueCount(row.kind, "archive", row.records) for row in archived]
        counts += [DueCount(row.kind, "recycle", row.records) for row in recycled]
        return counts + [DueCount(kind_name(row.kind), "delete", row.records) for row in deleted]

    def first_due(self, tenant: str) -> dict[str, int]:
        return dict(self._database.ask(FirstDue, "figures.first_due", (tenant,)))

    def bin_ends(self, tenant: str) -> BinEnds:
        (ends,) = self._database.ask(BinEnds, "figures.bin_ends", (tenant,))
        return ends

    def moves(self, tenant: str) -> list[tuple[str, str, str, int]]:
        found = self._database.ask(TotalRow, "figures.totals", (tenant,))
        return [(row.kind, row.state, row.cause, row.records) for row in found]

    def covered(self, hold: Hold, *, most: int) -> tuple[dict[str, int], bool]:
        counts: dict[str, int] = {}
        with self._database.read() as tx:
            number = None if hold.user_id is None else tx.number_of(Subject(hold.tenant, hold.user_id))
            first, last = (0, _LAST_SUBJECT) if hold.user_id is None else (number or 0, number or 0)
            asked = (hold.tenant, first, last, most, int(hold.tag is not None))
            found = {"memories": tx.all(HeldRow, "figures.held_rows", asked)}
            if hold.tag is None:
                found["sessions"] = tx.all(HeldRow, "figures.held_sessions", asked[:-1])
        for what, rows in found.items():
            counts[what] = sum(
                hold.agent_id in (None, row.agent_id)
                and hold.session_id in (None, row.session_id)
                and (hold.tag is None or is_tagged(json.loads(row.metadata), hold.tag))
                for row in rows
            )
        is_whole = all(len(rows) < most for rows in found.values())
        return counts, is_whole

    def last_day(self, tenant: str) -> int | None:
        return self._find(int, "figures.last_day", tenant)

    def note_day(self, tenant: str, counts: Iterable[DayCount], *, forget: int) -> None:
        with self._database.write() as tx:
            tx.run_many("figures.note_day", [(tenant, *one) for one in counts])
            tx.run("figures.forget_days", (tenant, forget))

    def days(self, tenant: str, *, since: int) -> list[DayCount]:
        return self._database.ask(DayCount, "figures.days", (tenant, since))

    def erasures(self, tenant: str, *, since: int) -> list[ErasureTime]:
        return self._database.ask(ErasureTime, "figures.erasures", (tenant, since))

    def count_erasures(self, bounds: Sequence[int]) -> list[ErasureCount]:
        return self._database.ask(ErasureCount, "figures.erasure_times", tuple(bounds))

    def judge_erasures(self, objective: int, *, now: int) -> ErasureRecord:
        return self._database.ask(ErasureRecord, "figures.erasures_late", (objective, now))[0]


def _ends(tx: Transaction, subject: Subject) -> dict[MemoryType, int]:
    """For each kind that is kept, the key that the next record of a subject gets; 0, if there was none."""
    number = tx.number_of(subject)
    found = [] if number is None else tx.all(ScopeRow, "figures.scopes_of_subject", (number,))
    ends = {KINDS[row.kind].name: key_range(number or 0, KINDS[row.kind], row.next)[0] for row in found}
    return {name: ends.get(name, 0) for name in DURABLE}


def _where(which: Selection) -> tuple[object, ...]:
    """A selection as ``figures.page`` takes it."""
    states = [State.ACTIVE, State.ARCHIVED, State.RECYCLED] if which.state is None else [which.state]
    since = _FIRST if which.created_from is None else which.created_from
    until = _LAST if which.created_before is None else which.created_before
    return to_json(states), which.agent_id, which.session_id, which.source, since, until


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
        statement = "dues.session_census" if profile.kind == HISTORY else "dues.census"
        found = self._database.ask(CensusRow, statement, (*_bounds(profile, state, window), to_json(sorted(without))))
        return [row.census(profile.kind) for row in found if not is_tombstone(row.subject)]

    def by_day(self, profile: Profile, state: State, *, upto: int, days: int) -> list[DayCensus]:
        statement = "dues.sessions_by_day" if profile.kind == HISTORY else "dues.by_day"
        found = self._database.ask(DayRow, statement, (profile.number, state, upto, upto + days * DAY))
        return [row.census(profile.kind) for row in found if not is_tombstone(row.subject)]

    def bin_by_day(self, tenant: str, *, upto: int, days: int) -> list[DayCensus]:
        asked = (upto, upto + days * DAY, tenant)
        with self._database.read() as tx:
            found = tx.all(DayRow, "dues.bin_by_day", asked) + tx.all(DayRow, "dues.session_bin_by_day", asked)
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
        with self._database.read() as tx:
            found = tx.all(CensusRow, "dues.bin_census", (now, tenant))
            found += tx.all(CensusRow, "dues.session_bin_census", (now, tenant))
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

    def overdue_since(self, tenant: str, now: int) -> Iterator[tuple[str, int]]:
        for profile in self.profiles(tenant):
            with self._database.read() as tx:
                yield from _oldest_due(tx, profile, now)
        for earliest in filter(None, self._database.ask(int, "dues.earliest_binned", (now, tenant))):
            yield "bin", earliest

    def totals(self) -> list[tuple[str, str, str, int]]:
        return [(row.kind, row.state, row.cause, row.records) for row in self._database.ask(TotalRow, "dues.totals")]

    def holdings(self) -> list[tuple[str, int, int]]:
        found = self._database.ask(HoldingRow, "dues.bytes_by_kind")
        return [(kind_name(row.kind), row.bytes, row.memories) for row in found]

    def ages(self, bounds: Sequence[int]) -> dict[str, tuple[list[int], int]]:
        first = [bound + 1 for bound in sorted(bounds)]
        counts: dict[str, tuple[list[int], int]] = {}
        for row in self._database.ask(AgesRow, "dues.ages", (to_json(first),)):
            found, total = counts.get(row.kind, ([0] * (len(first) + 1), 0))
            found[len(first) - row.place] += row.records
            counts[row.kind] = (found, total + row.seconds * SECOND)
        return counts

    def give_back(self, pages: int) -> int:
        return self._database.give_back(pages)


def _oldest_due(tx: Transaction, profile: Profile, now: int) -> Iterator[tuple[str, int]]:
    """When the record that has waited longest for its move was due, for each state."""
    states = (State.ACTIVE,) if profile.kind == HISTORY else (State.ACTIVE, State.ARCHIVED)
    statement = "dues.earliest_session" if profile.kind == HISTORY else "dues.earliest"
    found = [(state, tx.find(int, statement, (profile.number, state))) for state in states]
    life = profile.life
    for state, earliest in found:
        times = [life.delete_after] + ([life.archive_after] if state is State.ACTIVE else [])
        due = [earliest + after for after in times if earliest is not None and after is not None]
        if due and min(due) <= now:
            yield profile.kind, min(due)


def _is_kept(tx: Transaction, holds: Holds, row: PurgedRow) -> bool:
    """Whether a message stays, for a hold on it, or goes with its conversation, if no hold keeps that."""
    if holds.find(row.agent_id, row.session_id, row.id, row.metadata) is not None:
        return True
    keys = message_keys(row.number, row.no)
    return row.is_over and find_session_hold(tx, holds, keys, row.item_id, (row.agent_id, row.session_id)) is None


def _bounds(profile: Profile, state: State, window: Window) -> tuple[object, ...]:
    """What a window of what is due is asked for by."""
    return profile.number, state, (_FIRST if window.after is None else window.after), window.upto
