"""Short-term memory: what the session is about right now."""

from __future__ import annotations

from clocks import FakeClock
from retain import MemoryManager, Retain


def test_messages_come_back_in_their_order(memory: MemoryManager, clock: FakeClock) -> None:
    for number in range(5):
        memory.short_term.add_message("user" if number % 2 == 0 else "assistant", f"message {number}", {"n": number})
    history = memory.short_term.get_conversation_history()
    assert [m["content"] for m in history] == [f"message {n}" for n in range(5)]
    assert history[0]["role"] == "user"
    assert history[0]["timestamp"] == clock().isoformat()
    assert history[3]["metadata"] == {"n": 3}


def test_a_session_holds_its_last_thousand_messages(memory: MemoryManager, retain: Retain) -> None:
    memory.add_many([f"message {n}" for n in range(1_005)], "short_term")
    kept = [m["content"] for m in memory.short_term.get_conversation_history()]
    assert (len(kept), kept[0], kept[-1]) == (1_000, "message 5", "message 1004")
    assert len(retain.sessions.history("travel_agent", "sess_abc123")) == 1_005
    assert [m["content"] for m in retain.sessions.history("travel_agent", "sess_abc123", limit=2)] == [
        "message 1003",
        "message 1004",
    ]


def test_short_term_memory_is_recalled_by_meaning(memory: MemoryManager) -> None:
    memory.short_term.add_message("user", "We would like to travel by train")
    memory.short_term.add_message("user", "My sister plays the cello")
    assert memory.retrieve("music instruments", memory_type="short_term", top_k=1)[0]["content"].startswith("My sister")


def test_sessions_are_listed_with_the_latest_first(retain: Retain, clock: FakeClock) -> None:
    for session in ("first", "second"):
        retain.manager("user", "agent", session).short_term.add_message("user", "hello")
        clock.advance(hours=1)
    retain.manager("user", "other", "third").short_term.add_message("user", "hello")
    assert [s["session_id"] for s in retain.sessions.list("user")] == ["third", "second", "first"]
    assert [s["session_id"] for s in retain.sessions.list("user", "agent")] == ["second", "first"]
    assert retain.sessions.list("user")[0]["messages"] == 1


def test_another_process_sees_the_same_session(retain: Retain, memory: MemoryManager) -> None:
    memory.short_term.add_message("user", "hello")
    with Retain.open(home=retain.settings.home, clock=retain.parts.clock) as other:
        twin = other.manager("user_123", "travel_agent", "sess_abc123")
        assert [m["content"] for m in twin.short_term.get_conversation_history()] == ["hello"]
