"""What the sorting of a caller's resources returns.

There is no ``from __future__ import annotations`` here: with it, Python does not know which keys are not required.
"""

from typing import TypedDict

from holdfast.results.memory import Metadata


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
