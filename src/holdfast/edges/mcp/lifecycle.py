"""The tools of retention domains: policies that say what of a domain may go. None of them deletes anything."""

from __future__ import annotations

from typing import Final

from holdfast.core.access import Right
from holdfast.edges.mcp.policies import (
    AllPolicies,
    ApplyPolicy,
    Archived,
    ArchiveResources,
    Classified,
    CollectionArguments,
    CollectionParameters,
    Configured,
    ConfigurePolicy,
    GetPolicy,
    NoInputs,
    Policy,
)
from holdfast.edges.mcp.tools import ADDS, CHANGES, LOOKS, Reach, Tenant, Tool


def configure(tenant: Tenant, asked: ConfigurePolicy) -> Configured:
    """Change some of a domain's policy."""
    done = tenant.holdfast.domains.configure(asked.domain, asked.config, confirm=asked.confirm, author=tenant.caller)
    return Configured.model_validate(done)


def get(tenant: Tenant, asked: GetPolicy) -> Policy:
    """A domain's policy."""
    return Policy.model_validate(tenant.holdfast.domains.get(asked.domain))


def apply(tenant: Tenant, asked: ApplyPolicy) -> Classified:
    """What of some resources may go."""
    return Classified.model_validate(tenant.holdfast.domains.apply(asked.domain, asked.resources, asked.options))


def archive(tenant: Tenant, asked: ArchiveResources) -> Archived:
    """Keep some resources in cold storage, with a manifest."""
    return Archived.model_validate(tenant.holdfast.domains.archive(asked.domain, asked.resources, asked.options))


def policies(tenant: Tenant, _asked: NoInputs) -> AllPolicies:
    """The policies of all domains."""
    return AllPolicies.model_validate(tenant.holdfast.domains.list())


def resolve_gc_params(tenant: Tenant, asked: CollectionArguments) -> CollectionParameters:
    """With which parameters a garbage collection runs."""
    resolved = tenant.holdfast.domains.resolve_gc_params(asked.domain, asked.raw_args, asked.validated_args)
    return CollectionParameters.model_validate(resolved)


#: Said by every tool here: a model that is asked how long something is kept must not answer from a domain's policy.
_NOT_THE_RULES: Final = (
    " A domain's policy sorts resources that its caller keeps elsewhere. It does not say how long memories are kept: "
    "ask memory_rules for that."
)

TOOLS: Final = (
    Tool(
        "retention_configure",
        "Set a domain's policy",
        "Change some fields of a domain's policy; the others stay. Numbers out of bounds are brought within them, "
        "what a field cannot be leaves it as it was, source types that do not exist are left out. With auto_gc, the "
        "memory domain's policy becomes one more rule for memories whose metadata name a source_type, which sweeps "
        "carry out: a change by which memories go earlier is refused until the user has confirmed it." + _NOT_THE_RULES,
        Right.GOVERN,
        Reach.TENANT,
        ConfigurePolicy,
        Configured,
        configure,
        CHANGES,
    ),
    Tool(
        "retention_get",
        "Read a domain's policy",
        "Read the current policy of a domain." + _NOT_THE_RULES,
        Right.READ,
        Reach.TENANT,
        GetPolicy,
        Policy,
        get,
        LOOKS,
    ),
    Tool(
        "retention_apply",
        "Evaluate resources against a domain's policy",
        "Sort resources into those that a domain's policy lets go (eligible) and those that it protects, each with its "
        "reason. Deletes nothing: what is done with the eligible ones is up to the caller." + _NOT_THE_RULES,
        Right.READ,
        Reach.TENANT,
        ApplyPolicy,
        Classified,
        apply,
        LOOKS,
    ),
    Tool(
        "retention_archive",
        "Archive resources",
        "Keep a copy of resources in cold storage, with a manifest of what is in it. Deletes nothing, and archives no "
        "memory." + _NOT_THE_RULES,
        Right.WRITE,
        Reach.TENANT,
        ArchiveResources,
        Archived,
        archive,
        ADDS,
    ),
    Tool(
        "retention_policies",
        "Read the policies of all domains",
        "Read the policies of both domains together. It is kept for older clients: retention_get is the tool for one."
        + _NOT_THE_RULES,
        Right.READ,
        Reach.TENANT,
        NoInputs,
        AllPolicies,
        policies,
        LOOKS,
    ),
    Tool(
        "retention_gc_params",
        "Resolve the parameters of a collection",
        "Say with which parameters a garbage collection of the caller's own resources runs: what its caller gave wins, "
        "brought within bounds; the domain's policy has the rest. Collects nothing." + _NOT_THE_RULES,
        Right.READ,
        Reach.TENANT,
        CollectionArguments,
        CollectionParameters,
        resolve_gc_params,
        LOOKS,
    ),
)
