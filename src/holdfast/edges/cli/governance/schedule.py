"""``holdfast schedule [list] | set | run``: what runs when, how it went, and running it."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from holdfast.core.errors import InvalidInputError
from holdfast.edges.cli.app import add_group, command
from holdfast.edges.cli.options import DEFAULT_TENANT, Home, Json, Tenant, Url
from holdfast.edges.cli.outcomes import ExitCode
from holdfast.edges.cli.output import error_console, printable, show
from holdfast.edges.cli.render import counted, minute, show_rows
from holdfast.edges.cli.store import open_engine

_JOBS: Final = "minutely, episodes, archive, daily, backup, backup_persona or backup_trial"
#: What a job's result says of a sweep, in words.
_COUNTS: Final = {"archive": "archived", "recycle": "recycled", "delete": "deleted"}

schedule = add_group(
    "schedule",
    about="Show what runs when and how it went (without a command), change it, and run it.",
    examples=["holdfast schedule", "holdfast schedule run --once"],
    bare=True,
)


@schedule.callback()
def schedule_alone(
    context: typer.Context,
    *,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show what runs when and how it went (without a command), change it, and run it."""
    if context.invoked_subcommand is None:
        _list(tenant, home, url, as_json=as_json)
    elif (tenant, home, url, as_json) != (DEFAULT_TENANT, None, None, False):
        raise InvalidInputError(f"give options after the command: holdfast schedule {context.invoked_subcommand} …")


@command(schedule, "list", examples=("holdfast schedule list", "holdfast schedule list --json"))
def list_jobs(*, tenant: Tenant = DEFAULT_TENANT, home: Home = None, url: Url = None, as_json: Json = False) -> None:
    """List the jobs: when each runs next, how its last run went, and what is wrong."""
    _list(tenant, home, url, as_json=as_json)


