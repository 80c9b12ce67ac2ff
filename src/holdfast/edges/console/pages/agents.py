"""Agents and tools: which are known, what goes with them, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from holdfast.edges.console.formats import link
from holdfast.edges.console.table import Effect, Entry, Fields, Section, Undo
from holdfast.edges.console.visit import Visit

agents = Section("Agents")
_PATH: Final = "/agents"
_GOES: Final = {
    "agent": "with its persona, its episodes and its conversations, for 15 days; they are out of recall at once",
    "tool": "for 15 days; it is out of recall at once",
}


@agents.page(_PATH, calls=["list_agents", "list_tools"], title="Agents and tools")
def show_agents(visit: Visit) -> dict[str, Any]:
    """The agents and the tools, with those in the bin on request."""
    asked = {name: visit.query.get(name) for name in ("include_removed", "cursor")}
    agents = visit.call("list_agents", **asked, limit=100)
    tools = visit.call("list_tools", include_removed=asked["include_removed"], limit=1_000)
    return {"asked": asked, "agents": agents, "tools": tools}


def _add_actions(kind: str) -> None:
    """The three actions on an agent or a tool, which differ by the word alone."""
    name = f"{kind}_id"

    def describe(did: str) -> Callable[[Fields, Any], str]:
        return lambda fields, _result: f"{kind} {fields[name]} is {did}"

    def undo(operation: str) -> Callable[[Fields, Any], Undo]:
        return lambda fields, _result: Undo(operation, {name: fields[name]})

    def preview_registration(_visit: Visit, fields: Fields) -> Effect:
        return Effect([f"{kind} {fields[name]} is registered; what was known of it is replaced"])

    def preview_removal(_visit: Visit, fields: Fields) -> Effect:
        return Effect([f"{kind} {fields[name]} goes to the recycle bin, {_GOES[kind]}"])

    def preview_restore(_visit: Visit, fields: Fields) -> Effect:
        return Effect([f"{kind} {fields[name]} comes back with exactly what went with it"])

    rows: tuple[tuple[str, str, str, Callable[..., Effect], dict[str, Any]], ...] = (
        (
            "put",
            f"Register {'an' if kind == 'agent' else 'a'} {kind}",
            "Register",
            preview_registration,
            {
                "entries": (
                    Entry(name, f"Name of the {kind}"),
                    Entry("description", "What it is for", needed=False),
                    Entry("metadata", "What else is known of it", "json", "A JSON object.", needed=False),
                ),
                "describe": describe("registered"),
                "undo": undo(f"remove_{kind}"),
            },
        ),
        (
            "remove",
            f"Send {'an' if kind == 'agent' else 'a'} {kind} to the recycle bin",
            "Remove",
            preview_removal,
            {"describe": describe("in the recycle bin"), "undo": undo(f"restore_{kind}"), "is_danger": True},
        ),
        (
            "restore",
            f"Bring {'an' if kind == 'agent' else 'a'} {kind} back",
            "Restore",
            preview_restore,
            {"describe": describe("back"), "undo": undo(f"remove_{kind}")},
        ),
    )
    for verb, title, button, preview, more in rows:
        agents.action(f"{verb}_{kind}", title, button, back=lambda _fields: link(_PATH), **more)(preview)


_add_actions("agent")
_add_actions("tool")
