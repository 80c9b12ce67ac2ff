"""The playground: what an agent would be told if it asked, why, and what a prompt would be given."""

from __future__ import annotations

from typing import Any

from holdfast.core.records import MemoryType
from holdfast.edges.console.table import Section
from holdfast.edges.console.visit import Visit

playground = Section("Playground")


@playground.page("/playground", calls=["recall", "read_context"], may_call=["list_agents"])
def show_playground(visit: Visit) -> dict[str, Any]:
    """A question to a user's memory. Nothing is changed by it."""
    names = ("user_id", "agent_id", "session_id", "query", "kind", "top_k", "max_tokens", "include_archived")
    asked = {name: visit.query.get(name) for name in names} | {"user_id": visit.user_id}
    values: dict[str, Any] = {
        "asked": asked,
        "kinds": [kind.value for kind in MemoryType],
        "found": None,
        "context": None,
    }
    if None in (asked["user_id"], asked["agent_id"], asked["query"]):
        return values
    whose = {name: asked[name] for name in ("user_id", "agent_id", "session_id", "query")}
    kinds: Any = "all" if asked["kind"] is None else [asked["kind"]]
    top_k, archived = asked["top_k"], asked["include_archived"]
    found = visit.call("recall", **whose, memory_types=kinds, top_k=top_k, include_archived=archived, explain=True)
    context = visit.call("read_context", **whose, kinds=kinds, max_tokens=asked["max_tokens"])
    return {**values, "found": found["items"], "context": context}
