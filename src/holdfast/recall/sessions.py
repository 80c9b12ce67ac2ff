"""Sessions: which record of an index stands before and after which, and how alike they are."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from holdfast.recall.arrays import Growing
from holdfast.recall.ranking import Floats, Ints

NONE: Final = -1


class Sessions:
    """The order of records within their sessions, by id, which is by time. A record is known by its slot."""

    def __init__(self, ids: Sequence[str], vectors_of: Callable[[Ints], Floats]) -> None:
        """``ids`` are those of the slots, and are read anew each time; ``vectors_of`` gives one vector a slot."""
        self._id_of = ids.__getitem__
        self._vectors_of = vectors_of
        self._names: list[str | None] = []
        self._members: dict[str, list[int]] = {}
        self._previous = Growing(np.int64)
        self._next = Growing(np.int64)
        self._likeness = Growing(np.float32)

    @property
    def previous(self) -> Ints:
        """The slot before each one in its session, or ``NONE``."""
        return self._previous.view

    @property
    def next(self) -> Ints:
        """The slot after each one in its session, or ``NONE``."""
        return self._next.view

    @property
    def likeness(self) -> Floats:
        """The product of each slot's vector with that of the slot before it; 0 where there is none."""
        return self._likeness.view

    @property
    def nbytes(self) -> int:
        """About what it holds in memory."""
        return self._previous.nbytes + self._next.nbytes + self._likeness.nbytes + 24 * len(self._names)

    def add(self, names: Sequence[str | None]) -> None:
        """Add slots, in order of their ids, each in the session of that name or in none."""
        start = len(self._names)
        self._names += names
        for links in (self._previous, self._next):
            links.extend(np.full(len(names), NONE))
        self._likeness.extend(np.zeros(len(names), np.float32))
        touched: dict[str, int] = {}
        for slot, name in enumerate(names, start):
            if name is not None:
                members = self._members.setdefault(name, [])
                place = len(members)
                if members and self._id_of(members[-1]) > self._id_of(slot):
                    place = bisect_left(members, self._id_of(slot), key=self._id_of)
                members.insert(place, slot)
                touched[name] = min(place, touched.get(name, place))
        self._relink(touched)

    def remove(self, slots: Iterable[int]) -> None:
        """Take slots out of their sessions."""
        touched: dict[str, int] = {}
        for slot in slots:
            name = self._names[slot]
            if name is not None:
                members = self._members[name]
                place = bisect_left(members, self._id_of(slot), key=self._id_of)
                del members[place]
                self._previous.view[slot] = self._next.view[slot] = NONE
                touched[name] = min(place, touched.get(name, place))
        self._relink(touched)

    def renumber(self, kept: Ints, numbers: Ints) -> None:
        """Go on with the ``kept`` slots; ``numbers`` has every slot's new number, and after the last one ``NONE``."""
        self._names = [self._names[slot] for slot in kept.tolist()]
        self._members = {name: numbers[slots].tolist() for name, slots in self._members.items()}
        for links in (self._previous, self._next):
            links.replace(numbers[links.view[kept]])
        self._likeness.replace(self._likeness.view[kept])

    def _relink(self, touched: dict[str, int]) -> None:
        """Make the links of sessions those of their lists, from the place on where each was touched."""
        for name, place in touched.items():
            listed = self._members[name]
            if not listed:
                del self._members[name]
                continue
            start = max(place - 1, 0)  # the one before it leads elsewhere now
            members = np.array(listed[start:], np.int64)
            before = np.concatenate([[listed[start - 1] if start else NONE], members[:-1]])
            changed = self._previous.view[members] != before
            self._previous.view[members] = before
            self._next.view[members] = np.concatenate([members[1:], [NONE]])
            alike = np.zeros(int(np.count_nonzero(changed)), np.float32)
            first = int(changed[0] and not start)  # the first of a session has nothing before it
            here, there = (self._vectors_of(slots[changed][first:]) for slots in (members, before))
            alike[first:] = np.vecdot(here, there)
            self._likeness.view[members[changed]] = alike
