"""A tool: one row that says what it is called, what it takes and gives, which right it needs and how far it reaches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from mcp_types import ToolAnnotations

from holdfast.core.access import Principal, Right
from holdfast.edges.mcp.models import Inputs, Output
from holdfast.engine import Holdfast


class Reach(StrEnum):
    """What the gate is asked for, and what a tool's function is therefore given."""

    MEMORY = "memory"
    """The memory of one user as one agent sees it; its inputs say whose."""
    TENANT = "tenant"
    """One tenant as a whole; refused for callers who are bound to users or agents."""


class Tenant(NamedTuple):
    """What a tool that reaches a tenant works on."""

    holdfast: Holdfast
    caller: str
    """Who asks, for the audit chain."""


#: What a client may expect of a tool before it asks its user. No tool looks beyond the store.
LOOKS: Final = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
ADDS: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False
)
BRINGS_BACK: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
CHANGES: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
)


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool. ``run`` gets what the gate handed out for ``right`` and ``reach``, and the checked inputs."""

    name: str
    title: str
    about: str
    right: Right
    reach: Reach
    inputs: type[Inputs]
    output: type[Output]
    run: Callable[[Any, Any], Output]
    hints: ToolAnnotations

    def is_for(self, caller: Principal) -> bool:
        """Whether a caller can get anything but a refusal from it."""
        bound = caller.users is not None or caller.agents is not None
        return caller.allows(self.right) and not (bound and self.reach is Reach.TENANT)
