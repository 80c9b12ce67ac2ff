"""A PostgreSQL database: its pool of connections, its transactions, and how it is opened."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Final

import psycopg
from psycopg import RawCursor, errors, pq
from psycopg.conninfo import make_conninfo
from psycopg.types.numeric import Int8BinaryDumper
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from holdfast.core.audit import PYTHON
from holdfast.core.clock import check_deadline, current_deadline
from holdfast.core.errors import ConflictError, InDoubtError, StorageError, StoreAwayError
from holdfast.core.records import Subject
from holdfast.storage.postgres.connect import prepare_schema, quoted
from holdfast.storage.postgres.errors import check_url, place_of, schema_of, translate_error
from holdfast.storage.postgres.optimistic import Expectations
from holdfast.storage.postgres.transactions import (
    BEGIN,
    COMMITTED,
    Column,
    ColumnDumper,
    Connection,
    Piece,
    PostgresTransaction,
    begin_for,
    piece,
    rows_of,
    run_together,
)
from holdfast.storage.relational.database import (
    AgainError,
    Bindings,
    DuplicateError,
    GuessError,
    OpenState,
    Question,
    R,
    Row,
    RowType,
    SignTexts,
    T,
    without_keys,
)


class PostgresWitness:
    """The ``Witness`` of PostgreSQL."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    def confirm(self) -> None:
        if not self.is_unbroken():
            with self._database.alone("witness") as tx:
                tx.run("witness.confirm")

    def is_unbroken(self) -> bool:
        return self._database.ask(int, "witness.is_unbroken") == [1]


#: How long it may take to reach the server with the wish to cancel.
_SECONDS: Final = 5.0


