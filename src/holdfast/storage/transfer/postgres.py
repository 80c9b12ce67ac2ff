"""Rows of PostgreSQL: read as of one moment, written into a store that is empty, or copied into one step by step."""

from __future__ import annotations

import json
import marshal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from holdfast.core.errors import ConflictError, StoreBusyError
from holdfast.core.records import COUNT_BITS, KIND_BITS
from holdfast.ports.backups import Row
from holdfast.storage.catalog import COPIED, COPYING, COUNTERS, TABLES, Backup, Counter, Table, table_of, tables_in
from holdfast.storage.postgres.database import PostgresDatabase, with_defaults
from holdfast.storage.postgres.errors import check_url, place_of, schema_of, translate_error
from holdfast.storage.postgres.transactions import Connection, PostgresTransaction

_SIZE: Final = 32
_LIMIT: Final = 1 << 8 * _SIZE
#: The form of ``marshal`` in which equal rows are equal bytes, whatever else refers to their parts.
_FORMAT: Final = 2


@dataclass(slots=True)
class Sum:
    """How many rows there were, and the sum of their hashes, which does not depend on their order.

    It finds accidents. It is no proof against someone who may choose the rows; the audit chain is.
    """

    rows: int = 0
    total: int = 0

    def add(self, row: Row) -> None:
        """Count a row, in its canonical form."""
        digest = blake2b(marshal.dumps(row, _FORMAT), digest_size=_SIZE).digest()
        self.rows += 1
        self.total = (self.total + int.from_bytes(digest)) % _LIMIT

    @property
    def hex(self) -> str:
        """The sum as text."""
        return f"{self.total:0{2 * _SIZE}x}"


_TYPES: Final = {"int": "int8", "text": "text", "bytes": "bytea", "packed": "bytea", "flag": "bool"}
_SOURCE: Final = "source"
#: The option that names where a store is copied to.
_TARGET: Final = "--to"
_SET: Final = sql.SQL(
    "SELECT setval({}::regclass, last) FROM (SELECT greatest(max({}), {}) FROM {}) AS given (last) WHERE last > 0"
)


class Mark(NamedTuple):
    """How far the copy of a table has come."""

    after: list[Any] | None = None
    """The key of the last row, in the order of the source."""
    rows: int = 0
    total: str = "0"
    """The sum of the rows that the source gave."""
    done: bool = False

    @property
    def sum(self) -> Sum:
        """What the source gave so far."""
        return Sum(self.rows, int(self.total, 16))


class Begun(NamedTuple):
    """A copy that has begun, or is continued."""

    marks: dict[str, Mark]
    is_resumed: bool
    is_anew: bool
    """Whether an earlier part was removed, because the source has changed since."""


