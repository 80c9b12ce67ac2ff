"""Recall from scopes too large for an index in memory: the store finds candidates, and the same ranking chooses."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from holdfast.core.deadline import without_deadline
from holdfast.core.records import Scope
from holdfast.core.types import Kind, MemoryType
from holdfast.ports.feed import IndexRow, LargeScopes, Said, Space, Wanted
from holdfast.recall import terms
from holdfast.recall.compaction import expand
from holdfast.recall.index import Hit, ScopeIndex, Survey, Whole
from holdfast.recall.query import Ask, Query

#: So many records of a scope are read to see what it is like.
_SAMPLE: Final = 10_000
#: A word is common if so many records of a sample hold it: then the sample says how many of the scope do.
_COMMON: Final = 20
#: After so much growth (or shrinking) a scope is looked at again.
_DRIFT: Final = 0.1
#: ... and after so many seconds, or sooner while many of its records have no vectors: they are about to get them.
_STALE_SECONDS: Final = 3_600.0
_UNSETTLED_SECONDS: Final = 10.0
_UNSETTLED: Final = 0.05
#: How many scopes' surveys are kept, a few hundred KiB each.
_KEPT: Final = 64
#: At least so many candidates by meaning, and by words.
_CANDIDATES: Final = 150
#: So many of the best candidates are looked at with their neighbours, ...
_CENTRES: Final = 40
#: ... and those with theirs: two places each.
_REACH: Final = 4
#: With more records than this not ready for search, a scope is read into memory while they are made ready.
_BEHIND: Final = 1_000
#: With more than this, a recall makes some ready, for so long.
_SOME: Final = 64
_FILL_SECONDS: Final = 0.05
_FILL_AT_ONCE: Final = 16
_FILL_BEHIND: Final = 500


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a scope from a sample."""

    survey: Survey
    model: str
    memories: int
    records: float
    share: float
    """The part of the scope that the sample is."""
    terms: npt.NDArray[np.uint32]
    counts: npt.NDArray[np.int64]
    until: float
    """By the monotonic clock."""

    def holding(self, asked: npt.NDArray[np.uint32]) -> npt.NDArray[np.float64]:
        """How many records of the scope hold each term; NaN where the sample does not tell."""
        if not len(self.terms):
            return np.full(len(asked), 0.0 if self.share == 1 else np.nan)
        at = np.minimum(self.terms.searchsorted(asked), len(self.terms) - 1)
        counts = np.where(self.terms[at] == asked, self.counts[at], 0).astype(np.float64)
        if self.share == 1:
            return counts
        counts[counts < _COMMON] = np.nan
        return counts / self.share


