"""Where two things meet: a rule and a sweep under way, a hold and an update, the quota and what is past its time."""

from __future__ import annotations

from pathlib import Path

import pytest

from clocks import FakeClock
from holdfast import (
    ConfirmationNeededError,
    HeldError,
    Holdfast,
    InvalidRuleError,
    MemoryManager,
    ObjectStoreError,
    PlanChangedError,
    QuotaExceededError,
)
from holdfast.lifecycle.sweeping import batches


def test_a_rule_that_changes_while_a_sweep_goes_on_is_the_one_it_goes_on_by(
    holdfast: Holdfast, clock: FakeClock, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_FIRST", 1)
    monkeypatch.setattr(batches, "_MOST", 1)
    messages = [{"role": "user", "content": "remember this"}]
    people = [holdfast.manager(user_id, "guide") for user_id in ("ann", "bob", "cy")]
    episodes = [memory.episodic.record_episode("a task", messages=messages) for memory in people]
    clock.advance(days=90)
    archived: list[int] = []

    def progress(count: int) -> None:
        archived.append(count)
        if len(archived) == 1:
            with Holdfast.open(home=home, clock=clock) as other:
                other.policies.set("episodic", archive_after_days="never", delete_after_days="never")

    count = holdfast.sweep(progress=progress).counts["archive"]
    assert 1 <= count <= holdfast.services.records.writers, "what was under way is finished"
    found = [memory.episodic.get_messages(episode) for memory, episode in zip(people, episodes, strict=True)]
    kept = [found == messages for found in found]
    assert kept.count(True) == len(people) - count, "kept in full, as the new rule says"


def test_a_plan_is_not_carried_out_by_rules_that_came_after_it(
    holdfast: Holdfast, clock: FakeClock, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_FIRST", 1)
    monkeypatch.setattr(batches, "_MOST", 1)
    people = [holdfast.manager(user_id, "guide") for user_id in ("ann", "bob", "cy", "dee", "eve")]
    episodes = [memory.episodic.record_episode("a task", ["a step"]) for memory in people]
    clock.advance(days=90)
    plan = holdfast.sweep(dry_run=True)

    def progress(_count: int) -> None:
        with Holdfast.open(home=home, clock=clock) as other:
            other.policies.set("episodic", archive_after_days=10, delete_after_days=20, confirm=True)

    with pytest.raises(PlanChangedError, match="rules were changed"):
        holdfast.sweep(digest=plan.digest, progress=progress)
    states = {holdfast.explain(episode)["state"] for episode in episodes}
    assert states == {"active", "archived"}, "none was removed, which the plan did not say"


def test_a_tag_cannot_be_taken_off_while_a_hold_stands_on_it(memory: MemoryManager, holdfast: Holdfast) -> None:
    memory_id = memory.add("Paid the invoice", "long_term", {"case": "4711"})["memory_id"]
    hold = holdfast.holds.add(tag="case=4711", reason="court case", author="legal")
    for metadata in ({}, {"case": "0000"}):
        with pytest.raises(HeldError, match=hold.id):
            memory.update(memory_id, metadata=metadata)
    memory.update(memory_id, "Paid the invoice on 3 May", {"case": "4711", "corrected": True})
    holdfast.holds.release(hold.id)
    memory.update(memory_id, metadata={})


def test_what_is_past_its_time_does_not_take_the_place_of_what_is_new(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    holdfast.quotas.set("episodic", max_memories=2)
    memory.add_many(["one", "two"], "episodic")
    with pytest.raises(QuotaExceededError):
        memory.add("three", "episodic")
    clock.advance(days=365)
    memory.add("three", "episodic")
    assert memory.count_memories("episodic") == 1
    assert len(holdfast.recycle.list()) == 2


def test_cleaning_up_leaves_what_a_rule_keeps(memory: MemoryManager, holdfast: Holdfast, clock: FakeClock) -> None:
    holdfast.policies.set("episodic", keep_days=1_000)
    memory.episodic.record_episode("Book a flight", ["booked"])
    clock.advance(days=400)
    assert memory.episodic.cleanup_old_episodes() == 0
    clock.advance(days=600)
    assert memory.episodic.cleanup_old_episodes() == 1


def test_a_rule_that_keeps_less_long_asks_first(holdfast: Holdfast) -> None:
    holdfast.policies.set("long_term", keep_days=1_000)
    with pytest.raises(ConfirmationNeededError):
        holdfast.policies.set("long_term", keep_days=10)
    with pytest.raises(ConfirmationNeededError):
        holdfast.policies.remove("long_term")


def test_a_user_gets_single_messages_back_too(memory: MemoryManager, holdfast: Holdfast) -> None:
    memory.short_term.add_message("user", "first")
    second = memory.short_term.add_message("user", "second")
    memory.short_term.delete(second)
    assert holdfast.recycle.restore(user_id="user_123") == 1
    assert [m["content"] for m in memory.short_term.get_full_history()] == ["first", "second"]


def test_without_cold_storage_everything_else_is_looked_after(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock, home: Path
) -> None:
    memory.add("Enjoys skiing", "long_term")
    message = memory.short_term.add_message("user", "hello")
    memory.short_term.delete(message)
    holdfast.tools.add("calculator")
    holdfast.tools.remove("calculator")
    clock.advance(days=365)
    (home / "archive").write_text("a file where the folder should be")
    with pytest.raises(ObjectStoreError):
        holdfast.sweep()
    assert holdfast.tools.list(include_removed=True) == []
    assert [item["type"] for item in holdfast.recycle.list()] == ["session"], (
        "the message is gone, the idle session came"
    )
    assert memory.retrieve("skiing", include_archived=True), "and nothing is lost"


def test_forever_is_for_keeping_and_never_for_the_others(holdfast: Holdfast) -> None:
    with pytest.raises(InvalidRuleError, match='"forever"'):
        holdfast.policies.set("long_term", keep_days="never")
    with pytest.raises(InvalidRuleError, match='"never"'):
        holdfast.policies.set("long_term", delete_after_days="forever")
    with pytest.raises(InvalidRuleError, match="which kind"):
        holdfast.policies.get("*")


def test_many_narrow_rules_cost_what_they_are_for(holdfast: Holdfast) -> None:
    for n in range(40):
        holdfast.policies.set("long_term", user_id=f"user_{n}", keep_days=10 + n)
    lives = {holdfast.policies.get("long_term", user_id=f"user_{n}")["keep_days"] for n in range(40)}
    assert lives == {10 + n for n in range(40)}
