"""What the relational stores ask of a database: transactions, and statements by their names.

Statements lie in ``.sql`` files that are named after the stores: in ``sql``, written once for all engines, or beside
each engine where they differ, with the same names, parameters and columns. A statement's rows are read into a class
whose fields have the names of its columns. What is read inside a transaction that writes stays as it is until that
ends: SQLite has one writer at a time, PostgreSQL one for each subject, and none of a tenant while that is governed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from holdfast.core.errors import ClosedError, InDoubtError, KeyMissingError
from holdfast.core.records import COUNT_BITS, KIND_BITS, LAST_KIND, MESSAGE_BITS, OWN, TYPES, State, Subject
from holdfast.core.values import parse_json_object

_NAME: Final = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)
_COMMENT: Final = re.compile(r"^--.*\n?", re.MULTILINE)
_SHARED: Final = "holdfast.storage.relational.sql"
#: Words that statements and migrations use with a colon before them, beside those that ``.sql`` files define.
_WORDS: Final = {
    "KIND_BITS": str(KIND_BITS),
    "COUNT_BITS": str(COUNT_BITS),
    "KEY_BITS": str(KIND_BITS + COUNT_BITS),
    "LAST_KIND": str(LAST_KIND),
    "MESSAGE_BITS": str(MESSAGE_BITS),
    "OWN_KINDS": ", ".join(str(TYPES[kind].code) for kind in OWN),
    "TEXT_KINDS": ", ".join(str(kind.code) for kind in TYPES.values() if kind.is_text),
}
#: A store remembers the numbers of so many subjects.
_MOST_NUMBERS: Final = 10_000
_WORD: Final = re.compile(r"(?<!:):([A-Z_]+)\b")
#: How each engine says what is written once for both. That is PostgreSQL's SQL, with SQLite's ``INDEXED BY``, and
#: ``IN LIST($1)`` for a JSON list of texts, ``packed($1)`` for a text that may be compressed, ``join_bytes(column)``
#: for all bytes of a column together. ``EACH table OF $1 BY condition``, to the end of the line, looks rows up by each
#: ``wanted.value`` of a JSON list, whatever a planner knows of the table: ``OFFSET 0`` keeps PostgreSQL from joining
#: otherwise.
_DIALECTS: Final = {
    "holdfast.storage.postgres": (
        (r" IN LIST\((\$\d+)\)", r" = ANY (ARRAY(SELECT jsonb_array_elements_text(\1::jsonb)))"),
        (
            r"EACH (\w+) OF (\$\d+) BY (.+)",
            (
                r"jsonb_array_elements_text(\2::jsonb) AS wanted "
                r"CROSS JOIN LATERAL (SELECT * FROM \1 WHERE \3 OFFSET 0) AS \1"
            ),
        ),
        (r" INDEXED BY \w+", ""),
        (r"join_bytes\((.+?)\)(?= AS )", r"string_agg(\1, ''::bytea)"),
    ),
    "holdfast.storage.sqlite": (
        (r" IN LIST\((\$\d+)\)", r" IN (SELECT value FROM json_each(\1))"),
        (r"EACH (\w+) OF (\$\d+) BY (.+)", r"(SELECT value FROM json_each(\2)) AS wanted JOIN \1 ON \3"),
        (r"packed\((\$\d+)\)", r"\1"),
        (r"join_bytes\((.+?)\)(?= AS )", r"CAST(string_agg(\1, '') AS BLOB)"),
        (r"convert_to\(([\w.]+), 'UTF8'\)", r"CAST(\1 AS BLOB)"),
        (r"::\w+", ""),
        (r"\$(\d+)", r"?\1"),
        (r"\bgreatest\(", "max("),
        (r"\bleast\(", "min("),
        (r"\bchr\(", "char("),
        (r"(?<!LEFT )\bJOIN\b", "CROSS JOIN"),  # in the order in which they are written
    ),
}


class Statements(dict[str, str]):
    """The statements of an engine, by their file and the ``-- name: …`` line above each: ``records.insert``. Those that
    are written once for all engines are among them, in the engine's own words. A file is read when a statement of it is
    first asked for. What is named in capitals are words that the statements of its file are made of; those of ``words``
    are for all files.
    """

    def __init__(self, package: str) -> None:
        super().__init__()
        self._package, self._dialect = package, _DIALECTS.get(package)
        self._shared: dict[str, Collection[str]] = {}
        """What of each file is written once for all engines: it is said in the engine's words when it is asked for."""
        self._words = _WORDS | self._read("words")
        self._words |= {word: _fill(text, self._words) for word, text in self._words.items()}  # some are made of others
        self._files: dict[str, dict[str, str]] = {}
        """What the files that were read say, before words are put in."""

    def __missing__(self, name: str) -> str:
        file, _, statement = name.partition(".")
        found = self._files.get(file) or self._load(file)
        if statement not in found or statement.isupper():
            raise KeyError(f"{self._package} has no statement {statement} in {file}.sql")
        text = found[statement]
        if statement in self._shared.get(file, ()):
            text = self._translate(text)
        self[name] = text = _fill(text, self._words | found)
        return text

    def load_all(self) -> Statements:
        """All of them, read now."""
        for package in (self._package, *([_SHARED] if self._package in _DIALECTS else [])):
            for file in _folder(package).iterdir():
                name = file.name.removesuffix(".sql")
                for statement in self._load(name) if name != file.name else ():
                    if not statement.isupper():
                        self[f"{name}.{statement}"]  # each is made when it is asked for
        return self

    def _load(self, file: str) -> dict[str, str]:
        found = self._read(file)
        words = {name: text for name, text in found.items() if name.isupper()}
        for word, text in [(word, text) for word, text in words.items() if "#" in text]:
            words |= _repeat(word, text)
        found |= {word: _fill(text, self._words | words) for word, text in words.items()}
        self._files[file] = found
        return found

    def _read(self, file: str) -> dict[str, str]:
        own = _read_file(self._package, file)
        if self._dialect is None:
            return own
        shared = _read_file(_SHARED, file)
        self._shared[file] = shared.keys() - own.keys()
        words = {name: self._translate(text) for name, text in shared.items() if name.isupper()}
        return {**shared, **words, **own}

    def _translate(self, text: str) -> str:
        for pattern, replacement in self._dialect or ():
            text = re.sub(pattern, replacement, text)
        return text


