"""The databases that LangGraph keeps checkpoints in: SQLite and PostgreSQL, with our statements for each."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from holdfast.core.errors import (
    ConflictError,
    InvalidInputError,
    NotAStoreError,
    StorageError,
    StoreAwayError,
    StoreBusyError,
    StoreReadOnlyError,
    StoreUnavailableError,
    quote,
)
from holdfast.installation import missing_extra
from holdfast.integrations.langgraph.kept_checkpoints import Checkpoint
from holdfast.settings import sqlite_path
from holdfast.storage.relational.database import statements

if TYPE_CHECKING:
    from psycopg import Connection, Cursor

_BUSY_SECONDS: Final = 30.0
#: The pages that one transaction changes find room in it.
_CACHE_KIB: Final = 16_384
_TABLE: Final = re.compile(r"@(\w+)")
_LIST: Final = re.compile(r" IN LIST\((:\w+)\)")
_ENTRIES: Final = re.compile(r" IN ENTRIES\((:\w+)\)")
_FIELD: Final = re.compile(r"FIELD\(([\w.]+), (:\w+)\)")
_PARAMETER: Final = re.compile(r"(?<!:):([a-z_]+)")
#: From this version on a checkpoint has in it what was sent to its tasks.
_SENDS_INSIDE: Final = 4
Row = tuple[Any, ...]
#: How the tables of the recycle bin begin; what follows is the table whose rows they keep.
BIN: Final = "holdfast_bin_"
#: The first version of PostgreSQL that takes statistics of a column away when it is told to.
_CLEARS_SAMPLES: Final = 180000


class Database(Protocol):
    """A database with LangGraph's tables. One thread at a time uses it."""

    place: str
    """Which database it is, without secrets."""
    tables: tuple[str, ...]
    """The tables that hold threads, checkpoints first."""

    @property
    def version(self) -> int:
        """Which version of LangGraph's tables it has, as far as that is noted."""

    @property
    def setup(self) -> list[str]:
        """The statements that make our tables and triggers, in their order."""

    def transaction(self) -> AbstractContextManager[None]:
        """What is done inside is done together or, if something raises, not at all."""

    def all(self, statement: str, **values: Any) -> list[Row]:
        """The rows of a statement of ours, by its name or its text."""

    def run(self, statement: str, **values: Any) -> int:
        """Carry out a statement; how many rows it changed."""

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Add rows to a table of ours; those with the same key, which is the first column, are replaced."""

    def move_to_bin(self, columns: Mapping[str, Sequence[str]], which: Mapping[str, str], **values: Any) -> None:
        """Move rows of ``threads`` into the tables of the bin, under its entries for them. For each table, ``which``
        selects the entries (``bin``) and, where not all rows go, the rows (``moved``).
        """

    def columns(self, tables: Sequence[str]) -> dict[str, dict[str, str]]:
        """The columns of tables and their types, by the names of those that are there."""

    def checkpoints(self, thread_id: str) -> list[Checkpoint]:
        """What decides which checkpoints of a thread are needed."""

    def scrub(self) -> None:
        """Let nothing of deleted rows be left in the database's files; ``StoreBusyError`` while a reader needs it."""

    def lock(self, thread_ids: Sequence[str]) -> None:
        """Wait until nobody writes these threads, and let nobody write them before the transaction ends."""

    def field(self, name: str) -> str:
        """How a statement is told the name of a field of a JSON object."""

    def close(self) -> None:
        """Close the connection."""


def _statements(engine: str) -> dict[str, str]:
    found = statements("holdfast.integrations.langgraph.sql").items()
    return {name.partition(".")[2]: text for name, text in found if name.partition(".")[0] in ("shared", engine)}


def _setup(sql: Mapping[str, str]) -> list[str]:
    """The statements that make something, tables first."""
    makes = (name for name in sql if name.startswith("create_"))
    return sorted(makes, key=lambda name: not sql[name].startswith("CREATE TABLE"))


def _list_names(columns: Sequence[str], of: str = "") -> str:
    return ", ".join(f'{of}"{column}"' for column in columns)


def _by_table(rows: Iterable[Row]) -> dict[str, dict[str, str]]:
    tables: dict[str, dict[str, str]] = {}
    for table, column, kind in rows:
        tables.setdefault(table, {})[column] = kind
    return tables


