"""A transaction of PostgreSQL: statements by their names, and what it has to itself.

A subject's writers take turns: each locks the subject's row of ``turns`` first. Before that it passes the tenant's
gate, an advisory lock that writers share, so that what holds for the whole tenant (rules, holds, agents) stays as it is
while they rely on it; whoever changes such a thing closes the gate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, Final

import psycopg
from psycopg import RawCursor, errors
from psycopg.rows import tuple_row

from retain.storage.postgres.expecting import as_record
from retain.storage.relational.database import Bindings, DuplicateError, Question, Row
from retain.storage.relational.statements import statements

PACKAGE: Final = "retain.storage.postgres"
#: Text that may be stored compressed is bytes here; where it is not compressed, a zero byte is before it.
_PACKED: Final = re.compile(r"packed\((\$(\d+))\)")
_PAGE: Final = 2_000
#: Rows are written so many at a time, as the values of one statement.
_TOGETHER: Final = (256, 32, 4)
_VALUES: Final = re.compile(rb"VALUES \(([^()]*)\)$")
_PLACE: Final = re.compile(rb"\$(\d+)")
Connection = psycopg.Connection[Any]


def _text(value: str) -> bytes:
    if "\0" in value:
        raise psycopg.DataError(f"PostgreSQL cannot hold {value!r:.60}")
    return b" E'" + str.__str__(value).replace("\\", "\\\\").replace("'", "''").encode() + b"'"


def _literal(value: object) -> bytes:
    """A value of a class of its own, such as an enumeration, as a literal."""
    for known, spell in _LITERALS.items():
        if isinstance(value, known):
            return spell(value)
    raise psycopg.DataError(f"PostgreSQL cannot hold {value!r:.60}")


#: How values are written inside a statement; a truth is a number, too, and comes before them.
_LITERALS: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): lambda _: b"NULL",
    bool: lambda value: b"true" if value else b"false",
    int: lambda value: b"(%d)" % value,
    str: _text,
    bytes: lambda value: b"'\\x" + value.hex().encode() + b"'::bytea",
}


class Statement:
    """A statement, and which of its parameters are such texts."""

    __slots__ = ("_parts", "_places", "_several", "packed", "text")

    def __init__(self, text: str) -> None:
        self.packed = tuple(sorted({int(number) - 1 for _, number in _PACKED.findall(text)}))
        self.text = _PACKED.sub(r"\1", text).encode()
        split = _PLACE.split(self.text)
        self._parts = split[::2]
        self._places = [int(place) - 1 for place in split[1::2]]
        self._several: dict[int, bytes] = {}

    def bound(self, bindings: Bindings) -> Bindings:
        """The values as they are sent."""
        if not self.packed:
            return bindings
        values = list(bindings)
        for place in self.packed:
            if isinstance(values[place], str):
                values[place] = b"\0" + values[place].encode()
        return values

    def spelled_out(self, bindings: Bindings) -> bytes:
        """The text with its values in place of its parameters."""
        literals = [_LITERALS.get(type(value), _literal)(value) for value in self.bound(bindings)]
        texts = [self._parts[0]]
        for place, part in zip(self._places, self._parts[1:], strict=True):
            texts += (literals[place], part)
        return b"".join(texts)

    def chunks(self, many: list[Bindings]) -> Iterator[tuple[bytes, Bindings]]:
        """Texts and values that together write many rows; for a statement that ends with the values of one."""
        start, left = 0, len(many)
        for size in (*_TOGETHER, 1):
            while left >= size and (size == 1 or self.is_plain):
                values = [value for row in many[start : start + size] for value in self.bound(row)]
                yield self._for(size, len(many[0])), values
                start, left = start + size, left - size

    @property
    def is_plain(self) -> bool:
        """Whether it ends with the values of one row."""
        return _VALUES.search(self.text) is not None

    def _for(self, size: int, width: int) -> bytes:
        one = _VALUES.search(self.text)
        if one is None or size == 1:
            return self.text
        if size not in self._several:
            rows = (b"(" + _shifted(one[1], row * width) + b")" for row in range(size))
            self._several[size] = self.text[: one.start()] + b"VALUES " + b", ".join(rows)
        return self._several[size]


def _shifted(text: bytes, by: int) -> bytes:
    """A text with its parameters numbered from further on."""
    return _PLACE.sub(lambda place: b"$%d" % (int(place[1]) + by), text)


STATEMENTS: Final = {name: Statement(text) for name, text in statements(PACKAGE).items()}


def begin_for(begin: bytes, schema: str, subject: str, first: Question | None, *, writes: bool) -> bytes:
    """The text that begins a transaction, takes a subject's turn or looks it up, and asks something, at one go."""
    statement = STATEMENTS["records.take_turn" if writes else "records.subject_no"]
    values = (gate_of(schema, subject), subject) if writes else (subject,)
    texts = [begin, statement.spelled_out(values)]
    if first is not None:  # by a statement of its own: it sees what was committed before the turn came
        texts.append(STATEMENTS[first[0]].spelled_out(first[1]))
    return b"; ".join(texts)


