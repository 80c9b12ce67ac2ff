"""What tools take and give, as types: the schemas that clients see are made from these."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

#: The kinds that a server can keep; working memory lives and ends in the process of an agent.
Kind = Literal["long_term", "short_term", "persona", "episodic", "entity", "structured"]
MAX_FOUND: Final = 100


def _unpacked(value: object) -> object:
    """Some clients hand over objects and lists as JSON text."""
    if not isinstance(value, str):
        return value
    try:
        inner = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return inner if isinstance(inner, dict | list) else value


Unpacked = BeforeValidator(_unpacked)
Object = Annotated[dict[str, Any], Unpacked]
Texts = Annotated[list[str], Unpacked]


class Inputs(BaseModel):
    """What a tool takes. An argument that it does not know is refused, never ignored."""

    model_config = ConfigDict(extra="forbid")


class Output(BaseModel):
    """What a tool gives."""


class Whose(Inputs):
    """The memory that a tool works on."""

    user_id: Annotated[str | None, Field(description="Whose memory it is.")] = None
    agent_id: Annotated[str | None, Field(description="Which agent sees it.")] = None
    session_id: Annotated[
        str | None, Field(description="In which session; needed for short_term memory of a named session.")
    ] = None


class OneMemory(Whose):
    """One memory, by its id."""

    memory_id: Annotated[str, Field(description="The memory's id, as memory_add and memory_search give it.")]


class AddMemory(Whose):
    """What to remember."""

    content: Annotated[
        str | dict[str, Any],
        Field(description="What to remember, as text; for structured memory, a JSON object."),
    ]
    memory_type: Annotated[
        Kind,
        Field(
            description="long_term: facts and preferences of the user. short_term: what was said in this session. "
            "persona: who this agent is to the user. episodic: a task and how it went. entity: a person or thing. "
            "structured: a JSON object; its collection is named in the metadata."
        ),
    ] = "long_term"
    metadata: Annotated[
        Object | None, Field(description="A JSON object to filter by later, such as {'topic': 'travel'}.")
    ] = None
    source: Annotated[
        str | None, Field(description="Who or what it comes from, such as 'import:crm'; this agent, if left out.")
    ] = None
    derived_from: Annotated[
        Texts | None,
        Field(description="Ids of the user's memories that it was made from."),
    ] = None


class SearchMemories(Whose):
    """What to look for."""

    query: Annotated[str, Field(description="What to look for, in plain words.")]
    memory_types: Annotated[
        Annotated[list[Kind], Unpacked] | None, Field(description="Kinds to look in; long_term, if left out.")
    ] = None
    top_k: Annotated[int, Field(ge=1, le=MAX_FOUND, description="How many memories at most.")] = 5
    filters: Annotated[
        Object | None,
        Field(
            description="What the metadata must be, such as {'topic': 'travel'}, {'price': {'gte': 10}} or "
            "{'created_at': {'gte': '2026-01-01'}}."
        ),
    ] = None
    include_archived: Annotated[
        bool | None,
        Field(description="Whether archived memories are found too; only archived episodes are, if left out."),
    ] = None


class UpdateMemory(OneMemory):
    """What to change of a memory."""

    content: Annotated[
        str | dict[str, Any] | None, Field(description="What it says from now on; left out, it stays.")
    ] = None
    metadata: Annotated[
        Object | None, Field(description="Its metadata from now on, all of it; left out, it stays.")
    ] = None


class DeleteMemory(OneMemory):
    """Which memory to delete."""

    with_derived: Annotated[bool, Field(description="Whether all that was derived from it goes too.")] = False


class Added(Output):
    """What became of a memory that was added."""

    memory_id: str
    operation: str
    memory_type: str
    latency_ms: float
    quota_remaining: Annotated[int | None, Field(description="How many more there is room for; null: no limit.")]
    dropped: Annotated[int | None, Field(description="How many old messages left the short-term window.")] = None
    indexed_chars: Annotated[
        int | None, Field(description="Of a very long text: how much of it can be found, from its beginning.")
    ] = None


class Memory(Output):
    """A memory."""

    memory_id: str
    content: str
    memory_type: str
    metadata: dict[str, Any]
    agent_id: str
    session_id: str | None
    created_at: str
    updated_at: str
    is_archived: bool
    source: Annotated[str | None, Field(description="Who or what it comes from.")]
    derived_from: list[str]


class WholeMemory(Memory):
    """A memory, with what belongs to it beside its text."""

    details: Annotated[
        dict[str, Any], Field(description="Of an episode: its steps, messages and tool calls; of an entity: its facts.")
    ]


class FoundMemory(Memory):
    """A memory that was found."""

    score: Annotated[float, Field(description="How well it matches, from 0 to 1.")]
    is_cut: Annotated[
        bool, Field(description="Whether only the beginning of the content is here; memory_get has all of it.")
    ]


class Found(Output):
    """What a search found, best first."""

    memories: list[FoundMemory]


class Deleted(Output):
    """What became of a memory that was deleted."""

    memory_id: str
    operation: Annotated[str, Field(description="recycle: memory_restore brings it back; delete: gone for good.")]
    memory_type: str
    deleted_with: Annotated[list[str], Field(description="What went with it, because it was derived from it.")]
    derived: Annotated[list[str], Field(description="What is still there though it was derived from it.")]


class Restored(Memory):
    """A memory that is back."""

    restored_with: Annotated[list[str], Field(description="What came back with it, because it went with it.")]


class KindRules(Output):
    """How long one kind is kept; null is never."""

    memory_type: Annotated[str, Field(description="The kind; history is the conversation that short_term leaves.")]
    rule: Annotated[str, Field(description="The rule in force, in sentences.")]
    archive_after_days: float | str | None
    archive_by: str | None
    delete_after_days: Annotated[float | str | None, Field(description="Then it goes to the recycle bin.")]
    delete_by: str | None
    keep_days: Annotated[float | str | None, Field(description="Not removed before that age, whatever else is said.")]
    keep_by: str | None
    gone_after_days: Annotated[float | None, Field(description="Deleted for good: its time and the recycle bin's.")]
    ttl_seconds: Annotated[float | None, Field(description="Of short_term: after the session's last message.")]
    max_memories: Annotated[int | None, Field(description="The quota; null: no limit.")]
    max_bytes: int | None
    quota_remaining: int | None
    exceptions: Annotated[list[dict[str, Any]], Field(description="Rules for single sessions or memories of the user.")]


class MemoryRules(Output):
    """The rules in force for one user, agent and session."""

    user_id: str
    agent_id: str
    session_id: str | None
    summary: Annotated[str, Field(description="All of it in sentences, a line for each kind.")]
    recycle_bin_days: Annotated[int, Field(description="What is removed can be restored for so long.")]
    kinds: list[KindRules]
    holds: Annotated[
        list[dict[str, Any]], Field(description="Holds that name the user, the agent or the session: nothing goes.")
    ]


class Move(Output):
    """What happens to a memory next."""

    action: str
    at: str | None
    due: bool
    rule: str | None
    reason: str | None


class Explanation(Output):
    """All that can be said of a memory's life; of one that is gone, how it went."""

    memory_id: str
    summary: Annotated[str, Field(description="The explanation in a few sentences.")]
    state: str
    is_visible: bool
    memory_type: str | None = None
    is_archived: bool | None = None
    created_at: str | None = None
    age_counts_from: str | None = None
    kept_until: str | None = None
    next: Move | None = None
    protected_by: Annotated[list[dict[str, Any]], Field(description="Holds that keep it from being removed.")]
    rules: Annotated[dict[str, Any] | None, Field(description="The rules that it lives under.")] = None
    source: str | None = None
    derived_from: list[str] = []
    derived: list[str] = []
    removed_at: str | None = None
    removed_because: str | None = None
    days_left: Annotated[int | None, Field(description="In the recycle bin: days until it is gone for good.")] = None
    deleted_at: str | None = None
    reason: str | None = None
    cause: str | None = None
    rule: str | None = None
    history: Annotated[list[dict[str, Any]], Field(description="What was done to it, oldest first.")] = []
