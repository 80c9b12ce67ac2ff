"""SQL past every port: what a test wants to see of a store, or to break in it, behind the product's back.

Statements have ``?`` for what is bound, and keep to what every engine understands wherever the test is not about one
engine alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from retain import Retain
from retain.storage.relational.database import Database
from retain.storage.sqlite.database import Database as SqliteDatabase
from retain.storage.sqlite.database import SqliteTransaction

#: An engine, its database, or a transaction of that which is under way.
Store = Retain | Database | SqliteTransaction


def rows(store: Store, statement: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """All rows of a statement that only looks."""
    with _transaction(store, writes=False) as tx:
        return tx.connection.execute(statement, bindings).fetchall()


def run(store: Store, statement: str, bindings: Sequence[Any] = ()) -> int:
    """Carry out a statement that changes rows; how many it changed."""
    with _transaction(store, writes=True) as tx:
        tx.connection.execute(statement, bindings)
        return tx.connection.changes()


def sqlite(retain: Retain) -> SqliteDatabase:
    """The database of an engine that keeps everything in a file, for what is SQLite's alone."""
    assert isinstance(retain.database, SqliteDatabase)
    return retain.database


@contextmanager
def _transaction(store: Store, *, writes: bool) -> Iterator[SqliteTransaction]:
    """The transaction that is under way, or one of its own."""
    if isinstance(store, SqliteTransaction):
        yield store
        return
    database = store.database if isinstance(store, Retain) else store
    with database.write() if writes else database.read() as tx:
        if not isinstance(tx, SqliteTransaction):
            raise TypeError(f"how raw SQL is put to a {type(tx).__name__} is not said in {__name__}.py")
        yield tx
