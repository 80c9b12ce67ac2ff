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

from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import wraps
from typing import Any, Final, NamedTuple

from holdfast.core.access import Principal, Right, list_rights
from holdfast.core.errors import ForbiddenError, NotFoundError, quote
from holdfast.core.records import ALL, OWN, TYPES, Kind, State
from holdfast.core.values import agent_of, check_id, check_tenant, is_id
from holdfast.engine import Holdfast, MemoryManager
from holdfast.lifecycle.recycle_bin import read_bundle
from holdfast.results.lifecycle import ExplainResult
from holdfast.results.memory import DeleteResult, RestoreResult

_OWN: Final = frozenset(kind.value for kind in OWN)
#: Kinds of which all agents of a user have the same memories.
_SHARED: Final = frozenset(kind.name.value for kind in TYPES.values() if "agent" not in kind.scope)


class Concern(Enum):
    """What a verb concerns."""

    MEMORY = auto()
    """What one agent has of one user."""
    PERSON = auto()
    """The user that its first argument names, whichever agent it is with."""
    AGENTS = auto()
    """The memory's user, whichever agent it is with."""
    TENANT = auto()
    """All users."""


class Verb(NamedTuple):
    """What a caller needs to use a verb."""

    right: Right
    concern: Concern = Concern.MEMORY


def _verbs(
    *, read: str = "", write: str = "", person: str = "", agents: str = "", tenant: str = ""
) -> Mapping[str, Verb]:
    """Verbs by their names, which are parted by spaces. What concerns more than a memory needs the right to govern."""
    table = (
        (read, Verb(Right.READ)),
        (write, Verb(Right.WRITE)),
        (person, Verb(Right.GOVERN, Concern.PERSON)),
        (agents, Verb(Right.GOVERN, Concern.AGENTS)),
        (tenant, Verb(Right.GOVERN, Concern.TENANT)),
    )
    return {name: verb for names, verb in table for name in names.split()}


MEMORY_VERBS: Final = _verbs(
    read="retrieve context conflicts list_memories get history derived count_memories explain rules",
    write="add add_many add_with_auto_prune import_memories remember update correct revert delete restore rehydrate"
    " end_task remove_session",
    person="delete_user_memories gdpr_export_user_data gdpr_delete_user_data export_kind",
    agents="archive_due kept_out lift",
)
_PLAIN: Final = _verbs(
    read="retrieve list count", write="add", person="export_all delete_all", agents="archive_old_memories"
)
PART_VERBS: Final[Mapping[str, Mapping[str, Verb]]] = {
    "working": _verbs(read="items get", write="add put update delete clear"),
    "short_term": _verbs(
        read="messages get_conversation_history get_full_history get_ttl",
        write="add_message add_messages append delete pop_message",
    ),
    "long_term": _PLAIN,
    "persona": _PLAIN,
    "episodic": _verbs(
        read="query_similar_episodes query_messages get_messages get_steps get_tool_calls",
        write="record_episode cleanup_old_episodes",
    ),
    "entity": _verbs(
        read="get history neighbours", write="add set relate end delete", person="export_all delete_user_entities"
    ),
    "structured": _verbs(
        read="get read find collections",
        write="put put_many refresh delete",
        person="export_all delete_user_data",
        tenant="define",
    ),
}
#: What a memory has beside its verbs.
_VALUES: Final = frozenset({"user_id", "agent_id", "session_id", "auto_prune"})


