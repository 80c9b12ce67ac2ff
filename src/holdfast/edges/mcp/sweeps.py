"""The tool that looks ahead: what a sweep would archive, recycle and delete."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final

from pydantic import Field

from holdfast.core.access import Right
from holdfast.core.errors import InvalidInputError
from holdfast.edges.mcp.models import Inputs, Output
from holdfast.edges.mcp.tools import LOOKS, Reach, Tenant, Tool

MAX_SAMPLES: Final = 100


class PreviewSweep(Inputs):
    """When to look at."""

    at: Annotated[
        str | None, Field(description="An ISO 8601 moment or date to look at; now, if left out: '2027-01-01'.")
    ] = None
    days_ahead: Annotated[
        float | None, Field(ge=0, le=36_500, description="Instead of a moment: so many days from now.")
    ] = None
    samples: Annotated[
        int, Field(ge=0, le=MAX_SAMPLES, description="How many of the memories concerned are shown.")
    ] = 5


class Line(Output):
    """What is due of one kind, for one reason."""

    memory_type: str
    action: str
    reason: str
    records: int
    bytes: int


class Aside(Output):
    """Someone who would lose much at once, and is left out until a person has confirmed it."""

    user_id: str | None
    agent_id: str | None
    due: int
    of: int


class Waiting(Output):
    """What is due by the clock, cannot be undone, and waits until the time is believed."""

    reason: str
    believed: Annotated[str, Field(description="The latest time that the store believes.")]
    since: str
    records: int
    lines: list[Line]


class Sample(Output):
    """One memory that something is due for."""

    memory_id: str
    memory_type: str
    user_id: str
    action: str
    due_at: str
    rule: str
    reason: str
    bytes: int


class Preview(Output):
    """What a sweep would do. Nothing was changed."""

    at: str
    digest: Annotated[str, Field(description="Names exactly this plan: `holdfast sweep --digest` carries it out.")]
    counts: Annotated[dict[str, int], Field(description="How many memories would be archived, recycled, deleted.")]
    bytes: int
    lines: list[Line]
    set_aside: list[Aside]
    held: Annotated[int, Field(description="How many more are due, and kept by holds.")]
    waiting: Annotated[
        Waiting | None, Field(description="What waits while the clock is far ahead of what the store has seen.")
    ]
    samples: list[Sample]


def preview(tenant: Tenant, asked: PreviewSweep) -> Preview:
    """What a sweep would do, now or at a moment to come."""
    if asked.at is not None and asked.days_ahead is not None:
        raise InvalidInputError("give at or days_ahead, not both")
    at = asked.at if asked.days_ahead is None else tenant.holdfast.parts.clock() + timedelta(days=asked.days_ahead)
    return Preview.model_validate(tenant.holdfast.upkeep.plan(at).shown(samples=asked.samples))


TOOLS: Final = (
    Tool(
        "sweep_preview",
        "Preview a sweep",
        "Say what the next sweep would archive, recycle and delete in the whole tenant, now or at a moment to come, by "
        "kind and reason. Changes nothing. Use it to answer what will be forgotten, and when.",
        Right.READ,
        Reach.TENANT,
        PreviewSweep,
        Preview,
        preview,
        LOOKS,
    ),
)
