"""What each route needs: a right, and how far it reaches. Declared with the route, enforced for it, shown with it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from starlette.responses import Response

from holdfast.core.access import Right
from holdfast.edges.access.gate import Gate
from holdfast.engine import Holdfast, MemoryManager


class Reach(StrEnum):
    """How far a route reaches."""

    CALLER = "caller"
    """Only who calls."""
    MEMORY = "memory"
    """The memory of one user as one agent sees it."""
    USER = "user"
    """A person as a whole, whichever agent it is with."""
    WHOSE = "whose"
    """A person as a whole where one is named, the tenant where none is."""
    TENANT = "tenant"
    STORE = "store"
    """All tenants: operators only."""


class Needs(NamedTuple):
    """What a caller must have to use a route."""

    right: Right
    reach: Reach


class Caller:
    """Who asks, at one route. An engine comes from here only, by the right and the reach that the route declared."""

    def __init__(self, gate: Gate, needs: Needs) -> None:
        self._gate = gate
        self._needs = needs
        self.carry_out: Callable[[Callable[[], Response]], Response] | None = None
        """Does what is asked once, where it came with an idempotency key."""

    @property
    def gate(self) -> Gate:
        """What the caller may reach."""
        return self._gate

    @property
    def name(self) -> str:
        """Who it is, for the audit chain."""
        key_id = self._gate.principal.key_id
        return "local" if key_id is None else f"key:{key_id}"

    def memory(self, user_id: str, agent_id: str, session_id: str | None = None) -> MemoryManager:
        """The memory of a user as an agent sees it."""
        self._check(Reach.MEMORY)
        return self._gate.memory(self._needs.right, user_id, agent_id, session_id)

    def agent(self, user_id: str, agent_id: str) -> Holdfast:
        """For what one agent has of one user beside the memory."""
        self._check(Reach.MEMORY)
        return self._gate.agent(self._needs.right, user_id, agent_id)

    def user(self, user_id: str) -> Holdfast:
        """For what concerns a person."""
        self._check(Reach.USER)
        return self._gate.user(self._needs.right, user_id)

    def whose(self, user_id: str | None) -> Holdfast:
        """For what concerns a person, or (``None``) the tenant."""
        self._check(Reach.WHOSE)
        right = self._needs.right
        return self._gate.tenant(right) if user_id is None else self._gate.user(right, user_id)

    def tenant(self) -> Holdfast:
        """For what concerns the tenant."""
        self._check(Reach.TENANT)
        return self._gate.tenant(self._needs.right)

    def store(self) -> Holdfast:
        """For what concerns the store."""
        self._check(Reach.STORE)
        return self._gate.store(self._needs.right)

    def _check(self, reach: Reach) -> None:
        if reach is not self._needs.reach:
            raise RuntimeError(f"the route is declared to reach {self._needs.reach}, and asks for {reach}")
