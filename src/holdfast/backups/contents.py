"""Reading a store for a backup: what belongs to each user, in one view of the store at one moment."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from holdfast.backups.format import Sort
from holdfast.core.errors import ObjectDamagedError, StoreTooNewError
from holdfast.core.frames import ROWS, Frame, write_frame
from holdfast.core.records import Subject
from holdfast.core.types import DURABLE, TYPES, MemoryType
from holdfast.storage.catalog import COPIED, Backup, Table, find_table, tables_in
from holdfast.storage.relational.database import Row
from holdfast.storage.transfer.views import View

#: Users who are looked at together, and memories that are read together.
_USERS: Final = 500
_MEMORIES: Final = 20_000
#: The tables that tell whether anything of a user has changed: whatever changes in the others changes in these.
_TELLING: Final = ("subjects", "scopes", "sessions", "facts", "packs", "totals")
#: Names of users have no control characters; whoever is being erased has.
_ERASING: Final = "\x01"
_NAMED: Final = tuple(table.name for table in tables_in(Backup.NAMED))


class Owner(NamedTuple):
    """A user, as far as is known without reading all of theirs."""

    number: int
    subject: Subject
    alias: str
    signature: str
    memories: int
    known: dict[str, list[Row]]
    """The rows of the tables that tell whether anything has changed, and of those that name the user."""

    @property
    def sort(self) -> Sort:
        """What the document is of: what a tenant has for itself is no user's, though it is kept alike."""
        return "user" if self.subject.user_id else "tenant"  # a user's own name may have a slash in it


class Piece(NamedTuple):
    """Some rows of a document, as a frame."""

    data: bytes
    table: str
    rows: int


