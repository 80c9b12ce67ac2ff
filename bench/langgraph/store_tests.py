"""Runs the tests that LangGraph publishes for its stores against ``HoldfastStore``.

python -m bench.langgraph.store_tests

They are fetched from the source distributions of the installed versions; nothing of them is kept here. The module is
also the plugin of that run: each store that the tests make is one of ours, for one user, in a folder of its own. What
fails must be what ``DIFFERENCES`` lists, and the other way round.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from xml.etree import ElementTree

from langgraph.store import memory, postgres, sqlite
from langgraph.store.postgres import aio as postgres_aio
from langgraph.store.sqlite import aio as sqlite_aio

from holdfast.integrations.langgraph.store import HoldfastStore

PACKAGES: Final = ("langgraph-checkpoint", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres")
#: What the tests need to run.
_PLUGINS: Final = ("pytest-asyncio", "pytest-mock")
_FILES: Final = ("test_store.py", "test_async_store.py", "test_ttl.py")

#: Why tests fail on purpose: reasons, with the packages and names of the tests. The how-to page has the same reasons.
REASONS: Final[dict[str, dict[str, str]]] = {
    "A score is Holdfast's own, from 0 to 1, made of words and vectors; it is no cosine, distance or product.": {
        "langgraph-checkpoint": "test_store.test_embed_with_path",
        "langgraph-checkpoint-sqlite": "test_store.test_scores test_store.test_embed_with_path "
        "test_async_store.test_embed_with_path",
        "langgraph-checkpoint-postgres": "test_store.test_scores test_store.test_embed_with_path_sync "
        "test_store.test_embed_with_path_operation_config test_async_store.test_embed_with_path",
    },
    "A dot in the name of a field is a dot, as in InMemoryStore and PostgresStore; in SqliteStore it is a path.": {
        "langgraph-checkpoint-sqlite": "test_store.test_filter_keys_with_hyphens_and_digits"
    },
    "No name of a field can do harm, because none becomes part of a statement; so none is refused.": {
        "langgraph-checkpoint-sqlite": "test_store.test_sql_injection_vulnerability"
    },
    "Synchronous calls are allowed in an event loop; nothing waits for that loop.": {
        "langgraph-checkpoint-sqlite": "test_async_store.test_no_running_loop",
        "langgraph-checkpoint-postgres": "test_async_store.test_no_running_loop",
    },
    "A read refreshes a time to live that is shorter than a minute, too; SqliteStore keeps whole minutes.": {
        "langgraph-checkpoint-sqlite": "test_ttl.test_ttl_override_default"
    },
    "The test reads or writes the tables or attributes of the other store.": {
        "langgraph-checkpoint-sqlite": "test_store.test_vector_store_initialization",
        "langgraph-checkpoint-postgres": "test_store.test_omit_expired_filters_read_paths "
        "test_store.test_omit_expired_refresh_ttl_only_refreshes_live_rows "
        "test_store.test_omit_expired_search_pagination test_async_store.test_omit_expired_filters_read_paths "
        "test_async_store.test_omit_expired_refresh_ttl_only_refreshes_live_rows "
        "test_async_store.test_omit_expired_search_pagination",
    },
}
DIFFERENCES: Final = frozenset(
    f"{package}: {name}" for tests in REASONS.values() for package, names in tests.items() for name in names.split()
)


class StandIn(HoldfastStore):
    """Our store behind the name of one of theirs."""

    MIGRATIONS: tuple[str, ...] = ()

    def __init__(self, _conn: Any = None, *, index: Any = None, ttl: Any = None, **_options: Any) -> None:
        home = tempfile.mkdtemp(prefix="holdfast-")
        fields: Any = None if index is None else {**index, "fields": index.get("fields") or index.get("text_fields")}
        own = HoldfastStore.open(home=home, user_of=lambda _namespace: "tests", index=fields, ttl=ttl)
        super().__init__(own.holdfast, user_of=lambda _namespace: "tests", ttl=ttl)
        self._fields = own._fields
        self._is_own, self.index_config = True, index

    @classmethod
    @contextmanager
    def from_conn_string(cls, conn: str, **options: Any) -> Iterator[Self]:
        with cls(conn, **options) as store:
            yield store

    def setup(self) -> None:
        pass

    start_ttl_sweeper = stop_ttl_sweeper = setup

    def sweep_ttl(self) -> int:
        before = len(self.holdfast.recycle.list())
        self.holdfast.sweep()
        return len(self.holdfast.recycle.list()) - before

    @contextmanager
    def _cursor(self, **_options: Any) -> Iterator[Nothing]:
        yield Nothing()


class AsyncStandIn(StandIn):
    """The same for those who wait for it."""

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, conn: str, **options: Any) -> AsyncIterator[Self]:  # type: ignore[override]
        with cls(conn, **options) as store:
            yield store

    async def setup(self) -> None:  # type: ignore[override]
        pass

    async def start_ttl_sweeper(self) -> None:  # type: ignore[override]
        pass

    async def stop_ttl_sweeper(self) -> None:  # type: ignore[override]
        pass

    async def sweep_ttl(self) -> int:  # type: ignore[override]
        return super().sweep_ttl()

    @asynccontextmanager
    async def _cursor(self, **_options: Any) -> AsyncIterator[Nothing]:  # type: ignore[override]
        yield Nothing()


class Nothing:
    """A connection to a server that is not there: it takes every statement."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_problem: type[BaseException] | BaseException | TracebackType | None) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_problem: type[BaseException] | BaseException | TracebackType | None) -> None:
        pass

    def execute(self, *_statement: object) -> Self:
        return self

    def __await__(self) -> Iterator[Any]:
        return iter(())


