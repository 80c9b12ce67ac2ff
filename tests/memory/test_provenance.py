"""Every memory says who or what wrote it and what it was made of; and what was made of it is shown, and goes with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

import raw
from clocks import FakeClock
from holdfast import HeldError, Holdfast, MemoryManager
from holdfast.core.errors import InvalidInputError, InvalidKindError, InvalidScopeError, NotFoundError

CRM = "import:crm-2026-05"
LONG = "Ann takes the window seat. She likes tea with milk. The dog is called Rex. " * 30
Writer = Callable[..., str]


def add(memory: MemoryManager, content: str = "Ann lives in Rome", kind: str = "long_term", **said: Any) -> str:
    memory_id: str = memory.add(content, kind, **said)["memory_id"]
    return memory_id


def ids(found: Sequence[Mapping[str, Any]]) -> list[str]:
    return [one["memory_id"] for one in found]


def origin(memory: MemoryManager, memory_id: str) -> tuple[str, list[str]]:
    found = memory.get(memory_id)
    return found["source"], found["derived_from"]


WRITERS: dict[str, Callable[[MemoryManager], Writer]] = {
    "add": lambda memory: lambda **said: add(memory, **said),
    "persona": lambda memory: lambda **said: add(memory, kind="persona", **said),
    "a text as an episode": lambda memory: lambda **said: add(memory, kind="episodic", **said),
    "a text as an entity": lambda memory: lambda **said: add(memory, kind="entity", **said),
    "a document": lambda memory: lambda **said: add(memory, '{"city": "Rome"}', kind="structured", **said),
    "add_many": lambda memory: lambda **said: memory.add_many(["one", "two"], **said)["memory_ids"][1],
    "add_many, each with metadata": lambda memory: (
        lambda **said: memory.add_many(["one", "two"], metadata=[{"n": 1}, None], **said)["memory_ids"][0]
    ),
    "add_with_auto_prune": lambda memory: lambda **said: memory.add_with_auto_prune("one", **said)["memory_id"],
    "long_term.add": lambda memory: lambda **said: memory.long_term.add("one", **said),
    "record_episode": lambda memory: lambda **said: memory.episodic.record_episode("plan", ["look"], **said),
    "entity.add": lambda memory: lambda **said: memory.entity.add("Rex", "dog", {"age": 3}, **said),
    "structured.put": lambda memory: lambda **said: memory.structured.put("trips", {"to": "Rome"}, key="k", **said),
}


# --- said ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRITERS)
def test_whoever_writes_may_say_where_it_comes_from(memory: MemoryManager, name: str) -> None:
    source_id = add(memory, "what it is made of")

    memory_id = WRITERS[name](memory)(source=CRM, derived_from=[source_id])

    assert origin(memory, memory_id) == (CRM, [source_id])
    assert memory_id in ids(memory.derived(source_id))


@pytest.mark.parametrize("name", WRITERS)
def test_what_nothing_is_said_of_comes_from_its_agent(memory: MemoryManager, name: str) -> None:
    assert origin(memory, WRITERS[name](memory)()) == ("agent:travel_agent", [])


def test_it_is_shown_wherever_a_memory_is(memory: MemoryManager) -> None:
    first = add(memory, "The visit was in May")
    second = add(memory, "Ann lives in Rome", source=CRM, derived_from=[first])

    (found,) = memory.retrieve("Where does Ann live?", top_k=1)
    listed = {one["memory_id"]: one for one in memory.list_memories()}
    said = memory.explain(second)

    for shown in (found, listed[second], said, memory.update(second, "Ann lives in Paris")):
        assert (shown["source"], shown["derived_from"]) == (CRM, [first])
    assert (said["derived"], memory.explain(first)["derived"]) == ([], [second])


def test_an_agent_that_is_named_as_the_source_is_the_same_as_none(memory: MemoryManager) -> None:
    memory_id = add(memory, source="agent:travel_agent")
    assert origin(memory, memory_id) == origin(memory, add(memory))
    assert set(ids(memory.list_memories(source="agent:travel_agent"))) == set(ids(memory.list_memories()))


@pytest.mark.parametrize("source", ["", " ", 7, "x" * 257, "a\nb", "*", "agent:", ["crm"], "\ud800"])
def test_a_source_that_cannot_be_named_again_is_refused(memory: MemoryManager, source: Any) -> None:
    with pytest.raises(InvalidScopeError):
        add(memory, source=source)
    assert memory.count_memories() == 0


@pytest.mark.parametrize(
    "sources", ["019bc1a5-0000-7000-8000-000000000000", ["crm"], [7], [None], {"a": 1}, 7, [f"{n}" for n in range(9)]]
)
def test_what_it_is_derived_from_is_a_list_of_ids(memory: MemoryManager, sources: Any) -> None:
    with pytest.raises(InvalidInputError, match="derived_from"):
        add(memory, derived_from=sources)
    assert memory.count_memories() == 0


def test_a_memory_is_derived_from_a_thousand_others_at_most_each_named_once(memory: MemoryManager) -> None:
    many = [f"019bc1a5-0000-7000-8000-{n:012x}" for n in range(1_001)]
    with pytest.raises(InvalidInputError, match="1,001"):
        add(memory, derived_from=many)
    memory_id = add(memory, derived_from=[*many[999::-1], *many[:0], many[5]][:1_000])
    assert origin(memory, memory_id)[1] == many[999::-1]
    assert ids(memory.derived(many[5])) == [memory_id]
    twice = add(memory, derived_from=[many[1_000], many[1_000]])
    assert origin(memory, twice)[1] == [many[1_000]]


@pytest.mark.parametrize("kind", ["working", "short_term"])
def test_what_is_in_mind_only_has_no_source_to_be_said(memory: MemoryManager, kind: str) -> None:
    with pytest.raises(InvalidKindError, match="source"):
        memory.add("a note", kind, source=CRM)
    note = add(memory, "a note", kind)
    assert origin(memory, note) == ("agent:travel_agent", [])
    with pytest.raises(InvalidKindError):
        memory.update(note, "another", source=CRM)


# --- changed -----------------------------------------------------------------------------------------------------------


def test_an_update_keeps_what_it_does_not_say(memory: MemoryManager) -> None:
    one, other = add(memory, "one"), add(memory, "other")
    memory_id = add(memory, source=CRM, derived_from=[one])

    memory.update(memory_id, "Ann lives in Paris", {"n": 1})
    assert origin(memory, memory_id) == (CRM, [one])
    memory.update(memory_id, source="user")
    assert origin(memory, memory_id) == ("user", [one])
    memory.update(memory_id, derived_from=[other])
    assert origin(memory, memory_id) == ("user", [other])
    assert (ids(memory.derived(one)), ids(memory.derived(other))) == ([], [memory_id])
    memory.update(memory_id, source="agent:travel_agent", derived_from=[])
    assert origin(memory, memory_id) == ("agent:travel_agent", [])
    assert ids(memory.derived(other)) == []
    assert memory.get(memory_id)["content"] == "Ann lives in Paris"


def test_a_memory_is_not_derived_from_itself(memory: MemoryManager) -> None:
    memory_id = add(memory)
    with pytest.raises(InvalidInputError, match="itself"):
        memory.update(memory_id, derived_from=[memory_id])
    with pytest.raises(InvalidInputError, match="nothing to update"):
        memory.update(memory_id)


def test_an_entity_comes_from_where_was_said_last(memory: MemoryManager) -> None:
    first = add(memory)
    entity_id = memory.entity.add("Rex", "dog", source=CRM, derived_from=[first])
    memory.entity.add("Rex", attributes={"age": 4})
    memory.entity.relate("Rex", "lives_with", "Ann")
    assert origin(memory, entity_id) == (CRM, [first])
    memory.entity.add("Rex", source="user")
    assert origin(memory, entity_id) == ("user", [first])


def test_a_document_that_takes_anothers_place_says_its_own(holdfast: Holdfast, memory: MemoryManager) -> None:
    first = add(memory)
    document_id = memory.structured.put("trips", {"to": "Rome"}, key="k", source=CRM, derived_from=[first])
    assert memory.structured.put("trips", {"to": "Paris"}, key="k", source="user") == document_id
    assert origin(memory, document_id) == ("user", [])
    assert memory.derived(first) == []
    holdfast.manager("user_123", "another").structured.put("trips", {"to": "Oslo"}, key="k")
    assert origin(memory, document_id) == ("agent:another", [])


# --- looked up ---------------------------------------------------------------------------------------------------------


def test_what_was_derived_is_found_directly_and_deep(memory: MemoryManager) -> None:
    root = add(memory, "a message")
    summary = add(memory, "its summary", derived_from=[root])
    fact = add(memory, "a fact", kind="persona", derived_from=[summary])
    both = add(memory, "of both", kind="entity", derived_from=[root, fact])

    assert ids(memory.derived(root)) == [summary, both]
    assert ids(memory.derived(root, deep=True)) == [summary, both, fact]
    assert memory.derived(both) == []
    (one,) = memory.derived(summary)
    assert one == memory.get(fact)


def test_memories_that_were_derived_from_each_other_do_no_harm(memory: MemoryManager) -> None:
    one = add(memory, "one")
    two = add(memory, "two", derived_from=[one])
    memory.update(one, derived_from=[two])

    assert ids(memory.derived(one, deep=True)) == [two]
    assert sorted(memory.delete(one, with_derived=True)["deleted_with"]) == [two]
    assert memory.restore(one)["restored_with"] == [two]


def test_what_was_derived_from_something_that_is_gone_is_still_found(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    root = add(memory, "gone for good soon")
    memory_id = add(memory, derived_from=[root])
    memory.delete(root)
    clock.advance(days=16)
    holdfast.recycle.purge()
    with pytest.raises(NotFoundError):
        memory.get(root)
    assert ids(memory.derived(root)) == [memory_id]
    assert origin(memory, memory_id)[1] == [root]


def test_nobody_finds_what_is_not_theirs(holdfast: Holdfast, memory: MemoryManager) -> None:
    root = add(memory)
    other_user = holdfast.manager("someone_else", "travel_agent")
    other_agent = holdfast.manager("user_123", "another")
    add(other_user, source=CRM)
    theirs = add(other_agent, kind="persona", derived_from=[root])

    assert memory.derived(root) == []
    assert ids(other_agent.derived(root)) == [theirs]
    assert memory.list_memories(source=CRM) == []
    with pytest.raises(InvalidInputError, match="not the id"):
        memory.derived("crm")


def test_nobody_learns_whether_an_id_is_another_users(holdfast: Holdfast, memory: MemoryManager) -> None:
    root, nobodys = add(memory), holdfast.services.new_id(0)
    team = holdfast.manager("team", "travel_agent")
    for one in (root, nobodys):
        made = add(team, "what the team knows", derived_from=[one])
        assert origin(team, made)[1] == [one]
        assert ids(team.derived(one)) == [made]
        other = holdfast.services.new_id(1)
        assert team.update(made, derived_from=[one, other])["derived_from"] == [one, other]


def test_what_is_another_users_neither_shows_nor_takes_along(holdfast: Holdfast, memory: MemoryManager) -> None:
    root = add(memory)
    team = holdfast.manager("team", "travel_agent")
    kept = add(team, "what the team knows", derived_from=[root])

    assert memory.derived(root, deep=True) == []
    assert "derived" not in memory.explain(root) or kept not in memory.explain(root)["derived"]
    assert "deleted_with" not in memory.delete(root, with_derived=True)
    assert ids(team.list_memories()) == [kept]
    memory.restore(root)
    assert team.delete(kept, with_derived=True)["operation"] == "recycle"
    assert ids(memory.list_memories()) == [root]
    holdfast.erase_user("user_123")
    assert team.restore(kept)["derived_from"] == [root]


def test_memories_are_listed_by_their_source(memory: MemoryManager, clock: FakeClock) -> None:
    made = []
    for n in range(6):
        clock.advance(seconds=1)
        made.append(add(memory, f"fact {n}", metadata={"n": n}, source=CRM if n % 2 else "user"))
    memory.delete(made[5])

    assert ids(memory.list_memories(source=CRM)) == [made[3], made[1]]
    assert ids(memory.list_memories(source=CRM, limit=1)) == [made[3]]
    assert ids(memory.list_memories(filters={"n": {"lt": 3}}, source=CRM)) == [made[1]]
    assert ids(memory.list_memories(filters={"agent_id": "another"}, source="user")) == []
    later = {"created_at": {"gte": clock.now.isoformat()}}
    assert ids(memory.list_memories(filters=later, source="user")) == []
    assert ids(memory.list_memories("persona", source=CRM)) == []
    with pytest.raises(InvalidScopeError):
        memory.list_memories(source="")


def test_archived_memories_of_a_source_are_listed_when_they_are_asked_for(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory_id = add(memory, LONG, source=CRM)
    clock.advance(days=365)
    assert memory.list_memories(source=CRM) == [], "swept or not"
    holdfast.sweep()
    assert ids(memory.list_memories(source=CRM, include_archived=True)) == [memory_id]


# --- kept --------------------------------------------------------------------------------------------------------------


def test_cold_storage_and_the_bin_keep_it(holdfast: Holdfast, memory: MemoryManager, clock: FakeClock) -> None:
    root = add(memory, "a message", kind="persona")
    memory_id = add(memory, LONG, source=CRM, derived_from=[root])
    before = memory.get(memory_id)
    clock.advance(days=365)
    holdfast.sweep()
    assert origin(memory, memory_id) == (CRM, [root])
    assert ids(memory.derived(root)) == [memory_id]
    memory.delete(memory_id)
    assert memory.explain(memory_id)["source"] == CRM
    assert memory.derived(root) == []
    memory.restore(memory_id)
    assert memory.rehydrate(memory_id) == before
    assert ids(memory.derived(root)) == [memory_id]


def test_an_episode_that_is_archived_in_place_keeps_it(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    root = add(memory, "a message", kind="persona")
    episode = memory.episodic.record_episode("plan", [LONG], source=CRM, derived_from=[root])
    clock.advance(days=91)
    holdfast.sweep()
    assert memory.episodic.get_steps(episode) == "archived"
    assert origin(memory, episode) == (CRM, [root])
    assert ids(memory.derived(root)) == [episode]


def test_nothing_of_it_is_left_when_a_memory_is_gone(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    root = add(memory)
    memory.delete(add(memory, source=CRM, derived_from=[root]))
    many = memory.add_many([f"fact {n}" for n in range(20)], source=CRM, derived_from=[root])["memory_ids"]
    for one in many:
        memory.delete(one)
    assert raw.rows(holdfast, "SELECT count(*) FROM derivations") == [(21,)]
    clock.advance(days=16)
    holdfast.recycle.purge()
    assert raw.rows(holdfast, "SELECT count(*) FROM derivations") == [(0,)]
    assert raw.rows(holdfast, "SELECT count(*) FROM records WHERE source IS NOT NULL") == [(0,)]


# --- removed -----------------------------------------------------------------------------------------------------------


def test_a_removal_names_what_was_derived_and_leaves_it(memory: MemoryManager) -> None:
    root = add(memory)
    summary = add(memory, "a summary", derived_from=[root])
    fact = add(memory, "a fact", derived_from=[summary])

    assert memory.delete(root) == {
        "memory_id": root,
        "operation": "recycle",
        "memory_type": "long_term",
        "derived": [summary, fact],
    }
    assert memory.get(summary)["content"] == "a summary"
    assert memory.delete(fact) == {"memory_id": fact, "operation": "recycle", "memory_type": "long_term"}


def test_what_was_derived_goes_and_comes_back_with_it(holdfast: Holdfast, memory: MemoryManager) -> None:
    root = add(memory, source=CRM)
    summary = add(memory, "a summary", kind="episodic", derived_from=[root])
    entity = memory.entity.add("Rex", derived_from=[summary])
    theirs = add(holdfast.manager("user_123", "another"), kind="persona", derived_from=[root])
    gone_before = add(memory, "deleted by itself", derived_from=[root])
    memory.delete(gone_before)
    before = [memory.get(one) for one in (root, summary, entity)]

    gone = memory.delete(root, with_derived=True)

    assert set(gone["deleted_with"]) == {summary, entity, theirs}, "whichever agent has it"
    assert "derived" not in gone
    assert {item["bundle"] for item in holdfast.recycle.list() if item["memory_id"] != gone_before} == {root}
    assert memory.retrieve("Rome", ["long_term", "episodic", "entity"]) == []

    back = memory.restore(root)

    assert set(back["restored_with"]) == {summary, entity, theirs}
    assert [memory.get(one) for one in (root, summary, entity)] == before
    assert [item["memory_id"] for item in holdfast.recycle.list()] == [gone_before], "it did not go with the others"


def test_one_that_went_with_its_source_comes_back_alone(holdfast: Holdfast, memory: MemoryManager) -> None:
    root = add(memory)
    summary = add(memory, "a summary", derived_from=[root])
    memory.delete(root, with_derived=True)

    assert "restored_with" not in memory.restore(summary)

    assert ids(holdfast.recycle.list()) == [root]
    assert holdfast.recycle.restore(memory_id=root) == 1


def test_the_bin_brings_back_what_went_with_a_memory(holdfast: Holdfast, memory: MemoryManager) -> None:
    root = add(memory)
    summary = add(memory, "a summary", derived_from=[root])
    memory.delete(root, with_derived=True)
    assert holdfast.recycle.restore(memory_id=root) == 2
    assert memory.get(summary)
    memory.delete(root, with_derived=True)
    assert holdfast.recycle.restore(bundle=root) == 2
    with pytest.raises(NotFoundError, match="recycle bin"):
        holdfast.recycle.restore(bundle=root)


def test_a_hold_keeps_what_it_covers_and_on_the_source_all_of_it(holdfast: Holdfast, memory: MemoryManager) -> None:
    root = add(memory)
    kept, free = add(memory, "kept", derived_from=[root]), add(memory, "free", derived_from=[root])
    hold = holdfast.holds.add(memory_id=root, reason="Case 1", author="legal")
    with pytest.raises(HeldError):
        memory.delete(root, with_derived=True)
    assert set(ids(memory.list_memories())) == {root, kept, free}
    assert memory.explain(root)["history"][-1]["action"] == "refused"
    holdfast.holds.release(hold.id, author="legal")
    holdfast.holds.add(memory_id=kept, reason="Case 2", author="legal")

    gone = memory.delete(root, with_derived=True)

    assert (gone["deleted_with"], gone["derived"]) == ([free], [kept])
    assert ids(memory.list_memories()) == [kept]


# --- conversations -----------------------------------------------------------------------------------------------------


def test_an_episode_of_a_conversation_is_derived_from_its_messages(holdfast: Holdfast, memory: MemoryManager) -> None:
    for content in ("I want to go to Rome", "in May"):
        memory.short_term.add_message("user", content)
    said = memory.short_term.get_full_history()
    message_ids = [message["message_id"] for message in said]
    episode = memory.episodic.record_episode("plan a trip", messages=[*said, {"role": "user", "content": "written"}])
    other = memory.episodic.record_episode("plan a trip", messages=said, derived_from=[])

    assert origin(memory, episode) == ("agent:travel_agent", message_ids)
    assert origin(memory, other)[1] == []
    assert ids(memory.derived(message_ids[0])) == [episode]

    gone = memory.delete(message_ids[0], with_derived=True)
    assert (gone["operation"], gone["deleted_with"]) == ("delete", [episode])
    assert holdfast.recycle.restore(memory_id=message_ids[0]) == 2, "the message, and the episode"
    assert memory.get(episode)
    assert memory.delete(message_ids[1])["derived"] == [episode]