@contextmanager
def cancel_at_deadline(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """What the block asks the server is cancelled when the deadline of the work at hand passes."""
    deadline = current_deadline()
    if deadline is None:
        yield
        return
    cancel = _Cancel(connection)
    try:
        with deadline.on_expiry(cancel):
            yield
    finally:
        cancel.end()
    deadline.check()


class _Cancel:
    """Cancels what one connection is at. A connection that was told to cancel is not used again: the wish may reach the
    server late, and would meet another's statement.
    """

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._ended = False
        self._sent = False

    def __call__(self) -> None:
        """Send the wish, from a thread of its own."""
        threading.Thread(target=self._send, name="holdfast-cancel", daemon=True).start()

    def _send(self) -> None:
        with self._lock:
            if self._ended:
                return
            self._sent = True
            with suppress(psycopg.Error):  # a server that is not reached ends the statement with its connection
                self._connection.cancel_safe(timeout=_SECONDS)

    def end(self) -> None:
        """From here on nothing is cancelled."""
        with self._lock:
            self._ended = True
            if self._sent:
                self._connection.close()


logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # what it warns of, we raise
#: What is moved for many users is moved by so many transactions at the same time.
_WRITERS: Final = 2
_PATIENCE: Final = 10.0
#: After so long the server gives up a transaction whose process stands still, and lets others pass: before that
#: process's lease is over.
STANDSTILL_MS: Final = 10_000
#: How many broken connections in a row are put down to a server that was restarted.
_STALE: Final = 64
#: Fewer dead rows than this are nobody's concern.
_DEAD_ROWS: Final = 1_000
_READ: Final = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
#: How a transaction ended; whether it had its number before the last checkpoint; and for how long that has been (to the
#: second). A crash ends in a checkpoint, and gives numbers that it has forgotten to others.
_ENDING: Final = """
SELECT pg_xact_status(%s::text::xid8),
       (split_part(next_xid, ':', 1)::bigint << 32) + split_part(next_xid, ':', 2)::bigint > %s::text::bigint,
       extract(epoch FROM clock_timestamp() - checkpoint_time)::float8
FROM pg_control_checkpoint()
"""


class PostgresDatabase:
    """Connections to one database; tables lie in a schema of their own (``holdfast``, or what the URL says).

    A commit is on the server's disk when it returns. A connection that breaks is replaced; a commit whose answer was
    lost is looked up before anything is said of it.
    """

    engine = "postgresql"
    is_shared = False

    def __init__(
        self,
        url: str,
        *,
        busy_seconds: float = 60.0,
        pool_size: int = 16,
        distribute: bool = False,
        copying: bool = False,
        prepare: bool = True,
        called: str = "HOLDFAST_URL",
        before_new: Callable[[], None] = lambda: None,
    ) -> None:
        """Open the database. ``before_new`` may raise, before tables are made where there are none."""
        parts = check_url(url.replace("postgres://", "postgresql://", 1) if url.startswith("postgres://") else url)
        self.schema = schema_of(parts)
        self._conninfo = make_conninfo("", **with_defaults(parts))
        self.place = place_of(self._conninfo)
        self._called = called
        self._busy_seconds = busy_seconds
        self._patience = min(busy_seconds, _PATIENCE)
        self.writers = max(1, min(_WRITERS, pool_size - 1))
        self._state = OpenState(self.place)
        self.check_usable = self._state.check
        self.on_commit: Callable[[], None] = lambda: None
        self.author = PYTHON
        self.sign_texts: SignTexts = without_keys
        self._expectations = Expectations()
        with self._translate_errors(), self._connect() as connection:
            prepare_schema(
                connection, self.schema, self.place, distribute=distribute, copying=copying, before_new=before_new
            )
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            self._conninfo,
            kwargs={"autocommit": True, "prepare_threshold": 1 if prepare else None},
            configure=self._configure,
            min_size=1,
            max_size=pool_size,
            timeout=self._patience,
            reconnect_timeout=_PATIENCE,
            num_workers=1,
            open=False,
            name="holdfast",
        )
        with self._translate_errors():
            self._pool.open(wait=True, timeout=_PATIENCE)  # else the first who asks has a second one made

    # --- transactions --------------------------------------------------------------------------------------------

    @contextmanager
    def read(self, subject: Subject | None = None) -> Iterator[PostgresTransaction]:
        """A consistent view of the store as it is now; begun sooner where it is said whom it will ask about."""
        with self._translate_errors(), self._begin_transaction(_READ, subject, writes=False) as tx:
            with cancel_at_deadline(tx.connection):
                yield tx
            with suppress(psycopg.OperationalError):  # all was read
                tx.connection.execute(b"COMMIT")

    def ask(
        self, row: RowType[R], statement: str, bindings: Bindings = (), *, patience: float | None = None
    ) -> list[R]:
        """The rows of one statement, at one go; with ``patience``, ``StoreAwayError`` after so many seconds without a
        connection.
        """
        with self._translate_errors():
            connection, cursors = self._start([piece(statement, bindings)], patience)
            with self._give_back(connection):
                return rows_of(row, statement, cursors[0])

    def write(
        self, subject: Subject | None = None, first: Question | None = None, ahead: Sequence[Question] = ()
    ) -> AbstractContextManager[PostgresTransaction]:
        """A transaction that writes: committed, durably, when the block ends; undone if it raises. It is begun sooner
        where it is said for whom, and what will be asked.
        """
        if subject is not None and first is not None and (expected := self._expectations.take(first)) is not None:
            return self._write_optimistically(subject, first, expected)
        return self._write(subject, first, ahead)

    @contextmanager
    def govern(self, tenant: str) -> Iterator[PostgresTransaction]:
        """A transaction that changes what holds for all of a tenant's users: nobody writes for them meanwhile."""
        with self._write() as tx:
            tx.lock_tenant(tenant)
            yield tx

    @contextmanager
    def alone(self, what: str) -> Iterator[PostgresTransaction]:
        """A transaction that changes what belongs to no tenant; one at a time for each ``what``."""
        with self._write() as tx:
            tx.lock(what)
            yield tx

    @contextmanager
    def _write(
        self, subject: Subject | None = None, first: Question | None = None, ahead: Sequence[Question] = ()
    ) -> Iterator[PostgresTransaction]:
        began = time.monotonic()
        with self._translate_errors(), self._begin_transaction(BEGIN, subject, first, ahead, writes=True) as tx:
            yield tx
            self._commit(tx, began)
        self._follow_up(tx, first, tx.found)

    @contextmanager
    def _write_optimistically(self, subject: Subject, first: Question, expected: Row) -> Iterator[PostgresTransaction]:
        """A transaction that does not ask first: it is carried out by one text, if what it relies on is so."""
        self.check_usable()
        with self._translate_errors(), self._give_back(self._get()) as connection:
            _finish_write()
            tx = PostgresTransaction(connection, schema=self.schema, writes=True, author=self.author)
            tx.sign_texts = self.sign_texts
            tx.rely_on(subject, first, expected)
            try:
                yield tx
                self._end(tx)
            except GuessError:
                self._expectations.give_back(first, expected)
                raise
            except psycopg.Error as problem:
                if connection.broken:
                    raise AgainError(self._doubt()) from problem
                raise
        self._follow_up(tx, first, None)

    def _follow_up(self, tx: PostgresTransaction, first: Question | None, found: Row | None) -> None:
        """Do what a commit leads to."""
        for do in tx.after:
            do()
        if first is not None and tx.left is not None:
            self._expectations.leave(first, found, tx.left)
        self.on_commit()

    @contextmanager
    def part(self, tx: PostgresTransaction) -> Iterator[None]:
        """A part of a transaction that writes: undone by itself if the block raises."""
        with self._translate_errors(), tx.part():
            yield

    @contextmanager
    def outside(self) -> Iterator[Connection]:
        """A connection of its own, outside of any transaction: for what PostgreSQL does not do inside of one."""
        self.check_usable()
        with self._translate_errors(), self._connect() as connection:
            yield connection

    def groups(self, batches: Sequence[T]) -> Iterator[Sequence[T]]:
        """Each by itself: no transaction holds more than one subject."""
        for batch in batches:
            yield [batch]

    def give_back(self, pages: int) -> int:
        """Vacuum the tables of which a twentieth is dead rows: a sweep leaves as many as it moved, and the server's own
        vacuum comes when it has the time. Where that is not allowed, the server only warns.
        """
        del pages
        if tables := self.ask(str, "dues.with_dead_rows", (self.schema, _DEAD_ROWS)):
            with self.outside() as connection:
                for table in tables:
                    connection.execute(f"VACUUM {quoted(self.schema)}.{quoted(table)}".encode())
        return 0

    def scrub(self, seconds: float = 0.0) -> bool:
        """Nothing to do: the server uses the space of dead rows and of its log again."""
        del seconds
        return True

    def _commit(self, tx: PostgresTransaction, began: float) -> None:
        """End a transaction that began at a moment of ``time.monotonic``."""
        xid = tx.xid
        if xid is None:  # it locked nobody; but it may have written
            (xid,) = tx.connection.execute("SELECT pg_current_xact_id_if_assigned()::text").fetchone() or (None,)
        try:
            self._end(tx)
        except psycopg.OperationalError:
            if not tx.connection.broken or (xid is not None and not self._was_committed(xid, began)):
                raise  # otherwise it is done, and only the answer was lost; or there was nothing to be done

    def _end(self, tx: PostgresTransaction) -> None:
        """Carry out what is left to be done, and commit."""
        said = tx.commit()
        if said != COMMITTED:  # the server undoes what a failed statement was part of, and does not call it an error
            raise StorageError(f"{self.place} did not commit a write but answered {said}; nothing was changed")

    def _was_committed(self, xid: str, began: float) -> bool:
        """How a transaction ended whose answer was lost."""
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            with suppress(psycopg.OperationalError), self._connect() as connection:
                try:
                    found = connection.execute(_ENDING, (xid, xid)).fetchone() or (None, False, 0.0)
                except errors.InvalidParameterValue:
                    return False  # a number that is still to come: a crash has forgotten this transaction
                status, is_old, since = found
                if status == "aborted":
                    return False
                if status == "committed" and (is_old or since > time.monotonic() - began + 1.0):
                    return True
                if status == "committed":
                    break  # by us, or by another who was given the number after a crash
            time.sleep(0.1)
        raise self._doubt()

    def _doubt(self) -> InDoubtError:
        return InDoubtError(
            f"{self.place} broke off before it said whether a write was done, and cannot tell now; "
            "look whether it is there before you try again"
        )

    # --- connections ---------------------------------------------------------------------------------------------

    @contextmanager
    def _begin_transaction(
        self,
        begin: bytes,
        subject: Subject | None,
        first: Question | None = None,
        ahead: Sequence[Question] = (),
        *,
        writes: bool,
    ) -> Iterator[PostgresTransaction]:
        """A transaction; what is not committed when the block ends is undone."""
        pieces: list[Piece] = [(begin, ())]
        if subject is not None:
            pieces = begin_for(begin, self.schema, subject, first, writes=writes)
        connection, answers = self._start([*pieces, *(piece(*question) for question in ahead)])
        with self._give_back(connection):
            if writes:
                _finish_write()
            tx = PostgresTransaction(connection, schema=self.schema, writes=writes, author=self.author)
            tx.sign_texts = self.sign_texts
            if subject is not None:
                tx.start_with(subject, *(answer.fetchone() for answer in answers[1 : len(pieces)]))
            tx.keep_answers(ahead, answers[len(pieces) :])
            yield tx

    @contextmanager
    def _give_back(self, connection: Connection) -> Iterator[Connection]:
        """A connection that goes back to the others when the block ends; what is not committed by then is undone."""
        try:
            yield connection
        finally:
            if not connection.closed and connection.info.transaction_status is not pq.TransactionStatus.IDLE:
                with suppress(psycopg.Error):
                    connection.execute(b"ROLLBACK")
            self._pool.putconn(connection)

    def _start(self, pieces: Sequence[Piece], patience: float | None = None) -> tuple[Connection, list[RawCursor[Row]]]:
        """Carry out statements on a connection that works: those that broke while nobody used them are let go."""
        self.check_usable()
        for _ in range(_STALE):
            connection = self._get(patience)
            try:
                with cancel_at_deadline(connection):
                    return connection, run_together(connection, pieces)
            except BaseException as problem:
                is_stale = isinstance(problem, psycopg.OperationalError) and connection.broken
                self._pool.putconn(connection)
                if not is_stale:
                    raise
        raise StoreAwayError(f"{self.place} breaks off every connection; try again, and see that the server runs")

    def _get(self, patience: float | None = None) -> Connection:
        try:
            return self._pool.getconn(timeout=self._patience if patience is None else patience)
        except PoolClosed:
            self.check_usable()  # it was, when the wait for a connection began
            raise
        except PoolTimeout:
            if patience is not None:
                raise StoreAwayError(
                    f"{self.place} gave no connection within {patience:g} s; see that the server runs"
                ) from None
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
        connection.adapters.register_dumper(Column, ColumnDumper)
        connection.execute(
            f"SET search_path = {quoted(self.schema)}, public; SET lock_timeout = {int(self._busy_seconds * 1000)}; "
            f"SET idle_in_transaction_session_timeout = {STANDSTILL_MS}; SET timezone = 'UTC'; "
            "SET standard_conforming_strings = on; "
            # what is read once a subject is locked must be what is there then
            "SET default_transaction_isolation = 'read committed'".encode()
        )

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except DuplicateError as problem:
            raise ConflictError(f"it is there already, and can be there but once: {problem}") from problem
        except psycopg.Error as problem:
            check_deadline()  # whatever it says, it was stopped
            raise translate_error(problem, self.place, self._called) from problem

    # --- life ----------------------------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """Whether it is open, in the process that opened it."""
        return self._state.is_usable

    def count_connections(self) -> Mapping[str, int]:
        """See ``Database``."""
        stats = self._pool.get_stats()
        size, idle = stats.get("pool_size", 0), stats.get("pool_available", 0)
        waits = {"waiting": stats.get("requests_waiting", 0), "refused": stats.get("requests_errors", 0)}
        return {"in_use": size - idle, "idle": idle, "limit": stats["pool_max"], **waits}

    def close(self) -> None:
        """Close every connection; what is called afterwards raises ``ClosedError``."""
        was_usable, self._state.is_closed = self.usable, True
        if was_usable:
            self._pool.close(timeout=0 if threading.current_thread() is not threading.main_thread() else 5)


def _finish_write() -> None:
    """A write that has begun goes on to its end, whatever becomes of whoever waits for it."""
    if (deadline := current_deadline()) is not None:
        deadline.keep_on()


def with_defaults(parts: dict[str, str]) -> dict[str, Any]:
    """What a connection is made with: a network that went away is noticed within seconds; texts are always UTF-8."""
    defaults = {
        "application_name": "holdfast",
        "connect_timeout": "5",
        "keepalives_idle": "10",
        "keepalives_interval": "5",
        "keepalives_count": "3",
        "tcp_user_timeout": "15000",
    }
    return {**defaults, **parts, "client_encoding": "utf8"}