def begin_relying(schema: str, subject: str, first: Question, expected: Row) -> bytes:
    """The text that begins a transaction and takes a subject's turn, if something would be answered as expected."""
    values = (gate_of(schema, subject), *first[1], as_record(expected))
    return b"BEGIN; " + STATEMENTS["records.expect_opening"].spelled_out(values)


def gate_of(schema: str, subject: str) -> int:
    """The lock that is the gate of a subject's tenant."""
    return lock_key(schema, "gate", subject.split("/", 1)[0])


def lock_key(*names: str) -> int:
    """The number that an advisory lock of this name has."""
    return int.from_bytes(blake2b("\0".join(names).encode(), digest_size=8, person=b"retain").digest(), signed=True)


class PostgresTransaction:
    """A ``Transaction``. ``connection`` is there for what is PostgreSQL's alone."""

    is_alone = False

    def __init__(self, connection: Connection, *, schema: str, writes: bool) -> None:
        self.connection = connection
        self.xid: str | None = None
        """Names a transaction that writes, once it has had a subject or governs: by it one can ask how it ended."""
        self._cursor = RawCursor(connection, row_factory=tuple_row)
        self._cursor.format = psycopg.pq.Format.BINARY
        self._schema = schema
        self._writes = writes
        self._later: list[bytes] = []
        self._numbers: dict[str, int] = {}
        self._answer: Row | None = None
        self.found: Row | None = None
        """What the statement that it was begun with gave, if it was asked."""
        self.left: Row | None = None
        """How what it was begun with would be answered after it."""

    # --- statements ----------------------------------------------------------------------------------------------

    def _execute(self, name: str, bindings: Bindings) -> RawCursor[Row]:
        statement = STATEMENTS[name]
        self._catch_up()
        try:
            return self._cursor.execute(statement.text, statement.bound(bindings))
        except errors.UniqueViolation as problem:
            raise DuplicateError(str(problem)) from problem

    def rows(self, statement: str, bindings: Bindings = ()) -> list[Row]:
        """All rows of a statement."""
        return self._execute(statement, bindings).fetchall()

    def one(self, statement: str, bindings: Bindings = ()) -> Row | None:
        """The first row of a statement, if there is one."""
        return self._execute(statement, bindings).fetchone()

    def first(self, statement: str, bindings: Bindings = ()) -> Row | None:
        """The same, of the statement that a transaction for one subject was begun with."""
        answer, self._answer = self._answer, None
        self.found = answer or self.one(statement, bindings)
        return self.found

    def expect(self, row: Row) -> None:
        """How that statement will be answered once this is committed."""
        self.left = row

    def value(self, statement: str, bindings: Bindings = ()) -> int:
        """The number that a statement gives in its one row."""
        row = self.one(statement, bindings)
        assert row is not None  # noqa: S101 - such a statement (a RETURNING, a count) always has a row
        return int(row[0])

    def stream(self, statement: str, bindings: Bindings = ()) -> Iterator[Row]:
        """The rows of a statement as they come: by a cursor of the server's, since they may be many."""
        name = f"retain_{lock_key(statement, str(id(bindings)), str(len(self._numbers))) & 0xFFFFFFFF:x}"
        text = b"DECLARE " + name.encode() + b" NO SCROLL CURSOR FOR " + STATEMENTS[statement].text
        self._catch_up()
        self._cursor.execute(text, bindings)
        try:
            while page := self._cursor.execute(f"FETCH {_PAGE} FROM {name}".encode()).fetchall():
                yield from page
        finally:
            if self.connection.info.transaction_status is psycopg.pq.TransactionStatus.INTRANS:
                self._cursor.execute(f"CLOSE {name}".encode())

    def run(self, statement: str, bindings: Bindings = ()) -> int:
        """Carry out a statement; how many rows it changed."""
        return max(0, self._execute(statement, bindings).rowcount)

    def later(self, statement: str, bindings: Bindings = ()) -> None:
        """Carry out a statement before the next one, or with the commit."""
        self._later.append(STATEMENTS[statement].spelled_out(bindings))

    def _catch_up(self) -> None:
        if self._later:
            texts, self._later = self._later, []
            self.connection.execute(b"; ".join(texts), prepare=False)

    def ending(self) -> bytes:
        """What is left to be carried out, and the commit, as one text."""
        texts, self._later = self._later, []
        return b"; ".join([*texts, b"COMMIT"])

    def run_many(self, statement: str, many: Iterable[Bindings]) -> None:
        """Carry out a statement for each of many bindings, in one go."""
        self._catch_up()
        try:
            for text, values in STATEMENTS[statement].chunks(list(many)):
                self._cursor.execute(text, values)
        except errors.UniqueViolation as problem:
            raise DuplicateError(str(problem)) from problem

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """A part of the transaction that is undone by itself if it raises ``DuplicateError``."""
        self._catch_up()
        self._cursor.execute(b"SAVEPOINT attempt")
        try:
            yield
        except DuplicateError:
            self._cursor.execute(b"ROLLBACK TO SAVEPOINT attempt")
            raise
        finally:
            if self.connection.info.transaction_status is psycopg.pq.TransactionStatus.INTRANS:
                self._cursor.execute(b"RELEASE SAVEPOINT attempt")

    # --- subjects ------------------------------------------------------------------------------------------------

    def number_of(self, subject: str) -> int | None:
        """The number of a subject that has been seen before. A transaction that writes has the subject to itself from
        here on.
        """
        if subject not in self._numbers:
            number = self._take_turn(subject) if self._writes else self.one("records.subject_no", (subject,))
            if number is None or number[0] is None:
                return None
            self._numbers[subject] = number[0]
        return self._numbers[subject]

    def _take_turn(self, subject: str) -> Row:
        """Pass the tenant's gate, find the subject, and wait for its turn: in one go."""
        row = self.one("records.take_turn", (gate_of(self._schema, subject), subject)) or (None, None)
        self.xid = row[1]
        return row

    def begun_for(self, subject: str, row: Row | None, answer: Row | None) -> None:
        """It was begun by taking a subject's turn, or by looking a subject up; with what that gave, and what was asked
        first. For a subject that nobody has seen, no turn was taken: what was answered may not be so any more.
        """
        if row is not None and row[0] is not None:
            self._numbers[subject] = row[0]
            self._answer = answer
        if self._writes and row is not None:
            self.xid = row[1]

    def begins_with(self, subject: str, text: bytes, expected: Row) -> None:
        """It begins with its first statement, by a text that relies on an answer."""
        self._later.append(text)
        self._numbers[subject] = expected[0]
        self._answer = expected

    def number_for(self, subject: str) -> int:
        """The same, for a subject seen before or not."""
        number = self.number_of(subject)
        while number is None:
            row = self.one("records.new_subject", (subject,))
            if row is not None:
                self.run("records.new_turn", (row[0],))
            number = self.number_of(subject)  # or another was faster
        return number

    def have(self, number: int) -> None:
        """Have a subject to itself, by its number."""
        self.one("records.lock_subject", (number,))

    def close_gate(self, tenant: str) -> None:
        """Wait until nobody is past a tenant's gate, and let nobody pass."""
        self._lock(b"SELECT pg_current_xact_id()::text, pg_advisory_xact_lock($1)", "gate", tenant)

    def take(self, what: str) -> None:
        """Wait for what only one may have."""
        self._lock(b"SELECT pg_current_xact_id()::text, pg_advisory_xact_lock($1)", "alone", what)

    def _lock(self, statement: bytes, *names: str) -> None:
        row = self._cursor.execute(statement, (lock_key(self._schema, *names),)).fetchone()
        self.xid = None if row is None else str(row[0])
