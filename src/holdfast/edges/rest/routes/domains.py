"""``/v1/domains``: retention policies for a caller's own resources. Nothing here deletes anything."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from fastapi import Path
from pydantic import Field
from starlette.responses import Response

from holdfast.core.access import Right
from holdfast.core.domains import DEFAULT_POLICY, DOMAINS, GC_FIELDS
from holdfast.edges.rest.guard import Asking
from holdfast.edges.rest.models import MEMORY_ID, MOMENT, Answer, Metadata, Request, example
from holdfast.edges.rest.operations import Routes, answer
from holdfast.edges.rest.pagination import After, Limit, Page, page_of
from holdfast.edges.rest.rights import Reach

MAX_RESOURCES = 20_000
routes = Routes("domains", "Policies for resources that are kept elsewhere, in the domains memory and rag.")

Domain = StrEnum("Domain", {name.upper(): name for name in DOMAINS})  # type: ignore[misc]  # the domains there are
InDomain = Annotated[Domain, Path(description="The domain.")]
ArchiveId = Annotated[str, Path(max_length=64, description="The archive's id.", examples=[MEMORY_ID])]
_POLICY = {name: list(value) if isinstance(value, tuple) else value for name, value in DEFAULT_POLICY.as_dict().items()}
_RESOURCE = {"id": 1, "source_type": "context", "created_at": "2024-05-01T08:00:00+00:00"}


class PolicyChange(Request):
    """Fields of a policy that are to change; numbers are brought into their bounds."""

    model_config = example({"config": {"older_than_days": 90, "keep_session_ids": ["s1"]}})

    config: Metadata = Field(description="Fields of the policy, as reading it shows them; the others stay.")
    confirm: bool = Field(default=False, description="You have looked at what it comes to.")


class Resources(Request):
    """Resources to be looked at."""

    model_config = example({"resources": [_RESOURCE], "options": {"older_than_days": 7}})

    resources: list[Metadata] = Field(max_length=MAX_RESOURCES, description="Each an object, as you know it.")
    options: Metadata | None = Field(default=None, description="What is to differ this once.")


class Policy(Answer):
    """A policy."""

    model_config = example(_POLICY)

    older_than_days: int
    source_types: list[str]
    keep_session_ids: list[str]
    keep_context_ids: list[int]
    limit: int
    vacuum: bool
    auto_gc: bool


class Policies(Answer):
    """The policies of all domains."""

    model_config = example({"version": 1, "updated_at": MOMENT, **dict.fromkeys(DOMAINS, _POLICY)})

    version: int = Field(description="The version of the format that they are kept in.")
    updated_at: str | None = Field(description="When one of them was last changed; `null`: never.")
    memory: Policy
    rag: Policy


class SetPolicy(Answer):
    """A policy that was changed."""

    model_config = example({"success": True, "domain": "rag", "policy": _POLICY, "updated_at": MOMENT})

    success: bool
    domain: str
    policy: Policy
    updated_at: str | None


class Protected(Answer):
    """A resource that stays, and why."""

    resource: Metadata
    reason: str


class Sorted(Answer):
    """What may go by a policy, and what may not."""

    model_config = example(
        {
            "success": True,
            "domain": "memory",
            "cutoff_date": MOMENT,
            "policy_applied": _POLICY,
            "eligible": [_RESOURCE],
            "protected": [],
            "counts": {"eligible": 1, "protected": 0, "total": 1},
        }
    )

    success: bool
    domain: str
    cutoff_date: str
    policy_applied: Policy
    eligible: list[Metadata]
    protected: list[Protected]
    counts: dict[str, int]


class CollectionArguments(Request):
    """What a garbage collection of your own was called with."""

    model_config = example({"raw_args": {"limit": 100}})

    raw_args: Metadata | None = Field(default=None, description="The arguments as they were given.")
    validated_args: Metadata | None = Field(
        default=None, description="What your own checks made of them, and whatever else is to be handed on."
    )


class CollectionParameters(Answer):
    """The parameters of a garbage collection, a value for each; what else was validated is there as it was given."""

    model_config = example({name: value for name, value in _POLICY.items() if name in GC_FIELDS}, closed=False)

    older_than_days: int
    source_types: list[str]
    keep_session_ids: list[str]
    keep_context_ids: list[int]
    limit: int
    vacuum: bool


class Archived(Answer):
    """An archive that was written."""

    model_config = example(
        {
            "success": True,
            "domain": "memory",
            "archive_id": MEMORY_ID,
            "manifest_path": f"/home/holdfast/archive/archive/5b/5b…/domains/memory/{MEMORY_ID}/manifest.json",
            "resource_count": 1,
            "total_size_bytes": 82,
        }
    )

    success: bool
    domain: str
    archive_id: str
    manifest_path: str = Field(description="A path on the server's machine, or the URL of an object in a bucket.")
    resource_count: int
    total_size_bytes: int


class Archive(Answer):
    """An archive, without what is in it."""

    model_config = example(
        {
            "archive_id": MEMORY_ID,
            "domain": "memory",
            "created_at": MOMENT,
            "note": None,
            "resource_count": 1,
            "total_size_bytes": 82,
            "manifest_path": f"/home/holdfast/archive/archive/5b/5b…/domains/memory/{MEMORY_ID}/manifest.json",
        }
    )

    archive_id: str
    domain: str
    created_at: str
    note: str | None
    resource_count: int
    total_size_bytes: int
    manifest_path: str


class ArchivePage(Page):
    """Some archives, the oldest first."""

    items: list[Archive]


class WholeArchive(Answer):
    """An archive: its manifest and its resources, each as it was written."""

    model_config = example({"manifest": {"archive_id": MEMORY_ID, "resource_count": 1}, "resources": [_RESOURCE]})

    manifest: Metadata
    resources: list[Metadata]


@routes.add("GET", "/domains", Right.READ, Reach.TENANT, answer=Policies)
def list_domains(caller: Asking) -> Response:
    """Read the policies of all domains."""
    return answer(caller.tenant().domains.list())


@routes.add("GET", "/domains/{domain:id}", Right.READ, Reach.TENANT, answer=Policy)
def get_domain(caller: Asking, domain: InDomain) -> Response:
    """Read the policy of a domain; the default one, until another is configured."""
    return answer(caller.tenant().domains.get(domain.value))


@routes.add("PATCH", "/domains/{domain:id}", Right.GOVERN, Reach.TENANT, answer=SetPolicy, errors=(409, 428))
def configure_domain(caller: Asking, domain: InDomain, change: PolicyChange) -> Response:
    """Change a domain's policy: what is given; the rest, and the other domain, stay as they are.

    What makes memories of Holdfast's own go earlier (`auto_gc`) needs `confirm`.
    """
    done = caller.tenant().domains.configure(domain.value, change.config, confirm=change.confirm, author=caller.name)
    return answer(done)


@routes.add("POST", "/domains/{domain:id}/apply", Right.READ, Reach.TENANT, answer=Sorted)
def apply_domain(caller: Asking, domain: InDomain, given: Resources) -> Response:
    """Sort resources into those that may go by the policy and those that are protected, with the reason.

    `options` may name fields of the policy that are to differ this once. Deletes nothing.
    """
    return answer(caller.tenant().domains.apply(domain.value, given.resources, given.options))


@routes.add("POST", "/domains/{domain:id}/gc-params", Right.READ, Reach.TENANT, answer=CollectionParameters)
def resolve_gc_params(caller: Asking, domain: InDomain, given: CollectionArguments) -> Response:
    """Say with which parameters a garbage collection runs: what its caller gave wins, the policy has the rest."""
    return answer(caller.tenant().domains.resolve_gc_params(domain.value, given.raw_args, given.validated_args))


@routes.add(
    "POST", "/domains/{domain:id}/archives", Right.WRITE, Reach.TENANT, answer=Archived, status=201, errors=(409,)
)
def archive_resources(caller: Asking, domain: InDomain, given: Resources) -> Response:
    """Write resources to cold storage with a manifest of checksums, and read them back. Deletes nothing.

    `options` may have a `note` for the manifest.
    """
    return answer(caller.tenant().domains.archive(domain.value, given.resources, given.options), 201)


@routes.add("GET", "/domains/{domain:id}/archives", Right.READ, Reach.TENANT, answer=ArchivePage)
def list_archives(caller: Asking, domain: InDomain, limit: Limit = 100, cursor: After = None) -> Response:
    """List the archives of a domain, the oldest first."""
    found = list(caller.tenant().domains.archives(domain.value))
    asked = (caller.gate.tenant_id, domain.value)
    return answer(page_of(found, limit, cursor, listing="archives", asked=asked, key=lambda one: one["archive_id"]))


@routes.add(
    "GET", "/domains/{domain:id}/archives/{archive_id:id}", Right.READ, Reach.TENANT, answer=WholeArchive, errors=(404,)
)
def read_archive(caller: Asking, domain: InDomain, archive_id: ArchiveId) -> Response:
    """Read an archive: its manifest and its resources, each compared with its checksum."""
    return answer(caller.tenant().domains.read_archive(domain.value, archive_id))
