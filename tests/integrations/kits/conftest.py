"""What the tests of adapters for agent kits share: one store for each module and engine, and a user for each test."""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from clocks import FakeClock
from holdfast import Holdfast
from homes import ENGINES, Homes

_users = itertools.count()


@pytest.fixture(scope="module", params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> str:
    return cast("str", request.param)


@pytest.fixture(scope="module")
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="module")
def holdfast(engine_name: str, clock: FakeClock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Holdfast]:
    with (
        Homes(engine_name, tmp_path_factory.mktemp("kit")) as homes,
        Holdfast.open(home=homes.new(), clock=clock) as opened,
    ):
        yield opened


@pytest.fixture
def user_id(new_user: Callable[[], str]) -> str:
    return new_user()


@pytest.fixture(scope="module")
def new_user() -> Callable[[], str]:
    """Makes users that no other test knows."""
    return lambda: f"user {next(_users)}"


@pytest.fixture
def export(holdfast: Holdfast, tmp_path: Path) -> Callable[[str], str]:
    """All lines of the export of a user."""

    def read(user_id: str) -> str:
        holdfast.export_user(user_id, to=tmp_path / "export.zip")
        with zipfile.ZipFile(tmp_path / "export.zip") as archive:
            return "".join(archive.read(name).decode() for name in archive.namelist() if name.endswith(".jsonl"))

    return read
