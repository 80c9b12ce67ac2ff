"""``/v1/episodes``: tasks that an agent went through."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from starlette.responses import Response

from holdfast.core.access import Right
from holdfast.core.content import MAX_TOP_K
from holdfast.edges.rest.guard import Asking
from holdfast.edges.rest.memory_forms import DerivedFrom
from holdfast.edges.rest.models import MEMORY_ID, MOMENT, Answer, Metadata, Scoped, Source, example
from holdfast.edges.rest.operations import Routes, answer
from holdfast.edges.rest.rights import Reach

MAX_PARTS = 10_000
routes = Routes("episodes", "Tasks that an agent went through, with their steps, messages and tool calls.")

Part = str | dict[str, Any]


class NewEpisode(Scoped):
    """A task that has ended."""

    model_config = example(
        {
            "user_id": "alice",
            "agent_id": "travel_agent",
            "task": "Book a train to Leeds",
            "steps": ["looked up trains", "booked the 9:15"],
            "messages": [{"role": "user", "content": "To Leeds, please."}],
        }
    )

    task: str = Field(description="What it was about.")
    steps: list[Part] = Field(default=[], max_length=MAX_PARTS, description="What was done, in its order.")
    messages: list[Part] = Field(default=[], max_length=MAX_PARTS, description="What was said.")
    tool_calls: list[Part] = Field(default=[], max_length=MAX_PARTS, description="Which tools were used.")
    summary: str | None = Field(default=None, description="Made, if it is not given.")
    timestamp: str | None = Field(default=None, description="When it ended, as ISO 8601; now, if it is not given.")
    metadata: Metadata | None = Field(default=None, description="What is known of it, to be filtered by.")
    source: Source | None = None
    derived_from: DerivedFrom | None = None


class RecordedEpisode(Answer):
    """An episode that was recorded."""

    model_config = example({"episode_id": MEMORY_ID})

    episode_id: str = Field(description="The id of the memory, too.")


class EpisodeQuestion(Scoped):
    """Which episodes are looked for."""

    model_config = example({"user_id": "alice", "agent_id": "travel_agent", "query": "a journey by train", "top_k": 3})

    query: str = Field(description="What they are to be like, in any words.")
    top_k: int = Field(default=5, ge=1, le=MAX_TOP_K, description="So many at most.")


class Episode(Answer):
    """An episode, in short."""

    episode_id: str
    task: str | None
    summary: str
    date: str = Field(description="When it ended.")
    score: float
    is_archived: bool


class Episodes(Answer):
    """Episodes, best first."""

    model_config = example(
        {
            "items": [
                {
                    "episode_id": MEMORY_ID,
                    "task": "Book a train to Leeds",
                    "summary": "Looked up trains and booked the 9:15.",
                    "date": MOMENT,
                    "score": 0.71,
                    "is_archived": False,
                }
            ]
        }
    )

    items: list[Episode]


@routes.add("POST", "/episodes", Right.WRITE, Reach.MEMORY, answer=RecordedEpisode, status=201, errors=(409, 423))
def record_episode(caller: Asking, new: NewEpisode) -> Response:
    """Record an episode. Read it with `GET /v1/memories/{id}`: it is a memory like any other."""
    episode_id = caller.memory(new.user_id, new.agent_id, new.session_id).episodic.record_episode(
        new.task,
        new.steps,
        messages=new.messages,
        tool_calls=new.tool_calls,
        summary=new.summary,
        timestamp=new.timestamp,
        metadata=new.metadata,
        source=new.source,
        derived_from=new.derived_from,
    )
    return answer({"episode_id": episode_id}, 201)


@routes.add("POST", "/episodes:search", Right.READ, Reach.MEMORY, answer=Episodes)
def search_episodes(caller: Asking, asked: EpisodeQuestion) -> Response:
    """Find the agent's episodes that are most like a question; of archived ones, the summary."""
    memory = caller.memory(asked.user_id, asked.agent_id, asked.session_id)
    return answer({"items": memory.episodic.query_similar_episodes(asked.query, asked.top_k)})
