"""What a memory takes in the store before and after it is archived, in an index, and a replica.

``python -m bench.footprint``.

Memories of one user, all of about the same length, are added, and a year later one sweep archives them. What counts is
the table of records and that of the audit chain, each with its indexes, after a vacuum, less what they took while
they were empty. So a figure is of bytes that lie in the store, and is the same on every machine.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import apsw
import psutil
import psycopg
from psycopg import sql

from bench.servers import postgres
from bench.speed import sentences
from holdfast import Holdfast
from holdfast.lifecycle.sweeping.plan import Report
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.sqlite.database import SqliteDatabase

#: How many characters the memories have that are measured, and how many memories of each there are.
SIZES: Final = {115: 5_000, 20_000: 250}
#: What may be left of a memory of so many characters. Most of a short one is its vector, by which it can be found, and
#: which stays; so it only must not take more than before.
TARGETS: Final = {115: 1.0, 20_000: 0.1}
#: Of a memory: its row, and what the audit chain says of it.
TABLES: Final = ("records", "audit")


class Footprint(NamedTuple):
    """Bytes for each memory, by table with its indexes."""

    before: dict[str, float]
    after: dict[str, float]
    reported: tuple[float, float]
    """What the sweep's report says: before, and after."""

    @property
    def ratio(self) -> float:
        """What is left."""
        return sum(self.after.values()) / sum(self.before.values())


def texts(characters: int, count: int) -> list[str]:
    """Texts of so many characters, each of them different."""
    rnd = random.Random(characters)
    some = sentences(2_000, 7)
    made = []
    for number in range(count):
        text = f"{number}: {rnd.choice(some)}"
        while len(text) < characters:
            text += f". {rnd.choice(some)}"
        made.append(text[:characters].strip())
    return made


def measure(holdfast: Holdfast, advance: Callable[..., object], characters: int, count: int) -> Footprint:
    """Add so many memories to a store that is empty, archive them, and look at the store before and after.

    ``advance(days=…)`` moves the clock of the store ahead.
    """
    holdfast.quotas.set("long_term", max_memories=10 * count, max_bytes=None)
    memory = holdfast.manager("ann", "agent")
    empty = table_sizes(holdfast)
    contents = texts(characters, count)
    for start in range(0, count, 500):
        memory.add_many(contents[start : start + 500], "long_term")
    before = table_sizes(holdfast)
    advance(days=366)
    report = holdfast.sweep()
    assert isinstance(report, Report)
    assert report.counts["archive"] == count, report
    after = table_sizes(holdfast)
    was, left = ({name: (found[name] - empty[name]) / count for name in TABLES} for found in (before, after))
    return Footprint(was, left, (report.bytes_before / count, report.bytes_after / count))


def table_sizes(holdfast: Holdfast) -> dict[str, int]:
    """Bytes of each table with its indexes, as few as a vacuum leaves."""
    if isinstance(holdfast.database, SqliteDatabase):
        return _sqlite_sizes(holdfast.database)
    assert isinstance(holdfast.database, PostgresDatabase)
    return _postgres_sizes(holdfast.database, holdfast.settings.url)


def _sqlite_sizes(database: SqliteDatabase) -> dict[str, int]:
    connection = apsw.Connection(str(database.path))
    try:
        connection.execute("VACUUM")
        asked = "SELECT sum(pgsize) FROM dbstat JOIN sqlite_schema USING (name) WHERE tbl_name = ?"
        return {name: int(connection.execute(asked, (name,)).get) for name in TABLES}
    finally:
        connection.close()


def _postgres_sizes(database: PostgresDatabase, url: str) -> dict[str, int]:
    sizes = {}
    with psycopg.connect(url, autocommit=True) as connection:
        for name in TABLES:
            table = sql.Identifier(database.schema, name)
            connection.execute(sql.SQL("VACUUM FULL {}").format(table))
            asked = "SELECT pg_total_relation_size(%s::regclass)"
            (sizes[name],) = connection.execute(asked, (table.as_string(),)).fetchone() or (0,)
    return sizes


class _Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, days: int) -> None:
        self.now += timedelta(days=days)


def measure_all() -> dict[tuple[str, int], Footprint]:
    """By engine and length."""
    found = {}
    with postgres() as server:
        for engine in ("SQLite", "PostgreSQL"):
            for characters, count in SIZES.items():
                clock, url = _Clock(), server.new_database() if engine == "PostgreSQL" else None
                with tempfile.TemporaryDirectory() as home, Holdfast.open(url, home=home, clock=clock) as holdfast:
                    found[engine, characters] = measure(holdfast, clock.advance, characters, count)
    return found


def measure_index() -> dict[int, float]:
    """How many bytes the index of a user takes for each memory, by length."""
    found = {}
    for characters, count in SIZES.items():
        with tempfile.TemporaryDirectory() as home, Holdfast.open(home=home) as holdfast:
            memory = holdfast.manager("ann", "agent")
            memory.add_many(texts(characters, count), "long_term")
            memory.retrieve("where does the dog live")
            found[characters] = holdfast.recall.nbytes / count
    return found


#: A replica that recalls for so many users, with so many memories each, may hold so many MiB of indexes; and so much
#: more in all, for what is there once: pages of the database, words that were looked up, memory that is free and kept.
REPLICA_USERS, REPLICA_EACH, REPLICA_MIB, REPLICA_MORE = 200, 500, 64, 32


def measure_replica() -> float:
    """By how many MiB a process grows that recalls for many more users than its indexes have room for."""
    with tempfile.TemporaryDirectory() as home:
        with Holdfast.open(home=home) as holdfast:
            for user in range(REPLICA_USERS):
                holdfast.manager(f"user {user}", "agent").add_many(texts(115, REPLICA_EACH), "long_term")
        command = [sys.executable, "-m", "bench.footprint", home]
        environment = {**os.environ, "HOLDFAST_INDEX_MIB": str(REPLICA_MIB)}
        return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def recall_for_many(home: str) -> None:
    """The replica: prints by how much it grew after the first recall."""
    process = psutil.Process()
    with Holdfast.open(home=home) as holdfast:
        for user in range(REPLICA_USERS):
            holdfast.manager(f"user {user}", "agent").retrieve("where does the dog live")
            if user == 0:
                before = process.memory_info().rss
        print((process.memory_info().rss - before) / 2**20)


if __name__ == "__main__" and len(sys.argv) > 1:
    recall_for_many(sys.argv[1])
elif __name__ == "__main__":
    grown, most = measure_replica(), REPLICA_MIB + REPLICA_MORE
    shown = "met" if grown <= most else "MISSED"
    print(f"a replica with {REPLICA_MIB} MiB for indexes grows by {grown:.0f} MiB; target {most}: {shown}")
    for length, size in measure_index().items():
        print(f"an index takes {size:,.0f} bytes for each memory of {length:,} characters")
    for (name, length), one in measure_all().items():
        parts = ", ".join(f"{table} {one.before[table]:,.0f} → {one.after[table]:,.0f}" for table in TABLES)
        print(f"{name}, {length:,} characters: {one.ratio:.3f} × what it was ({parts} bytes); target {TARGETS[length]}")
