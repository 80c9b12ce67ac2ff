"""What figures of a store return: lists, facets, the overview, the forecast.

There is no ``from __future__ import annotations`` here: with it, Python does not know which keys are not required.
"""

from typing import TypedDict


class UserResult(TypedDict):
    """A user of whom something is kept."""

    user_id: str
    memories: int
    kinds: dict[str, int]
    sessions: int
    last_active_at: str


class BrowseResult(TypedDict):
    """A memory of a user, in whatever state, as a list shows it."""

    memory_id: str
    memory_type: str
    state: str
    is_visible: bool
    """Whether recall may find it: it is live, within its time, and its agent is there."""
    is_archived: bool
    is_held: bool
    content: str | None
    """The beginning of it; ``None``: nobody may read it."""
    is_cut: bool
    """Whether there is more of the content."""
    key: str | None
    agent_id: str
    session_id: str | None
    source: str
    version: int
    bytes: int
    created_at: str
    updated_at: str
    archive_at: str | None
    """When it is archived by its rules; ``None``: never, or it is."""
    expires_at: str | None
    """When its time is over by its rules; ``None``: never, or it is in the recycle bin."""
    moved_at: str | None
    """When it came into its state, where it has moved."""
    reason: str | None
    """Why it did."""
    purge_at: str | None
    """Until when it can be restored, where it is in the recycle bin."""


class FacetResult(TypedDict):
    """How many memories of a user there are, by what they are; the most first."""

    memories: int
    """In every state."""
    bytes: int
    is_whole: bool
    """Whether all were counted; else the newest 10,000 of each kind."""
    kinds: dict[str, int]
    states: dict[str, int]
    agents: dict[str, int]
    """The 100 with the most; so with sessions and sources."""
    sessions: dict[str, int]
    sources: dict[str, int]


class DayResult(TypedDict):
    """What happened to memories, and how many users were erased, on a day (UTC)."""

    day: str
    added: int
    archived: int
    recycled: int
    restored: int
    deleted: int
    erased: int


class KeptResult(TypedDict):
    """How much there is of a kind in a state."""

    memory_type: str
    state: str
    memories: int
    bytes: int


class DueResult(TypedDict):
    """What is due at a moment, whatever holds keep, and whoever would be set aside."""

    counts: dict[str, int]
    """By action."""
    kinds: dict[str, int]
    is_whole: bool
    """Whether all of it was counted; else there are more than 50,000 for an action."""
    since: str | None
    """When the first of it was due."""


class BinCountResult(TypedDict):
    """What is in the recycle bin."""

    memories: int
    bytes: int
    first_leaves_at: str | None
    """Until when the first can be restored."""
    last_leaves_at: str | None


class HoldCountResult(TypedDict):
    """The holds that are in force."""

    count: int
    users: int
    """On how many users there is a hold on all they have."""
    memories: int | None
    """How many live memories those have; ``None``: they are too many to be counted here."""
    others: int
    """How many holds are on something else: an agent, a session, a tag, one memory."""


class LastBackupResult(TypedDict):
    """The last backup, and the last one of which a trial restore was the same as what it holds."""

    created_at: str
    """Of the last one."""
    good: bool | None
    """Whether a trial restore of the last one was the same; ``None``: there was none yet."""
    tried_at: str | None
    problem: str | None
    last_good_at: str | None
    """Of the last good one."""
    last_good_tried_at: str | None


class SpanResult(TypedDict):
    """How long a step took, from the request on."""

    count: int
    p50_seconds: float | None
    p99_seconds: float | None


class ErasureTimesResult(TypedDict):
    """How long the erasures of the last 30 days took, against the objective."""

    objective_hours: float
    count: int
    pending: int
    """Those that are not certified yet."""
    late: int
    """Those that took longer than the objective."""
    out_of_recall: SpanResult
    gone: SpanResult
    """From every place."""
    certified: SpanResult


class OverviewResult(TypedDict):
    """What ``overview`` returns."""

    at: str
    kept: list[KeptResult]
    users: int
    sessions: dict[str, int]
    """By state."""
    overdue: DueResult
    """What is due now."""
    next_sweep: DueResult
    """What is due when the daily job runs next."""
    next_sweep_at: str | None
    bin: BinCountResult
    holds: HoldCountResult
    backup: LastBackupResult | None
    erasures: ErasureTimesResult
    days: list[DayResult]
    """The last 30, the oldest first."""


class LineResult(TypedDict):
    """So many of a kind are due an action for a reason."""

    memory_type: str
    action: str
    reason: str
    records: int
    bytes: int


class SetAsideResult(TypedDict):
    """Someone who would lose so much at once that a person is to look at it first."""

    user_id: str | None
    agent_id: str | None
    due: int
    of: int


class DayForecastResult(TypedDict):
    """What a sweep would do at a moment to come, if there were none before."""

    at: str
    counts: dict[str, int]
    """By action: all that is due by then."""
    new: dict[str, int]
    """By action: what is more than on the day before."""
    bytes: int
    lines: list[LineResult]
    set_aside: list[SetAsideResult]
    held: int
    """How many more are due, and kept by holds."""


class ForecastResult(TypedDict):
    """What ``forecast`` returns."""

    days: list[DayForecastResult]
    """Now, and each of the days to come."""


class LatencyResult(TypedDict):
    """How long an operation took in this process."""

    operation: str
    memory_type: str
    count: int
    p50_ms: float
    p95_ms: float
    max_ms: float
    missed: int
