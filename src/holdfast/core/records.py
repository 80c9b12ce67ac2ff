"""A memory and whose it is, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

from holdfast.core.content import check_id, check_tenant
from holdfast.core.provenance import agent_source
from holdfast.core.types import MemoryType, State

#: Every user, or every agent, in verbs that maintain the store.
ALL: Final = "*"


class Subject(str):
    """Whose memory it is: a tenant and a user, as one key. A tenant has no slash, so no two subjects share a key.

    Without a user it is the tenant itself. It is a text, so that stores bind it as it is.
    """

    __slots__ = ()

    def __new__(cls, tenant: str, user_id: str = "") -> Self:
        return super().__new__(cls, f"{tenant}/{user_id}")

    @classmethod
    def parse(cls, key: str) -> Self:
        """The subject of a key, as a store has it."""
        return super().__new__(cls, key)

    @classmethod
    def checked(cls, tenant: str, user_id: object) -> Self:
        """A user of a tenant, whose id a caller gave."""
        return cls(tenant, check_id(user_id, "user_id"))

    @property
    def tenant(self) -> str:
        return self.partition("/")[0]

    @property
    def user_id(self) -> str:
        return self.partition("/")[2]

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # copies are made of both parts
        return self.tenant, self.user_id


@dataclass(frozen=True, slots=True)
class Scope:
    """Tenant, user, agent, session. Each part is compared whole, never by prefix."""

    tenant: str
    user_id: str
    agent_id: str
    session_id: str | None = None

    @staticmethod
    def checked(
        tenant: object, user_id: object, agent_id: object, session_id: object = None, *, everyone: bool = False
    ) -> Scope:
        """A scope of parts that a caller gave, each of them checked. With ``everyone``, ``*`` is a user or an agent."""
        return Scope(
            check_tenant(tenant),
            ALL if everyone and user_id == ALL else check_id(user_id, "user_id"),
            ALL if everyone and agent_id == ALL else check_id(agent_id, "agent_id"),
            None if session_id is None else check_id(session_id, "session_id"),
        )

    def check_one(self) -> None:
        """``InvalidScopeError`` where the scope is of all users or agents: nothing is written there."""
        for part in ("user_id", "agent_id"):
            check_id(getattr(self, part), part)

    @property
    def subject(self) -> Subject:
        """Whose memory it is."""
        return Subject(self.tenant, self.user_id)


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
    aged_from: int | None = None
    """What its rules count from: ``dated_at``, or when it was restored with its time already over."""
    archive_at: int | None = None
    """Archived from this moment on, whether or not a sweep has run; from the rules, as the store reads it."""
    hidden_from: int | None = None
    """Not to be seen from this moment on, whether or not a sweep has run; from the rules, as the store reads it."""
    moved_at: int | None = None
    purge_at: int | None = None
    """When its time in the recycle bin is over."""
    reason: str | None = None
    """Why it came into its state."""
    pack: int | None = None
    """Where the rest of it lies in the object store."""
    compressed: bool = False
    source: str | None = None
    """Who or what wrote it; ``None``: its agent."""
    derived_from: tuple[str, ...] = ()
    """Ids of the memories and messages that it was made from, be they there or not."""
    bundle: str | None = None
    """What it went to the recycle bin together with."""

    @property
    def written_by(self) -> str:
        """Who or what wrote it."""
        return self.source or agent_source(self.scope.agent_id)

    def is_archived(self, now: int) -> bool:
        """Whether it counts as archived, swept or not."""
        return self.state is State.ARCHIVED or (self.archive_at is not None and self.archive_at <= now)


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


class Cause(StrEnum):
    """What made a record move: few and fixed, so that moves can be counted by it."""

    RULE = "rule"
    USER = "user"
    PRUNE = "prune"
    CLEANUP = "cleanup"
    AGENT = "agent"
    BIN = "bin"
    SOURCE = "source"
    RESTORE = "restore"
    ERASURE = "erasure"


class Outcome(StrEnum):
    """What became of a move."""

    DONE = "done"
    STALE = "stale"
    """It moved or changed since the move was decided; nothing was done to it."""
    HELD = "held"
    """A hold stands; nothing was done, and the refusal was written into the audit chain."""
    TAKEN = "taken"
    """Another record goes by its name now; the refusal was written into the audit chain, as the next two are."""
    FULL = "full"
    """The quota has no room for it."""
    PARTED = "parted"
    """It belongs to an agent that is in the recycle bin; it can come back with that, or after it."""


class Keeping(NamedTuple):
    """What a record is from a move on: an archive keeps its summary, a rehydration brings all of it back."""

    content: str
    body: dict[str, Any] | None
    metadata: dict[str, Any]
    encoding: Encoding
    pack: int | None


class Move(NamedTuple):
    """One step of a record through its states, decided from what was read at ``version``."""

    id: str
    version: int
    source: State
    target: State
    reason: str
    cause: Cause = Cause.USER
    rule: str | None = None
    """The rule and its version, where one decided."""
    purge_at: int | None = None
    """Into the recycle bin until then."""
    aged_from: int | None = None
    """What its rules count from now on; ``None``: as before."""
    keeping: Keeping | None = None
    bundle: str | None = None
    """What it goes together with: all of it can be brought back together."""


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
