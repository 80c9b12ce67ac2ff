"""Session links: which record of an index comes before and after which in its session, and how alike they are."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, groupby
from typing import Final

import numpy as np

from holdfast.recall import ranking
from holdfast.recall.arrays import GrowingArray
from holdfast.recall.passage_vectors import PassageVectors
from holdfast.recall.ranking import Ints

NONE: Final = -1
#: A cosine of two neighbours is told in so many steps: a sum of whole numbers is the same in any order.
_STEPS: Final = 1 << 16
#: After so many new links, all of them are compared again.
_FEW: Final = 64


class SessionLinks:
    """The order of records within their sessions, by id, which is by time. A record is known by its slot."""

    def __init__(self, ids: Sequence[str], vectors: PassageVectors) -> None:
        """``ids`` are those of the slots, and are read anew each time."""
        self._id_of = ids.__getitem__
        self._vectors = vectors
        self._names: list[str | None] = []
        self._members: dict[str, list[int]] = {}
        self.previous = GrowingArray(np.int64)
        """The slot before each one in its session, or ``NONE``."""
        self.next = GrowingArray(np.int64)
        """The slot after each one in its session, or ``NONE``."""
        self._alike = GrowingArray(np.int32)  # each slot's cosine with the one before it, in steps
        self._total = self._links = 0
        self._unknown: set[int] = set()  # slots whose link has changed since
        self._version = NONE  # that of the vectors, when all others were compared

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        return self.previous.nbytes + self.next.nbytes + self._alike.nbytes + 24 * len(self._names)

    def thread(self) -> float:
        """From 0 to 1: how far neighbours follow one thread."""
        if not self._links:
            return 0.0
        if self._unknown or self._version != self._vectors.version:
            self._compare_links()
        return ranking.thread(self._total / _STEPS, self._links)

    def _compare_links(self) -> None:
        """Compare the records of those links that are new."""
        slots = np.fromiter(self._unknown, np.int64, len(self._unknown))
        self._unknown.clear()
        if self._version != self._vectors.version:
            self._version = self._vectors.version
            slots = np.arange(len(self._names))
        if len(slots):
            before = self.previous.view[slots]
            linked = before != NONE
            alike = np.zeros(len(slots), np.int32)
            alike[linked] = np.rint(self._vectors.compare(slots[linked], before[linked]) * _STEPS)
            self._total += int(alike.sum(dtype=np.int64)) - int(self._alike.view[slots].sum(dtype=np.int64))
            self._alike.view[slots] = alike

    def add(self, names: Sequence[str | None]) -> None:
        """Add slots, each in the session of that name or in none."""
        start = len(self._names)
        self._names += names
        for links in (self.previous, self.next):
            links.extend(np.full(len(names), NONE))
        self._alike.extend(np.zeros(len(names), np.int32))
        added: defaultdict[str, list[int]] = defaultdict(list)
        for name, run in groupby(names):
            end = start + len(list(run))
            if name is not None:
                added[name] += range(start, end)
            start = end
        self._relink({name: self._insert(name, slots) for name, slots in added.items()})

    def remove(self, slots: Sequence[int]) -> None:
        """Take slots out of their sessions."""
        touched: dict[str, int] = {}
        self._note_unknown(np.asarray(slots))
        for slot in slots:
            name = self._names[slot]
            if name is not None:
                members = self._members[name]
                place = bisect_left(members, self._id_of(slot), key=self._id_of)
                del members[place]
                self._links -= int(self.previous.view[slot] != NONE)
                self.previous.view[slot] = self.next.view[slot] = NONE
                touched[name] = min(place, touched.get(name, place))
        self._relink(touched)

    def renumber(self, kept: Ints, numbers: Ints) -> None:
        """Go on with the ``kept`` slots; ``numbers`` has every slot's new number, and after the last one ``NONE``."""
        self._names = [self._names[slot] for slot in kept.tolist()]
        self._members = {name: numbers[slots].tolist() for name, slots in self._members.items()}
        for links in (self.previous, self.next):
            links.replace(numbers[links.view[kept]])
        self._alike.replace(np.zeros(len(kept), np.int32))
        self._total, self._version = 0, NONE
        self._unknown.clear()

    def _insert(self, name: str, slots: list[int]) -> int:
        """Put slots into the list of a session; the first place that has changed."""
        members = self._members.setdefault(name, [])
        first = bisect_left(members, min(map(self._id_of, slots)), key=self._id_of) if members else 0
        members[first:] = sorted([*members[first:], *slots], key=self._id_of)
        return first

    def _relink(self, touched: dict[str, int]) -> None:
        """Make the links of sessions follow their lists, each from the first place that has changed."""
        parts: list[list[int]] = []
        leads: list[int] = []
        for name, place in touched.items():
            listed = self._members[name]
            if listed:
                start = max(place - 1, 0)  # the one before it has another one next to it now
                parts.append(listed[start:])
                leads.append(listed[start - 1] if start else NONE)
            else:
                del self._members[name]
        if not parts:
            return
        ends = np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)))
        members = np.fromiter(chain.from_iterable(parts), np.int64, int(ends[-1]))
        before, after = np.empty_like(members), np.empty_like(members)
        before[1:], after[:-1] = members[:-1], members[1:]
        before[0], before[ends[:-1]], after[ends - 1] = leads[0], leads[1:], NONE
        changed = self.previous.view[members] != before
        self._links += int(np.count_nonzero(before[changed] != NONE))
        self._links -= int(np.count_nonzero(self.previous.view[members[changed]] != NONE))
        self.previous.view[members] = before
        self.next.view[members] = after
        self._note_unknown(members[changed])

    def _note_unknown(self, slots: Ints) -> None:
        """Note whose cosines are to be found out: those of all slots, where there are many."""
        if len(self._unknown) + len(slots) > _FEW:
            self._unknown.clear()
            self._version = NONE
        else:
            self._unknown.update(slots.tolist())
