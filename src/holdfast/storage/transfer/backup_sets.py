"""Which part of a store a backup keeps each table in, and with which kinds of memory it goes. Nothing else knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.core.types import DURABLE, TYPES, Kind, MemoryType
from holdfast.storage.transfer.tables import TABLES, Table

_BY_NAME: Final = {table.name: table for table in TABLES}
_WITH_LONG_TERM: Final = frozenset({MemoryType.LONG_TERM})
_COLD: Final = frozenset({MemoryType.LONG_TERM, MemoryType.STRUCTURED})

#: What belongs to one subject, sealed under that subject's key, and the kinds that it goes with (none: with any).
OWN: Final[Mapping[str, frozenset[MemoryType]]] = {
    "subjects": frozenset(),
    "scopes": frozenset(),
    "rules": frozenset(),
    "records": frozenset(),
    "derivations": frozenset(),
    "quotas": frozenset(),
    "sessions": _WITH_LONG_TERM,
    "history": _WITH_LONG_TERM,
    "facts": frozenset({MemoryType.ENTITY}),
    "holds": frozenset(),
    "packs": _COLD,
    "totals": _WITH_LONG_TERM,
}
#: Tables of which the rows that name a user belong to that user, and the others to everybody.
NAMED: Final = ("rules", "quotas", "holds")
#: What belongs to everybody, and the kinds that it goes with.
COMMON: Final[Mapping[str, frozenset[MemoryType]]] = {
    "models": frozenset(),
    "books": frozenset(),
    "rules": frozenset(),
    "profiles": frozenset(),
    "quotas": frozenset(),
    "schemas": frozenset(),
    "registry": _WITH_LONG_TERM,
    "holds": frozenset(),
    "jobs": frozenset(),
    "seen": frozenset(),
    "chains": _WITH_LONG_TERM,
    "sealed": _WITH_LONG_TERM,
    "audit_checkpoints": _WITH_LONG_TERM,
    "api_keys": frozenset(),
}
#: What only grows, and is therefore read from where the backup before stopped.
GROWING: Final = ("audit",)
#: Never in a backup: short-term memory, what is made anew from the rest, and how far this very store has come.
LEFT_OUT: Final = ("turns", "changes", "short_windows", "short_messages", "ledger_seen", "identity")


def own_tables(kinds: frozenset[MemoryType]) -> list[Table]:
    """The tables of a subject that go with some kinds, in an order that foreign keys allow."""
    return _going_with(OWN, kinds)


def common_tables(kinds: frozenset[MemoryType]) -> list[Table]:
    """The tables of everybody that go with some kinds, in an order that foreign keys allow."""
    return _going_with(COMMON, kinds)


def _going_with(share: Mapping[str, frozenset[MemoryType]], kinds: frozenset[MemoryType]) -> list[Table]:
    return [table for table in TABLES if table.name in share and (not share[table.name] or share[table.name] & kinds)]


def table_named(name: str) -> Table | None:
    """The table of a name."""
    return _BY_NAME.get(name)


def codes_of(kinds: frozenset[MemoryType]) -> list[int]:
    """The codes that rows have for kinds."""
    return sorted(TYPES[kind].code for kind in kinds)


def durable_kinds() -> dict[int, Kind]:
    """The kinds that records can have, by code."""
    return {TYPES[kind].code: TYPES[kind] for kind in DURABLE}