class SqliteDatabase:
    """A SQLite file. It is used through the library that LangGraph uses, and not through ours: two libraries that have
    one file open in the same process would end each other's locks.
    """

    tables: tuple[str, ...] = ("checkpoints", "writes")
    version = 0

    def __init__(
        self, connection: sqlite3.Connection, place: str, lock: AbstractContextManager[Any] | None = None
    ) -> None:
        self.place = place
        self._connection = connection
        self._lock = lock or threading.RLock()
        self._sql = {name: self._translate(text) for name, text in _statements("sqlite").items()}
        self.setup = _setup(self._sql)

    @classmethod
    def open(cls, path: Path) -> SqliteDatabase:
        """Open a file that is there."""
        if not path.is_file():
            raise StoreUnavailableError(f"there is no SQLite file {path}; name the one that LangGraph's saver writes")
        connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        database = cls(connection, f"SQLite file {path}")
        database.all("PRAGMA secure_delete = ON")
        database.all(f"PRAGMA cache_size = -{_CACHE_KIB}")
        return database

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._used():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def all(self, statement: str, **values: Any) -> list[Row]:
        with self._used():
            return self._execute(statement, values).fetchall()

    def run(self, statement: str, **values: Any) -> int:
        with self._used():
            return self._execute(statement, values).rowcount

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        places = ", ".join("?" * len(columns))
        with self._used():
            self._connection.executemany(
                f"INSERT OR REPLACE INTO {table} ({', '.join(columns)}) VALUES ({places})",  # noqa: S608 - our names
                rows,
            )

    def move_to_bin(self, columns: Mapping[str, Sequence[str]], which: Mapping[str, str], **values: Any) -> None:
        for table, condition in which.items():
            names, moved = _list_names(columns[table]), _list_names(columns[table], "moved.")
            rows = f"@holdfast_bin AS bin JOIN @{table} AS moved ON moved.thread_id = bin.thread_id WHERE {condition}"
            self.run(f"INSERT INTO @{BIN}{table} (bin, {names}) SELECT bin.no, {moved} FROM {rows}", **values)  # noqa: S608
            self.run(f"DELETE FROM @{table} WHERE rowid IN (SELECT moved.rowid FROM {rows})", **values)  # noqa: S608

    def columns(self, tables: Sequence[str]) -> dict[str, dict[str, str]]:
        return _by_table(self.all("columns", tables=list(tables)))

    def checkpoints(self, thread_id: str) -> list[Checkpoint]:
        sends = set(self.all("sends", thread=thread_id))
        rows = self.all("checkpoints", thread=thread_id)
        return [StoredCheckpoint(*row).unpack(thread_id).describe(thread_id, sends) for row in rows]

    def scrub(self) -> None:
        if any(is_busy for is_busy, *_ in self.all("PRAGMA wal_checkpoint(TRUNCATE)")):
            raise StoreBusyError(f"{self.place} is being read: its log still has what was deleted; try again")

    def lock(self, thread_ids: Sequence[str]) -> None:
        """Nothing is to be done: a transaction keeps all writers out."""

    def field(self, name: str) -> str:
        if '"' in name:
            raise InvalidInputError(
                f"{quote(name)} cannot name a field of a checkpoint's metadata; leave the quotes out"
            )
        return f'$."{name}"'

    def close(self) -> None:
        self._connection.close()

    def _translate(self, text: str) -> str:
        text = _ENTRIES.sub(r" IN (SELECT no FROM @holdfast_bin WHERE bin_id IN LIST(\1))", text)
        text = _FIELD.sub(
            r"CASE WHEN json_valid(CAST(\1 AS TEXT)) "
            r"THEN CASE WHEN json_type(CAST(\1 AS TEXT), \2) IN ('text', 'integer') "
            r"THEN CAST(json_extract(CAST(\1 AS TEXT), \2) AS TEXT) END END",
            text,
        )
        return _LIST.sub(r" IN (SELECT value FROM json_each(\1))", _TABLE.sub(r'"\1"', text))

    def _execute(self, statement: str, values: dict[str, Any]) -> sqlite3.Cursor:
        lists = {name: json.dumps(value) for name, value in values.items() if isinstance(value, list)}
        return self._connection.execute(self._sql.get(statement) or self._translate(statement), values | lists)

    @contextmanager
    def _used(self) -> Iterator[None]:
        """Use the connection, with its errors in our words."""
        try:
            with self._lock:
                yield
        except sqlite3.Error as problem:
            if "locked" in str(problem):
                raise StoreBusyError(f"{self.place} was kept busy by other writers; try again") from problem
            if "readonly" in str(problem):
                raise StoreReadOnlyError(f"{self.place} cannot be written: {problem}") from problem
            if "not a database" in str(problem):
                raise NotAStoreError(
                    f"{self.place} is no database; name the one that LangGraph's saver writes"
                ) from problem
            raise StorageError(f"{self.place} failed: {problem}") from problem


