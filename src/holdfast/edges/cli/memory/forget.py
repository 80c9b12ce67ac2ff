"""``holdfast forget``: all that came from one source goes to the recycle bin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.edges.cli.app import app, command
from holdfast.edges.cli.call import Call
from holdfast.edges.cli.options import DryRun, OfUser
from holdfast.edges.cli.output import Part, Rows, plural


def _show_forgotten(counts: Mapping[str, Any]) -> Iterator[Part]:
    if not counts["by_kind"] and not counts["held"]:
        yield f"Nothing is there that came from {counts['source']}."
        return
    verb = "would go" if counts["dry_run"] else "went"
    if counts["by_kind"]:
        yield Rows(f"kind, {verb}>", list(counts["by_kind"].items()))
        what = f"{plural(counts['memories'], 'memory')} that came from {counts['source']}, and {counts['derived']:,}"
        users = plural(counts["users"], "user")
        yield f"{what} derived from them, of {users}, {verb} to the recycle bin until {counts['purge_at'][:10]}."
    if counts["held"]:
        yield f"A hold keeps {plural(counts['held'], 'memory')} (holdfast hold list)."
    if counts["by_kind"] and not counts["dry_run"]:
        yield f"Bring them back with: holdfast recycle restore --bundle '{counts['bundle']}'"


@command(app, "forget", render=_show_forgotten)
def forget(call: Call, *, source: str, user: OfUser = None, dry_run: DryRun = False) -> Any:
    """Send all that came from a source, of one user or of all, and all that was derived from it, to the recycle bin for
    15 days.

    Options:
        --source NAME  Where it came from, such as import:crm or agent:NAME.

    Examples:
        holdfast add "Visited Rome" --user alice --source import:crm
        holdfast forget --source import:crm --dry-run
        holdfast forget --source import:crm
        holdfast recycle restore --bundle source:import:crm
    """
    return call.engine.forget_source(source, user, dry_run=dry_run)
