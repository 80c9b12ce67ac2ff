"""The TTL document: idle conversations, the recycle bin, agents and tools, the daily job."""

from __future__ import annotations

import pytest

import raw
from clocks import FakeClock
from holdfast import ConflictError, Holdfast, MemoryManager, NotFoundError
from holdfast.core.records import Subject


def contents(holdfast: Holdfast, session_id: str = "sess_abc123") -> list[str]:
    history = holdfast.sessions.history("travel_agent", session_id, user_id="user_123")
    return [message["content"] for message in history]


def test_ttl_each_session_has_its_summary_and_its_last_activity(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    memory.short_term.add_message("user", "I want to fly to Vienna in May")
    clock.advance(hours=5)
    memory.short_term.add_message("assistant", "There is a morning flight on the 12th")
    (session,) = holdfast.sessions.list("user_123")
    assert (session["agent_id"], session["session_id"]) == ("travel_agent", "sess_abc123")
    assert "Vienna" in session["summary"]
    assert "morning flight" in session["summary"]
    assert session["updated_on"] == clock().isoformat()


def test_ttl_a_session_that_was_idle_for_30_days_goes_to_the_bin(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    memory.short_term.add_message("user", "hello")
    clock.advance(days=29)
    memory.short_term.add_message("user", "still there?")
    clock.advance(days=30, microseconds=-1)
    holdfast.sweep()
    assert contents(holdfast) == ["hello", "still there?"], "its last activity counts"
    clock.advance(microseconds=1)
    assert contents(holdfast) == [], "at that instant, swept or not"
    assert holdfast.sweep().counts["recycle"] == 1
    assert memory.short_term.get_conversation_history() == []


def test_ttl_an_idle_session_loses_its_short_term_records_as_well_however_long_they_could_live(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    holdfast.policies.set("short_term", delete_after_days=400)
    busy = holdfast.manager("user_123", "travel_agent", "busy")
    for each in (memory, busy):
        each.short_term.add_message("user", "hello")
    clock.advance(days=20)
    busy.short_term.add_message("user", "still here")
    clock.advance(days=10, microseconds=-1)
    assert len(memory.short_term.get_conversation_history()) == 1, "30 days are not over"
    clock.advance(microseconds=1)
    assert memory.short_term.get_conversation_history() == [], "at that instant, swept or not"

    holdfast.sweep()

    assert contents(holdfast) == []
    assert memory.short_term.get_conversation_history() == []
    assert memory.retrieve("hello", ["short_term"]) == []
    assert len(busy.short_term.get_conversation_history()) == 2, "another session is not idle"
    assert len(contents(holdfast, "busy")) == 2


def test_ttl_long_term_facts_of_the_session_stay(memory: MemoryManager, holdfast: Holdfast, clock: FakeClock) -> None:
    memory.short_term.add_message("user", "I like skiing")
    memory.add("Enjoys skiing", "long_term")
    clock.advance(days=31)
    holdfast.sweep()
    assert [found["content"] for found in memory.retrieve("skiing")] == ["Enjoys skiing"]


def test_ttl_removed_history_can_be_restored_for_15_days(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    memory.short_term.add_message("user", "hello")
    clock.advance(days=30)
    holdfast.sweep()
    (binned,) = holdfast.recycle.list()
    assert (binned["type"], binned["days_left"]) == ("session", 15)
    clock.advance(days=14)
    assert holdfast.recycle.restore(session_id="sess_abc123") == 1
    assert contents(holdfast) == ["hello"]


def test_ttl_after_15_days_in_the_bin_nothing_can_be_restored(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    memory_id = memory.add("Enjoys skiing")["memory_id"]
    memory.delete(memory_id)
    clock.advance(days=15)
    with pytest.raises(ConflictError, match="can no longer be restored"):
        memory.restore(memory_id)
    holdfast.sweep()
    with pytest.raises(NotFoundError):
        memory.restore(memory_id)
    assert holdfast.recycle.list() == []


def test_ttl_onboarding_an_agent_sets_up_its_place(holdfast: Holdfast) -> None:
    holdfast.agents.add("travel_agent", "Books flights", {"team": "mobility"})
    assert holdfast.agents.get("travel_agent")["description"] == "Books flights"
    assert [agent["agent_id"] for agent in holdfast.agents.list()] == ["travel_agent"]
    holdfast.agents.add("hotel_agent")
    for agent_id in ("travel_agent", "hotel_agent"):
        holdfast.manager("user_123", agent_id, "s").short_term.add_message("user", f"hello, {agent_id}")
    for agent_id in ("travel_agent", "hotel_agent"):
        assert [message["content"] for message in holdfast.sessions.history(agent_id, "s")] == [f"hello, {agent_id}"]


def test_ttl_a_deleted_agent_goes_to_the_bin_with_all_that_is_its_own(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    holdfast.agents.add("travel_agent")
    memory.short_term.add_message("user", "hello")
    persona = memory.add("Answers briefly", "persona")["memory_id"]
    fact = memory.add("Enjoys skiing", "long_term")["memory_id"]

    holdfast.agents.remove("travel_agent")
    assert contents(holdfast) == []
    with pytest.raises(NotFoundError):
        memory.get(persona)
    assert holdfast.manager("user_123", "another").get(fact)["content"] == "Enjoys skiing", "what a user knows stays"
    assert {item["type"] for item in holdfast.recycle.list()} == {"agent", "session", "memory"}

    holdfast.agents.restore("travel_agent")
    assert contents(holdfast) == ["hello"]
    assert memory.get(persona)["content"] == "Answers briefly"


def test_ttl_after_15_days_an_agent_is_gone_with_its_history(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    holdfast.agents.add("travel_agent")
    memory.short_term.add_message("user", "hello")
    persona = memory.add("Answers briefly", "persona")["memory_id"]
    holdfast.agents.remove("travel_agent")
    clock.advance(days=15)
    holdfast.sweep()
    assert holdfast.agents.list(include_removed=True) == []
    assert holdfast.recycle.list() == []
    assert holdfast.services.records.get(Subject("default", "user_123"), persona) is None
    for table in ("history", "sessions", "records", "registry"):
        assert raw.rows(holdfast, f"SELECT 1 FROM {table}") == [], "as if there had never been such an agent"  # noqa: S608
    with pytest.raises((ConflictError, NotFoundError)):
        holdfast.agents.restore("travel_agent")


def test_ttl_a_deleted_tool_is_in_the_bin_for_15_days_then_gone(holdfast: Holdfast, clock: FakeClock) -> None:
    holdfast.tools.add("calculator", "Adds numbers", {"version": 2})
    holdfast.tools.remove("calculator")
    assert holdfast.tools.list() == []
    assert [item["tool_id"] for item in holdfast.recycle.list()] == ["calculator"]
    assert holdfast.recycle.restore(tool_id="calculator") == 1
    assert holdfast.tools.get("calculator")["metadata"] == {"version": 2}

    holdfast.tools.remove("calculator")
    clock.advance(days=15)
    holdfast.sweep()
    assert holdfast.tools.list(include_removed=True) == []
    assert holdfast.recycle.list() == []


def test_ttl_the_bin_holds_records_conversations_tools_and_agents_alike(
    memory: MemoryManager, holdfast: Holdfast
) -> None:
    memory.delete(memory.add("Enjoys skiing")["memory_id"])
    memory.short_term.add_message("user", "hello")
    holdfast.sessions.remove("travel_agent", "sess_abc123")
    holdfast.tools.add("calculator")
    holdfast.tools.remove("calculator")
    holdfast.agents.add("another")
    holdfast.agents.remove("another")
    assert {item["type"] for item in holdfast.recycle.list()} == {"memory", "session", "tool", "agent"}
    assert {item["days_left"] for item in holdfast.recycle.list()} == {15}


def test_ttl_the_removals_run_every_day_at_three(memory: MemoryManager, holdfast: Holdfast, clock: FakeClock) -> None:
    holdfast.schedule.enrol()
    memory.short_term.add_message("user", "hello")
    clock.advance(days=30)
    holdfast.schedule.run_due()
    clock.advance(hours=15)  # 03:00 of the next day
    (run,) = [run for run in holdfast.schedule.run_due() if run["name"] == "daily"]
    assert run["slot"].endswith("T03:00:00+00:00")
    assert run["error"] is None
    assert [item["type"] for item in holdfast.recycle.list()] == ["session"]
    clock.advance(days=15)
    holdfast.schedule.run_due()
    assert holdfast.recycle.list() == []
