"""Short-term memory: what the session is about right now."""

from __future__ import annotations

import pytest

from clocks import FakeClock
from holdfast import Holdfast, MemoryManager
from holdfast.core.errors import AgentRemovedError, HeldError


def test_messages_come_back_in_their_order(memory: MemoryManager, clock: FakeClock) -> None:
    for number in range(5):
        memory.short_term.add_message("user" if number % 2 == 0 else "assistant", f"message {number}", {"n": number})
    history = memory.short_term.get_conversation_history()
    assert [m["content"] for m in history] == [f"message {n}" for n in range(5)]
    assert history[0]["role"] == "user"
    assert history[0]["timestamp"] == clock().isoformat()
    assert history[3]["metadata"] == {"n": 3}


def test_a_session_holds_its_last_thousand_messages(memory: MemoryManager, holdfast: Holdfast) -> None:
    memory.add_many([f"message {n}" for n in range(1_005)], "short_term")
    kept = [m["content"] for m in memory.short_term.get_conversation_history()]
    assert (len(kept), kept[0], kept[-1]) == (1_000, "message 5", "message 1004")
    assert len(holdfast.sessions.history("travel_agent", "sess_abc123")) == 1_005
    assert [m["content"] for m in holdfast.sessions.history("travel_agent", "sess_abc123", limit=2)] == [
        "message 1003",
        "message 1004",
    ]


def test_short_term_memory_is_recalled_by_meaning(memory: MemoryManager) -> None:
    memory.short_term.add_message("user", "We would like to travel by train")
    memory.short_term.add_message("user", "My sister plays the cello")
    assert memory.retrieve("music instruments", memory_type="short_term", top_k=1)[0]["content"].startswith("My sister")


def test_sessions_are_listed_with_the_latest_first(holdfast: Holdfast, clock: FakeClock) -> None:
    for session in ("first", "second"):
        holdfast.manager("user", "agent", session).short_term.add_message("user", "hello")
        clock.advance(hours=1)
    holdfast.manager("user", "other", "third").short_term.add_message("user", "hello")
    assert [s["session_id"] for s in holdfast.sessions.list("user")] == ["third", "second", "first"]
    assert [s["session_id"] for s in holdfast.sessions.list("user", "agent")] == ["second", "first"]
    assert holdfast.sessions.list("user")[0]["messages"] == 1


def test_another_process_sees_the_same_session(holdfast: Holdfast, memory: MemoryManager) -> None:
    memory.short_term.add_message("user", "hello")
    with Holdfast.open(home=holdfast.settings.home, clock=holdfast.services.clock) as other:
        twin = other.manager("user_123", "travel_agent", "sess_abc123")
        assert [m["content"] for m in twin.short_term.get_conversation_history()] == ["hello"]


def test_the_time_of_short_term_memory_comes_from_the_rules(holdfast: Holdfast, clock: FakeClock) -> None:
    holdfast.policies.set("short_term", delete_after_days=0.5, agent_id="patient")
    patient = holdfast.manager("user", "patient", "session").short_term
    hasty = holdfast.manager("user", "hasty", "session").short_term
    for short_term in (patient, hasty):
        short_term.add_message("user", "hello")

    assert (patient.get_ttl(), hasty.get_ttl()) == (43_200, 3_600)
    clock.advance(hours=12, microseconds=-1)
    assert len(patient.get_conversation_history()) == 1
    assert hasty.get_conversation_history() == []
    clock.advance(microseconds=1)
    assert patient.get_conversation_history() == []


def test_a_rule_that_keeps_everything_for_ever_does_not_keep_short_term_memory(
    holdfast: Holdfast, memory: MemoryManager
) -> None:
    holdfast.policies.set("*", delete_after_days="never")
    memory.short_term.add_message("user", "hello")
    assert memory.short_term.get_ttl() == 3_600


def test_a_deleted_message_leaves_the_conversation_and_its_summary(holdfast: Holdfast, memory: MemoryManager) -> None:
    kept = memory.short_term.add_message("user", "We fly to Oslo")
    gone = memory.short_term.add_message("user", "My passport number is 123")

    assert memory.short_term.delete(gone)
    assert not memory.short_term.delete(gone)

    assert [m["message_id"] for m in memory.short_term.get_full_history()] == [kept]
    assert [m["message_id"] for m in memory.short_term.get_conversation_history()] == [kept]
    assert holdfast.sessions.list("user_123")[0]["summary"] == "user: We fly to Oslo"


def test_a_held_message_is_deleted_nowhere(holdfast: Holdfast, memory: MemoryManager) -> None:
    message_id = memory.short_term.add_message("user", "hello")
    holdfast.holds.add(user_id="user_123", reason="litigation", author="counsel")

    with pytest.raises(HeldError, match="kept by hold"):
        memory.short_term.delete(message_id)
    assert len(memory.short_term.get_conversation_history()) == len(memory.short_term.get_full_history()) == 1


def test_a_session_in_use_again_after_31_days_begins_anew(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory.short_term.add_message("user", "in January")
    clock.advance(days=31)
    assert memory.short_term.get_full_history() == []
    memory.short_term.add_message("user", "in February")

    assert [m["content"] for m in memory.short_term.get_full_history()] == ["in February"]
    (session,) = holdfast.sessions.list("user_123")
    assert (session["messages"], session["created_at"]) == (1, clock().isoformat())


def test_what_a_removed_agent_was_told_is_refused_and_kept_nowhere(holdfast: Holdfast, memory: MemoryManager) -> None:
    memory.short_term.add_message("user", "hello")
    holdfast.agents.remove("travel_agent")

    with pytest.raises(AgentRemovedError, match="restore"):
        memory.short_term.add_message("user", "still there?")
    assert memory.short_term.get_conversation_history() == []
    assert memory.short_term.get_full_history() == []

    holdfast.agents.restore("travel_agent")
    assert [m["content"] for m in memory.short_term.get_full_history()] == ["hello"]
