"""Copying from the embedded engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from retain.core.errors import StorageError, StoreUnavailableError
from retain.storage.copying.tables import COUNTERS, Table
from retain.storage.relational.database import Row
from retain.storage.sqlite.database import Database


class SqliteView:
    """A ``View`` of an SQLite file."""

    def __init__(self, connection: apsw.Connection, place: str) -> None:
        self._connection = connection
        self._place = place

    def count(self, table: Table) -> int:
        return self._number(f"SELECT count(*) FROM {table.sqlite_source or table.name}")  # noqa: S608 - our own names

    def order(self, table: Table) -> tuple[str, ...]:
        return table.sqlite_order

    def rows(self, table: Table, after: Sequence[Any] | None = None) -> Iterator[Row]:
        columns = ", ".join(_column(table, name) for name in table.columns)
        order = ", ".join(_column(table, name) for name in table.sqlite_order)
        later = "" if after is None else f"WHERE ({order}) > ({', '.join('?' * len(after))})"
        statement = f"SELECT {columns} FROM {table.sqlite_source or table.name} {later} ORDER BY {order}"  # noqa: S608
        found = self._connection.execute(statement, tuple(after or ()))
        return self._canonical(found, table)

    def heap(self, table: Table) -> Iterator[Row]:
        return self.rows(table)  # a scan of the table, as a rule

    def _canonical(self, rows: Iterator[Row], table: Table) -> Iterator[Row]:
        packed = [place for place, kind in enumerate(table.columns.values()) if kind == "packed"]
        if not packed:
            yield from rows
            return
        for row in rows:
            if row[0] is None:
                raise StorageError(
                    f"{self._place} has a row of {table.name} that belongs to nobody (number {row[1]}); "
                    "a sound store has none: restore a backup, and migrate that"
                )
            values = list(row)
            for place in packed:
                if isinstance(values[place], str):
                    values[place] = b"\0" + values[place].encode()
            yield tuple(values)

    def counters(self) -> dict[str, int]:
        given = dict(self._connection.execute("SELECT name, seq FROM sqlite_sequence"))
        return {
            counter.table: int(given[counter.table])
            if counter.table in given
            else self._number(
                f"SELECT ifnull(max({'rowid' if counter.column == 'place' else counter.column}), 0) "  # noqa: S608
                f"FROM {counter.table}"
            )
            for counter in COUNTERS
        }

    def _number(self, statement: str) -> int:
        (row,) = self._connection.execute(statement)
        return int(row[0])


class SqliteSource:
    """A store in a file. ``StoreUnavailableError`` if there is none."""

    def __init__(self, path: Path, *, busy_seconds: float) -> None:
        if not path.is_file():
            raise StoreUnavailableError(f"there is no store at {path}; name the one to copy with --from")
        self.place = str(path)
        self.database = Database(path, busy_seconds=busy_seconds)

    @contextmanager
    def view(self) -> Iterator[SqliteView]:
        """The store as it is now."""
        with self.database.read() as tx:
            yield SqliteView(tx.connection, self.place)

    def close(self) -> None:
        """Close the file."""
        self.database.close()


def _column(table: Table, name: str) -> str:
    return table.sqlite.get(name, f'"{name}"')
