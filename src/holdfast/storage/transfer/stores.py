"""Stores to read from and to write into, those of URLs and those that are open; and rows of the embedded engine, read
as of one moment, and written into a store that is empty.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import apsw

from holdfast.core.errors import InvalidSettingsError, StorageError, StoreUnavailableError, quote
from holdfast.core.records import COUNT_BITS, KIND_BITS
from holdfast.core.values import to_json
from holdfast.installation import missing_extra
from holdfast.ports.backups import Adopt, Origin, Row, RowMerger, RowReader, RowWriter
from holdfast.ports.objects import ObjectStore
from holdfast.ports.records import KeptText
from holdfast.settings import Settings, mask_password, sqlite_path
from holdfast.storage.catalog import COPIED, COUNTERS, Backup, Table, table_of, tables_in
from holdfast.storage.relational.attachments import adopt_texts
from holdfast.storage.relational.database import Database, Transaction, migrations
from holdfast.storage.relational.subjects import AliasRow
from holdfast.storage.sqlite.database import SqliteDatabase
from holdfast.storage.sqlite.transactions import SqliteTransaction
from holdfast.storage.transfer.restore import SqlMerger, forget_holds


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
    "versions": _select_owned("versions ON versions.subject = wanted.value", "versions.key, versions.version"),
    "sessions": _select_owned("sessions ON sessions.subject = wanted.value", "sessions.no"),
    "facts": _select_owned("facts ON facts.subject = wanted.value", "facts.id"),
    "kept_out": _select_owned("kept_out ON kept_out.subject = wanted.value", "kept_out.print"),
    "packs": _select_owned("packs ON packs.subject = wanted.value", "packs.no"),
    "totals": _select_owned("totals ON totals.subject = wanted.value", "kind, state, cause"),
    "audit": _select_owned("audit INDEXED BY audit_by_place ON audit.subject = wanted.value"),
}


if TYPE_CHECKING:
    from holdfast.storage.transfer.postgres import PostgresSource, PostgresTarget

_SERVERS: Final = {"postgresql", "postgres"}


def open_source(url: str, settings: Settings, called: str = "HOLDFAST_URL") -> SqliteSource | PostgresSource:
    """The store that a URL names, which must be there; ``called`` is the option or setting that the URL is from."""
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        return SqliteSource(sqlite_path(url), busy_seconds=settings.busy_seconds)
    if scheme not in _SERVERS:
        raise InvalidSettingsError(
            f"the store to copy, {quote(mask_password(url))}, is not understood; write it as "
            "sqlite:///path/to/holdfast.db or postgresql://user:password@host:5432/database"
        )
    options = {"busy_seconds": settings.busy_seconds, "prepare": settings.prepare, "called": called}
    source: PostgresSource = _server().PostgresSource(url, **options)
    return source


def check_target(source: str, url: str) -> str | None:
    """Look, changing nothing, whether a store can be copied to a URL; the source of a copy begun there, if any."""
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        raise InvalidSettingsError(
            "a store is copied into PostgreSQL, not into SQLite; one that is a file can be copied as a file, "
            "while nobody uses it"
        )
    if scheme not in _SERVERS:
        raise InvalidSettingsError(
            f"the target {quote(mask_password(url))} is not understood; write it as "
            "postgresql://user:password@host:5432/database"
        )
    if source == url:
        raise InvalidSettingsError("the source and the target are the same; name another database with --to")
    begun: str | None = _server().check_free(url)
    return begun


def open_target(url: str, settings: Settings) -> PostgresTarget:
    """The database that a URL names, ready to be copied into. Call ``check_target`` first."""
    options = {"busy_seconds": settings.busy_seconds, "distribute": settings.distribute}
    target: PostgresTarget = _server().PostgresTarget(url, **options)
    return target


def schema_versions() -> tuple[int, int]:
    """The numbers of the last migrations that this version knows, of SQLite and of PostgreSQL."""
    sqlite, postgres = (migrations(f"holdfast.storage.{engine}")[-1].number for engine in ("sqlite", "postgres"))
    return sqlite, postgres


def count_rows(reader: RowReader) -> dict[str, int]:
    """How many rows each table has."""
    return {table.name: reader.count(table.name) for table in COPIED}


class DatabaseRows:
    """The ``RowStore`` of an open database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def engine(self) -> str:
        return self._database.engine

    @property
    def schema(self) -> tuple[int, int]:
        return schema_versions()

    @contextmanager
    def read(self) -> Iterator[RowReader]:
        if isinstance(self._database, SqliteDatabase):
            with self._database.read() as tx:
                yield SqliteReader(tx.connection, "the store")
        else:
            with _server().read_patiently(self._database) as reader:
                yield reader

    @contextmanager
    def fill(self) -> Iterator[tuple[RowWriter, Adopt, Callable[[], None]]]:
        with self._database.alone("restoring") as tx:
            writer = SqliteWriter(tx.connection) if isinstance(tx, SqliteTransaction) else _server().fill_alone(tx)
            yield writer, partial(_adopt, tx), partial(forget_holds, tx)

    def trial(self) -> AbstractContextManager[tuple[RowWriter, RowReader]]:
        return trial_store()

    def merge(
        self,
        origin: Origin,
        *,
        is_erased: Callable[[str], bool],
        cold: Callable[[], ObjectStore],
        now: int,
        kept_out: Mapping[str, Sequence[KeptText]],
    ) -> RowMerger:
        return SqlMerger(self._database, origin, is_erased=is_erased, cold=cold, now=now, kept_out=kept_out)


def _adopt(tx: Transaction, alias: str, texts: Sequence[KeptText], now: int) -> int:
    """Keep texts of a pseudonym out of a store that is being filled; how many memories went to the recycle bin."""
    found = tx.all(AliasRow, "subjects.with_alias", (to_json([alias]),))
    return sum(adopt_texts(tx, one.subject, tx.number_of(one.subject) or 0, texts, now=now) for one in found)


def _server() -> ModuleType:
    """The module that reads and writes PostgreSQL."""
    try:
        from holdfast.storage.transfer import postgres  # noqa: PLC0415 - the extra may not be installed
    except ImportError as problem:
        raise missing_extra("PostgreSQL", "postgres") from problem
    return postgres
