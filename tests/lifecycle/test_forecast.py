"""The forecast says for each day what the plan for that moment says, whatever is kept, held or set aside."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clocks import FakeClock
from effort import times
from holdfast import Holdfast
from holdfast.lifecycle.sweeping import due

DAYS = 40


def check(holdfast: Holdfast, clock: FakeClock, every: int = 5, *, confirm: bool = False) -> Any:
    """Compare the forecast with the plan for each of its days."""
    forecast = holdfast.forecast(DAYS, confirm=confirm)["days"]
    assert len(forecast) == DAYS + 1
    for day in range(0, DAYS + 1, every):
        plan: Any = holdfast.sweep(dry_run=True, at=clock() + timedelta(days=day), confirm=confirm)
        said = plan.to_dict(0)
        found: Any = {**forecast[day], "set_aside": sorted(forecast[day]["set_aside"], key=str)}
        del found["new"]
        expected = {name: said[name] for name in found}
        assert found == {**expected, "set_aside": sorted(expected["set_aside"], key=str)}, f"day {day}"
    return forecast


def fill(holdfast: Holdfast, clock: FakeClock) -> None:
    """People with memories of many ages, some of them in the bin."""
    for number in range(12):
        user, agent = f"user{number % 3}", f"agent{number % 2}"
        memory = holdfast.manager(user, agent, f"s{number}")
        memory.episodic.record_episode(f"Task {number}", ["looked"])
        memory.short_term.add_message("user", f"Hello {number}")
        ids = memory.add_many([f"Note {number}.{place}" for place in range(4)])["memory_ids"]
        if number % 3 == 0:
            memory.delete(ids[0])
            memory.correct(ids[1], "Another note")
        clock.advance(days=7.3)
    holdfast.policies.set("long_term", archive_after_days=60, delete_after_days=75, confirm=True)
    holdfast.policies.set("long_term", user_id="user1", delete_after_days=100.5, confirm=True)


def test_each_day_is_what_the_plan_for_it_says(
    holdfast: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(holdfast, clock)
    forecast = check(holdfast, clock)
    assert {line["action"] for line in forecast[-1]["lines"]} == {"archive", "recycle", "delete"}
    assert sum(day["new"]["recycle"] for day in forecast) == forecast[-1]["counts"]["recycle"] > 0
    holdfast.holds.add(user_id="user2", reason="Case", author="legal")
    assert check(holdfast, clock, 20)[-1]["held"] > 0
    monkeypatch.setattr(due, "_MANY", 3)
    monkeypatch.setattr(due, "_PART", 3)
    aside = check(holdfast, clock, 8)[-1]["set_aside"]
    assert {one["user_id"] for one in aside} - {None}
    check(holdfast, clock, 20, confirm=True)


@pytest.mark.parametrize("whose", [{"agent_id": "agent1"}, {"session_id": "s3"}, {"tag": "case"}, {}], ids=str)
def test_what_has_to_be_looked_at_one_by_one_is_the_same_too(
    holdfast: Holdfast, clock: FakeClock, whose: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tagged = holdfast.manager("user1", "agent0", "s1").add("On the case", metadata={"tags": ["case"]})["memory_id"]
    fill(holdfast, clock)
    said = holdfast.manager("user2", "agent0", "s2").short_term.add_message("user", "Keep this")
    holdfast.holds.add(**(whose or {"memory_id": tagged}), reason="Case", author="legal")
    assert check(holdfast, clock, 8)[-1]["held"] > 0
    holdfast.holds.add(memory_id=said, user_id="user2", reason="Case", author="legal")
    holdfast.holds.add(user_id="user0", reason="Case", author="legal")
    monkeypatch.setattr(due, "_MANY", 1)
    monkeypatch.setattr(due, "_PART", 20)
    assert check(holdfast, clock, 20)[-1]["set_aside"]
    check(holdfast, clock, 40, confirm=True)


def test_agents_that_would_lose_too_much_and_what_leaves_beside_memories_are_the_same(
    holdfast: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(holdfast, clock)
    holdfast.policies.set("episodic", delete_after_days=50, archive_after_days=30, confirm=True)
    holdfast.policies.set("long_term", delete_after_days=1_000, versions=0, confirm=True)
    holdfast.agents.add("agent7", "One of them")
    holdfast.tools.add("tool", "Another")
    holdfast.tools.remove("tool")
    memory = holdfast.manager("user2", "agent1", "s11")
    memory.short_term.add_message("user", "Hello again")
    memory.short_term.pop_message()
    monkeypatch.setattr(due, "_MANY", 3)
    monkeypatch.setattr(due, "_PART", 2)
    aside = check(holdfast, clock, 8)[-1]["set_aside"]
    assert {one["agent_id"] for one in aside} - {None}


@settings(max_examples=times(4), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_is_kept_the_days_sum_up_to_the_plan(
    holdfast: Holdfast, clock: FakeClock, data: st.DataObject
) -> None:
    memory = holdfast.manager(f"user{data.draw(st.integers(0, 3))}", "guide", "s1")
    for _ in range(data.draw(st.integers(1, 4))):
        memory.add_many(["A note"] * data.draw(st.integers(1, 5)))
        memory.episodic.record_episode("Task", ["looked"])
        clock.advance(hours=data.draw(st.integers(1, 900)))
    archive = data.draw(st.integers(1, 60))
    delete = archive + data.draw(st.integers(1, 60))
    holdfast.policies.set("long_term", archive_after_days=archive, delete_after_days=delete, confirm=True)
    check(holdfast, clock, 13)
