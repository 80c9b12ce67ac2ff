"""The gate: the only way in which a service gets at an engine. What a caller may reach is decided here, once.

What the bounds of a key mean:

- Bound to users, a key reaches what is theirs and nothing of anyone else, by whatever id it is asked for.
- Bound to agents, it acts as one of these agents. Working and short-term memory, conversations, persona and episodes
  are an agent's own: those of other agents do not exist for it. Long-term, entity and structured memory is the user's,
  shared by all of the user's agents: an agent that may serve the user reads and writes all of it, as in the engine.
- What concerns a person as a whole (export, erasure) is for keys that are bound to no agents; what concerns a tenant
  (rules, sweeps, the registry) for keys that are bound to nothing; what concerns the store, for operators.

What is not within the bounds is refused before anything is looked up, so that a refusal tells nothing about what
exists.
"""

from __future__ import annotations

from typing import Final

from holdfast.core.access import Principal, Right, list_rights
from holdfast.core.errors import ForbiddenError
from holdfast.core.records import ALL
from holdfast.core.values import check_id, check_tenant
from holdfast.edges.access.memory import BoundedMemory
from holdfast.engine import Holdfast

_DEFAULT_TENANT: Final = "default"


class Gate:
    """What one caller may reach, in one tenant. Cheap to make: one for each request."""

    def __init__(self, holdfast: Holdfast, principal: Principal, tenant: str | None = None) -> None:
        own = _DEFAULT_TENANT if principal.is_operator else principal.tenant
        self.principal = principal
        self.tenant_id = own if tenant is None else check_tenant(tenant)
        """The tenant that it acts for."""
        if not principal.reaches_tenant(self.tenant_id):
            raise ForbiddenError(f"the key is for another tenant than {self.tenant_id!r}")
        self._holdfast = holdfast

    def memory(self, right: Right, user_id: str, agent_id: str, session_id: str | None = None) -> BoundedMemory:
        """The memory of a user as an agent sees it. ``*`` for all users or agents is for whoever governs, unbound."""
        self._check_scope(right, user_id, agent_id)
        return BoundedMemory(self.principal, user_id, agent_id, session_id, engine=self._engine())

    def user(self, right: Right, user_id: str) -> Holdfast:
        """For what concerns a person as a whole, whichever agent it is with."""
        self._check_right(right)
        self._check_user(check_id(user_id, "user_id"))
        if self.principal.agents is not None:
            raise ForbiddenError("the key is bound to agents; this concerns all that is kept on a user")
        return self._engine()

    def tenant(self, right: Right) -> Holdfast:
        """For what concerns a tenant as a whole."""
        self._check_right(right)
        if self.principal.users is not None or self.principal.agents is not None:
            bound = "users" if self.principal.users is not None else "agents"
            raise ForbiddenError(f"the key is bound to {bound}; this concerns the whole tenant")
        return self._engine()

    def store(self, right: Right) -> Holdfast:
        """For what concerns the store as a whole, with all of its tenants."""
        holdfast = self.tenant(right)
        if not self.principal.is_operator:
            raise ForbiddenError("this concerns the whole store; it needs an operator's key")
        return holdfast

    # --- within -------------------------------------------------------------------------------------------------------

    def _engine(self) -> Holdfast:
        return self._holdfast.of_tenant(self.tenant_id)

    def _check_scope(self, right: Right, user_id: str, agent_id: str) -> None:
        self._check_right(right)
        if ALL in (user_id, agent_id):
            self._check_right(Right.GOVERN)
        self._check_user(user_id)
        if not self.principal.reaches_agent(agent_id):
            raise ForbiddenError(f"the key does not reach agent {agent_id!r}; it is bound to other agents")

    def _check_user(self, user_id: str) -> None:
        if not self.principal.reaches_user(user_id):
            raise ForbiddenError(f"the key does not reach user {user_id!r}; it is bound to other users")

    def _check_right(self, right: Right) -> None:
        if not self.principal.allows(right):
            has = ", ".join(list_rights(self.principal.rights)) or "none"
            raise ForbiddenError(f"this needs the right {right.value!r}; the key has: {has}")
