"""Episodic memory: what an agent went through."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from clocks import FakeClock
from holdfast import InvalidContentError, InvalidInputError, MemoryManager, NotFoundError

MESSAGES = [
    {"role": "user", "content": "How many days of annual leave do I have left in 2025?"},
    {"role": "assistant", "content": "You have 12 days of annual leave remaining."},
    {"role": "user", "content": "And can I carry them over to next spring?"},
]


def test_an_episode_is_kept_with_everything_that_happened(memory: MemoryManager, clock: FakeClock) -> None:
    episode = memory.episodic.record_episode(
        "Answer a question about leave",
        ["looked up the balance", {"content": "answered", "ok": True}],
        messages=MESSAGES,
        tool_calls=[{"name": "hr.balance", "arguments": {"year": 2025}, "result": 12}],
        timestamp=clock() - timedelta(days=2),
    )
    assert memory.episodic.get_messages(episode) == MESSAGES
    assert memory.episodic.get_steps(episode) == [
        {"content": "looked up the balance"},
        {"content": "answered", "ok": True},
    ]
    tool_calls = memory.episodic.get_tool_calls(episode)
    assert isinstance(tool_calls, list)
    assert tool_calls[0]["result"] == 12
    assert memory.get(episode)["task"] == "Answer a question about leave"


def test_similar_episodes_are_found_with_summary_date_and_score(memory: MemoryManager, clock: FakeClock) -> None:
    leave = memory.episodic.record_episode("Answer a question about leave", messages=MESSAGES)
    memory.episodic.record_episode("Order office chairs", ["compared prices", "ordered six chairs"])
    found = memory.episodic.query_similar_episodes("holiday balance carried over", top_k=1)
    assert [set(f) for f in found] == [{"episode_id", "task", "summary", "date", "score", "is_archived"}]
    assert found[0]["episode_id"] == leave
    assert found[0]["date"] == clock().isoformat()
    assert found[0]["is_archived"] is False
    assert 0 <= found[0]["score"] <= 1


def test_a_summary_is_made_without_a_language_model(memory: MemoryManager) -> None:
    episode = memory.episodic.record_episode("Answer a question about leave", messages=MESSAGES * 10)
    summary = memory.get(episode)["content"]
    assert "leave" in summary
    assert len(summary) < sum(len(m["content"]) for m in MESSAGES * 10) / 2


def test_a_given_summary_is_kept(memory: MemoryManager) -> None:
    episode = memory.episodic.record_episode("Task", summary="The user has 12 days of leave.")
    assert memory.get(episode)["content"] == "The user has 12 days of leave."


def test_single_messages_are_recalled_from_episodes(memory: MemoryManager) -> None:
    leave = memory.episodic.record_episode("Answer a question about leave", messages=MESSAGES)
    memory.episodic.record_episode("Order chairs", messages=[{"role": "user", "content": "Six blue chairs, please"}])
    found = memory.episodic.query_messages("carry over leave into spring", top_k=2)
    assert (found[0]["episode_id"], found[0]["position"]) == (leave, 2)
    assert found[0]["content"] == MESSAGES[2]["content"]


def test_an_episode_is_found_by_what_was_said_in_it(memory: MemoryManager) -> None:
    hidden = memory.episodic.record_episode(
        "Plan the week",
        messages=[*({"role": "user", "content": f"Item {n} is routine work as usual"} for n in range(60)),
                  {"role": "user", "content": "Uncle Theodor collects antique barometers"}],
        summary="Routine planning.",
    )  # fmt: skip
    memory.episodic.record_episode("Plan the month", summary="Routine planning of the month.")
    assert memory.episodic.query_similar_episodes("antique barometers", top_k=1)[0]["episode_id"] == hidden


def test_an_episode_dates_from_its_end(memory: MemoryManager) -> None:
    ended = datetime(2025, 3, 14, 9, 30, tzinfo=UTC)
    for timestamp in (ended, ended.timestamp(), ended.isoformat()):
        episode = memory.episodic.record_episode("Old task", timestamp=timestamp)
        found = {f["episode_id"]: f for f in memory.episodic.query_similar_episodes("old task", top_k=10)}
        assert found[episode]["date"] == ended.isoformat()


def test_what_makes_no_episode_is_refused(memory: MemoryManager, clock: FakeClock) -> None:
    with pytest.raises(InvalidInputError, match="in the future"):
        memory.episodic.record_episode("Task", timestamp=clock() + timedelta(days=1))
    with pytest.raises(InvalidInputError, match="no time zone"):
        memory.episodic.record_episode("Task", timestamp=datetime(2025, 1, 1))  # noqa: DTZ001 - that is the point
    with pytest.raises(InvalidContentError, match="steps must be a list"):
        memory.episodic.record_episode("Task", "one step")
    with pytest.raises(InvalidContentError, match=r"messages\[1\]"):
        memory.episodic.record_episode("Task", messages=["fine", 7])  # type: ignore[list-item]
    with pytest.raises(InvalidContentError, match="not JSON"):
        memory.episodic.record_episode("Task", [{"when": clock()}])
    with pytest.raises(InvalidContentError):
        memory.episodic.record_episode("")
    with pytest.raises(NotFoundError):
        memory.episodic.get_messages("no such episode")
    assert memory.count_memories("episodic") == 0


def test_another_kind_of_memory_has_no_messages(memory: MemoryManager) -> None:
    fact = memory.add("a fact", "long_term")["memory_id"]
    with pytest.raises(NotFoundError, match="no episodic memory"):
        memory.episodic.get_messages(fact)
