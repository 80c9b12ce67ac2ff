"""The gate: a caller reaches what its key says, and nothing else, by whatever way it asks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clocks import FakeClock
from effort import soak, times
from holdfast import ForbiddenError, Holdfast, NotFoundError
from holdfast.core.access import LOCAL, Principal, Right
from holdfast.core.records import ALL
from holdfast.edges.access.callers import Callers
from holdfast.edges.access.gate import MEMORY_VERBS, PART_VERBS, BoundedMemory, Gate
from holdfast.edges.operations.catalog import OPERATIONS
from holdfast.engine import MemoryManager
from holdfast.manager import Memory
from holdfast.memory.entity import Entity
from holdfast.memory.episodic import Episodic
from holdfast.memory.short_term import ShortTerm
from holdfast.memory.structured import Structured
from holdfast.memory.text import TextMemory
from holdfast.memory.working import Working
from homes import on_sqlite

AnyMemory = MemoryManager | BoundedMemory


def caller(
    *rights: Right, tenant: str = "default", users: list[str] | None = None, agents: list[str] | None = None
) -> Principal:
    return Principal(
        "a key",
        tenant,
        frozenset(rights or Right),
        None if users is None else frozenset(users),
        None if agents is None else frozenset(agents),
    )


# --- allowed if and only if the model says so -------------------------------------------------------------------------

_NAMES = st.sampled_from(["ann", "bob", "an", "ann2", "Ann"])
_BOUNDS = st.none() | st.frozensets(_NAMES, min_size=1, max_size=2)
_PRINCIPALS = st.builds(
    Principal,
    st.just("a key"),
    st.sampled_from(["default", "acme", ALL]),
    st.frozensets(st.sampled_from(Right), max_size=2) | st.just(frozenset({Right.ADMIN})),
    _BOUNDS,
    _BOUNDS,
)
_ORDER = {Right.READ: 1, Right.WRITE: 2, Right.GOVERN: 3, Right.ADMIN: 4}


@dataclass(frozen=True)
class Request:
    right: Right
    tenant: str | None
    user: str
    agent: str


_REQUESTS = st.builds(
    Request,
    st.sampled_from(Right),
    st.sampled_from([None, "default", "acme", "acm"]),
    _NAMES | st.just(ALL),
    _NAMES | st.just(ALL),
)


def expected(who: Principal, asked: Request, way: str) -> bool:
    """What the rules come to, written another way than the gate is."""
    most = max((_ORDER[right] for right in who.rights), default=0)
    needed = _ORDER[asked.right]
    if way == "memory" and ALL in (asked.user, asked.agent):
        needed = max(needed, 3)
    own = "default" if who.tenant == ALL else who.tenant
    is_tenant = who.tenant == ALL or (asked.tenant or own) == own
    is_user = who.users is None or asked.user in who.users
    is_agent = who.agents is None or asked.agent in who.agents
    return (most >= needed and is_tenant) and {
        "memory": is_user and is_agent,
        "agent": is_user and is_agent,
        "user": is_user and who.agents is None,
        "tenant": who.users is None and who.agents is None,
        "store": who.users is None and who.agents is None and who.tenant == ALL,
    }[way]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Holdfast]:
    with Holdfast.open(home=tmp_path_factory.mktemp("gate") / "home", clock=FakeClock()) as engine:
        yield engine


@soak
def test_what_is_asked_for_is_given_exactly_where_it_is_allowed(shared: Holdfast) -> None:
    @settings(max_examples=times(60))
    @given(_PRINCIPALS, _REQUESTS, st.sampled_from(["memory", "user", "tenant", "store"]))
    def holds(who: Principal, asked: Request, way: str) -> None:
        if way == "user" and ALL in (asked.user, asked.agent):
            return  # these are for one user: that is wrong input, whoever asks
        try:
            gate = Gate(shared, who, asked.tenant)
            ways: dict[str, Callable[[], Any]] = {
                "memory": lambda: gate.memory(asked.right, asked.user, asked.agent),
                "user": lambda: gate.user(asked.right, asked.user),
                "tenant": lambda: gate.tenant(asked.right),
                "store": lambda: gate.store(asked.right),
            }
            given_to = ways[way]()
        except ForbiddenError:
            assert not expected(who, asked, way)
            return
        assert expected(who, asked, way)
        tenant = asked.tenant or ("default" if who.tenant == ALL else who.tenant)
        if isinstance(given_to, BoundedMemory):
            assert (given_to.user_id, given_to.agent_id) == (asked.user, asked.agent)
            assert given_to._memory._scope.tenant == tenant
        else:
            assert given_to.tenant == tenant

    holds()


def test_an_operation_is_for_exactly_those_who_can_get_more_than_a_refusal(shared: Holdfast) -> None:
    bounds = [
        {"users": users, "agents": agents}
        for users in (None, frozenset({"ann"}))
        for agents in (None, frozenset({"a"}))
    ]
    callers = [
        Principal("k", tenant, frozenset({right}), **bound)
        for tenant in ("default", ALL)
        for right in Right
        for bound in bounds
    ]
    asked = SimpleNamespace(user_id="ann", agent_id="a", session_id=None)
    for who in callers:
        gate = Gate(shared, who)
        for operation in OPERATIONS.values():
            try:
                operation._reach(gate, asked)
                gate.check_right(operation.right)
            except ForbiddenError:
                assert not operation.is_for(who), (operation.name, who)
            else:
                assert operation.is_for(who), (operation.name, who)


def test_ids_are_compared_whole(shared: Holdfast) -> None:
    gate = Gate(shared, caller(users=["ann"], agents=["travel"]))
    assert gate.memory(Right.READ, "ann", "travel").user_id == "ann"
    for near in ("an", "ann2", "Ann", "ann ", "/ann", "ann/x", "*", "%"):
        with pytest.raises(ForbiddenError):
            gate.memory(Right.READ, near, "travel")
        with pytest.raises(ForbiddenError):
            gate.memory(Right.READ, "ann", near.replace("ann", "travel"))


def test_rights_include_those_before_them() -> None:
    for held in Right:
        for right in Right:
            assert caller(held).allows(right) == (_ORDER[right] <= _ORDER[held])
    assert not Principal(None, "acme", frozenset()).allows(Right.READ)


def test_the_local_caller_may_do_everything(shared: Holdfast) -> None:
    gate = Gate(shared, LOCAL)
    assert gate.tenant_id == "default"
    assert gate.store(Right.ADMIN).tenant == "default"
    assert Gate(shared, LOCAL, "acme").memory(Right.ADMIN, ALL, ALL).user_id == ALL


# --- nobody reaches another's memory, by whatever it is called --------------------------------------------------------

#: Verbs that take the id of a memory.
BY_ID: dict[str, Callable[[AnyMemory, str], Any]] = {
    "get": lambda memory, one: memory.get(one),
    "update": lambda memory, one: memory.update(one, "changed"),
    "update metadata": lambda memory, one: memory.update(one, metadata={"a": 1}),
    "delete": lambda memory, one: memory.delete(one),
    "delete with derived": lambda memory, one: memory.delete(one, with_derived=True),
    "restore": lambda memory, one: memory.restore(one),
    "explain": lambda memory, one: memory.explain(one),
    "rehydrate": lambda memory, one: memory.rehydrate(one),
    "steps": lambda memory, one: memory.episodic.get_steps(one),
    "messages": lambda memory, one: memory.episodic.get_messages(one),
    "entity": lambda memory, one: memory.entity.get(one),
    "entity history": lambda memory, one: memory.entity.history(one),
    "entity delete": lambda memory, one: memory.entity.delete(one),
}
UNKNOWN = "01a1dfc3-5075-7b43-8662-62b11144fb48"


def remember(memory: AnyMemory) -> dict[str, str]:
    """One of each kind."""
    return {
        "long_term": memory.add("secret tea", "long_term", {"tag": "x"})["memory_id"],
        "persona": memory.add("secret manner", "persona")["memory_id"],
        "episodic": memory.episodic.record_episode("secret task", ["a step"], messages=["said"]),
        "entity": memory.entity.add("Secret Rex", "dog"),
        "structured": memory.structured.put("orders", {"secret": 1}, key="k"),
        "short_term": memory.short_term.add_message("user", "secret hello"),
        "working": memory.working.add("secret note"),
        "binned": recycled(memory),
    }


def recycled(memory: AnyMemory) -> str:
    gone: str = memory.add("secret and deleted", "persona")["memory_id"]
    memory.delete(gone)
    return gone


def check_refused(memory: AnyMemory, ids: list[str]) -> None:
    """None of the verbs reaches any of the memories, and each says the same as of an unknown one."""
    for verb, call in BY_ID.items():
        said = set()
        for one in (*ids, UNKNOWN):
            with pytest.raises(NotFoundError) as refused:
                call(memory, one)
            said.add(str(refused.value).replace(one, "ID"))
        assert len(said) == 1, f"{verb} tells whether a memory exists: {said}"


def test_a_caller_bound_to_a_user_reaches_no_other_by_the_id_of_a_memory(holdfast: Holdfast) -> None:
    bobs = remember(holdfast.manager("bob", "travel", "s"))
    before = holdfast.export_user("bob")["memories"]
    gate = Gate(holdfast, caller(users=["ann"]))

    check_refused(gate.memory(Right.WRITE, "ann", "travel", "s"), list(bobs.values()))

    assert holdfast.export_user("bob")["memories"] == before
    for right in (Right.READ, Right.ADMIN):
        with pytest.raises(ForbiddenError):
            gate.memory(right, "bob", "travel", "s")


def test_a_caller_bound_to_an_agent_reaches_nothing_that_is_another_agents_own(holdfast: Holdfast) -> None:
    theirs = remember(holdfast.manager("ann", "doctor", "s"))
    own = [theirs[kind] for kind in ("persona", "episodic", "short_term", "working", "binned")]
    before = holdfast.export_user("ann")["memories"]
    memory = Gate(holdfast, caller(agents=["travel"])).memory(Right.WRITE, "ann", "travel", "s")

    check_refused(memory, own)

    assert holdfast.export_user("ann")["memories"] == before


@on_sqlite
def test_what_is_the_users_is_shared_by_the_agents_that_serve_the_user(holdfast: Holdfast) -> None:
    theirs = remember(holdfast.manager("ann", "doctor", "s"))
    memory = Gate(holdfast, caller(agents=["travel"])).memory(Right.WRITE, "ann", "travel", "s")

    assert memory.get(theirs["long_term"])["agent_id"] == "doctor"
    assert memory.update(theirs["long_term"], "changed")["content"] == "changed"
    assert memory.explain(theirs["structured"])["memory_type"] == "structured"
    assert memory.entity.get("Secret Rex")["entity_type"] == "dog"
    found = memory.retrieve("secret", ["long_term", "persona", "episodic", "short_term", "working"], top_k=50)
    assert {one["memory_type"] for one in found} <= {"long_term"}
    for kind in ("persona", "episodic"):
        assert memory.list_memories(kind, {"agent_id": "doctor"}) == []
        assert memory.retrieve("secret", kind, filters={"agent_id": {"in": ["doctor", "travel"]}}) == []


@on_sqlite
def test_a_session_is_reached_by_its_own_agent_only(holdfast: Holdfast) -> None:
    remember(holdfast.manager("ann", "doctor", "s"))
    gate = Gate(holdfast, caller(agents=["travel"]))

    assert gate.memory(Right.READ, "ann", "travel", "s").short_term.get_full_history() == []
    with pytest.raises(NotFoundError):
        gate.memory(Right.WRITE, "ann", "travel", "s").remove_session()
    with pytest.raises(ForbiddenError, match="agent 'doctor'"):
        gate.memory(Right.READ, "ann", "doctor")
    doctors = Gate(holdfast, caller(agents=["doctor"])).memory(Right.WRITE, "ann", "doctor", "s")
    assert doctors.remove_session() == 1


@on_sqlite
def test_a_memory_that_is_gone_for_good_is_explained_to_its_own_agent_only(
    holdfast: Holdfast, clock: FakeClock
) -> None:
    memory = holdfast.manager("ann", "doctor")
    persona, shared = memory.add("a", "persona")["memory_id"], memory.add("b", "long_term")["memory_id"]
    for one in (persona, shared):
        memory.delete(one)
    clock.advance(days=16)
    holdfast.recycle.purge()

    assert memory.explain(persona)["state"] == "deleted"
    bound = Gate(holdfast, caller(agents=["travel"])).memory(Right.READ, "ann", "travel")
    assert bound.explain(shared)["state"] == "deleted"
    with pytest.raises(NotFoundError, match="no memory"):
        bound.explain(persona)


@on_sqlite
def test_a_message_is_explained_to_its_own_agent_only(holdfast: Holdfast, clock: FakeClock) -> None:
    message = holdfast.manager("ann", "doctor", "s").short_term.add_message("user", "it hurts")
    clock.advance(hours=2)
    gate = Gate(holdfast, caller(agents=["travel"]))

    with pytest.raises(NotFoundError, match="no memory"):
        gate.memory(Right.READ, "ann", "travel", "s").explain(message)
    bound = Gate(holdfast, caller(agents=["doctor"])).memory(Right.READ, "ann", "doctor")
    assert bound.explain(message)["state"] == "active"


# --- what follows memories to other agents ----------------------------------------------------------------------------


@pytest.fixture
def derived(holdfast: Holdfast) -> tuple[str, str, str]:
    """A memory of the user's, and what two agents made of it."""
    source = holdfast.manager("ann", "travel").add("likes tea", "long_term")["memory_id"]
    mine = holdfast.manager("ann", "travel").add("offers tea", "persona", derived_from=[source])["memory_id"]
    theirs = holdfast.manager("ann", "doctor").add("asks about tea", "persona", derived_from=[source])["memory_id"]
    return source, mine, theirs


