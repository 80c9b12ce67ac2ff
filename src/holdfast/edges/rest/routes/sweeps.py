"""``/v1/sweeps``: archive, recycle and delete what is due, or say what that would be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import Field
from starlette.responses import Response

from holdfast.core.access import Right
from holdfast.edges.rest.guard import Asking
from holdfast.edges.rest.models import MEMORY_ID, MOMENT, Answer, Metadata, Request, example
from holdfast.edges.rest.operations import Routes, answer
from holdfast.edges.rest.rights import Reach
from holdfast.edges.rest.streaming import NDJSON, stream_progress
from holdfast.lifecycle.sweeping.plan import Plan, Report

routes = Routes("sweeps", "What is due: planned, looked at, and carried out as it was planned.")

When = Annotated[str, Field(max_length=64, examples=[MOMENT], description="A moment, as ISO 8601.")]


class PlanRequest(Request):
    """When, and for whom."""

    model_config = example({"samples": 5})

    at: When | None = Field(default=None, description="Now, if it is not given; a moment to come gives a forecast.")
    confirm: bool = Field(default=False, description="Those too who would lose much at once.")
    samples: int = Field(default=5, ge=0, le=1_000, description="So many of the decisions are shown.")


class SweepRequest(Request):
    """Which plan is carried out."""

    model_config = example({"digest": "64a1b2c3d4e5f-0123456789abcdef0123456789abcdef"})

    digest: Annotated[str, Field(max_length=128)] | None = Field(
        default=None, description="Of a plan: exactly that is carried out, or nothing. Without one, what is due now."
    )
    confirm: bool = Field(
        default=False,
        description="Those too who would lose much at once; trust a clock that leaped, or is far ahead.",
    )


# What is asked by those who send no body.
_PLANNED_NOW: Final = PlanRequest()
_WHAT_IS_DUE: Final = SweepRequest()


class Line(Answer):
    """What is done to how many, and why."""

    memory_type: str
    action: str
    reason: str
    records: int
    bytes: int


class Aside(Answer):
    """Someone who would lose so much that a person is to look at it first."""

    user_id: str | None
    agent_id: str | None
    due: int
    of: int


class Waiting(Answer):
    """What is due by the clock, cannot be undone, and waits until the time is believed."""

    reason: str = Field(description="Why it waits, and what to do about it.")
    believed: str = Field(description="The latest time that the store believes.")
    since: str = Field(description="When the time that is not believed was first sighted, by its own clock.")
    records: int
    lines: list[Line]


class SweepPlan(Answer):
    """What a sweep would do."""

    model_config = example(
        {
            "dry_run": True,
            "at": MOMENT,
            "digest": "64a1b2c3d4e5f-0123456789abcdef0123456789abcdef",
            "counts": {"archive": 3, "recycle": 0, "delete": 0},
            "bytes": 1_204,
            "lines": [
                {
                    "memory_type": "episodic",
                    "action": "archive",
                    "reason": "90 days after it ended",
                    "records": 3,
                    "bytes": 1_204,
                }
            ],
            "set_aside": [],
            "held": 0,
            "waiting": None,
            "samples": [{"memory_id": MEMORY_ID, "action": "archive", "reason": "90 days after it ended"}],
        }
    )

    dry_run: bool
    at: str
    digest: str
    counts: dict[str, int]
    bytes: int
    lines: list[Line]
    set_aside: list[Aside]
    held: int = Field(description="How many more are due, and kept by holds.")
    waiting: Waiting | None = Field(description="What waits while the clock is far ahead of what the store has seen.")
    samples: list[Metadata]


@routes.add("POST", "/sweeps/plan", Right.READ, Reach.TENANT, answer=SweepPlan, long=True)
def plan_sweep(caller: Asking, asked: PlanRequest = _PLANNED_NOW) -> Response:
    """Say what a sweep would do, now or at a moment to come. Changes nothing.

    The `digest` of the answer carries out exactly that plan with `POST /v1/sweeps`.
    """
    plan = caller.tenant().sweep(dry_run=True, at=asked.at, confirm=asked.confirm)
    assert isinstance(plan, Plan)  # noqa: S101 - a dry run gives one
    return answer(plan.shown(asked.samples))


@routes.add(
    "POST",
    "/sweeps",
    Right.GOVERN,
    Reach.TENANT,
    answer={
        "description": (
            'Lines of JSON: `{"progress": records}` now and then, then `{"result": {…}}`, the plan as it was carried '
            "out, with what the archived memories took in the store and take now (`bytes_before`, `bytes_after`); or, "
            'if something goes wrong in between, `{"problem": {…}}`.'
        ),
        "content": {
            NDJSON: {
                "schema": {"type": "string"},
                "example": (
                    '{"progress": 500}\n{"result": {"dry_run": false, "counts": {"archive": 812}, '
                    '"bytes_before": 652841, "bytes_after": 305312}}\n'
                ),
            }
        },
    },
    errors=(409, 428),
    long=True,
)
def carry_out_sweep(caller: Asking, asked: SweepRequest = _WHAT_IS_DUE) -> Response:
    """Archive, recycle and delete what is due, as the rules say; tell how far it is.

    With the `digest` of a plan, exactly that is done, or nothing (`plan_changed`). Whoever would lose more than a fifth
    of their memories, and more than 1,000, is set aside unless `confirm` is given. While the clock is far ahead of what
    the store has seen, what cannot be undone waits (`waiting`), unless `confirm` is given: that believes the time. If
    the connection is closed, the sweep ends after the batch that it is at; the next one does the rest. With an
    `Idempotency-Key` it goes on to its end, and the answer comes whole.
    """
    holdfast = caller.tenant()

    def work(progress: Callable[[int], None]) -> dict[str, Any]:
        report = holdfast.sweep(digest=asked.digest, confirm=asked.confirm, progress=progress)
        assert isinstance(report, Report)  # noqa: S101 - it is no dry run
        return report.shown()

    return stream_progress(work)
