"""A PostgreSQL database: its pool of connections, its transactions, and how it is opened."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo
from psycopg.types.numeric import Int8BinaryDumper
from psycopg_pool import ConnectionPool, PoolTimeout

from retain.core.errors import ClosedError, ConflictError, RetainError, StoreAwayError
from retain.storage.postgres.complaints import check_url, in_our_words, place_of
from retain.storage.postgres.opening import prepare, quoted
from retain.storage.postgres.transactions import Connection, PostgresTransaction
from retain.storage.relational.database import DuplicateError, T

logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # what it warns of, we raise
_PATIENCE: Final = 10.0
#: How many broken connections in a row are put down to a server that was restarted.
_STALE: Final = 64
_READ: Final = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class PostgresDatabase:
    """Connections to one database; tables lie in a schema of their own (``retain``, unless the URL sets a search_path).

    A commit is on the server's disk when it returns. A connection that breaks is replaced; a commit whose answer was
    lost is looked up before anything is said of it.
    """

    def __init__(self, url: str, *, busy_seconds: float = 60.0, pool_size: int = 16, distribute: bool = False) -> None:
        parts = check_url(url.replace("postgres://", "postgresql://", 1) if url.startswith("postgres://") else url)
        self.schema = _schema_of(parts)
        self._conninfo = make_conninfo("", **_with_defaults(parts))
        self.place = place_of(self._conninfo)
        self._busy_seconds = busy_seconds
        self._patience = min(busy_seconds, _PATIENCE)
        self._pid = os.getpid()
        self._closed = False
        with self._translated(), self._connect() as connection:
            prepare(connection, self.schema, self.place, distribute=distribute)
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            self._conninfo,
            kwargs={"autocommit": True, "prepare_threshold": 1},
            configure=self._configure,
            min_size=1,
            max_size=pool_size,
            timeout=self._patience,
            reconnect_timeout=_PATIENCE,
            num_workers=1,
            open=True,
            name="retain",
        )

    # --- transactions --------------------------------------------------------------------------------------------

    @contextmanager
    def read(self) -> Iterator[PostgresTransaction]:
        """A consistent view of the store as it is now."""
        with self._translated(), self._begun(_READ) as connection:
            yield PostgresTransaction(connection, schema=self.schema, writes=False)
            connection.execute(b"COMMIT")

    @contextmanager
    def write(self) -> Iterator[PostgresTransaction]:
        """A transaction that writes: committed, durably, when the block ends; undone if it raises."""
        with self._translated(), self._begun(b"BEGIN") as connection:
            tx = PostgresTransaction(connection, schema=self.schema, writes=True)
            yield tx
            self._commit(tx)

    @contextmanager
    def govern(self, tenant: str) -> Iterator[PostgresTransaction]:
        """A transaction that changes what holds for all of a tenant's users: nobody writes for them meanwhile."""
        with self._translated(), self._begun(b"BEGIN") as connection:
            tx = PostgresTransaction(connection, schema=self.schema, writes=True, governed=tenant)
            tx.close_gate(tenant)
            yield tx
            self._commit(tx)

    @contextmanager
    def alone(self, what: str) -> Iterator[PostgresTransaction]:
        """A transaction that changes what belongs to no tenant; one at a time for each ``what``."""
        with self._translated(), self._begun(b"BEGIN") as connection:
            tx = PostgresTransaction(connection, schema=self.schema, writes=True)
            tx.take(what)
            yield tx
            self._commit(tx)

    def groups(self, batches: Sequence[T]) -> Iterator[Sequence[T]]:
        """Each by itself: no transaction holds more than one subject."""
        for batch in batches:
            yield [batch]

    def give_back(self, pages: int) -> int:
        """Nothing to do: the server's autovacuum does it."""
        del pages
        return 0

    def _commit(self, tx: PostgresTransaction) -> None:
        try:
            tx.connection.execute(b"COMMIT")
        except psycopg.OperationalError as problem:
            if not tx.connection.broken:
                raise
            if not self._was_committed(tx.xid):
                raise
            del problem  # it is done; only the answer was lost

    def _was_committed(self, xid: str | None) -> bool:
        """How a transaction ended whose answer was lost."""
        deadline = time.monotonic() + self._patience
        while xid is not None and time.monotonic() < deadline:
            with suppress(psycopg.OperationalError), self._connect() as connection:
                row = connection.execute("SELECT pg_xact_status(%s::xid8)", (xid,)).fetchone()
                if row is not None and row[0] in {"committed", "aborted"}:
                    return str(row[0]) == "committed"
            time.sleep(0.1)
        raise StoreAwayError(
            f"{self.place} broke off before it said whether a write was done, and does not answer; "
            "look whether it is there before you try again"
        )

    # --- connections ---------------------------------------------------------------------------------------------

    @contextmanager
    def _begun(self, begin: bytes) -> Iterator[Connection]:
        """A connection inside a transaction; what is not committed when the block ends is undone."""
        connection = self._begin(begin)
        try:
            yield connection
        finally:
            if not connection.closed and connection.info.transaction_status is not pq.TransactionStatus.IDLE:
                with suppress(psycopg.Error):
                    connection.execute(b"ROLLBACK")
            self._pool.putconn(connection)

    def _begin(self, begin: bytes) -> Connection:
        """Begin on a connection that works: those that broke while nobody used them are let go."""
        self.check_usable()
        for _ in range(_STALE):
            connection = self._get()
            try:
                connection.execute(begin)
            except psycopg.OperationalError:
                broken = connection.broken
                self._pool.putconn(connection)
                if not broken:
                    raise
            except BaseException:
                self._pool.putconn(connection)
                raise
            else:
                return connection
        raise StoreAwayError(f"{self.place} breaks off every connection; try again, and see that the server runs")

    def _get(self) -> Connection:
        try:
            return self._pool.getconn(timeout=self._patience)
        except PoolTimeout:
            with self._connect():  # says why, if no connection can be had at all
                pass
            raise

    def _connect(self) -> Connection:
        connection = psycopg.connect(self._conninfo, autocommit=True, connect_timeout=max(2, int(self._patience)))
        try:
            self._configure(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _configure(self, connection: Connection) -> None:
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        connection.execute(
            f"SET search_path = {quoted(self.schema)}, public; SET lock_timeout = {int(self._busy_seconds * 1000)}; "
            "SET idle_in_transaction_session_timeout = 10000; SET timezone = 'UTC'".encode()
        )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except RetainError:
            raise
        except DuplicateError as problem:
            raise ConflictError(f"it is there already, and can be there but once: {problem}") from problem
        except psycopg.Error as problem:
            raise in_our_words(problem, self.place) from problem

    # --- life ----------------------------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """Whether it is open, in the process that opened it."""
        return not self._closed and os.getpid() == self._pid

    def check_usable(self) -> None:
        """Raise ``ClosedError`` unless it is open, in the process that opened it."""
        if self._closed:
            raise ClosedError(f"the store {self.place} was closed; open it again with Retain.open()")
        if os.getpid() != self._pid:
            raise ClosedError(
                f"the store {self.place} was opened by process {self._pid}, and its connections do not survive a fork; "
                "open Retain in each process"
            )

    def close(self) -> None:
        """Close every connection; what is called afterwards raises ``ClosedError``."""
        closed, self._closed = self._closed, True
        if not closed and os.getpid() == self._pid:
            self._pool.close(timeout=0 if threading.current_thread() is not threading.main_thread() else 5)


def _schema_of(parts: dict[str, str]) -> str:
    """The schema that a URL names, by ``options=-csearch_path=``."""
    options = parts.get("options", "")
    _, found, rest = options.partition("search_path=")
    return rest.split(",")[0].split()[0] if found else "retain"


def _with_defaults(parts: dict[str, str]) -> dict[str, Any]:
    """What a connection is made with: a network that went away is noticed within seconds."""
    defaults = {
        "application_name": "retain",
        "connect_timeout": "5",
        "keepalives_idle": "10",
        "keepalives_interval": "5",
        "keepalives_count": "3",
        "tcp_user_timeout": "15000",
    }
    return {**defaults, **parts}