def test_a_caller_bound_to_an_agent_removes_nothing_that_others_made(
    holdfast: Holdfast, derived: tuple[str, str, str]
) -> None:
    source, mine, theirs = derived
    memory = Gate(holdfast, caller(agents=["travel"])).memory(Right.WRITE, "ann", "travel")

    assert memory.explain(source)["derived"] == [mine]
    assert [one["memory_id"] for one in memory.derived(source)] == [mine]
    with pytest.raises(ForbiddenError, match="other agents' own"):
        memory.delete(source, with_derived=True)
    assert memory.get(source)["content"] == "likes tea"

    deleted = memory.delete(source)
    assert deleted["derived"] == [mine], "what is left is told as far as it is to be seen"
    assert holdfast.manager("ann", "doctor").get(theirs)["content"] == "asks about tea"


def test_a_caller_bound_to_an_agent_brings_nothing_back_that_was_others(
    holdfast: Holdfast, derived: tuple[str, str, str]
) -> None:
    source, mine, theirs = derived
    holdfast.manager("ann", "travel").delete(source, with_derived=True)
    bound = Gate(holdfast, caller(agents=["travel"])).memory(Right.WRITE, "ann", "travel")

    with pytest.raises(ForbiddenError, match="other agents' own"):
        bound.restore(source)
    with pytest.raises(NotFoundError, match="recycle bin"):
        bound.get(source)

    both = Gate(holdfast, caller(agents=["travel", "doctor"])).memory(Right.WRITE, "ann", "travel")
    assert sorted(both.restore(source)["restored_with"]) == sorted([mine, theirs])


