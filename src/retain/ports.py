"""The contracts between what Retain does and the engines that it runs on.

Each protocol is narrow, speaks the domain and states its contract; engines satisfy it by shape, not by inheritance.
One conformance suite per protocol (``tests/conformance``) runs over every engine. Moments are whole microseconds
since 1970. Each method is one transaction: when it returns, its effect is durable; when it raises, there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from retain.core.records import Encoding, Entry, Fact, Message, Move, Record, Scope, Usage
from retain.core.types import Kind

Vectors = npt.NDArray[np.float32]


class Embedder(Protocol):
    """Turns texts into vectors of one space."""

    @property
    def id(self) -> str:
        """Names the space: two embedders share an id only if their vectors may be compared."""

    @property
    def dim(self) -> int:
        """How long each vector is."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit-length float32 row per text (all zeros where a text has nothing to embed).

        Raises ``EmbedderError``; ``EmbedderUnavailableError`` where trying again may help.
        """


class Summarizer(Protocol):
    """Makes a short text of a long one."""

    def summarize(self, texts: Sequence[str], *, max_chars: int) -> str:
        """A summary of ``texts``, in their order, of at most ``max_chars`` characters."""


class IndexRow(NamedTuple):
    """What the recall index needs to know of a record; all of it lies in the record's own row."""

    id: str
    agent_id: str
    session_id: str | None
    created_at: int
    updated_at: int
    hidden_from: int | None
    """The moment from which the record must not be seen, whether or not a sweep has run."""
    archived: bool
    metadata: str
    """JSON text."""
    vectors: bytes | None
    """float16, one row per passage, in the space of the index's embedder; ``None`` if not embedded in that space."""
    terms: bytes
    """The passages' terms, as ``recall.terms.encode`` wrote them."""


#: How far an index has followed a scope; means something to the engine only.
Cursor = tuple[int, ...]


class Changes(NamedTuple):
    """What happened to a scope since a caller last looked."""

    cursor: Cursor
    """Hand this back next time."""
    reload: bool
    """``rows`` is everything there is; what the caller had is to be forgotten."""
    rows: list[IndexRow]
    """Live records that are new or changed, or (``reload``) all of them."""
    gone: list[str]
    """Ids that are no longer live."""


class Added(NamedTuple):
    """The outcome of an insert."""

    usage: Usage
    """As it is after the insert."""
    pruned: int
    """How many old records went to the recycle bin to make room."""


class RecordStore(Protocol):
    """Durable records of the kinds that ``TYPES`` calls durable."""

    def insert(self, subject: str, kind: Kind, entries: Sequence[Entry], *, prune: bool, now: int) -> Added:
        """Add all entries, or none of them.

        Raises ``QuotaExceededError`` where they would exceed the quota of the subject for the kind, counted exactly,
        whatever other writers do, and ``ConflictError`` where a live record goes by the name of one of them. With
        ``prune``, the oldest tenth of the live records is recycled first, as often as it takes; what cannot be made
        room for is refused.
        """

    def get(self, subject: str, record_id: str) -> Record | None:
        """The record, in whatever state it is; ``None`` if there is no such."""

    def named(self, subject: str, kind: Kind, name: str, *, now: int) -> Record | None:
        """The live record of a kind that goes by a name, if it is not hidden at ``now``."""

    def fetch(self, subject: str, record_ids: Sequence[str], *, now: int) -> dict[str, Record]:
        """Those of the records that are live and not hidden at ``now``, by id."""

    def replace(self, entry: Entry) -> bool:
        """Write a new version of a live record; ``False``, changing nothing, if it moved or changed meanwhile.

        ``entry.record.version`` is the version it was made from; the stored one counts one more.
        """

    def transition(self, subject: str, moves: Sequence[Move], *, now: int) -> list[bool]:
        """Carry out each move, or say ``False`` where it is stale and change nothing of that record.

        The only way from one state to another. Leaving the bin needs room: ``QuotaExceededError`` undoes all of it.
        """

    def usage(self, subject: str, kind: Kind) -> Usage:
        """What the subject holds of a kind, live records only."""

    def set_quota(self, tenant: str, user_id: str | None, kind: Kind, limits: dict[str, int | None]) -> None:
        """Set ``max_memories`` and ``max_bytes`` (those that are given; ``None``: no limit) for a user or a tenant."""


