"""The tools of retention domains: policies that say what of a domain may go. None of them deletes anything."""

from __future__ import annotations

from typing import Final

from retain.core.access import Right
from retain.mcp.policies import (
    AllPolicies,
    ApplyPolicy,
    Archived,
    ArchiveResources,
    Classified,
    Configured,
    ConfigurePolicy,
    GetPolicy,
    NoInputs,
    Policy,
)
from retain.mcp.tools import ADDS, CHANGES, LOOKS, Reach, Tenant, Tool


def configure(tenant: Tenant, asked: ConfigurePolicy) -> Configured:
    """Change some of a domain's policy."""
    config = asked.config.model_dump(exclude_none=True)
    done = tenant.retain.domains.configure(asked.domain, config, confirm=asked.confirm, author=tenant.caller)
    return Configured.model_validate(done)


def get(tenant: Tenant, asked: GetPolicy) -> Policy:
    """A domain's policy."""
    return Policy.model_validate(tenant.retain.domains.get(asked.domain))


def apply(tenant: Tenant, asked: ApplyPolicy) -> Classified:
    """What of some resources may go."""
    return Classified.model_validate(tenant.retain.domains.apply(asked.domain, asked.resources, asked.options))


def archive(tenant: Tenant, asked: ArchiveResources) -> Archived:
    """Keep some resources in cold storage, with a manifest."""
    return Archived.model_validate(tenant.retain.domains.archive(asked.domain, asked.resources, asked.options))


def policies(tenant: Tenant, _asked: NoInputs) -> AllPolicies:
    """The policies of all domains."""
    return AllPolicies.model_validate(tenant.retain.domains.policies())


TOOLS: Final = (
    Tool(
        "retention_configure",
        "Set a retention policy",
        "Change some fields of a domain's retention policy; the others stay. Numbers out of bounds are brought within "
        "them, source types that do not exist are left out. With auto_gc, the memory domain's policy becomes a rule "
        "that sweeps carry out: a change by which memories go earlier is refused until the user has confirmed it.",
        Right.GOVERN,
        Reach.TENANT,
        ConfigurePolicy,
        Configured,
        configure,
        CHANGES,
    ),
    Tool(
        "retention_get",
        "Read a retention policy",
        "Read the current retention policy of a domain.",
        Right.READ,
        Reach.TENANT,
        GetPolicy,
        Policy,
        get,
        LOOKS,
    ),
    Tool(
        "retention_apply",
        "Evaluate resources against a policy",
        "Sort resources into those that a domain's policy lets go (eligible) and those that it protects, each with its "
        "reason. Deletes nothing: what is done with the eligible ones is up to the caller.",
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
        "Keep a copy of resources in cold storage, with a manifest of what is in it. Deletes nothing.",
        Right.WRITE,
        Reach.TENANT,
        ArchiveResources,
        Archived,
        archive,
        ADDS,
    ),
    Tool(
        "retention_policies",
        "Read all retention policies",
        "Read the policies of both domains together. It is kept for older clients: retention_get is the tool for one.",
        Right.READ,
        Reach.TENANT,
        NoInputs,
        AllPolicies,
        policies,
        LOOKS,
    ),
)
