"""Episodic retention: the per-agent policy, the three phases, the nightly job and recall after archival."""

from __future__ import annotations

import logging
import threading
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from clocks import FakeClock
from holdfast import EpisodicRetentionPolicy, Holdfast, MemoryManager, NotFoundError
from holdfast.core.records import Subject
from holdfast.recall.vectors import cosine, read_steps, widen

MESSAGES = [
    {"role": "user", "content": "How many days of annual leave do I have left in 2025?"},
    {"role": "assistant", "content": "You have 12 days of annual leave remaining."},
]
SUMMARY = "User inquired about the annual leave balance for 2025; 12 days were left."


def record(memory: MemoryManager) -> str:
    return memory.episodic.record_episode(
        "Answer a question about leave",
        ["looked up the balance"],
        messages=MESSAGES,
        tool_calls=[{"name": "hr.balance", "result": 12}],
        summary=SUMMARY,
    )


def found(memory: MemoryManager, query: str = "annual leave") -> list[str]:
    return [episode["episode_id"] for episode in memory.episodic.query_similar_episodes(query)]


# --- the policy -----------------------------------------------------------------------------------------------------


def test_ep_each_agent_has_a_policy_of_its_own(holdfast: Holdfast, clock: FakeClock) -> None:
    short, usual = holdfast.manager("user_123", "short"), holdfast.manager("user_123", "usual")
    holdfast.policies.set_episodic("short", EpisodicRetentionPolicy(10, 20), confirm=True)
    episodes = {memory: record(memory) for memory in (short, usual)}
    clock.advance(days=10)
    holdfast.sweep()
    assert short.episodic.get_messages(episodes[short]) == "archived"
    assert usual.episodic.get_messages(episodes[usual]) == MESSAGES
    clock.advance(days=10)
    holdfast.sweep()
    assert found(short) == []
    assert found(usual) == [episodes[usual]]


def test_ep_the_defaults_are_90_and_365_days_archive_then_delete() -> None:
    policy = EpisodicRetentionPolicy()
    assert (policy.active_retention_days, policy.archive_retention_days) == (90, 365)
    assert (policy.archive_on_expiry, policy.delete_after_archival_period) == (True, True)


