"""What every test may use: a clock that stands still until it is moved, and an engine in a folder of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from clocks import FakeClock
from holdfast import Holdfast, MemoryManager
from holdfast.recall.embedders import pieces, static
from holdfast.storage.relational.database import Database
from homes import Homes, database_of

# No example is judged by how long it took. Where a result decides over a landing, the examples are the same every time.
settings.register_profile(
    "holdfast", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.register_profile("quick", settings.get_profile("holdfast"), max_examples=10)
settings.load_profile("holdfast")

# Reading the tokenizer takes longer than most tests: the engines of one process share it.
vars(static)["_read_tokenizer"] = cache(static._read_tokenizer)
vars(static)["read_pieces"] = cache(pieces.read_pieces)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only the embedded engine, and few examples of each property")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        settings.load_profile("quick")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        kept = [item for item in items if not {"postgres", "valkey", "s3"} & set(_parameters_of(item))]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
        items[:] = kept


def _parameters_of(item: pytest.Item) -> list[str]:
    """What a test is named by in brackets, such as its engine."""
    return item.name.partition("[")[2].removesuffix("]").split("-")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="session")
def engine_name() -> str:
    """The engine of tests that are about something else. Folders of tests that are to hold on every engine have a
    fixture of this name that gives each of them.
    """
    return "sqlite"


@pytest.fixture
def homes(engine_name: str, tmp_path: Path) -> Iterator[Homes]:
    with Homes(engine_name, tmp_path) as made:
        yield made


@pytest.fixture
def home(homes: Homes) -> Path:
    return homes.new()


@pytest.fixture
def database(home: Path) -> Iterator[Database]:
    """The database of the home, without an engine around it."""
    opened = database_of(home)
    yield opened
    opened.close()


@pytest.fixture
def holdfast(home: Path, clock: FakeClock) -> Iterator[Holdfast]:
    with Holdfast.open(home=home, clock=clock) as engine:
        yield engine


@pytest.fixture
def memory(holdfast: Holdfast) -> MemoryManager:
    return holdfast.manager("user_123", "travel_agent", "sess_abc123")
