"""``holdfast agent`` and ``holdfast tool`` ``add | list | show | remove | restore``: one set of commands for both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from holdfast.edges.cli.app import Call, add_group, command
from holdfast.edges.cli.options import Metadata, declare, read_metadata
from holdfast.edges.cli.output import Cell, Part, Render, facts, minute, plural, table, to_json, warn

if TYPE_CHECKING:
    from holdfast.lifecycle.registry import Roster

Name = Annotated[str, declare("ID", "Its id.")]
_OWN: Final = (("persona", "persona memory"), ("episodic", "episode"), ("sessions", "session"))


def _name_of(one: Mapping[str, Any]) -> tuple[str, str]:
    """Whether it is an agent or a tool, and its id."""
    return ("agent", one["agent_id"]) if "agent_id" in one else ("tool", one["tool_id"])


def _roster(call: Call) -> Roster:
    return call.engine.agents if call.group == "agent" else call.engine.tools


def _add(call: Call, *, name: Name, description: str = "", metadata: Metadata = None) -> Any:
    """Make <one> known, or say anew what is known of it.

    Options:
        --description -d TEXT  What it does, in words.

    Examples:
        holdfast <sort> add <sample> --description "Books journeys"
    """
    return _roster(call).add(name, description, read_metadata(metadata, ()) or None)


def _list(call: Call, *, removed: bool = False) -> Any:
    """List the <sort>s that are known.

    Options:
        --removed  Those in the recycle bin too.

    Examples:
        holdfast <sort> add <sample>
        holdfast <sort> list
    """
    return _roster(call).list(include_removed=removed)


def _get(call: Call, *, name: Name) -> Any:
    """Show <one>.

    Examples:
        holdfast <sort> add <sample>
        holdfast <sort> show <sample>
    """
    return _roster(call).get(name)


def _remove(call: Call, *, name: Name) -> Any:
    """Send <one> to the recycle bin for 15 days<own>, out of recall at once.

    Examples:
        holdfast <sort> add <sample>
        holdfast <sort> remove <sample>
    """
    return _roster(call).remove(name)


def _restore(call: Call, *, name: Name) -> Any:
    """Bring <one> back from the recycle bin with exactly what went with it.

    Examples:
        holdfast <sort> add <sample>
        holdfast <sort> remove <sample>
        holdfast <sort> restore <sample>
    """
    return _roster(call).restore(name)


def _show_added(one: Mapping[str, Any]) -> str:
    sort, name = _name_of(one)
    return f"{sort.capitalize()} {name} is known."


def _to_row(one: Mapping[str, Any]) -> list[Cell]:
    state = f"recycled, until {minute(one['purge_at'])}" if "purge_at" in one else "known"
    return [_name_of(one)[1], one["description"] or "none", minute(one["created_at"]), state]


def _show_one(one: Mapping[str, Any]) -> Iterator[Part]:
    return facts(
        id=_name_of(one)[1],
        since=one["created_at"],
        updated=one["updated_at"] if one["updated_at"] != one["created_at"] else None,
        metadata=to_json(one["metadata"]),
        does=one["description"],
    )


def _show_moved(verb: str, done: Mapping[str, Any]) -> Iterator[Part]:
    went = ", ".join(plural(done[name], noun) for name, noun in _OWN if done.get(name))
    until = f"; it can come back until {minute(done['purge_at'])}" if "purge_at" in done else ""
    yield f"{verb} {' '.join(_name_of(done))}" + (f" with {went}" if went else "") + until + "."
    if done.get("held"):
        yield warn(f"Holds kept {done['held']:,} (holdfast hold list).")
    for reason, count in done.get("restore_error", {}).items():
        yield warn(f"{count:,} could not be restored: {reason}.")


for _sort, _sample, _own in (
    ("agent", "travel_agent", " with its persona, its episodes and its conversations"),
    ("tool", "route_finder", ""),
):
    _about = f"Make {_sort}s known, remove them with all that is their own, and bring them back."
    _group = add_group(__name__, _sort, f"{_about}\n\nExamples:\n    holdfast {_sort} list")
    _one = f"an {_sort}" if _sort == "agent" else f"a {_sort}"
    _commands: dict[str, tuple[Callable[..., Any], Render]] = {
        "add": (_add, _show_added),
        "list": (_list, table("id!, description, since!, state", empty=f"No {_sort}s are known.")(_to_row)),
        "show": (_get, _show_one),
        "remove": (_remove, partial(_show_moved, "Recycled")),
        "restore": (_restore, partial(_show_moved, "Restored")),
    }
    for _name, (_function, _render) in _commands.items():
        command(_group, _name, render=_render, sort=_sort, one=_one, sample=_sample, own=_own)(_function)
