"""What there is of a user, and of a tenant: the ``FigureStore``.

Each question is a range of an index, or a run of keys, so it costs what it answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from heapq import merge
from itertools import islice
from typing import Any, Final, NamedTuple

from holdfast.core.decisions import Hold, is_tagged
from holdfast.core.records import COUNT_BITS, DURABLE, KIND_BITS, TYPES, MemoryType, State, Subject
from holdfast.core.values import to_json, unpack_beginning
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
from holdfast.storage.relational.database import SqlStore, Transaction
from holdfast.storage.relational.rows import TotalRow, key_range

_FIRST: Final = -(2**63)
_LAST: Final = 2**63 - 1
_LAST_SUBJECT: Final = (_LAST >> KIND_BITS + COUNT_BITS) - 1
#: So many records of a kind a page of a list passes over at most.
_PASSED_OVER: Final = 20_000


class ScopeRow(NamedTuple):
    """A kind of which a subject has, or had, records; and the count that the next one gets."""

    kind: MemoryType
    next: int


class SummaryRow(NamedTuple):
    """What a list shows of a record."""

    id: str
    kind: MemoryType
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
        values["beginning"] = unpack_beginning(self.beginning, chars)
        return RecordSummary(**values)


class KindCount(NamedTuple):
    """How many things of a kind there are."""

    kind: str
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


class BinnedCount(NamedTuple):
    """How many records of a kind have had their time in the recycle bin."""

    kind: MemoryType
    records: int


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
            places[row.kind] = row.key
        if len(merged) <= limit:  # what was passed over is not looked at again
            places |= lows
        is_last = len(merged) <= limit and not lows
        return [row.summary(chars) for row in merged[:limit]], None if is_last else tuple(places.values())

    def facets(self, subject: Subject, *, most: int) -> tuple[list[FacetCount], bool]:
        found: list[FacetCount] = []
        whole = True
        with self._database.read(subject) as tx:
            for place in filter(None, _ends(tx, subject).values()):
                first = place >> COUNT_BITS << COUNT_BITS
                whole = whole and place - first <= most
                found += tx.all(FacetCount, "figures.facets", (max(first, place - most), place - 1))
        return found, whole

    # --- a tenant -----------------------------------------------------------------------------------------------

    def holdings(self, tenant: str) -> list[Holding]:
        return self._database.ask(Holding, "figures.holdings", (tenant,))

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
            deleted = tx.all(BinnedCount, "figures.due_in_bin", asked)
        counts = [DueCount(row.kind, "archive", row.records) for row in archived]
        counts += [DueCount(row.kind, "recycle", row.records) for row in recycled]
        return counts + [DueCount(row.kind.value, "delete", row.records) for row in deleted]

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
    ends = {row.kind: key_range(number or 0, TYPES[row.kind], row.next)[0] for row in found}
    return {name: ends.get(name, 0) for name in DURABLE}


def _where(which: Selection) -> tuple[object, ...]:
    """A selection as ``figures.page`` takes it."""
    states = [State.ACTIVE, State.ARCHIVED, State.RECYCLED] if which.state is None else [which.state]
    since = _FIRST if which.created_from is None else which.created_from
    until = _LAST if which.created_before is None else which.created_before
    return to_json(states), which.agent_id, which.session_id, which.source, since, until
