"""The engines that every conformance suite runs over, and how each of them is opened.

An engine that is named here and cannot start is an error of the test run, never a skip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from retain.ports import FactStore, History, RecallFeed, RecordStore, SchemaStore, ShortTermStore
from retain.storage.sqlite.conversations import SqliteHistory, SqliteShortTerm
from retain.storage.sqlite.database import Database
from retain.storage.sqlite.facts import SqliteFacts
from retain.storage.sqlite.records import SqliteFeed, SqliteRecords
from retain.storage.sqlite.schemas import SqliteSchemas


@dataclass(frozen=True)
class Engine:
    """One engine's ports, opened on one place."""

    records: RecordStore
    feed: RecallFeed
    history: History
    short_term: ShortTermStore
    facts: FactStore
    schemas: SchemaStore


@contextmanager
def _sqlite(folder: Path) -> Iterator[Engine]:
    database = Database(folder / "retain.db")
    try:
        yield Engine(
            records=SqliteRecords(database),
            feed=SqliteFeed(database),
            history=SqliteHistory(database),
            short_term=SqliteShortTerm(database),
            facts=SqliteFacts(database),
            schemas=SqliteSchemas(database),
        )
    finally:
        database.close()


#: Name: opens the engine on what is kept in a folder (or is named after it). Opened twice, both see the same data.
ENGINES: dict[str, Callable[[Path], AbstractContextManager[Engine]]] = {
    "sqlite": _sqlite,
}
