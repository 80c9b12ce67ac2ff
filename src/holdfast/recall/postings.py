"""Postings: which records of an index hold a term, and how often.

A posting is one 64-bit number, term above record above count. To build an index, or to merge two, is to sort numbers.
New postings wait in a tail, which is searched by itself, until there are enough of them for a merge.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from holdfast.recall import ranking
from holdfast.recall.ranking import Floats, Ints

_Packed = npt.NDArray[np.uint64]
_Numbers = npt.NDArray[np.uint32]
_PACKED: Final = np.dtype("<u8")
_COUNT_BITS: Final = np.uint32(8)
MAX_RECORDS: Final = 1 << 24
#: A merge moves every posting. A tail of this size costs a search about as much as one frequent word ...
_TAIL: Final = 4_096
#: ... and in a large index, one of this part of it costs little beside the rest.
_TAIL_PART: Final = 64


class Postings:
    """The postings of records numbered from 0. What belongs to a record that is gone stays until ``renumber``."""

    def __init__(self) -> None:
        self._tail: list[_Packed] = []
        self._waiting = 0
        self._joined: _Packed | None = None
        self._usual = 0.0
        self._hold(np.empty(0, _PACKED))

    def add(self, records: _Numbers, terms: _Numbers, counts: npt.NDArray[np.uint8]) -> None:
        """Add the terms of new records. Counts of the same term of the same record (its passages) are summed up."""
        packed = _pack(terms, records, counts)
        packed.sort()
        packed = _sum_up(packed)
        self._tail.append(packed)
        self._waiting += len(packed)
        self._joined = None
        if self._waiting > max(_TAIL, len(self._records) // _TAIL_PART):
            self._hold(self._merge())

    def find(
        self, terms: _Numbers, present: npt.NDArray[np.bool_] | None, lengths: Floats, usual: float
    ) -> tuple[_Numbers, Floats, Ints]:
        """Which records hold the terms, how much each term says there, and how many records hold each term.

        The first two run in parallel, term by term, so that the third tells where each term ends. ``present`` marks the
        records that are there (``None``: all). ``lengths`` and ``usual`` are what ``ranking.saturation`` takes.
        """
        if self._usual != usual:
            self._impact = ranking.saturation(self._counts.astype(np.float32), lengths.take(self._records), usual)
            self._usual = usual
        records: list[_Numbers] = []
        impacts: list[Floats] = []
        tail = self._tail_slices(terms)
        for number, at in enumerate(self._terms.searchsorted(terms).tolist()):
            held: list[_Numbers] = []
            weighed: list[Floats] = []
            if at < len(self._terms) and self._terms[at] == terms[number]:
                part = slice(self._starts[at], self._starts[at + 1])
                held.append(self._records[part])
                weighed.append(self._impact[part])
            if tail is not None and len(waiting := tail[number]):
                low, _ = _halves(waiting)
                held.append(late := low >> _COUNT_BITS)
                weighed.append(ranking.saturation((low & 255).astype(np.float32), lengths.take(late), usual))
            found = held[0] if len(held) == 1 else np.concatenate([_NO_RECORDS, *held])
            impact = weighed[0] if len(weighed) == 1 else np.concatenate([_NO_IMPACT, *weighed])
            if present is not None:
                here = present.take(found)
                found, impact = found[here], impact[here]
            records.append(found)
            impacts.append(impact)
        holding = np.fromiter(map(len, records), np.int64, len(records))
        return np.concatenate([_NO_RECORDS, *records]), np.concatenate([_NO_IMPACT, *impacts]), holding

    def renumber(self, numbers: Ints) -> None:
        """Give each record its new number; those that get -1 are dropped. Order must be kept."""
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
        arrays = (self._terms, self._records, self._counts, self._impact)
        return sum(array.nbytes for array in arrays) + 8 * (self._waiting + len(self._starts))

    def _merge(self) -> _Packed:
        """All postings, sorted."""
        if len(self._tail) == 1 and not len(self._records):
            return self._tail[0]
        terms = np.repeat(self._terms, np.diff(self._starts))
        merged = np.concatenate([_pack(terms, self._records, self._counts), *self._tail])
        merged.sort(kind="stable")  # runs that are sorted already are merged in linear time
        return merged

    def _hold(self, packed: _Packed) -> None:
        """Hold these sorted postings, and no others."""
        low, terms = _halves(packed)
        first = np.flatnonzero(np.concatenate([np.ones(min(len(terms), 1), bool), terms[1:] != terms[:-1]]))
        self._terms = terms[first]
        self._starts = [*first.tolist(), len(packed)]
        self._records, self._counts = low >> _COUNT_BITS, low.astype(np.uint8)
        self._impact = _NO_IMPACT
        self._usual = 0.0
        self._tail.clear()
        self._waiting = 0
        self._joined = None

    def _tail_slices(self, terms: _Numbers) -> list[_Packed] | None:
        if not self._waiting:
            return None
        if self._joined is None:
            self._joined = np.concatenate(self._tail)
            self._joined.sort(kind="stable")
            self._tail = [self._joined]
        wanted = terms.astype(np.uint64)
        starts = self._joined.searchsorted(wanted << 32)
        ends = self._joined.searchsorted(wanted << 32 | 0xFFFF_FFFF, "right")
        return [self._joined[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]


_NO_RECORDS: Final[_Numbers] = np.empty(0, np.uint32)
_NO_IMPACT: Final[Floats] = np.empty(0, np.float32)


def _pack(terms: _Numbers, records: _Numbers, counts: npt.NDArray[np.uint8]) -> _Packed:
    packed = np.empty(len(terms), _PACKED)
    low, high = _halves(packed)
    high[:] = terms
    np.left_shift(records, _COUNT_BITS, out=low)
    low |= counts
    return packed


def _halves(packed: _Packed) -> tuple[_Numbers, _Numbers]:
    """The parts of postings, to be read or written: record and count, and the term."""
    parts = packed.view("<u4")
    return parts[::2], parts[1::2]


def _sum_up(packed: _Packed) -> _Packed:
    """Sorted postings with those of the same term and record made one."""
    low, high = _halves(packed)
    first = np.ones(len(packed), bool)
    np.not_equal(low[1:] >> _COUNT_BITS, low[:-1] >> _COUNT_BITS, out=first[1:])
    first[1:] |= high[1:] != high[:-1]
    if first.all():
        return packed
    starts = np.flatnonzero(first)
    counts = np.add.reduceat((low & 255).astype(np.int64), starts)
    summed = packed[starts]
    low, _ = _halves(summed)
    low &= ~np.uint32(255)
    low |= np.minimum(counts, 255).astype(np.uint32)
    return summed
