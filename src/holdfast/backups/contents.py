"""What a backup holds of a store: the rows of each user, the audit chains, and what belongs to everybody."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from holdfast.backups.layout import ROWS, Frame, Sort, write_frame
from holdfast.core.errors import ObjectDamagedError, StoreTooNewError
from holdfast.core.records import COUNT_BITS, LAST_KIND, TYPES, MemoryType, Subject
from holdfast.ports.backups import Row, RowReader
from holdfast.storage.catalog import TABLES, Backup, Table, table_of, tables_in

#: Users who are read together, and memories that are read together.
_USERS: Final = 500
_MEMORIES: Final = 20_000
#: The tables that show whether anything of a user has changed: whatever changes in the others changes in these.
_SHOW_CHANGE: Final = {table.name for table in tables_in(Backup.OWN) if table.shows_change}
#: The name of a user who is being erased begins with it; no other name has a control character.
_ERASING: Final = "\x01"
#: Tables of which a row says by the key of its record which kind it is of.
_BY_KEY: Final = ("derivations", "versions")
_NAMED: Final = tuple(table.name for table in tables_in(Backup.NAMED))
_BACKED_UP: Final = {table.name for table in TABLES if table.backup is not Backup.NONE}


@dataclass(frozen=True, slots=True, eq=False)
class UserRows:
    """A user, and those of the user's rows that show whether anything has changed."""

    number: int
    subject: Subject
    alias: str
    signature: str
    """Another one, if anything has changed."""
    memories: int
    known: dict[str, list[Row]]
    """The rows, by table, and those of the tables that name the user."""
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)
    """Of all rows of the user that have become frames."""

    @property
    def sort(self) -> Sort:
        """The sort of the document. What a tenant has for itself is no user's, but is kept in the same way."""
        return "user" if self.subject.user_id else "tenant"

    def packs(self) -> list[str]:
        """The names of the cold objects that the user's memories lie in."""
        packs = map(table_of("packs").by_name, self.known.get("packs", []))
        return [pack["name"] for pack in packs if pack["state"] in {"writing", "kept", "stale"}]


class Piece(NamedTuple):
    """Some rows of a document, as a frame."""

    data: bytes
    table: str
    rows: int


class Snapshot:
    """A store as it was at one moment, read for a backup of some kinds."""

    def __init__(self, reader: RowReader, kinds: frozenset[MemoryType]) -> None:
        self._reader = reader
        self._kinds = kinds
        self._codes = sorted(TYPES[kind].code for kind in kinds)
        # Cold objects come before the records that lie in them.
        tables = tables_in(Backup.OWN, Backup.NAMED, kinds=kinds)
        self._tables = sorted(tables, key=lambda table: table.name not in {"subjects", "packs"})
        self._named = {name: _group_by_user(reader, table_of(name)) for name in _NAMED}

    def users(self) -> Iterator[list[UserRows]]:
        """All users, some at a time, in the order of their numbers; not those who are being erased."""
        numbers = [no for no, subject, _ in self._reader.rows("subjects") if not subject.startswith(_ERASING)]
        for start in range(0, len(numbers), _USERS):
            yield self._read_users(numbers[start : start + _USERS])

    def _read_users(self, numbers: Sequence[int]) -> list[UserRows]:
        tables = [table.name for table in self._tables if table.name in _SHOW_CHANGE]
        found = {name: _group_by_number(self._reader.owned(name, numbers, self._codes)) for name in tables}
        place = list(table_of("scopes").columns).index("next")
        users = []
        for number in numbers:
            rows = {name: found[name].get(number, []) for name in tables}
            _, subject, alias = rows["subjects"][0]
            rows |= {name: self._named[name].pop(subject, []) for name in _NAMED}
            signature = hashlib.sha256(repr((self._codes, rows)).encode()).hexdigest()
            memories = sum(row[place] for row in rows["scopes"])
            users.append(UserRows(number, Subject.parse(subject), alias.hex(), signature, memories, rows))
        return users

    def pieces(self, users: Sequence[UserRows]) -> Iterator[tuple[UserRows, Piece]]:
        """All rows of users as frames, one user after the other. Few users, or one of any size, are read at a time."""
        for group in _group_by_size(users):
            numbers = [user.number for user in group]
            read: dict[str, Mapping[int, Iterable[Row]]] = {}
            for table in self._tables:
                if table.name not in group[0].known:
                    rows = self._of_kinds(table, self._reader.owned(table.name, numbers, self._codes))
                    read[table.name] = {numbers[0]: rows} if len(group) == 1 else _group_by_number(rows)
            for user in group:
                for table in self._tables:
                    known = user.known.get(table.name)
                    rows = read[table.name].get(user.number, ()) if known is None else known
                    yield from ((user, piece) for piece in _pieces(table, rows, user.digest))

    def _of_kinds(self, table: Table, rows: Iterable[Row]) -> Iterable[Row]:
        """The rows that go with the kinds; of other tables the reader has chosen them."""
        place = list(table.columns).index("key") if table.name in _BY_KEY else None
        return rows if place is None else (row for row in rows if row[place] >> COUNT_BITS & LAST_KIND in self._codes)

    def parts(self) -> tuple[str, ...]:
        """What belongs to sessions and lies elsewhere, by tenant and name."""
        return tuple("/".join(row[:2]) for row in self._reader.rows("parts"))

    def chains(self) -> list[tuple[int, str]]:
        """The audit chains: the number of the subject, and a signature that changes when it grows."""
        rows = self._reader.rows("chains") if MemoryType.LONG_TERM in self._kinds else ()
        return [(row[0], hashlib.sha256(repr(row).encode()).hexdigest()) for row in rows]

    def chain(self, number: int, digest: hashlib._Hash) -> Iterator[Piece]:
        """The audit chain of a subject, as frames."""
        return _pieces(table_of("audit"), self._reader.owned("audit", [number], self._codes), digest)

    def common(self, digest: hashlib._Hash) -> Iterator[Piece]:
        """What belongs to everybody, as frames; to be read after all users."""
        for table in tables_in(Backup.COMMON, Backup.NAMED, kinds=self._kinds):
            if table.backup is Backup.NAMED:
                rows: Iterable[Row] = [row for kept in self._named[table.name].values() for row in kept]
            elif table.name == "api_keys":  # keys for single users name them, and are made again after a restore
                users = list(table.columns).index("users")
                rows = [row for row in self._reader.rows(table.name) if row[users] is None]
            elif table.name == "parts":  # the last column names a user, and is said again after a restore
                rows = [(*row[:-1], None) for row in self._reader.rows(table.name)]
            elif table.name == "jobs":  # results name people
                rows = [(*row[:5], *(None for _ in row[5:])) for row in self._reader.rows(table.name)]
            else:
                rows = self._reader.rows(table.name)
            yield from _pieces(table, rows, digest)

    def counters(self) -> dict[str, int]:
        """The largest numbers that were ever given, of tables that the backup has."""
        held = _BACKED_UP if MemoryType.LONG_TERM in self._kinds else _BACKED_UP - {"audit"}
        return {name: last for name, last in self._reader.counters().items() if name in held}

    def digests(self) -> dict[tuple[str, str], str]:
        """What each document of a backup would say, by the sort of the document and its owner or chain."""
        found: dict[tuple[str, str], str] = {}
        for users in self.users():
            for _ in self.pieces(users):
                pass
            found |= {(user.sort, user.alias): user.digest.hexdigest() for user in users}
        readers: dict[tuple[str, str], Callable[[hashlib._Hash], Iterator[Piece]]] = {("common", ""): self.common}
        readers |= {("chain", f"chain {number}"): partial(self.chain, number) for number, _ in self.chains()}
        for key, read in readers.items():
            digest = hashlib.sha256()
            for _ in read(digest):
                pass
            found[key] = digest.hexdigest()
        return found


