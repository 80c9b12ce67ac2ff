"""RT-005, retention by kind: what holds of it so far."""

from __future__ import annotations

from clocks import FakeClock
from retain import MemoryManager, Retain


def test_rt_005_short_term_expires_after_an_hour(memory: MemoryManager, clock: FakeClock) -> None:
    memory.short_term.add_message("user", "test message")
    assert len(memory.short_term.get_conversation_history()) == 1

    clock.advance(seconds=3_601)

    assert memory.short_term.get_conversation_history() == []
    assert memory.short_term.get_ttl() is None
    assert memory.retrieve("test message", memory_type="short_term") == []


def test_rt_005_each_message_keeps_its_session_for_another_hour(memory: MemoryManager, clock: FakeClock) -> None:
    memory.short_term.add_message("user", "first")
    clock.advance(seconds=3_599)
    memory.short_term.add_message("assistant", "second")
    clock.advance(seconds=3_599)
    assert [m["content"] for m in memory.short_term.get_conversation_history()] == ["first", "second"]
    clock.advance(seconds=1)
    assert memory.short_term.get_conversation_history() == [], "gone at the very instant"


def test_rt_005_working_memory_ends_with_its_task(memory: MemoryManager) -> None:
    memory.add("current_task: book a flight", "working")
    memory.add("user prefers the morning", "working")

    assert memory.end_task() == 2
    assert memory.retrieve("flight", memory_type="working") == []
    assert memory.count_memories("working") == 0


def test_rt_005_the_conversation_outlives_the_short_term_window(
    memory: MemoryManager, retain: Retain, clock: FakeClock
) -> None:
    memory.short_term.add_message("user", "How much is a flight?")
    memory.short_term.add_message("assistant", "About 120 euros.")
    clock.advance(hours=2)

    assert memory.short_term.get_conversation_history() == []
    history = retain.sessions.history("travel_agent", "sess_abc123")
    assert [(m["role"], m["content"]) for m in history] == [
        ("user", "How much is a flight?"),
        ("assistant", "About 120 euros."),
    ]
