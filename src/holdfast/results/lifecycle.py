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