@on_sqlite
def test_a_caller_bound_to_an_agent_deletes_what_only_it_made_of_it(holdfast: Holdfast) -> None:
    memory = Gate(holdfast, caller(agents=["travel"])).memory(Right.WRITE, "ann", "travel")
    source = memory.add("likes tea", "long_term")["memory_id"]
    made = memory.add("offers tea", "persona", derived_from=[source])["memory_id"]

    assert memory.delete(source, with_derived=True)["deleted_with"] == [made]
    assert memory.restore(source)["restored_with"] == [made]


@on_sqlite
def test_a_caller_bound_to_an_agent_prunes_nobody_elses_memories(holdfast: Holdfast) -> None:
    holdfast.manager("ann", "doctor").add("the oldest", "persona")
    holdfast.quotas.set("persona", max_memories=1, user_id="ann")
    holdfast.quotas.set("long_term", max_memories=1, user_id="ann")
    memory = Gate(holdfast, caller(agents=["travel"])).memory(Right.WRITE, "ann", "travel")

    with pytest.raises(ForbiddenError, match="all agents"):
        memory.add_with_auto_prune("newer", "persona")
    assert len(holdfast.manager("ann", "doctor").list_memories("persona")) == 1
    memory.add("first", "long_term")
    assert memory.add_with_auto_prune("second", "long_term")["pruned"] == 1, "what is the user's is shared"