class PostgresReader:
    """A ``TableReader`` of a PostgreSQL database."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def count(self, table: str) -> int:
        return self._number(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table)))

    def order(self, table: str) -> tuple[str, ...]:
        return table_of(table).key

    def rows(self, table: str, after: Sequence[Any] | None = None) -> Iterator[Row]:
        key = _join_names(table_of(table).key)
        order = sql.SQL("ORDER BY {}").format(key)
        if after is not None:
            values = sql.SQL(", ").join(map(sql.Literal, after))
            order = sql.SQL("WHERE ({}) > ({}) ").format(key, values) + order
        return self._read(table_of(table), order)

    def heap(self, table: str) -> Iterator[Row]:
        return self._read(table_of(table), sql.SQL(""))

    def owned(self, table: str, subjects: Sequence[int], codes: Sequence[int]) -> Iterator[Row]:
        found = table_of(table)
        by = "no" if table == "subjects" else "subject"
        wanted = list(subjects)
        if table in {"records", "scopes"}:
            wanted = [subject << KIND_BITS | code for subject in subjects for code in codes]
            of_scope = f"key BETWEEN wanted << {COUNT_BITS} AND (wanted + 1 << {COUNT_BITS}) - 1"
            within = "scope = wanted" if table == "scopes" else of_scope
            same = f"{table}.{by} = wanted >> {KIND_BITS} AND {within}"
            where = f"JOIN unnest({{}}::int8[]) AS wanted ON {same} ORDER BY {{}}"
        else:
            where = f"WHERE {by} = ANY({{}}::int8[]) ORDER BY {{}}"
        return self._read(found, sql.SQL(where).format(sql.Literal(wanted), _join_names(found.key)))

    def _read(self, table: Table, rest: sql.Composable) -> Iterator[Row]:
        columns = sql.SQL(", ").join(
            sql.SQL("{}::int::int8" if kind == "flag" else "{}").format(sql.Identifier(table.name, name))
            for name, kind in table.columns.items()
        )
        statement = sql.SQL("COPY (SELECT {} FROM {} {}) TO STDOUT (FORMAT binary)").format(
            columns, sql.Identifier(table.name), rest
        )
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(["int8" if kind == "flag" else _TYPES[kind] for kind in table.columns.values()])
            yield from copy.rows()

    def counters(self) -> dict[str, int]:
        return {
            counter.table: self._number(
                sql.SQL("SELECT coalesce(pg_sequence_last_value({}::regclass), 0)").format(_sequence(counter))
            )
            for counter in COUNTERS
        }

    def _number(self, statement: sql.Composed) -> int:
        (number,) = self._connection.execute(statement).fetchone() or (0,)
        return int(number)


class PostgresSource:
    """A store in a PostgreSQL database, opened with options of ``PostgresDatabase``."""

    def __init__(self, url: str, **options: Any) -> None:
        self.database = PostgresDatabase(url, pool_size=2, **options)
        self.place = f"{self.database.place}, schema {self.database.schema}"

    def read(self) -> AbstractContextManager[PostgresReader]:
        """The store as it is now."""
        return read_patiently(self.database)

    def close(self) -> None:
        """Close every connection."""
        self.database.close()


class PostgresTarget(PostgresSource):
    """A database that becomes a copy. What is copied, and how far that has come, is committed together."""

    def __init__(self, url: str, **options: Any) -> None:
        check_free(url)
        super().__init__(url, copying=True, called=_TARGET, **options)

    def begin(self, source: str, state: str) -> Begun:
        """Begin the copy of a source in a state, or go on with it. ``ConflictError`` if anything else is here.

        A part of the same source in another state is removed: nobody has ever used it.
        """
        with self.database.alone(COPYING) as tx:
            _run(tx, f'CREATE TABLE IF NOT EXISTS {COPYING} (name text COLLATE "C" PRIMARY KEY, said text NOT NULL)')
            said = dict(tx.connection.execute(f"SELECT name, said FROM {COPYING}".encode()).fetchall())  # noqa: S608
            found = json.loads(said.pop(_SOURCE, "null"))
            if found is not None and found["state"] == state:
                return Begun({name: Mark(**json.loads(one)) for name, one in said.items()}, True, False)
            if found is not None and found["place"] != source:
                raise ConflictError(
                    f"{self.place} holds an unfinished copy of {found['place']}; finish that, or drop its schema; "
                    "nothing was changed"
                )
            if found is None and (used := _find_used(tx.connection)):
                raise _in_use_error(self.place, used)
            everything = ", ".join([*(table.name for table in TABLES if table.name != "schema_version"), COPYING])
            _run(tx, f"TRUNCATE {everything}")
            self._note(tx, _SOURCE, {"place": source, "state": state})
            return Begun({}, False, found is not None)

    def add(self, table: Table, mark: Mark, rows: Iterable[Row], order: Sequence[str]) -> Mark:
        """Write rows, which come next after a mark, and move the mark; if there are none, the table is copied whole."""
        places = [list(table.columns).index(name) for name in order]
        counted, last = mark.sum, mark.after

        def count() -> Iterator[Row]:
            nonlocal last
            row: Row | None = None
            for row in rows:
                counted.add(row)
                yield row
            last = last if row is None else [row[place] for place in places]

        with self.database.alone(COPYING) as tx:
            _run(tx, "SET LOCAL synchronous_commit = off")  # the mark and the rows are lost together, if they are
            self._check(tx, table, mark)
            _copy_in(tx.connection, table, list(table.columns), count())
            moved = Mark(last, counted.rows, counted.hex, done=counted.rows == mark.rows)
            self._note(tx, table.name, moved._asdict())
        return moved

    def discard(self) -> None:
        """Note that what is here is not what the source gave, so that the next copy starts again."""
        with self.database.alone(COPYING) as tx:
            self._note(tx, _SOURCE, _read_note(tx.connection, _SOURCE) | {"state": ""})

    def finish(self, counters: Mapping[str, int]) -> None:
        """Go on numbering where the source stopped, and let everyone use the store."""
        with self.database.alone(COPYING) as tx:  # by itself: Citus refuses it after a statement that one node answered
            _run(tx, f"ANALYZE {', '.join(table.name for table in COPIED)}")
        with self.database.alone(COPYING) as tx:
            _set_counters(tx.connection, counters)
            _run(tx, f"DROP TABLE {COPYING}")

    def _check(self, tx: PostgresTransaction, table: Table, mark: Mark) -> None:
        """Refuse to go on from a mark that another process has moved."""
        if Mark(**_read_note(tx.connection, table.name)) != mark:
            raise StoreBusyError(f"another process is copying into {self.place}; wait for it, or end it and try again")

    @staticmethod
    def _note(tx: PostgresTransaction, name: str, value: object) -> None:
        tx.connection.execute(
            f"INSERT INTO {COPYING} (name, said) VALUES (%s, %s) "  # noqa: S608
            "ON CONFLICT (name) DO UPDATE SET said = excluded.said".encode(),
            (name, json.dumps(value)),
        )


def fill_alone(tx: PostgresTransaction) -> PostgresWriter:
    """A database that nobody else can look into until the transaction ends."""
    _run(tx, "SET LOCAL idle_in_transaction_session_timeout = 0")
    _run(tx, "LOCK TABLE subjects, subject_locks IN ACCESS EXCLUSIVE MODE")
    return PostgresWriter(tx.connection)


class PostgresWriter:
    """The ``RowWriter`` of a PostgreSQL database that nothing was ever kept in."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def clear(self) -> None:
        for table in tables_in(Backup.COMMON):
            if not table.is_data:
                self._connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table.name)))

    def used(self) -> list[str]:
        return [name for name in _find_used(self._connection) if name != "subject_locks"]

    def add(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        _copy_in(self._connection, table_of(table), columns, rows)

    def finish(self, counters: Mapping[str, int]) -> None:
        self._connection.execute(
            "INSERT INTO subject_locks (subject) SELECT no FROM subjects UNION SELECT subject FROM chains "
            "ON CONFLICT DO NOTHING"
        )
        _set_counters(self._connection, counters)


def _set_counters(connection: Connection, counters: Mapping[str, int]) -> None:
    """Number new rows after the largest numbers that were ever given."""
    for counter in COUNTERS:
        last, table = counters.get(counter.table, 0), sql.Identifier(counter.table)
        statement = _SET.format(_sequence(counter), sql.Identifier(counter.column), sql.Literal(last), table)
        connection.execute(statement)


def _copy_in(connection: Connection, table: Table, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Write canonical rows, of which these columns are given."""
    types = [table.columns[name] for name in columns]
    flags = [place for place, kind in enumerate(types) if kind == "flag"]
    into = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(sql.Identifier(table.name), _join_names(columns))
    with connection.cursor() as cursor, cursor.copy(into) as copy:
        copy.set_types([_TYPES[kind] for kind in types])
        for row in rows:
            copy.write_row(_with_flags(row, flags) if flags else row)


def check_free(url: str) -> str | None:
    """Look, changing nothing, whether a database can take a copy; the source of the copy that was begun there, if any.

    ``ConflictError`` if it is a store that has been used.
    """
    parts = check_url(url)
    conninfo = make_conninfo("", **with_defaults(parts))
    place, schema = place_of(conninfo), schema_of(parts)
    try:
        with closing(psycopg.connect(conninfo, autocommit=True)) as connection:
            connection.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(schema)))
            if _is_there(connection, COPYING):
                return str(_read_note(connection, _SOURCE).get("place", "?"))
            if used := _find_used(connection):
                raise _in_use_error(f"{place}, schema {schema}", used)
    except psycopg.Error as problem:
        raise translate_error(problem, place, _TARGET) from problem
    return None


def _read_note(connection: Connection, name: str) -> dict[str, Any]:
    """What is noted of a copy under a name."""
    asked = f"SELECT said FROM {COPYING} WHERE name = %s".encode()  # noqa: S608
    (said,) = connection.execute(asked, (name,)).fetchone() or ("{}",)
    found: dict[str, Any] = json.loads(said)
    return found


def _find_used(connection: Connection) -> list[str]:
    """The tables in which a store has something that it had not when it was opened first."""
    return [
        table.name
        for table in COPIED
        if table.is_data
        and _is_there(connection, table.name)
        and connection.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(sql.Identifier(table.name))).fetchone()
    ]


def _is_there(connection: Connection, table: str) -> bool:
    return connection.execute("SELECT to_regclass(%s)", (table,)).fetchone() not in (None, (None,))


def _in_use_error(place: str, used: Sequence[str]) -> ConflictError:
    return ConflictError(
        f"{place} is in use: it has rows in {', '.join(used)}; a store is copied into an empty database only "
        "(or into another schema, by ?options=-csearch_path%3Dname); nothing was changed"
    )


@contextmanager
def read_patiently(database: PostgresDatabase) -> Iterator[PostgresReader]:
    """The store as it is now; the server does not end the transaction however long nothing is asked of it."""
    with database.read() as tx:
        _run(tx, "SET LOCAL idle_in_transaction_session_timeout = 0")
        yield PostgresReader(tx.connection)


def _run(tx: PostgresTransaction, statement: str) -> None:
    tx.connection.execute(statement.encode())


def _with_flags(row: Row, flags: Sequence[int]) -> Row:
    return tuple(bool(value) if place in flags else value for place, value in enumerate(row))


def _join_names(names: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _sequence(counter: Counter) -> sql.Composable:
    """What numbers a column, as an expression."""
    if counter.sequence:
        return sql.Literal(counter.sequence)
    return sql.SQL("pg_get_serial_sequence({}, {})").format(sql.Literal(counter.table), sql.Literal(counter.column))