def _folder(package: str) -> Path:
    """Where the files of a package are. (``importlib.resources`` says so too, after loading a good deal.)"""
    return Path(__file__).parents[3].joinpath(*package.split("."))


@cache
def statements(package: str) -> Statements:
    """All statements of a package."""
    return Statements(package).load_all()


def _fill(text: str, words: Mapping[str, str]) -> str:
    return _WORD.sub(lambda word: words[word[1]], text)


def _read_file(package: str, name: str) -> dict[str, str]:
    file = _folder(package).joinpath(f"{name}.sql")
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    parts = [_COMMENT.sub("", part) for part in _NAME.split(text)[1:]]
    return {statement: body.strip() for statement, body in zip(parts[::2], parts[1::2], strict=True)}


def _repeat(word: str, text: str) -> dict[str, str]:
    """What is made of a condition that has ``#`` for a number below 8: whether any is met, and the number of that."""
    each = [text.replace("#", str(number)) for number in range(8)]
    place = " ".join(f"WHEN {one} THEN {number}" for number, one in enumerate(each))
    return {f"ANY_{word}": " OR ".join(f"({one})" for one in each), f"{word}_NUMBER": f"CASE {place} END"}


class Migration(NamedTuple):
    """A step from one version of a schema to the next."""

    number: int
    script: str


@cache
def migrations(package: str) -> list[Migration]:
    """The numbered migrations of an engine, in order."""
    folder = _folder(package).joinpath("migrations")
    files = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    texts = ((name, folder.joinpath(name).read_text(encoding="utf-8")) for name in files)
    return [Migration(int(name.partition("_")[0]), _fill(text, _WORDS)) for name, text in texts]


Row = tuple[Any, ...]
R = TypeVar("R")
#: A class with a field for each column of a statement, in their order; fields that have defaults may be left out. Or
#: ``int``, ``str``, ``bytes`` or ``Subject``, for a statement of one column.
RowType = Callable[..., R]
Bindings = Sequence[Any]
#: A statement and what it is asked with.
Question = tuple[str, Bindings]
T = TypeVar("T")


def digest(question: Question) -> bytes:
    """What a question is remembered by: it names a user, who may be erased, by whichever process."""
    return blake2b(repr(question).encode(errors="surrogatepass"), digest_size=16).digest()


class DuplicateError(Exception):
    """A statement would have made something there twice that can be there but once."""


class AgainError(Exception):
    """A write relied on what is not so any more, or its answer was lost: it is to be done again, if it is not there.

    ``doubt`` is what is to be said of one whose answer was lost, if nobody answers that either.
    """

    def __init__(self, doubt: InDoubtError | None = None) -> None:
        super().__init__("to be done again")
        self.doubt = doubt


class GuessError(Exception):
    """A write guessed what is there, and has done nothing: it is to be done again, and to ask."""