IN_NAMES: dict[str, Callable[[AnyMemory, str], object]] = {
    "add": lambda memory, source: memory.add("tea", source=source),
    "add_many": lambda memory, source: memory.add_many(["tea", "milk"], source=source),
    "add_many, each with metadata": lambda memory, source: memory.add_many(["tea"], metadata=[{}], source=source),
    "add_with_auto_prune": lambda memory, source: memory.add_with_auto_prune("tea", source=source),
    "long_term": lambda memory, source: memory.long_term.add("tea", source=source),
    "persona": lambda memory, source: memory.persona.add("tea", source=source),
    "an episode": lambda memory, source: memory.episodic.record_episode("plan", ["look"], source=source),
    "an entity": lambda memory, source: memory.entity.add("Rex", "dog", source=source),
    "a text as an entity": lambda memory, source: memory.add("Rex", "entity", source=source),
    "a document": lambda memory, source: memory.structured.put("trips", {"to": "Rome"}, key="k", source=source),
    "update": lambda memory, source: memory.update(memory.list_memories()[0]["memory_id"], source=source),
}


def test_every_verb_that_says_where_a_memory_comes_from_is_known_here() -> None:
    found = {
        f"{kind.__name__}.{name}"
        for kind in (Memory, TextMemory, Working, ShortTerm, Episodic, Entity, Structured)
        for name, verb in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and {"source", "derived_from"} <= set(inspect.signature(verb).parameters)
    }
    assert found == {
        *(f"Memory.{name}" for name in ("add", "add_many", "add_with_auto_prune", "update")),
        *("TextMemory.add", "Episodic.record_episode", "Entity.add", "Structured.put"),
    }