class RecallFeed(Protocol):
    """What an in-process index follows."""

    def changes(self, scope: Scope, kind: Kind, since: Cursor | None, *, model: str) -> Changes:
        """What changed in a scope since ``since`` (``None``: everything), as ``model`` sees it.

        Writes and deletes of any process are in the answer once they have committed.
        """

    def unembedded(self, subject: str, kind: Kind, *, model: str, limit: int) -> list[Record]:
        """Live records of a kind that have no vectors of this model."""

    def embed(self, subject: str, kind: Kind, encodings: Iterable[tuple[str, int, Encoding]]) -> int:
        """Give records (id, version) their new encoding; those that changed meanwhile are passed over."""

    def adopt(self, model: str) -> None:
        """Make this the model that records without its vectors are to be embedded with."""

    def is_current(self, model: str) -> bool:
        """Whether this model was the last to be adopted."""

    def subjects(self, tenant: str) -> Iterator[str]:
        """Every subject of a tenant."""


class History(Protocol):
    """Conversations, kept durably."""

    def append(self, scope: Scope, messages: Sequence[Message]) -> None:
        """Add messages to the session's conversation."""

    def messages(self, scope: Scope, *, limit: int | None = None) -> list[Message]:
        """The conversation in its order; with ``limit``, its last messages."""

    def remove(self, scope: Scope, message_ids: Sequence[str]) -> int:
        """Take messages out of a conversation for good; how many there were."""

    def owners(self, tenant: str, agent_id: str, session_id: str | None) -> list[str]:
        """The users of a tenant who have a session of this name with an agent."""

    def sessions(self, tenant: str, user_id: str, agent_id: str | None = None) -> list[dict[str, Any]]:
        """The sessions of a user: agent, session, when begun and last active, how many messages."""


class ShortTermStore(Protocol):
    """Messages of a session that are gone ``ttl`` after the session's last write."""

    def append(self, scope: Scope, messages: Sequence[Message], *, ttl: int, now: int, most: int) -> int:
        """Add messages and keep the whole session for ``ttl`` microseconds from ``now``.

        A session holds the last ``most`` messages; the answer is how many it holds now.
        """

    def window(self, scope: Scope, *, now: int) -> list[Message]:
        """The messages in their order; empty from the instant of expiry on."""

    def expires_at(self, scope: Scope, *, now: int) -> int | None:
        """When the session expires; ``None`` if it holds nothing."""

    def remove(self, scope: Scope, message_ids: Sequence[str]) -> int:
        """Take messages out for good; how many there were."""


class FactStore(Protocol):
    """Facts of a subject's entities."""

    def record(self, subject: str, facts: Sequence[Fact], *, replacing: bool) -> list[str]:
        """Let each fact join what is known, as ``core.facts.succession`` says, together; the ids that were added."""

    def end(self, subject: str, fact_ids: Sequence[str], *, at: int) -> int:
        """End those of the facts that still hold; how many there were."""

    def facts(self, subject: str, entity_ids: Sequence[str]) -> list[Fact]:
        """Every fact, current and ended, that has one of the entities as source or target, oldest first."""


class SchemaStore(Protocol):
    """JSON Schemas of a tenant's collections."""

    def put(self, tenant: str, collection: str, schema: str | None) -> None:
        """Set (or, with ``None``, remove) the schema of a collection, as JSON text."""

    def get(self, tenant: str, collection: str) -> str | None:
        """The schema of a collection, as JSON text."""
