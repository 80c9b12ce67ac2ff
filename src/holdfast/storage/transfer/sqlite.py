"""Rows of the embedded engine: read as of one moment, and written into a store that is empty."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import apsw

from holdfast.core.errors import StorageError, StoreUnavailableError
from holdfast.core.records import COUNT_BITS, KIND_BITS
from holdfast.ports.backups import Row
from holdfast.storage.catalog import COPIED, COUNTERS, Backup, Table, table_of, tables_in
from holdfast.storage.relational.database import migrations
from holdfast.storage.sqlite.database import SqliteDatabase


class SqliteReader:
    """A ``TableReader`` of an SQLite file."""

    def __init__(self, connection: apsw.Connection, place: str) -> None:
        self._connection = connection
        self._place = place

    def count(self, table: str) -> int:
        return self._number(f"SELECT count(*) FROM {table_of(table).sqlite_source or table}")  # noqa: S608 - our own names

    def order(self, table: str) -> tuple[str, ...]:
        return table_of(table).sqlite_key

    def rows(self, table: str, after: Sequence[Any] | None = None) -> Iterator[Row]:
        found = table_of(table)
        columns = ", ".join(_column(found, name) for name in found.columns)
        order = ", ".join(_column(found, name) for name in found.sqlite_key)
        later = "" if after is None else f"WHERE ({order}) > ({', '.join('?' * len(after))})"
        statement = f"SELECT {columns} FROM {found.sqlite_source or table} {later} ORDER BY {order}"  # noqa: S608
        return self._with_subject(self._connection.execute(statement, tuple(after or ())), found)

    def heap(self, table: str) -> Iterator[Row]:
        return self.rows(table)  # mostly a scan of the table

    def owned(self, table: str, subjects: Sequence[int], codes: Sequence[int]) -> Iterator[Row]:
        found = table_of(table)
        columns = ", ".join(_column(found, name, qualified=True) for name in found.columns)
        wanted: Sequence[int] = subjects
        if table in {"records", "scopes"}:
            wanted = [subject << KIND_BITS | code for subject in subjects for code in codes]
        rows = self._connection.execute(_OWNED[table].format(columns=columns), (json.dumps(list(wanted)),))
        return self._with_subject(rows, found)

    def _with_subject(self, rows: Iterator[Row], table: Table) -> Iterator[Row]:
        """The rows. Where SQLite has to look up the subject of a row, it may find none: then the store is damaged."""
        return self._check_subjects(rows, table) if "subject" in table.sqlite else rows

    def _check_subjects(self, rows: Iterator[Row], table: Table) -> Iterator[Row]:
        for row in rows:
            subject, number, *_ = row
            if subject is None:
                raise StorageError(
                    f"{self._place} has a row of {table.name} that belongs to nobody (number {number}); "
                    "a sound store has none: restore a backup, and migrate that"
                )
            yield row

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
        ((number,),) = self._connection.execute(statement)
        return int(number)


class SqliteSource:
    """A store in a file. ``StoreUnavailableError`` if there is none."""

    def __init__(self, path: Path, *, busy_seconds: float) -> None:
        if not path.is_file():
            raise StoreUnavailableError(f"there is no store at {path}; name the one to copy with --from")
        self.place = str(path)
        self.database = SqliteDatabase(path, busy_seconds=busy_seconds)

    @contextmanager
    def read(self) -> Iterator[SqliteReader]:
        """The store as it is now."""
        with self.database.read() as tx:
            yield SqliteReader(tx.connection, self.place)

    def close(self) -> None:
        """Close the file."""
        self.database.close()


class SqliteWriter:
    """The ``RowWriter`` of an SQLite file that nothing was ever kept in."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def clear(self) -> None:
        for table in tables_in(Backup.COMMON):
            if not table.is_data:
                self._connection.execute(f"DELETE FROM {table.name}")  # noqa: S608 - our own names

    def used(self) -> list[str]:
        return [
            table.name
            for table in COPIED
            if table.is_data
            and table.is_in_sqlite
            and self._connection.execute(f"SELECT 1 FROM {table.name} LIMIT 1").fetchone()  # noqa: S608
        ]

    def add(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        found = table_of(table)
        kept = [place for place, name in enumerate(columns) if name not in found.sqlite]
        packed = [place for place in kept if found.columns[columns[place]] == "packed"]
        names = ", ".join(f'"{columns[place]}"' for place in kept)
        into = f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(kept))})"  # noqa: S608
        stored: Iterable[Sequence[Any]] = (_as_stored(row, packed) for row in rows) if packed else rows
        if len(kept) < len(columns):
            stored = ([row[place] for place in kept] for row in stored)
        self._connection.executemany(into, stored)

    def finish(self, counters: Mapping[str, int]) -> None:
        for counter in COUNTERS:
            last = counters.get(counter.table)
            if last:
                self._connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (counter.table,))
                self._connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (counter.table, last))


