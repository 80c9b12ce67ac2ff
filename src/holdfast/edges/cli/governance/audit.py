"""``holdfast audit tail | verify | seal``: what happened, in order, and whether the record of it is whole."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from holdfast.edges.cli.app import add_group, command
from holdfast.edges.cli.options import DEFAULT_TENANT, Home, Json, Tenant, Url
from holdfast.edges.cli.outcomes import ExitCode
from holdfast.edges.cli.output import printable, show
from holdfast.edges.cli.progress import show_progress
from holdfast.edges.cli.render import minute, show_rows
from holdfast.edges.cli.selection import OfUser
from holdfast.edges.cli.store import open_engine

_SHOWN: Final = 100

audit = add_group(
    "audit",
    about="Read the audit chain, check that it is whole, and seal it.",
    examples=["holdfast audit tail", "holdfast audit verify"],
)


@command(audit, "tail", examples=("holdfast audit tail -n 10", "holdfast audit tail --user alice --json"))
def tail(
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="How many entries at most.")] = 20,
    user: OfUser = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show the latest entries of the audit chain, the newest last. It names no users."""
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        entries = engine.audit.tail(limit, user_id=user)
    show(entries, _show_entries, as_json=as_json)


@command(audit, "verify", examples=("holdfast audit verify",))
def verify(*, tenant: Tenant = DEFAULT_TENANT, home: Home = None, url: Url = None, as_json: Json = False) -> None:
    """Look for any entry or checkpoint that was changed, removed, moved or added, in all chains of the store.

    Ends with exit code 3 if something is wrong, and says what.
    """
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        total = engine.parts.audit.sizes().entries
        with show_progress("verifying", total, silent=as_json) as advance:
            verdict = engine.audit.verify(advance)
    said = {
        "ok": verdict.ok,
        "chains": verdict.chains,
        "entries": verdict.entries,
        "checkpoints": verdict.checkpoints,
        "problems": verdict.problems,
        "findings": [finding._asdict() for finding in verdict.findings],
    }
    show(said, _show_verdict, as_json=as_json)
    if not verdict:
        raise typer.Exit(ExitCode.UNHEALTHY)


@command(audit, "seal", examples=("holdfast audit seal",))
def seal(
    *,
    accept: Annotated[
        str | None,
        typer.Option("--accept", metavar="REASON", help="Why it is right that the store and the note of it disagree."),
    ] = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Seal the audit chain by a checkpoint, and note it outside the store.

    Refused where the note and the store disagree, as after a restored backup, unless --accept says why that is right.
    """
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        made = engine.audit.seal(accept=accept)
    show(made, _show_sealed, as_json=as_json)


def _show_entries(console: Console, entries: Sequence[Mapping[str, Any]]) -> None:
    if not entries:
        console.print("The audit chain is empty.")
        return
    rows = [
        (
            minute(entry["at"]),
            entry["action"],
            printable(entry["actor"]),
            printable(entry["item"] or ""),
            _why(entry["detail"]),
        )
        for entry in entries
    ]
    show_rows(console, ("at!", "action!", "by", "id!", "why"), rows)


def _why(detail: Mapping[str, Any]) -> Text:
    """The reason of an entry; of one that gives none, all that it says."""
    words = Text(printable(str(detail.get("reason") or json.dumps(detail, ensure_ascii=False))))
    words.truncate(_SHOWN, overflow="ellipsis")
    return words


def _show_verdict(console: Console, said: Mapping[str, Any]) -> None:
    looked = f"{said['entries']:,} entries of {said['chains']:,} chains, {said['checkpoints']:,} checkpoints"
    if said["ok"]:
        console.print(f"Whole: {looked}.", style="green", soft_wrap=True)
        return
    rows = [
        (printable(one["chain"])[:16], f"{one['seq'] or ''}", printable(one["problem"])) for one in said["findings"]
    ]
    show_rows(console, ("chain", "place>", "what is wrong"), rows)
    more = said["problems"] - len(rows)
    shown = f" (the first {len(rows)} are shown)" if more else ""
    console.print(f"BROKEN: {said['problems']:,} problems in {looked}{shown}.", style="bold red", soft_wrap=True)


def _show_sealed(console: Console, made: Mapping[str, Any]) -> None:
    console.print(
        f"Checkpoint {made['checkpoint']} seals {made['entries']:,} entries of {made['chains']:,} chains "
        f"({minute(made['at'])}, {made['hash'][:16]}…).",
        soft_wrap=True,
    )
