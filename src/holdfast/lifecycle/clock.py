"""Trust in the clock of this process: within it by the watch, and across processes by what the store has seen."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from holdfast.core.audit import Action, Event
from holdfast.core.clock import BORNE_OUT, SKEW, Belief, Seen, believe, sight
from holdfast.core.errors import ClockError, HoldfastError
from holdfast.core.values import SECOND, describe_duration, iso

if TYPE_CHECKING:
    from holdfast.ports.coordination import ClockStore


class ClockWatch:
    """Compares the machine's clock with the time that has really passed since the engine was opened.

    Time spent switched off or asleep is no leap: it passes for both.
    """

    def __init__(self, *, now: int, steady: int | None = None) -> None:
        self._from = (now, steady_now() if steady is None else steady)
        self._seen: int | None = None

    def check(self, now: int, *, seen: int | None, steady: int | None = None) -> None:
        """``ClockError`` if the clock leaped since, or is behind the latest time that the store has seen.

        What the store has seen goes back only where a person has confirmed the time, be it in another process. A clock
        that was set back is trusted from then on. One that leaped forward is trusted once the store has seen its time.
        """
        leap = self.leap(now, steady=steady)
        confirmed = seen is not None and self._seen is not None and seen < self._seen
        self._seen = seen
        if (confirmed and leap < 0) or (seen is not None and _has_caught_up(seen, now, leap)):
            self.accept(now, steady=steady)
            leap = 0
        if abs(leap) > SKEW:
            way = "forward" if leap > 0 else "back"
            raise ClockError(
                f"the clock leaped {way} by {describe_duration(abs(leap))} while Holdfast was open and says "
                f"{iso(now)}; nothing was done; check the clock, then open Holdfast anew, or trust it as it is",
                needs=("confirm",),
            )
        if seen is not None and now < seen - SKEW:
            raise ClockError(
                f"the clock says {iso(now)}, but the store has seen {iso(seen)}; nothing was done; "
                "check the clock, then trust it as it is",
                needs=("confirm",),
            )

    def accept(self, now: int, *, steady: int | None = None) -> int:
        """Trust the clock as it is now; by how much it had leaped."""
        leap = self.leap(now, steady=steady)
        self._from = (now, steady_now() if steady is None else steady)
        return leap

    def leap(self, now: int, *, steady: int | None = None) -> int:
        """By how much the clock is ahead of the time that has really passed; below 0, behind it."""
        since, steady_since = self._from
        return (now - since) - ((steady_now() if steady is None else steady) - steady_since)


def _has_caught_up(seen: int, now: int, leap: int) -> bool:
    """Whether the store has seen about the time that a clock leaped to. By the time that has really passed, this
    process cannot have told it so.
    """
    return leap > SKEW and seen >= now - SKEW and seen > now - leap + SKEW


def steady_now() -> int:
    """Microseconds on a clock that nobody sets, and that goes on while the machine sleeps (where there is one)."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000
    return time.monotonic_ns() // 1_000


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
            self._store.accept(now, tenant, Event(now, Action.CLOCK_ACCEPTED, None, detail))
        self._was_believed = True

    def is_right(self, now: int) -> bool:
        """Note the time; whether it is the machine's, is believed, and is not behind what the store has seen."""
        is_whole, seen = self.note(now).is_whole, self._store.seen()
        return is_whole and self._watch is not None and (seen is None or now >= seen.at - SKEW)

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
