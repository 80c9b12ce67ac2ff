"""The recall index of one scope, in process memory: exact vectors and BM25 over its records, fused, with neighbours.

Records have slots, which are handed out in order; what replaces a record gets a new one. A slot whose record is gone is
skipped, until there are enough of them to number the rest anew. Nothing that a search returns depends on how the index
came to hold its records.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.core.filters import Filter
from holdfast.core.types import MemoryType
from holdfast.ports.feed import IndexRow
from holdfast.recall import ranking, terms
from holdfast.recall.arrays import Growing
from holdfast.recall.dot import products
from holdfast.recall.metadata_columns import Columns, Mask
from holdfast.recall.postings import MAX_RECORDS, Postings
from holdfast.recall.ranking import Floats, Ints
from holdfast.recall.sessions import NONE, Sessions

_NEVER: Final = np.iinfo(np.int64).max
#: Slots are renumbered when more than this many, and more than a third of them, are empty.
_SLACK: Final = 256
#: Evidence that differs by less is equal: it is what the order of additions does to a sum of floats.
_GRAIN: Final = 2.0**-16


class Hit(NamedTuple):
    """A record that matches a query."""

    id: str
    score: float
    """0 to 1, on a scale that does not depend on the other hits, so that those of several scopes can be merged."""
    passage: int
    """Which of the record's passages matched best."""
    parts: dict[str, float]
    """If asked for: the evidence of which the score is made, which adds up to ``evidence``."""


class Survey(NamedTuple):
    """What the records of a scope are like, taken together."""

    direction: Floats
    """The direction that their vectors share; of length 0 where there are none."""
    removed: float
    """How much of it is taken out."""
    usual: float
    """How many words they have."""
    thread: float
    """How far adjacent ones follow one thread."""


class Whole(NamedTuple):
    """The scope of which an index holds a part."""

    survey: Survey
    records: float
    """How many it has."""
    holding: npt.NDArray[np.float64]
    """How many of them hold each of the query's terms."""


