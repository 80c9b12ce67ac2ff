"""Clocks and deadlines that only a test moves, and how to wait for what others do."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from holdfast.core.clock import Deadline


class FakeClock:
    """A clock that only the test moves."""

    def __init__(self, now: datetime = datetime(2026, 1, 15, 12, tzinfo=UTC)) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **duration: float) -> None:
        """Let time pass: ``clock.advance(hours=1)``."""
        self.now += timedelta(**duration)


class Seconds:
    """Counts seconds, as a steady clock does, and only the test moves it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let seconds pass."""
        self.now += seconds


class Counted(Deadline):
    """A deadline that passes at a look at it, by its number."""

    def __init__(self, most: int = 1_000_000) -> None:
        super().__init__()
        self.most = most
        self.looks = 0

    @property
    def expired(self) -> bool:
        self.looks += 1
        return self.looks > self.most


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for what comes soon. It is looked for so many times, which on a busy machine takes longer."""
    for _ in range(6_000):
        if is_so():
            return
        time.sleep(0.01)
    raise AssertionError("it never came to be so")
