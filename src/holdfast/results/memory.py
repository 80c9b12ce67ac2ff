"""What the verbs of memories and conversations return.

There is no ``from __future__ import annotations`` here: with it, Python does not know which keys are not required.
"""

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from holdfast.core.errors import InvalidInputError
from holdfast.core.prompts import LeftOut

Metadata = dict[str, Any]


class WriteResult(TypedDict):
    """What every way to add returns."""

    operation: str
    memory_type: str
    latency_ms: float
    quota_remaining: int | None
    """``None``: there is no limit."""
    pruned: NotRequired[int]
    """How many old memories went to the recycle bin to make room."""
    dropped: NotRequired[int]
    """How many messages left the window of short-term memory."""
    existing: NotRequired[int]
    """How many of several contents were there already, and were not added again."""
    corrected: NotRequired[int]
    """How many of these were said before, by memories that have been corrected since."""
    kept_out: NotRequired[int]
    """How many of several contents were not added because their texts are kept out."""


class SaidResult(TypedDict):
    """What a memory says."""

    memory_id: str
    content: str
    created_at: str


class SimilarResult(SaidResult):
    """A memory that is close to one that was added."""

    score: float
    """From 0.5 to 1; higher is closer."""


class AddResult(WriteResult):
    """What ``add`` and ``add_with_auto_prune`` return."""

    memory_id: str
    version: NotRequired[int]
    """Of a memory that was corrected: the version that is current now."""
    indexed_chars: NotRequired[int]
    """How much of a long text is indexed."""
    corrected_to: NotRequired[str]
    """What the memory says now, where it said the text before, and was corrected; nothing was added."""
    similar: NotRequired[list[SimilarResult]]
    """The closest memories of the kind, if they were asked for: perhaps one of them is to be corrected instead."""


class RememberResult(AddResult):
    """A fact that ``remember`` added, or found to be known."""

    content: str
    derived_from: list[str]


class AddManyResult(WriteResult):
    """What ``add_many`` returns."""

    memory_ids: list[str]


class SkippedResult(TypedDict):
    """Something that was not imported."""

    position: int
    """Its place in what was given, from 0."""
    key: str | None
    reason: str


class ImportResult(TypedDict):
    """What became of memories from elsewhere."""

    added: int
    corrected: int
    """Were there under their keys, and have changed where they come from."""
    existing: int
    """Were there already."""
    kept_out: int
    """Their texts are kept out."""
    skipped: list[SkippedResult]


class _Memory(TypedDict):
    """A memory, but for what it goes by."""

    memory_id: str
    content: str
    memory_type: str
    metadata: Metadata
    agent_id: str
    session_id: str | None
    created_at: str
    updated_at: str
    is_archived: bool
    source: str
    derived_from: list[str]
    version: int
    """Counts the changes of what it says; ``structured.put(if_version=…)`` takes it."""


class MemoryResult(_Memory):
    """A memory."""

    key: NotRequired[str]
    """What it goes by, where it was added with a key."""


class VersionResult(TypedDict):
    """What a memory says, or said before it was changed."""

    version: int
    content: str
    metadata: Metadata
    source: str
    derived_from: list[str]
    started_at: str
    ended_at: str | None
    """``None``: it is the one that is current."""
    ended_by: str | None
    reason: str | None
    """Why it ended, where that was said."""


class RetrieveResult(MemoryResult):
    """A memory that bears on a query."""

    score: float
    """From 0 to 1; higher is better."""
    explanation: NotRequired[dict[str, float]]
    """The parts of the score, where they were asked for."""
    count: NotRequired[int]
    """How many of the memories that bear on the query have this text, where that is more than one."""


class GetResult(MemoryResult):
    """A memory, and of an episode what it consists of."""

    task: NotRequired[str | None]
    messages: NotRequired[list[dict[str, Any]]]
    steps: NotRequired[list[dict[str, Any]]]
    tool_calls: NotRequired[list[dict[str, Any]]]


class LeftOutResult(TypedDict):
    """A memory that bears on a query and is not in a block for a prompt."""

    memory_id: str
    memory_type: str
    reason: str


class ContextResult(TypedDict):
    """One block for a prompt."""

    text: str
    """Empty, where there is nothing to say."""
    memories: list[MemoryResult]
    """Those that are in it, in their order. A line shows the last eight characters of the id of its memory."""
    tokens: int
    left_out: list[LeftOutResult]
    """What bears on the query and is not in it, and why."""


