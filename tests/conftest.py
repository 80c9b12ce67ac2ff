"""What every test may use: a clock that stands still until it is moved, and an engine in a folder of its own."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path

import httpx
import pytest
import typer.main
import typer.testing
from hypothesis import HealthCheck, is_hypothesis_test, settings

import effort
from clocks import FakeClock
from forks import Forks
from holdfast import Holdfast, MemoryManager
from holdfast.recall import embedders
from holdfast.recall.embedders import static
from holdfast.storage.relational.database import Database
from homes import Homes, database_of
from launcher import launcher

# No example is judged by how long it took. A result decides over a landing, so the examples are the same every time;
# ``make soak`` draws others.
settings.register_profile(
    "holdfast", max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.register_profile("quick", settings.get_profile("holdfast"), max_examples=10)
settings.register_profile("soak", settings.get_profile("holdfast"), max_examples=1_000, derandomize=False)
settings.load_profile("holdfast")

# To load the embedder, to make all commands, and to read the certificates that no server here has takes longer than most
# tests: the tests of one process share them.
vars(embedders)["_static"] = cache(embedders._static)
vars(static)["_read_tokenizer"] = cache(static._read_tokenizer)
vars(static)["read_pieces"] = cache(static.read_pieces)
vars(typer.testing)["_get_command"] = cache(typer.main.get_command)
vars(httpx._transports.default)["create_ssl_context"] = cache(httpx.create_ssl_context)


#: Stores of tests lie here if there is as much room: nobody waits for a disk, and what a killed process leaves behind is
#: the same.
_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - pytest makes a folder of its own in it
_ROOM = 4 << 30
#: So many tests will start commands.
_MANY = 1_000
_SERVICES = {"lifecycle", "privacy", "memory", "domains", "backups", "requirements"}


def _can_lie_in_memory() -> bool:
    if not _IN_MEMORY.is_dir() or os.statvfs(_IN_MEMORY).f_flag & os.ST_NOEXEC:  # some tests write programs
        return False
    return shutil.disk_usage(_IN_MEMORY).free > _ROOM


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, metavar="COUNT", help="run the tests in so many processes")
    parser.addoption("--quick", action="store_true", help="only the embedded engine, and few examples of each property")
    parser.addoption("--every-engine", action="store_true", help="every test of services on every engine")
    parser.addoption(
        "--soak",
        type=float,
        metavar="MINUTES",
        help="only properties, kills and large stores, each with ten times as much, on the disk; "
        "tests that have not begun after so many minutes are skipped",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "soak: tries more with --soak")
    config.addinivalue_line("markers", "everywhere: is run on every engine, whatever else is not")
    config.addinivalue_line("markers", "sampled: on a server, only some parameters are tried without --soak")
    if forks := config.getoption("--forks"):
        config.pluginmanager.register(Forks(forks))
    if config.getoption("--quick"):
        settings.load_profile("quick")
        effort.set_scale(effort.QUICK)
    if minutes := config.getoption("--soak"):
        settings.load_profile("soak")
        effort.set_scale(effort.SOAK)
        effort.set_end(time.monotonic() + minutes * 60)
        config.pluginmanager.register(_Deadline())
    elif "TMPDIR" not in os.environ and _can_lie_in_memory():
        os.environ["TMPDIR"] = tempfile.tempdir = str(_IN_MEMORY)


class _Deadline:
    """Skips what has not begun when the time is over, and tells at the end what tests say that they tried."""

    def pytest_runtest_setup(self) -> None:
        if not effort.has_time():
            pytest.skip("the minutes of --soak are over")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for report in terminalreporter.getreports("passed"):
            for name, value in report.user_properties:
                terminalreporter.write_line(f"{report.nodeid}: {name}: {value}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--soak"):
        kept = ("soak", "sampled")
        _keep(config, items, lambda item: any(map(item.keywords.__contains__, kept)) or _has_examples(item))
        for item in items:
            item.add_marker(pytest.mark.timeout(3_600 + 60 * config.getoption("--soak")))
        return
    if not config.getoption("--every-engine"):
        numbers = count()
        _keep(config, items, lambda item: not _on_server(item) or next(numbers) % _stride(item) == 0)
    if config.getoption("--quick"):
        _keep(config, items, lambda item: not _on_server(item))


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was imported and collected stays until the end: nobody has to look at it again to find garbage."""
    if session.config.getoption("--forks") and len(session.items) > _MANY:
        launcher()  # one for all forks
    gc.collect()
    gc.freeze()


def _keep(config: pytest.Config, items: list[pytest.Item], wanted: Callable[[pytest.Item], bool]) -> None:
    kept = {item: wanted(item) for item in items}
    config.hook.pytest_deselected(items=[item for item in items if not kept[item]])
    items[:] = [item for item in items if kept[item]]


def _on_server(item: pytest.Item) -> bool:
    """Whether what a test is named by in brackets says that it needs a server."""
    return not {"postgres", "valkey", "s3"}.isdisjoint(item.name.partition("[")[2].removesuffix("]").split("-"))


def _stride(item: pytest.Item) -> int:
    """One of how many tests on a server is run. What a service does is decided above the engines, which one suite for each
    port holds to the same contract; so of tests of services every third is run there, and each that is marked for it.
    """
    if "sampled" in item.keywords:
        return 5
    if "everywhere" in item.keywords:
        return 1
    return 3 if item.path.parent.name in _SERVICES else 1


def _has_examples(item: pytest.Item) -> bool:
    return is_hypothesis_test(getattr(item, "obj", None))


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
