"""Trust in the clock of this process: within it by the watch, and across processes by what the store has seen."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Final

from holdfast.core.chain import Event
from holdfast.core.clock import BORNE_OUT, SKEW, Belief, Seen, believe, sight
from holdfast.core.errors import HoldfastError
from holdfast.core.times import SECOND, iso
from holdfast.lifecycle.safety import ClockWatch
from holdfast.ports import ClockStore

_log = logging.getLogger("holdfast.clock")
#: Writes tell the store the time this often at most: it is believed for days.
_EVERY: Final = 3_600 * SECOND


class ClockTrust:
    """How far the clock of an open store is believed. ``watched``: the clock is the machine's; one that was injected is
    trusted.

    A process whose clock was believed once, and has not leaped since, goes on to be believed however long nothing was
    written: the time has really passed.
    """

    def __init__(self, store: ClockStore, now: Callable[[], int], *, tolerance: int, watched: bool) -> None:
        self._store = store
        self._now = now
        self._tolerance = tolerance
        self._watch = ClockWatch(now=now()) if watched else None
        self._was_believed = False
        self._last = sys.maxsize
        seen = self._read(now())
        self._quiet = (0, 0) if seen is None else _quiet_after(seen, now())

    def check(self, now: int) -> Belief:
        """Note the time of a sweep, a job or a rotation; how far it is believed. ``ClockError`` if the clock leaped, or
        is behind what the store has seen.
        """
        if self._watch is not None:
            seen = self._note(now) if self._leaped(now) else self._read(now)
            if not self._was_believed and self._is_near(seen, now):
                self._watch.accept(now)  # it was wrong when this process began, and has been put right
            self._watch.check(now, seen=None if seen is None else seen.at)
        return self.note(now)

    def note(self, now: int) -> Belief:
        """The same, of a clock that may have leaped or be behind: it is believed as far as the store has come."""
        return self._believe(self._note(now), now)

    def look(self, now: int) -> Belief:
        """How far a time is believed. Nothing is noted."""
        seen = self._read(now)
        trusted, doubted = self._is_trusted(now), self._leaped(now)
        return self._believe(sight(seen, now, self._tolerance, trusted=trusted, doubted=doubted), now)

    def note_write(self) -> None:
        """Something was committed: tell the store the time, if it was not told for a while. Never raises."""
        try:
            now = self._now()
            start, end = self._quiet
            if not start <= now < end:
                self._quiet = (now, now + _EVERY)
                self._note(now)
        except HoldfastError as problem:
            _log.warning("the time of a write was not noted: %s", problem)

    def confirm(self, now: int, tenant: str, take_back: Callable[[], list[str]] = list) -> None:
        """A person says that the time is right: it is believed from here on, and so are sweeps and jobs. What a clock
        that was ahead has left behind gives way to it.
        """
        seen, leap = self._store.seen(), 0 if self._watch is None else self._watch.accept(now)
        ahead = self._watch is not None and seen is not None and now > seen.at + self._tolerance
        behind = seen is not None and now < seen.at - SKEW
        jobs = take_back()
        if ahead or behind or jobs or abs(leap) > SKEW:
            detail = {"seen": None if seen is None else iso(seen.at), "leap_seconds": leap // SECOND, "jobs": jobs}
            self._store.accept(now, tenant, Event(now, "clock.accept", None, detail))
        self._was_believed = True

    @property
    def is_watched(self) -> bool:
        """Whether the clock is the machine's; one that was injected is trusted."""
        return self._watch is not None

    def is_behind(self, now: int) -> bool:
        """Whether a time is behind what the store has seen."""
        seen = self._store.seen()
        return seen is not None and now < seen.at - SKEW

    def seen(self) -> Seen | None:
        """What the store has seen."""
        return self._store.seen()

    def _read(self, now: int) -> Seen | None:
        """What the store has seen. If that is earlier than it was, a person has confirmed the time, or a backup was
        restored: what was believed here before does not count any more.
        """
        seen = self._store.seen()
        if seen is None or seen.at < self._last:
            self._was_believed = self._is_near(seen, now)
        self._last = 0 if seen is None else seen.at
        return seen

    def _note(self, now: int) -> Seen:
        self._read(now)
        trusted, doubted = self._is_trusted(now), self._leaped(now)
        seen = self._store.sight(now, self._tolerance, trusted=trusted, doubted=doubted)
        self._was_believed = self._was_believed or (self._is_near(seen, now) and not doubted)
        self._last = seen.at
        return seen

    def _believe(self, seen: Seen, now: int) -> Belief:
        return Belief(now, now) if self._watch is None else believe(seen, now)

    def _is_near(self, seen: Seen | None, now: int) -> bool:
        """Whether a time is one that the store believes at once."""
        return seen is not None and seen.at - SKEW <= now <= seen.at + self._tolerance

    def _is_trusted(self, now: int) -> bool:
        return self._watch is None or (self._was_believed and not self._leaped(now))

    def _leaped(self, now: int) -> bool:
        """Whether the clock leaped forward since it was last trusted."""
        return self._watch is not None and self._watch.leap(now) > SKEW


def _quiet_after(seen: Seen, now: int) -> tuple[int, int]:
    """From when until when writes of a process that opens the store have nothing new to tell it."""
    if seen.sighted is None:
        return seen.at, seen.at + _EVERY
    return seen.sighted, min(seen.sighted + BORNE_OUT, now + _EVERY)