class LargeRecall:
    """Answers queries over large scopes."""

    def __init__(self, scopes: LargeScopes) -> None:
        self.scopes = scopes
        self._known: OrderedDict[tuple[Scope, MemoryType], _Known] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def most(self) -> int:
        """A scope with more live records than this is a large one."""
        return self.scopes.most

    def prepare(self, scope: Scope, kind: Kind, space: Space) -> tuple[int, bool]:
        """How many live records a user has of a kind, and whether they are to be searched where they are kept.

        Where few records are not ready for that, some are made so; where many are not, as many as a recall can wait
        for.
        """
        memories, waiting = self.scopes.standing(scope, kind)
        if memories <= self.most:
            return memories, False
        if waiting > _SOME:
            deadline = time.monotonic() + _FILL_SECONDS
            at_once = _FILL_BEHIND if waiting > _BEHIND else _FILL_AT_ONCE
            with without_deadline():
                while waiting > 0 and time.monotonic() < deadline:
                    made = self.scopes.fill(scope, kind, space, limit=at_once)
                    waiting = waiting - made if made else 0
        return memories, waiting <= _BEHIND

    def search(
        self, scope: Scope, kind: Kind, query: Query, ask: Ask, *, space: Space, memories: int
    ) -> tuple[list[Hit], bool]:
        """The best matches, best first, and whether there were records without vectors among the candidates."""
        known = self._known_of(scope, kind, space.model, memories)
        survey = known.survey
        wanted = Wanted(
            _direct(query.vector, survey),
            query.terms,
            known.holding(query.terms),
            known.records,
            survey.usual,
            max(_CANDIDATES, 2 * ask.top_k),
            ask.now,
            ask.where,
            ask.include_archived,
        )
        found = self.scopes.candidates(scope, kind, space, wanted)
        whole = Whole(survey, known.records, found.holding)
        candidates = expand(kind, found.rows)
        index = ScopeIndex(kind.name, candidates, runs={})
        if survey.thread and any(row.session_id is not None for row in candidates):
            lenders = Ask(max(_CENTRES, ask.top_k), ask.now, None, ask.include_archived)
            best = {hit.id for hit in _search(index, query, lenders, whole)}
            near = self.scopes.around(
                scope, kind, [row for row in candidates if row.id in best], model=space.model, reach=_REACH
            )
            rows = {row.id: row for row in (*candidates, *expand(kind, near.rows))}
            index = ScopeIndex(kind.name, rows.values(), runs=_runs(rows, near.before))
        return _search(index, query, ask, whole), any(row.vectors is None for row in candidates)

    def select(self, scope: Scope, kind: Kind, ask: Ask) -> list[str]:
        """Ids of records that pass the filter, newest first."""
        return self.scopes.select(
            scope,
            kind,
            ask.top_k,
            now=ask.now,
            where=ask.where,
            include_archived=ask.include_archived,
            before=ask.before,
        )

    def forget(self) -> None:
        """Keep nothing of any scope."""
        with self._lock:
            self._known.clear()

    def _known_of(self, scope: Scope, kind: Kind, model: str, memories: int) -> _Known:
        whose = Scope(scope.tenant, scope.user_id, scope.agent_id if "agent" in kind.scope else ""), kind.name
        with self._lock:
            known = self._known.get(whose)
            if known is not None:
                self._known.move_to_end(whose)
        if (
            known is None
            or known.model != model
            or abs(memories - known.memories) > _DRIFT * known.memories
            or time.monotonic() > known.until
        ):
            known = self._learn(scope, kind, model, memories)
            with self._lock:
                self._known[whose] = known
                while len(self._known) > _KEPT:
                    self._known.popitem(last=False)
        return known

    def _learn(self, scope: Scope, kind: Kind, model: str, memories: int) -> _Known:
        sample, share = self.scopes.sample(scope, kind, model=model, limit=_SAMPLE)
        rows = expand(kind, sample)
        said = terms.decode([row.terms for row in rows])
        pairs = np.unique(said.term.astype(np.int64) << 24 | said.row)  # once for each record, not each passage
        distinct, counts = np.unique(pairs >> 24, return_counts=True)
        bare = sum(row.vectors is None for row in rows)
        return _Known(
            survey=ScopeIndex(kind.name, rows).survey(),
            model=model,
            memories=memories,
            records=len(rows) / share,
            share=share,
            terms=distinct.astype(np.uint32),
            counts=counts,
            until=time.monotonic() + (_UNSETTLED_SECONDS if bare > _UNSETTLED * len(rows) else _STALE_SECONDS),
        )


def _direct(vector: npt.NDArray[np.float32] | None, survey: Survey) -> npt.NDArray[np.float32] | None:
    """Where vectors that are close to a query point, once their common direction is taken out of it."""
    if vector is not None and len(survey.direction) == len(vector):
        vector = vector - np.float32(survey.removed * float(vector @ survey.direction)) * survey.direction
    return vector if vector is not None and vector.any() else None


def _runs(rows: Mapping[str, IndexRow], before: Mapping[str, str]) -> dict[str, str]:
    """Where records stand in their sessions without a gap: so nothing borrows from what it does not stand next to."""
    run: dict[str, str] = {}
    for record_id in sorted(rows):
        if rows[record_id].session_id is not None:
            run[record_id] = run.get(before.get(record_id, ""), record_id)
    return run


def read_rows(kind: Kind, rows: Sequence[IndexRow]) -> list[Said]:
    """What records' encodings say of their texts."""
    whole = expand(kind, rows)
    said = terms.decode([row.terms for row in whole])
    ends = np.searchsorted(said.row, np.arange(len(whole) + 1))
    found = []
    for at, row in enumerate(whole):
        part = slice(int(ends[at]), int(ends[at + 1]))
        length = int(said.times[part].sum(dtype=np.int64))
        found.append(Said(np.unique(said.term[part]), length, int(said.passages[at]), row.vectors))
    return found


def _search(index: ScopeIndex, query: Query, ask: Ask, whole: Whole) -> list[Hit]:
    return index.search(
        query.vector,
        query.terms,
        top_k=ask.top_k,
        now=ask.now,
        where=ask.where,
        include_archived=ask.include_archived,
        explain=ask.explain,
        whole=whole,
    )
