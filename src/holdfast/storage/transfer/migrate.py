"""Copying a store into another database: all rows as of one moment, then a comparison; only then it can be opened."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from holdfast.core.audit import Finding
from holdfast.core.errors import InvalidInputError, StaleError, StorageError
from holdfast.ports.backups import Row, RowReader
from holdfast.storage.catalog import COPIED
from holdfast.storage.relational.audit import SqlAudit
from holdfast.storage.relational.database import Database
from holdfast.storage.transfer.postgres import Begun, Mark, PostgresSource, PostgresTarget, Sum
from holdfast.storage.transfer.stores import SqliteSource, count_rows, schema_versions

#: Rows that are committed together: what a kill costs at most.
BATCH: Final = 20_000
_STRIDE: Final = 1_000
_MOST_FINDINGS: Final = 100
Advance = Callable[[int], None]
#: Shows the progress of a step with so many parts; it gives a function to call with each number of parts done.
Show = Callable[[str, int], AbstractContextManager[Advance]]


class TableReader(RowReader, Protocol):
    """A store as it was at one moment, read in parts that can be continued."""

    def order(self, table: str, /) -> tuple[str, ...]:
        """The columns by which ``rows`` is in order."""

    def rows(self, table: str, after: Sequence[Any] | None = None, /) -> Iterator[Row]:
        """The rows of a table, in order; those after a key, if one is given."""

    def heap(self, table: str, /) -> Iterator[Row]:
        """All rows, in whatever order is the cheapest."""


class Survey(NamedTuple):
    """What is known of a store before it is copied."""

    counts: dict[str, int]
    counters: dict[str, int]
    state: str
    """Another one, if anything in the store is another."""

    @property
    def rows(self) -> int:
        """How many rows there are in all."""
        return sum(self.counts.values())


def survey(reader: TableReader) -> Survey:
    """Count the rows of a store, and compute the state that it is in."""
    counts, counters = count_rows(reader), reader.counters()
    known: list[object] = [counts, counters, list(schema_versions())]
    for table in COPIED:
        if table.shows_change:
            total = Sum()
            for row in reader.heap(table.name):
                total.add(row)
            known.append([table.name, total.hex])
    return Survey(counts, counters, blake2b(json.dumps(known).encode(), digest_size=16).hexdigest())


@dataclass(frozen=True, slots=True)
class Transferred:
    """A copy that is finished and the same as its source."""

    counts: dict[str, int]
    begun: Begun
    copied: int
    """How many rows this run copied: fewer than all, if an earlier one was cut short."""
    seconds: float
    """How long that took, without the comparison."""
    findings: tuple[Finding, ...]
    """What is wrong with the audit chain; a copy has what its source has."""


def transfer(
    source: SqliteSource | PostgresSource, target: PostgresTarget, show: Show, *, batch: int = BATCH
) -> Transferred:
    """Copy a store. Whatever ends it, the same call goes on from there.

    ``ConflictError`` if the target holds anything else, ``StaleError`` if the source was written meanwhile,
    ``StorageError`` if the copy is not the same. Until it returns, nobody can open the target.
    """
    if source.place == target.place:
        raise InvalidInputError(f"{source.place} is both the source and the target; name another database with --to")
    with source.read() as reader:
        found = survey(reader)
        begun = target.begin(source.place, found.state)
        began = time.perf_counter()
        with show("copying", found.rows) as advance:
            marks = copy_rows(reader, target, begun.marks, advance, batch=batch)
        seconds = time.perf_counter() - began
    with show("comparing", found.rows) as advance:
        compare_rows(found, marks, target, advance)
    findings = _audit(source.database, target.database, found.counts["audit"], show)
    _check_unchanged(source, target, found)
    target.finish(found.counters)
    before = sum(mark.rows for mark in begun.marks.values())
    return Transferred(found.counts, begun, found.rows - before, seconds, findings)


def copy_rows(
    reader: TableReader, target: PostgresTarget, marks: dict[str, Mark], advance: Advance, *, batch: int = BATCH
) -> dict[str, Mark]:
    """Copy what the marks say is missing; where they are then."""
    reached = {}
    for table in COPIED:
        mark = marks.get(table.name, Mark())
        advance(mark.rows)
        if not mark.done:
            rows = reader.rows(table.name, mark.after)
            while not mark.done:
                moved = target.add(table, mark, islice(rows, batch), reader.order(table.name))
                advance(moved.rows - mark.rows)
                mark = moved
        reached[table.name] = mark
    return reached


def compare_rows(found: Survey, marks: dict[str, Mark], target: PostgresTarget, advance: Advance) -> None:
    """Read back everything and compare it with what the source gave. ``StorageError`` if anything is not the same."""
    problems = []
    with target.read() as reader:
        for table in COPIED:
            here, gave = Sum(), marks[table.name].sum
            for row in reader.heap(table.name):
                here.add(row)
                if here.rows % _STRIDE == 0:
                    advance(_STRIDE)
            advance(here.rows % _STRIDE)
            if not here.rows == gave.rows == found.counts[table.name]:
                problems.append(f"{table.name} has {here.rows:,} rows instead of {found.counts[table.name]:,}")
            elif here.total != gave.total:
                problems.append(f"{table.name} has other rows than the source")
    if problems:
        target.discard()
        raise StorageError(
            f"the copy in {target.place} is not the same: {'; '.join(problems)}; it was not made usable. "
            "See that nobody else writes there and run the command again: it starts from the beginning"
        )


def _check_unchanged(source: SqliteSource | PostgresSource, target: PostgresTarget, found: Survey) -> None:
    """``StaleError`` if the source is not what it was when it was copied."""
    with source.read() as reader:
        state = survey(reader).state
    if state != found.state:
        raise StaleError(
            f"{source.place} was written while it was copied, so the copy in {target.place} was not made usable; stop "
            "whatever uses the store (agents, schedules) and run the command again: it starts from the beginning"
        )


def _audit(source: Database, target: Database, entries: int, show: Show) -> tuple[Finding, ...]:
    """What is wrong with the audit chain on either side. The source may know more: it may count what was written."""
    found: dict[Finding, None] = {}
    for what, database in (("verifying the audit chain of the source", source), ("and of the copy", target)):
        with show(what, entries) as advance:
            found |= dict.fromkeys(islice(SqlAudit(database).verify(advance), _MOST_FINDINGS))
    return tuple(found)
