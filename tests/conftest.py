"""What every test may use: a clock that stands still until it is moved, and an engine in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from retain import MemoryManager, Retain


class FakeClock:
    """A clock that only the test moves."""

    def __init__(self, now: datetime = datetime(2026, 1, 15, 12, tzinfo=UTC)) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **duration: float) -> None:
        """Let time pass: ``clock.advance(hours=1)``."""
        self.now += timedelta(**duration)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def retain(home: Path, clock: FakeClock) -> Iterator[Retain]:
    with Retain.open(home=home, clock=clock) as engine:
        yield engine


@pytest.fixture
def memory(retain: Retain) -> MemoryManager:
    return retain.manager("user_123", "travel_agent", "sess_abc123")
