"""What every test may use: a clock that stands still until it is moved, and an engine in a folder of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from clocks import FakeClock
from retain import MemoryManager, Retain

# No example is judged by how long it took. Where a result decides over a landing, the examples are the same every time.
settings.register_profile(
    "retain", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("retain")


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
