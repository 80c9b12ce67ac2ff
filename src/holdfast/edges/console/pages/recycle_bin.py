"""The recycle bin: what was removed, how many days each thing has left, and the way back."""

from __future__ import annotations

from typing import Any, Final

from holdfast.edges.console.formats import link
from holdfast.edges.console.table import Effect, Fields, Section, Undo
from holdfast.edges.console.visit import Visit
from holdfast.edges.operations.lifecycle import BinType

recycle_bin = Section("Recycle bin")
_PATH: Final = "/recycle-bin"
#: The fields that name a thing of each type to the operation that brings it back.
_NAMES: Final = {
    "memory": ("memory_id", "user_id", "agent_id"),
    "session": ("session_id", "user_id", "agent_id"),
    "message": ("memory_id", "user_id"),
    "agent": ("agent_id",),
    "tool": ("tool_id",),
}


@recycle_bin.page(_PATH, calls=["list_recycled"])
def show_recycle_bin(visit: Visit) -> dict[str, Any]:
    """What is in the bin: things of one type at a time, of one user or of everyone."""
    asked = {"type": visit.query.get("type", "memory"), "user_id": visit.user_id, "cursor": visit.query.get("cursor")}
    found = visit.call("list_recycled", **asked, limit=50)
    return {"asked": asked, "types": [one.value for one in BinType], "found": found, "fields_of": fields_of}


def fields_of(item: dict[str, Any]) -> Fields:
    """What the restore of a thing in the bin is told."""
    named = {**item, "memory_id": item.get("memory_id") or item.get("id")}
    return {name: named.get(name) for name in _NAMES[item["type"]]}


def _describe(fields: Fields) -> str:
    for name, what in (("memory_id", "memory"), ("session_id", "session"), ("tool_id", "tool"), ("agent_id", "agent")):
        if name in fields:
            return f"{what} {fields[name]}"
    return f"all that user {fields.get('user_id')} has in the bin" if "bundle" not in fields else fields["bundle"]


def _undo(fields: Fields, _result: Any) -> Undo | None:
    if {"memory_id", "user_id", "agent_id"} <= fields.keys():
        return Undo("delete_memory", {name: fields[name] for name in ("memory_id", "user_id", "agent_id")})
    return None


@recycle_bin.action(
    "restore_recycled",
    "Bring something back",
    "Restore",
    back=lambda fields: link(_PATH, user_id=fields.get("user_id")),
    describe=lambda fields, result: f"{_describe(fields)} is back; things that came back: {result['restored']}",
    undo=_undo,
)
def preview_restore(_visit: Visit, fields: Fields) -> Effect:
    """Say what comes back."""
    return Effect(
        [
            f"it brings back {_describe(fields)}, exactly as it was, with what was derived from it and went with it",
            "if its time is over meanwhile, its age counts anew: else it would be gone at once",
        ]
    )


@recycle_bin.action(
    "purge_recycled",
    "Empty the bin of what is past its time",
    "Delete for good",
    back=lambda _fields: link(_PATH),
    describe=lambda _fields, result: f"gone for good: {sum(result['purged'].values()):,}",
    is_danger=True,
)
def preview_purge(_visit: Visit, _fields: Fields) -> Effect:
    """Say what is deleted."""
    return Effect(
        [
            "it deletes for good what has been in the bin for its time (15 days), and nothing else",
            "this cannot be undone; the next sweep would do the same",
        ]
    )
