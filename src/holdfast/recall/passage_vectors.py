"""The vectors of an index's passages, and how close each record is to a query by them.

What all vectors of a scope share tells none of them apart, so it is taken out of every product. Two numbers for each
vector say what is left of it. They stay right until the common direction changes, so a new vector adds its own and
leaves the others alone. In a small scope, each vector has a part in that direction. In a large one, those of a sample
have. The vectors themselves choose it, so that it does not depend on how they came here, and most changes leave it as
it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from holdfast.recall import ranking
from holdfast.recall.arrays import Batch, GrowingArray
from holdfast.recall.ranking import Floats, Ints
from holdfast.recall.vectors import Steps, Wide, add_up, cosine, draw, pair_products, products, to_steps, widen

#: So many vectors at least are a sample. A quarter of all 5,882 turns of LoCoMo, as one scope, gave 998 of 1,000 hits
#: that all of them give.
_SAMPLE: Final = 1_024
#: So many pairs of vectors are compared at a time.
_PAIRS: Final = 4_096
#: So few vectors are copied without a look at where they stand.
_FEW: Final = 16


class PassageVectors:
    """The vectors of passages. Each slot has some in a row, in the order of slots."""

    def __init__(self) -> None:
        self.first = GrowingArray(np.int64)
        """Each slot's first passage."""
        self.here = GrowingArray(np.bool_)
        """Which passages are those of a record that is there."""
        self.passages = 0
        """How many these are."""
        self._steps = GrowingArray(np.int8, 0)
        self._scale = GrowingArray(np.float32)  # what makes each vector one of length 1; 0 if it is gone
        self._square = GrowingArray(np.float32)  # how long the sum of a slot's vectors is, squared
        self._embedded = 0
        self._free = 0  # how many vectors there are beyond one for each record that has some
        self._level = 0  # the sample is one vector in 2 ** level
        self._total: npt.NDArray[np.int64] | None = None  # the sum of the sample; None if it is not known
        self._direction: Steps | None = None  # None if it is to be made of that
        self._is_centred = False  # whether all that is known of the direction is so still
        self._wide = Wide(np.zeros(0), 0.0)
        self._centre: tuple[bytes, float] = b"", 0.0  # the direction, and how much of it is taken out, ...
        self._version = 0  # ... and how often that has changed
        self._own_scale = GrowingArray(np.float32)  # what makes the rest of each vector one of length 1, ...
        self._common = GrowingArray(np.float32)  # ... and the product of both with the common direction
        self._several = _Several()

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        arrays = (self.first, self._square, *self._of_passages, *self._of_rests, *self._several.columns)
        return sum(array.nbytes for array in arrays)

    @property
    def _of_passages(self) -> tuple[GrowingArray, ...]:
        return self.here, self._steps, self._scale

    @property
    def _of_rests(self) -> tuple[GrowingArray, ...]:
        return self._own_scale, self._common

    @property
    def version(self) -> int:
        """Counts how often the common direction has changed."""
        self._centre_vectors()
        return self._version

    @property
    def owner(self) -> Ints | None:
        """The slot of each passage; ``None`` where each slot has one."""
        return self._several.owner.view if len(self._steps.view) > len(self.first.view) else None

    def slice_of(self, slot: int) -> slice:
        """The passages of a slot."""
        first = self.first.view
        return slice(int(first[slot]), int(first[slot + 1]) if slot + 1 < len(first) else len(self._steps))

    # --- which ones there are -----------------------------------------------------------------------------------------

    def add(self, batches: Sequence[Batch]) -> None:
        """Append the vectors of new slots; zeros for those that have none, or none of the length of the others."""
        if not self._steps.width:
            self._steps.widen(next((width for batch in batches if (width := batch.vectors.shape[1])), 0))
        fitted = [_fit(batch, self._steps.width) for batch in batches]
        vectors, scale = join([each for each, _ in fitted]), join([each for _, each in fitted])
        counts = join([batch.passages for batch in batches])
        first, start = np.cumsum(counts) - counts, len(self._steps)
        # A single vector counts as one of length 1, with or without records of several passages beside it.
        square = (scale[first] > 0).astype(np.float32)
        if len(vectors) > len(counts):
            slot = end = 0
            for batch in batches:
                part = slice(end, end := end + len(batch.vectors))
                _fill_squares(square[slot : (slot := slot + len(batch.id))], vectors[part], scale[part], batch.passages)
            self._free += int((counts - 1)[square > 0].sum())
        self.first.extend(first + start)
        self.here.extend(np.ones(len(vectors), np.bool_))
        self._steps.extend(vectors)
        self._scale.extend(scale)
        self._square.extend(square)
        self._count(slice(start, None), 1)
        if len(self._steps) > len(self.first):
            self._several.add(self.first.view, len(self._steps), self._square.view)

    def remove(self, slots: Iterable[int]) -> None:
        """The records of these slots are gone: what is left are passages without a vector."""
        for slot in slots:
            gone = self.slice_of(slot)
            self._count(gone, -1)
            if self._square.view[slot]:
                self._free -= gone.stop - gone.start - 1
            for array in (self.here, self._scale, *self._of_rests):
                array.view[gone] = 0
            self._square.view[slot] = 0

    def _count(self, rows: slice, sign: int) -> None:
        """Count passages in, or out."""
        steps = self._steps.view[rows]
        self.passages += sign * len(steps)
        self._embedded += sign * int(np.count_nonzero(self._scale.view[rows]))
        self._is_centred = False
        if self._total is not None and len(chosen := steps[draw(steps, self._level)]):
            self._total += sign * add_up(chosen)
            self._direction = None

    def keep(self, kept: Ints) -> Ints:
        """Go on with the ``kept`` slots; the new number of each passage, -1 for one that goes."""
        counts = np.diff(self.first.view, append=len(self._steps))
        is_kept = np.zeros(len(counts), np.bool_)
        is_kept[kept] = True
        owned = np.repeat(is_kept, counts)
        for array in (*self._of_passages, *self._of_rests):
            array.replace(array.view[owned[: len(array)]])
        counts = counts[kept]
        self.first.replace(np.cumsum(counts) - counts)
        self._square.replace(self._square.view[kept])
        self._several = _Several()
        if len(self._steps) > len(counts):
            self._several.add(self.first.view, len(self._steps), self._square.view)
        return np.where(owned, np.cumsum(owned) - 1, -1)

    # --- what is left of each without what all share ------------------------------------------------------------------

    def _centre_vectors(self) -> tuple[Wide, float]:
        """The common direction, and how much of it is taken out; what is left of each vector is known then."""
        if not self._is_centred:
            self._follow_centre()
            self._is_centred = True
        return self._wide, self._centre[1]

    def _follow_centre(self) -> None:
        """Find out what is left of those vectors of which it is not known."""
        level = max(self._embedded // _SAMPLE, 1).bit_length() - 1
        if self._total is None or level != self._level:
            chosen = draw(self._steps.view, level) & (self._scale.view > 0)
            self._level, self._total, self._direction = level, add_up(self._steps.view[chosen]), None
        if self._direction is None:
            self._direction = to_steps(self._total.astype(np.float64))
        direction = self._direction
        removed = ranking.common_share(self._embedded) if direction.any() else 0.0
        if self._centre != (centre := (direction.tobytes(), removed)):
            self._centre, self._wide = centre, widen(direction)
            self._version += 1
            for array in (*self._of_rests, *self._several.of_rests):
                array.clear()
        start = len(self._common)
        if start < len(self._steps):
            scale = self._scale.view[start:]
            common = _multiply(self._steps.view[start:], direction, self._wide.length, scale)
            own = ranking.own_length(common, removed)
            self._own_scale.extend(scale / own)
            self._common.extend(common / own)

    def closeness(self, query: Steps | None) -> tuple[Floats, Floats]:
        """How close each slot is to the query, and each passage's cosine with it; zeros if there is none."""
        fits = query is not None and len(query) == self._steps.width  # not, where a model of the same name has changed
        if query is None or not fits or not self._embedded or not (wide := widen(query)).length:
            return np.zeros(len(self.first), np.float32), np.zeros(len(self._steps), np.float32)
        direction, removed = self._centre_vectors()
        dots = _multiply(self._steps.view, query, wide.length, self._own_scale.view)
        cosines = ranking.own_cosines(dots, self._common.view, cosine(wide, direction), removed)
        if len(cosines) == len(self.first.view):
            return cosines, cosines
        several = self._several
        several.follow(self._scale.view, self._own_scale.view, self._common.view, removed)
        close = cosines.take(self.first.view)
        close[several.slot.view] = several.closeness(cosines, self._free)
        return close, cosines

    def compare(self, slots: Ints, others: Ints) -> Floats:
        """The cosines of slots' first vectors with those of others."""
        _, removed = self._centre_vectors()
        found = np.empty(len(slots), np.float32)
        for start in range(0, len(slots), _PAIRS):
            part = slice(start, start + _PAIRS)
            here, there = self.first.view[slots[part]], self.first.view[others[part]]
            alike = pair_products(self._rows(here), self._rows(there))
            alike *= self._own_scale.view[here]
            alike *= self._own_scale.view[there]
            alike -= np.float32(removed) * self._common.view[here] * self._common.view[there]
            found[part] = alike
        return found

    def _rows(self, places: Ints) -> Steps:
        """Some vectors: without a copy, where they stand in a row."""
        in_a_row = len(places) > _FEW and bool((np.diff(places) == 1).all())
        rows: Steps = self._steps.view[slice(int(places[0]), int(places[-1]) + 1) if in_a_row else places]
        return rows


class _Several:
    """What is known of the records that have several passages."""

    def __init__(self) -> None:
        self.owner = GrowingArray(np.int64)
        """The slot of each passage, of all records."""
        self.slot = GrowingArray(np.int64)
        self._counts = GrowingArray(np.int64)
        self._chance = GrowingArray(np.float32)  # how far the best of so many passages stands out by chance
        self._square = GrowingArray(np.float32)
        self._passages = GrowingArray(np.int64)
        self._first = GrowingArray(np.int64)  # the place of each record's first one among these
        self._own = GrowingArray(np.float32)  # how long the rest of each passage's vector is, without what all share
        self._own_sum = GrowingArray(np.float32)  # ... and that of the sum of a record's vectors
        self.of_rests = (self._own, self._own_sum)
        self.columns = (self.owner, self.slot, self._counts, self._chance, self._passages, self._first, *self.of_rests)

    def add(self, first: Ints, end: int, square: Floats) -> None:
        """Take in the slots that are new, out of all: their first passages, and the squared lengths of their sums."""
        known = int(self.owner.view[-1]) + 1 if len(self.owner) else 0
        counts = np.diff(first[known:], append=end)
        self.owner.extend(np.repeat(np.arange(known, len(first)), counts))
        slots = np.flatnonzero(counts > 1)
        counts = counts[slots]
        slots += known
        self.slot.extend(slots)
        self._counts.extend(counts)
        self._square.extend(square[slots])
        self._chance.extend(np.where(square[slots] > 0, ranking.chance(counts), np.float32(0)))
        inner = np.cumsum(counts) - counts
        self._first.extend(len(self._passages) + inner)
        self._passages.extend(np.repeat(first[slots] - inner, counts) + np.arange(counts.sum()))

    def follow(self, scale: Floats, own_scale: Floats, common: Floats, removed: float) -> None:
        """Bring what depends on the common direction up to date."""
        start = len(self._own_sum)
        if start < len(self.slot):
            passages, first = self._passages.view[len(self._own) :], self._first.view[start:]
            rest = own_scale[passages]
            own = np.divide(scale[passages], rest, out=np.ones_like(rest), where=rest > 0)
            total = np.add.reduceat(common[passages] * own, first - first[0])
            self._own.extend(own)
            self._own_sum.extend(ranking.own_length(total, removed, self._square.view[start:]))

    def closeness(self, cosines: Floats, free: int) -> Floats:
        """How close each of these records is, from the cosines of all passages."""
        if not len(self.slot):
            return np.zeros(0, np.float32)
        found, first, counts = cosines.take(self._passages.view), self._first.view, self._counts.view
        middle = np.add.reduceat(found, first) / counts.astype(np.float32)
        by_chance = np.float32(ranking.spread(found - np.repeat(middle, counts), free)) * self._chance.view
        mean = np.add.reduceat(found * self._own.view, first) / self._own_sum.view
        return ranking.closeness(np.maximum.reduceat(found, first), mean, by_chance)


def join(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Arrays one after the other: without a copy, where there is one."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _fit(batch: Batch, width: int) -> tuple[Steps, Floats]:
    """The vectors of a batch, and what makes them as long as one; zeros, if they are not as wide as the others."""
    if batch.vectors.shape[1] == width:
        return batch.vectors, batch.scale
    return np.zeros((len(batch.vectors), width), np.int8), np.zeros(len(batch.vectors), np.float32)


def _fill_squares(square: Floats, vectors: Steps, scale: Floats, passages: Ints) -> None:
    """How long the sum of the vectors of each record of several passages is, squared."""
    counts = passages[passages > 1]
    if len(counts):
        theirs = np.repeat(passages > 1, passages)
        units = vectors[theirs] * scale[theirs, np.newaxis]
        totals = np.add.reduceat(units, np.cumsum(counts) - counts)
        square[passages > 1] = np.vecdot(totals, totals)


def _multiply(vectors: Steps, query: Steps, length: float, scale: Floats) -> Floats:
    """The product of each vector, with its scale, and another one, so many steps long, of length 1."""
    found = products(vectors, query)
    found *= scale
    found *= np.float32(1 / (length or 1))
    return found