def count_memories(reader: RowReader, kinds: frozenset[MemoryType]) -> int:
    """About how many memories a backup of some kinds would hold: those in the bin are not counted."""
    scopes = map(table_of("scopes").by_name, reader.rows("scopes"))
    codes = {TYPES[kind].code for kind in kinds}
    return sum(scope["memories"] for scope in scopes if scope["scope"] & LAST_KIND in codes)


def check_frame(frame: Frame) -> Table:
    """The table that a frame has rows of. ``ObjectDamagedError`` if backups hold none of that name,
    ``StoreTooNewError`` if the frame has a column that the table has not.
    """
    if frame.table not in _BACKED_UP:
        raise ObjectDamagedError(f"a backup holds rows of {frame.table!r}, which no store has")
    table = table_of(frame.table)
    if unknown := sorted(set(frame.columns) - set(table.columns)):
        raise StoreTooNewError(
            f"a backup has {frame.table} with {', '.join(unknown)}, which this version does not know"
        )
    return table


def _group_by_user(reader: RowReader, table: Table) -> dict[str | None, list[Row]]:
    """The rows of a table that names users, by subject; under ``None``, those that name nobody."""
    found: dict[str | None, list[Row]] = defaultdict(list)
    for row in reader.rows(table.name):
        named = table.by_name(row)
        found[Subject(named["tenant"], named["user_id"]) if named["user_id"] else None].append(row)
    return found


def _group_by_number(rows: Iterable[Row]) -> dict[int, list[Row]]:
    """Rows by the number of their subject, which is the first column."""
    found: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[0]].append(row)
    return found


def _group_by_size(users: Sequence[UserRows]) -> Iterator[list[UserRows]]:
    """Users in groups that have no more memories than are read together."""
    group: list[UserRows] = []
    memories = 0
    for user in users:
        if group and memories + user.memories > _MEMORIES:
            yield group
            group, memories = [], 0
        group.append(user)
        memories += user.memories
    if group:
        yield group


def _pieces(table: Table, rows: Iterable[Row], digest: hashlib._Hash) -> Iterator[Piece]:
    """Rows as frames of bounded size."""
    left = iter(rows)
    while chunk := list(islice(left, ROWS)):
        yield Piece(write_frame(table.name, table.columns, chunk, digest), table.name, len(chunk))