class _Bounds:
    """What a caller may do with the memory of one user."""

    def __init__(self, principal: Principal, user_id: str) -> None:
        self.principal = principal
        self.user_id = user_id

    def guard(self, verbs: Mapping[str, Verb], name: str, do: Callable[..., Any]) -> Callable[..., Any]:
        """A verb that checks what it needs; ``ForbiddenError`` if it is not declared, or the caller may not use it."""
        verb = verbs.get(name)
        if verb is None:
            raise ForbiddenError(f"{name!r} is no verb that callers of a service may use; use another one")
        if not self.principal.allows(verb.right):
            raise ForbiddenError(f"this needs the right {verb.right.value!r}, which the key does not have")
        if verb.concern is Concern.AGENTS:
            self._check_person(self.user_id)
        elif verb.concern is Concern.TENANT and (self.principal.users is not None or self.principal.agents is not None):
            raise ForbiddenError("the key is bound to users or agents; this concerns the whole tenant")
        if verb.concern is not Concern.PERSON:
            return do

        @wraps(do)
        def on_person(user_id: str, *arguments: Any, **named: Any) -> Any:
            self._check_person(user_id)
            return do(user_id, *arguments, **named)

        return on_person

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

    def _check_person(self, user_id: str) -> None:
        if user_id != self.user_id or not self.principal.reaches_user(user_id):
            raise ForbiddenError(f"this is the memory of user {self.user_id!r}, not of {quote(user_id)}")
        if self.principal.agents is not None:
            raise ForbiddenError("the key is bound to agents; this concerns all that is kept on a user")


class _BoundedPart:
    """A part of a memory, such as ``memory.entity``, of which only the declared verbs can be used."""

    def __init__(self, part: object, verbs: Mapping[str, Verb], bounds: _Bounds) -> None:
        self._part = part
        self._verbs = verbs
        self._bounds = bounds

    def __getattr__(self, name: str) -> Any:
        return self._bounds.guard(self._verbs, name, getattr(self._part, name))


class BoundedMemory:
    """The memory of one user and agent, for one caller: the verbs that are declared, and nothing else."""

    def __init__(
        self,
        principal: Principal,
        user_id: str,
        agent_id: str,
        session_id: str | None = None,
        *,
        engine: Holdfast,
        auto_prune: bool = False,
    ) -> None:
        bounds = _Bounds(principal, user_id)
        memory = _CallersMemory(bounds, agent_id, session_id, engine=engine, auto_prune=auto_prune)
        self.__dict__.update(_bounds=bounds, _memory=memory)

    _bounds: _Bounds
    _memory: _CallersMemory

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name!r} cannot be set: others of this caller's requests have the memory, too")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{name!r} is within the memory")
        value = getattr(self._memory, name)
        if name in _VALUES:
            return value
        if name in PART_VERBS:
            return _BoundedPart(value, PART_VERBS[name], self._bounds)
        self.__dict__[name] = guarded = self._bounds.guard(MEMORY_VERBS, name, value)  # what it needs never changes
        return guarded


class _CallersMemory(MemoryManager):
    """The memory of one user and agent as a caller sees it that may be bound to agents."""

    def __init__(
        self, bounds: _Bounds, agent_id: str, session_id: str | None, *, engine: Holdfast, auto_prune: bool
    ) -> None:
        super().__init__(bounds.user_id, agent_id, auto_prune, session_id=session_id, engine=engine)
        self._engine = engine
        self._by_agent = bounds.principal.agents is not None
        self._bounds = bounds
        self._records.check_source = bounds.check_source

    def remove_session(self) -> int:
        """Send the memory's session to the recycle bin; how many messages it has."""
        return self._engine.sessions.remove(self.agent_id, self.session_id, user_id=self.user_id)

    def _check_prune(self, kind: Kind) -> None:
        if self._by_agent and kind.name.value in _OWN:
            raise ForbiddenError(
                f"pruning takes the oldest {kind.name} memories of all agents, and the key is bound to agents; delete "
                "what is no longer needed"
            )

    # --- what follows memories to other agents ----------------------------------------------------------------------

    def delete(self, memory_id: str, *, with_derived: bool = False, keep_out: bool = False) -> DeleteResult:
        if not self._by_agent:
            return super().delete(memory_id, with_derived=with_derived, keep_out=keep_out)
        if keep_out:
            raise ForbiddenError(
                "a text is kept out of all that is kept on a user, and the key is bound to agents; delete it without "
                "keep_out, or with a key that is not"
            )
        if self._look_up(memory_id)[0] is None:
            self._records.read(memory_id)  # what is not to be seen has no descendants to speak of
        others = self._out_of_reach(memory_id)
        if with_derived and others:
            raise ForbiddenError(
                f"some of what was derived from memory {memory_id} is other agents' own, and the key is bound to "
                "agents; delete it by itself, or with a key that is not"
            )
        deleted = super().delete(memory_id, with_derived=with_derived)
        left = [one for one in deleted.pop("derived", ()) if one not in others]
        if left:
            deleted["derived"] = left
        return deleted

    def restore(self, memory_id: str) -> RestoreResult:
        record = self._records.find(memory_id)
        if self._by_agent and record is not None and record.bundle == record.id:
            for one in read_bundle(self._services.records, self._scope.tenant, record.id):
                if one.scope.subject == self._scope.subject and not self._bounds.has(one.kind, one.scope.agent_id):
                    raise ForbiddenError(
                        f"other agents' own memories went to the recycle bin with memory {memory_id}, and the key is "
                        "bound to agents; restore it with a key that is not"
                    )
        return super().restore(memory_id)

    def explain(self, memory_id: str) -> ExplainResult:
        if not self._by_agent:
            return super().explain(memory_id)
        unknown = NotFoundError(f"no memory {quote(memory_id)} for user {self.user_id!r}")
        record = self._services.records.get(self._scope.subject, memory_id) if is_id(memory_id) else None
        if record is not None and not self._records.selects(record):
            raise unknown
        turn = self._services.history.find_message(self._scope.subject, memory_id) if record is None else None
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


