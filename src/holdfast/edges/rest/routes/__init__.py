"""The routes, a module for each resource. ``ALL`` is every one of them, in the order in which they are documented."""

from __future__ import annotations

from typing import Final

from holdfast.edges.rest.operations import Routes
from holdfast.edges.rest.routes import (
    audit,
    backups,
    caller,
    certificates,
    domains,
    episodes,
    holds,
    memories,
    policies,
    quotas,
    recall,
    recycle,
    registry,
    schedule,
    sessions,
    sweeps,
    users,
)

ALL: Final[tuple[Routes, ...]] = (
    memories.routes,
    recall.routes,
    sessions.routes,
    episodes.routes,
    policies.routes,
    sweeps.routes,
    recycle.routes,
    holds.routes,
    registry.agents,
    registry.tools,
    users.routes,
    quotas.routes,
    certificates.routes,
    audit.routes,
    domains.routes,
    backups.routes,
    schedule.routes,
    caller.routes,
)
