"""A record: what it says, its life from its first day to what is due, and what can be done with it."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final

from holdfast.edges.console.drawings import Moment
from holdfast.edges.console.formats import link, parse_time
from holdfast.edges.console.pages.memories import memories
from holdfast.edges.console.table import Effect, Entry, Fields, Undo
from holdfast.edges.console.visit import Visit

_WHOSE: Final = ("user_id", "agent_id", "memory_id")
_CLASSES: Final = {"active": "active", "archived": "archived", "recycled": "bin", "deleting": "gone", "deleted": "gone"}
#: What is due, in words, and the class of the state that it leads to.
_COMING: Final = {
    "archive": ("to be archived", "archived"),
    "recycle": ("to the recycle bin", "bin"),
    "delete": ("to be deleted for good", "gone"),
}
_LONG_CHARS: Final = 400


@memories.page(
    "/record", title="A memory", calls=("explain_memory",), may_call=("get_life", "get_memory", "get_history")
)
def show_record(visit: Visit) -> dict[str, Any]:
    """One record: what it says, its life, and what came of it."""
    given = {name: visit.query.get(name) for name in _WHOSE}
    story = _read_story(visit, given)
    memory = story["memory"]
    whose = {**given, "agent_id": memory["agent_id"] if memory else given["agent_id"]}
    moments = _moments(story)
    past = [f"{one.label} on {one.at:%d %B %Y}" for one in moments if not one.is_due]
    due = [f"{one.label} on {one.at:%d %B %Y}" for one in moments if one.is_due]
    words = f"Life line: {', '.join(past)}; then now" + (f"; due: {', '.join(due)}" if due else "; nothing is due")
    return {
        "whose": whose,
        "story": story,
        "memory": memory,
        "is_long": memory is not None and len(memory["content"]) > _LONG_CHARS,
        "shown_chars": None if visit.query.get("all") else 4_000,
        "moments": moments,
        "now": visit.now,
        "words": words,
    }


def _read_story(visit: Visit, whose: Mapping[str, Any]) -> dict[str, Any]:
    """All that is known of a memory. A key that is for some agents is told what these agents see."""
    if visit.may("get_life"):
        return dict(visit.call("get_life", user_id=whose["user_id"], memory_id=whose["memory_id"]))
    said = visit.call("explain_memory", **whose)
    memory = visit.call("get_memory", **whose) if said["is_visible"] else None
    versions = visit.call("get_history", **whose)["items"][:-1] if memory else []
    related = {
        name: [{"memory_id": one, "memory_type": None, "state": None} for one in said.get(key, ())]
        for name, key in (("sources", "derived_from"), ("derived", "derived"))
    }
    steps = [{"actor": None, "reason": None, "rule": None, **one} for one in said.get("history", ())]
    if said.get("created_at"):
        steps.append(_step(said["created_at"], "added", said.get("source")))
    steps += [_step(one["ended_at"], "corrected", one["ended_by"], one["reason"]) for one in versions]
    steps.sort(key=itemgetter("at"))
    coming = [said["next"]] if said["next"] else []
    return {**said, "memory": memory, "versions": versions, **related, "steps": steps, "coming": coming}


def _step(at: str, action: str, actor: str | None, reason: str | None = None) -> dict[str, Any]:
    return {"at": at, "action": action, "actor": actor, "reason": reason, "rule": None}


def _moments(story: Mapping[str, Any]) -> list[Moment]:
    """What happened to a memory, and what its rules will do with it."""
    moments, state = [], "active"
    for step in story["steps"]:
        state = _CLASSES.get((step.get("detail") or {}).get("to", ""), state)
        at = parse_time(step["at"])
        if at is not None:
            moments.append(
                Moment(at, step["action"].replace(".", " ").replace("_", " "), step.get("actor") or "", state)
            )
    for one in story["coming"]:
        at = parse_time(one["at"])
        label, state = _COMING.get(one["action"], (one["action"], state))
        if at is not None:
            moments.append(Moment(at, label, one["rule"] or "", state, is_due=True))
    return moments


# --- what can be done with a record -----------------------------------------------------------------------------------


def _back(fields: Fields) -> str:
    return link("/record", **{name: fields.get(name) for name in _WHOSE})


def _same(fields: Fields, **more: Any) -> Fields:
    return {**{name: fields[name] for name in _WHOSE if name in fields}, **more}


def _describe_deletion(_fields: Fields, result: Any) -> str:
    where = "it is in the recycle bin, out of recall" if result["operation"] == "recycle" else "it is deleted for good"
    others = len(result.get("deleted_with", ()))
    return where + (f", and {others:,} more with it" if others else "")


@memories.action(
    "delete_memory",
    "Delete a memory",
    "Delete",
    back=_back,
    describe=_describe_deletion,
    undo=lambda fields, result: (
        Undo("restore_memory", _same(fields))
        if result["operation"] == "recycle" and not result.get("kept_out")
        else None
    ),
    entries=(
        Entry("with_derived", "What was made from it, too", "check", needed=False),
        Entry("keep_out", "Keep its text out, whoever adds it again", "check", needed=False),
    ),
    may_call=("explain_memory",),
    is_danger=True,
)
def preview_delete(visit: Visit, fields: Fields) -> Effect:
    """Where it goes, what holds it, and what was made from it."""
    said = visit.call("explain_memory", **_same(fields))
    if said["protected_by"]:
        why = said["protected_by"][0]["reason"]
        return Effect([f"a hold keeps it: {why}", "it cannot be deleted until the hold is released"], is_possible=False)
    sentences = ["it leaves recall at once and goes to the recycle bin", "it can be restored while it is there"]
    if derived := len(said.get("derived", ())):
        what = "it goes, too" if fields.get("with_derived") else "it stays"
        sentences.append(f"{derived:,} {'memory was' if derived == 1 else 'memories were'} made from it: {what}")
    if fields.get("keep_out"):
        sentences.append("its text is kept out for good: whoever adds it again is told so")
    return Effect(sentences)


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