def test_ep_without_archive_on_expiry_an_episode_is_deleted_at_the_end_of_its_active_time(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    holdfast.policies.set_episodic("travel_agent", EpisodicRetentionPolicy(archive_on_expiry=False), confirm=True)
    record(memory)
    clock.advance(days=90)
    assert holdfast.sweep().counts == {"archive": 0, "recycle": 1, "delete": 0}
    assert found(memory) == []


def test_ep_without_delete_after_archival_period_the_summary_stays(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    policy = EpisodicRetentionPolicy(delete_after_archival_period=False)
    holdfast.policies.set_episodic("travel_agent", policy, confirm=True)
    episode = record(memory)
    clock.advance(days=3_650)
    holdfast.sweep()
    assert found(memory) == [episode]


# --- the three phases -----------------------------------------------------------------------------------------------


def test_ep_up_to_90_days_everything_is_there(memory: MemoryManager, holdfast: Holdfast, clock: FakeClock) -> None:
    episode = record(memory)
    clock.advance(days=90, microseconds=-1)
    holdfast.sweep()
    assert memory.episodic.get_messages(episode) == MESSAGES
    assert memory.episodic.get_tool_calls(episode) == [{"name": "hr.balance", "result": 12}]
    assert memory.episodic.query_messages("how many days remain?", top_k=1)[0]["episode_id"] == episode
    assert found(memory) == [episode]


def test_ep_from_90_days_on_only_the_summary_and_its_embedding_are_kept(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    episode = record(memory)
    before = holdfast.services.records.entries(Subject("default", "user_123"), [episode])[episode]
    clock.advance(days=90)
    holdfast.sweep()
    record_after, encoding = holdfast.services.records.entries(Subject("default", "user_123"), [episode])[episode]
    assert record_after.content == SUMMARY
    assert not record_after.body
    assert encoding.vectors
    assert before.encoding.vectors is not None
    assert len(encoding.vectors) < len(before.encoding.vectors), "the messages' vectors are gone, the summary's is kept"
    kept, summary = encoding.vectors, before.encoding.vectors[: len(encoding.vectors)]
    assert cosine(widen(read_steps(kept, 1)[0]), widen(read_steps(summary, 1)[0])) == pytest.approx(1, abs=1e-3)


def test_ep_an_archived_episode_is_found_by_meaning_and_its_messages_answer_archived(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    episode = record(memory)
    clock.advance(days=91)
    holdfast.sweep()
    assert found(memory, "how much holiday is left") == [episode]
    assert memory.episodic.get_messages(episode) == "archived"
    assert memory.episodic.get_tool_calls(episode) == "archived"
    assert memory.episodic.query_messages("how many days remain?") == []


def test_ep_after_365_days_the_row_is_deleted(memory: MemoryManager, holdfast: Holdfast, clock: FakeClock) -> None:
    episode = record(memory)
    clock.advance(days=365)
    assert found(memory) == [], "at that instant, swept or not"
    holdfast.sweep()
    clock.advance(days=15)
    holdfast.sweep()
    assert holdfast.services.records.get(Subject("default", "user_123"), episode) is None
    with pytest.raises(NotFoundError):
        memory.get(episode)


# --- the nightly job ------------------------------------------------------------------------------------------------


def test_ep_the_job_runs_once_every_24_hours(holdfast: Holdfast, clock: FakeClock) -> None:
    holdfast.schedule.enrol()
    slots = []
    for _ in range(24 * 5):
        clock.advance(hours=1)
        slots += [run["slot"] for run in holdfast.schedule.run_due() if run["name"] == "episodes"]
    moments = [datetime.fromisoformat(slot) for slot in slots]
    assert len(slots) == 5
    assert {later - earlier for earlier, later in pairwise(moments)} == {timedelta(days=1)}


class HoursPass(threading.Event):
    """Lets an hour pass with each wait, and is set at a moment."""

    def __init__(self, clock: FakeClock, at: datetime) -> None:
        super().__init__()
        self._clock = clock
        self._at = at

    def wait(self, timeout: float | None = None) -> bool:
        del timeout
        self._clock.advance(hours=1)
        if self._clock() >= self._at:
            self.set()
        return self.is_set()


def states(holdfast: Holdfast, episodes: list[str]) -> list[str]:
    """What jobs have made of episodes, not what a reader would be told by now."""
    found = holdfast.services.records.entries(Subject("default", "user_123"), episodes)
    return [found[episode].record.state.value for episode in episodes]


def test_ep_the_job_goes_on_every_24_hours_until_it_is_told_to_stop(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast.schedule")
    for job in holdfast.schedule.list():
        holdfast.schedule.set(job["name"], enabled=job["name"] == "episodes")
    ended = (90.5, 89.5, 88.5, 86.5)
    episodes = [
        memory.episodic.record_episode(f"task {age}", ["step"], timestamp=clock() - timedelta(days=age))
        for age in ended
    ]

    holdfast.schedule.serve(HoursPass(clock, clock() + timedelta(days=3)))  # comes back because it was told to stop

    ran = [record.getMessage() for record in caplog.records if "the job episodes ran" in record.getMessage()]
    assert [message.split("slot of ")[1][:16] for message in ran] == [f"2026-01-{day}T02:00" for day in (16, 17)], (
        "once a day, and no word of a day on which nothing was due"
    )
    assert states(holdfast, episodes) == ["archived", "archived", "archived", "active"]
    told = HoursPass(clock, clock())
    told.set()
    clock.advance(days=3)
    holdfast.schedule.serve(told)
    assert states(holdfast, episodes)[-1] == "active", "nothing runs any more"


def test_ep_the_job_archives_what_ended_before_the_cutoff_and_deletes_what_is_older(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    holdfast.schedule.enrol()
    old, middle, new = (
        memory.episodic.record_episode(f"task {age}", ["step"], timestamp=clock() - timedelta(days=age))
        for age in (366, 91, 89)
    )
    clock.advance(days=1, hours=-1)  # the end of an episode counts, not when it was recorded
    holdfast.schedule.run_due()
    states = [holdfast.explain(episode)["state"] for episode in (old, middle, new)]
    assert states == ["recycled", "archived", "active"]


# --- recall after archival --------------------------------------------------------------------------------------------


def test_ep_an_agent_recalls_from_another_session_that_a_topic_was_discussed(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    record(memory)
    clock.advance(days=100)
    holdfast.sweep()
    later = holdfast.manager("user_123", "travel_agent", "another_session")
    (snippet,) = later.episodic.query_similar_episodes("leave balance")
    assert snippet["summary"] == SUMMARY


def test_ep_a_recalled_episode_has_id_summary_date_score_and_is_archived(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    ended = clock()
    episode = record(memory)
    clock.advance(days=100)
    holdfast.sweep()
    (snippet,) = memory.episodic.query_similar_episodes("annual leave balance")
    assert snippet["episode_id"] == episode
    assert snippet["summary"] == SUMMARY
    assert datetime.fromisoformat(snippet["date"]) == ended
    assert 0 < snippet["score"] <= 1
    assert snippet["is_archived"] is True
