"""What requests and answers about memories look like."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from holdfast.core.provenance import MAX_DERIVED_FROM
from holdfast.core.types import MemoryType
from holdfast.edges.rest.models import (
    MEMORY_ID,
    MOMENT,
    Answer,
    Kind,
    Memory,
    Metadata,
    Request,
    Scoped,
    Source,
    example,
)
from holdfast.edges.rest.pagination import Page

MAX_BATCH = 1_000

DerivedFrom = Annotated[
    list[str],
    Field(max_length=MAX_DERIVED_FROM, description="Ids of the memories and messages of this user it was made from."),
]
AUTO_PRUNE = "At the quota, send the oldest tenth of the kind to the recycle bin first."


class NewMemory(Scoped):
    """A memory to be added."""

    model_config = example(
        {
            "user_id": "alice",
            "agent_id": "travel_agent",
            "session_id": "s1",
            "content": "Ann likes green tea.",
            "memory_type": "long_term",
            "metadata": {"topic": "drinks"},
        }
    )

    content: str | dict[str, Any] = Field(description="A text; of working and structured memory also an object.")
    memory_type: Kind = MemoryType.LONG_TERM
    metadata: Metadata | None = Field(default=None, description="What is known of it, to be filtered by.")
    source: Source | None = None
    derived_from: DerivedFrom | None = None
    auto_prune: bool = Field(default=False, description=AUTO_PRUNE)


class NewMemories(Scoped):
    """Memories to be added together, all of them or none."""

    model_config = example(
        {
            "user_id": "alice",
            "agent_id": "travel_agent",
            "contents": ["Ann likes green tea.", "Ann lives in Leeds."],
            "memory_type": "long_term",
        }
    )

    contents: list[str | dict[str, Any]] = Field(max_length=MAX_BATCH, description="What each of them says.")
    memory_type: Kind = MemoryType.LONG_TERM
    metadata: Metadata | list[Metadata | None] | None = Field(
        default=None, description="One object for all of them, or a list with one for each."
    )
    source: Source | None = None
    derived_from: DerivedFrom | None = None
    auto_prune: bool = Field(default=False, description=AUTO_PRUNE)


class Changes(Request):
    """What is to change; what is not given stays."""

    model_config = example({"content": "Ann likes white tea."})

    content: str | dict[str, Any] | None = Field(default=None, description="What it says from now on.")
    metadata: Metadata | None = Field(default=None, description="All of the metadata is replaced.")
    source: Source | None = None
    derived_from: DerivedFrom | None = None


class Added(Answer):
    """A memory that was added."""

    model_config = example(
        {
            "memory_id": MEMORY_ID,
            "operation": "add",
            "memory_type": "long_term",
            "latency_ms": 1.2,
            "quota_remaining": 9_999,
        }
    )

    memory_id: str
    operation: str = Field(description="`add`, or `add_with_prune`.")
    memory_type: MemoryType
    latency_ms: float
    quota_remaining: int | None = Field(
        description="How many more fit; `null`: no limit. In short-term memory the oldest messages leave after that."
    )
    pruned: int | None = Field(default=None, description="How many old ones went to the recycle bin.")
    dropped: int | None = Field(default=None, description="How many old messages left the short-term window.")
    indexed_chars: int | None = Field(
        default=None, description="Of a very long text: how much of it is embedded and indexed, from its beginning."
    )


class AddedMany(Answer):
    """Memories that were added."""

    model_config = example(
        {
            "memory_ids": [MEMORY_ID],
            "operation": "add_many",
            "memory_type": "long_term",
            "latency_ms": 2.5,
            "quota_remaining": 9_998,
        }
    )

    memory_ids: list[str] = Field(description="In the order of the contents.")
    operation: str
    memory_type: MemoryType
    latency_ms: float
    quota_remaining: int | None
    pruned: int | None = None
    dropped: int | None = None


class WholeMemory(Memory):
    """A memory with all that belongs to it."""

    task: str | None = Field(default=None, description="Of an episode: what it was about.")
    steps: list[Metadata] | None = None
    messages: list[Metadata] | None = None
    tool_calls: list[Metadata] | None = None
    restored_with: list[str] | None = Field(
        default=None, description="What was derived from it and came back with it, after a restore."
    )


class MemoryPage(Page):
    """Some memories, newest first."""

    items: list[Memory]


class Deleted(Answer):
    """A memory that was deleted."""

    model_config = example({"memory_id": MEMORY_ID, "operation": "recycle", "memory_type": "long_term"})

    memory_id: str
    operation: str = Field(description="`recycle`: it can be restored; `delete`: it is gone.")
    memory_type: MemoryType
    deleted_with: list[str] | None = Field(default=None, description="What was derived from it and went with it.")
    derived: list[str] | None = Field(default=None, description="What was derived from it and is still there.")


class Derived(Answer):
    """What was made from a memory."""

    items: list[Memory]


class Explanation(Answer):
    """Why a memory is as it is, and what happens to it next."""

    model_config = example(
        {
            "memory_id": MEMORY_ID,
            "memory_type": "long_term",
            "state": "active",
            "is_visible": True,
            "is_archived": False,
            "created_at": MOMENT,
            "next": {
                "action": "archive",
                "at": "2027-01-15T12:00:00+00:00",
                "due": False,
                "rule": "the default for long_term",
                "reason": "365 days after it was made",
            },
            "protected_by": [],
            "summary": "This long_term memory is active. It is to be archived on 2027-01-15T12:00:00+00:00.",
        },
        closed=False,
    )

    memory_id: str
    memory_type: str | None
    state: str
    is_visible: bool
    next: Metadata | None
    protected_by: list[Metadata]
    summary: str
