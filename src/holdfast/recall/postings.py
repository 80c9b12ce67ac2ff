"""Postings: which passages of an index hold a term, and how often.

A posting is one 64-bit number, term above passage above count. To build an index, or to merge two, is to sort numbers.
New postings wait in a tail, which is searched by itself, until there are enough of them for a merge. Those of a scope
that was just read are looked through once as they are stored: many a scope is asked once, and to sort takes longer.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.recall import ranking
from holdfast.recall.ranking import Floats, Ints
from holdfast.recall.terms import Terms

Packed = npt.NDArray[np.uint64]
_Numbers = npt.NDArray[np.uint32]
_PACKED: Final = np.dtype("<u8")
_COUNT_BITS: Final = np.uint32(8)
CAPACITY: Final = 1 << 24
#: A merge moves every posting. A tail of this size costs a search about as much as one frequent word ...
_TAIL: Final = 4_096
#: ... and in a large index, one of this part of it costs little beside the rest.
_TAIL_PART: Final = 64
#: To look through unsorted postings for more terms than this takes longer than to sort them.
_FEW_TERMS: Final = 64


class Found(NamedTuple):
    """Where some terms are: in columns, sorted by term and, of each term, by passage."""

    passage: npt.NDArray[np.intp]
    times: npt.NDArray[np.uint8]
    """How often the passage has the term; empty where nobody wants to know."""
    holding: list[int]
    """How many passages have each of the terms."""

    @property
    def term(self) -> Ints:
        """Which of the terms, by its place among them."""
        return np.repeat(np.arange(len(self.holding)), self.holding)


class Postings:
    """The postings of passages numbered from 0. What belongs to one that is gone stays until ``renumber``."""

    def __init__(self) -> None:
        self._new: list[tuple[Terms, int]] = []  # as they were added: the number of their first passage beside them
        self._tail = _NO_POSTINGS
        self._waiting = 0  # how many postings are in both
        self._usual = 0.0
        self._was_asked = False
        self._hold(_NO_POSTINGS)

    def add(self, terms: Terms, start: int) -> None:
        """Add the terms of new passages, each term of a passage once. The first of them is numbered ``start``."""
        self._new.append((terms, start))
        self._waiting += len(terms.term)

    def find(
        self,
        terms: _Numbers,
        present: npt.NDArray[np.bool_] | None,
        lengths: Floats,
        usual: float,
        *,
        with_times: bool = True,
    ) -> tuple[Found, Floats]:
        """Where the terms are, and how much each says there. ``present`` marks the passages that are there (``None``:
        all). ``lengths`` and ``usual`` are what ``ranking.saturation`` takes.
        """
        self._prepare(len(terms), lengths, usual)
        passages: list[_Numbers | Ints] = [_NO_PASSAGES]
        counts, impacts = [_NO_COUNTS], [_NO_IMPACT]
        holding, end, waiting = [0] * len(terms), 0, self._find_waiting(terms)
        if waiting is not None:
            late, times = waiting.passage, waiting.times
            late_impact = ranking.saturation(times.astype(np.float32), lengths.take(late), usual)
        for number, at in enumerate(self._terms.searchsorted(terms).tolist()):
            if at < len(self._terms) and self._terms[at] == terms[number]:
                part = slice(self._starts[at], self._starts[at + 1])
                passages.append(self._passages[part])
                counts.append(self._counts[part])
                impacts.append(self._impact[part])
                holding[number] = part.stop - part.start
            if waiting is not None and (more := waiting.holding[number]):
                part = slice(end, end := end + more)
                passages.append(late[part])
                counts.append(times[part])
                impacts.append(late_impact[part])
                holding[number] += more
        times = np.concatenate(counts) if with_times else _NO_COUNTS
        found = Found(np.concatenate(passages, dtype=np.intp), times, holding)
        impact = np.concatenate(impacts)
        if present is not None:
            here = present.take(found.passage)
            holding = np.bincount(found.term[here], minlength=len(terms)).tolist()
            return Found(found.passage[here], times[here] if with_times else times, holding), impact[here]
        return found, impact

    def _prepare(self, terms: int, lengths: Floats, usual: float) -> None:
        """Sort what waits, unless it is much and nobody has asked before; know how much each posting says."""
        if self._waiting > max(_TAIL, len(self._passages) // _TAIL_PART):
            if self._was_asked or terms > _FEW_TERMS:
                self._hold(self._merge())
        elif self._new:
            self._tail = self._sort_waiting()
            self._new.clear()
        self._was_asked = True
        if self._usual != usual:
            self._impact = ranking.saturation(self._counts.astype(np.float32), lengths.take(self._passages), usual)
            self._usual = usual

    def renumber(self, numbers: Ints) -> None:
        """Give each passage its new number; those that get -1 are dropped. Order must be kept."""
        merged = self._merge()
        low, _ = _halves(merged)
        new = numbers.take(low >> _COUNT_BITS)
        kept = new >= 0
        merged, counts = merged[kept], low[kept] & 255
        low, _ = _halves(merged)
        low[:] = (new[kept] << 8 | counts).astype(np.uint32)
        self._hold(merged)

    @property
    def nbytes(self) -> int:
        """How much memory the postings take."""
        arrays = (self._terms, self._passages, self._counts, self._impact)
        return sum(array.nbytes for array in arrays) + 8 * self._waiting + 36 * len(self._starts)  # those are objects

    def _sort_waiting(self) -> Packed:
        """The postings that are not held yet, sorted."""
        new = [pack(terms.term, (terms.passage + start).astype(np.uint32), terms.times) for terms, start in self._new]
        tail = np.concatenate([self._tail, *new])
        tail.sort(kind="stable" if len(self._tail) else None)  # most of it is sorted already
        return tail

    def _merge(self) -> Packed:
        """All postings, sorted."""
        tail = self._sort_waiting()
        if not len(self._passages):
            return tail
        terms = np.repeat(self._terms, np.diff(self._starts))
        merged = np.concatenate([pack(terms, self._passages, self._counts), tail])
        merged.sort(kind="stable")  # runs that are sorted already are merged in linear time
        return merged

    def _hold(self, packed: Packed) -> None:
        """Hold these sorted postings, and no others."""
        low, terms = _halves(packed)
        first = np.flatnonzero(np.concatenate([np.ones(min(len(terms), 1), bool), terms[1:] != terms[:-1]]))
        self._terms = terms[first]
        self._starts = [*first.tolist(), len(packed)]
        self._passages, self._counts = low >> _COUNT_BITS, low.astype(np.uint8)
        self._impact = _NO_IMPACT
        self._usual = 0.0
        self._new.clear()
        self._tail, self._waiting = _NO_POSTINGS, 0

    def _find_waiting(self, terms: _Numbers) -> Found | None:
        """Where the terms are among the postings that are not held yet."""
        if not self._waiting:
            return None
        if self._new:  # not sorted yet; passages are in order
            new, first = self._join_new()
            places = [(new.term == term).nonzero()[0] for term in terms]
            found = np.concatenate([_NOWHERE, *places])
            passages = new.starts.searchsorted(found, "right") + (first - 1)
            return Found(passages, new.times.take(found), list(map(len, places)))
        wanted = terms.astype(np.uint64)
        starts = self._tail.searchsorted(wanted << 32).tolist()
        ends = self._tail.searchsorted(wanted << 32 | 0xFFFF_FFFF, "right").tolist()
        parts = [self._tail[start:end] for start, end in zip(starts, ends, strict=True)]
        low, _ = _halves(np.concatenate([_NO_POSTINGS, *parts]))
        return Found((low >> _COUNT_BITS).astype(np.intp), low.astype(np.uint8), list(map(len, parts)))

    def _join_new(self) -> tuple[Terms, int]:
        """All that was added, as if it had been added at once: each page goes on where the one before it ends."""
        if len(self._new) > 1:
            pages = [page for page, _ in self._new]
            ends = np.cumsum([0, *(len(page.term) for page in pages)])
            starts = [page.starts + end for page, end in zip(pages, ends[:-1], strict=True)]
            columns = zip(*(page._replace(starts=own) for page, own in zip(pages, starts, strict=True)), strict=True)
            self._new = [(Terms(*map(np.concatenate, columns)), self._new[0][1])]
        return self._new[0]


_NO_POSTINGS: Final[Packed] = np.empty(0, _PACKED)
_NOWHERE: Final = np.empty(0, np.intp)
_NO_PASSAGES: Final[_Numbers] = np.empty(0, np.uint32)
_NO_COUNTS: Final = np.empty(0, np.uint8)
_NO_IMPACT: Final[Floats] = np.empty(0, np.float32)


def pack(terms: _Numbers, passages: _Numbers, counts: npt.NDArray[np.uint8]) -> Packed:
    """Postings of columns."""
    packed = np.empty(len(terms), _PACKED)
    low, high = _halves(packed)
    high[:] = terms
    np.left_shift(passages, _COUNT_BITS, out=low)
    low |= counts
    return packed


def _halves(packed: Packed) -> tuple[_Numbers, _Numbers]:
    """The parts of postings, to be read or written: passage and count, and the term."""
    parts = packed.view("<u4")
    return parts[::2], parts[1::2]
