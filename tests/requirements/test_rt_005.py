"""RT-005, retention by kind: what holds of it so far."""

from __future__ import annotations

import logging
import threading
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import raw
from clocks import FakeClock
from holdfast import Holdfast, MemoryManager, NotFoundError
from holdfast.core.errors import ObjectMissingError
from holdfast.core.records import Subject


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
    assert memory.short_term.get_ttl() == 3_600
    said = [(m["role"], m["content"]) for m in memory.short_term.get_conversation_history()]
    assert said == [("user", "first"), ("assistant", "second")], "in the order in which they were said"
    first, second = (datetime.fromisoformat(m["timestamp"]) for m in memory.short_term.get_conversation_history())
    assert (second, second - first) == (clock(), timedelta(seconds=3_599))
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
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    memory.short_term.add_message("user", "How much is a flight?")
    memory.short_term.add_message("assistant", "About 120 euros.")
    clock.advance(hours=2)

    assert memory.short_term.get_conversation_history() == []
    history = holdfast.sessions.history("travel_agent", "sess_abc123")
    assert [(m["role"], m["content"]) for m in history] == [
        ("user", "How much is a flight?"),
        ("assistant", "About 120 euros."),
    ]


# --- how long each kind lives -------------------------------------------------------------------------------------


def test_rt_005_long_term_has_no_expiry_and_is_archived_to_cold_storage_after_a_year(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock, home: Path
) -> None:
    memory_id = memory.add("Enjoys skiing", "long_term", {"topic": "sports"})["memory_id"]
    before = memory.get(memory_id)
    clock.advance(days=364)
    assert holdfast.sweep().counts == {"archive": 0, "recycle": 0, "delete": 0}
    assert [found["memory_id"] for found in memory.retrieve("skiing")] == [memory_id]

    clock.advance(days=1)
    assert holdfast.sweep().counts["archive"] == 1
    assert memory.retrieve("skiing") == [], "out of default recall"
    assert [found["memory_id"] for found in memory.retrieve("skiing", include_archived=True)] == [memory_id]
    assert list((home / "archive").rglob("*.pack")), "the content is in cold storage"

    clock.advance(days=3_650)
    holdfast.sweep()
    memory.rehydrate(memory_id)
    after = memory.get(memory_id)
    assert {**after, "updated_at": before["updated_at"]} == before, "whole, and there is no expiry"
    assert [found["memory_id"] for found in memory.retrieve("skiing", filters={"topic": "sports"})] == [memory_id]


