"""All that is known of a memory can be read at one place: its past, its present and what is to come, in any state."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from clocks import FakeClock
from holdfast import Holdfast, NotFoundError


def story(holdfast: Holdfast, memory_id: str) -> Any:
    return holdfast.life("ann", memory_id)


def actions(told: Any) -> list[str]:
    return [step["action"] for step in told["steps"]]


def test_every_step_of_a_memory_is_told_with_who_when_why_and_by_which_rule(
    holdfast: Holdfast, clock: FakeClock
) -> None:
    memory = holdfast.manager("ann", "guide")
    source = memory.add("Ann said that she lives in Leeds.", source="import:crm")["memory_id"]
    memory_id = memory.add("Ann lives in Leeds.", key="home", derived_from=[source])["memory_id"]
    made = memory.add("Ann lives in England.", derived_from=[memory_id])["memory_id"]
    clock.advance(days=1)
    with holdfast.acting_as("editor"):
        memory.correct(memory_id, "Ann lives in Lyon.", reason="She moved.")
    clock.advance(days=1)
    hold = holdfast.holds.add(user_id="ann", reason="Case 1", author="legal")
    clock.advance(days=1)
    holdfast.holds.release(hold.id, author="legal")
    clock.advance(days=1)
    memory.delete(memory_id)
    clock.advance(days=1)
    memory.restore(memory_id)
    told = story(holdfast, memory_id)
    assert actions(told) == ["added", "corrected", "hold.added", "hold.released", "recycled", "restored"]
    added, corrected, held, _, recycled, _ = told["steps"]
    assert added["actor"] == "agent:guide"
    assert (corrected["actor"], corrected["reason"]) == ("editor", "She moved.")
    assert (held["actor"], held["reason"]) == ("legal", "Case 1")
    assert (recycled["actor"], recycled["cause"], recycled["reason"]) == ("python", "user", "deleted by the user")
    assert [step["at"] for step in told["steps"]] == sorted(step["at"] for step in told["steps"])
    assert told["memory"]["content"] == "Ann lives in Lyon."
    assert told["memory"]["key"] == "home"
    assert [one["content"] for one in told["versions"]] == ["Ann lives in Leeds."]
    assert told["sources"] == [{"memory_id": source, "memory_type": "long_term", "state": "active"}]
    assert told["derived"] == [{"memory_id": made, "memory_type": "long_term", "state": "active"}]
    assert told["protected_by"] == []
    assert [one["action"] for one in told["coming"]] == ["archive"]
    assert told["coming"][0] == told["next"]


def test_what_is_to_come_is_told_to_the_end(holdfast: Holdfast, clock: FakeClock) -> None:
    memory = holdfast.manager("ann", "guide")
    episode = memory.episodic.record_episode("Book a train", ["looked"])
    told = story(holdfast, episode)
    assert [one["action"] for one in told["coming"]] == ["archive", "recycle", "delete"]
    assert told["memory"]["body"]["steps"]
    made, *due = (datetime.fromisoformat(at) for at in (told["created_at"], *(one["at"] for one in told["coming"])))
    assert [(at - made).days for at in due] == [90, 365, 380]
    clock.advance(days=91)
    holdfast.sweep()
    told = story(holdfast, episode)
    assert told["state"] == "archived"
    assert told["steps"][-1]["action"] == "archived"
    assert "90 days" in told["steps"][-1]["reason"]
    assert told["steps"][-1]["rule"]
    assert [one["action"] for one in told["coming"]] == ["recycle", "delete"]
    holdfast.holds.add(memory_id=episode, reason="Case 2", author="legal")
    assert [one["reason"] for one in story(holdfast, episode)["protected_by"]] == ["Case 2"]


def test_a_memory_in_the_bin_and_one_that_is_gone_have_their_story_too(holdfast: Holdfast, clock: FakeClock) -> None:
    memory = holdfast.manager("ann", "guide")
    memory_id = memory.add("Ann likes tea.")["memory_id"]
    memory.delete(memory_id)
    told = story(holdfast, memory_id)
    assert (told["state"], told["days_left"]) == ("recycled", 15)
    assert told["memory"]["content"] == "Ann likes tea."
    assert [one["action"] for one in told["coming"]] == ["delete"]
    clock.advance(days=16)
    holdfast.sweep()
    told = story(holdfast, memory_id)
    assert (told["state"], told["memory"], told["coming"]) == ("deleted", None, [])
    assert actions(told) == ["recycled", "deleted"]
    with pytest.raises(NotFoundError):
        holdfast.life("bob", memory_id)


def test_what_nobody_may_read_is_told_of_without_its_content(holdfast: Holdfast, clock: FakeClock) -> None:
    memory = holdfast.manager("ann", "guide")
    episode = memory.episodic.record_episode("Open the blue door", ["looked"])
    secret = memory.add("The code is 4711.")["memory_id"]
    memory.correct(secret, "The code is 4712.")
    memory.delete(secret, keep_out=True)
    clock.advance(days=366)
    for one, told in (("blue", story(holdfast, episode)), ("4712", story(holdfast, secret))):
        assert told["memory"] is None
        assert one not in str(told)
        assert told["summary"]
    assert story(holdfast, episode)["state"] == "active"