@command(
    schedule,
    "set",
    examples=(
        'holdfast schedule set daily --cron "30 4 * * *" --timezone Europe/Berlin',
        "holdfast schedule set archive --disable",
        "holdfast schedule set daily --cron default --timezone default",
    ),
)
def set_job(
    *,
    job: Annotated[str, typer.Argument(metavar="JOB", help=f"The job: {_JOBS}.")],
    cron: Annotated[
        str | None,
        typer.Option("--cron", metavar="CRON", help="Minute, hour, day, month, weekday, such as '0 3 * * *'; default."),
    ] = None,
    timezone: Annotated[
        str | None, typer.Option("--timezone", metavar="ZONE", help="The time zone, such as Europe/Berlin; default.")
    ] = None,
    enable: Annotated[bool, typer.Option("--enable", help="Let it run.")] = False,
    disable: Annotated[bool, typer.Option("--disable", help="Do not let it run.")] = False,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Change when a job runs, or whether; what is not given stays."""
    if enable and disable:
        raise InvalidInputError("give --enable or --disable, not both")
    enabled = enable if enable or disable else None
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        row = engine.schedule.set(job, cron=cron, timezone=timezone, enabled=enabled)
    show(row, lambda console, one: _show_jobs(console, [one]), as_json=as_json)


@command(schedule, "run", examples=("holdfast schedule run --once", "holdfast schedule run episodes"))
def run_jobs(
    *,
    job: Annotated[str | None, typer.Argument(metavar="JOB", help=f"Run this one now and end: {_JOBS}.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Run what is due and end, as from cron.")] = False,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Run jobs when they are due, until interrupted (Ctrl-C or SIGTERM, after the job that is running).

    With --once: what is due now, and end; put that into cron. With a job's name: that job, whether it is due or not.
    """
    if job is not None:
        with open_engine(home, url, tenant, quiet=as_json) as engine:
            result = engine.schedule.run(job)
        show({"name": job, "result": result}, _show_run, as_json=as_json)
    elif once:
        with open_engine(home, url, tenant, quiet=True) as engine:  # what fails is told below, without a traceback
            done = engine.schedule.run_due()
            elsewhere = not done and any(row["running"] for row in engine.schedule.list())
        show({"ran": done, "elsewhere": elsewhere}, _show_ran, as_json=as_json)
        if any(one["error"] is not None for one in done):
            raise typer.Exit(ExitCode.FAILED)
    else:
        with open_engine(home, url, tenant, quiet=True) as engine, _log_on_stderr(), _until_told_to_end() as ended:
            if not as_json:
                error_console().print("Running jobs when they are due; Ctrl-C ends it.")
            engine.schedule.serve(ended.event)
        show({"ended_by": ended.by}, _show_ended, as_json=as_json)


class _Ended:
    """Whether, and by which signal, the command was told to end."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.by: str | None = None

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        self.by = signal.Signals(number).name
        self.event.set()
        signal.signal(number, signal.default_int_handler)  # told twice, it ends at once


@contextmanager
def _until_told_to_end() -> Iterator[_Ended]:
    ended = _Ended()
    before = {number: signal.signal(number, ended) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _log_on_stderr() -> Iterator[None]:
    """What jobs have to say, each line with its time; a failure without its traceback."""
    log = logging.getLogger("holdfast")
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines())
    handler.addFilter(lambda entry: not entry.name.startswith("holdfast.latency"))
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(level)
        log.removeHandler(handler)


class _Lines(logging.Formatter):
    """One line for each entry: what a job raised is told in words, in the schedule's own list."""

    def format(self, record: logging.LogRecord) -> str:
        problem = record.exc_info[1] if record.exc_info else None
        line = f"{self.formatTime(record)} {record.levelname.lower()}: {record.getMessage()}"
        return printable(line if problem is None else f"{line}: {type(problem).__name__}: {problem}")


def _list(tenant: str, home: Any, url: str | None, *, as_json: bool) -> None:
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        rows = engine.schedule.list()
        problems = engine.schedule.problems()
    show({"jobs": rows, "problems": problems}, _show_list, as_json=as_json)


def _show_list(console: Console, said: Mapping[str, Any]) -> None:
    _show_jobs(console, said["jobs"])
    for problem in said["problems"]:
        console.print(Text(f"! {printable(problem)}", style="yellow"), soft_wrap=True)
    if not any(row["last_started"] for row in said["jobs"]):
        console.print(
            "Nothing has run yet: keep holdfast serve or holdfast schedule run going, or run "
            "holdfast schedule run --once from cron.",
            soft_wrap=True,
        )


def _show_jobs(console: Console, jobs: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        (
            job["name"],
            f"{job['cron']} {job['timezone']}",
            minute(job["next_run"]) if job["enabled"] else "disabled",
            minute(job["last_started"], "never"),
            _went(job),
            job["sweeps"],
        )
        for job in jobs
    ]
    show_rows(console, ("job!", "cron", "next run!", "last run!", "how it went", "what"), rows)


def _went(job: Mapping[str, Any]) -> Text:
    if job["running"]:
        return Text("running", style="cyan")
    if job["failed"]:
        return Text(f"failed: {printable(job['error'] or '')}", style="bold red")
    if job["overdue"]:
        return Text(f"overdue since {minute(job['waiting_since'])}", style="yellow")
    return Text(_told(job["last_result"]) if job["last_finished"] else "")


def _told(result: Mapping[str, Any] | None) -> str:
    counts = (result or {}).get("counts", {})
    waiting = (result or {}).get("waiting") or {}  # of a sweep: what, and why; of backups: which
    said = [f"{counts[name]:,} {word}" for name, word in _COUNTS.items() if counts.get(name)]
    number = waiting["records"] if isinstance(waiting, Mapping) and waiting else len(waiting)
    said += [f"{number:,} wait until the time is believed (holdfast doctor)"] if number else []
    said += _told_of_backups(result or {})
    return ", ".join(said) or "nothing due"


def _told_of_backups(result: Mapping[str, Any]) -> list[str]:
    """What a job has made or tried."""
    said = (
        [f"made backup {result['backup']} ({counted(result['memories'], 'memory', 'memories')})"]
        if "backup" in result
        else []
    )
    if tried := result.get("backups"):
        said.append(f"restored {counted(len(tried), 'backup')} on trial")
    if removed := result.get("removed"):
        said.append(f"removed {counted(len(removed), 'backup')}")
    return said


def _show_run(console: Console, done: Mapping[str, Any]) -> None:
    console.print(f"{done['name']}: {_told(done['result'])}.")


def _show_ran(console: Console, said: Mapping[str, Any]) -> None:
    if not said["ran"]:
        console.print("Another process is at it." if said["elsewhere"] else "Nothing is due.")
    for one in said["ran"]:
        if one["error"] is None:
            console.print(f"{one['name']} ({minute(one['slot'])}): {_told(one['result'])}.")
        else:
            words = f"{one['name']} ({minute(one['slot'])}) failed: {printable(one['error'])}"
            console.print(Text(words, style="bold red"), soft_wrap=True)


def _show_ended(console: Console, said: Mapping[str, Any]) -> None:
    console.print(f"Ended by {said['ended_by']}.")
