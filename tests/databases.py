"""PostgreSQL databases for tests: one server for each process, and databases that are emptied and used again.

To empty one takes a small part of the time that it takes to make one, or to open a connection.
"""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from functools import cache
from typing import LiteralString, NamedTuple

import psycopg
from bench.servers import PostgresServer, postgres
from psycopg import sql

from holdfast.storage.postgres.database import PostgresDatabase

#: So many rows and more are not worth deleting: the database is dropped.
_MANY = 5_000
_at_exit = ExitStack()
_free: list[TestDatabase] = []


@cache
def postgres_server() -> PostgresServer:
    """The server of this process; it ends with the process."""
    atexit.register(_at_exit.close)
    return _at_exit.enter_context(postgres())


class Contents(NamedTuple):
    """All that is in a database: the rows of tables as PostgreSQL copies them, and where sequences stand."""

    tables: dict[str, bytes]
    sequences: dict[str, int | None]


class TestDatabase:
    """A database with the tables of Holdfast, and a connection to it behind Holdfast's back."""

    __test__ = False

    def __init__(self) -> None:
        self.url = postgres_server().new_database()
        PostgresDatabase(self.url).close()
        self._connection = _at_exit.enter_context(psycopg.connect(self.url, autocommit=True, prepare_threshold=None))

    def read(self) -> Contents:
        """All that is in it."""
        tables = {}
        for (name,) in self._connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast'"
        ).fetchall():
            with self._connection.cursor().copy(_on(name, "COPY {} TO STDOUT (FORMAT binary)")) as stream:
                tables[name] = b"".join(stream)
        found = self._connection.execute("SELECT sequencename, last_value FROM pg_sequences")
        return Contents(tables, dict(found.fetchall()))

    def fill(self, contents: Contents) -> int:
        """Give it these contents instead of its own; how many rows it had."""
        nothing = min(map(len, contents.tables.values()))  # so long is a copy without rows
        with self._connection.transaction():
            # nothing follows from these changes
            self._connection.execute("SET LOCAL session_replication_role = replica")
            deletions = sql.SQL("; ").join(_on(name, "DELETE FROM {}") for name in contents.tables)
            count = sum(result.rowcount for result in self._connection.execute(deletions).results())
            for name, rows in contents.tables.items():
                if len(rows) > nothing:
                    with self._connection.cursor().copy(_on(name, "COPY {} FROM STDIN (FORMAT binary)")) as stream:
                        stream.write(rows)
            settings = sql.SQL("; ").join(
                sql.SQL("SELECT setval({}, {}, {})").format(f"holdfast.{name}", last or 1, last is not None)
                for name, last in contents.sequences.items()
            )
            self._connection.execute(settings)
        return count

    def throw_out(self) -> None:
        """End all connections but this one."""
        self._connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )

    def drop(self) -> None:
        self._connection.close()
        postgres_server().drop_database(self.url)


def take() -> TestDatabase:
    """A database with nothing in it but what was there when it was made."""
    _made()
    return _free.pop() if _free else TestDatabase()


def take_copy(source: TestDatabase) -> TestDatabase:
    """A database with all that is in another."""
    database = take()
    database.fill(source.read())
    return database


def give_back(database: TestDatabase) -> None:
    """Let others have a database, emptied; whoever is connected to it is thrown out."""
    database.throw_out()
    if database.fill(_made()) < _MANY:
        _free.append(database)
    else:
        database.drop()


@cache
def _made() -> Contents:
    """What is in a database when it has just been made."""
    database = TestDatabase()
    _free.append(database)
    return database.read()


def _on(table: str, statement: LiteralString) -> sql.Composed:
    """A statement on a table."""
    return sql.SQL(statement).format(sql.Identifier("holdfast", table))
