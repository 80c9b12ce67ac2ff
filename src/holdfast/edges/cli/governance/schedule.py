"""Show what runs when and how it went (without a command), change it, and run it.

Examples:
    holdfast schedule

    holdfast schedule run --once
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from rich.text import Text

from holdfast.core.errors import InvalidInputError
from holdfast.edges.cli.app import Call, add_group, command, log_on_stderr
from holdfast.edges.cli.output import (
    Cell,
    ExitCode,
    Output,
    Part,
    bad,
    cut,
    minute,
    plural,
    printable,
    table,
    to_json,
    warn,
)

#: What a job's result says of a sweep, in words.
_COUNTS: Final = {"archive": "archived", "recycle": "recycled", "delete": "deleted"}

schedule = add_group(__name__, "schedule", __doc__, bare="list")


def _show_list(said: Mapping[str, Any]) -> Iterator[Part]:
    yield from _show_jobs(said["jobs"])
    yield from (warn(f"! {problem}") for problem in said["problems"])
    if not any(row["last_started"] for row in said["jobs"]):
        keep = "keep holdfast serve or holdfast schedule run going"
        yield f"Nothing has run yet: {keep}, or run holdfast schedule run --once from cron."


@table("job!, cron, next run!, last run!, how it went, what", empty="There are no jobs.")
def _show_jobs(job: Mapping[str, Any]) -> list[Cell]:
    coming = minute(job["next_run"]) if job["enabled"] else "disabled"
    cron = f"{job['cron']} {job['timezone']}"
    return [job["name"], cron, coming, minute(job["last_started"]), _describe_run(job), job["sweeps"]]


def _describe_run(job: Mapping[str, Any]) -> Text:
    if job["running"]:
        return Text("running", style="cyan")
    if job["failed"]:
        return bad(f"failed: {job['error'] or 'it did not say why'}")
    if job["overdue"]:
        return warn(f"overdue since {minute(job['waiting_since'])}")
    return Text(describe_result(job["last_result"]) if job["last_finished"] else "not run yet")


def describe_result(result: Mapping[str, Any] | None) -> str:
    """What a job did, in words."""
    found = result or {}
    counts, waiting = found.get("counts", {}), found.get("waiting") or {}
    said = [f"{counts[name]:,} {word}" for name, word in _COUNTS.items() if counts.get(name)]
    number = waiting["records"] if isinstance(waiting, Mapping) and waiting else len(waiting)
    if number:
        said.append(f"{plural(number, 'item')} must wait for the clock (holdfast doctor)")
    if "backup" in found:
        said.append(f"made backup {found['backup']} ({plural(found['memories'], 'memory')})")
    if found.get("backups"):
        said.append(f"restored {plural(len(found['backups']), 'backup')} on trial")
    if found.get("removed"):
        said.append(f"removed {plural(len(found['removed']), 'backup')}")
    return ", ".join(said) or "nothing due"


@command(schedule, "list", render=_show_list)
def list_jobs(call: Call) -> Any:
    """List the jobs: when each runs next, how its last run went, and what is wrong.

    Examples:
        holdfast schedule list

        holdfast schedule list --json
    """
    return {"jobs": call.engine.schedule.list(), "problems": call.engine.schedule.problems()}


@command(schedule, "set", render=lambda row: _show_jobs([row]))
def set_job(
    call: Call,
    *,
    job: str,
    cron: str | None = None,
    timezone: str | None = None,
    enable: bool = False,
    disable: bool = False,
) -> Any:
    """Change when a job runs, or whether; what is not given stays.

    Options:
        JOB  The job: <jobs>.
        --cron CRON  Minute, hour, day, month, weekday, such as '0 3 * * *'; or default.
        --timezone ZONE  The time zone, such as Europe/Berlin; or default.
        --enable  Let it run.
        --disable  Do not let it run.

    Examples:
        holdfast schedule set daily --cron "30 4 * * *" --timezone Europe/Berlin

        holdfast schedule set archive --disable

        holdfast schedule set daily --cron default --timezone default
    """
    if enable and disable:
        raise InvalidInputError("give --enable or --disable, not both")
    enabled = enable if enable or disable else None
    return call.engine.schedule.set(job, cron=cron, timezone=timezone, enabled=enabled)


def _show_ran(said: Mapping[str, Any]) -> Iterator[Part]:
    if not said["ran"]:
        yield "Another process runs the jobs just now." if said["elsewhere"] else "Nothing is due."
    for one in said["ran"]:
        what = f"{one['name']} ({minute(one['slot'])})"
        failed = one["error"] is not None
        yield bad(f"{what} failed: {one['error']}") if failed else f"{what}: {describe_result(one['result'])}."


@table("job!, began!, how it went", empty="No job has done anything yet.")
def _show_runs(run: Mapping[str, Any]) -> list[Cell]:
    went = bad(f"failed: {run['error']}") if run["error"] else cut(to_json(run["result"]), 120)
    return [run["name"], minute(run["started_at"]), went]


@command(schedule, "runs", render=_show_runs)
def list_runs(call: Call, *, job: str | None = None) -> Any:
    """List the runs of jobs that did something or failed, the latest first; the last hundred of each are kept.

    Options:
        --job JOB  Of this job alone.

    Examples:
        holdfast schedule runs
    """
    return call.engine.schedule.runs(job)


@command(schedule, "run")
def run_jobs(call: Call, *, job: str | None = None, once: bool = False) -> Any:
    """Run jobs when they are due, until interrupted (Ctrl-C or SIGTERM, after the job that is running).

    With --once: what is due now, and end; put that into cron. With a job's name: that job, whether it is due or not.

    Options:
        JOB  Run this one now and end: <jobs>.
        --once  Run what is due and end, as from cron.

    Examples:
        holdfast schedule run --once

        holdfast schedule run episodes
    """
    call.quiet |= job is None  # what fails is told below, without a traceback
    jobs = call.engine.schedule
    if job is not None:
        result = jobs.run(job)
        return Output({"name": job, "result": result}, lambda _: f"{job}: {describe_result(result)}.")
    if once:
        done = jobs.run_due()
        elsewhere = not done and any(row["running"] for row in jobs.list())
        failed = any(one["error"] is not None for one in done)
        return Output({"ran": done, "elsewhere": elsewhere}, _show_ran, code=ExitCode.FAILED if failed else 0)
    with log_on_stderr(_Lines(), logging.INFO), _until_signal() as ended:
        call.tell("Running jobs when they are due; Ctrl-C ends it.")
        jobs.serve(ended.event)
    return Output({"ended_by": ended.by}, lambda said: f"Ended by {said['ended_by']}.")


class _Ended:
    """Whether a signal asked the command to end, and which."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.by: str | None = None

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        self.by = signal.Signals(number).name
        self.event.set()
        signal.signal(number, signal.default_int_handler)  # told twice, it ends at once


@contextmanager
def _until_signal() -> Iterator[_Ended]:
    ended = _Ended()
    before = {number: signal.signal(number, ended) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Lines(logging.Formatter):
    """One line for each entry: what a job raised is told in words, in the schedule's own list."""

    def format(self, record: logging.LogRecord) -> str:
        problem = record.exc_info[1] if record.exc_info else None
        line = f"{self.formatTime(record)} {record.levelname.lower()}: {record.getMessage()}"
        return printable(line if problem is None else f"{line}: {type(problem).__name__}: {problem}")
