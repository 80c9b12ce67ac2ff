"""Opening what is copied from and to, by their URLs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Final

from holdfast.core.errors import InvalidSettingsError, quote
from holdfast.installation import missing_extra
from holdfast.settings import Settings, sqlite_path, without_password
from holdfast.storage.relational.database import Database
from holdfast.storage.sqlite.database import Database as SqliteDatabase
from holdfast.storage.sqlite.database import SqliteTransaction
from holdfast.storage.transfer.sqlite import SqliteFill, SqliteSource, SqliteView
from holdfast.storage.transfer.views import Fill, View

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
            f"the store to copy, {quote(without_password(url))}, is not understood; write it as "
            "sqlite:///path/to/holdfast.db or postgresql://user:password@host:5432/database"
        )
    source: PostgresSource = _server().PostgresSource(
        _as_psycopg(url), busy_seconds=settings.busy_seconds, prepare=settings.prepare, called=called
    )
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
            f"the target {quote(without_password(url))} is not understood; write it as "
            "postgresql://user:password@host:5432/database"
        )
    if source == url:
        raise InvalidSettingsError("the source and the target are the same; name another database with --to")
    begun: str | None = _server().check_free(_as_psycopg(url))
    return begun


def open_target(url: str, settings: Settings) -> PostgresTarget:
    """The database that a URL names, ready to be copied into. Call ``check_target`` first."""
    target: PostgresTarget = _server().PostgresTarget(
        _as_psycopg(url), busy_seconds=settings.busy_seconds, distribute=settings.distribute
    )
    return target


@contextmanager
def view_of(database: Database) -> Iterator[View]:
    """An open store as it is now, for as long as the block lasts."""
    if isinstance(database, SqliteDatabase):
        with database.read() as tx:
            yield SqliteView(tx.connection, "the store")
        return
    with _server().patient_view(database) as view:
        yield view


@contextmanager
def fill_of(database: Database) -> Iterator[Fill]:
    """An open store, to be filled. Nobody sees anything of it before the block has ended, and nobody writes meanwhile;
    if it raises, nothing was done.
    """
    with database.alone("restoring") as tx:
        yield SqliteFill(tx.connection) if isinstance(tx, SqliteTransaction) else _server().closed_fill(tx)


def _as_psycopg(url: str) -> str:
    return url.replace("postgres://", "postgresql://", 1) if url.startswith("postgres://") else url


def _server() -> ModuleType:
    """What copies from and to PostgreSQL."""
    try:
        from holdfast.storage.transfer import postgres  # noqa: PLC0415 - the extra may not be installed
    except ImportError as problem:
        raise missing_extra("PostgreSQL", "postgres") from problem
    return postgres
