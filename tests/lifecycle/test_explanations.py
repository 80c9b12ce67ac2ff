"""Explanations: what is said of a message, of what a removed agent left, and of what is gone is what is so."""

from __future__ import annotations

import pytest

from clocks import FakeClock
from holdfast import Holdfast, MemoryManager
from holdfast.core.errors import HeldError, NotFoundError
from holdfast.core.values import iso


def now(holdfast: Holdfast) -> str:
    return iso(holdfast.services.now())


def test_a_message_that_was_restored_is_explained_as_live(holdfast: Holdfast, memory: MemoryManager) -> None:
    message = memory.short_term.add_message("user", "hello")
    memory.delete(message)
    binned = memory.explain(message)
    assert (binned["state"], binned["is_visible"], binned["days_left"]) == ("recycled", False, 15)
    assert (binned["removed_at"], binned["removed_because"]) == (now(holdfast), "deleted by the user")
    assert binned["next"]["action"] == "delete"  # type: ignore[index]
    assert "Deleted for good" not in binned["summary"]

    holdfast.recycle.restore(memory_id=message)

    said = memory.explain(message)
    assert (said["state"], said["is_visible"], said["memory_type"]) == ("active", True, "short_term")
    assert [entry["action"] for entry in said["history"]] == ["recycled", "restored"]
    assert said["summary"].startswith("This message is active. It is to be moved to the recycle bin on")


def test_a_message_lives_by_the_rule_of_its_session_when_its_short_term_window_is_over(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    holdfast.policies.set("history", agent_id="travel_agent", delete_after_days=10, confirm=True)
    first = memory.short_term.add_message("user", "hello")
    clock.advance(minutes=30)
    memory.short_term.add_message("assistant", "hi")
    active = holdfast.services.now()
    in_window = memory.explain(first)
    assert in_window["summary"].endswith("It leaves short-term memory 3600 seconds from now, unless a message comes.")
    clock.advance(hours=2)

    said = memory.explain(first)

    assert said == holdfast.explain(first, user_id="user_123")
    assert said["next"] == in_window["next"]
    assert said["next"]["action"] == "recycle"  # type: ignore[index]
    assert said["next"]["at"] == iso(active + 10 * 86_400 * 1_000_000)  # type: ignore[index]
    assert said["next"]["reason"].startswith(  # type: ignore[index]
        "10 days after its session was last active, by the agent's rule for history"
    )
    clock.advance(days=10)
    assert memory.explain(first)["is_visible"] is False
    assert "Its time was over" in memory.explain(first)["summary"]
    holdfast.sweep()
    assert memory.explain(first)["state"] == "recycled", "with its session"


def test_a_message_that_is_held_is_explained_with_its_hold(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    message, other = (memory.short_term.add_message("user", text) for text in ("keep this", "and that"))
    hold = holdfast.holds.add(memory_id=message, user_id="user_123", reason="Case 1", author="legal")
    with pytest.raises(HeldError):
        memory.delete(message)
    for said in (memory.explain(message), holdfast.explain(message, user_id="user_123"), memory.explain(other)):
        assert said["state"] == "active"
        assert [one["hold_id"] for one in said["protected_by"]] == [hold.id], "the session goes as a whole"
        assert "A hold keeps it until it is released: Case 1." in said["summary"]
    assert memory.explain(message)["history"][-1]["action"] == "refused"
    memory.delete(other)
    assert memory.explain(other)["protected_by"] == [], "what was deleted by itself goes by itself"


def test_a_message_that_is_gone_is_told_by_its_own_end_or_not_at_all(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    alone, along = (memory.short_term.add_message("user", text) for text in ("one", "two"))
    memory.delete(alone)
    memory.delete(along)
    holdfast.recycle.restore(memory_id=along)
    clock.advance(days=15)
    holdfast.sweep()
    assert memory.explain(alone)["state"] == "deleted"
    assert memory.explain(alone)["summary"].endswith(f"Deleted for good on {now(holdfast)}.")
    holdfast.sessions.remove("travel_agent", "sess_abc123")
    clock.advance(days=15)
    holdfast.sweep()
    with pytest.raises(NotFoundError, match=r"'restored' on .* went with its whole session"):
        memory.explain(along)
    with pytest.raises(NotFoundError, match="none of this id was ever removed"):
        holdfast.explain(along, user_id="somebody else")
    with pytest.raises(NotFoundError, match=r"of a message, .* say whose it is with user_id"):
        holdfast.explain(along)


def test_what_a_hold_keeps_of_a_removed_agent_is_said_to_follow_it(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    persona = memory.add("Speaks softly", "persona")["memory_id"]
    message = memory.short_term.add_message("user", "hello")
    hold = holdfast.holds.add(user_id="user_123", reason="Case 1", author="legal")
    clock.advance(days=1)
    removed = now(holdfast)
    until = holdfast.agents.remove("travel_agent")["purge_at"]
    clock.advance(days=1)

    for said in (memory.explain(persona), holdfast.explain(persona), memory.explain(message)):
        assert (said["state"], said["is_visible"]) == ("active", False)
        assert f"Its agent 'travel_agent' was removed on {removed}" in said["summary"]
        assert "A hold keeps it until it is released: Case 1." in said["summary"]
        assert "1970" not in said["summary"]
        assert "Nothing removes it" not in said["summary"]
        assert said["next"] == {
            "action": "recycle",
            "at": until,
            "due": False,
            "rule": "the removal of its agent",
            "reason": "its agent travel_agent was removed",
        }
    with pytest.raises(NotFoundError, match=f"agent 'travel_agent', which was removed on {removed[:10]}.* no hold"):
        memory.get(persona)

    holdfast.holds.release(hold.id)
    clock.advance(days=14)
    holdfast.sweep()
    assert memory.explain(persona)["state"] == "recycled", "as was said"
    assert memory.explain(message)["state"] == "recycled"
