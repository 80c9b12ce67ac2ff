"""Operations on domains: retention policies for resources that a caller keeps elsewhere. None deletes anything."""

from __future__ import annotations

from enum import StrEnum
from operator import itemgetter
from typing import Any, Final

from pydantic import Field

from holdfast.core.domains import DOMAINS, RetentionPolicy
from holdfast.edges.operations.models import MEMORY_ID, Confirm, Input, Nothing, Paged, example
from holdfast.edges.operations.operation import GOVERN, READ, TENANT, WRITE, Group
from holdfast.edges.operations.outputs import OpenAnswer, PageOf, output_of
from holdfast.engine import Holdfast
from holdfast.results.domains import (
    ArchiveResult,
    DomainResult,
    DomainsResult,
    NewArchiveResult,
    RetentionPolicyResult,
    SortedResourcesResult,
    WholeArchiveResult,
)
from holdfast.results.memory import Metadata

domains = Group("domains", "Policies for resources that are kept elsewhere, in the domains memory and rag.")
MAX_RESOURCES: Final = 20_000
Domain = StrEnum("Domain", {name.upper(): name for name in DOMAINS})  # type: ignore[misc]  # the domains there are
_RESOURCE: Final = {"id": 1, "source_type": "context", "created_at": "2024-05-01T08:00:00+00:00"}
_FIELDS: Final = (
    "older_than_days (1 to 3,650: after that a resource may go), source_types (context, action, thought), "
    "keep_session_ids and keep_context_ids (nothing of these goes), limit (1 to 20,000: so many at once), vacuum, "
    "auto_gc (sweeps carry it out; memory only)"
)
_RESOURCES: Final = (
    "Each an object with `id`, `source_type` (context, action or thought), `created_at` (ISO 8601 with an offset, or "
    "seconds since 1970), perhaps `session_id` and `context_id`; other fields are handed back."
)


class OneDomain(Input):
    """One domain."""

    domain: Domain = Field(strict=False, description="Which policy: of memories, or of documents for retrieval (rag).")


class ConfigureDomain(OneDomain):
    """Fields of a policy that are to change."""

    model_config = example({"config": {"older_than_days": 90, "keep_session_ids": ["s1"]}})

    config: Metadata = Field(description=f"The fields to change; those left out stay. There are: {_FIELDS}.")
    confirm: Confirm = False


class _WithResources(OneDomain):
    resources: list[Metadata] = Field(max_length=MAX_RESOURCES, description=_RESOURCES)


class ApplyDomain(_WithResources):
    """Resources to be sorted."""

    model_config = example({"resources": [_RESOURCE], "options": {"older_than_days": 7}})

    options: Metadata | None = Field(None, description="Fields of the policy that are to differ this once.")


class ArchiveResources(_WithResources):
    """Resources to be archived."""

    model_config = example({"resources": [_RESOURCE], "options": {"note": "before the move"}})

    options: Metadata | None = Field(None, description="A note for the manifest: {'note': '…'}.")


class CollectionArguments(OneDomain):
    """What a garbage collection of your own was called with."""

    model_config = example({"raw_args": {"limit": 100}})

    raw_args: Metadata | None = Field(None, description="The arguments as they were given: {'limit': 100}.")
    validated_args: Metadata | None = Field(
        None, description="What your own checks made of them, and whatever else is to be handed on."
    )


class ListArchives(OneDomain, Paged):
    """The archives of which domain."""


class OneArchive(OneDomain):
    """One archive."""

    archive_id: str = Field(max_length=64, description="The archive's id.", examples=[MEMORY_ID])


class CollectionParameters(output_of(RetentionPolicy, without=frozenset({"auto_gc"})), OpenAnswer):  # type: ignore[misc]
    """The parameters of a garbage collection, a value for each; what else was validated is there as it was given."""


@domains.add("PATCH /domains/{domain}", GOVERN, TENANT, DomainResult, tool="retention_configure", errors=(428,))
def configure_domain(holdfast: Holdfast, asked: ConfigureDomain) -> Any:
    """Change some fields of a domain's policy; the others, and the other domain, stay as they are.

    Numbers are brought into their bounds; a value that a field cannot have leaves it as it was. What makes memories of
    Holdfast's own go earlier (`auto_gc`) is refused until it is confirmed.
    A domain's policy does not say how long memories are kept: ask memory_rules for that.
    """
    return holdfast.domains.configure(**asked.to_arguments())


@domains.add("GET /domains/{domain}", READ, TENANT, RetentionPolicyResult, tool="retention_get")
def get_domain(holdfast: Holdfast, asked: OneDomain) -> Any:
    """Read the policy of a domain; the default one, until another is configured.

    It sorts resources that its caller keeps elsewhere.
    A domain's policy does not say how long memories are kept: ask memory_rules for that.
    """
    return holdfast.domains.get(asked.domain.value)


@domains.add("POST /domains/{domain}/apply", READ, TENANT, SortedResourcesResult, tool="retention_apply")
def apply_domain(holdfast: Holdfast, asked: ApplyDomain) -> Any:
    """Sort resources into those that may go by the policy and those that are protected, with the reason.

    Deletes nothing: what is done with those that may go is up to the caller.
    A domain's policy does not say how long memories are kept: ask memory_rules for that.
    """
    return holdfast.domains.apply(**asked.to_arguments())


@domains.add("POST /domains/{domain}/archives", WRITE, TENANT, NewArchiveResult, tool="retention_archive", status=201)
def archive_resources(holdfast: Holdfast, asked: ArchiveResources) -> Any:
    """Write resources to cold storage with a manifest of checksums, and read them back.

    Deletes nothing, and archives no memory.
    A domain's policy does not say how long memories are kept: ask memory_rules for that.
    """
    return holdfast.domains.archive(**asked.to_arguments())


@domains.add("GET /domains", READ, TENANT, DomainsResult, tool="retention_policies")
def list_domains(holdfast: Holdfast, _asked: Nothing) -> Any:
    """Read the policies of all domains together.

    It sorts resources that its caller keeps elsewhere.
    A domain's policy does not say how long memories are kept: ask memory_rules for that.
    """
    return holdfast.domains.list()


@domains.add("POST /domains/{domain}/gc-params", READ, TENANT, CollectionParameters, tool="retention_gc_params")
def resolve_gc_params(holdfast: Holdfast, asked: CollectionArguments) -> Any:
    """Say with which parameters a garbage collection runs: what its caller gave wins, the policy has the rest.

    Collects nothing.
    A domain's policy does not say how long memories are kept: ask memory_rules for that.
    """
    return holdfast.domains.resolve_gc_params(**asked.to_arguments())


@domains.add("GET /domains/{domain}/archives", READ, TENANT, PageOf[ArchiveResult])
def list_archives(holdfast: Holdfast, asked: ListArchives) -> Any:
    """List the archives of a domain, the oldest first."""
    return asked.cut_page(list(holdfast.domains.archives(asked.domain.value)), itemgetter("archive_id"))


@domains.add("GET /domains/{domain}/archives/{archive_id}", READ, TENANT, WholeArchiveResult, errors=(404,))
def read_archive(holdfast: Holdfast, asked: OneArchive) -> Any:
    """Read an archive: its manifest and its resources, each compared with its checksum."""
    return holdfast.domains.read_archive(asked.domain.value, asked.archive_id)