DEFAULT_TENANT: Final = "default"


class Gate:
    """What one caller may reach, in one tenant. ``memories`` may keep what ``make_memory`` makes."""

    def __init__(
        self,
        holdfast: Holdfast,
        principal: Principal,
        tenant: str | None = None,
        *,
        memories: Callable[..., BoundedMemory] | None = None,
    ) -> None:
        own = DEFAULT_TENANT if principal.is_operator else principal.tenant
        self.principal = principal
        self.tenant_id = own if tenant is None else check_tenant(tenant)
        """The tenant that it acts for."""
        if not principal.reaches_tenant(self.tenant_id):
            raise ForbiddenError(f"the key is for another tenant than {self.tenant_id!r}")
        self._holdfast = holdfast
        self._memories = memories or Gate.make_memory
        self.telemetry = holdfast.telemetry
        """Hears of operations, where the settings say so."""

    def memory(
        self, right: Right, user_id: str, agent_id: str, session_id: str | None = None, *, auto_prune: bool = False
    ) -> BoundedMemory:
        """The memory of a user as an agent sees it. ``*`` for all users or agents is for whoever governs, unbound."""
        return self._memories(self, right, user_id, agent_id, session_id, auto_prune=auto_prune)

    def make_memory(
        self, right: Right, user_id: str, agent_id: str, session_id: str | None, *, auto_prune: bool
    ) -> BoundedMemory:
        """The memory, made anew. Whether a caller may have it never changes."""
        self.check_right(right)
        if ALL in (user_id, agent_id):
            self.check_right(Right.GOVERN)
        self._check_user(user_id)
        if not self.principal.reaches_agent(agent_id):
            raise ForbiddenError(f"the key does not reach agent {agent_id!r}; it is bound to other agents")
        scope = (user_id, agent_id, session_id)
        return BoundedMemory(self.principal, *scope, engine=self._engine(), auto_prune=auto_prune)

    def user(self, right: Right, user_id: str) -> Holdfast:
        """For what concerns a person as a whole, whichever agent it is with."""
        self.check_right(right)
        self._check_user(check_id(user_id, "user_id"))
        if self.principal.agents is not None:
            raise ForbiddenError("the key is bound to agents; this concerns all that is kept on a user")
        return self._engine()

    def tenant(self, right: Right) -> Holdfast:
        """For what concerns a tenant as a whole."""
        self.check_right(right)
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

    def _check_user(self, user_id: str) -> None:
        if not self.principal.reaches_user(user_id):
            raise ForbiddenError(f"the key does not reach user {user_id!r}; it is bound to other users")

    def check_right(self, right: Right) -> None:
        """``ForbiddenError`` where the key does not have a right."""
        if not self.principal.allows(right):
            has = ", ".join(list_rights(self.principal.rights)) or "none"
            raise ForbiddenError(f"this needs the right {right.value!r}; the key has: {has}")