class Guess(NamedTuple):
    """What a record that is added by one statement gives way to: what has its text, or what goes by its name."""

    is_unique: bool = False
    agent: str | None = None
    """The agent whose texts count; ``None``: all of them."""
    is_put: bool = False
    """Whether it becomes the next version of what goes by its name."""
    actor: str | None = None
    source: str | None = None
    """Where it comes from, beside another agent's record."""
    is_labelled: bool = False
    """Whether rules may look at its metadata."""
    most_bytes: int | None = None


class Instead(NamedTuple):
    """What was there, where a write guessed."""

    id: str
    revision: int
    """The version that it has become; of one that has or had a text: 1, or 0 if it was corrected since."""
    bytes: int | None
    """What is counted in its scope then, if it was changed."""


#: Stands in rows that do not say whose they are.
NOBODY: Final = Subject.parse("")
#: How the rows of a statement are made, once its columns were found to be the fields of the row.
MAKERS: Final[dict[tuple[object, str], Callable[[Row], Any]]] = {}


_KINDS: Final = {kind.code: kind.name for kind in TYPES.values()}
#: How fields of some types are made of what a column gives; ``None`` stays what it is.
_FIELDS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "Subject": Subject.parse,
    "State": State,
    "State | None": State,
    "MemoryType": lambda code: _KINDS[code],  # kinds are stored as numbers
    "bool": bool,
    "dict[str, Any]": parse_json_object,
    "dict[str, Any] | None": parse_json_object,
}
#: How a column by itself is read.
_PLAIN: Final[Mapping[Any, Callable[[Any], Any]]] = {int: int, str: str, bytes: bytes, Subject: Subject.parse}


def row_maker(row: Any, statement: str, columns: Iterable[str]) -> Callable[[Row], Any]:
    """How rows are made of what a statement gives, from now on in ``MAKERS``; ``TypeError`` unless its columns are
    their first fields.
    """
    MAKERS[row, statement] = maker = _make_maker(row, statement, tuple(columns))
    return maker


def _make_maker(row: Any, statement: str, names: tuple[str, ...]) -> Callable[[Row], Any]:
    if row in _PLAIN:
        return partial(_read_plain, _PLAIN[row])
    if row.__match_args__[: len(names)] != names:
        raise TypeError(f"{statement} gives {', '.join(names)}; {row.__name__} has {', '.join(row.__match_args__)}")
    hints = [getattr(hint := row.__annotations__[name], "__forward_arg__", hint) for name in names]
    converted = [(place, _FIELDS[hint]) for place, hint in enumerate(hints) if hint in _FIELDS]
    new = partial(tuple.__new__, row)  # a class with named fields: its own ``__new__`` is a call of Python for each row
    if not issubclass(row, tuple):
        new = partial(_construct, row)
    rest = tuple(row._field_defaults[name] for name in row._fields[len(names) :]) if issubclass(row, tuple) else ()
    if not converted:
        return (lambda values: new(values + rest)) if rest else new

    def make(values: Row) -> Any:
        fields = [*values, *rest]
        for place, convert in converted:
            if fields[place] is not None:
                fields[place] = convert(fields[place])
        return new(fields)

    return make


def _read_plain(kind: Callable[[Any], Any], values: Row) -> Any:
    (value,) = values
    return None if value is None else kind(value)


def _construct(row: Callable[..., Any], values: Sequence[Any]) -> Any:
    return row(*values)


#: Makes fingerprints of hashes of texts under the data key of a pseudonym; ``StorageError`` if the key is out of reach.
SignTexts = Callable[[str, Sequence[int]], list[str]]


def without_keys(alias: str, _hashes: Sequence[int]) -> list[str]:
    """Signs nothing: for a database that was opened without a keyring."""
    raise KeyMissingError(f"key {alias} is out of reach: the database was opened without a keyring")