class ScopeIndex:
    """What is recalled from one scope and kind. Calls must not overlap."""

    def __init__(
        self, memory_type: MemoryType, rows: Iterable[IndexRow] = (), *, runs: Mapping[str, str] | None = None
    ) -> None:
        """``runs`` names, where not all of a scope is here, the run of its session that each record stands in without a
        gap; one that is not named stands alone.
        """
        self._runs = runs
        self._ids: list[str] = []
        self._slot_of: dict[str, int] = {}
        self._sorted = True  # slots are in the order of their ids
        self._here = Growing(np.bool_)
        self._archived_from = Growing(np.int64)
        self._hidden_from = Growing(np.int64)
        self._length = Growing(np.float32)
        self._first = Growing(np.int64)  # each slot's first passage
        self._vectors = Growing(np.float32, 0)
        self._total: npt.NDArray[np.float64] = np.zeros(0)
        self._embedded = 0
        self._words = 0
        self._sessions = Sessions(self._ids, lambda slots: self._vectors.view[self._first.view[slots]])
        self._blobs: dict[int, bytes] = {}  # the terms of records of several passages
        self._blob_bytes = 0
        self._postings = Postings()
        self._columns = Columns(memory_type)
        self._derived: _Derived | None = None
        self.upsert(rows)

    def __len__(self) -> int:
        return len(self._slot_of)

    def __contains__(self, record_id: object) -> bool:
        return record_id in self._slot_of

    @property
    def nbytes(self) -> int:
        """About what the index holds in memory."""
        arrays = (self._vectors, self._here, self._archived_from, self._hidden_from, self._length, self._first)
        held = sum(array.nbytes for array in arrays) + self._blob_bytes
        held += self._postings.nbytes + self._columns.nbytes + self._sessions.nbytes
        return held + 200 * len(self._ids) + 12 * len(self._vectors)  # ids, and what is derived

    # --- following the scope ----------------------------------------------------------------------------------------

    def upsert(self, rows: Iterable[IndexRow]) -> None:
        """Hold these records, in place of those with the same ids."""
        latest = {row.id: row for row in rows}
        if not latest:
            return
        batch = sorted(latest.values(), key=lambda row: row.id)
        decoded = terms.decode([row.terms for row in batch])
        dim = self._dimensions(batch, decoded.passages)
        self.remove(latest.keys() & self._slot_of.keys())
        start = len(self._ids)
        if start + len(batch) > MAX_RECORDS:
            raise ValueError(f"an index holds at most {MAX_RECORDS} records")
        ids = [row.id for row in batch]
        self._sorted = self._sorted and (not self._ids or self._ids[-1] < ids[0])
        self._add_passages(batch, decoded.passages, dim)
        self._postings.add(decoded.row + start, decoded.term, decoded.times)
        lengths = np.bincount(decoded.row, decoded.times, len(batch))
        self._words += int(lengths.sum())
        self._ids += ids
        self._slot_of.update(zip(ids, range(start, start + len(ids)), strict=True))
        self._here.extend(np.ones(len(batch), np.bool_))
        self._archived_from.extend([_NEVER if row.archived_from is None else row.archived_from for row in batch])
        self._hidden_from.extend([_NEVER if row.hidden_from is None else row.hidden_from for row in batch])
        self._length.extend(lengths)
        self._columns.add(batch)
        for at in np.flatnonzero(decoded.passages > 1).tolist():
            self._blobs[start + at] = batch[at].terms
            self._blob_bytes += len(batch[at].terms)
        self._sessions.add([row.session_id if self._runs is None else self._runs.get(row.id) for row in batch])
        self._derived = None

    def remove(self, ids: Iterable[str]) -> None:
        """Hold these records no longer. Ids that are not held are ignored."""
        slots = [self._slot_of.pop(record_id) for record_id in dict.fromkeys(ids) if record_id in self._slot_of]
        if not slots:
            return
        for slot in slots:
            self._here.view[slot] = False
            self._words -= int(self._length.view[slot])
            gone = self._vectors.view[self._passages(slot)]
            self._total -= gone.sum(0, dtype=np.float64)
            self._embedded -= int(gone.any(1).sum())
            self._blob_bytes -= len(self._blobs.pop(slot, b""))
        self._sessions.remove(slots)
        self._derived = None
        dead = len(self._ids) - len(self._slot_of)
        if dead > _SLACK and dead * 3 > len(self._ids):
            self._compact()

    def _dimensions(self, batch: Sequence[IndexRow], passages: Ints) -> int:
        """How many dimensions the vectors of this index have, or will have with the first of new records."""
        if self._vectors.width:
            return self._vectors.width
        sizes = (len(row.vectors) // (2 * n) for row, n in zip(batch, passages.tolist(), strict=True) if row.vectors)
        return next(sizes, 0)

    def _add_passages(self, batch: Sequence[IndexRow], passages: Ints, dim: int) -> None:
        """Append the vectors of new records; zeros for those that have none, or none of this length."""
        if dim != self._vectors.width:
            self._vectors.widen(dim)
            self._total = np.zeros(dim)
        starts = len(self._vectors) + np.cumsum(passages) - passages
        joined = b"".join(
            row.vectors if row.vectors is not None and len(row.vectors) == 2 * dim * count else bytes(2 * dim * count)
            for row, count in zip(batch, passages.tolist(), strict=True)
        )
        vectors = np.frombuffer(joined, np.float16).reshape(int(passages.sum()), dim).astype(np.float32)
        # Sums of float16 are exact in float64: adding and taking away in any order gives the same total.
        self._total += vectors.sum(0, dtype=np.float64)
        self._embedded += int(vectors.any(1).sum())
        self._vectors.extend(vectors)
        self._first.extend(starts)

    def _passages(self, slot: int) -> slice:
        first = self._first.view
        return slice(int(first[slot]), int(first[slot + 1]) if slot + 1 < len(first) else len(self._vectors))

    def _compact(self) -> None:
        """Renumber the slots without those whose record is gone."""
        kept = np.flatnonzero(self._here.view)
        numbers = np.full(len(self._ids) + 1, NONE)  # the last one is the record that is not there
        numbers[kept] = np.arange(len(kept))
        first = self._first.view
        counts = np.diff(first, append=len(self._vectors))[kept]
        owned = np.repeat(self._here.view, np.diff(first, append=len(self._vectors)))
        self._vectors.replace(self._vectors.view[owned])
        self._first.replace(np.cumsum(counts) - counts)
        for array in (self._here, self._archived_from, self._hidden_from, self._length):
            array.replace(array.view[kept])
        self._sessions.renumber(kept, numbers)
        self._ids[:] = [self._ids[slot] for slot in kept.tolist()]
        self._slot_of = {record_id: slot for slot, record_id in enumerate(self._ids)}
        self._sorted = all(map(str.__lt__, self._ids, self._ids[1:]))
        self._blobs = {int(numbers[slot]): blob for slot, blob in self._blobs.items()}
        self._postings.renumber(numbers)
        self._columns.keep(kept)
        self._derived = None

    # --- answering ----------------------------------------------------------------------------------------------------

    def search(
        self,
        query_vector: npt.NDArray[np.float32] | None,
        query_terms: npt.NDArray[np.uint32],
        *,
        top_k: int,
        now: int,
        where: Filter | None = None,
        include_archived: bool = False,
        explain: bool = False,
        whole: Whole | None = None,
    ) -> list[Hit]:
        """The records closest to a query, best first; of equals, the newest first.

        ``query_vector`` is of unit length (``None``: by words alone), ``query_terms`` what ``terms.query_terms`` gives.
        What is hidden at ``now``, archived (unless asked for) or outside the filter does not count among the ``top_k``.
        A record without vectors is found by its words and its neighbours. With ``whole``, evidence is what it would be
        in an index of that scope.
        """
        visible, wanted = self._masks(now, where, include_archived)
        passing = int(np.count_nonzero(wanted))
        count = min(top_k, passing)
        if count <= 0:
            return []
        if whole is None:
            derived = self._derived = self._derived or self._derive()
        else:
            derived = self._derive(whole.survey)
        closeness = self._closeness(query_vector, derived)
        lexical, weights = self._lexical(query_terms, derived, whole)
        evidence = lexical if closeness is None else lexical + self._per_record(closeness, derived)
        borrowed = None
        if derived.reach is not None:
            seen = evidence if passing == len(evidence) else np.where(visible, evidence, np.float32(0))
            borrowed = ranking.lent(seen, derived.near, derived.far)
            borrowed *= derived.reach
            evidence = evidence + borrowed
        if passing < len(evidence):
            evidence = np.where(wanted, evidence, np.float32(-np.inf))
        hits = []
        for slot, total in self._best(evidence, count):
            passage, close = self._best_passage(slot, closeness, query_terms, weights)
            parts = {}
            if explain:
                lent = 0.0 if borrowed is None else float(borrowed[slot])
                parts = {"vector": close, "lexical": float(lexical[slot]), "neighbours": lent, "evidence": total}
            hits.append(Hit(self._ids[slot], ranking.score(total), passage, parts))
        return hits

    def select(
        self,
        top_k: int,
        *,
        now: int,
        where: Filter | None = None,
        include_archived: bool = False,
        before: str | None = None,
    ) -> list[str]:
        """Ids of the records that a search would choose from, newest first, ``top_k`` at most; with ``before``, of
        those older than that one, be it there or not.
        """
        _, wanted = self._masks(now, where, include_archived)
        slots = np.flatnonzero(wanted).tolist()
        if self._sorted:
            if before is not None:
                slots = slots[: bisect_left(slots, before, key=self._ids.__getitem__)]
            return [self._ids[slot] for slot in slots[: -top_k - 1 : -1]] if top_k > 0 else []
        ids = (self._ids[slot] for slot in slots)
        return nlargest(top_k, ids if before is None else (one for one in ids if one < before))

    def _masks(self, now: int, where: Filter | None, include_archived: bool) -> tuple[Mask, Mask]:  # noqa: FBT001
        visible: Mask = self._hidden_from.view > now
        visible &= self._here.view
        if not include_archived:
            visible &= self._archived_from.view > now
        return visible, visible if where is None else visible & self._columns.mask(where)

    def survey(self) -> Survey:
        """What the records are like, taken together."""
        derived = self._derived = self._derived or self._derive()
        return Survey(derived.direction, derived.removed, derived.usual, derived.thread)

    def _derive(self, whole: Survey | None = None) -> _Derived:
        """What depends on the records and not on the query."""
        slots = len(self._ids)
        direction, removed = ranking.common_direction(self._total, self._embedded)
        usual = ranking.usual_length(self._words, len(self._slot_of))
        if whole is not None:
            usual = whole.usual
            if len(whole.direction) == len(direction):
                direction, removed = whole.direction, whole.removed
        common = products(self._vectors.view, direction)
        own = ranking.own_length(common, removed)
        near = (self._sessions.previous, self._sessions.next)
        linked = np.flatnonzero(near[0] != NONE)
        reach = None
        far = near
        thread = 0.0
        if len(linked):
            here, there = (self._first.view[ends] for ends in (linked, near[0][linked]))
            dots = self._sessions.likeness[linked] - removed * common[here] * common[there]
            thread = ranking.thread(dots / (own[here] * own[there])) if whole is None else whole.thread
        if thread:
            reach = ranking.openness(self._length.view) * np.float32(thread)
            far = (_step(near[0]), _step(near[1]))
        return _Derived(
            direction=direction,
            removed=removed,
            common=common,
            own=own,
            usual=usual,
            present=None if len(self._slot_of) == slots else self._here.view,
            one_each=len(self._vectors) == slots,
            near=near,
            far=far,
            reach=reach,
            thread=thread,
        )

    def _closeness(self, query: npt.NDArray[np.float32] | None, derived: _Derived) -> Floats | None:
        """Each passage's cosine with the query; ``None`` where there is nothing to compare."""
        if query is None or not self._embedded or not query.any():
            return None
        query_common = float(query @ derived.direction)
        return ranking.cosines(
            products(self._vectors.view, query), derived.common, derived.own, query_common, derived.removed
        )

    def _per_record(self, closeness: Floats, derived: _Derived) -> Floats:
        best: Floats = closeness if derived.one_each else np.maximum.reduceat(closeness, self._first.view)
        return best

    def _lexical(
        self, query_terms: npt.NDArray[np.uint32], derived: _Derived, whole: Whole | None
    ) -> tuple[Floats, npt.NDArray[np.float64]]:
        """Each record's evidence by words, and what each term weighs."""
        records, impact, holding = self._postings.find(query_terms, derived.present, self._length.view, derived.usual)
        weights = (
            ranking.rarity(len(self._slot_of), holding)
            if whole is None
            else ranking.rarity(whole.records, np.maximum(whole.holding, holding))
        )
        each = np.repeat(weights, holding)
        covered = np.bincount(records, each, len(self._ids)).astype(np.float32)
        each *= impact
        matched = np.bincount(records, each, len(self._ids)).astype(np.float32)
        return ranking.lexical(matched, covered, float(weights.sum())), weights

    def _best(self, evidence: Floats, count: int) -> list[tuple[int, float]]:
        """The slots with the most evidence, and how much; of equals, the newest."""
        least = np.partition(evidence, len(evidence) - count)[len(evidence) - count] - _GRAIN
        slots = np.flatnonzero(evidence >= least)
        steps = np.rint(evidence[slots] / np.float32(_GRAIN))
        if self._sorted and len(slots) > 4 * count:  # many equals
            chosen = np.lexsort((slots, steps))[-count:]
            slots, steps = slots[chosen], steps[chosen]
        ranked = nlargest(count, zip(steps.tolist(), (self._ids[slot] for slot in slots), slots.tolist(), strict=True))
        return [(slot, step * _GRAIN) for step, _, slot in ranked]

    def _best_passage(
        self,
        slot: int,
        closeness: Floats | None,
        query_terms: npt.NDArray[np.uint32],
        weights: npt.NDArray[np.float64],
    ) -> tuple[int, float]:
        """Which passage of a record matches best, and the cosine of the closest one."""
        part = self._passages(slot)
        if part.stop - part.start == 1:
            return 0, 0.0 if closeness is None else float(closeness[part.start])
        close = np.zeros(part.stop - part.start) if closeness is None else closeness[part].astype(np.float64)
        said = terms.decode([self._blobs[slot]])
        at = np.minimum(query_terms.searchsorted(said.term), max(len(query_terms) - 1, 0))
        asked = query_terms[at] == said.term if len(query_terms) else np.zeros(len(at), bool)
        words = np.bincount(said.passage[asked], weights[at[asked]], len(close))
        return int(np.argmax(close + ranking.LEXICAL * words)), float(close.max())


class _Derived(NamedTuple):
    """What a search needs of the records, until one of them changes."""

    direction: Floats
    removed: float
    common: Floats
    own: Floats
    usual: float
    present: Mask | None
    one_each: bool
    near: tuple[Ints, Ints]
    far: tuple[Ints, Ints]
    reach: Floats | None
    thread: float


def _step(links: Ints) -> Ints:
    """Links two steps long."""
    return np.append(links, NONE).take(links)
