"""``holdfast forget``: all that came from one source goes to the recycle bin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console

from holdfast.edges.cli.app import app, command
from holdfast.edges.cli.options import DEFAULT_TENANT, Home, Json, Tenant, Url
from holdfast.edges.cli.output import printable, show
from holdfast.edges.cli.render import show_rows
from holdfast.edges.cli.selection import OfUser
from holdfast.edges.cli.store import open_engine


@command(
    app,
    "forget",
    examples=(
        """\
holdfast add "Visited Rome" --user alice --source import:crm
holdfast forget --source import:crm --dry-run
holdfast forget --source import:crm
holdfast recycle restore --bundle source:import:crm""",
    ),
)
def forget(
    *,
    source: Annotated[
        str,
        typer.Option("--source", metavar="NAME", help="Who or what it came from, such as import:crm or agent:NAME."),
    ],
    user: OfUser = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and leave it.")] = False,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Send all that came from a source, of one user or of all, and all that was derived from it, to the recycle bin for
    15 days.
    """
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        counts = engine.forget_source(source, user, dry_run=dry_run)
    show(counts, _show_forgotten, as_json=as_json)


def _show_forgotten(console: Console, counts: Mapping[str, Any]) -> None:
    if not counts["by_kind"] and not counts["held"]:
        console.print(f"Nothing is there that came from {printable(counts['source'])}.", soft_wrap=True)
        return
    verb = "would go" if counts["dry_run"] else "went"
    until = counts["purge_at"][:10]
    if counts["by_kind"]:
        show_rows(console, ("kind", f"{verb}>"), [(kind, f"{n:,}") for kind, n in counts["by_kind"].items()])
    console.print(
        f"{counts['memories']:,} memories that came from {printable(counts['source'])}, and {counts['derived']:,} that "
        f"were derived from them, of {counts['users']:,} users, {verb} to the recycle bin until {until}.",
        soft_wrap=True,
    )
    if counts["held"]:
        console.print(f"{counts['held']:,} are on hold and stay.")
    if not counts["dry_run"]:
        console.print(
            f"Bring them back with: holdfast recycle restore --bundle '{printable(counts['bundle'])}'", soft_wrap=True
        )
