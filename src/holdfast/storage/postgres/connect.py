"""How a PostgreSQL database becomes a store: what it must have, its schema and migrations, and Citus."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import psycopg
from psycopg import errors

from holdfast.core.errors import StoreTooNewError, StoreUnavailableError
from holdfast.installation import upgrade_command
from holdfast.storage.catalog import COPYING, TABLES, Spread
from holdfast.storage.postgres.transactions import PACKAGE, Connection, lock_key
from holdfast.storage.relational.database import migrations

#: Tables whose rows lie together on one node for each user. The others of a user lie beside those of the first.
BY_SUBJECT: Final = tuple(table.name for table in TABLES if table.spread is Spread.SUBJECT)
#: Small tables, whole on every node.
EVERYWHERE: Final = tuple(table.name for table in TABLES if table.spread is Spread.EVERYWHERE)
#: Every table of the schema.
ALL_TABLES: Final = frozenset(table.name for table in TABLES)


def distribute_tables(connection: Connection, schema: str, place: str) -> None:
    """Spread the tables that are not spread yet; ``StoreUnavailableError`` where the extension is not enabled."""
    if connection.execute("SELECT 1 FROM pg_extension WHERE extname = 'citus'").fetchone() is None:
        raise StoreUnavailableError(
            f"{place} does not have the citus extension enabled, so tables cannot be distributed; "
            "run CREATE EXTENSION citus there, or leave HOLDFAST_DISTRIBUTE out"
        )
    found = connection.execute(
        "SELECT relname FROM pg_dist_partition JOIN pg_class ON pg_class.oid = logicalrelid "
        "WHERE relnamespace = %s::regnamespace",
        (schema,),
    )
    spread = {name for (name,) in found}
    try:
        for table in EVERYWHERE:
            if table not in spread:
                connection.execute("SELECT create_reference_table(%s::regclass)", (table,))
        for table in BY_SUBJECT:
            if table not in spread:
                beside = "default" if table == BY_SUBJECT[0] else BY_SUBJECT[0]
                connection.execute(
                    "SELECT create_distributed_table(%s::regclass, 'subject', colocate_with => %s)", (table, beside)
                )
    except psycopg.OperationalError:
        raise  # the server is away, or busy: that is no matter of distribution
    except psycopg.Error as problem:
        raise StoreUnavailableError(f"{place}: the tables could not be distributed ({problem})") from problem


_OLDEST: Final = 150000
#: How long a migration waits for a table's lock before it lets others pass and tries again.
_LOCK_MS: Final = 2_000
_TRIES: Final = 60


def quoted(name: str) -> str:
    """An identifier, as SQL takes it."""
    return '"' + name.replace('"', '""') + '"'


def prepare_schema(
    connection: Connection,
    schema: str,
    place: str,
    *,
    distribute: bool = False,
    copying: bool = False,
    before_new: Callable[[], None] = lambda: None,
) -> None:
    """Refuse a server that cannot be used, in plain words; then bring the schema up to date.

    One that holds a part of another store is opened only to go on ``copying`` that. ``before_new`` may raise, before
    tables are made where there are none.
    """
    if connection.info.server_version < _OLDEST:
        raise StoreUnavailableError(
            f"{place} is PostgreSQL {connection.info.server_version // 10000}; "
            f"Holdfast needs {_OLDEST // 10000} or newer"
        )
    if not copying and _one(connection, "SELECT to_regclass(%s)::text", f"{quoted(schema)}.{COPYING}") is not None:
        raise StoreUnavailableError(
            f"{place} holds an unfinished copy of another store; finish it with the same holdfast migrate, "
            "or name another database"
        )
    version = _version(connection, schema)
    steps = migrations(PACKAGE)
    if version > steps[-1].number:
        raise StoreTooNewError(
            f"{place} has schema version {version}, this version of Holdfast knows up to {steps[-1].number}; "
            f"upgrade with: {upgrade_command()}"
        )
    if version == 0:
        before_new()
    if version < steps[-1].number:
        connection.execute("SELECT pg_advisory_lock(%s)", (lock_key(schema, "migration"),))
        try:
            _migrate(connection, schema, place)
        except errors.InsufficientPrivilege as problem:
            there = (
                f"are of version {version}, this Holdfast needs {steps[-1].number}" if version else "are not there yet"
            )
            raise StoreUnavailableError(
                f"the tables of {place} {there}, and this user may not make them ({problem.diag.message_primary}); "
                "run holdfast init-db as their owner, or grant the user what it needs"
            ) from problem
        finally:
            if not connection.closed:  # with a connection, its locks go too
                connection.execute("SELECT pg_advisory_unlock(%s)", (lock_key(schema, "migration"),))
    if distribute:
        distribute_tables(connection, schema, place)


def _version(connection: Connection, schema: str) -> int:
    found = _one(connection, "SELECT to_regclass(%s)::text", f"{quoted(schema)}.schema_version")
    if found is None:
        return 0
    return int(_one(connection, f"SELECT version FROM {quoted(schema)}.schema_version") or 0)  # noqa: S608


def _migrate(connection: Connection, schema: str, place: str) -> None:
    version = _version(connection, schema)  # another process may have been faster
    if version == 0:
        _check_free(connection, schema, place)
        if _one(connection, "SELECT 1 FROM pg_namespace WHERE nspname = %s", schema) is None:  # may be made beforehand
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}".encode())
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {quoted(schema)}.schema_version "
            "(one integer PRIMARY KEY CHECK (one = 1), version integer NOT NULL)".encode()
        )
    for number, script in migrations(PACKAGE):
        if number > version:
            _step(connection, number, script, place)


def _check_free(connection: Connection, schema: str, place: str) -> None:
    """Refuse a schema in which another application has tables of our names, before anything is made there."""
    found = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind IN ('r', 'p', 'v', 'm')",
        (quoted(schema),),
    )
    if taken := sorted({str(name) for (name,) in found} & ALL_TABLES - {"schema_version"}):
        raise StoreUnavailableError(
            f"{place} has tables of another application in the schema {schema!r}, with names that Holdfast uses: "
            f"{', '.join(taken)}; name another schema in HOLDFAST_URL: ?options=-csearch_path%3Dmemory"
        )


def _step(connection: Connection, number: int, script: str, place: str) -> None:
    """One migration, in one transaction. While it waits for a table, others wait behind it: so it waits shortly."""
    for _ in range(_TRIES):
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = {_LOCK_MS}".encode())
                connection.execute(script.encode())
                connection.execute(
                    "INSERT INTO schema_version (one, version) VALUES (1, %s) "
                    "ON CONFLICT (one) DO UPDATE SET version = excluded.version",
                    (number,),
                )
        except errors.LockNotAvailable:
            time.sleep(0.5)
        else:
            return
    raise StoreUnavailableError(
        f"{place} could not be brought to schema version {number}: its tables are in use all the time; "
        "try again when there is less to do"
    )


def _one(connection: Connection, statement: str, *bindings: Any) -> Any:
    return next(iter(connection.execute(statement.encode(), bindings).fetchone() or (None,)))
