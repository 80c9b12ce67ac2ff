"""A clock that stands still until a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


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
