"""The catalogue: every table of a store, and every file, object and key beside the tables. It is the one list of them.

The list itself is ``catalog.json``; the classes here say what each word of it means. Tables are listed in an order that
foreign keys allow. A column is written ``name:type``, with a star before it if it is part of the key.

Copying, backups, exports, erasure, Citus and ``holdfast doctor`` read it. A test compares it with the schemas of both
engines and with what a full run leaves behind, so nothing can be added that erasure does not reach.

A row has one canonical form, whichever engine it is read from: whole numbers, text, bytes and ``None``, in the order of
``columns``. A flag is 0 or 1. A text that may be compressed is bytes: zlib's, or the text after a zero byte.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from holdfast.core.records import KIND_BITS, MESSAGE_BITS, MemoryType

#: The table that says how far ``holdfast migrate`` has come. While it is there, nobody opens the store.
COPYING: Final = "copying"


class Owner(Enum):
    """Whom rows, files and objects belong to."""

    USER = "a user"
    TENANT = "a tenant"
    STORE = "the store"


class Backup(Enum):
    """How a backup holds a table."""

    OWN = "with its user, sealed under the user's key"
    NAMED = "rows that name a user with that user, the others with what belongs to everybody"
    COMMON = "with what belongs to everybody"
    GROWING = "from where the backup before stopped, because rows are only added"
    NONE = "not at all"


class Erase(Enum):
    """How erasure reaches a table."""

    NOTHING = "nothing of a user is in it"
    AT_ONCE = "with the user's name, in one transaction"
    BATCHES = "after the name, in batches, by the statement remove_<table> of subjects.sql"
    CASCADE = "with the rows of the table that it refers to"
    OBJECTS = "after the cold objects that it lists"
    LAST = "last"
    KEPT = "kept"


class Spread(Enum):
    """Where Citus keeps a table."""

    SUBJECT = "rows of one user together on one node"
    EVERYWHERE = "whole on every node"
    COORDINATOR = "on the node that everyone connects to"


class Table(NamedTuple):
    """A table, and what becomes of its rows."""

    name: str
    owner: Owner
    columns: Mapping[str, str]
    """Name: ``int``, ``text``, ``bytes``, ``packed`` (text that may be compressed), ``flag``, or ``other`` where the
    table is not copied."""
    key: tuple[str, ...]
    """The columns that PostgreSQL finds its rows in order by."""
    backup: Backup = Backup.NONE
    erase: Erase = Erase.NOTHING
    kept_because: str = ""
    """Why erasure keeps rows of a user."""
    export: str = ""
    """The part of an export that has its rows."""
    left_out_because: str = ""
    """Why an export has no part with its rows, though something of a user is in it."""
    spread: Spread = Spread.EVERYWHERE
    with_kinds: frozenset[MemoryType] = frozenset()
    """A backup holds it if it holds one of these kinds; none: whichever kinds it holds."""
    is_copied: bool = True
    """Whether ``holdfast migrate`` copies it."""
    is_data: bool = True
    """Whether a store with rows here is in use. The others have rows as soon as a store was opened."""
    shows_change: bool = True
    """Whether it is read whole to see whether a store has changed. What changes in the others changes in these."""
    sqlite_key: tuple[str, ...] = ()
    sqlite: Mapping[str, str] = MappingProxyType({})
    """How SQLite computes the columns that it does not have."""
    sqlite_source: str = ""
    """What SQLite reads instead of a table of this name."""
    is_in_sqlite: bool = True
    counter: str = ""
    """The column that is a ``Counter``."""
    sequence: str = ""
    """What numbers that column in PostgreSQL, where it is not the column itself."""

    def by_name(self, row: Sequence[Any]) -> dict[str, Any]:
        """A canonical row by the names of its columns."""
        return dict(zip(self.columns, row, strict=True))


class Counter(NamedTuple):
    """A column whose numbers are never given twice, not even those of rows that are gone."""

    table: str
    column: str
    sequence: str


# --- beside the tables ------------------------------------------------------------------------------------------------


class Where(Enum):
    """Where files, objects and keys lie, by the setting that names it."""

    HOME = "HOLDFAST_HOME"
    STATE = "HOLDFAST_STATE_URL"
    COLD = "HOLDFAST_ARCHIVE_URL"
    BACKUPS = "HOLDFAST_BACKUP_URL"
    SHORT_TERM = "HOLDFAST_SHORT_TERM_URL"


class Location(NamedTuple):
    """Something that lies in no table."""

    where: Where
    names: str
    """A pattern of names; ``*`` is any text."""
    owner: Owner
    what: str
    erased: str = "nothing of a user is in it"
    """How erasure reaches it."""
    left_out_because: str = ""
    """Why an export does not have it, where it is a user's."""

    def holds(self, where: Where, name: str) -> bool:
        """Whether something of this name is meant."""
        return self.where is where and fnmatchcase(name, self.names)


_ENUMS: Final[Mapping[str, type[Enum]]] = {
    "owner": Owner,
    "backup": Backup,
    "erase": Erase,
    "spread": Spread,
    "where": Where,
}


def _parse(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry of the list with its words as what they mean."""
    return {key: _ENUMS[key][value] if key in _ENUMS else value for key, value in entry.items()}


def _table(name: str, *, columns: Sequence[str], with_kinds: Sequence[str] = (), **others: Any) -> Table:
    types = dict(column.lstrip("*").split(":") for column in columns)
    key = tuple(column[1:].split(":")[0] for column in columns if column.startswith("*"))
    spread = Spread.SUBJECT if types.get("subject") == "int" else Spread.EVERYWHERE
    given: dict[str, Any] = {"spread": spread, "sqlite_key": key, **others}
    return Table(name, columns=types, key=key, with_kinds=frozenset(map(MemoryType, with_kinds)), **given)


def _read() -> tuple[tuple[Table, ...], tuple[Location, ...]]:
    text = Path(__file__).with_name("catalog.json").read_text(encoding="utf-8")
    text = text.replace(":KIND_BITS", str(KIND_BITS)).replace(":MESSAGE_BITS", str(MESSAGE_BITS))
    listed = json.loads(text)
    tables = tuple(_table(name, **_parse(entry)) for name, entry in listed["tables"].items())
    return tables, tuple(Location(**_parse(entry)) for entry in listed["locations"])


TABLES, LOCATIONS = _read()
COPIED: Final = tuple(table for table in TABLES if table.is_copied)
COUNTERS: Final = tuple(Counter(table.name, table.counter, table.sequence) for table in TABLES if table.counter)
_BY_NAME: Final = {table.name: table for table in TABLES}


def table_of(name: str) -> Table:
    """The table of a name; ``KeyError`` if a store has none."""
    return _BY_NAME[name]


def tables_in(*backups: Backup, kinds: frozenset[MemoryType] = frozenset(MemoryType)) -> list[Table]:
    """The tables that a backup of some kinds holds in one of these ways, in an order that foreign keys allow."""
    held = (table for table in TABLES if table.backup in backups)
    return [table for table in held if not table.with_kinds or table.with_kinds & kinds]