def test_rt_005_persona_is_permanent_and_no_clean_up_touches_it(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    memory_id = memory.add("Answers briefly", "persona")["memory_id"]
    holdfast.policies.set("*", delete_after_days=1, confirm=True)
    clock.advance(days=36_500)
    holdfast.sweep(confirm=True)
    assert memory.get(memory_id)["content"] == "Answers briefly"
    assert memory.explain(memory_id)["next"] is None


def test_rt_005_entity_and_structured_are_cleaned_up_only_by_their_user(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    memory.entity.add("Maria", "person", {"city": "Porto"})
    memory.structured.put("bookings", {"nights": 3}, key="zrh")
    clock.advance(days=36_500)
    holdfast.sweep()
    assert memory.entity.get("Maria")["attributes"] == {"city": "Porto"}
    assert memory.structured.get("bookings", "zrh") == {"nights": 3}
    assert memory.entity.delete_user_entities("user_123") == 1
    assert memory.structured.delete_user_data("user_123") == 1
    assert memory.count_memories("entity") == memory.count_memories("structured") == 0


def test_rt_005_structured_is_archived_after_180_days(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    memory.structured.put("bookings", {"nights": 3}, key="zrh")
    clock.advance(days=180, seconds=-1)
    assert holdfast.sweep().counts["archive"] == 0
    clock.advance(seconds=1)
    assert holdfast.sweep().counts["archive"] == 1
    assert memory.structured.find("bookings") == []
    assert memory.structured.get("bookings", "zrh") == {"nights": 3}, "asked for by its key, it is read where it lies"


def test_rt_005_the_ttl_of_episodes_can_be_configured(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    explained = memory.explain(memory.episodic.record_episode("Book a flight", ["booked"]))
    assert explained["rules"]["archive_after_days"] == 7_776_000 / 86_400
    holdfast.policies.set("episodic", archive_after_days=10, delete_after_days=20, confirm=True)
    clock.advance(days=10)
    assert holdfast.sweep().counts == {"archive": 1, "recycle": 0, "delete": 0}
    clock.advance(days=10)
    assert holdfast.sweep().counts == {"archive": 0, "recycle": 1, "delete": 0}


# --- enforcement ----------------------------------------------------------------------------------------------------


def test_rt_005_archive_old_memories(memory: MemoryManager, holdfast: Holdfast, clock: FakeClock, home: Path) -> None:
    old = memory.add("Enjoys skiing")["memory_id"]
    holdfast.manager("another", "travel_agent").add("Enjoys sailing")
    clock.advance(days=366)
    new = memory.add("Skiing is fun with Maria")["memory_id"]

    assert memory.long_term.archive_old_memories() == 1
    assert [found["memory_id"] for found in memory.retrieve("skiing")] == [new]
    assert {f["memory_id"] for f in memory.retrieve("skiing", include_archived=True)} == {old, new}
    assert memory.long_term.archive_old_memories() == 0
    assert holdfast.manager("*", "*").long_term.archive_old_memories() == 1, "of all users"
    assert len(list((home / "archive").rglob("*.pack"))) == 2


def test_rt_005_what_archive_old_memories_takes_is_in_cold_storage_and_nowhere_else(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = "Enjoys skiing. " + " ".join(f"On day {n} of the holiday it snowed on hill {n * n}." for n in range(200))
    memory_id = memory.add(content, "long_term", {"topic": "sports"})["memory_id"]
    clock.advance(days=365, microseconds=-1)
    assert memory.long_term.archive_old_memories() == 0, "a year is not over"
    assert memory.retrieve("skiing", filters={"topic": "sports"})[0]["content"] == content
    before = raw.rows(holdfast, "SELECT content FROM records WHERE id = ?", (memory_id,))

    clock.advance(microseconds=1)
    with caplog.at_level(logging.INFO, "holdfast"):
        assert memory.long_term.archive_old_memories() == 1

    assert f"archived memory {memory_id} (long_term)" in caplog.text, "each is logged"
    ((left,),) = raw.rows(holdfast, "SELECT content FROM records WHERE id = ?", (memory_id,))
    assert len(left or b"") < len(before[0][0]) / 2, "the row keeps a summary"
    (pack,) = (home / "archive").rglob("*.pack")
    assert b"skiing" not in pack.read_bytes(), "sealed under its user's key"
    assert memory.retrieve("skiing") == [], "out of the recall index"
    pack.unlink()
    with pytest.raises(ObjectMissingError):
        memory.rehydrate(memory_id)


def test_rt_005_cleanup_old_episodes_takes_task_and_steps_and_logs_how_many(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    steps = ["compared the ferries", "booked a cabin"]
    episodes = [memory.episodic.record_episode(f"sail to Bergen {n}", steps) for n in range(2)]
    clock.advance(days=1)
    later = memory.episodic.record_episode("fly to Oslo", ["booked a seat"])
    clock.advance(days=89, microseconds=-1)
    assert memory.episodic.cleanup_old_episodes() == 0, "90 days are not over"
    assert memory.episodic.get_steps(episodes[0]) == [{"content": step} for step in steps]
    clock.advance(microseconds=1)

    with caplog.at_level(logging.INFO, "holdfast"):
        assert memory.episodic.cleanup_old_episodes() == 2

    assert "cleaned up 2 episodic memories" in caplog.text
    for episode in episodes:
        with pytest.raises(NotFoundError):
            memory.get(episode)
        with pytest.raises(NotFoundError):
            memory.episodic.get_steps(episode)
    assert [found["episode_id"] for found in memory.episodic.query_similar_episodes("sail to Bergen")] == [later]
    assert [found["memory_id"] for found in memory.retrieve("booked a cabin", ["episodic"])] == [later]
    clock.advance(days=15)
    holdfast.sweep()
    assert [holdfast.services.records.get(Subject("default", "user_123"), episode) for episode in episodes] == [
        None,
        None,
    ]


def test_rt_005_cleanup_old_episodes(memory: MemoryManager, holdfast: Holdfast, clock: FakeClock) -> None:
    ended = clock() - timedelta(days=91)
    memory.episodic.record_episode("old_task", ["a step", "another step"], timestamp=ended)
    fresh = memory.episodic.record_episode("new_task", ["a step"])
    other = holdfast.manager("user_123", "another_agent")
    other.episodic.record_episode("old_task of another agent", ["a step"], timestamp=ended)

    assert memory.episodic.cleanup_old_episodes() == 1
    assert [e["episode_id"] for e in memory.episodic.query_similar_episodes("old_task")] == [fresh]
    assert len(other.episodic.query_similar_episodes("old_task")) == 1
    assert holdfast.manager("*", "*").episodic.cleanup_old_episodes() == 1, "of all agents"
    assert other.episodic.query_similar_episodes("old_task") == []
    assert len(holdfast.recycle.list()) == 2, "a mistake can be undone for 15 days"


def test_rt_005_delete_user_memories(
    memory: MemoryManager, holdfast: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    def fill(user_id: str) -> None:
        other = holdfast.manager(user_id, "travel_agent", "sess_1")
        for kind in ("working", "short_term", "long_term", "persona", "episodic", "entity"):
            other.add(f"a memory of {kind}", kind)
        other.add({"document": True}, "structured")

    fill("alice")
    fill("bob")
    with caplog.at_level(logging.INFO, "holdfast"):
        assert memory.delete_user_memories("alice", "long_term") == 1
    assert "1 long_term memories" in caplog.text
    assert memory.delete_user_memories("alice") == 6
    assert memory.delete_user_memories("alice") == 0

    alice, bob = (holdfast.manager(user, "travel_agent", "sess_1") for user in ("alice", "bob"))
    kinds = ("working", "short_term", "long_term", "persona", "episodic", "entity", "structured")
    assert [alice.count_memories(kind) for kind in kinds] == [0] * 7
    assert [bob.count_memories(kind) for kind in kinds] == [1] * 7
    assert holdfast.sessions.history("travel_agent", "sess_1", user_id="alice") == []
    assert len(holdfast.sessions.history("travel_agent", "sess_1", user_id="bob")) == 1


# --- the schedule ---------------------------------------------------------------------------------------------------


def test_rt_005_short_term_needs_no_job(memory: MemoryManager, clock: FakeClock) -> None:
    memory.short_term.add_message("user", "hello")
    clock.advance(seconds=3_600)
    assert memory.short_term.get_conversation_history() == [], "though nothing has run"


def test_rt_005_episodes_are_cleaned_up_every_day_at_two(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    holdfast.schedule.enrol()
    episodes = [
        holdfast.manager("user_123", agent).episodic.record_episode("Book a flight", ["booked"]) for agent in ("a", "b")
    ]
    clock.advance(days=90)
    holdfast.schedule.run_due()
    clock.advance(hours=13, minutes=59)  # 01:59 of the next day
    assert "episodes" not in {run["name"] for run in holdfast.schedule.run_due()}
    clock.advance(minutes=1)
    (run,) = [run for run in holdfast.schedule.run_due() if run["name"] == "episodes"]
    assert run["slot"].endswith("T02:00:00+00:00")
    assert [holdfast.explain(episode)["state"] for episode in episodes] == ["archived", "archived"], "of all agents"


def test_rt_005_long_term_is_archived_every_sunday_at_three(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    holdfast.schedule.enrol()
    memory_ids = [holdfast.manager(user, "agent").add("Enjoys skiing")["memory_id"] for user in ("alice", "bob")]
    clock.advance(days=365)
    slots = []
    for _ in range(8):
        clock.advance(days=1)
        slots += [run["slot"] for run in holdfast.schedule.run_due() if run["name"] == "archive"]
    assert slots[-1] == "2027-01-17T03:00:00+00:00", "a Sunday"
    assert [holdfast.explain(memory_id)["state"] for memory_id in memory_ids] == ["archived", "archived"], (
        "of all users"
    )


class Waits(threading.Event):
    """Told to stop after so many waits; while somebody waits, that time passes."""

    def __init__(self, clock: FakeClock, most: int) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self._clock = clock
        self._most = most

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None, "nobody waits for ever"
        self.seconds.append(timeout)
        self._clock.advance(seconds=timeout)
        if len(self.seconds) == self._most:
            self.set()
        return self.is_set()


def test_rt_005_who_serves_the_schedule_looks_for_due_jobs_more_often_than_once_an_hour(
    holdfast: Holdfast, clock: FakeClock
) -> None:
    for job in holdfast.schedule.list():
        holdfast.schedule.set(job["name"], enabled=job["name"] == "daily")
    assert holdfast.schedule.list()[3]["next_run"] == "2026-01-16T03:00:00+00:00", "nothing is due for hours"
    waits = Waits(clock, 200)
    holdfast.schedule.serve(waits, poll_seconds=86_400)
    assert max(waits.seconds) <= 3_600, "even if nothing is due, and whoever serves it would rather sleep"

    holdfast.schedule.set("daily", cron="0 * * * *")
    started = clock()
    waits = Waits(clock, 300)
    holdfast.schedule.serve(waits, poll_seconds=86_400)
    (job,) = [job for job in holdfast.schedule.list() if job["enabled"]]
    assert clock() - started > timedelta(hours=2)
    assert clock() - datetime.fromisoformat(str(job["last_slot"])) < timedelta(hours=1), "and what is due is run"


# --- metrics --------------------------------------------------------------------------------------------------------


def test_rt_005_metrics(memory: MemoryManager, holdfast: Holdfast, clock: FakeClock) -> None:
    memory.add("Enjoys skiing in winter", "long_term")
    memory.delete(memory.add("A mistake", "long_term")["memory_id"])
    memory.episodic.record_episode("Book a flight", ["booked"])
    clock.advance(days=90)
    holdfast.sweep()

    families = {family.name: family for family in text_string_to_metric_families(holdfast.metrics().decode())}
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert families["memory_archived"].type == families["memory_deleted"].type == "counter"
    assert samples["memory_archived_total", "episodic"] == 1
    assert samples["memory_deleted_total", "long_term", "user"] == 1
    assert families["memory_storage_bytes"].type == "gauge"
    assert samples["memory_storage_bytes", "long_term"] == len("Enjoys skiing in winter")
    assert families["memory_age_days"].type == "histogram"
    assert samples["memory_age_days_count", "long_term"] == 1
    assert samples["memory_age_days_sum", "long_term"] == 90
    assert samples["memory_age_days_bucket", "60", "long_term"] == 0
    assert samples["memory_age_days_bucket", "90", "long_term"] == 1


def test_rt_005_an_episode_of_91_days_ago_is_cleaned_up(memory: MemoryManager, clock: FakeClock) -> None:
    memory.episodic.record_episode("old_task", steps=["a step"], timestamp=clock().timestamp() - 91 * 24 * 3_600)
    memory.episodic.cleanup_old_episodes()
    assert memory.episodic.query_similar_episodes("old_task") == []


def test_rt_005_gdpr_delete_takes_every_kind_of_every_agent_and_counts_by_kind(
    holdfast: Holdfast, memory: MemoryManager
) -> None:
    fill_every_kind(memory)
    holdfast.manager("user_123", "another_agent").persona.add("is brief")
    holdfast.manager("user_456", "travel_agent").add("someone else's", "long_term")

    counts = holdfast.gdpr_delete_user_data("user_123")

    assert {kind: count for kind, count in counts.items() if count} == {
        "long_term": 1,
        "persona": 2,
        "episodic": 1,
        "entity": 1,
        "structured": 1,
        "short_term": 1,
    }
    assert all(
        memory.count_memories(kind) == 0 for kind in ("long_term", "persona", "episodic", "entity", "structured")
    )
    assert holdfast.manager("user_456", "travel_agent").count_memories("long_term") == 1


def test_rt_005_gdpr_delete_leaves_an_audit_entry_with_the_counts(holdfast: Holdfast, memory: MemoryManager) -> None:
    fill_every_kind(memory)

    holdfast.gdpr_delete_user_data("user_123")

    entry = next(entry for entry in holdfast.audit.tail() if entry["action"] == "erased")
    assert entry["detail"]["kinds"] == {"long_term": 1, "persona": 1, "episodic": 1, "entity": 1, "structured": 1}
    assert "user_123" not in str(entry)
    assert holdfast.audit.verify()


def test_rt_005_gdpr_export_gives_everything_by_kind(holdfast: Holdfast, memory: MemoryManager) -> None:
    fill_every_kind(memory)

    exported = holdfast.gdpr_export_user_data("user_123")

    assert exported["user_id"] == "user_123"
    assert datetime.fromisoformat(exported["export_date"]).tzinfo is not None
    assert {kind: len(found) for kind, found in exported["memories"].items() if kind != "short_term" and found} == {
        "long_term": 1,
        "persona": 1,
        "episodic": 1,
        "entity": 1,
        "structured": 1,
    }


def fill_every_kind(memory: MemoryManager) -> None:
    memory.add("likes the window seat", "long_term")
    memory.persona.add("is friendly")
    memory.episodic.record_episode("book a flight", ["searched", "booked"])
    memory.entity.add("Oslo", "city")
    memory.structured.put("trips", {"to": "Oslo"}, key="1")
    memory.short_term.add_message("user", "hello")
