"""Operations on conversations and episodes: what was said in a session, and the tasks that an agent went through."""

from __future__ import annotations

from enum import StrEnum
from operator import itemgetter
from typing import Annotated, Any, Final, TypedDict

from pydantic import Field

from holdfast.core.values import MAX_TOP_K
from holdfast.edges.access.gate import BoundedMemory
from holdfast.edges.operations.memories import WHO, DerivedFrom, NewMetadata, Source
from holdfast.edges.operations.models import AgentId, Id, Input, Paged, Scoped, UserId, example
from holdfast.edges.operations.operation import MEMORY, READ, USER, WRITE, Group
from holdfast.edges.operations.outputs import ListOf, PageOf
from holdfast.engine import Holdfast
from holdfast.results.memory import EpisodeResult, MessageResult, PartContentResult, SessionResult

sessions = Group("sessions", "Conversations: their messages, as short-term memory has them and as they are kept.")
episodes = Group("episodes", "Tasks that an agent went through, with their steps, messages and tool calls.")
MAX_PARTS: Final = 10_000
Parts = Annotated[list[str | dict[str, Any]], Field(max_length=MAX_PARTS)]


class Which(StrEnum):
    """Which messages of a session."""

    WINDOW = "window"
    """Those that short-term memory holds."""
    HISTORY = "history"
    """All that are kept."""


class OneSession(Input):
    """One session."""

    user_id: UserId
    agent_id: AgentId
    session_id: Id = Field(description="The session's id.", examples=["s1"])


class Said(Input):
    """Something that was said."""

    role: Id = Field(description="Who says it: `user`, `assistant`, any name.")
    content: str = Field(description="What is said; it may be empty.")
    metadata: NewMetadata = None
    external_id: Id | None = Field(
        None, description="Your own id of the message. If the session has a message with it, none is added."
    )
    timestamp: str | None = Field(
        None, description="When it was said, as ISO 8601, not in the future; now, if it is not given."
    )


class NewMessage(OneSession, Said):
    """Something that was said in a session."""

    model_config = example({**WHO, "role": "user", "content": "Where is my order?"})


class NewMessages(OneSession):
    """What was said in a session, in its order: added together, all of it or nothing."""

    model_config = example(
        {
            **WHO,
            "messages": [
                {"role": "user", "content": "Where is my order?", "external_id": "msg_1"},
                {"role": "assistant", "content": "On its way.", "external_id": "msg_2"},
            ],
        }
    )

    messages: list[Said] = Field(max_length=MAX_PARTS, description="The messages.")


class ListSessions(Paged):
    """Whose sessions to list."""

    user_id: UserId
    agent_id: Id | None = Field(None, description="With which agent; with any, if not given.")


class ListThreads(Paged):
    """Whose threads to list."""

    user_id: UserId


class ListMessages(OneSession, Paged):
    """Which messages of a session to list."""

    which: Annotated[Which, Field(strict=False)] = Field(
        Which.HISTORY, description="What short-term memory holds, or all that is kept."
    )


class AddedMessage(TypedDict):
    """A message that was added."""

    message_id: str
    ttl_seconds: int | None
    """So long the session stays in short-term memory."""


class AddedMessages(TypedDict):
    """Messages that were added, or were there."""

    message_ids: list[str]
    """The id of each of them."""
    ttl_seconds: int | None
    """So long the session stays in short-term memory."""


class RemovedSession(TypedDict):
    """A session that went to the recycle bin."""

    agent_id: str
    session_id: str
    messages: int


class NewEpisode(Scoped):
    """A task that has ended."""

    model_config = example(
        {
            **WHO,
            "task": "Book a train to Leeds",
            "steps": ["looked up trains", "booked the 9:15"],
            "messages": [{"role": "user", "content": "To Leeds, please."}],
        }
    )

    task: str = Field(description="What it was about.")
    steps: Parts = Field([], description="What was done, in its order.")
    messages: Parts = Field([], description="What was said.")
    tool_calls: Parts = Field([], description="Which tools were used.")
    summary: str | None = Field(None, description="Made, if it is not given.")
    timestamp: str | None = Field(None, description="When it ended, as ISO 8601; now, if it is not given.")
    metadata: NewMetadata = None
    source: Source = None
    derived_from: DerivedFrom = None