@on_sqlite
@pytest.mark.parametrize("verb", IN_NAMES)
def test_a_caller_bound_to_an_agent_writes_in_no_other_agents_name(holdfast: Holdfast, verb: str) -> None:
    others = holdfast.manager("ann", "doctor")
    others.add("likes milk")
    others.entity.add("Rex", "dog")
    others.structured.put("trips", {"to": "Leeds"}, key="k")
    before = [others.list_memories(kind) for kind in ("long_term", "entity", "structured")]
    bound = Gate(holdfast, caller(agents=["travel"])).memory(Right.WRITE, "ann", "travel")
    with pytest.raises(ForbiddenError, match="does not reach agent 'doctor'"):
        IN_NAMES[verb](bound, "agent:doctor")
    assert [others.list_memories(kind) for kind in ("long_term", "entity", "structured")] == before
    for source in ("agent:travel", "import:crm", "doctor"):
        IN_NAMES[verb](bound, source)
    both = Gate(holdfast, caller(agents=["travel", "doctor"])).memory(Right.WRITE, "ann", "travel")
    for memory in (both, holdfast.manager("ann", "travel")):
        IN_NAMES[verb](memory, "agent:doctor")


# --- what names a user, or concerns more than one ---------------------------------------------------------------------

#: Verbs on a person as a whole. All of them need the right to govern.
ON_A_PERSON: dict[str, Callable[[AnyMemory, str], Any]] = {
    "delete_user_memories": lambda memory, who: memory.delete_user_memories(who),
    "gdpr_export_user_data": lambda memory, who: memory.gdpr_export_user_data(who),
    "gdpr_delete_user_data": lambda memory, who: memory.gdpr_delete_user_data(who),
    "export_kind": lambda memory, who: memory.export_kind(who, "persona"),
    "long_term.export_all": lambda memory, who: memory.long_term.export_all(who),
    "long_term.delete_all": lambda memory, who: memory.long_term.delete_all(who),
    "persona.export_all": lambda memory, who: memory.persona.export_all(who),
    "persona.delete_all": lambda memory, who: memory.persona.delete_all(who),
    "entity.export_all": lambda memory, who: memory.entity.export_all(who),
    "entity.delete_user_entities": lambda memory, who: memory.entity.delete_user_entities(who),
    "structured.export_all": lambda memory, who: memory.structured.export_all(who),
    "structured.delete_user_data": lambda memory, who: memory.structured.delete_user_data(who),
}


@on_sqlite
@pytest.mark.parametrize("verb", ON_A_PERSON)
def test_a_verb_on_a_person_is_for_that_person_and_for_all_agents(holdfast: Holdfast, verb: str) -> None:
    for user in ("ann", "bob"):
        remember(holdfast.manager(user, "travel", "s"))
    before = holdfast.export_user("bob")["memories"]
    call = ON_A_PERSON[verb]

    for who, user in [
        (caller(users=["ann"]), "bob"),
        (LOCAL, "bob"),  # not by way of another's memory
        (caller(agents=["travel"]), "ann"),
        (caller(Right.WRITE), "ann"),
    ]:
        with pytest.raises(ForbiddenError):
            call(Gate(holdfast, who).memory(Right.READ, "ann", "travel", "s"), user)
    assert holdfast.export_user("bob")["memories"] == before
    assert holdfast.manager("ann", "travel", "s").count_memories("long_term") == 1

    call(Gate(holdfast, caller(Right.GOVERN, users=["ann"])).memory(Right.GOVERN, "ann", "travel", "s"), "ann")


