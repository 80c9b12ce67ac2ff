"""Postings: which records of an index hold a term, and how often.

A posting is one 64-bit number, term above record above count, so that sorting them is all it takes to build an index,
and to merge one. New postings wait in a tail, which is searched as it is, until they are enough to be worth a merge.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from holdfast.recall import ranking
from holdfast.recall.ranking import Floats, Ints

_Packed = npt.NDArray[np.uint64]
_COUNT_BITS: Final = np.uint64(8)
_TERM_BITS: Final = np.uint64(32)
_RECORD_MASK: Final = np.uint64((1 << 24) - 1)
_COUNT_MASK: Final = np.uint64(255)
MAX_RECORDS: Final = 1 << 24
#: A merge moves every posting; a tail of this size costs a search about as much as one frequent word.
_TAIL: Final = 4_096


class Postings:
    """The postings of records numbered from 0. What belongs to a record that is gone stays until ``renumber``."""

    def __init__(self) -> None:
        self._packed: _Packed = np.empty(0, np.uint64)
        self._tail: list[_Packed] = []
        self._waiting = 0
        self._joined: _Packed | None = None
        self._impact: Floats = _NO_IMPACT
        self._usual = 0.0
        self._open(self._packed)

    def add(self, records: Ints, terms: npt.NDArray[np.uint32], counts: npt.NDArray[np.uint8]) -> None:
        """Add the terms of new records. Counts of the same term of the same record (its passages) are summed up."""
        packed = terms.astype(np.uint64) << _TERM_BITS
        packed |= records.astype(np.uint64) << _COUNT_BITS
        packed |= counts
        packed.sort()
        packed = _sum_up(packed)
        self._tail.append(packed)
        self._waiting += len(packed)
        self._joined = None
        if self._waiting > _TAIL:
            merged = np.concatenate([self._packed, *self._tail])
            merged.sort(kind="stable")  # runs that are sorted already are merged in linear time
            self._open(merged)

    def find(
        self, terms: npt.NDArray[np.uint32], present: npt.NDArray[np.bool_] | None, lengths: Floats, usual: float
    ) -> tuple[Ints, Floats, Ints]:
        """Which records hold the terms, how much each term says there, and how many records hold each term.

        The first two run in parallel, term by term, so that the third tells where each term ends. ``present`` marks the
        records that are there (``None``: all). ``lengths`` and ``usual`` are what ``ranking.saturation`` takes.
        """
        if self._usual != usual:
            self._impact = ranking.saturation(self._counts, lengths.take(self._records), usual)
            self._usual = usual
        records: list[Ints] = []
        impacts: list[Floats] = []
        low = self._terms.searchsorted(terms)
        tail = self._tail_slices(terms)
        for number, at in enumerate(low.tolist()):
            held: list[Ints] = []
            weighed: list[Floats] = []
            if at < len(self._terms) and self._terms[at] == terms[number]:
                part = slice(self._starts[at], self._starts[at + 1])
                held.append(self._records[part])
                weighed.append(self._impact[part])
            if tail is not None and len(waiting := tail[number]):
                late, counts = _unpack(waiting)
                held.append(late)
                weighed.append(ranking.saturation(counts, lengths.take(late), usual))
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
        merged = np.concatenate([self._packed, *self._tail])
        merged.sort(kind="stable")
        records, _ = _unpack(merged)
        new = numbers.take(records)
        kept = new >= 0
        merged = merged[kept] & ~(_RECORD_MASK << _COUNT_BITS)
        merged |= new[kept].astype(np.uint64) << _COUNT_BITS
        self._open(merged)

    @property
    def nbytes(self) -> int:
        """What the postings hold in memory."""
        arrays = (self._packed, self._terms, self._records, self._counts, self._impact)
        return sum(array.nbytes for array in arrays) + 8 * (self._waiting + len(self._starts))

    def _open(self, packed: _Packed) -> None:
        """Take sorted postings for the whole."""
        terms = (packed >> _TERM_BITS).astype(np.uint32)
        first = np.flatnonzero(np.diff(terms, prepend=np.uint32(0)) != 0) if len(terms) else np.empty(0, np.int64)
        if len(terms) and terms[0] == 0:
            first = np.insert(first, 0, 0)
        self._packed = packed
        self._terms = terms[first]
        self._starts = [*first.tolist(), len(packed)]
        self._records, self._counts = _unpack(packed)
        self._impact = _NO_IMPACT
        self._usual = 0.0
        self._tail = []
        self._waiting = 0
        self._joined = None

    def _tail_slices(self, terms: npt.NDArray[np.uint32]) -> list[_Packed] | None:
        if not self._waiting:
            return None
        if self._joined is None:
            self._joined = np.concatenate(self._tail)
            self._joined.sort(kind="stable")
            self._tail = [self._joined]
        wanted = terms.astype(np.uint64)
        low = self._joined.searchsorted(wanted << _TERM_BITS)
        high = self._joined.searchsorted((wanted << _TERM_BITS) | np.uint64(0xFFFF_FFFF), "right")
        return [self._joined[a:b] for a, b in zip(low.tolist(), high.tolist(), strict=True)]


_NO_RECORDS: Final[Ints] = np.empty(0, np.int64)
_NO_IMPACT: Final[Floats] = np.empty(0, np.float32)


def _unpack(packed: _Packed) -> tuple[Ints, Floats]:
    records = ((packed >> _COUNT_BITS) & _RECORD_MASK).astype(np.int64)
    return records, (packed & _COUNT_MASK).astype(np.float32)


def _sum_up(packed: _Packed) -> _Packed:
    """Sorted postings with those of the same term and record made one."""
    places = packed >> _COUNT_BITS
    first = np.ones(len(packed), bool)
    np.not_equal(places[1:], places[:-1], out=first[1:])
    if first.all():
        return packed
    starts = np.flatnonzero(first)
    counts = np.add.reduceat(packed & _COUNT_MASK, starts)
    summed: _Packed = (places[starts] << _COUNT_BITS) | np.minimum(counts, _COUNT_MASK)
    return summed
