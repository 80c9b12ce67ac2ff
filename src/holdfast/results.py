"""What the verbs return, key by key, so that an editor completes it and a type checker checks it.

The same thing has the same name everywhere: ``memory_id``, ``memory_type``, ``created_at``, ``updated_at``, ``score``.
Moments are texts in ISO 8601, UTC. At run time each of these is an ordinary ``dict``.

There is no ``from __future__ import annotations`` here: with it, Python does not know which keys are not required.
"""

from typing import Any, NotRequired, TypedDict

Metadata = dict[str, Any]


class WriteResult(TypedDict):
    """What every way to add returns."""

    operation: str
    memory_type: str
    latency_ms: float
    quota_remaining: int | None
    """``None``: there is no limit."""
    pruned: NotRequired[int]
    """How many old memories went to the recycle bin to make room."""
    dropped: NotRequired[int]
    """How many messages left the window of short-term memory."""
    existing: NotRequired[int]
    """How many of several contents were there already, and were not added again."""
    kept_out: NotRequired[int]
    """How many of several contents were not added because their texts are kept out."""


class SaidResult(TypedDict):
    """What a memory says."""

    memory_id: str
    content: str
    created_at: str


class SimilarResult(SaidResult):
    """A memory that is close to one that was added."""

    score: float
    """From 0.5 to 1; higher is closer."""


class AddResult(WriteResult):
    """What ``add`` and ``add_with_auto_prune`` return."""

    memory_id: str
    version: NotRequired[int]
    """Of a memory that was corrected: the version that is current now."""
    indexed_chars: NotRequired[int]
    """How much of a long text is indexed."""
    similar: NotRequired[list[SimilarResult]]
    """The closest memories of the kind, if they were asked for: perhaps one of them is to be corrected instead."""


class RememberResult(AddResult):
    """A fact that ``remember`` added, or found to be known."""

    content: str
    derived_from: list[str]


class AddManyResult(WriteResult):
    """What ``add_many`` returns."""

    memory_ids: list[str]


class _Memory(TypedDict):
    """A memory, but for what it goes by."""

    memory_id: str
    content: str
    memory_type: str
    metadata: Metadata
    agent_id: str
    session_id: str | None
    created_at: str
    updated_at: str
    is_archived: bool
    source: str
    derived_from: list[str]
    version: int
    """Counts the changes of what it says; ``structured.put(if_version=…)`` takes it."""


class MemoryResult(_Memory):
    """A memory."""

    key: NotRequired[str]
    """What it goes by, where it was added with a key."""


class VersionResult(TypedDict):
    """What a memory says, or said before it was changed."""

    version: int
    content: str
    metadata: Metadata
    source: str
    derived_from: list[str]
    started_at: str
    ended_at: str | None
    """``None``: it is the one that is current."""
    ended_by: str | None
    reason: str | None
    """Why it ended, where that was said."""


class RetrieveResult(MemoryResult):
    """A memory that bears on a query."""

    score: float
    """From 0 to 1; higher is better."""
    explanation: NotRequired[dict[str, float]]
    """The parts of the score, where they were asked for."""
    count: NotRequired[int]
    """How many of the memories that bear on the query have this text, where that is more than one."""


class GetResult(MemoryResult):
    """A memory, and of an episode what it consists of."""

    task: NotRequired[str | None]
    messages: NotRequired[list[dict[str, Any]]]
    steps: NotRequired[list[dict[str, Any]]]
    tool_calls: NotRequired[list[dict[str, Any]]]


class LeftOutResult(TypedDict):
    """A memory that bears on a query and is not in a block for a prompt."""

    memory_id: str
    memory_type: str
    reason: str


class ContextResult(TypedDict):
    """One block for a prompt."""

    text: str
    """Empty, where there is nothing to say."""
    memories: list[MemoryResult]
    """Those that are in it, in their order. A line shows the last eight characters of the id of its memory."""
    tokens: int
    left_out: list[LeftOutResult]
    """What bears on the query and is not in it, and why."""


class DocumentResult(_Memory):
    """A document of a collection."""

    collection: str
    key: str | None
    document: dict[str, Any] | None
    expires_at: str | None
    """When its time is over; ``None``: at no time that is known."""


class CollectionResult(TypedDict):
    """A collection, and how many documents are in it."""

    collection: str
    documents: int


class RestoreResult(MemoryResult):
    """A memory that came back from the recycle bin."""

    restored_with: NotRequired[list[str]]
    """What came back with it, because it was derived from it."""


class DeleteResult(TypedDict):
    """What ``delete`` returns."""

    memory_id: str
    operation: str
    """``recycle``, or ``delete`` where it is gone for good."""
    memory_type: str
    deleted_with: NotRequired[list[str]]
    """What went with it: what was derived from it, and memories of the same text, where that was asked for."""
    kept_out: NotRequired[bool]
    """Whether its text does not come back."""
    derived: NotRequired[list[str]]
    """What stays, though it was derived from it."""


