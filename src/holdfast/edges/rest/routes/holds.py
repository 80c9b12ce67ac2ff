"""``/v1/holds``: what nothing may remove while a hold stands."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import Field
from starlette.responses import Response

from holdfast.core.access import Right
from holdfast.core.content import MAX_ID_CHARS
from holdfast.edges.rest.guard import Asking
from holdfast.edges.rest.models import MEMORY_ID, MOMENT, AgentId, Answer, Request, SessionId, UserId, example
from holdfast.edges.rest.operations import Routes, answer
from holdfast.edges.rest.pagination import After, Limit, Page, page_of
from holdfast.edges.rest.rights import Reach
from holdfast.lifecycle.holds import shown_hold

routes = Routes("holds", "What nothing may remove, however old it is and whoever asks.")

_EXAMPLE = {
    "hold_id": MEMORY_ID,
    "user_id": "alice",
    "reason": "Case 4711",
    "author": "key:0198c2d4-7b1a-7c3e-9f60-5d2a1c8e4b77",
    "created_at": MOMENT,
    "released_at": None,
    "released_by": None,
}
Name = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS)]


class NewHold(Request):
    """What is to be kept, and why. What several parts name is what all of them name."""

    model_config = example({"user_id": "alice", "reason": "Case 4711"})

    user_id: UserId | None = None
    agent_id: AgentId | None = None
    session_id: SessionId | None = None
    memory_id: Name | None = Field(default=None, description="This memory, message or tool alone.")
    tag: Name | None = Field(
        default=None, description="`key=value`: a field of the metadata; any other text: one of its `tags`."
    )
    reason: str = Field(min_length=1, max_length=2_000, description="Why, for whoever asks later.")


class Hold(Answer):
    """A hold."""

    model_config = example(_EXAMPLE)

    hold_id: str
    user_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    memory_id: str | None = None
    tag: str | None = None
    reason: str
    author: str
    created_at: str
    released_at: str | None
    released_by: str | None


class NewlyHeld(Hold):
    """A hold that stands from now on."""

    model_config = example({**_EXAMPLE, "covers": {"memories": 1_204, "sessions": 17}})

    covers: dict[str, int] | None = Field(
        description="How much it covers now, of a user or of one memory; null where that would have to be counted."
    )


class HoldPage(Page):
    """Some holds, oldest first."""

    items: list[Hold]


@routes.add("POST", "/holds", Right.GOVERN, Reach.WHOSE, answer=NewlyHeld, status=201)
def add_hold(caller: Asking, new: NewHold) -> Response:
    """Let nothing of a user, an agent, a session, a tag, or one memory be removed until the hold is released."""
    holds = caller.whose(new.user_id).holds
    hold = holds.add(**new.model_dump(exclude_none=True), author=caller.name)
    return answer({**shown_hold(hold), "covers": holds.covered(hold)}, 201)


@routes.add("GET", "/holds", Right.READ, Reach.TENANT, answer=HoldPage)
def list_holds(
    *,
    caller: Asking,
    released: Annotated[bool, Query(description="Those that were released too.")] = False,
    limit: Limit = 100,
    cursor: After = None,
) -> Response:
    """List the holds that stand, oldest first."""
    found = [shown_hold(one) for one in caller.tenant().holds.list(released=released)]
    asked = (caller.gate.tenant_id, released)
    return answer(page_of(found, limit, cursor, listing="holds", asked=asked, key=lambda one: str(one["hold_id"])))


@routes.add("POST", "/holds/{hold_id:id}/release", Right.GOVERN, Reach.TENANT, answer=Hold, errors=(404,))
def release_hold(caller: Asking, hold_id: Annotated[str, Path(description="The hold's id.")]) -> Response:
    """Release a hold: what is past its time goes with the next sweep."""
    return answer(shown_hold(caller.tenant().holds.release(hold_id, author=caller.name)))
