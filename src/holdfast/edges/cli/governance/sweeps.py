"""``holdfast sweep``: archive, recycle and delete what is due, or say what that would be."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from holdfast.core.errors import InvalidInputError
from holdfast.edges.cli.app import app, command
from holdfast.edges.cli.options import DEFAULT_TENANT, Home, Json, Tenant, Url, read_moment
from holdfast.edges.cli.output import printable, show
from holdfast.edges.cli.progress import is_watched, show_progress
from holdfast.edges.cli.render import minute, show_rows
from holdfast.edges.cli.store import open_engine

if TYPE_CHECKING:
    from holdfast.engine import Holdfast
    from holdfast.lifecycle.sweeping.plan import Plan

_SAMPLES: Final = 5


@command(
    app,
    "sweep",
    examples=(
        "holdfast sweep --dry-run",
        "holdfast sweep --dry-run --at +90d --json",
        "holdfast sweep",
    ),
)
def sweep(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="WHEN", help="As of an ISO moment, a date, or so long from now: +90d, +12h, +2w."),
    ] = None,
    digest: Annotated[
        str | None,
        typer.Option(
            "--digest", metavar="DIGEST", help="Carry out exactly the plan that a dry run showed, or nothing."
        ),
    ] = None,
    confirm: Annotated[
        bool,
        typer.Option(
            "--confirm",
            help="Sweep those too who would lose much at once, and trust a clock that leaped or is far ahead.",
        ),
    ] = False,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Archive, recycle and delete what is due, as the rules say.

    Someone who would lose more than a fifth of their memories, and more than 1,000, is set aside until --confirm. While
    the clock is far ahead of what the store has seen, what cannot be undone waits: until --confirm, or for a day.
    """
    if dry_run and digest is not None:
        raise InvalidInputError("--digest carries a plan out; leave --dry-run out, or make a new plan without --digest")
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        moment = None if at is None else read_moment(at, now=engine.parts.clock())
        if dry_run:
            plan: Any = engine.sweep(dry_run=True, at=moment, confirm=confirm)
            done = _shown_plan(plan, ahead=plan.at > engine.parts.now(), confirm=confirm)
            if done["apply"] is not None:
                done["apply"] += _where(tenant, home, url)
        else:
            done = _carry_out(engine, moment, digest, confirm=confirm, silent=as_json)
    show(done, _show_plan if dry_run else _show_report, as_json=as_json)


def _carry_out(
    engine: Holdfast, at: datetime | str | None, digest: str | None, *, confirm: bool, silent: bool
) -> dict[str, Any]:
    """Sweep; where somebody watches, count first how much there is to do."""
    total = 0
    if digest is None and is_watched(silent=silent):
        planned: Any = engine.sweep(dry_run=True, at=at, confirm=confirm)
        total = planned.total
    with show_progress("sweeping", total, silent=silent or not total) as advance:
        report: Any = engine.sweep(at=at, digest=digest, confirm=confirm, progress=advance)
    shown: dict[str, Any] = report.shown()
    return shown


def _shown_plan(plan: Plan, *, ahead: bool, confirm: bool) -> dict[str, Any]:
    from holdfast.lifecycle.sweeping.plan import shown_decision  # noqa: PLC0415 - not needed for --help

    # Only the first few decisions are read: a plan may have millions of them.
    samples = [shown_decision(decision) for decision in islice(plan.decisions, _SAMPLES)]
    apply = None if ahead else f"holdfast sweep --digest {plan.digest}" + (" --confirm" if confirm else "")
    return {**plan.shown(samples=0), "samples": samples, "apply": apply}


def _where(tenant: str, home: Path | None, url: str | None) -> str:
    """The options that name the same store again."""
    given = {"--tenant": None if tenant == DEFAULT_TENANT else tenant, "--home": home, "--url": url}
    return "".join(f" {option} {shlex.quote(str(value))}" for option, value in given.items() if value is not None)


def _show_plan(console: Console, plan: Mapping[str, Any]) -> None:
    if plan["lines"]:
        console.print(f"A sweep at {plan['at']} would do this; nothing was changed.", soft_wrap=True)
        _show_lines(console, plan["lines"])
    else:
        console.print(f"Nothing is due at {plan['at']}.", soft_wrap=True)
    if plan["samples"]:
        console.print("\nAmong them:")
        rows = [
            (one["memory_type"], one["action"], one["memory_id"], printable(one["user_id"]), minute(one["due_at"]))
            for one in plan["samples"]
        ]
        show_rows(console, ("kind!", "action!", "id!", "user", "due!"), rows)
    _show_asides(console, plan["set_aside"])
    if plan["waiting"] is not None:
        console.print(f"\nThis waits: {plan['waiting']['reason']}.", style="yellow", soft_wrap=True)
        _show_lines(console, plan["waiting"]["lines"])
    if plan["held"]:
        console.print(f"{plan['held']:,} more are due, and kept by holds (holdfast hold list).", soft_wrap=True)
    if plan["apply"] is None:
        console.print("It lies ahead: a forecast can be looked at, not carried out.")
    elif plan["lines"]:
        console.print(f"To carry out exactly this:\n  {plan['apply']}", soft_wrap=True)


def _show_report(console: Console, report: Mapping[str, Any]) -> None:
    if report["lines"]:
        _show_lines(console, report["lines"])
        if report["bytes_before"]:
            before, after = report["bytes_before"], report["bytes_after"]
            said = f"In the store, the archived memories took {before:,} bytes, and take {after:,} now."
            console.print(said, soft_wrap=True)
        console.print(f"Swept in {report['seconds']:.1f} s.", style="green")
    else:
        console.print("Nothing was due.")
    if report["set_aside"]:  # who they are is on stderr, as warnings
        said = f"{len(report['set_aside']):,} set aside because they would lose much at once; look, then use --confirm."
        console.print(said, style="yellow", soft_wrap=True)
    if report["waiting"] is not None:  # why is on stderr, as a warning
        said = f"{report['waiting']['records']:,} wait, because they could not be brought back:"
        console.print(said, style="yellow", soft_wrap=True)
        _show_lines(console, report["waiting"]["lines"])
    if report["held"]:
        console.print(f"{report['held']:,} were due, and kept by holds (holdfast hold list).", soft_wrap=True)
    if report["stale"]:
        console.print(f"{report['stale']:,} changed meanwhile; the next sweep looks at them again.", soft_wrap=True)


def _show_lines(console: Console, lines: Sequence[Mapping[str, Any]]) -> None:
    rows: list[tuple[str | Text, ...]] = [
        (line["memory_type"], line["action"], line["reason"], f"{line['records']:,}", f"{line['bytes']:,}")
        for line in lines
    ]
    if len(rows) > 1:
        totals = [sum(line[name] for line in lines) for name in ("records", "bytes")]
        rows.append((Text("in all", style="bold"), "", "", *(Text(f"{total:,}", style="bold") for total in totals)))
    show_rows(console, ("kind!", "action!", "reason", "records>", "bytes>"), rows)


def _show_asides(console: Console, asides: Sequence[Mapping[str, Any]]) -> None:
    if not asides:
        return
    console.print("\nSet aside, because they would lose much at once (--confirm sweeps them too):", style="yellow")
    rows = [
        (
            "user" if aside["agent_id"] is None else "agent",
            printable(str(aside["user_id"] if aside["agent_id"] is None else aside["agent_id"])),
            f"{aside['due']:,}",
            f"{aside['of']:,}",
        )
        for aside in asides
    ]
    show_rows(console, ("", "who", "would lose>", "of>"), rows)