@contextmanager
def trial_store() -> Iterator[tuple[SqliteWriter, SqliteReader]]:
    """An empty store in a file that has no name, where the system allows that: it is gone when the process is."""
    with tempfile.TemporaryDirectory(prefix="holdfast-trial-") as folder:
        path = Path(folder) / "trial.db"
        with closing(apsw.Connection(str(path))) as connection:
            for pragma in ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", "temp_store=MEMORY"):
                connection.execute(f"PRAGMA {pragma}")
            for _, script in migrations("holdfast.storage.sqlite"):
                connection.execute(script)
            with suppress(OSError):
                path.unlink()
            connection.execute("BEGIN")
            yield SqliteWriter(connection), SqliteReader(connection, "a trial restore")


def _as_stored(row: Row, packed: Sequence[int]) -> list[Any]:
    """A canonical row as SQLite keeps it: text that is not compressed is text."""
    values = list(row)
    for place in packed:
        value = values[place]
        if value is not None and value[:1] == b"\0":
            values[place] = value[1:].decode()
    return values


def _column(table: Table, name: str, *, qualified: bool = False) -> str:
    """A column in its canonical form: text that may be compressed and is not comes as bytes, after a zero byte."""
    plain = table.sqlite.get(name, f'{table.name}."{name}"' if qualified else f'"{name}"')
    if table.columns[name] == "packed":
        return f"CASE typeof({plain}) WHEN 'text' THEN CAST(char(0) || {plain} AS BLOB) ELSE {plain} END"
    return plain


def _select_owned(of: str, order: str = "") -> str:
    by = f" ORDER BY wanted.key, {order}" if order else ""
    return f"SELECT {{columns}} FROM json_each(?) AS wanted CROSS JOIN {of}{by}"  # noqa: S608 - our own names


#: How the rows of subjects are found, in the order of the subjects and in the table's order for each of them. Runs of
#: keys are in order by themselves, and too large to be sorted.
_OWNED: Final = {
    "subjects": _select_owned("subjects ON subjects.no = wanted.value"),
    "scopes": _select_owned("scopes ON scopes.scope = wanted.value"),
    "records": _select_owned(
        f"records ON records.key BETWEEN wanted.value << {COUNT_BITS} AND (wanted.value + 1 << {COUNT_BITS}) - 1"
    ),
    "history": _select_owned(
        "sessions INDEXED BY sessions_of_subject ON sessions.subject = wanted.value "
        "CROSS JOIN history ON history.key BETWEEN sessions.no << 24 AND (sessions.no + 1 << 24) - 1"
    ),
    "derivations": _select_owned("derivations ON derivations.subject = wanted.value", "source_id, derivations.key"),
    "sessions": _select_owned("sessions ON sessions.subject = wanted.value", "sessions.no"),
    "facts": _select_owned("facts ON facts.subject = wanted.value", "facts.id"),
    "packs": _select_owned("packs ON packs.subject = wanted.value", "packs.no"),
    "totals": _select_owned("totals ON totals.subject = wanted.value", "kind, state, cause"),
    "audit": _select_owned("audit INDEXED BY audit_by_place ON audit.subject = wanted.value"),
}