class PostgresDatabase:
    """A PostgreSQL database. Tables are named with their schema, whatever the search path."""

    tables: tuple[str, ...] = ("checkpoints", "checkpoint_writes", "checkpoint_blobs")

    def __init__(self, connect: Callable[[], Connection[Row]], schema: str, place: str) -> None:
        self.place = place
        self._connect = connect
        self._connection = connect()
        self._lock = threading.RLock()
        self._schema = schema
        self._sql = {name: self._translate(text) for name, text in _statements("postgres").items()}
        self.setup = _setup(self._sql)

    @classmethod
    def open(cls, url: str, schema: str) -> PostgresDatabase:
        """Connect to a database."""
        try:
            import psycopg  # noqa: PLC0415 - in an extra
        except ImportError as problem:
            raise missing_extra("a PostgreSQL database", "postgres") from problem
        from holdfast.storage.postgres.errors import place_of  # noqa: PLC0415 - needs psycopg

        def connect() -> Connection[Row]:
            try:
                return psycopg.connect(url, autocommit=True, application_name="holdfast")
            except psycopg.Error as problem:
                raise StoreAwayError(f"cannot connect to {place_of(url)}: {problem}") from problem

        within = "" if schema == "public" else f", schema {schema!r}"
        return cls(connect, schema, f"{place_of(url)}{within}")

    @property
    def version(self) -> int:
        return max((version or 0 for (version,) in self.all("version")), default=0)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._used(), self._connection.transaction():
            yield

    def all(self, statement: str, **values: Any) -> list[Row]:
        with self._used():
            return self._execute(statement, values).fetchall()

    def run(self, statement: str, **values: Any) -> int:
        with self._used():
            return self._execute(statement, values).rowcount

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        names = ", ".join(columns)
        read = ", ".join(
            f"(given.value ->> {place}){'::bigint' if name.endswith('_at') else ''}"
            for place, name in enumerate(columns)
        )
        renewed = ", ".join(f"{name} = EXCLUDED.{name}" for name in columns[1:])
        self.run(
            f"INSERT INTO @{table} ({names}) SELECT {read} "  # noqa: S608 - our names
            "FROM jsonb_array_elements(:rows::jsonb) AS given (value) "
            f"ON CONFLICT ({columns[0]}) DO UPDATE SET {renewed}",
            rows=json.dumps(rows),
        )

    def move_to_bin(self, columns: Mapping[str, Sequence[str]], which: Mapping[str, str], **values: Any) -> None:
        moves = (
            f"from_{table} AS (DELETE FROM @{table} AS moved USING @holdfast_bin AS bin "  # noqa: S608 - our names
            f"WHERE moved.thread_id IN LIST(:threads) AND moved.thread_id = bin.thread_id AND {condition} "
            f"RETURNING bin.no, {_list_names(columns[table], 'moved.')}), to_{table} AS ("
            f"INSERT INTO @{BIN}{table} (bin, {_list_names(columns[table])}) SELECT * FROM from_{table})"
            for table, condition in which.items()
        )
        self.run(f"WITH {', '.join(moves)} SELECT 1", **values)

    def columns(self, tables: Sequence[str]) -> dict[str, dict[str, str]]:
        return _by_table(self.all("columns", tables=list(tables), schema=self._schema))

    def checkpoints(self, thread_id: str) -> list[Checkpoint]:
        sends, blobs = set(self.all("sends", thread=thread_id)), set(self.all("blobs", thread=thread_id))
        rows = self.all("checkpoints", thread=thread_id)
        return [StoredCheckpoint(*row).describe(thread_id, sends, blobs) for row in rows]

    def scrub(self) -> None:
        """Let the server keep no samples of deleted rows. Before version 18 it keeps those of tables that are empty.
        The space of the rows it uses again, as certificates of erasure say.
        """
        tables = [*self.tables, *(BIN + table for table in self.tables), "holdfast_bin", "holdfast_threads"]
        if self._connection.info.server_version >= _CLEARS_SAMPLES:
            self.all("clear_samples", tables=tables, schema=self._schema)
        for table in tables:
            self.run(f"ANALYZE @{table}")

    def lock(self, thread_ids: Sequence[str]) -> None:
        self.all("lock", threads=list(thread_ids))

    def field(self, name: str) -> str:
        return name

    def close(self) -> None:
        self._connection.close()

    def _translate(self, text: str) -> str:
        text = _ENTRIES.sub(r" = ANY (ARRAY(SELECT no FROM @holdfast_bin WHERE bin_id IN LIST(\1)))", text)
        text = _FIELD.sub(r"CASE WHEN jsonb_typeof(\1 -> \2) IN ('string', 'number') THEN \1 ->> \2 END", text)
        schema = '"' + self._schema.replace('"', '""') + '"'
        text = _TABLE.sub(lambda table: f'{schema}."{table[1]}"', text.replace("%", "%%"))
        return _PARAMETER.sub(r"%(\1)s", _LIST.sub(r" = ANY(\1::text[])", text))

    def _execute(self, statement: str, values: dict[str, Any]) -> Cursor[Row]:
        return self._connection.execute(self._sql.get(statement) or self._translate(statement), values)

    @contextmanager
    def _used(self) -> Iterator[None]:
        """Use the connection, with its errors in our words."""
        import psycopg  # noqa: PLC0415 - in an extra

        try:
            with self._lock:
                if self._connection.closed:  # the server went away since
                    self._connection = self._connect()
                yield
        except psycopg.errors.InsufficientPrivilege as problem:
            raise StoreReadOnlyError(
                f"{self.place}: {problem.diag.message_primary}; connect as the owner of LangGraph's tables"
            ) from problem
        except psycopg.OperationalError as problem:
            raise StoreAwayError(f"{self.place} is away: {problem}") from problem
        except psycopg.Error as problem:
            raise StorageError(f"{self.place} failed: {problem}") from problem


