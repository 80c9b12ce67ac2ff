"""A transaction of PostgreSQL: statements by their names, and what it has to itself.

A subject has one writer at a time: each locks the subject's row of ``subject_locks`` first. Before that it takes the
tenant's lock, which writers share, so that what holds for the whole tenant (rules, holds, agents) stays as it is while
they rely on it; whoever changes such a thing has that lock alone.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property, partial
from hashlib import blake2b
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import RawCursor, errors
from psycopg.abc import DumperKey, PyFormat
from psycopg.adapt import Dumper
from psycopg.rows import tuple_row

from holdfast.core.audit import PYTHON
from holdfast.core.records import Subject
from holdfast.storage.postgres.optimistic import as_record
from holdfast.storage.relational.database import (
    MAKERS,
    AgainError,
    Bindings,
    DuplicateError,
    Guess,
    GuessError,
    Instead,
    Question,
    R,
    Row,
    RowType,
    SignTexts,
    row_maker,
    statements,
    without_keys,
)

PACKAGE: Final = "holdfast.storage.postgres"
#: Text that may be stored compressed is bytes here; where it is not compressed, a zero byte is before it.
_PACKED: Final = re.compile(r"packed\((\$(\d+))\)")
_PAGE: Final = 2_000
#: Rows are written so many at a time, as the values of one statement.
_TOGETHER: Final = (256, 32, 4)
_VALUES: Final = re.compile(rb"VALUES \(([^()]*)\)(\sON CONFLICT[^$]*)?$")
_PLACE: Final = re.compile(rb"\$(\d+)")
Connection = psycopg.Connection[Any]
#: A statement's text and its values.
Piece = tuple[bytes, Bindings]
BEGIN: Final = b"BEGIN"
#: What the server calls a commit that it has made.
COMMITTED: Final = "COMMIT"
#: The statements of a record that is added by itself.
_ADD: Final = ["records.insert", "records.put_scope"]
_NONE: Final = Guess()


class Locked(NamedTuple):
    """A subject that a transaction has to itself, and the transaction's name."""

    number: int | None = None
    xid: str | None = None


class NumberedRow(NamedTuple):
    """One of several subjects that were looked up, or locked, by a transaction of this name."""

    subject: Subject
    number: int
    xid: str | None


class Statement:
    """A statement, and which of its parameters are such texts."""

    __slots__ = ("_one", "_several", "packed", "text")

    def __init__(self, text: str) -> None:
        self.packed = tuple(sorted({int(number) - 1 for _, number in _PACKED.findall(text)}))
        self.text = _PACKED.sub(r"\1", text).encode()
        self._one = _VALUES.search(self.text)
        self._several: dict[int, bytes] = {}

    def bound(self, bindings: Bindings) -> Bindings:
        """The values as they are sent."""
        if not self.packed:
            return bindings
        values = list(bindings)
        for place in self.packed:
            value = values[place]
            values[place] = Column([_pack(one) for one in value]) if isinstance(value, Column) else _pack(value)
        return values

    def chunks(self, many: list[Bindings]) -> Iterator[tuple[bytes, Bindings]]:
        """Texts and values that together write many rows; for a statement that ends with the values of one."""
        start, left = 0, len(many)
        for size in (*_TOGETHER, 1):
            while left >= size and (size == 1 or self._one is not None):
                values = [value for row in many[start : start + size] for value in self.bound(row)]
                yield self._for(size, len(many[0])), values
                start, left = start + size, left - size

    def _for(self, size: int, width: int) -> bytes:
        one = self._one
        if one is None or size == 1:
            return self.text
        if size not in self._several:
            rows = (b"(" + _shifted(one[1], row * width) + b")" for row in range(size))
            self._several[size] = self.text[: one.start()] + b"VALUES " + b", ".join(rows) + (one[2] or b"")
        return self._several[size]


class Column(list[Any]):
    """The values of a column, sent as an array: numbers, texts or bytes, and ``None``."""

    @cached_property
    def kind(self) -> type:
        """The type of its values."""
        return type(next((value for value in self if value is not None), b""))


