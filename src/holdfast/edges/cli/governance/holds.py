"""``holdfast hold add | list | release``: what nothing may remove while a hold stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console

from holdfast.edges.cli.app import add_group, command
from holdfast.edges.cli.options import DEFAULT_TENANT, Home, Json, Tenant, Url
from holdfast.edges.cli.output import printable, show
from holdfast.edges.cli.render import counted, minute, show_rows
from holdfast.edges.cli.selection import Author, OfAgent, OfSession, OfUser, OneMemory, scope_of
from holdfast.edges.cli.store import open_engine

_WORDS = {"user_id": "user", "agent_id": "agent", "session_id": "session", "memory_id": "memory", "tag": "tag"}
_ONE = {"memories": "memory", "sessions": "session", "messages": "message", "tools": "tool"}

hold = add_group(
    "hold",
    about="Keep things from being removed, whatever the rules say and whoever asks.",
    examples=["holdfast hold list"],
)


@command(
    hold,
    "add",
    examples=(
        'holdfast hold add --user alice --reason "Case 4711"',
        'holdfast hold add --tag topic=contract --reason "Audit of 2026" --author legal',
    ),
)
def add_hold(
    *,
    user: OfUser = None,
    agent: OfAgent = None,
    session: OfSession = None,
    memory: OneMemory = None,
    tag: Annotated[
        str | None,
        typer.Option(
            "--tag",
            metavar="TAG",
            help="What has a field of this value (key=value), or this among its tags.",
            rich_help_panel="What it is for",
        ),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why it is to be kept.")],
    author: Author = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the new hold's id and nothing else.")] = False,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Hold something: nothing archives, recycles, deletes, prunes or erases it until the hold is released.

    What several options name is what all of them name.
    """
    from holdfast.lifecycle.holds import shown_hold  # noqa: PLC0415 - not needed for --help

    with open_engine(home, url, tenant, quiet=as_json) as engine:
        added = engine.holds.add(**scope_of(user, agent, session, memory), tag=tag, reason=reason, author=author)
        covers = engine.holds.covered(added)
    if quiet and not as_json:
        typer.echo(added.id)
    else:
        show({**shown_hold(added), "covers": covers}, _show_added, as_json=as_json)


@command(hold, "list", examples=("holdfast hold list", "holdfast hold list --released --json"))
def list_holds(
    *,
    released: Annotated[bool, typer.Option("--released", help="Those that were released too.")] = False,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List the holds that stand, oldest first."""
    from holdfast.lifecycle.holds import shown_hold  # noqa: PLC0415 - not needed for --help

    with open_engine(home, url, tenant, quiet=as_json) as engine:
        found = [shown_hold(one) for one in engine.holds.list(released=released)]
    show(found, _show_holds, as_json=as_json)


@command(
    hold,
    "release",
    examples=('id=$(holdfast hold add --user alice --reason "Case 4711" --quiet)\nholdfast hold release $id',),
)
def release_hold(
    *,
    hold_id: Annotated[str, typer.Argument(metavar="ID", help="The hold's id, as holdfast hold list shows it.")],
    author: Author = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Release a hold: what is past its time goes with the next sweep."""
    from holdfast.lifecycle.holds import shown_hold  # noqa: PLC0415 - not needed for --help

    with open_engine(home, url, tenant, quiet=as_json) as engine:
        released = engine.holds.release(hold_id, author=author)
    show(shown_hold(released), _show_released, as_json=as_json)


def _covered(one: Mapping[str, Any]) -> str:
    return printable(", ".join(f"{word} {one[name]}" for name, word in _WORDS.items() if name in one))


def _show_added(console: Console, added: Mapping[str, Any]) -> None:
    console.print(f"Hold {added['hold_id']} stands on {_covered(added)}.", soft_wrap=True)
    if added["covers"] is not None:
        counts = [counted(count, _ONE[what], what) for what, count in added["covers"].items() if count]
        console.print(f"It covers {' and '.join(counts) or 'nothing'} now.")


def _show_released(console: Console, released: Mapping[str, Any]) -> None:
    console.print(f"Released hold {released['hold_id']} on {_covered(released)}.", soft_wrap=True)


def _show_holds(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    if not found:
        console.print("No hold stands.")
        return
    ended = any(one["released_at"] for one in found)
    columns = ("id!", "on", "reason", "by", "since!", *(["released!"] if ended else []))
    rows = [
        (
            one["hold_id"],
            _covered(one),
            printable(one["reason"]),
            printable(one["author"]),
            minute(one["created_at"]),
            *([minute(one["released_at"])] if ended else []),
        )
        for one in found
    ]
    show_rows(console, columns, rows)
