"""Holds: what nothing may remove, what each of them covers, and their release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from markupsafe import Markup

from holdfast.edges.console.formats import link, number
from holdfast.edges.console.table import Effect, Entry, Fields, Section, Undo
from holdfast.edges.console.visit import Visit

holds = Section("Holds")
_PATH: Final = "/holds"
_SCOPE: Final = ("user_id", "agent_id", "session_id", "memory_id", "tag")


@holds.page(_PATH, may_call=["list_holds", "add_hold"])
def show_holds(visit: Visit) -> dict[str, Any]:
    """Where to add a hold; and the holds in force, oldest first, on request those that were released too."""
    asked = {"released": visit.query.get("released"), "cursor": visit.query.get("cursor")}
    found = visit.call("list_holds", **asked, count=True, limit=50) if visit.may("list_holds") else None
    return {"asked": asked, "found": found, "parts": _SCOPE, "at_least": at_least}


def _describe(fields: Fields) -> str:
    return " and ".join(f"{name.removesuffix('_id')} {fields[name]}" for name in _SCOPE if name in fields)


@holds.action(
    "add_hold",
    "Put something on hold",
    "Put on hold",
    entries=(
        Entry(
            "user_id",
            "User",
            hint="What is this user's. Where several are named, what all of them name is held.",
            needed=False,
        ),
        Entry("agent_id", "Agent", needed=False),
        Entry("session_id", "Session", needed=False),
        Entry("memory_id", "Memory, message or tool", hint="With a message, name its user too.", needed=False),
        Entry("tag", "Tag", hint="key=value of the metadata, or one of its tags.", needed=False),
        Entry("reason", "Why it must stay", hint="Whoever asks later reads this; name a case, not a person."),
    ),
    may_call=["preview_hold"],
    back=lambda _fields: link(_PATH),
    describe=lambda fields, _result: f"{_describe(fields)} is held: nothing removes it until the hold is released",
    undo=lambda _fields, result: Undo("release_hold", {"hold_id": result["hold_id"]}, "Release it"),
)
def preview_hold(visit: Visit, fields: Fields) -> Effect | None:
    """What the hold would cover."""
    whom = {name: fields[name] for name in _SCOPE if name in fields}
    if not whom:
        return None
    cover = visit.call("preview_hold", **whom)
    rows = [(f"{what} that it covers now", at_least(cover, what)) for what in cover["counts"]]
    return Effect([f"no rule, no person and no erasure removes {_describe(fields)} until the hold is released"], rows)


def at_least(cover: Mapping[str, Any], what: str) -> Markup:
    """How many of something a hold covers."""
    return (Markup("") if cover["is_whole"] else Markup("at least ")) + number(cover["counts"][what])


@holds.action(
    "release_hold",
    "Release a hold",
    "Release it",
    back=lambda _fields: link(_PATH),
    describe=lambda _fields, _result: "the hold is released; what is past its time goes with the next sweep",
    undo=lambda _fields, result: Undo(
        "add_hold", {name: result[name] for name in (*_SCOPE, "reason") if result.get(name)}
    ),
    is_danger=True,
)
def preview_release(_visit: Visit, _fields: Fields) -> Effect:
    """That what it kept goes by the rules again."""
    return Effect(["what it covers lives by the rules again: what is past its time goes with the next sweep"])
