"""``holdfast recycle list | restore | purge``: what was removed, for as long as it can be brought back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from holdfast.core.errors import InvalidInputError
from holdfast.edges.cli.app import add_group, command
from holdfast.edges.cli.options import DEFAULT_TENANT, Home, Json, Tenant, Url
from holdfast.edges.cli.output import printable, show
from holdfast.edges.cli.render import show_rows
from holdfast.edges.cli.selection import OfAgent, OfSession, OfUser, OneMemory, scope_of
from holdfast.edges.cli.store import open_engine

#: What is brought back, if several things are named (the first counts), and what may say which one is meant.
_NARROWED: Final = {
    "memory_id": {"user_id"},
    "session_id": {"agent_id", "user_id"},
    "agent_id": set[str](),
    "tool_id": set[str](),
    "bundle": {"user_id"},
    "user_id": set[str](),
}
_SHOWN: Final = 40

recycle = add_group(
    "recycle",
    about="See what is in the recycle bin, bring it back, or delete what has had its time.",
    examples=["holdfast recycle list"],
)


@command(recycle, "list", examples=("holdfast recycle list", "holdfast recycle list --user alice --json"))
def list_bin(
    *,
    user: OfUser = None,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="How many at most.")] = 100,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List what is in the recycle bin with the days it has left; what leaves first is first."""
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        found = engine.recycle.list(user_id=user, limit=limit)
    show(found, _show_bin, as_json=as_json)


@command(
    recycle,
    "restore",
    examples=(
        "id=$(holdfast add 'Tea' -u alice -q)\nholdfast delete $id -u alice\nholdfast recycle restore --memory $id",
        "holdfast agent add travel\nholdfast agent remove travel\nholdfast recycle restore --agent travel",
    ),
)
def restore_from_bin(
    *,
    memory: OneMemory = None,
    session: OfSession = None,
    agent: OfAgent = None,
    tool: Annotated[
        str | None,
        typer.Option("--tool", metavar="TOOL", help="A tool.", rich_help_panel="What it is for"),
    ] = None,
    user: OfUser = None,
    bundle: Annotated[
        str | None,
        typer.Option(
            "--bundle",
            metavar="NAME",
            help="All that went together, as holdfast recycle list --json names it.",
            rich_help_panel="What it is for",
        ),
    ] = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Bring back a memory, a session, an agent, a tool, what went together, or all that a user has in the bin, exactly
    as it was.

    A session may be named with its agent and user, a memory or a bundle with its user.
    """
    others = {"tool_id": tool, "bundle": bundle}
    given = scope_of(user, agent, session, memory) | {
        name: value for name, value in others.items() if value is not None
    }
    first = next((name for name in _NARROWED if name in given), None)
    if first is None or given.keys() - {first} - _NARROWED[first]:
        raise InvalidInputError(
            "say what to restore by one of --memory, --session, --agent, --tool, --bundle and --user "
            "(a session with its --agent and --user, a memory or a bundle with its --user)"
        )
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        count = engine.recycle.restore(**given)
    show({"restored": count, **given}, _show_restored, as_json=as_json)


@command(recycle, "purge", examples=("holdfast recycle purge",))
def purge_bin(
    *,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="The clock is right, although it leaped or is far ahead.")
    ] = False,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Delete for good what has been in the recycle bin for its 15 days; nothing else."""
    with open_engine(home, url, tenant, quiet=True) as engine:
        gone = engine.recycle.purge(confirm=confirm)
    show({"purged": gone}, _show_purged, as_json=as_json)


def _show_bin(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    if not found:
        console.print("The recycle bin is empty.")
        return
    rows = []
    for item in found:
        what = Text(printable(_told(item)))
        what.truncate(_SHOWN, overflow="ellipsis")
        left = item["days_left"]
        rows.append(
            (
                _id(item),
                item.get("memory_type", item["type"]),
                printable(item.get("user_id", "")),
                what,
                printable(item["reason"] or ""),
                Text(f"{left}", style="yellow" if left <= 3 else ""),
            )
        )
    show_rows(console, ("id!", "kind!", "user", "what", "removed because", "days left>"), rows)


def _id(item: Mapping[str, Any]) -> str:
    names = ("memory_id", "session_id") if item["type"] in ("memory", "message", "session") else (f"{item['type']}_id",)
    return printable(str(next((item[name] for name in names if item.get(name)), item.get("id", ""))))


def _told(item: Mapping[str, Any]) -> str:
    if item["type"] == "session":
        return f"{item['messages']:,} messages with {item['agent_id']}"
    if item["type"] == "message":
        return f"with {item['agent_id']}, session {item['session_id']}"
    return str(item.get("content") or "")


def _show_restored(console: Console, done: Mapping[str, Any]) -> None:
    console.print(f"Restored {done['restored']:,}.")


def _show_purged(console: Console, done: Mapping[str, Any]) -> None:
    if done["purged"]:
        show_rows(console, ("kind", "deleted for good>"), [(kind, f"{n:,}") for kind, n in done["purged"].items()])
    else:
        console.print("Nothing in the recycle bin has had its time yet.")
