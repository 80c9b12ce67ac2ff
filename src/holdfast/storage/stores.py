"""The stores of an engine, opened by the URLs that the settings name."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.errors import InvalidSettingsError, quote
from holdfast.installation import missing_extra
from holdfast.ports.conversations import ShortTermStore
from holdfast.ports.coordination import Witness
from holdfast.ports.stores import Stores
from holdfast.settings import Settings, mask_password, sqlite_path
from holdfast.storage.relational.access import RequestDatabase, SqlConsoleJobs, SqlKeys, SqlReplies, SqlSignIns
from holdfast.storage.relational.attachments import (
    SqlFacts,
    SqlKeptOut,
    SqlPacks,
    SqlProvenance,
    SqlSchemas,
    SqlVersions,
)
from holdfast.storage.relational.audit import SqlAudit
from holdfast.storage.relational.coordination import SqlClock, SqlIdentity, SqlJobs, SqlLeases
from holdfast.storage.relational.database import Database
from holdfast.storage.relational.dues import SqlDues
from holdfast.storage.relational.feed import SqlFeed
from holdfast.storage.relational.figures import SqlFigures
from holdfast.storage.relational.history import SqlHistory
from holdfast.storage.relational.records import SqlRecords
from holdfast.storage.relational.registry import SqlParts, SqlRegistry
from holdfast.storage.relational.rules import SqlHolds, SqlRules
from holdfast.storage.relational.sessions import SqlShortTerm
from holdfast.storage.relational.subjects import SqlSubjectReader, SqlSubjects
from holdfast.storage.sqlite.database import SqliteDatabase


def stores_over(database: Database, short_term: ShortTermStore | None = None) -> Stores:
    """The stores that keep everything in a database, but for short-term memory where that is elsewhere."""
    joined = RequestDatabase(database)
    return Stores(
        records=SqlRecords(joined),
        versions=SqlVersions(joined),
        provenance=SqlProvenance(joined),
        kept_out=SqlKeptOut(joined),
        feed=SqlFeed(database),  # an index takes in only what has been committed
        history=SqlHistory(joined, short_term),
        short_term=short_term or SqlShortTerm(joined),
        facts=SqlFacts(joined),
        schemas=SqlSchemas(joined),
        rules=SqlRules(joined),
        dues=SqlDues(joined),
        figures=SqlFigures(joined),
        holds=SqlHolds(joined),
        packs=SqlPacks(joined),
        audit=SqlAudit(joined),
        clock_store=SqlClock(database),  # what time it is is no part of a request
        jobs=SqlJobs(joined),
        leases=SqlLeases(joined),
        registry=SqlRegistry(joined, short_term),
        parts=SqlParts(joined),
        subjects=SqlSubjects(joined),
        reader=SqlSubjectReader(joined),
        keys=SqlKeys(joined),
        sign_ins=SqlSignIns(joined),
        console_jobs=SqlConsoleJobs(joined),
        replies=SqlReplies(database),
        identity=SqlIdentity(database),
    )


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
