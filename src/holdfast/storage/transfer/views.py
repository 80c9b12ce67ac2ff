"""What is copied from, and what a copy is compared with: one consistent view of a store, in canonical rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from holdfast.storage.catalog import COPIED, Table
from holdfast.storage.relational.database import Database, Row, migrations
from holdfast.storage.transfer.checksums import Sum


class View(Protocol):
    """A store as it was at one moment."""

    def count(self, table: Table, /) -> int:
        """How many rows a table has."""

    def order(self, table: Table, /) -> tuple[str, ...]:
        """The columns by which ``rows`` is in order."""

    def rows(self, table: Table, after: Sequence[Any] | None = None, /) -> Iterator[Row]:
        """The canonical rows of a table, in order, as they come; those after a place in that order, if one is given."""

    def heap(self, table: Table, /) -> Iterator[Row]:
        """All of them, in whatever order is the cheapest."""

    def owned(self, table: Table, subjects: Sequence[int], codes: Sequence[int], /) -> Iterator[Row]:
        """The canonical rows that belong to subjects, one subject after the other and in the table's order for each;
        of scopes and records, those of the kinds that have these codes.
        """

    def counters(self) -> dict[str, int]:
        """For each table of ``COUNTERS``: the largest number that was ever given."""


class Fill(Protocol):
    """A database that nothing was ever kept in, to be filled within one transaction."""

    def used(self) -> list[str]:
        """The tables that have something that a store has not when it was opened first."""

    def clear(self) -> None:
        """Remove what every store has from the start."""

    def add(self, table: Table, columns: Sequence[str], rows: Sequence[Row], /) -> None:
        """Write canonical rows, of which these columns are given."""

    def finish(self, counters: Mapping[str, int], /) -> None:
        """Go on numbering after what was ever given."""


class Source(Protocol):
    """A store to copy."""

    @property
    def place(self) -> str:
        """Which one it is, as it may be shown."""

    @property
    def database(self) -> Database:
        """Where the stores find everything."""

    def view(self) -> AbstractContextManager[View]:
        """A consistent view, for as long as the block lasts."""


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


def count_rows(view: View) -> dict[str, int]:
    """How many rows each table has."""
    return {table.name: view.count(table) for table in COPIED}


def survey(view: View) -> Survey:
    """Count what is there, and tell the state that it is in."""
    counts, counters = count_rows(view), view.counters()
    known: list[object] = [counts, counters, list(versions())]
    for table in COPIED:
        if table.shows_change:
            told = Sum()
            for row in view.heap(table):
                told.add(row)
            known.append([table.name, told.hex])
    return Survey(counts, counters, blake2b(json.dumps(known).encode(), digest_size=16).hexdigest())


def versions() -> tuple[int, int]:
    """The schemas that this version of Holdfast knows, of SQLite and PostgreSQL: their last migrations."""
    sqlite, postgres = (migrations(f"holdfast.storage.{engine}")[-1][0] for engine in ("sqlite", "postgres"))
    return sqlite, postgres
