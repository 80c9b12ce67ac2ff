"""The engines that every conformance suite runs over, and how each of them is opened.

An engine that is named here and cannot start is an error of the test run, never a skip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path

from databases import postgres_server
from holdfast.ports.stores import Stores
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.sqlite.database import SqliteDatabase
from holdfast.storage.stores import stores_over

__all__ = ["ENGINES", "Engine", "postgres_server", "postgres_url"]

Engine = Stores


@contextmanager
def _sqlite(folder: Path) -> Iterator[Engine]:
    database = SqliteDatabase(folder / "holdfast.db")
    try:
        yield stores_over(database)
    finally:
        database.close()


@cache
def postgres_url(folder: Path) -> str:
    """The URL of the database that goes with a folder."""
    del folder
    return postgres_server().new_database()


@contextmanager
def _postgres(folder: Path) -> Iterator[Engine]:
    database = PostgresDatabase(postgres_url(folder), pool_size=4)
    try:
        yield stores_over(database)
    finally:
        database.close()


#: Name: opens the engine on what is kept in a folder (or is named after it). Opened twice, both see the same data.
ENGINES: dict[str, Callable[[Path], AbstractContextManager[Engine]]] = {"sqlite": _sqlite, "postgres": _postgres}
