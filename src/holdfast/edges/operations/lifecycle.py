"""Operations on what is due: sweeps, the recycle bin, and the holds that keep things."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from operator import itemgetter
from typing import Any, Final, TypedDict

from pydantic import Field

from holdfast.core.errors import InvalidInputError
from holdfast.edges.operations.models import MEMORY_ID, ConfirmClock, Id, Input, MaybeUser, Nothing, Paged, example
from holdfast.edges.operations.operation import GOVERN, READ, TENANT, WHOSE, WRITE, Group
from holdfast.edges.operations.outputs import Answer, OpenAnswer, PageOf, output_of
from holdfast.engine import Holdfast
from holdfast.lifecycle.holds import hold_to_dict
from holdfast.lifecycle.sweeping.forecast import MOST_DAYS
from holdfast.lifecycle.sweeping.plan import Line, NeedsConfirmation, Plan, Report
from holdfast.results.figures import ForecastResult, OverviewResult
from holdfast.results.lifecycle import BinResult, HoldCoverResult, HoldResult, ListedHoldResult
from holdfast.results.memory import Metadata

sweeps = Group("sweeps", "What is due: planned, looked at, and carried out as it was planned.")
recycle = Group("recycle", "The recycle bin: what was removed, for as long as it can be brought back.")
holds = Group("holds", "What nothing may remove, however old it is and whoever asks.")
_DIGEST: Final = "64a1b2c3d4e5f-0123456789abcdef0123456789abcdef"


class PlanSweep(Input):
    """When, and for whom."""

    model_config = example({"samples": 5})

    at: str | None = Field(
        None, max_length=64, description="As ISO 8601 (2027-01-01): what would be due then; now, if not given."
    )
    days_ahead: float | None = Field(None, ge=0, le=36_500, description="Instead of a moment: so many days from now.")
    confirm: bool = Field(False, description="Those too who would lose much at once.")
    samples: int = Field(5, ge=0, le=1_000, description="So many of the decisions are shown.")


class RunSweep(Input):
    """Which plan is carried out."""

    model_config = example({"digest": _DIGEST})

    digest: str | None = Field(
        None,
        max_length=128,
        description="Of a plan: exactly it is carried out, or nothing. Without one, what is due now.",
    )
    confirm: bool = Field(
        False, description="Those too who would lose much at once; trust a clock that leaped, or is far ahead."
    )


SweepLine = output_of(Line)
SetAside = output_of(NeedsConfirmation)


class Waiting(Answer):
    """What is due by the clock, cannot be undone, and waits until the time is believed."""

    reason: str = Field(description="Why it waits, and what to do about it.")
    believed: str = Field(description="The latest time that the store believes.")
    since: str = Field(description="When the time that is not believed was first seen, by its own clock.")
    records: int
    lines: list[SweepLine]  # type: ignore[valid-type]


class SweepReport(OpenAnswer):
    """What a sweep did."""

    dry_run: bool
    counts: dict[str, int]
    bytes_before: int = Field(description="What the archived memories took in the store.")
    bytes_after: int = Field(description="What they take now.")


class SweepPlan(Answer):
    """What a sweep would do. Nothing was changed."""

    dry_run: bool
    at: str
    digest: str = Field(description="Names exactly this plan: a sweep with it carries out this or nothing.")
    counts: dict[str, int] = Field(description="How many memories would be archived, recycled, deleted.")
    bytes: int
    lines: list[SweepLine]  # type: ignore[valid-type]
    set_aside: list[SetAside]  # type: ignore[valid-type]
    held: int = Field(description="How many more are due, and kept by holds.")
    waiting: Waiting | None = Field(description="What waits while the clock is far ahead of what the store has seen.")
    samples: list[Metadata]


@sweeps.add("POST /sweeps/plan", READ, TENANT, SweepPlan, tool="sweep_preview", is_long=True)
def plan_sweep(holdfast: Holdfast, asked: PlanSweep, progress: Callable[[int], None] = lambda _count: None) -> Any:
    """Say what a sweep would do in the whole tenant, now or at a moment to come. Changes nothing.

    Use it to answer what will be forgotten, and when. The `digest` of the answer carries out exactly that plan with
    `POST /v1/sweeps`.
    """
    if asked.at is not None and asked.days_ahead is not None:
        raise InvalidInputError("give at or days_ahead, not both")
    ahead = None if asked.days_ahead is None else timedelta(days=asked.days_ahead)
    at = asked.at if ahead is None else (holdfast.services.clock() + ahead).isoformat()
    plan = holdfast.sweep(dry_run=True, at=at, confirm=asked.confirm, progress=progress)
    assert isinstance(plan, Plan)  # noqa: S101 - a dry run gives one
    return plan.to_dict(asked.samples)


class ForecastSweeps(Input):
    """How far to look ahead."""

    model_config = example({"days": 120})

    days: int = Field(120, ge=1, le=MOST_DAYS, description="So many days.")
    confirm: bool = Field(False, description="Those too who would lose much at once.")


@sweeps.add("POST /sweeps/forecast", READ, TENANT)
def forecast_sweeps(holdfast: Holdfast, asked: ForecastSweeps, progress: Callable[[int], None]) -> ForecastResult:
    """Say what the rules will do in the whole tenant, day by day. Changes nothing.

    Each day has the figures that `POST /v1/sweeps/plan` has for that moment, and what is new since the day before. Who
    would lose much at once is set aside, and named.
    """
    return holdfast.forecast(asked.days, confirm=asked.confirm, progress=progress)


@sweeps.add("POST /sweeps", GOVERN, TENANT, SweepReport, errors=(428,))
def carry_out_sweep(holdfast: Holdfast, asked: RunSweep, progress: Callable[[int], None]) -> Any:
    """Archive, recycle and delete what is due, as the rules say; tell how far it is.

    With the `digest` of a plan, exactly that is done, or nothing (`plan_changed`). Whoever would lose more than a fifth
    of their memories, and more than 1,000, is set aside unless `confirm` is given. While the clock is far ahead of what
    the store has seen, what cannot be undone waits (`waiting`), unless `confirm` is given: that believes the time. If
    the connection is closed, the sweep ends after the batch that it is at; the next one does the rest. With an
    `Idempotency-Key` it goes on to its end, and the answer comes whole.
    """
    report = holdfast.sweep(digest=asked.digest, confirm=asked.confirm, progress=progress)
    assert isinstance(report, Report)  # noqa: S101 - it is no dry run
    return report.to_dict()


@sweeps.add("GET /overview", READ, TENANT)
def get_overview(holdfast: Holdfast, _asked: Nothing) -> OverviewResult:
    """Read the tenant at a glance: what is kept, what is overdue and comes next, and what happened in the last 30 days.

    It comes from counters and indexes. What is due is counted whatever holds keep; `POST /v1/sweeps/plan` says exactly
    what a sweep would do.
    """
    return holdfast.overview()


# --- the recycle bin --------------------------------------------------------------------------------------------------


BinType = StrEnum("BinType", "MEMORY SESSION MESSAGE AGENT TOOL")


class ListRecycled(Paged):
    """Which things in the bin to list."""

    type: BinType = Field(BinType.MEMORY, strict=False, description="Things of one type are listed at a time.")
    user_id: MaybeUser = None


class RestoreRecycled(Input):
    """What is to come back: a memory, a session, an agent, a tool, a bundle, or all that a user has in the bin."""

    model_config = example({"memory_id": MEMORY_ID, "user_id": "alice"})

    memory_id: Id | None = Field(None, description="This memory.")
    session_id: Id | None = Field(None, description="This session.")
    agent_id: Id | None = Field(None, description="This agent, or the agent of the session.")
    tool_id: Id | None = Field(None, description="This tool.")
    user_id: Id | None = Field(None, description="Whose; all that the user has in the bin, if nothing else is named.")
    bundle: Id | None = Field(None, description="What went together, such as `source:import:crm`.")


class RestoredCount(TypedDict):
    """How many things came back."""

    restored: int


class PurgeRecycled(Input):
    """Whether the clock was looked at."""

    model_config = example({"confirm": False})

    confirm: ConfirmClock = False


class Purged(TypedDict):
    """How many were deleted for good, by kind."""

    purged: dict[str, int]


@recycle.add("GET /recycle", READ, WHOSE, PageOf[BinResult])
def list_recycled(holdfast: Holdfast, asked: ListRecycled) -> Any:
    """List what is in the recycle bin, of a user or of everyone, with the days each has left.

    A page may have fewer things than `limit` though others follow; `next_cursor` tells.
    """
    kinds = (int, int) if asked.type in (BinType.MEMORY, BinType.MESSAGE) else (int, str)
    place = asked.read_place(*kinds)
    after: Any = None if place is None else tuple(place)
    items, following = holdfast.recycle.page(asked.type.value, user_id=asked.user_id, after=after, limit=asked.limit)
    return {"items": items, "next_cursor": None if following is None else asked.make_cursor(following)}


@recycle.add("POST /recycle/restore", WRITE, WHOSE, errors=(404,))
def restore_recycled(holdfast: Holdfast, asked: RestoreRecycled) -> RestoredCount:
    """Bring something back from the recycle bin, exactly as it was."""
    return {"restored": holdfast.recycle.restore(**asked.to_arguments())}


@recycle.add("POST /recycle/purge", GOVERN, TENANT, errors=(428,), is_long=True)
def purge_recycled(holdfast: Holdfast, asked: PurgeRecycled) -> Purged:
    """Delete for good what has been in the bin for its time; nothing else, whoever asks."""
    return {"purged": holdfast.recycle.purge(confirm=asked.confirm)}


# --- holds ------------------------------------------------------------------------------------------------------------


class HoldTarget(Input):
    """What is to be kept. Where several parts are named, what all of them name is kept."""

    model_config = example({"user_id": "alice"})

    user_id: Id | None = Field(None, description="What is this user's.")
    agent_id: Id | None = Field(None, description="What is this agent's.")
    session_id: Id | None = Field(None, description="What belongs to this session.")
    memory_id: Id | None = Field(None, description="This memory or tool alone; with `user_id`, this message.")
    tag: Id | None = Field(None, description="`key=value`: a field of the metadata; any other text: one of its `tags`.")


class NewHold(HoldTarget):
    """What is to be kept, and why. Where several parts are named, what all of them name is kept."""

    model_config = example({"user_id": "alice", "reason": "Case 4711"})

    reason: str = Field(min_length=1, max_length=2_000, description="Why, for whoever asks later.")


class OneHold(Input):
    """One hold."""

    hold_id: Id = Field(description="The hold's id.")


class ListHolds(Paged):
    """Which holds to list."""

    released: bool = Field(False, description="Those that were released too.")
    count: bool = Field(False, description="Say how much each covers.")


class AddedHold(output_of(HoldResult)):  # type: ignore[misc]
    """A hold, and how much it covers."""

    covers: dict[str, int] | None = Field(
        description="How much it covers now, of a user or of one memory; null where that would have to be counted."
    )


@holds.add("POST /holds", GOVERN, WHOSE, AddedHold, status=201, errors=(404,))
def add_hold(holdfast: Holdfast, asked: NewHold) -> Any:
    """Let nothing of a user, an agent, a session, a tag, or one memory be removed until the hold is released."""
    service = holdfast.holds
    hold = service.add(**asked.to_arguments())
    return {**hold_to_dict(hold), "covers": service.covered(hold)}


@holds.add("GET /holds", READ, TENANT, PageOf[ListedHoldResult])
def list_holds(holdfast: Holdfast, asked: ListHolds) -> Any:
    """List the holds that are in force, oldest first. With `count` each says how much it covers, as far as that can be
    told at once.
    """
    service = holdfast.holds
    found = {hold.id: hold for hold in service.list(released=asked.released)}
    page = asked.cut_page([*map(hold_to_dict, found.values())], itemgetter("hold_id"))
    shown = [found[one["hold_id"]] for one in page["items"]]
    covers = service.count_some(shown) if asked.count else [None] * len(shown)
    return {**page, "items": [{**one, "covers": cover} for one, cover in zip(page["items"], covers, strict=True)]}


@holds.add("POST /holds:preview", READ, WHOSE, errors=(404,))
def preview_hold(holdfast: Holdfast, asked: HoldTarget) -> HoldCoverResult:
    """Say how much a hold would cover now, as far as that can be told at once. Changes nothing."""
    return holdfast.holds.preview(**asked.to_arguments())


@holds.add("GET /holds/{hold_id}", READ, TENANT, AddedHold, errors=(404,), is_long=True)
def get_hold(holdfast: Holdfast, asked: OneHold) -> Any:
    """Read a hold, and count how much it covers now."""
    covers = holdfast.holds.count(asked.hold_id)
    return {**hold_to_dict(holdfast.holds.get(asked.hold_id)), "covers": covers}


@holds.add("POST /holds/{hold_id}/release", GOVERN, TENANT, HoldResult, errors=(404,))
def release_hold(holdfast: Holdfast, asked: OneHold) -> Any:
    """Release a hold: what is past its time goes with the next sweep."""
    return hold_to_dict(holdfast.holds.release(asked.hold_id))