@dataclass(frozen=True, slots=True)
class Context:
    """One block for a prompt. ``str(context)`` is its text."""

    text: str
    """Empty, where there is nothing to say."""
    memories: list[MemoryResult]
    """Those that are in it, in their order. A line shows the last eight characters of the id of its memory."""
    tokens: int
    left_out: list[LeftOut]
    """What bears on the query and is not in it, and why."""

    def __str__(self) -> str:
        return self.text

    @property
    def messages(self) -> list[dict[str, str]]:
        """The block as messages, where that is its format."""
        found: Any = None
        with suppress(ValueError):
            found = json.loads(self.text) if self.text else []
        if not isinstance(found, list):
            raise InvalidInputError("only a context whose format is 'messages' has messages; ask for that format")
        return found

    def to_dict(self) -> ContextResult:
        """As JSON has it."""
        left: list[LeftOutResult] = [
            {"memory_id": one.memory_id, "memory_type": one.memory_type, "reason": one.reason} for one in self.left_out
        ]
        return {"text": self.text, "memories": self.memories, "tokens": self.tokens, "left_out": left}


class DocumentResult(_Memory):
    """A document of a collection."""

    collection: str
    key: str | None
    document: dict[str, Any] | None
    expires_at: str | None
    """When its time is over; ``None``: at no time that is known."""


class CollectionResult(TypedDict):
    """A collection, and how many documents are in it."""

    collection: str
    documents: int


class RestoreResult(MemoryResult):
    """A memory that came back from the recycle bin."""

    restored_with: NotRequired[list[str]]
    """What came back with it, because it was derived from it."""


class DeleteResult(TypedDict):
    """What ``delete`` returns."""

    memory_id: str
    operation: str
    """``recycle``, or ``delete`` where it is gone for good."""
    memory_type: str
    deleted_with: NotRequired[list[str]]
    """What went with it: what was derived from it, and memories of the same text, where that was asked for."""
    kept_out: NotRequired[bool]
    """Whether its text does not come back."""
    derived: NotRequired[list[str]]
    """What stays, though it was derived from it."""


class ConflictResult(TypedDict):
    """Two memories that are about the same thing and differ."""

    older: SaidResult
    newer: SaidResult
    score: float
    """How close they are, from 0.5 to 1."""
    why: str
    """How they differ, in a sentence."""


class KeptOutResult(TypedDict):
    """A memory that was deleted, and whose text is not to come back."""

    memory_id: str
    kept_out_at: str
    author: str
    """Who asked for it, as the audit chain names them."""


class _LikeQuery(TypedDict):
    episode_id: str
    date: str
    score: float


class EpisodeResult(_LikeQuery):
    """An episode that is like a query."""

    task: str | None
    summary: str
    is_archived: bool


class EpisodeMessageResult(_LikeQuery):
    """A message of an episode that is like a query."""

    position: int
    role: str | None
    content: Any


class FactResult(TypedDict):
    """What holds, or held, of an entity: an attribute has a value, a relation has two ends."""

    fact_id: str
    name: str
    since: str
    until: str | None
    recorded_at: str
    value: NotRequired[Any]
    source: NotRequired[str | None]
    target: NotRequired[str | None]
    source_id: NotRequired[str]
    target_id: NotRequired[str]


class _Entity(TypedDict):
    entity_id: str
    name: str | None
    entity_type: str | None


class EntityResult(_Entity):
    """What is known of an entity."""

    description: str | None
    attributes: dict[str, Any]
    relations: list[FactResult]
    metadata: Metadata


class NeighbourResult(_Entity):
    """An entity that relations lead to."""

    relation: str
    direction: str
    distance: int
    since: str


class MessageResult(TypedDict):
    """A message of a conversation."""

    message_id: str
    role: str
    content: str
    timestamp: str
    metadata: Metadata
    external_id: NotRequired[str]
    """The caller's own id of it, if one was given."""


class PartContentResult(TypedDict):
    """What belongs to a session and lies elsewhere, such as a thread of LangGraph."""

    part: str
    """What the place is called."""
    session_id: str
    agent_id: str
    state: str
    """``active``, or ``recycled``: in the recycle bin."""
    active_at: str | None
    due_at: str | None
    """When it goes to the recycle bin by its rules, if nothing is written until then, or leaves it; ``None``: never."""
    rows: int | None
    """Checkpoints; ``None`` where it is in the recycle bin."""
    bytes: int | None


class SessionResult(TypedDict):
    """A conversation."""

    agent_id: str
    session_id: str | None
    summary: str
    created_at: str
    updated_on: str
    messages: int
    bytes: int
    """Of its messages, and of what belongs to it elsewhere."""
    part_bytes: int
    """Of what belongs to it elsewhere, such as a thread of LangGraph."""
    expires_at: str | None
    """When its time is over by its rules, if nobody says anything until then; ``None``: never."""
