"""``holdfast doctor``: whether all that Holdfast is configured with works, and what to do where it does not."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import typer
from rich.console import Console
from rich.text import Text

from holdfast import __version__
from holdfast.edges.cli.app import app, command
from holdfast.edges.cli.options import Home, Json, Url
from holdfast.edges.cli.outcomes import ExitCode
from holdfast.edges.cli.output import printable, show
from holdfast.edges.cli.render import table


@command(app, "version", examples=("holdfast version --json",))
def version(*, as_json: Json = False) -> None:
    """Show the versions of Holdfast and Python."""
    show({"holdfast": __version__, "python": platform.python_version()}, _show_version, as_json=as_json)


def _show_version(console: Console, versions: Mapping[str, str]) -> None:
    console.print(f"holdfast {versions['holdfast']} (Python {versions['python']})")


_MARKS: Final = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "bold red")}


@command(app, "doctor", examples=("holdfast doctor", "holdfast doctor --json"))
def doctor(*, home: Home = None, url: Url = None, as_json: Json = False) -> None:
    """Check Python, the settings, the store, its upkeep, every server, cold storage and the models; say what to fix.

    Changes nothing. Ends with exit code 3 if something does not work; what merely deserves a look is a warning.
    """
    from holdfast.health import Status, check_health  # noqa: PLC0415 - imports the engine

    checks = [asdict(check) for check in check_health(os.environ, url=url, home=home)]
    show(checks, _show_checks, as_json=as_json)
    if any(check["status"] == Status.FAILED for check in checks):
        raise typer.Exit(ExitCode.UNHEALTHY)


def _show_checks(console: Console, checks: Sequence[dict[str, Any]]) -> None:
    to_fix = any(check["fix"] for check in checks)
    made = table(console, "", "check", "found", *(["what to do"] if to_fix else []))
    made.columns[1].no_wrap = True
    for check in checks:
        mark, colour = _MARKS[check["status"]]
        style = "" if check["status"] == "ok" else colour
        cells = [Text(mark, style=colour), Text(check["name"], style=style)]
        cells.append(Text(printable(check["detail"], lines=True)))
        made.add_row(*cells, *([Text(printable(check["fix"] or ""), style="bold")] if to_fix else []))
    console.print(made)
    failed = sum(check["status"] == "failed" for check in checks)
    warned = sum(check["status"] == "warning" for check in checks)
    said = f"{failed} of {len(checks)} checks failed" if failed else f"{len(checks)} checks, nothing is broken"
    console.print(said + (f"; {warned} to look at." if warned else "."), style="bold red" if failed else "green")
