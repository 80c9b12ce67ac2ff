"""A memory as a caller with a key may use it: the same verbs, with those held back that reach past its bounds.

Most verbs stay within the memory's user and agent by themselves. Here are those that name a user of their own, that
concern all agents or all users, or that follow memories to whichever agent has them. ``tests/access`` holds that every
verb of a memory is known to be of the one sort or the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.core.access import Principal, Right
from holdfast.core.errors import ForbiddenError, NotFoundError, quote
from holdfast.core.ids import is_id
from holdfast.core.provenance import Origin, agent_of
from holdfast.core.records import Usage
from holdfast.core.types import OWN, TYPES, Kind, State
from holdfast.engine import Holdfast, MemoryManager
from holdfast.lifecycle.recycle_bin import bundled
from holdfast.manager import Content, MemoryKind
from holdfast.memory.entity import Entity
from holdfast.memory.structured import Structured

_OWN: Final = frozenset(kind.value for kind in OWN)
#: Kinds of which all agents of a user have the same memories.
_SHARED: Final = frozenset(kind.name.value for kind in TYPES.values() if "agent" not in kind.scope)


class _Bounds:
    """What a caller may do with the memory of one user, beyond what one agent has of it."""

    def __init__(self, principal: Principal, user_id: str) -> None:
        self.principal = principal
        self.user_id = user_id

    def check_person(self, right: Right, user_id: str) -> None:
        """For verbs on a person as a whole, whichever agent it is with."""
        self._check_right(right)
        if user_id != self.user_id or not self.principal.reaches_user(user_id):
            raise ForbiddenError(f"this is the memory of user {self.user_id!r}, not of {quote(user_id)}")
        if self.principal.agents is not None:
            raise ForbiddenError("the key is bound to agents; this concerns all that is kept on a user")

    def check_tenant(self, right: Right) -> None:
        """For verbs on what holds for all users."""
        self._check_right(right)
        if self.principal.users is not None or self.principal.agents is not None:
            raise ForbiddenError("the key is bound to users or agents; this concerns the whole tenant")

    def check_source(self, source: str) -> None:
        """For what a memory is said to come from: nobody writes in the name of an agent that is out of reach."""
        agent_id = agent_of(source)
        if agent_id is not None and not self.principal.reaches_agent(agent_id):
            raise ForbiddenError(
                f"the key does not reach agent {agent_id!r}, so that nothing can be written in its name; leave source "
                "out, or name what is no agent, such as 'import:crm'"
            )

    def has(self, kind: str, agent_id: str) -> bool:
        """Whether a memory of the user is within reach, by its kind and the agent that it is with."""
        return kind not in _OWN or self.principal.reaches_agent(agent_id)

    def _check_right(self, right: Right) -> None:
        if not self.principal.allows(right):
            raise ForbiddenError(f"this needs the right {right.value!r}, which the key does not have")


class BoundedMemory(MemoryManager):
    """The memory of one user and agent, for one caller."""

    def __init__(
        self, principal: Principal, user_id: str, agent_id: str, session_id: str | None = None, *, engine: Holdfast
    ) -> None:
        super().__init__(user_id, agent_id, session_id=session_id, engine=engine)
        self._bounds = _Bounds(principal, user_id)
        self._by_agent = principal.agents is not None
        self._records.check_source = self._bounds.check_source
        self.entity = _BoundedEntity(self._bounds, self)
        self.structured = _BoundedStructured(self._bounds, self)

    # --- what names a user, or concerns all agents ------------------------------------------------------------------

    def delete_user_memories(self, user_id: str, memory_type: MemoryKind | None = None) -> int:
        self._bounds.check_person(Right.GOVERN, user_id)
        return super().delete_user_memories(user_id, memory_type)

    def gdpr_export_user_data(self, user_id: str) -> dict[str, Any]:
        self._bounds.check_person(Right.GOVERN, user_id)
        return super().gdpr_export_user_data(user_id)

    def export_kind(self, user_id: str, memory_type: MemoryKind) -> list[dict[str, Any]]:
        self._bounds.check_person(Right.GOVERN, user_id)
        return super().export_kind(user_id, memory_type)

    def gdpr_delete_user_data(self, user_id: str) -> dict[str, int]:
        self._bounds.check_person(Right.GOVERN, user_id)
        return super().gdpr_delete_user_data(user_id)

    def archive_due(self, memory_type: MemoryKind) -> int:
        self._bounds.check_person(Right.GOVERN, self.user_id)
        return super().archive_due(memory_type)

    def _write(
        self, kind: Kind, contents: Sequence[Content], metadata: object, origin: Origin, *, prune: bool
    ) -> tuple[list[str], Usage, int]:
        if prune and self._by_agent and kind.name.value in _OWN:
            raise ForbiddenError(
                f"pruning takes the oldest {kind.name} memories of all agents, and the key is bound to agents; delete "
                "what is no longer needed"
            )
        return super()._write(kind, contents, metadata, origin, prune=prune)

    # --- what follows memories to other agents ----------------------------------------------------------------------

    def delete(self, memory_id: str, *, with_derived: bool = False) -> dict[str, Any]:
        if not self._by_agent:
            return super().delete(memory_id, with_derived=with_derived)
        if self._item(memory_id) is None:
            self._records.read(memory_id)  # what is not to be seen has no descendants to speak of
        others = self._out_of_reach(memory_id)
        if with_derived and others:
            raise ForbiddenError(
                f"some of what was derived from memory {memory_id} is other agents' own, and the key is bound to "
                "agents; delete it by itself, or with a key that is not"
            )
        deleted = super().delete(memory_id, with_derived=with_derived)
        left = [one for one in deleted.pop("derived", ()) if one not in others]
        return {**deleted, "derived": left} if left else deleted

    def restore(self, memory_id: str) -> dict[str, Any]:
        record = self._records.find(memory_id)
        if self._by_agent and record is not None and record.bundle == record.id:
            for one in bundled(self._parts.records, self._scope.tenant, record.id):
                if one.scope.subject == self._scope.subject and not self._bounds.has(one.kind, one.scope.agent_id):
                    raise ForbiddenError(
                        f"other agents' own memories went to the recycle bin with memory {memory_id}, and the key is "
                        "bound to agents; restore it with a key that is not"
                    )
        return super().restore(memory_id)

    def explain(self, memory_id: str) -> dict[str, Any]:
        if not self._by_agent:
            return super().explain(memory_id)
        unknown = NotFoundError(f"no memory {quote(memory_id)} for user {self.user_id!r}")
        record = self._parts.records.get(self._scope.subject, memory_id) if is_id(memory_id) else None
        if record is not None and not self._records.selects(record):
            raise unknown
        turn = self._parts.history.find_message(self._scope.subject, memory_id) if record is None else None
        if turn is not None and turn.session.agent_id != self.agent_id:
            raise unknown
        try:
            said = super().explain(memory_id)
        except NotFoundError:
            raise unknown from None
        if said["state"] == State.DELETED and said["memory_type"] not in _SHARED:
            raise unknown  # the audit chain does not say which agent's it was
        if said.get("derived"):
            others = self._out_of_reach(memory_id)
            said["derived"] = [one for one in said["derived"] if one not in others]
        return said

    def _out_of_reach(self, memory_id: str) -> frozenset[str]:
        """Ids of what was derived from a memory and is the own of agents that the caller is not bound to."""
        derived = self._lineage.live_derived(memory_id)
        return frozenset(one.id for one in derived if not self._bounds.has(one.kind, one.thing.agent_id))


class _BoundedEntity(Entity):
    def __init__(self, bounds: _Bounds, memory: BoundedMemory) -> None:
        super().__init__(memory._records)
        self._bounds = bounds

    def delete_user_entities(self, user_id: str) -> int:
        self._bounds.check_person(Right.GOVERN, user_id)
        return super().delete_user_entities(user_id)

    def export_all(self, user_id: str) -> list[dict[str, Any]]:
        self._bounds.check_person(Right.GOVERN, user_id)
        return super().export_all(user_id)


class _BoundedStructured(Structured):
    def __init__(self, bounds: _Bounds, memory: BoundedMemory) -> None:
        super().__init__(memory._records, memory._parts.schemas)
        self._bounds = bounds

    def define(self, collection: str, schema: Mapping[str, Any] | None) -> None:
        self._bounds.check_tenant(Right.GOVERN)
        super().define(collection, schema)

    def delete_user_data(self, user_id: str) -> int:
        self._bounds.check_person(Right.GOVERN, user_id)
        return super().delete_user_data(user_id)

    def export_all(self, user_id: str) -> list[dict[str, Any]]:
        self._bounds.check_person(Right.GOVERN, user_id)
        return super().export_all(user_id)
