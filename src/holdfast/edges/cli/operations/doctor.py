"""``holdfast doctor | version | demo``: whether all works, what is installed, and a tour."""

from __future__ import annotations

import io
import logging
import os
import platform
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from holdfast import __version__
from holdfast.edges.cli.app import Call, app, command
from holdfast.edges.cli.options import of_store, only_json
from holdfast.edges.cli.output import ExitCode, Output, Part, Rows, bad, console, good, plural, printable, write_parts

_TOUR_WIDTH: Final = 100
_PAUSE_SECONDS: Final = 1.2
_MARKS: Final = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "bold red")}


def _show_checks(checks: Sequence[dict[str, Any]]) -> Iterator[Part]:
    to_fix = any(check["fix"] for check in checks)
    rows = []
    for check in checks:
        mark, colour = _MARKS[check["status"]]
        name = Text(check["name"], style="" if check["status"] == "ok" else colour)
        cells = [Text(mark, style=colour), name, Text(printable(check["detail"], lines=True))]
        rows.append([*cells, *([Text(printable(check["fix"] or "nothing"), style="bold")] if to_fix else [])])
    yield Rows(", check!, found" + (", what to do" if to_fix else ""), rows)
    failed, warned = (sum(check["status"] == status for check in checks) for status in ("failed", "warning"))
    look = f"; {warned} to look at." if warned else "."
    if failed:
        yield bad(f"{failed} of {plural(len(checks), 'check')} failed{look}")
    else:
        yield good(f"{plural(len(checks), 'check')}, nothing is broken{look}")


@command(app, "doctor", of_store, render=_show_checks)
def doctor(call: Call) -> Any:
    """Check Python, the settings, the store, its upkeep, every server, cold storage and the models; say what to fix.

    Changes nothing. Ends with exit code 3 if something does not work; what merely deserves a look is a warning.

    Examples:
        holdfast doctor

        holdfast doctor --json
    """
    from holdfast.health.checks import Status  # noqa: PLC0415 - imports the engine
    from holdfast.health.doctor import check_health  # noqa: PLC0415

    checks = [asdict(check) for check in check_health(os.environ, url=call.url, home=call.home)]
    failed = any(check["status"] == Status.FAILED for check in checks)
    return Output(checks, code=ExitCode.UNHEALTHY if failed else 0)


@command(app, "version", only_json, render=lambda found: f"holdfast {found['holdfast']} (Python {found['python']})")
def version(_: Call) -> Any:
    """Show the versions of Holdfast and Python.

    Examples:
        holdfast version --json
    """
    return {"holdfast": __version__, "python": platform.python_version()}


@command(app, "demo", only_json)
def demo(call: Call, *, fast: bool = False) -> Any:
    """Take a short tour, from seven kinds of memory to an erasure that can be proven.

    Runs in a temporary folder; nothing of yours is read or changed.

    Options:
        --fast  Do not pause between the stops.

    Examples:
        holdfast demo --fast
    """
    from holdfast.demo import NEXT, open_tour  # noqa: PLC0415 - imports the engine

    logging.getLogger("holdfast").addHandler(logging.NullHandler())  # missed targets stand in the tour's own table
    screen = Console(file=io.StringIO()) if call.as_json else console()
    screen.width = min(screen.width, _TOUR_WIDTH)
    with open_tour() as tour:
        about = f"Memory for AI agents that knows when to let go. {len(tour.stops)} stops."
        write_parts([Text("Holdfast", style="bold"), about], screen)
        for number, stop in enumerate(tour.stops, start=1):
            write_parts(["", Rule(f"{number}. {stop.__doc__}", align="left", style="bright_black")], screen)
            write_parts(map(_to_part, stop(tour)), screen)
            if screen.is_terminal and not fast:
                time.sleep(_PAUSE_SECONDS)
        found = {"stops": [stop.__doc__ for stop in tour.stops], "latencies": tour.holdfast.latencies.summary()}
    write_parts(["", "Your turn, in four lines:", Text(textwrap.indent(NEXT, "    "), style="cyan")], screen)
    write_parts(["Then: holdfast doctor, holdfast --help. This tour's store is gone."], screen)
    return Output(found, text="")


def _to_part(shown: str | tuple[str, Any]) -> Part:
    if isinstance(shown, tuple):
        return Rows(*shown)
    return Text(shown, style="cyan") if shown.startswith(">>>") else Text(printable(shown))
