"""SQL past every port: what a test wants to see of a store, or to break in it, behind the product's back.

Statements have ``?`` for what is bound, and keep to what every engine understands wherever the test is not about one
engine alone.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from psycopg import RawCursor
from psycopg.rows import tuple_row

from holdfast import Holdfast
from holdfast.storage.postgres.transactions import PostgresTransaction
from holdfast.storage.relational.database import Database, Transaction
from holdfast.storage.sqlite.database import SqliteDatabase
from holdfast.storage.sqlite.transactions import SqliteTransaction

#: An engine, its database, or a transaction of that which is under way.
Store = Holdfast | Database | Transaction


def rows(store: Store, statement: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """All rows of a statement that only looks."""
    with _transaction(store, writes=False) as tx:
        if isinstance(tx, SqliteTransaction):
            return tx.connection.execute(statement, bindings).fetchall()
        return _execute(tx, statement, bindings).fetchall()


def run(store: Store, statement: str, bindings: Sequence[Any] = ()) -> int:
    """Carry out a statement that changes rows; how many it changed."""
    with _transaction(store, writes=True) as tx:
        if isinstance(tx, SqliteTransaction):
            tx.connection.execute(statement, bindings)
            return tx.connection.changes()
        return _execute(tx, statement, bindings).rowcount


def columns(store: Store, table: str) -> list[str]:
    """The names of a table's columns, in their order."""
    with _transaction(store, writes=False) as tx:
        if isinstance(tx, SqliteTransaction):
            found = rows(tx, "SELECT name FROM pragma_table_info(?)", (table,))
        else:
            listed = "SELECT attname FROM pg_attribute WHERE attrelid = ?::regclass AND attnum > 0 ORDER BY attnum"
            found = rows(tx, listed, (table,))
    return [name for (name,) in found]


def sqlite(holdfast: Holdfast) -> SqliteDatabase:
    """The database of an engine that keeps everything in a file, for what is SQLite's alone."""
    assert isinstance(holdfast.database, SqliteDatabase)
    return holdfast.database


def _execute(tx: PostgresTransaction, statement: str, bindings: Sequence[Any]) -> RawCursor[tuple[Any, ...]]:
    """Carry out a statement on PostgreSQL, which numbers what is bound."""
    numbers = itertools.count(1)
    numbered = re.sub(r"\?", lambda _: f"${next(numbers)}", statement)
    cursor = RawCursor(tx.connection, row_factory=tuple_row)
    return cursor.execute(numbered.encode(), bindings)


@contextmanager
def _transaction(store: Store, *, writes: bool) -> Iterator[SqliteTransaction | PostgresTransaction]:
    """The transaction that is under way, or one of its own."""
    if isinstance(store, SqliteTransaction | PostgresTransaction):
        yield store
        return
    database = store.database if isinstance(store, Holdfast) else store
    with database.write() if writes else database.read() as tx:  # type: ignore[union-attr]
        if not isinstance(tx, SqliteTransaction | PostgresTransaction):
            raise TypeError(f"how raw SQL is put to a {type(tx).__name__} is not said in {__name__}.py")
        yield tx
