"""The kinds of memory, the states of a record, and a memory with whose it is: the values that everything reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

from holdfast.core.errors import InvalidInputError, InvalidKindError, quote
from holdfast.core.values import DAY, FOREVER, SECOND, agent_source, check_id, check_tenant, same_json, value_class

#: What is removed stays in the recycle bin for so long.
BIN: Final = 15 * DAY
#: Why a record that a person deleted is in the recycle bin.
DELETED_BY_USER: Final = "deleted by the user"
#: Parts the parts of a record's name.
NAME_SEPARATOR: Final = "\x1f"
#: The conversations that ``add_message`` keeps; they age from their session's last activity.
HISTORY: Final = "history"
AUDIT: Final = "audit"


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


class Terms(NamedTuple):
    """How long something lives. ``None`` says nothing about it, ``FOREVER`` says never (or, to keep: for ever)."""

    archive_after: int | None = None
    delete_after: int | None = None
    keep_for: int | None = None
    """Not to be removed by a rule or a prune before this age."""
    versions: int | None = None
    """How many ended versions of a record are kept."""
    versions_for: int | None = None
    """How long an ended version is kept."""


class Rhythm(StrEnum):
    """How often something is backed up."""

    DAILY = "daily"
    WEEKLY = "weekly"


#: A scope's number is made of the subject's and, in its last bits, the kind's; a record's key of that and a count.
KIND_BITS: Final = 6
#: A message's key is made of the session's number and a count.
MESSAGE_BITS: Final = 24
COUNT_BITS: Final = 28
LAST_KIND: Final = (1 << KIND_BITS) - 1


_ANY_LIFE: Final = Terms()


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
    life: Terms = _ANY_LIFE
    """How long it lives where no rule says otherwise."""
    backup: Rhythm | None = None
    """How often it is backed up; ``None``: not at all."""
    has_facts: bool = False
    """Whether facts are kept of its records, which go with them."""
    shown_once: bool = False
    """Whether recall shows records of the same text once."""
    has_names: bool = False
    """Whether a name says what a record is about: then two that have names are never the same."""

    @property
    def is_text(self) -> bool:
        """Whether records that say the same are the same."""
        return self.shown_once and not self.has_names


MIB: Final = 1024 * 1024
_USER = frozenset({"user"})
_AGENT = frozenset({"user", "agent"})
_SESSION = frozenset({"user", "agent", "session"})
_DAILY = Rhythm.DAILY
_YEAR = Terms(archive_after=365 * DAY)
_HALF_YEAR = Terms(archive_after=180 * DAY)
_EPISODE = Terms(archive_after=90 * DAY, delete_after=365 * DAY)
_KEPT = Terms(keep_for=FOREVER)
_HOUR = Terms(delete_after=3_600 * SECOND)

#: The kinds, in the order in which results of equal rank are shown.
TYPES: Final = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            Kind(MemoryType.WORKING, 1, _SESSION, False, 1.0, 1_000, 64 * MIB),
            Kind(MemoryType.SHORT_TERM, 2, _SESSION, False, 10.0, 1_000, 64 * MIB, None, _HOUR),
            Kind(
                MemoryType.LONG_TERM,
                3,
                _USER,
                True,
                100.0,
                10_000,
                1024 * MIB,
                Archive.COLD,
                _YEAR,
                _DAILY,
                shown_once=True,
            ),
            Kind(
                MemoryType.PERSONA, 4, _AGENT, True, 100.0, 1_000, 64 * MIB, None, _KEPT, Rhythm.WEEKLY, shown_once=True
            ),
            Kind(MemoryType.EPISODIC, 5, _AGENT, True, 100.0, 10_000, 4096 * MIB, Archive.SUMMARY, _EPISODE, _DAILY),
            Kind(
                MemoryType.ENTITY,
                6,
                _USER,
                True,
                100.0,
                50_000,
                1024 * MIB,
                None,
                _ANY_LIFE,
                _DAILY,
                has_facts=True,
                shown_once=True,
                has_names=True,
            ),
            Kind(
                MemoryType.STRUCTURED,
                7,
                _USER,
                True,
                100.0,
                10_000,
                1024 * MIB,
                Archive.COLD,
                _HALF_YEAR,
                _DAILY,
                shown_once=True,
                has_names=True,
            ),
        )
    }
)

#: Names every kind, where kinds are to be recalled.
ALL_KINDS: Final = "all"

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
        return TYPES[value]  # type: ignore[index]  # a name is as good: it is equal, and finds the same
    except (KeyError, TypeError):
        known = ", ".join(TYPES)
        raise InvalidKindError(f"unknown kind of memory {quote(value)}; use one of: {known}") from None


def kinds_of(several: Sequence[MemoryType | str] | str | None, one: MemoryType | str | None) -> list[Kind]:
    """The kinds that a caller names, each once: several, all of them, one, or long-term memory."""
    if several is None:
        return [kind_of(MemoryType.LONG_TERM if one is None else one)]
    if one is not None:
        raise InvalidInputError("give memory_type or memory_types, not both")
    if isinstance(several, str):
        return list(TYPES.values()) if several == ALL_KINDS else [kind_of(several)]
    if not isinstance(several, Sequence) or not several:
        raise InvalidInputError(
            f"memory_types must be 'all' or a list of kinds, such as ['working', 'long_term'], not {quote(several)}"
        )
    return list(dict.fromkeys(kind_of(name) for name in several))


def holds_at(fact: Fact, moment: int) -> bool:
    """Whether a fact is true at a moment."""
    return fact.since <= moment and (fact.until is None or moment < fact.until)


def succession(known: Iterable[Fact], new: Fact, *, replacing: bool) -> tuple[list[Fact], list[Fact]]:
    """What to end and what to add, so that ``new`` joins the ``known`` facts of the same source and name.

    A fact that says what is known to hold already changes nothing, or tells when it ended. With ``replacing`` there is
    one fact of a name at a time: those that hold when the new one begins end there, and one that is older than what is
    known ends where that begins. The facts to end are given with their new ``until``.
    """
    alike = [fact for fact in known if fact.source == new.source and fact.name == new.name]
    for fact in alike:
        if says_already(fact, new):
            return ([fact._replace(until=new.until)] if fact.until != new.until and fact.until is None else []), []
    if not replacing:
        return [], [new]
    ended = [fact._replace(until=new.since) for fact in alike if holds_at(fact, new.since)]
    later = [fact.since for fact in alike if fact.since > new.since]
    if later and (new.until is None or new.until > min(later)):
        new = new._replace(until=min(later))
    return ended, [new]


def says_already(fact: Fact, new: Fact) -> bool:
    """Whether a fact of the same source and name holds all the time for which a new one says the same."""
    if fact.target != new.target or not same_json(fact.value, new.value) or fact.since > new.since:
        return False
    return fact.until is None or (new.until is not None and fact.until >= new.until)


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
    def check(cls, tenant: str, user_id: object) -> Self:
        """A user of a tenant, whose id a caller gave."""
        return cls(tenant, check_id(user_id, "user_id"))

    @property
    def parts(self) -> tuple[str, str]:
        """The tenant and the user."""
        tenant, _, user_id = self.partition("/")
        return tenant, user_id

    @property
    def tenant(self) -> str:
        return self.partition("/")[0]

    @property
    def user_id(self) -> str:
        return self.partition("/")[2]

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # copies are made of both parts
        return self.tenant, self.user_id


@value_class
class Scope:
    """Tenant, user, agent, session. Each part is compared whole, never by prefix."""

    tenant: str
    user_id: str
    agent_id: str
    session_id: str | None = None

    @staticmethod
    def check(
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
        if ALL in (self.user_id, self.agent_id):
            check_id(self.user_id, "user_id")
            check_id(self.agent_id, "agent_id")

    @property
    def subject(self) -> Subject:
        """Whose memory it is."""
        return Subject(self.tenant, self.user_id)


@value_class
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
    ttl: int | None = None
    """How long it lives by its own wish, counted from ``aged_from``; ``None``: as the rules say."""
    revision: int = 1
    """The number of the version that is current; ``version`` counts moves, too."""

    @property
    def written_by(self) -> str:
        """Who or what wrote it."""
        return self.source or agent_source(self.scope.agent_id)

    def is_archived(self, now: int) -> bool:
        """Whether it counts as archived, swept or not."""
        return self.state is State.ARCHIVED or (self.archive_at is not None and self.archive_at <= now)


def key_of(kind: Kind, name: str | None) -> str | None:
    """What a record goes by, where it was added with a key. Of some kinds, each agent has its own keys."""
    if name is None or kind.has_names:
        return None
    return str(json.loads(name)[1]) if "agent" in kind.scope else name


class Version(NamedTuple):
    """What a record said until it was changed."""

    id: str
    """The record's."""
    version: int
    started_at: int
    ended_at: int
    ended_by: str
    """The actor that changed the record."""
    reason: str | None
    content: str
    metadata: dict[str, Any]
    source: str | None
    derived_from: tuple[str, ...]

    def of(self, record: Record) -> Record:
        """The record as it was then."""
        then = replace(record, content=self.content, metadata=self.metadata, source=self.source)
        return replace(then, derived_from=self.derived_from, updated_at=self.started_at, revision=self.version)


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
    KEPT_OUT = "kept_out"
    """Its text is kept out."""


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
    external_id: str | None = None
    """The caller's own id of it, if one was given."""


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
