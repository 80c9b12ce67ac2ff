"""``holdfast agent`` and ``holdfast tool`` ``add | list | show | remove | restore``: one set of commands for both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from holdfast.edges.cli.app import add_group, command
from holdfast.edges.cli.call import Call
from holdfast.edges.cli.memory.memories import read_metadata
from holdfast.edges.cli.options import Metadata, argument, flag, option
from holdfast.edges.cli.output import Cell, Part, Rows, facts, minute, plural, to_json, warn

if TYPE_CHECKING:
    from holdfast.lifecycle.registry import Roster

Name = Annotated[str, argument("ID", "Its id.")]
_OWN: Final = (("persona", "persona memory"), ("episodic", "episode"), ("sessions", "session"))


def _add_commands(sort: str, *, sample: str, own: str) -> None:
    """The commands of agents, or of tools."""
    one = f"an {sort}" if sort == "agent" else f"a {sort}"
    known = f"holdfast {sort} add {sample}"
    group = add_group(
        __name__,
        sort,
        about=f"Make {sort}s known, remove them with all that is their own, and bring them back.",
        examples=[f"holdfast {sort} list"],
    )

    def roster(call: Call) -> Roster:
        return call.engine.agents if sort == "agent" else call.engine.tools

    @command(
        group,
        "add",
        examples=(f'{known} --description "Books journeys"',),
        about=f"Make {one} known, or say anew what is known of it.",
        render=lambda added: f"{sort.capitalize()} {added[f'{sort}_id']} is known.",
    )
    def add(
        call: Call,
        *,
        name: Name,
        description: Annotated[str, option("--description -d", "TEXT", "What it does, in words.")] = "",
        metadata: Metadata = None,
    ) -> Any:
        said = read_metadata(metadata, ()) or None
        return roster(call).add(name, description, said)

    @command(
        group,
        "list",
        examples=(f"{known}\nholdfast {sort} list",),
        about=f"List the {sort}s that are known.",
        render=lambda found: _show_list(found, sort),
    )
    def list_known(
        call: Call, *, removed: Annotated[bool, flag("--removed", "Those in the recycle bin too.")] = False
    ) -> Any:
        return roster(call).list(include_removed=removed)

    @command(
        group,
        "show",
        examples=(f"{known}\nholdfast {sort} show {sample}",),
        about=f"Show {one}.",
        render=lambda found: _show_one(found, sort),
    )
    def show_one(call: Call, *, name: Name) -> Any:
        return roster(call).get(name)

    @command(
        group,
        "remove",
        examples=(f"{known}\nholdfast {sort} remove {sample}",),
        about=f"Send {one} to the recycle bin for 15 days{own}, out of recall at once.",
        render=lambda done: _show_moved(done, f"Recycled {sort} {done[f'{sort}_id']}"),
    )
    def remove(call: Call, *, name: Name) -> Any:
        return roster(call).remove(name)

    @command(
        group,
        "restore",
        examples=(f"{known}\nholdfast {sort} remove {sample}\nholdfast {sort} restore {sample}",),
        about=f"Bring {one} back from the recycle bin with exactly what went with it.",
        render=lambda done: _show_moved(done, f"Restored {sort} {done[f'{sort}_id']}"),
    )
    def restore(call: Call, *, name: Name) -> Any:
        return roster(call).restore(name)


def _show_list(found: Sequence[Mapping[str, Any]], sort: str) -> Iterator[Part]:
    if not found:
        yield f"No {sort}s are known."
        return
    binned = any("purge_at" in one for one in found)

    def to_row(one: Mapping[str, Any]) -> list[Cell]:
        state = f"recycled, until {minute(one['purge_at'])}" if "purge_at" in one else "known"
        return [
            one[f"{sort}_id"], one["description"] or "none", minute(one["created_at"]), *([state] if binned else []),
        ]  # fmt: skip

    yield Rows("id!, description, since!" + (", state" if binned else ""), map(to_row, found))


def _show_one(one: Mapping[str, Any], sort: str) -> Iterator[Part]:
    return facts(
        {
            "id": one[f"{sort}_id"],
            "since": one["created_at"],
            "updated": one["updated_at"] if one["updated_at"] != one["created_at"] else "",
            "metadata": to_json(one["metadata"]),
            "does": one["description"],
        }
    )


def _show_moved(done: Mapping[str, Any], what: str) -> Iterator[Part]:
    went = ", ".join(plural(done[name], noun) for name, noun in _OWN if done.get(name))
    until = f"; it can come back until {minute(done['purge_at'])}" if "purge_at" in done else ""
    yield what + (f" with {went}" if went else "") + until + "."
    if done.get("held"):
        yield warn(f"Holds kept {done['held']:,} (holdfast hold list).")
    for reason, count in done.get("restore_error", {}).items():
        yield warn(f"{count:,} could not be restored: {reason}.")


_add_commands("agent", sample="travel_agent", own=" with its persona, its episodes and its conversations")
_add_commands("tool", sample="route_finder", own="")
