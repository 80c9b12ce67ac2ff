"""Distrust: a clock that leaps, and a sweep that would take too much from someone, ask a person first."""

from __future__ import annotations

import time
from typing import Final

from holdfast.core.clock import SKEW
from holdfast.core.errors import ClockError
from holdfast.core.rules import spoken
from holdfast.core.times import iso

#: Someone who would lose more memories than this, and more than that part of all they have, is set aside.
MANY: Final = 1_000
PART: Final = 5


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
                f"the clock leaped {way} by {spoken(abs(leap))} while Holdfast was open and says {iso(now)}; nothing "
                "was done: check the clock, then open Holdfast anew, or confirm (holdfast sweep --confirm)"
            )
        if seen is not None and now < seen - SKEW:
            raise ClockError(
                f"the clock says {iso(now)}, but the store has seen {iso(seen)}; nothing was done: "
                "check the clock, then confirm (holdfast sweep --confirm)"
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


def takes_too_much(due: int, of: int) -> bool:
    """Whether so much of someone's memories going at once is to be confirmed first."""
    return due > MANY and due * PART > of