class Reading:
    """One view of a store, read for a backup of some kinds."""

    def __init__(self, view: View, kinds: frozenset[MemoryType]) -> None:
        self._view = view
        self._kinds = kinds
        self._codes = _codes_of(kinds)
        self._tables = tables_in(Backup.OWN, Backup.NAMED, kinds=kinds)
        self._named = {name: _by_user(view, _table(name)) for name in _NAMED}

    def owners(self) -> Iterator[list[Owner]]:
        """All users, some at a time, in the order of their numbers; not those who are being erased."""
        numbers = [row[0] for row in self._view.rows(_table("subjects")) if not row[1].startswith(_ERASING)]
        for start in range(0, len(numbers), _USERS):
            yield self._look(numbers[start : start + _USERS])

    def _look(self, numbers: Sequence[int]) -> list[Owner]:
        telling = [table for table in self._tables if table.name in _TELLING]
        found = {table.name: _grouped(self._view.owned(table, numbers, self._codes)) for table in telling}
        owners = []
        for number in numbers:
            rows = {table.name: found[table.name].get(number, []) for table in telling}
            _, subject, alias = rows["subjects"][0]
            rows |= {name: self._named[name].pop(subject, []) for name in _NAMED}
            signature = hashlib.sha256(repr((self._codes, rows)).encode()).hexdigest()
            memories = sum(row[4] for row in rows["scopes"])
            owners.append(Owner(number, Subject.parse(subject), alias.hex(), signature, memories, rows))
        return owners

    def pieces(
        self, owners: Sequence[Owner], digest: Callable[[Owner], hashlib._Hash]
    ) -> Iterator[tuple[Owner, Piece]]:
        """All rows of users as frames, one user after the other. Few users, or one of any size, are read at a time."""
        for group in _groups(owners):
            yield from self._pieces_of(group, digest)

    def _pieces_of(
        self, group: Sequence[Owner], digest: Callable[[Owner], hashlib._Hash]
    ) -> Iterator[tuple[Owner, Piece]]:
        numbers = [owner.number for owner in group]
        alone = len(group) == 1
        read: dict[str, Mapping[int, Iterable[Row]]] = {}
        for table in self._tables:
            if table.name not in group[0].known:
                rows = self._kept(table, self._view.owned(table, numbers, self._codes))
                read[table.name] = {numbers[0]: rows} if alone else _grouped(rows)
        for owner in group:
            for table in self._tables:
                rows_of = (
                    owner.known[table.name] if table.name in owner.known else read[table.name].get(owner.number, ())
                )
                for chunk in _chunks(rows_of):
                    yield owner, _piece(table, chunk, digest(owner))

    def _kept(self, table: Table, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows that go with the kinds, where that is not asked for."""
        if table.name != "derivations":
            yield from rows
            return
        place = list(table.columns).index("key")
        codes = set(self._codes)
        yield from (row for row in rows if row[place] >> 29 & 7 in codes)

    def chains(self) -> Iterator[tuple[int, str, Callable[[hashlib._Hash], Iterator[Piece]]]]:
        """The audit chains: the number of the subject, what tells whether it has grown, and its entries as frames."""
        if MemoryType.LONG_TERM not in self._kinds:
            return
        audit = _table("audit")
        for row in list(self._view.rows(_table("chains"))):  # a view reads one thing at a time

            def read(digest: hashlib._Hash, number: int = row[0]) -> Iterator[Piece]:
                for chunk in _chunks(self._view.owned(audit, [number], self._codes)):
                    yield _piece(audit, chunk, digest)

            yield row[0], hashlib.sha256(repr(row).encode()).hexdigest(), read

    def common(self, digest: hashlib._Hash) -> Iterator[Piece]:
        """What belongs to everybody, as frames; after all users were read."""
        for table in tables_in(Backup.COMMON, Backup.NAMED, kinds=self._kinds):
            if table.backup is Backup.NAMED:
                rows: Iterable[Row] = [row for kept in self._named[table.name].values() for row in kept]
            elif table.name == "api_keys":  # those for single users name them, and are made anew after a restore
                users = list(table.columns).index("users")
                rows = [row for row in self._view.rows(table) if row[users] is None]
            elif table.name == "jobs":
                rows = [(*row[:5], *(None for _ in row[5:])) for row in self._view.rows(table)]  # results name people
            else:
                rows = self._view.rows(table)
            for chunk in _chunks(rows):
                yield _piece(table, chunk, digest)

    def counters(self) -> dict[str, int]:
        """The largest numbers that were ever given, of tables that the backup has."""
        left_out = {"short_windows", "short_messages"}
        if MemoryType.LONG_TERM not in self._kinds:
            left_out |= {"audit"}
        return {name: last for name, last in self._view.counters().items() if name not in left_out}


def counted_kinds(owner: Owner) -> dict[str, int]:
    """How many live memories of each kind a user has."""
    kinds = {TYPES[kind].code: kind.value for kind in DURABLE}
    counts: Counter[str] = Counter()
    for row in owner.known["scopes"]:
        counts[kinds[row[1] & 7]] += row[5]
    return {kind: count for kind, count in counts.items() if count}


def packs_of(owner: Owner) -> list[str]:
    """The cold objects that memories of a user lie in."""
    table = _table("packs")
    name, state = (list(table.columns).index(column) for column in ("name", "state"))
    return [row[name] for row in owner.known.get("packs", []) if row[state] in {"writing", "kept", "stale"}]


def subject_of(table: Table, row: Row) -> str | None:
    """Whom a row of a table that names users belongs to; ``None`` if to everybody."""
    tenant, user = (row[list(table.columns).index(column)] for column in ("tenant", "user_id"))
    return Subject(tenant, user) if user else None


def _by_user(view: View, table: Table) -> dict[str | None, list[Row]]:
    found: dict[str | None, list[Row]] = defaultdict(list)
    for row in view.rows(table):
        found[subject_of(table, row)].append(row)
    return found


def _groups(owners: Sequence[Owner]) -> Iterator[list[Owner]]:
    group: list[Owner] = []
    memories = 0
    for owner in owners:
        if group and memories + owner.memories > _MEMORIES:
            yield group
            group, memories = [], 0
        group.append(owner)
        memories += owner.memories
    if group:
        yield group


def _grouped(rows: Iterable[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[0]].append(row)
    return found


def _chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    chunk: list[Row] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == ROWS:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _piece(table: Table, rows: Sequence[Row], digest: hashlib._Hash) -> Piece:
    return Piece(write_frame(table.name, table.columns, rows, digest), table.name, len(rows))


def _table(name: str) -> Table:
    found = find_table(name)
    if found is None:
        raise LookupError(name)
    return found


def _codes_of(kinds: frozenset[MemoryType]) -> list[int]:
    return sorted(TYPES[kind].code for kind in kinds)


def table_of(frame: Frame) -> Table:
    """The table that a frame has rows of. ``ObjectDamagedError`` if backups hold none of that name,
    ``StoreTooNewError`` if the frame has a column that the table has not.
    """
    table = find_table(frame.table)
    if table is None or table.backup is Backup.NONE:
        raise ObjectDamagedError(f"a backup holds rows of {frame.table!r}, which no store has")
    if unknown := set(frame.columns) - set(table.columns):
        raise StoreTooNewError(
            f"a backup holds {frame.table} with {', '.join(sorted(unknown))}, which this version does not know"
        )
    return table


def count_memories(view: View, kinds: frozenset[MemoryType]) -> int:
    """About how many memories a backup of some kinds would hold: those in the bin are not counted."""
    codes = set(_codes_of(kinds))
    return sum(row[5] for row in view.rows(_table("scopes")) if row[1] & 7 in codes)


def is_used(view: View) -> bool:
    """Whether anything was ever kept in a store."""
    return any(view.count(table) for table in COPIED if table.is_data and table.name != "turns")
