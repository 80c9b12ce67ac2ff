"""Memories of a user: what is kept of them, each record with its life, and what can be done with it."""

from __future__ import annotations

from typing import Any

from holdfast.edges.console.formats import link
from holdfast.edges.console.table import Effect, Entry, Fields, Section, Undo
from holdfast.edges.console.visit import Visit

memories = Section("Memories")


@memories.page("/memories", calls=("list_memories",))
def show_memories(visit: Visit) -> dict[str, Any]:
    """The memories of a user, as an agent sees them."""
    asked = {name: visit.query.get(name) for name in ("user_id", "agent_id", "memory_type", "cursor")}
    if asked["user_id"] is None or asked["agent_id"] is None:
        return {"asked": asked, "found": None}
    return {"asked": asked, "found": visit.call("list_memories", **asked, limit=50)}


_WHOSE = ("user_id", "agent_id", "memory_id")


@memories.page(
    "/record", title="A memory", calls=("explain_memory",), may_call=("get_memory", "get_history", "list_derived")
)
def show_record(visit: Visit) -> dict[str, Any]:
    """One record: what it says, its life, and what came of it."""
    whose = {name: visit.query.get(name) for name in _WHOSE}
    said = visit.call("explain_memory", **whose)
    is_there = said["is_visible"]
    return {
        "whose": whose,
        "said": said,
        "memory": visit.call("get_memory", **whose) if is_there else None,
        "versions": visit.call("get_history", **whose)["items"] if is_there else [],
        "derived": visit.call("list_derived", **whose)["items"] if is_there else [],
    }


# --- what can be done with a record -----------------------------------------------------------------------------------


def _back(fields: Fields) -> str:
    return link("/record", **{name: fields.get(name) for name in _WHOSE})


def _same(fields: Fields, **more: Any) -> Fields:
    return {**{name: fields[name] for name in _WHOSE if name in fields}, **more}


@memories.action(
    "delete_memory",
    "Delete a memory",
    "Delete",
    back=_back,
    describe=lambda _fields, result: (
        "it is in the recycle bin, out of recall" if result["operation"] == "recycle" else "it is deleted for good"
    ),
    undo=lambda fields, result: Undo("restore_memory", _same(fields)) if result["operation"] == "recycle" else None,
    may_call=("explain_memory",),
    is_danger=True,
)
def preview_delete(visit: Visit, fields: Fields) -> Effect:
    """Where it goes, and what holds it."""
    said = visit.call("explain_memory", **_same(fields))
    holds = [hold["reason"] for hold in said["protected_by"]]
    if holds:
        return Effect(
            [f"a hold keeps it: {holds[0]}", "it cannot be deleted until the hold is released"], is_possible=False
        )
    return Effect(["it leaves recall at once and goes to the recycle bin", "it can be restored while it is there"])


@memories.action(
    "restore_memory",
    "Restore a memory",
    "Restore",
    back=_back,
    describe=lambda _fields, _result: "it is back, exactly as it was",
    undo=lambda fields, _result: Undo("delete_memory", _same(fields), "Delete it again"),
    may_call=("explain_memory",),
)
def preview_restore(visit: Visit, fields: Fields) -> Effect:
    """That it comes back."""
    said = visit.call("explain_memory", **_same(fields))
    return Effect(["it comes back from the recycle bin, exactly as it was", said["summary"]])


@memories.action(
    "correct_memory",
    "Correct a memory",
    "Correct",
    back=_back,
    describe=lambda _fields, result: f"it says this from now on, as version {result.get('version', 1)}",
    undo=lambda fields, result: (
        Undo("revert_memory", _same(fields, to=result["version"] - 1)) if result.get("version", 1) > 1 else None
    ),
    entries=(
        Entry("content", "What it says from now on", "area"),
        Entry("reason", "Why", hint="Its history shows this.", needed=False),
    ),
    may_call=("get_memory",),
)
def preview_correct(visit: Visit, fields: Fields) -> Effect:
    """What it says now, and what becomes of that."""
    memory = visit.call("get_memory", **_same(fields))
    rows = [("it says", memory["content"][:300]), ("it will say", str(fields["content"])[:300])]
    return Effect(["what it says now ends, and stays in its history"], rows)


@memories.action(
    "revert_memory",
    "Bring back a version",
    "Bring it back",
    back=_back,
    describe=lambda fields, _result: f"it says again what version {fields['to']} said",
    undo=lambda fields, result: (
        Undo("revert_memory", _same(fields, to=result["version"] - 1)) if result.get("version", 1) > 1 else None
    ),
    may_call=("get_history",),
)
def preview_revert(visit: Visit, fields: Fields) -> Effect:
    """What the version said."""
    versions = visit.call("get_history", **_same(fields))["items"]
    said = next((one["content"] for one in versions if str(one["version"]) == str(fields.get("to"))), "")
    rows = [("it says", versions[-1]["content"][:300]), ("it will say", said[:300])]
    return Effect(["what it says now ends, and stays in its history"], rows)


@memories.action(
    "rehydrate_memory",
    "Bring a memory back from cold storage",
    "Bring back from cold storage",
    back=_back,
    describe=lambda _fields, _result: "it is active again, with all of its content",
)
def preview_rehydrate(_visit: Visit, _fields: Fields) -> Effect:
    """That its content is read from cold storage."""
    return Effect(["all of its content is read from cold storage", "it is active again, and its age counts as before"])


@memories.action(
    "add_hold",
    "Put a memory on hold",
    "Put on hold",
    name="hold_memory",
    back=_back,
    describe=lambda _fields, _result: "it is held: nothing removes it until the hold is released",
    entries=(Entry("reason", "Why it must stay", hint="Whoever asks later reads this; name a case, not a person."),),
    may_call=("explain_memory",),
)
def preview_hold(visit: Visit, fields: Fields) -> Effect:
    """That no rule and nobody removes it."""
    said = visit.call("explain_memory", **_same(fields))
    return Effect(["no rule, no person and no erasure removes it until the hold is released", said["summary"]])
