"""One SQLite file: its connections, its transactions, and its errors in Holdfast's words."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Final

import apsw

from holdfast.core.audit import PYTHON
from holdfast.core.clock import check_deadline, current_deadline, hold
from holdfast.core.errors import ConflictError, NotAStoreError, StorageError, StoreTooNewError, StoreUnavailableError
from holdfast.core.records import Subject
from holdfast.installation import upgrade_command
from holdfast.storage.objects.disk import NO_ROOM
from holdfast.storage.relational.database import (
    Bindings,
    DuplicateError,
    OpenState,
    Question,
    R,
    RowType,
    SignTexts,
    T,
    digest,
    migrations,
    without_keys,
)
from holdfast.storage.sqlite.connect import ReadOnlyFile, has_log, is_empty, is_writable, translate_error
from holdfast.storage.sqlite.transactions import PACKAGE, LastAnswer, SqliteTransaction, ask

APPLICATION_ID: Final = 0x486F6C64  # "Hold", in the file's header
_IDLE_READERS: Final = 8
_PRAGMAS: Final = """
PRAGMA synchronous=FULL; PRAGMA secure_delete=ON; PRAGMA foreign_keys=ON; PRAGMA fullfsync=ON;
PRAGMA cache_size=-16384; PRAGMA journal_size_limit=67108864
"""
#: How many steps SQLite takes between two looks at the deadline: well below a millisecond's worth.
_STEPS: Final = 4_000


class SqliteDatabase:
    """Connections to one file: one that writes, under a lock, and as many that read as there are readers at once.

    A commit is on the disk when it returns (write-ahead log, full synchronisation). Other processes may write the same
    file; whoever finds it busy waits its turn, ``busy_seconds`` at most.
    """

    engine = "sqlite"
    is_shared = False
    writers = 1

    def __init__(
        self, path: Path, *, busy_seconds: float = 60.0, before_new: Callable[[], None] = lambda: None
    ) -> None:
        """Open the file, or make it. ``before_new`` may raise, before a store is made where there is none."""
        self.path = path
        self._before_new = before_new
        self._busy_seconds = busy_seconds
        self._state = OpenState(path)
        self._translation = self._translate_errors()
        self.check_usable = self._state.check
        self.on_commit: Callable[[], None] = lambda: None
        self.author = PYTHON
        self.sign_texts: SignTexts = without_keys
        self._readers: list[apsw.Connection] = []
        self._lock = threading.Lock()
        self._left = LastAnswer()
        self._only_read: ReadOnlyFile | None = None
        if not is_empty(path) and not is_writable(path):
            self._open_read_only()
            return
        with self._translate_errors():
            try:
                if is_empty(path):
                    before_new()
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                if not path.exists():
                    path.touch(mode=0o600)  # memories are for their owner's eyes; SQLite's other files take after it
            except OSError as problem:
                raise StoreUnavailableError(
                    f"cannot create the folder of {path}: {problem.strerror}; "
                    "name another place in HOLDFAST_URL or HOLDFAST_HOME"
                ) from problem
            self._writer = self._connect(create=True)
        try:
            with self._translate_errors(self._writer):
                self._prepare()
        except BaseException:
            self._writer.close()
            raise

    # --- transactions ------------------------------------------------------------------------------------------

    @contextmanager
    def write(
        self, _subject: Subject | None = None, first: Question | None = None, _ahead: Sequence[Question] = ()
    ) -> Iterator[SqliteTransaction]:
        """A transaction that writes: committed, durably, when the block ends; undone if it raises."""
        self.check_usable()  # before waiting: in a forked child the lock may never come free
        self._check_writable()
        deadline = current_deadline()
        with hold(self._lock), self._translate_errors(self._writer):
            if self._state.is_closed:
                self.check_usable()
            connection = self._writer
            try:  # an interrupt may come between any two statements: nothing may be left open
                connection.execute("BEGIN IMMEDIATE")
                if deadline is not None:
                    deadline.keep_on()
                asked = None if first is None else digest(first)
                answer = self._left.take(asked, connection.data_version())
                tx = SqliteTransaction(connection, self.author, self.sign_texts, answer)
                yield tx
                connection.execute("COMMIT")
                self._left.leave(asked, tx.left, connection.data_version())
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        for do in tx.after:
            do()
        self.on_commit()

    @contextmanager
    def part(self, tx: SqliteTransaction) -> Iterator[None]:
        """A part of a transaction that writes: undone by itself if the block raises."""
        connection = tx.connection
        with self._translate_errors(connection):
            if not connection.in_transaction:  # some errors undo all of it: what followed would not be part of it
                raise StorageError(f"the store {self.path} has undone a write that failed; nothing was changed")
            connection.execute("SAVEPOINT part")
            mark = len(tx.after)
            try:
                yield
            except BaseException:
                del tx.after[mark:]
                if connection.in_transaction:
                    connection.execute("ROLLBACK TO part")
                    connection.execute("RELEASE part")
                raise
            connection.execute("RELEASE part")

    def govern(self, _tenant: str) -> AbstractContextManager[SqliteTransaction]:
        """The same: there is one writer at a time."""
        return self.write()

    def alone(self, _what: str) -> AbstractContextManager[SqliteTransaction]:
        """The same: there is one writer at a time."""
        return self.write()

    def groups(self, batches: Sequence[T]) -> Iterator[Sequence[T]]:
        """All of them together: a transaction costs a synchronisation of the disk."""
        if batches:
            yield batches

    @contextmanager
    def read(self, _subject: Subject | None = None) -> Iterator[SqliteTransaction]:
        """A consistent view of the store as it is now."""
        with self._translation:
            connection = self._take_reader()
            try:
                check_deadline()
                connection.execute("BEGIN")
                yield SqliteTransaction(connection, self.author, self.sign_texts)
            finally:
                self._give_back(connection)

    def ask(
        self, row: RowType[R], statement: str, bindings: Bindings = (), *, patience: float | None = None
    ) -> list[R]:
        """The rows of one statement. No reader ever waits, so that patience is not needed."""
        del patience
        with self._translation:
            connection = self._take_reader()
            try:
                check_deadline()
                return ask(connection, row, statement, bindings)
            finally:
                self._give_back(connection)

    def _take_reader(self) -> apsw.Connection:
        """A connection that nobody reads by."""
        self.check_usable()
        if self._only_read is not None and self._only_read.has_changed():
            self._close_readers()
        try:
            return self._readers.pop()
        except IndexError:
            connection = self._connect()
            connection.set_progress_handler(_is_late, _STEPS)
            return connection

    def count_connections(self) -> Mapping[str, int]:
        """See ``Database``: each thread has a connection of its own as soon as it needs one."""
        return {}

    def close(self) -> None:
        """Close every connection; what is called afterwards raises ``ClosedError``."""
        was_usable, self._state.is_closed = self.usable, True
        if was_usable:  # a forked child must not touch its parent's connections
            with self._lock:
                self._writer.close()
                self._close_readers()

    @property
    def usable(self) -> bool:
        """Whether it is open, in the process that opened it."""
        return self._state.is_usable

    def check(self) -> list[str]:
        """What SQLite itself finds wrong with the file; empty if all is well."""
        with self.read() as tx:
            found = [str(problem) for (problem,) in tx.connection.execute("PRAGMA quick_check(20)")]
        return [] if found == ["ok"] else found

    def give_back(self, pages: int) -> int:
        """Give unused pages of the file back to the disk, some at a time; how many are left."""
        with self.write() as tx:
            tx.connection.execute(f"PRAGMA incremental_vacuum({int(pages)})").fetchall()
        with self.read() as tx:
            return int(tx.connection.pragma("freelist_count"))

    def scrub(self, seconds: float = 2.0) -> bool:
        """Empty the write-ahead log, in which pages are as they were; ``False`` while a reader, of whatever process,
        keeps an older view of the file for more than so many seconds. Writers wait meanwhile.
        """
        self.check_usable()
        self._check_writable()
        deadline = time.monotonic() + seconds
        with self._translate_errors(), closing(self._connect()) as connection:
            connection.set_busy_handler(_patience(seconds))
            while True:  # SQLite waits for readers and writers, but not for another who empties the log
                busy = True
                with suppress(apsw.BusyError):
                    ((is_busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                    busy = bool(is_busy)
                if not busy or time.monotonic() > deadline:
                    return not busy
                time.sleep(0.01)

    # --- opening -----------------------------------------------------------------------------------------------

    def _connect(self, *, create: bool = False) -> apsw.Connection:
        if self._only_read is not None:
            return self._only_read.connect()
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        connection = apsw.Connection(str(self.path), flags=flags, statementcachesize=256)
        if create:  # the rest waits until the file is known to be ours
            connection.set_busy_handler(_patience(self._busy_seconds))
        else:
            self._configure(connection)
        return connection

    def _configure(self, connection: apsw.Connection) -> None:
        connection.set_busy_handler(_patience(self._busy_seconds))
        connection.execute(_PRAGMAS).fetchall()  # to the last of them: some answer with a row
        # a statement's plan does not depend on what it is asked with, so it is made once and not with each execution
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)

    def _open_read_only(self) -> None:
        """Open a file that this process may read and not write: it is as whoever could write it left it."""
        with self._translate_errors():
            self._only_read = ReadOnlyFile(self.path, self._configure)
            self._writer = self._only_read.connect()
            try:
                if self._version(self._writer) < migrations(PACKAGE)[-1].number:
                    self._only_read.refuse()
            except BaseException:
                self._writer.close()
                raise

    def _check_writable(self) -> None:
        if self._only_read is not None:
            self._only_read.refuse()

    def _prepare(self) -> None:
        """Refuse a file that is not ours before anything in it is changed; then bring it up to date."""
        connection = self._writer
        if has_log(self.path):  # closing would write it into a file that may not be ours
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        version = self._version(connection)
        if version == 0:
            self._before_new()
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        steps = migrations(PACKAGE)
        if version < steps[-1].number or connection.pragma("journal_mode") != "wal":
            self._to_wal(connection, new=version == 0)
        self._configure(connection)
        if version < steps[-1].number:
            connection.execute("BEGIN IMMEDIATE")
            try:
                version = self._version(connection)  # another process may have been faster
                for number, script in steps:
                    if number > version:
                        connection.execute(script)
                        connection.execute(f"PRAGMA user_version={number}")
                connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _version(self, connection: apsw.Connection) -> int:
        with connection:  # one view of the file, whatever another process makes of it meanwhile
            version = int(connection.pragma("user_version"))
            ours = int(connection.pragma("application_id")) == APPLICATION_ID
            empty = connection.execute("SELECT count(*) FROM sqlite_schema").fetchall() == [(0,)]
        if not ours and not empty:
            raise NotAStoreError(
                f"{self.path} is an SQLite database, but not Holdfast's; "
                "name another file in HOLDFAST_URL or HOLDFAST_HOME"
            )
        newest = migrations(PACKAGE)[-1].number
        if version > newest:
            raise StoreTooNewError(
                f"{self.path} has schema version {version}, this version of Holdfast knows up to {newest}; "
                f"upgrade with: {upgrade_command()}"
            )
        return version

    def _to_wal(self, connection: apsw.Connection, *, new: bool) -> None:
        if new:
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # takes effect while there are no tables yet
        deadline = time.monotonic() + self._busy_seconds
        while True:  # SQLite asks the busy handler on most ways here, but not on all of them
            try:
                connection.pragma("journal_mode", "wal")
            except apsw.BusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.005)
            else:
                return

    # --- waiting, errors -----------------------------------------------------------------------------------------

    def _close_readers(self) -> None:
        while self._readers:
            self._readers.pop().close()

    def _give_back(self, connection: apsw.Connection) -> None:
        if connection.in_transaction:
            connection.execute("COMMIT")
        if len(self._readers) < _IDLE_READERS and not self._state.is_closed:
            self._readers.append(connection)
        else:
            connection.close()

    def _translate_errors(self, writer: apsw.Connection | None = None) -> _Translation:
        return _Translation(self.path, self._busy_seconds, writer)


class _Translation:
    """Errors of a block in Holdfast's words. Every read and write passes here, so that it is no generator."""

    __slots__ = ("_busy_seconds", "_path", "_writer")

    def __init__(self, path: Path, busy_seconds: float, writer: apsw.Connection | None) -> None:
        self._path, self._busy_seconds, self._writer = path, busy_seconds, writer

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, problem: BaseException | None, _trace: object) -> None:
        if isinstance(problem, DuplicateError):
            raise ConflictError(f"it is there already, and can be there but once: {problem}") from problem
        if not isinstance(problem, apsw.Error):
            return
        if isinstance(problem, apsw.InterruptError | apsw.BusyError):
            check_deadline()
        writer = self._writer
        full = writer is not None and isinstance(problem, apsw.IOError) and writer.system_errno in NO_ROOM
        raise translate_error(apsw.FullError() if full else problem, self._path, self._busy_seconds) from problem


def _is_late() -> bool:
    """Whether the time for what is read at the moment is over. SQLite asks now and then, and stops if it is."""
    deadline = current_deadline()
    return deadline is not None and deadline.expired


def _patience(seconds: float) -> Callable[[int], bool]:
    """A busy handler: SQLite asks it whether to go on waiting for a lock. Short, uneven naps are fair to many.

    A write has the lock for about half a millisecond. Whoever sleeps much longer than that leaves it free meanwhile, or
    to the one who has just had it; whoever has waited for long waits for something longer, and looks less often.
    """
    since = 0.0

    def wait(tries: int) -> bool:
        nonlocal since
        now = time.monotonic()
        if tries == 0:
            since = now
        elif now - since > seconds:
            return False
        if (deadline := current_deadline()) is not None and deadline.expired:
            return False
        time.sleep(random.uniform(0.00005, min(0.0002 + 0.00002 * tries, 0.001)))  # noqa: S311 - no secret
        return True

    return wait
