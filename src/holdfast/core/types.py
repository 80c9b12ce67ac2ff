"""The kinds of memory and the states of a record: two tables that the rest of Holdfast reads."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from holdfast.core.errors import InvalidKindError, quote


class MemoryType(StrEnum):
    """The seven kinds of memory."""

    WORKING = "working"
    SHORT_TERM = "short_term"
    LONG_TERM = "long_term"
    PERSONA = "persona"
    EPISODIC = "episodic"
    ENTITY = "entity"
    STRUCTURED = "structured"


class State(StrEnum):
    """Where a record is in its life."""

    ACTIVE = "active"
    ARCHIVED = "archived"
    RECYCLED = "recycled"
    DELETING = "deleting"
    DELETED = "deleted"


#: Every legal move. A move that is not here does not happen, by any path.
NEXT: Final = MappingProxyType(
    {
        State.ACTIVE: frozenset({State.ARCHIVED, State.RECYCLED, State.DELETING}),
        State.ARCHIVED: frozenset({State.ACTIVE, State.RECYCLED, State.DELETING}),
        State.RECYCLED: frozenset({State.ACTIVE, State.ARCHIVED, State.DELETING, State.DELETED}),
        State.DELETING: frozenset({State.DELETED}),
        State.DELETED: frozenset[State](),
    }
)

#: States in which a record can be recalled and counts towards its quota.
LIVE: Final = frozenset({State.ACTIVE, State.ARCHIVED})


class Archive(StrEnum):
    """What becomes of a record that is archived."""

    COLD = "cold"
    """Its content goes to the object store; a summary stays, out of recall unless asked for."""
    SUMMARY = "summary"
    """All but its summary is cleared; recall goes on."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What sets one kind of memory apart from another."""

    name: MemoryType
    code: int
    """The number that stands for the kind in a store. Never reused, never renumbered."""
    scope: frozenset[str]
    """The parts of a scope that select records of this kind; the other parts are recorded only."""
    durable: bool
    """Kept by the record store (working lives in the process, short_term in its own store)."""
    latency_ms: float
    """A write or a recall slower than this is logged as a missed target."""
    max_memories: int
    """Default quota: records per user."""
    max_bytes: int
    """Default quota: bytes of content per user."""
    archive: Archive | None = None
    """How it is archived; ``None``: not at all."""


MIB: Final = 1024 * 1024
_USER = frozenset({"user"})
_AGENT = frozenset({"user", "agent"})
_SESSION = frozenset({"user", "agent", "session"})

#: The kinds, in the order in which results of equal rank are shown.
TYPES: Final = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            Kind(MemoryType.WORKING, 1, _SESSION, False, 1.0, 1_000, 64 * MIB),
            Kind(MemoryType.SHORT_TERM, 2, _SESSION, False, 10.0, 1_000, 64 * MIB),
            Kind(MemoryType.LONG_TERM, 3, _USER, True, 100.0, 10_000, 1024 * MIB, Archive.COLD),
            Kind(MemoryType.PERSONA, 4, _AGENT, True, 100.0, 1_000, 64 * MIB),
            Kind(MemoryType.EPISODIC, 5, _AGENT, True, 100.0, 10_000, 4096 * MIB, Archive.SUMMARY),
            Kind(MemoryType.ENTITY, 6, _USER, True, 100.0, 50_000, 1024 * MIB),
            Kind(MemoryType.STRUCTURED, 7, _USER, True, 100.0, 10_000, 1024 * MIB, Archive.COLD),
        )
    }
)

DURABLE: Final = tuple(kind.name for kind in TYPES.values() if kind.durable)

#: The durable kinds that are an agent's own, and go with it.
OWN: Final = tuple(kind for kind in DURABLE if "agent" in TYPES[kind].scope)

#: Targets for answers that no single kind's row can state.
EMPTY_LATENCY_MS: Final = 50.0
SEVERAL_LATENCY_MS: Final = 150.0

#: Part of a user's memories of a kind that an automatic prune recycles, oldest first.
PRUNE_FRACTION: Final = 0.1


def kind_of(value: MemoryType | str) -> Kind:
    """The row of ``TYPES`` for a kind given as a ``MemoryType`` or as its name."""
    try:
        return TYPES[MemoryType(value)]
    except ValueError:
        known = ", ".join(TYPES)
        raise InvalidKindError(f"unknown kind of memory {quote(value)}; use one of: {known}") from None
