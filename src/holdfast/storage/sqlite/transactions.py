"""A transaction of SQLite: statements by their names, each carried out at once by the one writer or a reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, cast

import apsw

from holdfast.core.audit import PYTHON
from holdfast.core.records import Subject
from holdfast.storage.relational.database import (
    MAKERS,
    Bindings,
    DuplicateError,
    Guess,
    GuessError,
    Question,
    R,
    Row,
    RowType,
    SignTexts,
    Statements,
    row_maker,
    without_keys,
)

PACKAGE: Final = "holdfast.storage.sqlite"
_SQL: Final = Statements(PACKAGE)
#: The statements that change nothing of what a write asks first, but for the counts of its scope, which it knows.
_ADD: Final = frozenset(
    {
        *("records.subject_no", "records.write_context", "records.named", "records.of_text", "records.current"),
        *(
            "records.insert",
            "records.replace",
            "records.rename",
            "records.derive",
            "records.underive",
            "records.log_change",
        ),
        *("records.put_scope", "records.model", "rules.profile", "versions.end", "versions.trim"),
    }
)
_TWICE: Final = frozenset({apsw.SQLITE_CONSTRAINT_UNIQUE, apsw.SQLITE_CONSTRAINT_PRIMARYKEY})


class LastAnswer:
    """What the question that the last write began with would be answered now, as long as nobody has written since.

    SQLite says whether anybody has, so that the next write with the same question need not ask. It is for whoever has
    the writer.
    """

    __slots__ = ("_digest", "_row", "_version")

    def __init__(self) -> None:
        self._digest, self._version = b"", -1
        self._row: Row | None = None

    def take(self, asked: bytes | None, version: int) -> Row | None:
        """The answer to a question, by its digest, if it is known, in a transaction that has begun with the file in a
        version.
        """
        return self._row if asked is not None and version == self._version and asked == self._digest else None

    def leave(self, asked: bytes | None, row: Row | None, version: int) -> None:
        """What the answer is after a transaction that has left the file in a version; ``None`` if nobody knows."""
        self._row, self._version = None if asked is None else row, version
        self._digest = asked or b""


class SqliteTransaction:
    """A ``Transaction`` of the embedded engine. ``connection`` is there for what is SQLite's alone."""

    __slots__ = ("__weakref__", "_adds", "_answer", "_left", "after", "author", "connection", "sign_texts", "then")
    is_alone = True
    can_guess = False
    instead = None

    def __init__(
        self,
        connection: apsw.Connection,
        author: str = PYTHON,
        sign_texts: SignTexts = without_keys,
        answer: Row | None = None,
    ) -> None:
        """``answer`` is that to the statement that it is begun with, where it is known; a subject's number comes first
        in it.
        """
        self.connection = connection
        self.author = author
        self.sign_texts = sign_texts
        self._answer = answer
        self._left: Row | None = None
        self._adds = True
        self.after: list[Callable[[], object]] = []
        """What is to be done once it is committed."""
        self.then = self.after.append

    @property
    def left(self) -> Row | None:
        """How the statement that it was begun with is answered after it, if it has changed nothing else of that."""
        return self._left if self._adds else None

    def _execute(self, statement: str, bindings: Bindings) -> apsw.Cursor:
        if statement not in _ADD:
            self._adds = False
        try:
            return self.connection.execute(_SQL[statement], bindings)
        except apsw.ConstraintError as problem:
            raise _duplicate(problem) from problem

    def all(self, row: RowType[R], statement: str, bindings: Bindings = ()) -> list[R]:
        """All rows of a statement."""
        return list(self.each(row, statement, bindings))

    def find(self, row: RowType[R], statement: str, bindings: Bindings = ()) -> R | None:
        """The first row of a statement, if there is one."""
        cursor = self._execute(statement, bindings)
        for found in cursor:
            return _maker(row, statement, cursor)(found)
        return None

    def each(self, row: RowType[R], statement: str, bindings: Bindings = ()) -> Iterator[R]:
        """The rows of a statement as they come."""
        return _make_rows(row, statement, self._execute(statement, bindings))

    def first(self, row: RowType[R], statement: str, bindings: Bindings = ()) -> R:
        """The one row of the statement that a transaction was begun with: asked now, unless the answer is known."""
        (found,) = self.all(row, statement, bindings) if self._answer is None else (self._answer,)
        return cast("R", found)

    def expect(self, row: Row) -> None:
        """How that statement will be answered once this is committed."""
        self._left = row

    def guess(self, _guess: Guess) -> None:
        """Nothing travels here: asking costs no more."""
        raise GuessError

    def number(self, statement: str, bindings: Bindings = ()) -> int:
        """The number that a statement gives in its one row."""
        ((number,),) = self._execute(statement, bindings)
        return int(number)

    def run(self, statement: str, bindings: Bindings = ()) -> int:
        """Carry out a statement; how many rows it changed."""
        self._execute(statement, bindings)
        return self.connection.changes()

    def later(self, statement: str, bindings: Bindings = ()) -> None:
        """Carry out a statement: here nothing is waited for."""
        self._execute(statement, bindings)

    def run_many(self, statement: str, many: Iterable[Bindings]) -> None:
        """Carry out a statement for each of many bindings."""
        if statement not in _ADD:
            self._adds = False
        try:
            self.connection.executemany(_SQL[statement], many)
        except apsw.ConstraintError as problem:
            raise _duplicate(problem) from problem

    def run_rows(self, statement: str, shared: Bindings, rows: Sequence[Bindings]) -> None:
        """Carry out a statement for each of some rows, whose first values they share."""
        self.run_many(statement, [(*shared, *row) for row in rows])

    def ask_ahead(self, questions: Iterable[Question]) -> None:
        """Nobody is far away: each is asked when its answer is wanted."""

    def attempt(self) -> AbstractContextManager[None]:
        """A statement that fails undoes itself."""
        return nullcontext()

    def number_of(self, subject: Subject) -> int | None:
        """The number of a subject that has been seen before."""
        for (number,) in self._execute("records.subject_no", (subject,)):
            return int(number)
        return None

    def numbers_of(self, subjects: Sequence[Subject]) -> list[int | None]:
        """The same for several."""
        return [self.number_of(subject) for subject in subjects]

    def number_for(self, subject: Subject, *, alias: bytes | None = None) -> int:
        """The number of a subject, seen before or not."""
        number = self.number_of(subject) if self._answer is None else self._answer[0]
        return self.number("records.new_subject", (subject, alias)) if number is None else number

    def lock_subject(self, number: int) -> None:
        """There is one writer at a time."""

    def lock_tenant(self, tenant: str) -> None:
        """There is one writer at a time."""

    def lock(self, what: str) -> None:
        """There is one writer at a time."""


def ask(connection: apsw.Connection, row: RowType[R], statement: str, bindings: Bindings) -> list[R]:
    """All rows of a statement that only looks, and needs no transaction."""
    cursor, known = connection.execute(_SQL[statement], bindings), MAKERS.get((row, statement))
    return [*(_make_rows(row, statement, cursor) if known is None else map(known, cursor))]


def _make_rows(row: RowType[R], statement: str, cursor: apsw.Cursor) -> Iterator[R]:
    try:
        return map(_maker(row, statement, cursor), cursor)
    except apsw.ExecutionCompleteError:  # it gives no rows, and does not say of which columns
        return iter(())


def _maker(row: RowType[R], statement: str, cursor: apsw.Cursor) -> Callable[[Row], R]:
    """How rows are made of what a cursor gives, which has something to give."""
    known = MAKERS.get((row, statement))
    return known or row_maker(row, statement, (name for name, *_ in cursor.get_description()))


def _duplicate(problem: apsw.ConstraintError) -> Exception:
    """``DuplicateError`` if a statement failed because something would be there twice; else the problem itself."""
    return DuplicateError(str(problem)) if getattr(problem, "extendedresult", None) in _TWICE else problem