class StoredCheckpoint(NamedTuple):
    """A checkpoint, as a table has it."""

    namespace: str
    id: str
    parent: str | None
    metadata: Any
    checkpoint: Any
    type: str | None = None

    def describe(self, thread_id: str, sends: Container[Row], blobs: Container[Row] = ()) -> Checkpoint:
        """What decides whether it is needed. ``sends`` are the checkpoints that tasks were sent from; values that are
        not inside it are among the ``blobs``.
        """
        if "delta_writes_versioned" in self.metadata:
            raise ConflictError(f"thread {thread_id!r} cannot be thinned: LangGraph.js wrote it, with delta channels")
        versions = {channel: str(version) for channel, version in self.checkpoint.get("channel_versions", {}).items()}
        beside = {channel for channel, version in versions.items() if (self.namespace, channel, version) in blobs}
        return Checkpoint(
            self.namespace,
            self.id,
            self.parent,
            frozenset(self.metadata.get("counters_since_delta_snapshot") or {}),
            frozenset(beside | set(self.checkpoint.get("channel_values") or {})),
            versions,
            needs_parent=self.checkpoint.get("v", 1) < _SENDS_INSIDE and (self.namespace, self.parent) in sends,
        )

    def unpack(self, thread_id: str) -> StoredCheckpoint:
        """The same with its fields readable. Values are looked at by their names, and not made into objects."""
        if self.type != "msgpack":
            raise ConflictError(f"thread {thread_id!r} cannot be thinned: its checkpoints are stored as {self.type!r}")
        import ormsgpack  # noqa: PLC0415 - comes with LangGraph

        packed = ormsgpack.unpackb(
            self.checkpoint, ext_hook=lambda _code, _data: None, option=ormsgpack.OPT_NON_STR_KEYS
        )
        return self._replace(metadata=json.loads(self.metadata or b"{}"), checkpoint=packed)


def resolve_url(url: str) -> str:
    """A URL that names the same database in every process: a path is made whole."""
    scheme = urlsplit(url).scheme
    if scheme in ("postgresql", "postgres"):
        return url
    if scheme == "sqlite":
        return f"sqlite:///{sqlite_path(url).resolve()}"
    if len(scheme) <= 1:  # none, or the letter of a drive
        return f"sqlite:///{Path(url).resolve()}"
    raise InvalidInputError(f"{quote(url)} is no database of LangGraph; use sqlite:///… or postgresql://…")


def open_database(url: str, schema: str = "public") -> Database:
    """Open the database of a URL: ``sqlite:///path/file.db``, a path, or ``postgresql://…``."""
    url = resolve_url(url)
    if url.startswith("sqlite:"):
        return SqliteDatabase.open(sqlite_path(url))
    return PostgresDatabase.open(url, schema)
