"""``/v1/agents`` and ``/v1/tools``: made known, removed with all that is their own, and brought back with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from holdfast.core.access import Right
from holdfast.core.content import MAX_ID_CHARS
from holdfast.edges.rest.guard import Asking
from holdfast.edges.rest.models import MOMENT, Answer, Metadata, Request, example
from holdfast.edges.rest.operations import Routes, answer
from holdfast.edges.rest.pagination import After, Limit, Page, page_of
from holdfast.edges.rest.rights import Reach
from holdfast.engine import Holdfast
from holdfast.lifecycle.registry import Roster

agents = Routes("agents", "The agents that are known, with all that is their own.")
tools = Routes("tools", "The tools that are known.")

Removed = Annotated[bool, Query(description="Those in the recycle bin too.")]
AgentInPath = Annotated[
    str, Path(alias="agent_id", max_length=MAX_ID_CHARS, description="The agent's id.", examples=["travel_agent"])
]
ToolInPath = Annotated[
    str, Path(alias="tool_id", max_length=MAX_ID_CHARS, description="The tool's id.", examples=["route_finder"])
]


class Description(Request):
    """What is known of an agent or a tool."""

    model_config = example({"description": "Books journeys", "metadata": {"team": "travel"}})

    description: str = Field(default="", description="What it is for.")
    metadata: Metadata | None = Field(default=None, description="What else is known of it.")


class _Entry(Answer):
    description: str
    metadata: Metadata
    created_at: str
    updated_at: str
    state: str | None = Field(default=None, description="Of one in the recycle bin: `recycled`.")
    deleted_at: str | None = None
    purge_at: str | None = None


class Agent(_Entry):
    """An agent."""

    model_config = example(
        {
            "agent_id": "travel_agent",
            "description": "Books journeys",
            "metadata": {},
            "created_at": MOMENT,
            "updated_at": MOMENT,
        }
    )

    agent_id: str


class Tool(_Entry):
    """A tool."""

    model_config = example(
        {
            "tool_id": "route_finder",
            "description": "Finds ways",
            "metadata": {},
            "created_at": MOMENT,
            "updated_at": MOMENT,
        }
    )

    tool_id: str


class AgentPage(Page):
    """Some agents, by their ids."""

    items: list[Agent]


class ToolPage(Page):
    """Some tools, by their ids."""

    items: list[Tool]


class MovedAgent(Answer):
    """What went to the recycle bin with an agent, or came back with it."""

    model_config = example(
        {
            "agent_id": "travel_agent",
            "persona": 2,
            "episodic": 14,
            "sessions": 3,
            "messages": 120,
            "purge_at": "2026-01-30T12:00:00+00:00",
        }
    )

    agent_id: str
    persona: int
    episodic: int
    sessions: int
    messages: int
    purge_at: str | None = None
    held: int | None = Field(default=None, description="How many were kept by holds.")
    not_restored: dict[str, int] | None = Field(default=None, description="How many could not be restored, and why.")


class MovedTool(Answer):
    """A tool that went to the recycle bin, or came back."""

    model_config = example({"tool_id": "route_finder", "purge_at": "2026-01-30T12:00:00+00:00"})

    tool_id: str
    purge_at: str | None = None
    held: int | None = None
    not_restored: dict[str, int] | None = None


def _add_routes(
    routes: Routes,
    sort: str,
    *,
    roster_of: Callable[[Holdfast], Roster],
    in_path: Any,
    models: tuple[type[BaseModel], type[BaseModel], type[BaseModel]],
    own: str,
) -> None:
    """The routes of agents, or of tools."""
    one, page, moved = models
    place = f"/{sort}s/{{{sort}_id:id}}"
    id_name = f"{sort}_id"

    def listed(caller: Asking, include_removed: Removed = False, limit: Limit = 100, cursor: After = None) -> Response:
        found = roster_of(caller.tenant()).list(include_removed=include_removed)
        asked = (caller.gate.tenant_id, include_removed)
        return answer(
            page_of(found, limit, cursor, listing=f"{sort}s", asked=asked, key=lambda entry: str(entry[id_name]))
        )

    def got(caller: Asking, name: str) -> Response:
        return answer(roster_of(caller.tenant()).get(name))

    def put(caller: Asking, name: str, known: Description) -> Response:
        return answer(roster_of(caller.tenant()).add(name, known.description, known.metadata))

    def removed(caller: Asking, name: str) -> Response:
        return answer(roster_of(caller.tenant()).remove(name))

    def restored(caller: Asking, name: str) -> Response:
        return answer(roster_of(caller.tenant()).restore(name))

    a = f"an {sort}" if sort == "agent" else f"a {sort}"
    table: tuple[tuple[Callable[..., Response], str, str, str, Right, type[BaseModel], tuple[int, ...], str], ...] = (
        (listed, f"list_{sort}s", "GET", f"/{sort}s", Right.READ, page, (), f"List the {sort}s that are known."),
        (got, f"get_{sort}", "GET", place, Right.READ, one, (404,), f"Read what is known of {a}."),
        (
            put,
            f"put_{sort}",
            "PUT",
            place,
            Right.WRITE,
            one,
            (409,),
            f"Make {a} known, or say anew what is known of it.",
        ),
        (
            removed,
            f"remove_{sort}",
            "DELETE",
            place,
            Right.GOVERN,
            moved,
            (404, 409, 423),
            f"Send {a} to the recycle bin for 15 days{own}, out of recall at once.",
        ),
        (
            restored,
            f"restore_{sort}",
            "POST",
            f"{place}/restore",
            Right.GOVERN,
            moved,
            (404, 409),
            f"Bring {a} back from the recycle bin with exactly what went with it.",
        ),
    )
    for handler, name, method, path, right, model, errors, about in table:
        handler.__name__, handler.__doc__ = name, about
        if "name" in handler.__annotations__:
            handler.__annotations__["name"] = in_path
        routes.add(method, path, right, Reach.TENANT, answer=model, errors=errors)(handler)


_add_routes(
    agents,
    "agent",
    roster_of=lambda holdfast: holdfast.agents,
    in_path=AgentInPath,
    models=(Agent, AgentPage, MovedAgent),
    own=" with its persona, its episodes and its conversations",
)
_add_routes(
    tools,
    "tool",
    roster_of=lambda holdfast: holdfast.tools,
    in_path=ToolInPath,
    models=(Tool, ToolPage, MovedTool),
    own="",
)