class RecordedEpisode(TypedDict):
    """An episode that was recorded."""

    episode_id: str
    """The id of the memory, too."""


class EpisodeQuestion(Scoped):
    """Which episodes are looked for."""

    model_config = example({**WHO, "query": "a journey by train", "top_k": 3})

    query: str = Field(description="What they are to be like, in any words.")
    top_k: int = Field(5, ge=1, le=MAX_TOP_K, description="How many at most.")


@sessions.add("GET /sessions", READ, USER)
def list_sessions(holdfast: Holdfast, asked: ListSessions) -> PageOf[SessionResult]:
    """List the sessions of a user, those begun last first."""

    def key(one: SessionResult) -> str:
        return "\x1f".join((one["created_at"], one["agent_id"], one["session_id"] or ""))

    return asked.cut_page(holdfast.sessions.list(asked.user_id, asked.agent_id), key, descending=True)


@sessions.add("GET /sessions/threads", READ, USER)
def list_threads(holdfast: Holdfast, asked: ListThreads) -> PageOf[PartContentResult]:
    """List what belongs to a user's sessions and lies elsewhere: threads of LangGraph where that is governed."""

    def key(one: PartContentResult) -> str:
        return "\x1f".join((str(int(one["state"] == "active")), one["active_at"] or "", one["part"], one["session_id"]))

    return asked.cut_page([*holdfast.parts.contents(asked.user_id)], key, descending=True)


@sessions.add("POST /sessions/{session_id}/messages", WRITE, MEMORY, status=201, errors=(409, 423))
def add_message(memory: BoundedMemory, asked: NewMessage) -> AddedMessage:
    """Append a message to a session, in short-term memory and in the history that is kept."""
    (message_id,) = memory.short_term.add_messages([asked.to_arguments("user_id", "agent_id", "session_id")])
    return {"message_id": message_id, "ttl_seconds": memory.short_term.get_ttl()}


@sessions.add("POST /sessions/{session_id}/messages:batch", WRITE, MEMORY, status=201, errors=(409, 423))
def add_messages(memory: BoundedMemory, asked: NewMessages) -> AddedMessages:
    """Append messages to a session, all of them or none. One whose `external_id` the session has is not added again."""
    message_ids = memory.short_term.add_messages([one.to_arguments() for one in asked.messages])
    return {"message_ids": message_ids, "ttl_seconds": memory.short_term.get_ttl()}


@sessions.add("GET /sessions/{session_id}/messages", READ, MEMORY)
def list_messages(memory: BoundedMemory, asked: ListMessages) -> PageOf[MessageResult]:
    """Read the messages of a session, in their order: the last ones first, then what was said before them."""
    before = asked.read_last()
    if asked.which is Which.HISTORY:
        found = memory.short_term.get_full_history(asked.limit + 1, before=before)
    else:
        window = memory.short_term.get_conversation_history()
        found = [one for one in window if before is None or one["message_id"] < before][-asked.limit - 1 :]
    page = asked.make_page(found[::-1], itemgetter("message_id"))
    return {"items": page["items"][::-1], "next_cursor": page["next_cursor"]}


@sessions.add("DELETE /sessions/{session_id}", WRITE, MEMORY, errors=(404, 423))
def remove_session(memory: BoundedMemory, asked: OneSession) -> RemovedSession:
    """Send a session to the recycle bin for 15 days; its short-term window is gone for good."""
    return {"agent_id": asked.agent_id, "session_id": asked.session_id, "messages": memory.remove_session()}


@episodes.add("POST /episodes", WRITE, MEMORY, status=201, errors=(423,))
def record_episode(memory: BoundedMemory, asked: NewEpisode) -> RecordedEpisode:
    """Record an episode. Read it with `GET /v1/memories/{id}`: it is a memory like any other."""
    return {"episode_id": memory.episodic.record_episode(**asked.to_arguments())}


@episodes.add("POST /episodes:search", READ, MEMORY)
def search_episodes(memory: BoundedMemory, asked: EpisodeQuestion) -> ListOf[EpisodeResult]:
    """Find the agent's episodes that are most like a question; of archived ones, the summary."""
    return {"items": memory.episodic.query_similar_episodes(asked.query, asked.top_k)}