@on_sqlite
@pytest.mark.parametrize("name", ["archive_due", "long_term.archive_old_memories", "structured.define"])
def test_what_concerns_all_agents_or_all_users_is_not_for_those_bound_to_one(holdfast: Holdfast, name: str) -> None:
    calls: dict[str, Callable[[AnyMemory], Any]] = {
        "archive_due": lambda memory: memory.archive_due("episodic"),
        "long_term.archive_old_memories": lambda memory: memory.long_term.archive_old_memories(),
        "structured.define": lambda memory: memory.structured.define("orders", {"type": "object"}),
    }
    refused = [caller(agents=["travel"]), caller(Right.WRITE)]
    refused += [caller(users=["ann"])] if name == "structured.define" else []
    for who in refused:
        with pytest.raises(ForbiddenError):
            calls[name](Gate(holdfast, who).memory(Right.WRITE, "ann", "travel"))
    calls[name](Gate(holdfast, caller(Right.GOVERN)).memory(Right.GOVERN, "ann", "travel"))


@on_sqlite
def test_verbs_on_all_users_or_agents_are_for_those_who_govern_and_are_bound_to_none(holdfast: Holdfast) -> None:
    for user, agent in ((ALL, ALL), (ALL, "travel"), ("ann", ALL)):
        for who in (
            caller(Right.WRITE),
            caller(users=["ann"]) if user == ALL else caller(agents=["travel"]),
            caller(users=["ann"], agents=["travel"]),
        ):
            with pytest.raises(ForbiddenError):
                Gate(holdfast, who).memory(Right.READ, user, agent)
        Gate(holdfast, caller(Right.GOVERN)).memory(Right.GOVERN, user, agent).episodic.cleanup_old_episodes()


PARTS: dict[str, type] = {
    "working": Working,
    "short_term": ShortTerm,
    "long_term": TextMemory,
    "persona": TextMemory,
    "episodic": Episodic,
    "entity": Entity,
    "structured": Structured,
}


def verbs_of(owner: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(owner, inspect.isfunction) if name[0] != "_"}


def test_every_verb_of_a_memory_is_declared_with_its_right() -> None:
    assert set(MEMORY_VERBS) == verbs_of(Memory) | {"remove_session"}
    assert set(PART_VERBS) == set(PARTS)
    for part, owner in PARTS.items():
        assert set(PART_VERBS[part]) == verbs_of(owner), part


