"""A store with something of everything in it, filled once for each engine; tests take copies."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from clocks import FakeClock
from homes import ENGINES, Homes
from retain import Retain
from storage.full_store import fill


@pytest.fixture(scope="session", params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> str:
    return cast("str", request.param)


class Filled(NamedTuple):
    """A home that nobody has open, and the moment up to which it was filled."""

    homes: Homes
    home: Path
    moment: datetime

    def copy(self, name: str) -> Path:
        return self.homes.copy(self.home, name)


@pytest.fixture(scope="module")
def filled(engine_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    clock = FakeClock()
    with Homes(engine_name, tmp_path_factory.mktemp("filled")) as homes:
        home = homes.new("filled")
        with Retain.open(home=home, clock=clock) as retain:
            fill(retain, clock)
        yield Filled(homes, home, clock.now)


@pytest.fixture
def full(filled: Filled, clock: FakeClock, request: pytest.FixtureRequest) -> Iterator[Retain]:
    """An open store with something of everything in it, for this test alone."""
    clock.now = filled.moment
    home = filled.copy(f"of {request.node.name.replace('/', '_')}")
    with Retain.open(home=home, clock=clock) as retain:
        yield retain
    filled.homes.remove(home)
