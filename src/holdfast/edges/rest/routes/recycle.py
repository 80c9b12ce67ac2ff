"""``/v1/recycle``: what was removed, for as long as it can be brought back."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

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
    MaybeUser,
    Request,
    SessionId,
    UserId,
    example,
)
from holdfast.edges.rest.operations import Routes, answer
from holdfast.edges.rest.pagination import After, Limit, Page, read_cursor, write_cursor
from holdfast.edges.rest.rights import Reach

routes = Routes("recycle", "The recycle bin: what was removed, for as long as it can be brought back.")

Name = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS)]


class Sort(StrEnum):
    """What lies in the bin."""

    MEMORY = "memory"
    SESSION = "session"
    MESSAGE = "message"
    AGENT = "agent"
    TOOL = "tool"


class Binned(Answer):
    """Something in the recycle bin."""

    model_config = example(
        {
            "type": "memory",
            "memory_id": MEMORY_ID,
            "memory_type": "long_term",
            "user_id": "alice",
            "agent_id": "travel_agent",
            "session_id": None,
            "content": "Ann likes green tea.",
            "deleted_at": MOMENT,
            "reason": "deleted by the user",
            "bundle": None,
            "purge_at": "2026-01-30T12:00:00+00:00",
            "days_left": 15,
        },
        closed=False,
    )

    type: Sort
    deleted_at: str | None
    reason: str | None
    purge_at: str
    days_left: int


class BinPage(Page):
    """Some of what is in the bin, what leaves it first first."""

    items: list[Binned]


class RestoreFromBin(Request):
    """What is to come back: a memory, a session, an agent, a tool, a bundle, or all that a user has in the bin."""

    model_config = example({"memory_id": MEMORY_ID, "user_id": "alice"})

    memory_id: Name | None = Field(default=None, description="This memory.")
    session_id: SessionId | None = None
    agent_id: AgentId | None = None
    tool_id: Name | None = Field(default=None, description="This tool.")
    user_id: UserId | None = None
    bundle: Name | None = Field(default=None, description="What went together, such as `source:import:crm`.")


class Restored(Answer):
    """How many things came back."""

    model_config = example({"restored": 1})

    restored: int


class PurgeRequest(Request):
    """Whether the clock was looked at."""

    model_config = example({"confirm": False})

    confirm: bool = Field(default=False, description="The clock is right, though it leaped or is far ahead.")


# What is asked by those who send no body.
_UNCONFIRMED: Final = PurgeRequest()


class Purged(Answer):
    """How many were deleted for good, by kind."""

    model_config = example({"purged": {"long_term": 3}})

    purged: dict[str, int]


@routes.add("GET", "/recycle", Right.READ, Reach.WHOSE, answer=BinPage)
def list_recycled(
    *,
    caller: Asking,
    sort: Annotated[Sort, Query(alias="type", description="Things of one type are listed at a time.")] = Sort.MEMORY,
    user_id: MaybeUser = None,
    limit: Limit = 100,
    cursor: After = None,
) -> Response:
    """List what is in the recycle bin, of a user or of everyone, with the days each has left.

    A page may have fewer things than `limit` though others follow; `next_cursor` tells.
    """
    asked = (caller.gate.tenant_id, sort, user_id)
    kinds = (int, int) if sort in (Sort.MEMORY, Sort.MESSAGE) else (int, str)
    place = read_cursor(cursor, "recycle", asked, *kinds)
    after: Any = None if place is None else tuple(place)
    items, go_on = caller.whose(user_id).recycle.page(sort.value, user_id=user_id, after=after, limit=limit)
    following = None if go_on is None else write_cursor("recycle", asked, go_on)
    return answer({"items": items, "next_cursor": following})


@routes.add("POST", "/recycle/restore", Right.WRITE, Reach.WHOSE, answer=Restored, errors=(404, 409))
def restore_recycled(caller: Asking, what: RestoreFromBin) -> Response:
    """Bring something back from the recycle bin, exactly as it was."""
    count = caller.whose(what.user_id).recycle.restore(**what.model_dump(exclude_none=True))
    return answer({"restored": count})


@routes.add("POST", "/recycle/purge", Right.GOVERN, Reach.TENANT, answer=Purged, errors=(409, 428), long=True)
def purge_recycled(caller: Asking, how: PurgeRequest = _UNCONFIRMED) -> Response:
    """Delete for good what has been in the bin for its time; nothing else, whoever asks."""
    return answer({"purged": caller.tenant().recycle.purge(confirm=how.confirm)})