@on_sqlite
def test_a_verb_that_is_not_declared_is_refused_whoever_asks(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner in {Memory, *PARTS.values()}:
        monkeypatch.setattr(owner, "shred", lambda self: "shredded", raising=False)
    assert holdfast.manager("ann", "travel").shred() == "shredded"  # type: ignore[attr-defined]
    for who in (LOCAL, caller(), caller(Right.READ)):
        memory: Any = Gate(holdfast, who).memory(Right.READ, "ann", "travel")
        for place in (memory, *(getattr(memory, part) for part in PARTS)):
            with pytest.raises(ForbiddenError, match="'shred' is no verb that callers of a service may use"):
                place.shred()


@on_sqlite
def test_a_verb_needs_its_right_whatever_the_memory_was_asked_for_with(holdfast: Holdfast) -> None:
    memory: Any = Gate(holdfast, caller(Right.READ)).memory(Right.READ, "ann", "travel", "s")
    verbs = {"": MEMORY_VERBS, **PART_VERBS}
    tried = 0
    for part, own in verbs.items():
        for name, verb in own.items():
            place = getattr(memory, part) if part else memory
            if verb.right is not Right.READ:
                tried += 1
                with pytest.raises(ForbiddenError, match=f"needs the right '{verb.right.value}'"):
                    getattr(place, name)
    assert tried > 30


# --- tenants ----------------------------------------------------------------------------------------------------------


def test_a_caller_reaches_its_own_tenant_only(holdfast: Holdfast) -> None:
    acmes = remember(holdfast.of_tenant("acme").manager("ann", "travel", "s"))
    gate = Gate(holdfast, caller(tenant="default"))
    memory = gate.memory(Right.ADMIN, "ann", "travel", "s")

    for one in acmes.values():
        with pytest.raises(NotFoundError):
            memory.get(one)
        with pytest.raises(NotFoundError):
            gate.tenant(Right.ADMIN).explain(one)
    assert memory.retrieve("secret", ["long_term", "persona", "episodic", "short_term", "working"]) == []
    for tenant in ("acme", "acm", "default2"):
        with pytest.raises(ForbiddenError, match="another tenant"):
            Gate(holdfast, caller(tenant="default"), tenant)
    assert Gate(holdfast, caller(tenant="acme"), "acme").memory(Right.READ, "ann", "travel", "s").get(acmes["persona"])


@on_sqlite
def test_an_operator_acts_for_the_tenant_that_it_names(home: Path, holdfast: Holdfast) -> None:
    operator = caller(Right.ADMIN, tenant=ALL)
    Gate(holdfast, operator, "acme").memory(Right.WRITE, "ann", "travel").add("in acme")

    assert holdfast.of_tenant("acme").manager("ann", "travel").count_memories() == 1
    assert holdfast.manager("ann", "travel").count_memories() == 0
    assert Gate(holdfast, operator).tenant(Right.ADMIN).tenant == "default"
    with pytest.raises(ForbiddenError, match="operator"):
        Gate(holdfast, caller(Right.ADMIN)).store(Right.READ)


@on_sqlite
def test_a_refusal_says_what_is_missing(holdfast: Holdfast) -> None:
    with pytest.raises(ForbiddenError, match="needs the right 'govern'; the key has: read, write"):
        Gate(holdfast, caller(Right.WRITE, Right.READ)).tenant(Right.GOVERN)
    with pytest.raises(ForbiddenError, match="does not reach user 'bob'"):
        Gate(holdfast, caller(users=["ann"])).user(Right.READ, "bob")
    with pytest.raises(ForbiddenError, match="bound to agents; this concerns all"):
        Gate(holdfast, caller(agents=["travel"])).user(Right.READ, "bob")
    with pytest.raises(ForbiddenError, match="bound to users; this concerns the whole tenant"):
        Gate(holdfast, caller(users=["ann"])).tenant(Right.READ)


def test_a_text_is_kept_out_by_who_writes_for_all_agents_and_lifted_by_who_governs(holdfast: Holdfast) -> None:
    def memory(*rights: Right, agents: list[str] | None = None) -> Any:
        return Gate(holdfast, caller(*rights, agents=agents)).memory(rights[0], "ann", "planner")

    memory_id = memory(Right.WRITE).add("Likes tea")["memory_id"]
    with pytest.raises(ForbiddenError, match="bound to agents"):
        memory(Right.WRITE, agents=["planner"]).delete(memory_id, keep_out=True)
    memory(Right.WRITE).delete(memory_id, keep_out=True)
    for verb in ("kept_out", "lift"):
        for refused in (memory(Right.WRITE), memory(Right.GOVERN, agents=["planner"])):
            with pytest.raises(ForbiddenError):
                getattr(refused, verb)(*([memory_id] if verb == "lift" else []))
    assert [one["memory_id"] for one in memory(Right.GOVERN).kept_out()] == [memory_id]
    memory(Right.GOVERN).lift(memory_id)
    assert memory(Right.WRITE).add("likes TEA")["operation"] == "add"


@on_sqlite
def test_a_memory_is_made_once_for_the_same_caller_and_for_nobody_else(holdfast: Holdfast) -> None:
    callers = Callers(holdfast)
    travel, doctor = caller(agents=["travel"]), caller(agents=["doctor"])

    def memory(who: Principal, agent: str = "travel", **more: Any) -> BoundedMemory:
        return callers.gate(who, {}).memory(Right.WRITE, "ann", agent, **more)

    assert memory(travel) is memory(caller(agents=["travel"]))
    others = [
        memory(LOCAL),
        memory(caller(agents=["travel", "doctor"])),
        memory(travel, session_id="s"),
        memory(travel, auto_prune=True),
        callers.gate(LOCAL, {"x-holdfast-tenant": "acme"}).memory(Right.WRITE, "ann", "travel"),
    ]
    assert len({id(one) for one in (memory(travel), *others)}) == 6
    for who, agent in ((doctor, "travel"), (travel, "doctor"), (caller(Right.READ), "travel")):
        with pytest.raises(ForbiddenError):
            memory(who, agent)
    with pytest.raises(AttributeError):
        memory(travel).auto_prune = True  # others have it, too
