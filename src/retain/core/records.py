"""A memory and whose it is, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from retain.core.content import check_id, check_tenant
from retain.core.types import MemoryType, State


@dataclass(frozen=True, slots=True)
class Scope:
    """Tenant, user, agent, session. Each part is compared whole, never by prefix."""

    tenant: str
    user_id: str
    agent_id: str
    session_id: str | None = None

    @staticmethod
    def checked(tenant: object, user_id: object, agent_id: object, session_id: object = None) -> Scope:
        """A scope of parts that a caller gave, each of them checked."""
        return Scope(
            check_tenant(tenant),
            check_id(user_id, "user_id"),
            check_id(agent_id, "agent_id"),
            None if session_id is None else check_id(session_id, "session_id"),
        )

    @property
    def subject(self) -> str:
        """Whose memory it is: tenant and user as one key. A tenant has no slash, so no two subjects share one."""
        return f"{self.tenant}/{self.user_id}"


@dataclass(frozen=True, slots=True)
class Record:
    """One memory. Moments are whole microseconds since 1970, UTC."""

    id: str
    kind: MemoryType
    scope: Scope
    content: str
    created_at: int
    updated_at: int
    dated_at: int
    """Age counts from here: when it was made, or for an episode, when that ended. An update does not change it."""
    metadata: dict[str, Any] = field(default_factory=dict)
    body: dict[str, Any] | None = None
    """What is kept beside the content: an episode's steps, messages and tool calls."""
    name: str | None = None
    """What it can be looked up by: at most one live record of a user's kind goes by a name."""
    state: State = State.ACTIVE
    previous: State | None = None
    """The state before this one: where a restore leads back to."""
    version: int = 1
    """Counts the changes; a change made from an older version is stale."""
    hidden_from: int | None = None
    """Not to be seen from this moment on, whether or not a sweep has run."""
    compressed: bool = False


class Encoding(NamedTuple):
    """What recall needs of a record's text, kept in the record's own row."""

    model: str | None
    """The embedder whose space the vectors are in; ``None`` while there are none."""
    vectors: bytes | None
    terms: bytes


class Entry(NamedTuple):
    """A record to be written, with its encoding."""

    record: Record
    encoding: Encoding


class Move(NamedTuple):
    """One step of a record through its states, decided from what was read at ``version``."""

    id: str
    version: int
    source: State
    target: State
    reason: str


class Message(NamedTuple):
    """One turn of a conversation."""

    id: str
    role: str
    content: str
    created_at: int
    metadata: dict[str, Any]


class Fact(NamedTuple):
    """What is, or was, true of an entity: an attribute (``value``) or a relation to another (``target``)."""

    id: str
    source: str
    name: str
    target: str | None
    value: Any
    since: int
    until: int | None
    """When it stopped being true; a fact that is replaced ends, it is not overwritten."""
    recorded_at: int


class Usage(NamedTuple):
    """How much a user holds of one kind, and how much they may; ``None`` is without limit."""

    memories: int
    bytes: int
    max_memories: int | None
    max_bytes: int | None

    @property
    def remaining(self) -> int | None:
        """How many more memories fit."""
        return None if self.max_memories is None else max(0, self.max_memories - self.memories)
