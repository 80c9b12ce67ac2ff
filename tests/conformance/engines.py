"""The engines that every conformance suite runs over, and how each of them is opened.

An engine that is named here and cannot start is an error of the test run, never a skip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from retain.ports import (
    AuditStore,
    DueStore,
    FactStore,
    History,
    HoldStore,
    JobStore,
    LeaseStore,
    PackStore,
    RecallFeed,
    RecordStore,
    RegistryStore,
    RuleStore,
    SchemaStore,
    ShortTermStore,
)
from retain.storage.sqlite.audit import SqliteAudit
from retain.storage.sqlite.conversations import SqliteHistory, SqliteShortTerm
from retain.storage.sqlite.database import Database
from retain.storage.sqlite.dues import SqliteDues
from retain.storage.sqlite.facts import SqliteFacts
from retain.storage.sqlite.holds import SqliteHolds
from retain.storage.sqlite.jobs import SqliteJobs, SqliteLeases
from retain.storage.sqlite.packs import SqlitePacks
from retain.storage.sqlite.records import SqliteFeed, SqliteRecords
from retain.storage.sqlite.registry import SqliteRegistry
from retain.storage.sqlite.rules import SqliteRules
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
    rules: RuleStore
    dues: DueStore
    holds: HoldStore
    packs: PackStore
    audit: AuditStore
    jobs: JobStore
    leases: LeaseStore
    registry: RegistryStore


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
            rules=SqliteRules(database),
            dues=SqliteDues(database),
            holds=SqliteHolds(database),
            packs=SqlitePacks(database),
            audit=SqliteAudit(database),
            jobs=SqliteJobs(database),
            leases=SqliteLeases(database),
            registry=SqliteRegistry(database),
        )
    finally:
        database.close()


#: Name: opens the engine on what is kept in a folder (or is named after it). Opened twice, both see the same data.
ENGINES: dict[str, Callable[[Path], AbstractContextManager[Engine]]] = {
    "sqlite": _sqlite,
}
