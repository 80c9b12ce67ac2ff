"""``/v1/schedule``: what runs when, how it went, and running it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from pydantic import Field
from starlette.responses import Response

from holdfast.core.access import Right
from holdfast.core.errors import NotFoundError, quote
from holdfast.edges.rest.guard import Asking
from holdfast.edges.rest.models import MOMENT, Answer, Metadata, Request, example
from holdfast.edges.rest.operations import Routes, answer
from holdfast.edges.rest.rights import Reach

routes = Routes("schedule", "What runs when, how it went, and running it.")

JobName = Annotated[str, Path(max_length=64, description="The job.", examples=["daily"])]
_EXAMPLE = {
    "name": "daily",
    "cron": "0 3 * * *",
    "timezone": "UTC",
    "enabled": True,
    "sweeps": "sessions, recycle bin, agents, tools, audit",
    "meaning": "Recycles idle sessions, empties the bin of what is past its time, seals the audit chain.",
    "last_slot": None,
    "last_started": None,
    "last_finished": None,
    "last_result": None,
    "error": None,
    "next_run": MOMENT,
    "running": False,
    "overdue": False,
    "failed": False,
    "missed": 0,
    "waiting_since": None,
    "clock_set_back": False,
}


class Job(Answer):
    """A job: when it runs, how its last slot went, and what is wrong with it."""

    model_config = example(_EXAMPLE)

    name: str
    cron: str
    timezone: str
    enabled: bool
    sweeps: str
    meaning: str
    last_slot: str | None
    last_started: str | None
    last_finished: str | None
    last_result: Metadata | None
    error: str | None
    next_run: str | None
    running: bool
    overdue: bool
    failed: bool
    missed: int
    waiting_since: str | None
    clock_set_back: bool


class Jobs(Answer):
    """All jobs, and what an operator should know of them."""

    model_config = example({"items": [_EXAMPLE], "problems": []})

    items: list[Job]
    problems: list[str]


class JobChange(Request):
    """When a job is to run, or whether; what is not given stays, and `default` goes back to the default."""

    model_config = example({"cron": "30 4 * * *", "timezone": "Europe/Berlin"})

    cron: Annotated[str, Field(min_length=1, max_length=200, description="When, as five fields of cron.")] | None = None
    timezone: Annotated[str, Field(min_length=1, max_length=100, description="The zone of that time.")] | None = None
    enabled: bool | None = Field(default=None, description="Whether it runs at all.")


class JobRun(Answer):
    """A job that was run."""

    model_config = example({"name": "daily", "result": {"tenants": 1, "counts": {"archive": 0}}})

    name: str
    result: Metadata


@routes.add("GET", "/schedule", Right.ADMIN, Reach.STORE, answer=Jobs)
def list_jobs(caller: Asking) -> Response:
    """List the jobs: when each runs next, how its last run went, and what is wrong."""
    schedule = caller.store().schedule
    return answer({"items": schedule.list(), "problems": schedule.problems()})


@routes.add("PATCH", "/schedule/{name:id}", Right.ADMIN, Reach.STORE, answer=Job, errors=(404,))
def set_job(caller: Asking, name: JobName, change: JobChange) -> Response:
    """Change when a job runs, or whether."""
    schedule = caller.store().schedule
    _check(name, [row["name"] for row in schedule.list()])
    return answer(schedule.set(name, cron=change.cron, timezone=change.timezone, enabled=change.enabled))


@routes.add("POST", "/schedule/{name:id}/run", Right.ADMIN, Reach.STORE, answer=JobRun, errors=(404, 409), long=True)
def run_job(caller: Asking, name: JobName) -> Response:
    """Run a job now, by hand; its slots stay as they are."""
    schedule = caller.store().schedule
    _check(name, [row["name"] for row in schedule.list()])
    return answer({"name": name, "result": schedule.run(name)})


def _check(name: str, known: list[str]) -> None:
    if name not in known:
        raise NotFoundError(f"there is no job {quote(name)}; jobs are: {', '.join(known)}")
