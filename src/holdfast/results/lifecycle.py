"""What rules, holds, the bin, erasure and the schedule return.

There is no ``from __future__ import annotations`` here: with it, Python does not know which keys are not required.
"""

from typing import Any, NotRequired, TypedDict

from holdfast.results.memory import MemoryResult, Metadata, VersionResult


class PartResult(TypedDict):
    """What belongs to sessions and lies outside of the store."""

    name: str
    part_type: str
    """Of which kind it is, as `parts.add` was told."""
    url: str
    """Where it lies, without a password."""
    options: dict[str, Any]
    unowned_as: str | None
    """The user whose is what has no owner that can be read; `null`: it is left alone."""


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


class AuditResult(TypedDict):
    """An entry of the audit chain."""

    at: str
    actor: str
    action: str
    item: str | None
    detail: dict[str, Any]
    chain: str
    seq: int


class AuditEntryResult(AuditResult):
    """An entry of the audit chain, of a list of them."""

    items: int
    """How many memories it is about; ``item`` is the one that was asked for, or the first."""


class SealResult(TypedDict):
    """A checkpoint of the audit chain."""

    checkpoint: int
    at: str
    chains: int
    entries: int
    hash: str


class ForgetResult(TypedDict):
    """What ``forget_source`` returns."""

    source: str
    memories: int
    derived: int
    held: int
    users: int
    by_kind: dict[str, int]
    bundle: str
    purge_at: str
    dry_run: bool


class JobResult(TypedDict):
    """A scheduled job."""

    name: str
    cron: str
    timezone: str
    enabled: bool
    sweeps: str
    meaning: str
    last_slot: str | None
    last_started: str | None
    last_finished: str | None
    last_result: dict[str, Any] | None
    error: str | None
    next_run: str | None
    running: bool
    overdue: bool
    failed: bool
    missed: int
    waiting_since: str | None
    clock_set_back: bool


class RunResult(TypedDict):
    """A run of a job that did something, or failed."""

    name: str
    slot: str | None
    """The moment that it was due at; ``None``: it was run by hand."""
    started_at: str
    finished_at: str
    result: dict[str, Any] | None
    error: str | None


class _Registered(TypedDict, total=False):
    agent_id: str
    tool_id: str
    purge_at: str


class RegistryResult(_Registered):
    """An agent or a tool that was made known."""

    description: str
    metadata: Metadata
    created_at: str
    updated_at: str
    state: NotRequired[str]
    deleted_at: NotRequired[str]


class RegistryMoveResult(_Registered, total=False):
    """What went to the recycle bin with an agent or a tool, or came back with it."""

    persona: int
    episodic: int
    sessions: int
    messages: int
    held: int
    restore_error: dict[str, int]


class BinResult(TypedDict):
    """Something in the recycle bin: a memory, a session, a message, an agent or a tool."""

    type: str
    deleted_at: str | None
    reason: str | None
    purge_at: str
    days_left: int
    id: NotRequired[str]
    memory_id: NotRequired[str]
    memory_type: NotRequired[str]
    user_id: NotRequired[str]
    agent_id: NotRequired[str]
    tool_id: NotRequired[str]
    session_id: NotRequired[str | None]
    messages: NotRequired[int]
    content: NotRequired[str]
    bundle: NotRequired[str | None]


class _Selection(TypedDict, total=False):
    """What a rule or a hold names."""

    user_id: str
    agent_id: str
    session_id: str
    memory_id: str


class RuleResult(_Selection):
    """A rule, or a default (which has no id)."""

    rule_id: str | None
    memory_type: str
    level: str
    version: int
    source_types: NotRequired[list[str]]
    keep_session_ids: NotRequired[list[str]]
    keep_context_ids: NotRequired[list[int]]
    archive_after_days: NotRequired[float | str]
    delete_after_days: NotRequired[float | str]
    keep_days: NotRequired[float | str]
    versions: NotRequired[int]
    versions_days: NotRequired[float | str]
    updated_at: NotRequired[str]


class RuleChangeResult(RuleResult):
    """A rule that was set or removed, and what that made due at once."""

    newly_due: dict[str, int]
    """By action."""
    versions_due: dict[str, int]
    """How many ended ``versions``, and of how many ``memories``."""
    bytes: int
    held: int
    """How many more it would have made due at once, did no hold keep them."""
    before: RuleResult | None
    """The rule that was there before."""


class QuotaLimitsResult(TypedDict):
    """How much is allowed: a number, ``unlimited``, or ``default``."""

    max_memories: int | str
    max_bytes: int | str


class _Life(TypedDict):
    archive_after_days: float | None
    delete_after_days: float | None
    keep_days: float | str | None
    keep_by: str | None
    versions: int | None
    """How many ended versions of a memory are kept."""
    versions_days: float | str | None
    versions_by: str | None


class LifeResult(_Life):
    """What rules come to: days, or ``None`` for never."""

    archive_by: str
    delete_by: str


class PolicyResult(LifeResult):
    """How long a kind lives."""

    memory_type: str


