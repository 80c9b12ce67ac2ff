"""Agents and tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from holdfast.core.errors import AgentRemovedError
from holdfast.core.values import iso

if TYPE_CHECKING:
    from holdfast.core.records import State, Subject
    from holdfast.ports.coordination import Lease

AGENT: Final = "agent"
TOOL: Final = "tool"


class Registered(NamedTuple):
    """An agent or a tool."""

    tenant: str
    sort: str
    id: str
    state: State
    version: int
    description: str
    metadata: dict[str, Any]
    created_at: int
    updated_at: int
    moved_at: int | None
    reason: str | None
    purge_at: int | None
    bundle: str | None
    unfinished: str | None
    """``remove`` or ``restore``, until all that is its own has followed."""


class Followed(NamedTuple):
    """How much of an agent's own went with it, how much did not and why, and where to go on from."""

    moved: dict[str, int]
    left: dict[str, int]
    after: tuple[str, int] | None
    bytes: dict[str, int]
    """Of the content of what went; a conversation's are with ``sessions``."""


class Own(NamedTuple):
    """A memory or a conversation of an agent."""

    kind: str
    subject: Subject
    id: str
    version: int
    size: int


class Outlook(NamedTuple):
    """What a sweep at a moment finds of an agent or a tool that was removed."""

    own: list[Own]
    """What is still live of its own, and may follow it."""
    stays: bool
    """Whether something keeps it: a hold on it or on what is its own, or what is in the bin for longer."""


def removed_agent(agent_id: str, until: int) -> AgentRemovedError:
    """The error for an agent that would change something, and is in the recycle bin until a moment."""
    return AgentRemovedError(
        f"agent {agent_id!r} is in the recycle bin; restore it until {iso(until)} with "
        f"holdfast agent restore {agent_id}, or use another agent"
    )


class RegistryReader(Protocol):
    """Agents and tools that are known."""

    def get(self, tenant: str, sort: str, entry_id: str) -> Registered | None:
        """One, in whatever state."""

    def list(self, tenant: str, sort: str, *, include_removed: bool = False) -> list[Registered]:
        """Those that are known, by id."""

    def unfinished(self, tenant: str) -> Sequence[Registered]:
        """Those whose own has not followed yet."""

    def due(self, tenant: str, *, now: int) -> Sequence[Registered]:
        """Those whose time in the recycle bin is over."""

    def outlook(self, entry: Registered, *, at: int) -> Outlook:
        """What of it is left, and what keeps it, once the bin is emptied of what is past its time at a moment."""


class RegistryWriter(Protocol):
    """Changes what is known of agents and tools."""

    def put(
        self, tenant: str, sort: str, entry_id: str, *, description: str, metadata: dict[str, Any], now: int
    ) -> Registered:
        """Make one known, or say anew what is known; ``ConflictError`` if it is in the recycle bin.

        One whose time there is over is forgotten first, as ``erase`` does; ``ConflictError`` if it cannot be yet.
        """

    def remove(self, tenant: str, sort: str, entry_id: str, *, now: int, reason: str, bundle: str) -> Registered:
        """Move one to the recycle bin: out of sight at once, with its own still to follow. ``HeldError`` is audited."""

    def restore(self, tenant: str, sort: str, entry_id: str, *, now: int) -> Registered:
        """Bring one back, with its own still to follow."""

    def follow(
        self, entry: Registered, what: str, *, after: tuple[str, int], now: int, limit: int, lease: Lease | None = None
    ) -> Followed:
        """Move some of an agent's ``records`` or ``sessions`` where it went; ``StaleError`` if it went elsewhere."""

    def finish(self, entry: Registered, *, lease: Lease | None = None) -> bool:
        """All has followed; ``False`` if it went elsewhere meanwhile."""

    def erase(self, entry: Registered, *, now: int, lease: Lease | None = None) -> bool:
        """Forget one for good, once nothing of its own is left; whether it is gone."""


class RegistryStore(RegistryReader, RegistryWriter, Protocol):
    """Agents and tools of a tenant. Every change is on the tenant's audit chain."""
