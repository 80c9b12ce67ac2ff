"""A store with something of everything in it, filled once for each engine; tests take copies."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from clocks import FakeClock
from holdfast import Holdfast
from homes import ENGINES, Homes
from storage.full_store import fill


@pytest.fixture(scope="session", params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> str:
    return cast("str", request.param)


class Filled(NamedTuple):
    """A home that nobody has open, and the moment up to which it was filled."""

    homes: Homes
    home: Path
    moment: datetime


class Fillings:
    """Filled homes, one for each engine that is asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._filled: dict[str, Filled] = {}

    def on(self, engine_name: str) -> Filled:
        if engine_name not in self._filled:
            clock, homes = FakeClock(), Homes(engine_name, self._folder / engine_name)
            (self._folder / engine_name).mkdir()
            home = homes.new("filled")
            self._filled[engine_name] = Filled(homes, home, clock.now)
            with Holdfast.open(home=home, clock=clock) as holdfast:
                fill(holdfast, clock)
            self._filled[engine_name] = Filled(homes, home, clock.now)
        return self._filled[engine_name]

    def close(self) -> None:
        for filled in self._filled.values():
            filled.homes.close()


@pytest.fixture(scope="session")
def fillings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fillings]:
    made = Fillings(tmp_path_factory.mktemp("filled"))
    yield made
    made.close()


@pytest.fixture
def full(fillings: Fillings, engine_name: str, clock: FakeClock) -> Iterator[Holdfast]:
    """An open store with something of everything in it, for this test alone."""
    filled = fillings.on(engine_name)
    clock.now = filled.moment
    home = filled.homes.copy(filled.home, "copy")
    with Holdfast.open(home=home, clock=clock) as holdfast:
        yield holdfast
    filled.homes.remove(home)