class ConflictResult(TypedDict):
    """Two memories that are about the same thing and differ."""

    older: SaidResult
    newer: SaidResult
    score: float
    """How close they are, from 0.5 to 1."""
    why: str
    """How they differ, in a sentence."""


class KeptOutResult(TypedDict):
    """A memory that was deleted, and whose text is not to come back."""

    memory_id: str
    kept_out_at: str
    author: str
    """Who asked for it, as the audit chain names them."""


class _LikeQuery(TypedDict):
    episode_id: str
    date: str
    score: float


class EpisodeResult(_LikeQuery):
    """An episode that is like a query."""

    task: str | None
    summary: str
    is_archived: bool


class EpisodeMessageResult(_LikeQuery):
    """A message of an episode that is like a query."""

    position: int
    role: str | None
    content: Any


class FactResult(TypedDict):
    """What holds, or held, of an entity: an attribute has a value, a relation has two ends."""

    fact_id: str
    name: str
    since: str
    until: str | None
    recorded_at: str
    value: NotRequired[Any]
    source: NotRequired[str | None]
    target: NotRequired[str | None]
    source_id: NotRequired[str]
    target_id: NotRequired[str]


class _Entity(TypedDict):
    entity_id: str
    name: str | None
    entity_type: str | None


class EntityResult(_Entity):
    """What is known of an entity."""

    description: str | None
    attributes: dict[str, Any]
    relations: list[FactResult]
    metadata: Metadata


class NeighbourResult(_Entity):
    """An entity that relations lead to."""

    relation: str
    direction: str
    distance: int
    since: str


class MessageResult(TypedDict):
    """A message of a conversation."""

    message_id: str
    role: str
    content: str
    timestamp: str
    metadata: Metadata
    external_id: NotRequired[str]
    """The caller's own id of it, if one was given."""


class SessionResult(TypedDict):
    """A conversation."""

    agent_id: str
    session_id: str | None
    summary: str
    created_at: str
    updated_on: str
    messages: int


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
    bytes: int
    held: int
    """How many more it would have made due at once, did no hold keep them."""


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


class HoldResult(_Selection):
    """A hold."""

    hold_id: str
    reason: str
    author: str
    created_at: str
    released_at: str | None
    released_by: str | None
    tag: NotRequired[str]


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


class ExplainResult(TypedDict):
    """What ``explain`` returns: of a memory that is there, in the recycle bin, or gone."""

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
    derived_from: NotRequired[list[str]]
    derived: NotRequired[list[str]]
    age_counts_from: NotRequired[str]
    rules: NotRequired[LifeResult]
    kept_until: NotRequired[str | None]
    history: NotRequired[list[dict[str, Any]]]
    removed_at: NotRequired[str | None]
    removed_because: NotRequired[str | None]
    days_left: NotRequired[int]
    deleted_at: NotRequired[str]
    reason: NotRequired[str | None]
    cause: NotRequired[str | None]
    rule: NotRequired[str | None]


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


class RetentionPolicyResult(TypedDict):
    """The policy of a domain."""

    older_than_days: int
    source_types: list[str]
    keep_session_ids: list[str]
    keep_context_ids: list[int]
    limit: int
    vacuum: bool
    auto_gc: bool


class DomainsResult(TypedDict):
    """The policies of all domains."""

    version: int
    """The version of the format that they are kept in."""
    updated_at: str | None
    """When one of them was last changed; `null`: never."""
    memory: RetentionPolicyResult
    rag: RetentionPolicyResult


class DomainResult(TypedDict):
    """A policy that was changed."""

    success: bool
    domain: str
    policy: RetentionPolicyResult
    updated_at: str | None


class ProtectedResource(TypedDict):
    """A resource that stays, and why."""

    resource: Metadata
    reason: str


class SortedResourcesResult(TypedDict):
    """What may go by a policy, and what may not."""

    success: bool
    domain: str
    cutoff_date: str
    policy_applied: RetentionPolicyResult
    eligible: list[Metadata]
    protected: list[ProtectedResource]
    counts: dict[str, int]


class DomainArchive(TypedDict):
    """What is said of every archive of a domain."""

    domain: str
    archive_id: str
    manifest_path: str
    """A path on the server's machine, or the URL of an object in a bucket."""
    resource_count: int
    total_size_bytes: int


class NewArchiveResult(DomainArchive):
    """An archive that was written."""

    success: bool


class ArchiveResult(DomainArchive):
    """An archive, without what is in it."""

    created_at: str
    note: str | None


class WholeArchiveResult(TypedDict):
    """An archive: its manifest and its resources, each as it was written."""

    manifest: Metadata
    resources: list[Metadata]
