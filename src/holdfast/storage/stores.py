"""The stores of an engine, opened by the URLs that the settings name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.errors import InvalidSettingsError, quote
from holdfast.installation import missing_extra
from holdfast.ports.stores import Stores
from holdfast.settings import Settings, mask_password, sqlite_path
from holdfast.storage.relational.access import RequestDatabase
from holdfast.storage.relational.database import Database
from holdfast.storage.sqlite.database import SqliteDatabase

if TYPE_CHECKING:
    from holdfast.ports.conversations import ShortTermStore
    from holdfast.ports.coordination import Witness


#: Where the class of each store is, under ``storage/relational``.
_PLACES: Final = {
    "records": "records.SqlRecords",
    "versions": "attachments.SqlVersions",
    "provenance": "attachments.SqlProvenance",
    "kept_out": "attachments.SqlKeptOut",
    "feed": "feed.SqlFeed",
    "history": "history.SqlHistory",
    "short_term": "sessions.SqlShortTerm",
    "facts": "attachments.SqlFacts",
    "schemas": "attachments.SqlSchemas",
    "rules": "rules.SqlRules",
    "dues": "dues.SqlDues",
    "figures": "figures.SqlFigures",
    "holds": "rules.SqlHolds",
    "packs": "attachments.SqlPacks",
    "audit": "audit.SqlAudit",
    "clock_store": "coordination.SqlClock",
    "jobs": "coordination.SqlJobs",
    "leases": "coordination.SqlLeases",
    "registry": "registry.SqlRegistry",
    "parts": "registry.SqlParts",
    "subjects": "subjects.SqlSubjects",
    "reader": "subjects.SqlSubjectReader",
    "keys": "access.SqlKeys",
    "sign_ins": "access.SqlSignIns",
    "console_jobs": "access.SqlConsoleJobs",
    "replies": "access.SqlReplies",
    "identity": "coordination.SqlIdentity",
}
#: No part of a request: an index takes in only what has been committed, and the time is the same for all.
_ALONE: Final = frozenset({"feed", "clock_store", "replies", "identity"})
#: These write to short-term memory too, wherever it is.
_WITH_SHORT_TERM: Final = frozenset({"history", "registry"})


def stores_over(database: Database, short_term: ShortTermStore | None = None) -> Stores:
    """The stores that keep everything in a database, but for short-term memory where that is elsewhere."""
    joined = RequestDatabase(database)

    def make(name: str) -> Any:
        if name == "short_term" and short_term is not None:
            return short_term
        module, _, found = _PLACES[name].partition(".")
        store = getattr(import_module(f"holdfast.storage.relational.{module}"), found)
        others = (short_term,) if name in _WITH_SHORT_TERM else ()
        return store(database if name in _ALONE else joined, *others)

    return Stores(make)


def open_database(settings: Settings, before_new: Callable[[], None] = lambda: None) -> Database:
    """The database that the settings name. ``before_new`` may raise, before a store is made where there is none."""
    scheme = settings.url.partition(":")[0]
    if scheme == "sqlite":
        path = sqlite_path(settings.url)
        return SqliteDatabase(path, busy_seconds=settings.busy_seconds, before_new=before_new)
    if scheme not in {"postgresql", "postgres"}:
        raise InvalidSettingsError(
            f"the store URL {quote(mask_password(settings.url))} is not understood; write it as "
            "sqlite:///path/to/holdfast.db or postgresql://user:password@host:5432/database"
        )
    try:
        from holdfast.storage.postgres.database import PostgresDatabase  # noqa: PLC0415 - the extra may not be installed
    except ImportError as problem:
        raise missing_extra("PostgreSQL", "postgres") from problem
    return PostgresDatabase(
        settings.url,
        busy_seconds=settings.busy_seconds,
        pool_size=settings.pool_size,
        distribute=settings.distribute,
        prepare=settings.prepare,
        before_new=before_new,
    )


def store_url(settings: Settings) -> str:
    """The store that the settings name, without a user, a password or an option."""
    if settings.url.partition(":")[0] not in {"postgresql", "postgres"}:
        return f"sqlite:///{sqlite_path(settings.url)}"
    from holdfast.storage.postgres.errors import url_of  # noqa: PLC0415 - the extra may not be installed

    return url_of(settings.url)


def open_short_term(settings: Settings) -> ShortTermStore | None:
    """The short-term store that the settings name; ``None`` if it is the database."""
    if not settings.short_term_url:
        return None
    from holdfast.storage.valkey import open_short_term as open_valkey  # noqa: PLC0415 - the extra may not be installed

    return open_valkey(settings.short_term_url)


def witness_of(database: Database) -> Witness | None:
    """What knows whether the database was exchanged; ``None`` for a file, which leaves no trace of that."""
    if isinstance(database, SqliteDatabase):
        return None
    from holdfast.storage.postgres.database import PostgresDatabase, PostgresWitness  # noqa: PLC0415 - as above

    return PostgresWitness(database) if isinstance(database, PostgresDatabase) else None