class ColumnDumper(Dumper):
    """Sends a column as bytes, which takes a tenth of the time of writing it as text."""

    format = psycopg.pq.Format.BINARY
    _KINDS: Final = {int: (20, 1016), str: (25, 1009), bytes: (17, 1001)}
    """The numbers of the type of a column's values, and of its arrays."""

    def get_key(self, obj: Column, format: PyFormat) -> DumperKey:  # noqa: A002, ARG002 - as psycopg calls it
        return (self.cls, obj.kind)

    def upgrade(self, obj: Column, format: PyFormat) -> Dumper:  # noqa: A002, ARG002 - as psycopg calls it
        dumper = type(self)(self.cls)
        _, dumper.oid = self._KINDS[obj.kind]
        return dumper

    def dump(self, obj: Column) -> bytes:
        to_bytes = _TO_BYTES[obj.kind]
        values = [b"" if value is None else to_bytes(value) for value in obj]
        lengths = [-1 if value is None else len(data) for value, data in zip(obj, values, strict=True)]
        head = struct.pack("!iiIii", 1, 1, self._KINDS[obj.kind][0], len(obj), 1)
        return head + b"".join(chain.from_iterable(zip(map(_LENGTH, lengths), values, strict=True)))


_LENGTH: Final = struct.Struct("!i").pack
#: The values of arrays, without the lengths that come before them.
_TO_BYTES: Final[dict[type, Callable[[Any], bytes]]] = {int: struct.Struct("!q").pack, str: str.encode, bytes: bytes}


def _pack(value: Any) -> Any:
    """A text that may be compressed, as it is sent."""
    return b"\0" + value.encode() if isinstance(value, str) else value


def _shifted(text: bytes, by: int) -> bytes:
    """A text with its parameters numbered from further on."""
    return _PLACE.sub(lambda place: b"$%d" % (int(place[1]) + by), text)


STATEMENTS: Final = {name: Statement(text) for name, text in statements(PACKAGE).items()}


def piece(name: str, bindings: Bindings) -> Piece:
    """A statement by its name, and its values as they are sent."""
    statement = STATEMENTS[name]
    return statement.text, statement.bound(bindings)


def run_together(connection: Connection, pieces: Sequence[Piece]) -> list[RawCursor[Row]]:
    """Carry out statements in one round trip; those after one that fails are left out. Values travel beside the texts,
    so that the server's log never has them.
    """
    with connection.pipeline() if len(pieces) > 1 else nullcontext() as pipeline:
        if pipeline is not None:
            pipeline._exit_gen = partial(_end_pipeline, pipeline)  # type: ignore[method-assign]
        return [
            binary_cursor(connection).execute(text, values or None, prepare=None if values else False)
            for text, values in pieces
        ]


def _end_pipeline(pipeline: psycopg.Pipeline) -> Generator[Any, Any, None]:
    """End as psycopg does, without the request to flush that it sends last: after that the server would not count for
    how long a transaction stands still, and would never give it up.
    """
    try:
        try:
            pipeline._enqueue_sync()
            yield from pipeline._communicate_gen()
        finally:
            yield from pipeline._fetch_gen(flush=False)
    except psycopg.DatabaseError as problem:
        if pipeline.pgconn.status == psycopg.pq.ConnStatus.BAD:  # it tells of that as if a statement had failed
            raise psycopg.OperationalError(str(problem)) from problem
        raise


def binary_cursor(connection: Connection) -> RawCursor[Row]:
    """A cursor that reads numbers and bytes as they are."""
    cursor = RawCursor(connection, row_factory=tuple_row)
    cursor.format = psycopg.pq.Format.BINARY
    return cursor


def rows_of(row: RowType[R], statement: str, cursor: RawCursor[Row], page: list[Row] | None = None) -> list[R]:
    """The rows that a statement gave: all of them, or a page."""
    maker = MAKERS.get((row, statement))
    maker = maker or row_maker(row, statement, (column.name for column in cursor.description or ()))
    return list(map(maker, cursor.fetchall() if page is None else page))


def begin_for(begin: bytes, schema: str, subject: Subject, first: Question | None, *, writes: bool) -> list[Piece]:
    """What begins a transaction, locks a subject or looks it up, and asks something."""
    if writes:
        lock = piece("records.subject_lock", (tenant_lock(schema, subject), subject))
    else:
        lock = piece("records.subject_no", (subject,))
    # what is asked is a statement of its own: it sees what was committed before the lock was had
    return [(begin, ()), lock, *([] if first is None else [piece(*first)])]