class Transaction(Protocol):
    """A transaction. Statements that would make something twice raise ``DuplicateError``."""

    author: str
    """Whom audit entries name where no edge says who acts: the author that the store was opened with."""
    sign_texts: SignTexts

    @property
    def is_alone(self) -> bool:
        """Whether nobody else writes anything in the store meanwhile."""

    @property
    def can_guess(self) -> bool:
        """Whether it has asked nothing so far, and might be carried out by one statement."""

    @property
    def instead(self) -> Instead | None:
        """What was there, once it is committed; ``None`` if the record was added."""

    def guess(self, guess: Guess, /) -> None:
        """Let the one record that is to be added give way, instead of asking what is there. Where that takes more than
        one statement, ``GuessError`` is raised, here or with the commit.
        """

    def all(self, row: RowType[R], statement: str, bindings: Bindings = (), /) -> list[R]:
        """All rows of a statement."""

    def find(self, row: RowType[R], statement: str, bindings: Bindings = (), /) -> R | None:
        """The first row of a statement, if there is one."""

    def each(self, row: RowType[R], statement: str, bindings: Bindings = (), /) -> Iterator[R]:
        """The rows of a statement as they come, for when they are too many to hold."""

    def first(self, row: RowType[R], statement: str, bindings: Bindings = (), /) -> R:
        """The one row of the statement that a transaction for one subject was begun with."""

    def expect(self, row: Row, /) -> None:
        """How that statement will be answered once this is committed: the next write may rely on it, and raises
        ``AgainError`` if it should not have.
        """

    def number(self, statement: str, bindings: Bindings = (), /) -> int:
        """The number that a statement gives in its one row."""

    def run(self, statement: str, bindings: Bindings = (), /) -> int:
        """Carry out a statement; how many rows it changed."""

    def later(self, statement: str, bindings: Bindings = (), /) -> None:
        """Carry out a statement before the next one, or with the commit: nobody waits for what it would say."""

    def run_many(self, statement: str, many: Iterable[Bindings], /) -> None:
        """Carry out a statement for each of many bindings."""

    def run_rows(self, statement: str, shared: Bindings, rows: Sequence[Bindings], /) -> None:
        """Carry out a statement for each of some rows, whose first values they share, as ``later`` does: at once, where
        the engine can.
        """

    def ask_ahead(self, questions: Iterable[Question], /) -> None:
        """Carry out statements in one go, but for those whose answers wait already. The next who asks one of them, with
        the same values, has that answer.
        """

    def attempt(self) -> AbstractContextManager[None]:
        """A part of the transaction that is undone by itself if it raises ``DuplicateError``."""

    def number_of(self, subject: Subject, /) -> int | None:
        """The number of a subject that has been seen before. A transaction that writes has the subject to itself from
        here on.
        """

    def numbers_of(self, subjects: Sequence[Subject], /) -> list[int | None]:
        """The same for several. They are locked in the order of their numbers, as by everybody who locks several."""

    def number_for(self, subject: Subject, /, *, alias: bytes | None = None) -> int:
        """The same, for a subject seen before or not; one that was not has the pseudonym ``alias``, or a new one."""

    def lock_subject(self, number: int, /) -> None:
        """Have a subject to itself, by its number."""

    def lock_tenant(self, tenant: str, /) -> None:
        """Let nobody else write for a tenant's users until the transaction ends."""

    def lock(self, what: str, /) -> None:
        """Wait for what only one transaction may have at a time."""

    def then(self, do: Callable[[], object], /) -> None:
        """Do something once the transaction is committed; nothing, if it is undone."""


class Transactions(Protocol):
    """Where the stores keep everything."""

    @property
    def is_shared(self) -> bool:
        """Whether a block that writes is, just now, only a part of a transaction, which others do not see when the
        block ends.
        """

    @property
    def writers(self) -> int:
        """How many transactions that write, for different subjects, can be under way at the same time."""

    def read(self, subject: Subject | None = None, /) -> AbstractContextManager[Transaction]:
        """A consistent view of the store as it is now; begun sooner where it is said whom it will ask about."""

    def ask(
        self, row: RowType[R], statement: str, bindings: Bindings = (), /, *, patience: float | None = None
    ) -> list[R]:
        """The rows of one statement, which is a consistent view by itself and needs no transaction around it.

        With ``patience``, ``StoreAwayError`` where no connection is to be had within so many seconds.
        """

    def write(
        self, subject: Subject | None = None, first: Question | None = None, ahead: Sequence[Question] = (), /
    ) -> AbstractContextManager[Transaction]:
        """A transaction that writes for one subject, or for several in the order of their numbers: committed, durably,
        when the block ends; undone if it raises. It is begun sooner where it is said for whom, and what will be asked
        first, or asked at all (``ahead``: see ``ask_ahead``).
        """

    def govern(self, tenant: str, /) -> AbstractContextManager[Transaction]:
        """A transaction that changes what holds for all of a tenant's users: nobody writes for them meanwhile."""

    def alone(self, what: str, /) -> AbstractContextManager[Transaction]:
        """A transaction that changes what belongs to no tenant; one at a time for each ``what``."""

    def groups(self, batches: Sequence[T], /) -> Iterator[Sequence[T]]:
        """Batches of several subjects, in groups that are to share a transaction."""

    def give_back(self, pages: int, /) -> int:
        """Give unused pages back to the disk, some at a time; how many are left."""

    def scrub(self, seconds: float = 2.0, /) -> bool:
        """Leave nothing of deleted rows in files, as far as the engine can; ``False`` where a reader prevents it for so
        many seconds, for which writers may wait, too.
        """


