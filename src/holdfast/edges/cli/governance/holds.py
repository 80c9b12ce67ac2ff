"""Keep things from being removed, whatever the rules say and whoever asks.

Examples:
    holdfast hold list
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from holdfast.core.decisions import Hold
from holdfast.core.errors import InvalidInputError
from holdfast.edges.cli.app import Call, add_group, command
from holdfast.edges.cli.options import Quiet, of_scope
from holdfast.edges.cli.output import Cell, Output, Part, minute, plural, table

_SCOPE: Final = ("user_id", "agent_id", "session_id", "memory_id", "tag")
_NOUNS: Final = {"memories": "memory", "sessions": "session", "messages": "message", "tools": "tool"}

hold = add_group(__name__, "hold", __doc__)


def _show_added(added: Mapping[str, Any]) -> Iterator[Part]:
    yield f"Hold {added['hold_id']} stands on {_target(added)}."
    if added["covers"] is not None:
        counts = [plural(count, _NOUNS[what]) for what, count in added["covers"].items() if count]
        yield f"It covers {' and '.join(counts) or 'nothing'} now."


@command(hold, "add", of_scope, render=_show_added)
def add_hold(call: Call, *, tag: str | None = None, reason: str, quiet: Quiet = False) -> Any:
    """Hold something: nothing archives, recycles, deletes, prunes or erases it until the hold is released.

    What several options name is what all of them name.

    What it is for:
        --tag TAG  What has a field of this value (key=value), or this among its tags.

    Options:
        --reason TEXT  Why it is to be kept.

    Examples:
        holdfast hold add --user alice --reason "Case 4711"

        holdfast hold add --tag topic=contract --reason "Audit of 2026" --author legal
    """
    if not call.scope and tag is None:
        raise InvalidInputError("nothing was named to hold; use --user, --agent, --session, --memory or --tag")
    added = call.engine.holds.add(**call.scope, tag=tag, reason=reason)
    value = {**_to_dict(added), "covers": call.engine.holds.covered(added)}
    return Output(value, text=f"{added.id}\n" if quiet else None)


@table("id!, on, covers, reason, by, since!, released!", empty="No hold stands.")
def _show_holds(one: Mapping[str, Any]) -> list[Cell]:
    since, released = minute(one["created_at"]), minute(one["released_at"], "not yet")
    least = "" if one["covers"]["is_whole"] else "at least "
    covers = ", ".join(f"{least}{count:,} {what}" for what, count in one["covers"]["counts"].items())
    return [one["hold_id"], _target(one), covers, one["reason"], one["author"], since, released]


@command(hold, "list", render=_show_holds)
def list_holds(call: Call, *, released: bool = False) -> Any:
    """List the holds that stand, oldest first, with how much each covers.

    Options:
        --released  Those that were released too.

    Examples:
        holdfast hold list

        holdfast hold list --released --json
    """
    found = call.engine.holds.list(released=released)
    covers = call.engine.holds.count_some(found)
    return [{**_to_dict(one), "covers": cover} for one, cover in zip(found, covers, strict=True)]


@command(hold, "release", render=lambda released: f"Released hold {released['hold_id']} on {_target(released)}.")
def release_hold(call: Call, *, hold_id: str) -> Any:
    """Release a hold: what is past its time goes with the next sweep.

    Options:
        ID  The hold's id, as holdfast hold list shows it.

    Examples:
        id=$(holdfast hold add --user alice --reason "Case 4711" --quiet)
        holdfast hold release $id
    """
    return _to_dict(call.engine.holds.release(hold_id))


def _to_dict(one: Hold) -> dict[str, Any]:
    from holdfast.lifecycle.holds import hold_to_dict  # noqa: PLC0415 - not needed for --help

    return hold_to_dict(one)


def _target(one: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.removesuffix('_id')} {one[name]}" for name in _SCOPE if name in one)
