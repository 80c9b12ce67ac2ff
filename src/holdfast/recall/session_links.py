"""Session links: which record of an index comes before and after which in its session, and how alike they are."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, groupby
from typing import Final

import numpy as np

from holdfast.recall.arrays import GrowingArray
from holdfast.recall.ranking import Floats, Ints

NONE: Final = -1
#: So many pairs of vectors are compared at a time.
_PAIRS: Final = 4_096


class SessionLinks:
    """The order of records within their sessions, by id, which is by time. A record is known by its slot."""

    def __init__(self, ids: Sequence[str], compare: Callable[[Ints, Ints], Floats]) -> None:
        """``ids`` are those of the slots, and are read anew each time; ``compare`` gives slots' cosines with others."""
        self._id_of = ids.__getitem__
        self._compare = compare
        self._names: list[str | None] = []
        self._members: dict[str, list[int]] = {}
        self.previous = GrowingArray(np.int64)
        """The slot before each one in its session, or ``NONE``."""
        self.next = GrowingArray(np.int64)
        """The slot after each one in its session, or ``NONE``."""
        self.likeness = GrowingArray(np.float32)
        """The product of each slot's vector with that of the slot before it; 0 where there is none."""

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        return self.previous.nbytes + self.next.nbytes + self.likeness.nbytes + 24 * len(self._names)

    def add(self, names: Sequence[str | None]) -> None:
        """Add slots, each in the session of that name or in none."""
        start = len(self._names)
        self._names += names
        for links in (self.previous, self.next):
            links.extend(np.full(len(names), NONE))
        self.likeness.extend(np.zeros(len(names), np.float32))
        added: defaultdict[str, list[int]] = defaultdict(list)
        for name, run in groupby(names):
            end = start + len(list(run))
            if name is not None:
                added[name] += range(start, end)
            start = end
        self._relink({name: self._insert(name, slots) for name, slots in added.items()})

    def remove(self, slots: Iterable[int]) -> None:
        """Take slots out of their sessions."""
        touched: dict[str, int] = {}
        for slot in slots:
            name = self._names[slot]
            if name is not None:
                members = self._members[name]
                place = bisect_left(members, self._id_of(slot), key=self._id_of)
                del members[place]
                self.previous.view[slot] = self.next.view[slot] = NONE
                touched[name] = min(place, touched.get(name, place))
        self._relink(touched)

    def renumber(self, kept: Ints, numbers: Ints) -> None:
        """Go on with the ``kept`` slots; ``numbers`` has every slot's new number, and after the last one ``NONE``."""
        self._names = [self._names[slot] for slot in kept.tolist()]
        self._members = {name: numbers[slots].tolist() for name, slots in self._members.items()}
        for links in (self.previous, self.next):
            links.replace(numbers[links.view[kept]])
        self.likeness.replace(self.likeness.view[kept])

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
        sizes = np.fromiter(map(len, parts), np.int64, len(parts))
        members = np.fromiter(chain.from_iterable(parts), np.int64, int(sizes.sum()))
        before, after = np.roll(members, 1), np.roll(members, -1)
        before[np.cumsum(sizes) - sizes] = leads
        after[np.cumsum(sizes) - 1] = NONE
        changed = self.previous.view[members] != before
        self.previous.view[members] = before
        self.next.view[members] = after
        members, before = members[changed], before[changed]
        self.likeness.view[members] = 0
        members, before = members[before != NONE], before[before != NONE]
        for start in range(0, len(members), _PAIRS):
            here, there = members[start : start + _PAIRS], before[start : start + _PAIRS]
            self.likeness.view[here] = self._compare(here, there)