class Database(Transactions, Protocol):
    """The connections to one database."""

    engine: str
    """``sqlite`` or ``postgresql``."""
    author: str
    """Whom audit entries name where no edge says who acts."""
    sign_texts: SignTexts
    on_commit: Callable[[], None]
    """Called after each commit of a transaction that writes, outside of it; it never raises."""

    def count_connections(self) -> Mapping[str, int]:
        """Connections of this process that are ``in_use`` and ``idle``, how many there may be (``limit``), how many
        calls wait for one (``waiting``) and have waited in vain (``refused``); nothing where nobody has to wait.
        """

    def part(self, tx: Any, /) -> AbstractContextManager[None]:
        """A part of a transaction that writes: undone by itself if the block raises, with errors as ``write`` has them.
        It is committed with the rest.
        """

    def check_usable(self) -> None:
        """Raise ``ClosedError`` unless it is open, in the process that opened it."""

    @property
    def usable(self) -> bool:
        """Whether it is open, in the process that opened it."""

    def close(self) -> None:
        """Close every connection; what is called afterwards raises ``ClosedError``."""


class OpenState:
    """Whether a database is open, in the process that opened it: connections do not survive a fork."""

    def __init__(self, place: object) -> None:
        self._place = place
        self._pid = os.getpid()
        self.is_closed = False

    @property
    def is_usable(self) -> bool:
        """Whether it is open, in the process that opened it."""
        return not self.is_closed and os.getpid() == self._pid

    def check(self) -> None:
        """Raise ``ClosedError`` unless it is usable."""
        if self.is_closed:
            raise ClosedError(f"the store {self._place} was closed; open it again with Holdfast.open()")
        if os.getpid() != self._pid:
            raise ClosedError(
                f"the store {self._place} was opened by process {self._pid}, and connections do not survive a fork; "
                "open Holdfast in each process"
            )


class SqlStore:
    """A store over a database."""

    def __init__(self, database: Transactions) -> None:
        self._database = database
        self._numbers: dict[int, int] = {}
        """Of subjects, by their hashes: a user may be erased. Who relies on a number asks whose it is."""

    def _find(self, row: RowType[R], statement: str, *bindings: object) -> R | None:
        """The first row of one statement, if there is one."""
        return next(iter(self._database.ask(row, statement, bindings)), None)

    def _ask_about(self, subject: Subject, row: RowType[R], statement: str, *bindings: object) -> list[R]:
        """The rows of a statement whose first parameter is the number of a subject; none, if nobody knows them."""
        with self._database.read(subject) as tx:
            number = tx.number_of(subject)
            return [] if number is None else tx.all(row, statement, (number, *bindings))

    def _ask_known(self, subject: Subject, row: RowType[R], statement: str, *bindings: object) -> list[R]:
        """The same in one statement, where the number is known from before.

        Its second parameter is the subject: it gives no row if that is not whose number it is, which is looked up then.
        """
        known = self._numbers.get(hash(subject))
        if known is not None and (rows := self._database.ask(row, statement, (known, subject, *bindings))):
            return rows
        number = self._find(int, "records.subject_no", subject)
        if number is None or number == known:
            return []
        self._remember(subject, number)
        return self._database.ask(row, statement, (number, subject, *bindings))

    @contextmanager
    def _write_for(
        self, subject: Subject, questions: Callable[[int], Sequence[Question]]
    ) -> Iterator[tuple[Transaction, int | None]]:
        """A transaction that writes for one subject, and begins with questions that need the subject's number; and
        that number, if the subject was seen before.

        Where the number is known from before, they travel with the lock. If it is another one now, nobody asks them.
        """
        known = self._numbers.get(hash(subject))
        with self._database.write(subject, None, () if known is None else questions(known)) as tx:
            number = tx.number_of(subject)
            if number is not None and number != known:
                tx.ask_ahead(questions(number))
                self._remember(subject, number)
            yield tx, number

    def _remember(self, subject: Subject, number: int) -> None:
        if len(self._numbers) >= _MOST_NUMBERS:
            self._numbers.clear()
        self._numbers[hash(subject)] = number

    def _change(self, statement: str, *bindings: object) -> int:
        """Carry out one statement in a transaction of its own; how many rows it changed."""
        with self._database.write() as tx:
            return tx.run(statement, bindings)