async def _connect(*_where: object, **_options: object) -> Nothing:
    return Nothing()


def pytest_configure() -> None:
    """Put our store in the place of theirs, before their tests import it."""
    import psycopg

    memory.InMemoryStore = StandIn  # type: ignore[misc, assignment]
    sqlite.SqliteStore = postgres.PostgresStore = StandIn  # type: ignore[misc, assignment]
    sqlite.AsyncSqliteStore = sqlite_aio.AsyncSqliteStore = AsyncStandIn  # type: ignore[misc, assignment]
    postgres.AsyncPostgresStore = postgres_aio.AsyncPostgresStore = AsyncStandIn  # type: ignore[misc, assignment]
    psycopg.Connection.connect = lambda *_where, **_options: Nothing()  # type: ignore[assignment, method-assign]
    psycopg.AsyncConnection.connect = _connect  # type: ignore[assignment, method-assign]


def fetch(folder: Path) -> None:
    """Bring the tests, and what they need to run, into a folder."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    wanted = [f"{package}=={version(package)}" for package in PACKAGES]
    sources = folder / "sources"
    subprocess.run(
        [*pip, "download", "--no-deps", "--no-binary", ",".join(PACKAGES), "-d", sources, *wanted], check=True
    )
    subprocess.run([*pip, "install", "--no-deps", "--target", folder / "plugins", *_PLUGINS], check=True)
    for package, archive in zip(PACKAGES, (_archive(sources, package) for package in PACKAGES), strict=True):
        with tarfile.open(archive) as found:
            for member in found.getmembers():
                parts = Path(member.name).parts[1:]
                if parts[:1] == ("tests",) and member.isfile():
                    target = folder / package / Path(*parts)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes((found.extractfile(member) or sys.stdin.buffer).read())


def _archive(folder: Path, package: str) -> Path:
    return next(folder.glob(f"{package.replace('-', '_')}-{version(package)}*.tar.gz"))


def run(folder: Path, package: str) -> dict[str, str]:
    """Run a package's tests; what became of each, by its name."""
    report = folder / f"{package}.xml"
    files = [f"tests/{name}" for name in _FILES if (folder / package / "tests" / name).exists()]
    # a store of theirs with a pipeline or a pool is the same store here
    options = ["-q", "-p", "bench.langgraph.store_tests", "-k", "not pipe and not pool"]
    options += ["-o", "asyncio_mode=auto", "--rootdir", ".", "--junitxml", str(report), "--tb", "short"]
    options += ["--timeout", "300"]  # one of them has 60,000 operations
    path = os.pathsep.join([str(Path.cwd()), *sys.path, str(folder / "plugins")])
    subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files],
        cwd=folder / package,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    cases = ElementTree.parse(report).getroot().iter("testcase")  # noqa: S314 - our own run wrote it
    return {f"{case.get('classname')}.{case.get('name')}": _outcome(case) for case in cases}


def _outcome(case: ElementTree.Element) -> str:
    tags = {child.tag for child in case}
    return "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"


def main() -> int:
    """Fetch the tests, run them, and compare what fails with what is listed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the tests are kept for the next run")
    folder = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as temporary:
        where = folder or Path(temporary)
        if not (where / "plugins").exists():
            fetch(where)
        wrong = 0
        for package in PACKAGES:
            outcomes = run(where, package)
            failed = {f"{package}: {_plain(name)}" for name, outcome in outcomes.items() if outcome == "failed"}
            listed = {name for name in DIFFERENCES if name.startswith(f"{package}:")}
            print(f"{package} {version(package)}: {dict(Counter(outcomes.values()))}")
            for name in sorted(failed ^ listed):
                wrong += 1
                print(f"  {'not listed' if name in failed else 'passes, though it is listed'}: {name}")
    return 1 if wrong else 0


def _plain(name: str) -> str:
    """A test's name without its parameters and its package."""
    return name.partition("[")[0].removeprefix("tests.")


if __name__ == "__main__":
    sys.exit(main())
