"""Memories of a user: browsed by what they are, or searched as an agent would, with each score explained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.edges.console.table import Section
from holdfast.edges.console.visit import Visit

memories = Section("Memories")
_FACETS: Final = {
    "memory_type": "kinds",
    "state": "states",
    "agent_id": "agents",
    "session_id": "sessions",
    "source": "sources",
}
_TIMES: Final = ("created_from", "created_before")
_PAGE: Final = 50
_MOST_FOUND: Final = 20


@memories.page(
    "/memories", calls=("list_memories",), may_call=("browse_memories", "count_facets", "list_users", "recall")
)
def show_memories(visit: Visit) -> dict[str, Any]:
    """What is kept of a user: all of it, what facets choose, or what bears on a query."""
    asked = {name: visit.query.get(name) for name in ("user_id", "query", *_FACETS, *_TIMES, "cursor")}
    values: dict[str, Any] = {"asked": asked, "users": None, "found": None, "hits": None, "facets": None}
    user_id = asked["user_id"]
    if user_id is None:
        users = visit.call("list_users", limit=_PAGE, cursor=asked["cursor"]) if visit.may("list_users") else None
        return {**values, "users": users, "bound": sorted(visit.caller.users or ())}
    is_whole = visit.may("browse_memories")
    facets = visit.call("count_facets", user_id=user_id) if is_whole else None
    agents = list(facets["agents"]) if facets else sorted(visit.caller.agents or ())
    values |= {"facets": facets, "groups": _FACETS, "agents": agents}
    agent_id = asked["agent_id"] or next(iter(agents), None)
    if asked["query"] and agent_id:
        return {**values, "hits": _search(visit, asked, agent_id), "searched": agent_id}
    which = {name: value for name, value in asked.items() if name != "query"}
    if is_whole:
        return {**values, "found": visit.call("browse_memories", **which, limit=_PAGE)}
    named = {name: which[name] for name in ("memory_type", "source", "cursor")}
    return {**values, "found": visit.call("list_memories", user_id=user_id, agent_id=agent_id, **named, limit=_PAGE)}


def _search(visit: Visit, asked: Mapping[str, Any], agent_id: str) -> list[dict[str, Any]]:
    kinds = [asked["memory_type"]] if asked["memory_type"] else "all"
    found = visit.call(
        "recall",
        user_id=asked["user_id"],
        agent_id=agent_id,
        query=asked["query"],
        memory_types=kinds,
        top_k=_MOST_FOUND,
        explain=True,
    )
    return list(found["items"])
