"""``holdfast agent`` and ``holdfast tool`` ``add | list | show | remove | restore``: one set of commands for both."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from holdfast.edges.cli.app import add_group, command
from holdfast.edges.cli.memory.memories import read_metadata
from holdfast.edges.cli.options import DEFAULT_TENANT, Home, Json, Tenant, Url
from holdfast.edges.cli.output import printable, show
from holdfast.edges.cli.render import minute, show_facts, show_rows
from holdfast.edges.cli.store import open_engine

if TYPE_CHECKING:
    from holdfast.engine import Holdfast
    from holdfast.lifecycle.registry import Roster

Name = Annotated[str, typer.Argument(metavar="ID", help="Its id.")]
Description = Annotated[str, typer.Option("--description", "-d", metavar="TEXT", help="What it does, in words.")]
Metadata = Annotated[
    str | None, typer.Option("--metadata", metavar="JSON", help="What is said of it, as a JSON object.")
]
Removed = Annotated[bool, typer.Option("--removed", help="Those in the recycle bin too.")]
_OWN: Final = (("persona", "persona memories"), ("episodic", "episodes"), ("sessions", "sessions"))


def _add_commands(sort: str, *, sample: str, own: str) -> None:
    """The commands of agents, or of tools."""
    group = add_group(
        sort,
        about=f"Make {sort}s known, remove them with all that is their own, and bring them back.",
        examples=[f"holdfast {sort} list"],
    )
    known = f"holdfast {sort} add {sample}"

    @command(
        group,
        "add",
        examples=(f'holdfast {sort} add {sample} --description "Books journeys"',),
        about=f"Make {_a(sort)} known, or say anew what is known of it.",
    )
    def add(
        *,
        name: Name,
        description: Description = "",
        metadata: Metadata = None,
        tenant: Tenant = DEFAULT_TENANT,
        home: Home = None,
        url: Url = None,
        as_json: Json = False,
    ) -> None:
        said = read_metadata(metadata, ())
        with open_engine(home, url, tenant, quiet=as_json) as engine:
            added = _roster(engine, sort).add(name, description, said)
        show(added, lambda console, _: console.print(f"{sort.capitalize()} {name} is known."), as_json=as_json)

    @command(group, "list", examples=(f"{known}\nholdfast {sort} list",), about=f"List the {sort}s that are known.")
    def list_known(
        *,
        removed: Removed = False,
        tenant: Tenant = DEFAULT_TENANT,
        home: Home = None,
        url: Url = None,
        as_json: Json = False,
    ) -> None:
        with open_engine(home, url, tenant, quiet=as_json) as engine:
            found = _roster(engine, sort).list(include_removed=removed)
        show(found, lambda console, rows: _show_list(console, rows, sort), as_json=as_json)

    @command(group, "show", examples=(f"{known}\nholdfast {sort} show {sample}",), about=f"Show {_a(sort)}.")
    def show_one(
        *,
        name: Name,
        tenant: Tenant = DEFAULT_TENANT,
        home: Home = None,
        url: Url = None,
        as_json: Json = False,
    ) -> None:
        with open_engine(home, url, tenant, quiet=as_json) as engine:
            found = _roster(engine, sort).get(name)
        show(found, lambda console, one: _show_one(console, one, sort), as_json=as_json)

    @command(
        group,
        "remove",
        examples=(f"{known}\nholdfast {sort} remove {sample}",),
        about=f"Send {_a(sort)} to the recycle bin for 15 days{own}, out of recall at once.",
    )
    def remove(
        *,
        name: Name,
        tenant: Tenant = DEFAULT_TENANT,
        home: Home = None,
        url: Url = None,
        as_json: Json = False,
    ) -> None:
        with open_engine(home, url, tenant, quiet=as_json) as engine:
            gone = _roster(engine, sort).remove(name)
        show(gone, lambda console, done: _show_moved(console, done, f"Recycled {sort} {name}"), as_json=as_json)

    @command(
        group,
        "restore",
        examples=(f"{known}\nholdfast {sort} remove {sample}\nholdfast {sort} restore {sample}",),
        about=f"Bring {_a(sort)} back from the recycle bin with exactly what went with it.",
    )
    def restore(
        *,
        name: Name,
        tenant: Tenant = DEFAULT_TENANT,
        home: Home = None,
        url: Url = None,
        as_json: Json = False,
    ) -> None:
        with open_engine(home, url, tenant, quiet=as_json) as engine:
            back = _roster(engine, sort).restore(name)
        show(back, lambda console, done: _show_moved(console, done, f"Restored {sort} {name}"), as_json=as_json)


def _a(sort: str) -> str:
    return f"an {sort}" if sort == "agent" else f"a {sort}"


def _roster(engine: Holdfast, sort: str) -> Roster:
    return engine.agents if sort == "agent" else engine.tools


def _show_list(console: Console, found: Sequence[Mapping[str, Any]], sort: str) -> None:
    if not found:
        console.print(f"No {sort}s are known.")
        return
    binned = any("purge_at" in one for one in found)
    rows = [
        (
            printable(one[f"{sort}_id"]),
            printable(one["description"]),
            minute(one["created_at"]),
            *([f"recycled, until {minute(one['purge_at'])}" if "purge_at" in one else "known"] if binned else []),
        )
        for one in found
    ]
    show_rows(console, ("id!", "description", "since!", *(["state"] if binned else [])), rows)


def _show_one(console: Console, one: Mapping[str, Any], sort: str) -> None:
    facts = {
        "id": one[f"{sort}_id"],
        "since": one["created_at"],
        "updated": one["updated_at"] if one["updated_at"] != one["created_at"] else "",
        "metadata": json.dumps(one["metadata"], ensure_ascii=False) if one["metadata"] else "",
        "does": one["description"],
    }
    show_facts(console, facts)


def _show_moved(console: Console, done: Mapping[str, Any], what: str) -> None:
    went = ", ".join(f"{done[name]:,} {words}" for name, words in _OWN if done.get(name))
    until = f"; it can come back until {minute(done['purge_at'])}" if "purge_at" in done else ""
    console.print(printable(what + (f" with {went}" if went else "") + until + "."), soft_wrap=True)
    if done.get("held"):
        console.print(f"{done['held']:,} were kept by holds (holdfast hold list).", style="yellow")
    for reason, count in done.get("not_restored", {}).items():
        console.print(f"{count:,} could not be restored: {reason}.", style="yellow")


_add_commands("agent", sample="travel_agent", own=" with its persona, its episodes and its conversations")
_add_commands("tool", sample="route_finder", own="")