class HoldCoverResult(TypedDict):
    """How much a hold covers now."""

    counts: dict[str, int]
    """Memories, sessions, messages or tools."""
    is_whole: bool
    """Whether these are all; else at least so many."""


class HoldResult(_Selection):
    """A hold."""

    hold_id: str
    reason: str
    author: str
    created_at: str
    released_at: str | None
    released_by: str | None
    tag: NotRequired[str]


class ListedHoldResult(HoldResult):
    """A hold in a list."""

    covers: HoldCoverResult | None
    """How much it covers now, where that was asked for."""


class KindRulesResult(_Life):
    """How long a kind is kept, in words and numbers; ``None`` is never, or no limit."""

    memory_type: str
    rule: str
    archive_by: str | None
    delete_by: str | None
    gone_after_days: float | None
    ttl_seconds: float | None
    max_memories: int | None
    max_bytes: int | None
    quota_remaining: int | None
    exceptions: list[RuleResult]


class RulesResult(TypedDict):
    """What ``rules`` returns."""

    user_id: str
    agent_id: str
    session_id: str | None
    summary: str
    recycle_bin_days: int
    kinds: list[KindRulesResult]
    holds: list[HoldResult]


class NextResult(TypedDict):
    """What happens to a memory next."""

    action: str
    at: str | None
    due: bool
    rule: str | None
    reason: str
    waits_for: NotRequired[str]


class _Explained(TypedDict):
    memory_id: str
    memory_type: str | None
    state: str
    is_visible: bool
    next: NextResult | None
    protected_by: list[HoldResult]
    summary: str
    is_archived: NotRequired[bool]
    created_at: NotRequired[str]
    source: NotRequired[str]
    age_counts_from: NotRequired[str]
    rules: NotRequired[LifeResult]
    kept_until: NotRequired[str | None]
    removed_at: NotRequired[str | None]
    removed_because: NotRequired[str | None]
    days_left: NotRequired[int]
    deleted_at: NotRequired[str]
    reason: NotRequired[str | None]
    cause: NotRequired[str | None]
    rule: NotRequired[str | None]


class ExplainResult(_Explained):
    """What ``explain`` returns: of a memory that is there, in the recycle bin, or gone."""

    derived_from: NotRequired[list[str]]
    derived: NotRequired[list[str]]
    history: NotRequired[list[dict[str, Any]]]


class RelatedResult(TypedDict):
    """A memory that another one was derived from, or that was derived from it."""

    memory_id: str
    memory_type: str | None
    """``None``: it is not a memory, or is gone."""
    state: str | None


class StepResult(TypedDict):
    """Something that happened to a memory."""

    at: str
    action: str
    """`added`, `corrected`, or an action of the audit chain."""
    actor: str
    """Who did it; of `added`, where it came from."""
    reason: str | None
    rule: str | None
    cause: str | None
    detail: dict[str, Any]


class KeptMemoryResult(MemoryResult):
    """A memory in whatever state, with what lies beside its content."""

    bytes: int
    body: dict[str, Any] | None


class LifeStoryResult(_Explained):
    """All that is known of a memory, in whatever state, or of one that is gone."""

    memory: KeptMemoryResult | None
    """``None``: it is gone, or nobody may read it."""
    versions: list[VersionResult]
    """What it said before, oldest first."""
    sources: list[RelatedResult]
    """What it was derived from."""
    derived: list[RelatedResult]
    """What was derived from it."""
    steps: list[StepResult]
    """What happened to it, oldest first."""
    coming: list[NextResult]
    """What its rules do with it from now on, unless a hold keeps it."""


class FoundResult(TypedDict):
    """How much of a user lies in a place."""

    name: str
    found: int


class ErasurePreviewResult(TypedDict):
    """What erasing a user would remove, and what would refuse or delay it."""

    user_id: str
    is_known: bool
    """Whether anything was ever kept of such a user."""
    memories: dict[str, int]
    """By kind, in every state."""
    places: list[FoundResult]
    is_refused: bool
    """Whether holds keep it from being carried out."""
    holds: list[HoldResult]
    """Those that name the user, or cover anything of theirs."""
    waiting_for: list[str]
    """What does not answer just now: the erasure would be pending until it does."""


class CertificateResult(TypedDict):
    """A certificate of an erasure."""

    holdfast_certificate: int
    """The version of its form."""
    id: str
    issued_at: str
    subject: str
    """The pseudonym of the user."""
    ledger: dict[str, Any]
    engine: str
    places: list[dict[str, Any]]
    pending: bool
    audit: dict[str, Any] | None
    remarks: list[str]
    software: str
    key: dict[str, str]
    signature: str


class ExportResult(TypedDict):
    """What ``export_user`` returns: lists of lines, or, of an export that was written to a file, how many they are."""

    user_id: str
    export_date: str
    memories: dict[str, Any]
    """By kind."""
    conversations: Any
    threads: Any
    """What belongs to sessions and lies outside of the store."""
    facts: Any
    collections: Any
    quotas: Any
    rules: Any
    holds: Any
    audit: Any
    incomplete: NotRequired[int]
    """How many memories are not all there."""
    file: NotRequired[str | None]
