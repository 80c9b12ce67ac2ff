"""Stores to read from and to write into: those of URLs, and those that are open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Final

from holdfast.core.errors import InvalidSettingsError, quote
from holdfast.installation import missing_extra
from holdfast.ports.backups import Origin, RowMerger, RowReader, RowWriter
from holdfast.ports.objects import ObjectStore
from holdfast.settings import Settings, mask_password, sqlite_path
from holdfast.storage.catalog import COPIED
from holdfast.storage.relational.database import Database, migrations
from holdfast.storage.relational.restore import SqlMerger
from holdfast.storage.sqlite.database import SqliteDatabase
from holdfast.storage.sqlite.transactions import SqliteTransaction
from holdfast.storage.transfer.sqlite import SqliteReader, SqliteSource, SqliteWriter, trial_store

if TYPE_CHECKING:
    from holdfast.storage.transfer.postgres import PostgresSource, PostgresTarget

_SERVERS: Final = {"postgresql", "postgres"}


def open_source(url: str, settings: Settings, called: str = "HOLDFAST_URL") -> SqliteSource | PostgresSource:
    """The store that a URL names, which must be there; ``called`` is the option or setting that the URL is from."""
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        return SqliteSource(sqlite_path(url), busy_seconds=settings.busy_seconds)
    if scheme not in _SERVERS:
        raise InvalidSettingsError(
            f"the store to copy, {quote(mask_password(url))}, is not understood; write it as "
            "sqlite:///path/to/holdfast.db or postgresql://user:password@host:5432/database"
        )
    options = {"busy_seconds": settings.busy_seconds, "prepare": settings.prepare, "called": called}
    source: PostgresSource = _server().PostgresSource(url, **options)
    return source


def check_target(source: str, url: str) -> str | None:
    """Look, changing nothing, whether a store can be copied to a URL; the source of a copy begun there, if any."""
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        raise InvalidSettingsError(
            "a store is copied into PostgreSQL, not into SQLite; one that is a file can be copied as a file, "
            "while nobody uses it"
        )
    if scheme not in _SERVERS:
        raise InvalidSettingsError(
            f"the target {quote(mask_password(url))} is not understood; write it as "
            "postgresql://user:password@host:5432/database"
        )
    if source == url:
        raise InvalidSettingsError("the source and the target are the same; name another database with --to")
    begun: str | None = _server().check_free(url)
    return begun


def open_target(url: str, settings: Settings) -> PostgresTarget:
    """The database that a URL names, ready to be copied into. Call ``check_target`` first."""
    options = {"busy_seconds": settings.busy_seconds, "distribute": settings.distribute}
    target: PostgresTarget = _server().PostgresTarget(url, **options)
    return target


def schema_versions() -> tuple[int, int]:
    """The numbers of the last migrations that this version knows, of SQLite and of PostgreSQL."""
    sqlite, postgres = (migrations(f"holdfast.storage.{engine}")[-1].number for engine in ("sqlite", "postgres"))
    return sqlite, postgres


def count_rows(reader: RowReader) -> dict[str, int]:
    """How many rows each table has."""
    return {table.name: reader.count(table.name) for table in COPIED}


class DatabaseRows:
    """The ``RowStore`` of an open database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def engine(self) -> str:
        return "sqlite" if isinstance(self._database, SqliteDatabase) else "postgresql"

    @property
    def schema(self) -> tuple[int, int]:
        return schema_versions()

    @contextmanager
    def read(self) -> Iterator[RowReader]:
        if isinstance(self._database, SqliteDatabase):
            with self._database.read() as tx:
                yield SqliteReader(tx.connection, "the store")
        else:
            with _server().read_patiently(self._database) as reader:
                yield reader

    @contextmanager
    def fill(self) -> Iterator[RowWriter]:
        with self._database.alone("restoring") as tx:
            yield SqliteWriter(tx.connection) if isinstance(tx, SqliteTransaction) else _server().fill_alone(tx)

    def trial(self) -> AbstractContextManager[tuple[RowWriter, RowReader]]:
        return trial_store()

    def merge(
        self, origin: Origin, *, is_erased: Callable[[str], bool], cold: Callable[[], ObjectStore], now: int
    ) -> RowMerger:
        return SqlMerger(self._database, origin, is_erased=is_erased, cold=cold, now=now)


def _server() -> ModuleType:
    """The module that reads and writes PostgreSQL."""
    try:
        from holdfast.storage.transfer import postgres  # noqa: PLC0415 - the extra may not be installed
    except ImportError as problem:
        raise missing_extra("PostgreSQL", "postgres") from problem
    return postgres
