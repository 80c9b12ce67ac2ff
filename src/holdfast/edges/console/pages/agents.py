"""Agents and tools: which are known, what goes with them, and the way back."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, NamedTuple

from holdfast.core.errors import NotFoundError
from holdfast.edges.console.formats import link, text
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


class _Way(NamedTuple):
    """One of the things that can be done with an agent or a tool."""

    verb: str
    title: str
    button: str
    effect: str
    did: str
    back_by: str
    """The verb that undoes it."""


_WAYS: Final = (
    _Way(
        "put", "Register {one}", "Register", "{it} is registered; what was known of it is replaced", "known", "remove"
    ),
    _Way("remove", "Send {one} to the bin", "Remove", "{it} goes to the recycle bin, {goes}", "in the bin", "restore"),
    _Way("restore", "Bring {one} back", "Restore", "{it} comes back with exactly what went with it", "back", "remove"),
)


def _add_action(kind: str, way: _Way) -> None:
    name = f"{kind}_id"
    entries = (
        Entry(name, f"Name of the {kind}"),
        Entry("description", "What it is for", needed=False),
        Entry("metadata", "What else is known of it", "json", "A JSON object.", needed=False),
    )

    @agents.action(
        f"{way.verb}_{kind}",
        way.title.format(one=f"{'an' if kind == 'agent' else 'a'} {kind}"),
        way.button,
        entries=entries if way.verb == "put" else (),
        back=lambda _fields: link(_PATH),
        describe=lambda fields, _result: f"{kind} {fields[name]} is {way.did}",
        may_call=[f"get_{kind}"] if way.verb == "put" else (),
        undo=lambda fields, result: (
            Undo(f"{way.back_by}_{kind}", {name: fields[name]})
            if way.verb != "put" or result["created_at"] == result["updated_at"]
            else None  # what was known before: to remove it would take its memory along
        ),
        is_danger=way.verb == "remove",
    )
    def preview(visit: Visit, fields: Fields) -> Effect:
        said = [way.effect.format(it=f"{kind} {fields[name]}", goes=_GOES[kind])]
        known = _find_known(visit, kind, fields[name]) if way.verb == "put" else {}
        if known and not fields.keys() & known.keys():
            return Effect([f"change what is known of {kind} {fields[name]}"], fields=known, is_possible=False)
        return Effect(said, [(f"{part} so far", text(value)) for part, value in known.items()])


def _find_known(visit: Visit, kind: str, name: str) -> dict[str, Any]:
    """What is known of an agent or a tool so far."""
    with suppress(NotFoundError):
        found = visit.call(f"get_{kind}", **{f"{kind}_id": name})
        return {part: found[part] for part in ("description", "metadata") if found[part]}
    return {}


for _kind in ("agent", "tool"):
    for _way in _WAYS:
        _add_action(_kind, _way)
