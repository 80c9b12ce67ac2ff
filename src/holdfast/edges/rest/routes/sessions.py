"""``/v1/sessions``: conversations, kept beside the short-term window."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from holdfast.core.access import Right
from holdfast.core.content import MAX_ID_CHARS
from holdfast.edges.rest.guard import Asking
from holdfast.edges.rest.models import (
    MEMORY_ID,
    MOMENT,
    AgentId,
    Answer,
    Metadata,
    OfAgent,
    OfUser,
    Request,
    SessionInPath,
    UserId,
    example,
)
from holdfast.edges.rest.operations import Routes, answer
from holdfast.edges.rest.pagination import After, Limit, Page, page_of, read_cursor, write_cursor
from holdfast.edges.rest.rights import Reach

routes = Routes("sessions", "Conversations: their messages, as short-term memory has them and as they are kept.")


class Which(StrEnum):
    """Which messages of a session."""

    WINDOW = "window"
    """Those that short-term memory holds."""
    HISTORY = "history"
    """All that are kept."""


class NewMessage(Request):
    """Something that was said in a session."""

    model_config = example(
        {"user_id": "alice", "agent_id": "travel_agent", "role": "user", "content": "Where is my order?"}
    )

    user_id: UserId
    agent_id: AgentId
    role: str = Field(min_length=1, max_length=MAX_ID_CHARS, description="Who says it: `user`, `assistant`, any name.")
    content: str = Field(description="What is said.")
    metadata: Metadata | None = Field(default=None, description="What is known of it.")


class AddedMessage(Answer):
    """A message that was added."""

    model_config = example({"message_id": MEMORY_ID, "ttl_seconds": 3_600})

    message_id: str
    ttl_seconds: int | None = Field(description="So long the session stays in short-term memory.")


class Message(Answer):
    """A message of a session."""

    model_config = example(
        {
            "message_id": MEMORY_ID,
            "role": "user",
            "content": "Where is my order?",
            "timestamp": MOMENT,
            "metadata": {},
        }
    )

    message_id: str
    role: str
    content: str
    timestamp: str
    metadata: Metadata


class MessagePage(Page):
    """Messages in their order, the latest page first: `next_cursor` leads to what was said before."""

    items: list[Message]


class Session(Answer):
    """A session."""

    model_config = example(
        {
            "agent_id": "travel_agent",
            "session_id": "s1",
            "summary": "user: Where is my order?",
            "created_at": MOMENT,
            "updated_on": MOMENT,
            "messages": 1,
        }
    )

    agent_id: str
    session_id: str | None = Field(description="`null`: the session without a name.")
    summary: str
    created_at: str
    updated_on: str = Field(description="When it was last active.")
    messages: int


class SessionPage(Page):
    """Some sessions, those begun last first."""

    items: list[Session]


class RemovedSession(Answer):
    """A session that went to the recycle bin."""

    model_config = example({"agent_id": "travel_agent", "session_id": "s1", "messages": 12})

    agent_id: str
    session_id: str
    messages: int


@routes.add("GET", "/sessions", Right.READ, Reach.USER, answer=SessionPage)
def list_sessions(
    *,
    caller: Asking,
    user_id: OfUser,
    agent_id: Annotated[
        str | None, Query(min_length=1, max_length=MAX_ID_CHARS, description="With which agent.")
    ] = None,
    limit: Limit = 100,
    cursor: After = None,
) -> Response:
    """List the sessions of a user, those begun last first."""
    found = caller.user(user_id).sessions.list(user_id, agent_id)
    asked = (caller.gate.tenant_id, user_id, agent_id)
    key = lambda one: f"{one['created_at']}\x1f{one['agent_id']}\x1f{one['session_id'] or ''}"  # noqa: E731
    return answer(page_of(found, limit, cursor, listing="sessions", asked=asked, key=key, descending=True))


@routes.add(
    "POST",
    "/sessions/{session_id:id}/messages",
    Right.WRITE,
    Reach.MEMORY,
    answer=AddedMessage,
    status=201,
    errors=(409, 423),
)
def add_message(caller: Asking, session_id: SessionInPath, new: NewMessage) -> Response:
    """Append a message to a session, in short-term memory and in the history that is kept."""
    short_term = caller.memory(new.user_id, new.agent_id, session_id).short_term
    message_id = short_term.add_message(new.role, new.content, new.metadata)
    return answer({"message_id": message_id, "ttl_seconds": short_term.get_ttl()}, 201)


@routes.add("GET", "/sessions/{session_id:id}/messages", Right.READ, Reach.MEMORY, answer=MessagePage)
def list_messages(
    *,
    caller: Asking,
    session_id: SessionInPath,
    user_id: OfUser,
    agent_id: OfAgent,
    which: Annotated[Which, Query(description="What short-term memory holds, or all that is kept.")] = Which.HISTORY,
    limit: Limit = 100,
    cursor: After = None,
) -> Response:
    """Read the messages of a session, in their order: the last ones first, then what was said before them."""
    short_term = caller.memory(user_id, agent_id, session_id).short_term
    asked = (caller.gate.tenant_id, user_id, agent_id, session_id, which)
    place = read_cursor(cursor, "messages", asked, str)
    before = None if place is None else str(place[0])
    if which is Which.HISTORY:
        found = short_term.get_full_history(limit + 1, before=before)
    else:
        window = short_term.get_conversation_history()
        upto = [one for one in window if before is None or one["message_id"] < before]
        found = upto[-limit - 1 :]
    shown = found[-limit:]
    more = len(found) > limit
    return answer(
        {
            "items": shown,
            "next_cursor": write_cursor("messages", asked, [shown[0]["message_id"]]) if more else None,
        }
    )


@routes.add(
    "DELETE", "/sessions/{session_id:id}", Right.WRITE, Reach.MEMORY, answer=RemovedSession, errors=(404, 409, 423)
)
def remove_session(caller: Asking, session_id: SessionInPath, user_id: OfUser, agent_id: OfAgent) -> Response:
    """Send a session to the recycle bin for 15 days; its short-term window is gone for good."""
    count = caller.agent(user_id, agent_id).sessions.remove(agent_id, session_id, user_id=user_id)
    return answer({"agent_id": agent_id, "session_id": session_id, "messages": count})
