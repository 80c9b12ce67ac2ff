"""Who sees what: each part of a scope is compared whole."""

from __future__ import annotations

import pytest

from holdfast import Holdfast, NotFoundError


def test_a_users_memories_are_seen_by_that_user_alone(holdfast: Holdfast) -> None:
    memory_id = holdfast.manager("foo", "agent").add("foo likes chess", "long_term")["memory_id"]
    for other in ("foobar", "fo", "Foo", "bar"):
        stranger = holdfast.manager(other, "agent")
        assert stranger.retrieve("chess") == []
        assert stranger.count_memories("long_term") == 0
        with pytest.raises(NotFoundError):
            stranger.get(memory_id)
        with pytest.raises(NotFoundError):
            stranger.delete(memory_id)


def test_long_term_memory_is_shared_by_a_users_agents_and_sessions(holdfast: Holdfast) -> None:
    holdfast.manager("user", "planner", "monday").add("User is allergic to nuts", "long_term")
    (found,) = holdfast.manager("user", "cook", "tuesday").retrieve("allergies")
    assert (found["agent_id"], found["session_id"]) == ("planner", "monday"), "who wrote it is recorded"


def test_persona_and_episodes_belong_to_an_agent(holdfast: Holdfast) -> None:
    planner, cook = holdfast.manager("user", "planner"), holdfast.manager("user", "cook")
    persona = planner.add("I am a careful travel planner", "persona")["memory_id"]
    planner.episodic.record_episode("Booked a trip to Rome", ["searched", "booked"])
    assert cook.retrieve("who am I", memory_types=["persona", "episodic"]) == []
    with pytest.raises(NotFoundError):
        cook.get(persona)
    assert len(planner.retrieve("who am I", memory_types=["persona", "episodic"])) == 2


def test_working_and_short_term_memory_belong_to_a_session(holdfast: Holdfast) -> None:
    one, other = holdfast.manager("user", "agent", "one"), holdfast.manager("user", "agent", "other")
    nameless = holdfast.manager("user", "agent")
    one.add("heading for Paris", "working")
    one.short_term.add_message("user", "heading for Paris")
    for memory in (other, nameless):
        assert memory.retrieve("Paris", memory_types=["working", "short_term"]) == []
        assert memory.short_term.get_ttl() is None
    assert len(holdfast.manager("user", "agent", "one").retrieve("Paris", memory_types=["working", "short_term"])) == 2


def test_tenants_never_see_each_other(holdfast: Holdfast) -> None:
    memory_id = holdfast.manager("user", "agent", "s").add("a secret", "long_term")["memory_id"]
    with Holdfast.open(home=holdfast.settings.home, tenant="other") as other:
        memory = other.manager("user", "agent", "s")
        assert memory.retrieve("secret") == []
        with pytest.raises(NotFoundError):
            memory.get(memory_id)
        assert other.sessions.list("user") == []


def test_the_parts_that_do_not_select_can_be_filtered_on(holdfast: Holdfast) -> None:
    holdfast.manager("user", "planner", "monday").add("likes trains", "long_term")
    holdfast.manager("user", "cook", "tuesday").add("likes noodles", "long_term")
    memory = holdfast.manager("user", "planner")
    (found,) = memory.retrieve("likes", filters={"agent_id": "cook"})
    assert found["content"] == "likes noodles"
    (found,) = memory.retrieve("likes", filters={"session_id": ["monday", "sunday"]})
    assert found["content"] == "likes trains"