def tenant_lock(schema: str, subject: Subject) -> int:
    """The lock of a subject's tenant."""
    return lock_key(schema, "tenant", subject.tenant)


def lock_key(*names: str) -> int:
    """The number that an advisory lock of this name has."""
    return int.from_bytes(blake2b("\0".join(names).encode(), digest_size=8, person=b"holdfast").digest(), signed=True)


@contextmanager
def _duplicates() -> Iterator[None]:
    """A name or a key that is taken raises ``DuplicateError``."""
    try:
        yield
    except errors.UniqueViolation as problem:
        raise DuplicateError(str(problem)) from problem


class PostgresTransaction:
    """A ``Transaction``. ``connection`` is there for what is PostgreSQL's alone."""

    is_alone = False

    def __init__(self, connection: Connection, *, schema: str, writes: bool, author: str = PYTHON) -> None:
        self.connection = connection
        self.author = author
        self.sign_texts: SignTexts = without_keys
        self.xid: str | None = None
        """Names a transaction that writes, once it has had a subject or governs: by it one can ask how it ended."""
        self._cursor = binary_cursor(connection)
        self._schema = schema
        self._writes = writes
        self._later: list[Question] = []
        self._ahead: defaultdict[Question, deque[RawCursor[Row]]] = defaultdict(deque)
        self._relied: Bindings | None = None
        self._guess: Guess | None = None
        self.instead: Instead | None = None
        self._numbers: dict[str, int] = {}
        self._answer: Row | None = None
        self.after: list[Callable[[], object]] = []
        """What is to be done once it is committed."""
        self.then = self.after.append
        self.found: Row | None = None
        """What the statement that it was begun with gave, if it was asked."""
        self.left: Row | None = None
        """How what it was begun with would be answered after it."""

    # --- statements ----------------------------------------------------------------------------------------------

    def _execute(self, name: str, bindings: Bindings) -> RawCursor[Row]:
        if self._ahead and (answers := self._ahead.get((name, tuple(bindings)))):
            return answers.popleft()
        return self._catch_up([piece(name, bindings)])[-1]

    def all(self, row: RowType[R], statement: str, bindings: Bindings = ()) -> list[R]:
        """All rows of a statement."""
        return rows_of(row, statement, self._execute(statement, bindings))

    def find(self, row: RowType[R], statement: str, bindings: Bindings = ()) -> R | None:
        """The first row of a statement, if there is one."""
        return next(iter(self.all(row, statement, bindings)), None)

    def first(self, row: RowType[R], statement: str, bindings: Bindings = ()) -> R:
        """The one row of the statement that a transaction for one subject was begun with."""
        answer, self._answer = self._answer, None
        self.found = answer or self._execute(statement, bindings).fetchone() or ()
        return row(*self.found)

    def expect(self, row: Row) -> None:
        """How that statement will be answered once this is committed."""
        self.left = row

    @property
    def can_guess(self) -> bool:
        """Whether it has not begun yet."""
        return self._relied is not None

    def guess(self, guess: Guess) -> None:
        """Let the one record that is to be added give way to what is there."""
        self._guess = guess

    def number(self, statement: str, bindings: Bindings = ()) -> int:
        """The number that a statement gives in its one row."""
        ((number,),) = self._execute(statement, bindings).fetchall()
        return int(number)

    def each(self, row: RowType[R], statement: str, bindings: Bindings = ()) -> Iterator[R]:
        """The rows of a statement as they come: by a cursor of the server's, since they may be many."""
        name = f"holdfast_{lock_key(statement, str(id(bindings)), str(len(self._numbers))) & 0xFFFFFFFF:x}"
        text = b"DECLARE " + name.encode() + b" NO SCROLL CURSOR FOR " + STATEMENTS[statement].text
        self._catch_up()
        self._cursor.execute(text, bindings)
        try:
            while page := self._cursor.execute(f"FETCH {_PAGE} FROM {name}".encode()).fetchall():
                yield from rows_of(row, statement, self._cursor, page)
        finally:
            if self.connection.info.transaction_status is psycopg.pq.TransactionStatus.INTRANS:
                self._cursor.execute(f"CLOSE {name}".encode())

    def run(self, statement: str, bindings: Bindings = ()) -> int:
        """Carry out a statement; how many rows it changed."""
        return max(0, self._execute(statement, bindings).rowcount)

    def later(self, statement: str, bindings: Bindings = ()) -> None:
        """Carry out a statement before the next one, or with the commit."""
        self._later.append((statement, bindings))

    def run_rows(self, statement: str, shared: Bindings, rows: Sequence[Bindings]) -> None:
        """Carry out a statement for some rows at once: it takes what they share, and then their columns, as arrays."""
        self.later(statement, (*shared, *map(Column, zip(*rows, strict=True))))

    def ask_ahead(self, questions: Iterable[Question]) -> None:
        """Carry out statements in one go, but for those whose answers wait already."""
        asked = [(name, bindings) for name, bindings in questions if not self._ahead.get((name, tuple(bindings)))]
        answers = self._catch_up([piece(*question) for question in asked]) if asked else []
        self.keep_answers(asked, answers[len(answers) - len(asked) :])

    def keep_answers(self, asked: Sequence[Question], answers: Sequence[RawCursor[Row]]) -> None:
        """Have the answers to what was asked wait for whoever asks it."""
        for (name, bindings), answer in zip(asked, answers, strict=True):
            self._ahead[name, tuple(bindings)].append(answer)

    def _catch_up(self, asked: Sequence[Piece] = ()) -> list[RawCursor[Row]]:
        """Carry out what was left for later, and begin after all if nothing has begun; the answers, last those to what
        is asked with it.
        """
        if self._guess is not None:
            raise GuessError
        relied, self._relied = self._relied, None
        pieces = [*self._take_later(), *asked]
        if relied is not None:
            pieces[:0] = [(BEGIN, ()), piece("records.expect_context", relied)]
        with _duplicates():
            answers = run_together(self.connection, pieces)
        if relied is not None and answers[1].fetchone() != (True,):
            raise AgainError
        return answers

    def _take_later(self) -> list[Piece]:
        """What was left for later. Rows in a row that are added to the same table are added by one statement; no two of
        them have the same first value, so that none can be changed twice by it.
        """
        later, self._later = self._later, []
        pieces: list[Piece] = []
        for name, alike in groupby(later, key=itemgetter(0)):
            many = [bindings for _, bindings in alike]
            if len({tuple(bindings[:1]) for bindings in many}) < len(many):
                pieces += (piece(name, bindings) for bindings in many)
            else:
                pieces += STATEMENTS[name].chunks(many)
        return pieces

    def commit(self) -> str | None:
        """Carry out what is left to be done, and commit; what the server calls it."""
        if self._relied is not None and [statement for statement, _ in self._later] == _ADD:
            values = (
                *self._relied,
                *(value for one in self._later for value in piece(*one)[1]),
                *(self._guess or _NONE),
            )
            found = self._cursor.execute(STATEMENTS["records.add_expected"].text, values).fetchone() or (None,)
            if not found[0]:
                raise AgainError if found[0] is None else GuessError
            self.instead = None if found[1] is None else Instead(*found[1:])
            return COMMITTED
        if self._relied is not None:
            self._catch_up()
        pieces = self._take_later()
        if len(self._numbers) > 1:  # a sweep: how many rows are dead is asked when it ends
            pieces.append((b"SELECT pg_stat_force_next_flush()", ()))
        return run_together(self.connection, [*pieces, (b"COMMIT", ())])[-1].statusmessage

    def run_many(self, statement: str, many: Iterable[Bindings]) -> None:
        """Carry out a statement for each of many bindings, in one go."""
        self._catch_up(list(STATEMENTS[statement].chunks(list(many))))

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """A part of the transaction that is undone by itself if it raises ``DuplicateError``."""
        self._catch_up()
        self._cursor.execute(b"SAVEPOINT attempt")
        try:
            yield
            self._catch_up()
        except DuplicateError:
            self._cursor.execute(b"ROLLBACK TO SAVEPOINT attempt")
            raise
        finally:
            if self.connection.info.transaction_status is psycopg.pq.TransactionStatus.INTRANS:
                self._cursor.execute(b"RELEASE SAVEPOINT attempt")

    @contextmanager
    def part(self) -> Iterator[None]:
        """A part of the transaction that is undone by itself if the block raises. A lock that it took is let go then:
        whoever needs the subject again waits for it again.
        """
        self._catch_up()
        self._cursor.execute(b"SAVEPOINT part")
        numbers, after = dict(self._numbers), len(self.after)
        try:
            yield
            self._catch_up()
        except BaseException:
            self._numbers, self._later = numbers, []
            del self.after[after:]
            if not self.connection.broken:
                self._cursor.execute(b"ROLLBACK TO SAVEPOINT part")
                self._cursor.execute(b"RELEASE SAVEPOINT part")
            raise
        self._cursor.execute(b"RELEASE SAVEPOINT part")

    # --- subjects ------------------------------------------------------------------------------------------------

    def number_of(self, subject: Subject) -> int | None:
        """The number of a subject that has been seen before. A transaction that writes has the subject to itself from
        here on.
        """
        if subject not in self._numbers:
            number = self._lock_subject(subject) if self._writes else self.find(int, "records.subject_no", (subject,))
            if number is None:
                return None
            self._numbers[subject] = number
        return self._numbers[subject]

    def numbers_of(self, subjects: Sequence[Subject]) -> list[int | None]:
        """The same for several, in the order of their numbers."""
        new = [subject for subject in dict.fromkeys(subjects) if subject not in self._numbers]
        if len(new) > 1:
            wanted: tuple[Column, ...] = (Column(map(str, new)),)
            if self._writes:
                locks = {tenant: tenant_lock(self._schema, one) for tenant, one in ((one.tenant, one) for one in new)}
                wanted = (Column(sorted(locks.values())), *wanted)
            name = "records.lock_subjects" if self._writes else "records.subject_numbers"
            for row in rows_of(NumberedRow, name, self._catch_up([piece(name, wanted)])[-1]):
                self._numbers[row.subject] = row.number
                self.xid = row.xid
        elif new:
            self.number_of(new[0])
        return [self._numbers.get(subject) for subject in subjects]

    def _lock_subject(self, subject: Subject) -> int | None:
        """Share the tenant's lock, find the subject, and wait for its lock: in one go."""
        row = self.find(Locked, "records.subject_lock", (tenant_lock(self._schema, subject), subject)) or Locked()
        self.xid = row.xid
        return row.number

    def start_with(self, subject: Subject, found: Row | None, answer: Row | None = None) -> None:
        """It was begun by locking a subject, or by looking it up; with what that gave, and what was asked first. A new
        subject is not locked: what was answered may not be so any more.
        """
        locked = Locked(*(found or ()))
        if locked.number is not None:
            self._numbers[subject] = locked.number
            self._answer = answer
        self.xid = locked.xid

    def rely_on(self, subject: Subject, first: Question, expected: Row) -> None:
        """It has not begun yet, and goes on only if the first question would be answered as expected."""
        self._relied = (tenant_lock(self._schema, subject), *first[1], as_record(expected))
        self._numbers[subject] = expected[0]
        self._answer = expected

    def number_for(self, subject: Subject, *, alias: bytes | None = None) -> int:
        """The same, for a subject seen before or not."""
        number = self.number_of(subject)
        while number is None:
            made = self.find(int, "records.new_subject", (subject, alias))
            if made is not None:
                self.run("records.new_subject_lock", (made,))
            number = self.number_of(subject)  # or another was faster
        return number

    def lock_subject(self, number: int) -> None:
        """Have a subject to itself, by its number."""
        self.find(int, "records.lock_subject", (number,))

    def lock_tenant(self, tenant: str) -> None:
        """Wait until nobody writes for a tenant's users, and let nobody write for them."""
        self._lock("tenant", tenant)

    def lock(self, what: str) -> None:
        """Wait for what only one may have."""
        self._lock("alone", what)

    def _lock(self, *names: str) -> None:
        statement = b"SELECT pg_current_xact_id()::text, pg_advisory_xact_lock($1)"
        xid, _ = self._cursor.execute(statement, (lock_key(self._schema, *names),)).fetchone() or (None, None)
        self.xid = xid
