"""Every test of this folder runs over every engine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from conformance.engines import ENGINES, Engine
from conformance.samples import Person

_PEOPLE = itertools.count()


@pytest.fixture(scope="session", params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> str:
    return cast("str", request.param)


@pytest.fixture(scope="session")
def place(engine_name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(engine_name)


@pytest.fixture(scope="session")
def engine(engine_name: str, place: Path) -> Iterator[Engine]:
    """The engine; tests keep apart by each having a tenant of its own."""
    with ENGINES[engine_name](place) as opened:
        yield opened


@pytest.fixture(scope="session")
def elsewhere(engine_name: str, place: Path, engine: Engine) -> Iterator[Engine]:
    """The same data, opened a second time, as another process would."""
    with ENGINES[engine_name](place) as opened:
        yield opened


@pytest.fixture
def me() -> Person:
    """A user of a tenant that no other test knows."""
    return Person(f"tenant-{next(_PEOPLE):06}", "user_123")  # of one length: with a letter or digit more, another
