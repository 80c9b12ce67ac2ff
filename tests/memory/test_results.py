"""What the verbs return has the keys that its type names, and mypy knows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from holdfast import AddResult, Holdfast, MemoryManager, MemoryResult, RetrieveResult, results


def type_of(verb: Callable[..., Any]) -> Any:
    """The TypedDict that a verb returns, or returns a list of."""
    hint = get_type_hints(verb, localns=vars(results))["return"]
    return get_args(hint)[0] if get_origin(hint) is list else hint


def check(verb: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call a verb, and hold what it returns against its type."""
    returned = verb(*arguments, **options)
    wanted = type_of(verb)
    assert is_typeddict(wanted), f"{verb.__qualname__} returns {wanted}"
    found = returned if isinstance(returned, list) else [returned]
    assert found, f"{verb.__qualname__} returned nothing to look at"
    for one in found:
        assert wanted.__required_keys__ <= one.keys() <= wanted.__required_keys__ | wanted.__optional_keys__, verb
    return returned


@pytest.fixture
def memory(holdfast: Holdfast) -> MemoryManager:
    return holdfast.manager("ann", "guide", "s1")


def test_adding_recalling_and_changing_return_what_their_types_say(memory: MemoryManager) -> None:
    first = check(memory.add, "Ann likes tea", "long_term")
    check(memory.add, "word " * 20_000, "long_term")
    check(memory.add_with_auto_prune, "Speak plainly", "persona")
    check(memory.add_many, ["a note", "another"], "long_term", derived_from=[first["memory_id"]])
    check(memory.add, {"what": "a note"}, "working")
    check(memory.retrieve, "tea", ["working", "long_term"], explain=True)
    check(memory.list_memories)
    check(memory.long_term.retrieve, "tea")
    check(memory.long_term.list)
    check(memory.get, first["memory_id"])
    check(memory.derived, first["memory_id"])
    check(memory.update, first["memory_id"], "Ann likes green tea")
    check(memory.explain, first["memory_id"])
    check(memory.rules)
    check(memory.delete, first["memory_id"], with_derived=True)
    check(memory.explain, first["memory_id"])
    check(memory.restore, first["memory_id"])


def test_the_kinds_return_what_their_types_say(memory: MemoryManager, holdfast: Holdfast) -> None:
    message = memory.short_term.add_message("user", "Where shall we go?")
    check(memory.short_term.get_conversation_history)
    check(memory.short_term.get_full_history)
    check(memory.explain, str(message))
    check(holdfast.sessions.list, "ann")
    check(holdfast.sessions.history, "guide", "s1")
    episode = memory.episodic.record_episode("plan a trip", messages=[{"role": "user", "content": "To the sea"}])
    check(memory.get, episode)
    check(memory.episodic.query_similar_episodes, "a trip")
    check(memory.episodic.query_messages, "the sea")
    memory.entity.add("Ann", "person", attributes={"likes": "tea"})
    memory.entity.relate("Ann", "knows", "Bob")
    check(memory.entity.get, "Ann")
    check(memory.entity.history, "Ann")
    check(memory.entity.neighbours, "Ann")
    memory.structured.put("trips", {"to": "the sea"}, key="one")
    check(memory.structured.find, "trips")


def test_the_engine_returns_what_its_types_say(memory: MemoryManager, holdfast: Holdfast) -> None:
    memory.add("Ann likes tea", "long_term", source="import:crm")
    check(holdfast.users)
    check(holdfast.forget_source, "import:crm", dry_run=True)
    check(holdfast.latencies.summary)
    check(holdfast.explain, memory.add("Ann likes coffee")["memory_id"])
    check(holdfast.audit.seal)
    memory.delete(memory.add("Ann likes cocoa")["memory_id"])
    check(holdfast.audit.tail)
    check(holdfast.recycle.list)
    check(holdfast.schedule.list)
    holdfast.policies.set("long_term", delete_after_days=30, user_id="ann", confirm=True)
    check(holdfast.policies.list)
    check(holdfast.policies.get, "long_term", user_id="ann")
    for roster, name in ((holdfast.agents, "guide"), (holdfast.tools, "maps")):
        check(roster.add, name, "shows the way")
        check(roster.get, name)
        check(roster.remove, name)
        check(roster.list, include_removed=True)
        check(roster.restore, name)


def test_the_same_thing_has_the_same_name() -> None:
    keys = {key for name in dir(results) if name.endswith("Result") for key in getattr(results, name).__annotations__}
    assert not keys & {"kind", "type_of_memory", "created", "created_on", "updated", "similarity", "relevance"}


def know_the_types(memory: MemoryManager) -> None:
    """Read by mypy alone: a key that does not exist is an error, or the comment behind it would be."""
    added = assert_type(memory.add("Ann likes tea"), AddResult)
    assert_type(added["memory_id"], str)
    added["memory"]  # type: ignore[typeddict-item]
    found = assert_type(memory.retrieve("tea"), list[RetrieveResult])
    assert_type(found[0]["score"], float)
    found[0]["points"]  # type: ignore[typeddict-item]
    assert_type(memory.list_memories(), list[MemoryResult])[0]["score"]  # type: ignore[typeddict-item]
