"""The recall index of one scope, in process memory: exact vectors and BM25 over its records, fused, with neighbours.

Records have slots, which are handed out in order; what replaces a record gets a new one. A slot whose record is gone is
skipped, until there are enough of them to number the rest anew. Nothing that a search returns depends on how the index
came to hold its records.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from retain.core.filters import Filter
from retain.core.types import MemoryType
from retain.ports import IndexRow
from retain.recall import ranking, terms
from retain.recall.columns import Columns, Mask
from retain.recall.growing import Growing
from retain.recall.postings import MAX_RECORDS, Postings
from retain.recall.ranking import Floats, Ints

_NEVER: Final = np.iinfo(np.int64).max
_NONE: Final = -1
#: Slots are renumbered when more than this many, and more than a third of them, are empty.
_SLACK: Final = 256
#: Evidence that differs by less is equal: it is what the order of additions does to a sum of floats.
_GRAIN: Final = 2.0**-16


class Hit(NamedTuple):
    """A record that matches a query."""

    id: str
    score: float
    """0 to 1; means the same in every scope, so that hits of several can be merged."""
    passage: int
    """Which of the record's passages matched best."""
    parts: dict[str, float]
    """If asked for: the evidence of which the score is made, which adds up to ``evidence``."""


class ScopeIndex:
    """What is recalled from one scope and kind. Calls must not overlap."""

    def __init__(self, memory_type: MemoryType, rows: Iterable[IndexRow] = ()) -> None:
        self._ids: list[str] = []
        self._slot_of: dict[str, int] = {}
        self._sorted = True  # slots are in the order of their ids
        self._here = Growing(np.bool_)
        self._archived = Growing(np.bool_)
        self._hidden_from = Growing(np.int64)
        self._length = Growing(np.float32)
        self._first = Growing(np.int64)  # each slot's first passage
        self._previous = Growing(np.int64)  # the record before it in its session
        self._next = Growing(np.int64)
        self._likeness = Growing(np.float32)  # its first passage's dot product with that of the one before it
        self._vectors = Growing(np.float32, 0)
        self._total: npt.NDArray[np.float64] = np.zeros(0)
        self._embedded = 0
        self._words = 0
        self._sessions: dict[str, list[int]] = {}
        self._blobs: dict[int, bytes] = {}  # the terms of records of several passages
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
        arrays = (self._vectors, self._here, self._archived, self._hidden_from, self._length, self._first)
        links = (self._previous, self._next, self._likeness)
        held = sum(array.nbytes for array in (*arrays, *links)) + sum(map(len, self._blobs.values()))
        return held + self._postings.nbytes + self._columns.nbytes + 200 * len(self._ids) + 12 * len(self._vectors)

    # --- following the scope ----------------------------------------------------------------------------------------

    def upsert(self, rows: Iterable[IndexRow]) -> None:
        """Hold these records, in place of those with the same ids."""
        latest = {row.id: row for row in rows}
        if not latest:
            return
        self.remove(latest.keys() & self._slot_of.keys())
        batch = sorted(latest.values(), key=lambda row: row.id)
        start = len(self._ids)
        if start + len(batch) > MAX_RECORDS:
            raise ValueError(f"an index holds at most {MAX_RECORDS} records")
        ids = [row.id for row in batch]
        self._sorted = self._sorted and (not self._ids or self._ids[-1] < ids[0])
        decoded = terms.decode([row.terms for row in batch])
        self._add_passages(batch, decoded.passages)
        self._postings.add(decoded.row + start, decoded.term, decoded.times)
        lengths = np.bincount(decoded.row, decoded.times, len(batch))
        self._words += int(lengths.sum())
        self._ids += ids
        self._slot_of.update(zip(ids, range(start, start + len(ids)), strict=True))
        self._here.extend(np.ones(len(batch), np.bool_))
        self._archived.extend([row.archived for row in batch])
        self._hidden_from.extend([_NEVER if row.hidden_from is None else row.hidden_from for row in batch])
        self._length.extend(lengths)
        self._columns.add(batch)
        self._blobs.update((start + int(at), batch[at].terms) for at in np.flatnonzero(decoded.passages > 1))
        self._link(batch, start)
        self._derived = None

    def remove(self, ids: Iterable[str]) -> None:
        """Hold these records no longer. Ids that are not held are ignored."""
        broken: set[str] = set()
        for record_id in ids:
            slot = self._slot_of.pop(record_id, None)
            if slot is None:
                continue
            part = self._passages(slot)
            self._here.view[slot] = False
            self._words -= int(self._length.view[slot])
            gone = self._vectors.view[part]
            self._total -= gone.sum(0, dtype=np.float64)
            self._embedded -= int(gone.any(1).sum())
            self._blobs.pop(slot, None)
            session = self._columns.session_of(slot)
            if session is not None:
                members = self._sessions[session]
                del members[bisect_left(members, record_id, key=self._ids.__getitem__)]
                self._previous.view[slot] = self._next.view[slot] = _NONE
                broken.add(session)
            self._derived = None
        for session in broken:
            self._relink(session)
        dead = len(self._ids) - len(self._slot_of)
        if dead > _SLACK and dead * 3 > len(self._ids):
            self._compact()

    def _add_passages(self, batch: Sequence[IndexRow], passages: Ints) -> None:
        """Append the vectors of new records; zeros for those that have none."""
        dim = self._vectors.width
        for row, count in zip(batch, passages.tolist(), strict=True):
            if row.vectors is None:
                continue
            if not dim:
                dim = len(row.vectors) // (2 * count)
                self._vectors.widen(dim)
                self._total = np.zeros(dim)
            if len(row.vectors) != 2 * dim * count:
                raise ValueError(
                    f"record {row.id} has {len(row.vectors)} bytes of vectors for {count} passages of {dim} dimensions"
                )
        starts = len(self._vectors) + np.cumsum(passages) - passages
        joined = b"".join(
            bytes(2 * dim * count) if row.vectors is None else row.vectors
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

    # --- sessions -----------------------------------------------------------------------------------------------------

    def _link(self, batch: Sequence[IndexRow], start: int) -> None:
        for links in (self._previous, self._next):
            links.extend(np.full(len(batch), _NONE))
        self._likeness.extend(np.zeros(len(batch), np.float32))
        touched: dict[str, list[int]] = {}
        for slot, row in enumerate(batch, start):
            if row.session_id is not None:
                members = touched[row.session_id] = self._sessions.setdefault(row.session_id, [])
                if members and self._ids[members[-1]] > row.id:
                    insort(members, slot, key=self._ids.__getitem__)
                else:
                    members.append(slot)
        for session, members in touched.items():
            if len(members) > 1:
                self._relink(session)

    def _relink(self, session: str) -> None:
        """Make the links of a session's records those of its list."""
        members = np.array(self._sessions[session], np.int64)
        if not len(members):
            del self._sessions[session]
            return
        before = np.concatenate([[_NONE], members[:-1]])
        changed = self._previous.view[members] != before
        self._previous.view[members] = before
        self._next.view[members] = np.concatenate([members[1:], [_NONE]])
        changed[0] = False
        here, there = (self._vectors.view[self._first.view[slots[changed]]] for slots in (members, before))
        self._likeness.view[members[changed]] = np.einsum("ij,ij->i", here, there)

    def _compact(self) -> None:
        """Renumber the slots without those whose record is gone."""
        kept = np.flatnonzero(self._here.view)
        numbers = np.full(len(self._ids) + 1, _NONE)  # the last one is the record that is not there
        numbers[kept] = np.arange(len(kept))
        first = self._first.view
        counts = np.diff(first, append=len(self._vectors))[kept]
        owned = np.repeat(self._here.view, np.diff(first, append=len(self._vectors)))
        self._vectors.replace(self._vectors.view[owned])
        self._first.replace(np.cumsum(counts) - counts)
        for array in (self._here, self._archived, self._hidden_from, self._length, self._likeness):
            array.replace(array.view[kept])
        for links in (self._previous, self._next):
            links.replace(numbers[links.view[kept]])
        self._ids = [self._ids[slot] for slot in kept.tolist()]
        self._slot_of = {record_id: slot for slot, record_id in enumerate(self._ids)}
        self._sorted = all(map(str.__lt__, self._ids, self._ids[1:]))
        self._sessions = {name: numbers[slots].tolist() for name, slots in self._sessions.items()}
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
    ) -> list[Hit]:
        """The records closest to a query, best first; of equals, the newest first.

        ``query_vector`` is of unit length (``None``: by words alone), ``query_terms`` what ``terms.query_terms`` gives.
        What is hidden at ``now``, archived (unless asked for) or outside the filter does not count among the ``top_k``.
        A record without vectors is found by its words and its neighbours.
        """
        visible, wanted = self._masks(now, where, include_archived)
        passing = int(np.count_nonzero(wanted))
        count = min(top_k, passing)
        if count <= 0:
            return []
        derived = self._derived = self._derived or self._derive()
        closeness = self._closeness(query_vector, derived)
        lexical, weights = self._lexical(query_terms, derived)
        evidence = lexical if closeness is None else lexical + self._per_record(closeness, derived)
        borrowed = None
        if derived.reach is not None:
            borrowed = ranking.lent(np.where(visible, evidence, np.float32(0)), derived.near, derived.far)
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

    def select(self, top_k: int, *, now: int, where: Filter | None = None, include_archived: bool = False) -> list[str]:
        """Ids of the records that a search would choose from, newest first, ``top_k`` at most."""
        _, wanted = self._masks(now, where, include_archived)
        slots = np.flatnonzero(wanted).tolist()
        if self._sorted:
            return [self._ids[slot] for slot in slots[: -top_k - 1 : -1]] if top_k > 0 else []
        return nlargest(top_k, (self._ids[slot] for slot in slots))

    def _masks(self, now: int, where: Filter | None, include_archived: bool) -> tuple[Mask, Mask]:  # noqa: FBT001
        visible: Mask = self._hidden_from.view > now
        visible &= self._here.view
        if not include_archived:
            visible &= ~self._archived.view
        return visible, visible if where is None else visible & self._columns.mask(where)

    def _derive(self) -> _Derived:
        """What depends on the records and not on the query."""
        slots = len(self._ids)
        direction, removed = ranking.common_direction(self._total, self._embedded)
        common = _dot(self._vectors.view, direction)
        own = ranking.own_length(common, removed)
        near = (self._previous.view, self._next.view)
        linked = np.flatnonzero(near[0] != _NONE)
        reach = None
        far = near
        if len(linked):
            here, there = (self._first.view[ends] for ends in (linked, near[0][linked]))
            dots = self._likeness.view[linked] - removed * common[here] * common[there]
            if thread := ranking.thread(dots / (own[here] * own[there])):
                reach = ranking.openness(self._length.view) * np.float32(thread)
                far = (_step(near[0]), _step(near[1]))
        return _Derived(
            direction=direction,
            removed=removed,
            common=common,
            own=own,
            usual=ranking.usual_length(self._words, len(self._slot_of)),
            present=None if len(self._slot_of) == slots else self._here.view,
            one_each=len(self._vectors) == slots,
            near=near,
            far=far,
            reach=reach,
        )

    def _closeness(self, query: npt.NDArray[np.float32] | None, derived: _Derived) -> Floats | None:
        """Each passage's cosine with the query; ``None`` where there is nothing to compare."""
        if query is None or not self._embedded or not query.any():
            return None
        query_common = float(query @ derived.direction)
        return ranking.cosines(
            _dot(self._vectors.view, query), derived.common, derived.own, query_common, derived.removed
        )

    def _per_record(self, closeness: Floats, derived: _Derived) -> Floats:
        best: Floats = closeness if derived.one_each else np.maximum.reduceat(closeness, self._first.view)
        return best

    def _lexical(
        self, query_terms: npt.NDArray[np.uint32], derived: _Derived
    ) -> tuple[Floats, npt.NDArray[np.float64]]:
        """Each record's evidence by words, and what each term weighs."""
        records, impact, holding = self._postings.find(query_terms, derived.present, self._length.view, derived.usual)
        weights = ranking.rarity(len(self._slot_of), holding)
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


def _dot(vectors: Floats, query: Floats) -> Floats:
    """Each vector's product with the query.

    ``vectors @ query`` is twice as fast on an idle machine, but it is shared out among all cores, and beside one busy
    process they wait for each other: p99 was 20 ms against 0.8. Its last digits depend on where in the matrix a row lies.
    """
    products: Floats = np.vecdot(vectors, query)
    return products


def _step(links: Ints) -> Ints:
    """Links two steps long."""
    return np.append(links, _NONE).take(links)
