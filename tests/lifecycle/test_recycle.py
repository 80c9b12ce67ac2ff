"""The recycle bin: what was removed, for 15 days, restorable to exactly what it was."""

from __future__ import annotations

import pytest

import raw
from clocks import FakeClock
from holdfast import Holdfast, MemoryManager
from holdfast.core.errors import AgentRemovedError, ConflictError, InvalidInputError, NotFoundError, QuotaExceededError
from holdfast.core.records import Subject
from holdfast.core.values import unpack
from lifecycle.soundness import check_sound

KINDS = ("long_term", "persona", "episodic", "entity", "structured")


def in_bin(holdfast: Holdfast) -> set[str]:
    return {item["memory_id"] for item in holdfast.recycle.list() if "memory_id" in item}


def add(memory: MemoryManager, kind: str) -> str:
    content = {"city": "Rome"} if kind == "structured" else "Ann lives in Rome"
    memory_id: str = memory.add(content, kind, {"n": 1})["memory_id"]
    return memory_id


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_deleted_is_out_of_recall_and_quota_and_comes_back_exactly(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock, kind: str
) -> None:
    memory_id = add(memory, kind)
    before = memory.get(memory_id)
    (entry,) = holdfast.services.records.entries(Subject("default", "user_123"), [memory_id]).values()
    memory.delete(memory_id)
    assert memory.retrieve("Rome", [kind]) == []
    assert memory.count_memories(kind) == 0
    with pytest.raises(NotFoundError, match="recycle bin"):
        memory.get(memory_id)
    (item,) = holdfast.recycle.list()
    assert (item["memory_id"], item["memory_type"], item["days_left"]) == (memory_id, kind, 15)
    clock.advance(days=14, hours=1)
    assert holdfast.recycle.list()[0]["days_left"] == 1
    assert holdfast.recycle.restore(memory_id=memory_id) == 1
    assert memory.get(memory_id) == before
    (again,) = holdfast.services.records.entries(Subject("default", "user_123"), [memory_id]).values()
    assert again.encoding == entry.encoding
    assert again.record.aged_from == entry.record.aged_from
    assert holdfast.recycle.list() == []
    check_sound(holdfast)


def test_the_bin_is_emptied_of_what_has_had_its_time_and_of_nothing_else(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    old, young = add(memory, "long_term"), add(memory, "long_term")
    memory.delete(old)
    clock.advance(days=1)
    memory.delete(young)
    clock.advance(days=14)
    assert holdfast.recycle.purge() == {"long_term": 1}
    assert in_bin(holdfast) == {young}
    assert holdfast.recycle.purge() == {}
    assert memory.restore(young)
    check_sound(holdfast)


def test_what_a_rule_removed_stays_in_the_bin_for_15_days_from_when_it_was_removed(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    holdfast.policies.set("long_term", delete_after_days=10, confirm=True)
    memory_id = add(memory, "long_term")
    clock.advance(days=100)
    holdfast.sweep()
    (item,) = holdfast.recycle.list()
    assert item["days_left"] == 15
    clock.advance(days=14)
    assert memory.restore(memory_id)["content"]


def test_a_plan_that_is_carried_out_late_still_gives_the_bin_its_15_days(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    holdfast.policies.set("long_term", delete_after_days=10, confirm=True)
    memory_id = add(memory, "long_term")
    clock.advance(days=10)
    plan = holdfast.sweep(dry_run=True)
    clock.advance(days=20)
    holdfast.sweep(digest=plan.digest)
    (item,) = holdfast.recycle.list()
    assert item["days_left"] == 15
    assert memory.restore(memory_id)["content"]


def test_what_is_restored_past_its_time_lives_for_its_time_again(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    holdfast.policies.set("long_term", delete_after_days=10, confirm=True)
    memory_id = add(memory, "long_term")
    clock.advance(days=10)
    holdfast.sweep()
    memory.restore(memory_id)
    assert memory.retrieve("Rome")
    assert holdfast.sweep().total == 0
    clock.advance(days=10)
    assert not memory.retrieve("Rome")
    assert holdfast.sweep().counts["recycle"] == 1


def test_what_is_restored_within_its_time_keeps_its_age(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    holdfast.policies.set("long_term", delete_after_days=10, confirm=True)
    memory_id = add(memory, "long_term")
    memory.delete(memory_id)
    clock.advance(days=9)
    memory.restore(memory_id)
    clock.advance(days=1)
    assert not memory.retrieve("Rome")


def test_all_that_a_user_has_in_the_bin_comes_back_at_once(holdfast: Holdfast, memory: MemoryManager) -> None:
    ids = {add(memory, kind) for kind in KINDS}
    memory.short_term.add_message("user", "hello")
    other = holdfast.manager("someone else", "travel_agent").add("mine", "long_term")["memory_id"]
    holdfast.manager("someone else", "travel_agent").delete(other)
    assert memory.delete_user_memories("user_123") == 6
    assert {item["memory_id"] for item in holdfast.recycle.list(user_id="user_123") if "memory_id" in item} == ids
    assert holdfast.recycle.restore(user_id="user_123") == 6
    assert in_bin(holdfast) == {other}
    assert [m["content"] for m in holdfast.sessions.history("travel_agent", "sess_abc123")] == ["hello"]
    check_sound(holdfast)
    with pytest.raises(NotFoundError):
        holdfast.recycle.restore(user_id="user_123")


def test_a_session_comes_back_with_its_messages(holdfast: Holdfast, memory: MemoryManager, clock: FakeClock) -> None:
    memory.short_term.add_message("user", "hello")
    assert holdfast.sessions.remove("travel_agent", "sess_abc123") == 1
    assert holdfast.sessions.history("travel_agent", "sess_abc123") == []
    assert holdfast.recycle.restore(session_id="sess_abc123") == 1
    assert [m["content"] for m in holdfast.sessions.history("travel_agent", "sess_abc123")] == ["hello"]


def test_a_single_message_comes_back_to_its_place(holdfast: Holdfast, memory: MemoryManager) -> None:
    ids = [memory.short_term.add_message("user", text) for text in ("one", "two", "three")]
    memory.short_term.delete(ids[1])
    assert [m["content"] for m in memory.short_term.get_full_history()] == ["one", "three"]
    assert holdfast.recycle.restore(memory_id=ids[1]) == 1
    assert [m["content"] for m in memory.short_term.get_full_history()] == ["one", "two", "three"]


def test_a_name_that_was_taken_meanwhile_is_a_conflict(holdfast: Holdfast, memory: MemoryManager) -> None:
    old = memory.structured.put("trips", {"city": "Rome"}, key="trip")
    memory.delete(old)
    new = memory.structured.put("trips", {"city": "Oslo"}, key="trip")
    with pytest.raises(ConflictError, match="goes by its name"):
        holdfast.recycle.restore(memory_id=old)
    memory.delete(new)
    holdfast.recycle.restore(memory_id=old)
    assert memory.structured.get("trips", "trip") == {"city": "Rome"}
    check_sound(holdfast)


def test_a_name_that_only_an_ended_memory_has_is_free(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    """Nobody can see what has it, nor delete or rename that."""
    old = memory.structured.put("trips", {"city": "Rome"}, key="trip")
    memory.delete(old)
    new = memory.structured.put("trips", {"city": "Oslo"}, key="trip")
    holdfast.policies.set(
        "structured", user_id="user_123", memory_id=new, archive_after_days="never", delete_after_days=5, confirm=True
    )
    clock.advance(days=6)
    assert memory.structured.get("trips", "trip") is None
    memory.restore(old)
    assert memory.structured.get("trips", "trip") == {"city": "Rome"}


def test_a_full_quota_keeps_a_memory_in_the_bin(holdfast: Holdfast, memory: MemoryManager) -> None:
    holdfast.quotas.set("long_term", max_memories=1)
    first = add(memory, "long_term")
    memory.delete(first)
    second = add(memory, "long_term")
    with pytest.raises(QuotaExceededError, match="no room"):
        memory.restore(first)
    assert in_bin(holdfast) == {first}
    memory.delete(second)
    assert memory.restore(first)


def test_what_a_removed_agent_had_is_not_brought_back_without_it(holdfast: Holdfast, memory: MemoryManager) -> None:
    """It would be nowhere: neither in the bin nor to be seen."""
    persona = add(memory, "persona")
    memory.short_term.add_message("user", "hello")
    holdfast.agents.remove("travel_agent")
    with pytest.raises(AgentRemovedError):
        holdfast.recycle.restore(memory_id=persona)
    with pytest.raises(AgentRemovedError):
        memory.restore(persona)
    with pytest.raises(AgentRemovedError):
        holdfast.recycle.restore(session_id="sess_abc123")
    assert persona in in_bin(holdfast)
    assert holdfast.recycle.restore(agent_id="travel_agent") == 3
    assert memory.retrieve("Rome", ["persona"])


def test_restoring_all_of_a_user_leaves_what_a_removed_agent_had_to_its_agent(
    holdfast: Holdfast, memory: MemoryManager
) -> None:
    persona, fact = add(memory, "persona"), add(memory, "long_term")
    holdfast.agents.remove("travel_agent")
    holdfast.manager("user_123", "other").delete(fact)
    assert holdfast.recycle.restore(user_id="user_123") == 1
    assert in_bin(holdfast) == {persona}


def test_restoring_all_of_a_user_says_so_where_all_that_is_left_waits_for_its_agent(
    holdfast: Holdfast, memory: MemoryManager
) -> None:
    add(memory, "persona")
    memory.short_term.add_message("user", "hello")
    holdfast.agents.remove("travel_agent")
    with pytest.raises(
        AgentRemovedError, match=r"nothing was restored: all .* \(2\) .* holdfast agent restore travel_agent"
    ):
        holdfast.recycle.restore(user_id="user_123")


def test_a_message_of_a_removed_agent_keeps_nothing_else_of_its_user_in_the_bin(
    holdfast: Holdfast, memory: MemoryManager
) -> None:
    gone = memory.short_term.add_message("user", "hello")
    fact = add(memory, "long_term")
    memory.delete(gone)
    memory.delete(fact)
    holdfast.holds.add(session_id="sess_abc123", reason="Case 1", author="legal")
    holdfast.agents.remove("travel_agent")
    assert holdfast.recycle.restore(user_id="user_123") == 1
    with pytest.raises(AgentRemovedError, match="restore the agent first"):
        holdfast.recycle.restore(memory_id=gone)
    assert memory.explain(gone)["history"][-1]["action"] == "refused"


def test_only_what_went_with_its_agent_is_said_to_come_back_with_it(holdfast: Holdfast, memory: MemoryManager) -> None:
    before, along = add(memory, "persona"), add(memory, "persona")
    memory.short_term.add_message("user", "hello")
    memory.delete(before)
    holdfast.sessions.remove("travel_agent", "sess_abc123")
    holdfast.agents.remove("travel_agent")
    for restore in (holdfast.recycle.restore, memory.restore):
        with pytest.raises(AgentRemovedError, match="and it comes back too"):
            restore(memory_id=along)
        with pytest.raises(AgentRemovedError, match="did not go there with it; restore the agent first"):
            restore(memory_id=before)
    with pytest.raises(AgentRemovedError, match="did not go there with it; restore the agent first"):
        holdfast.recycle.restore(session_id="sess_abc123")
    holdfast.agents.restore("travel_agent")
    assert in_bin(holdfast) == {before}
    assert holdfast.recycle.restore(memory_id=before) == holdfast.recycle.restore(session_id="sess_abc123") == 1


def test_what_followed_its_agent_late_is_not_said_to_come_back_with_one_that_no_longer_can(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    persona = add(memory, "persona")
    hold = holdfast.holds.add(memory_id=persona, reason="Case 1", author="legal")
    holdfast.agents.remove("travel_agent")
    clock.advance(days=15)
    holdfast.holds.release(hold.id)
    holdfast.sweep()
    assert in_bin(holdfast) == {persona}
    with pytest.raises(AgentRemovedError, match="neither can be restored any more"):
        memory.restore(persona)


def test_every_refusal_of_a_restore_is_in_the_audit_chain(holdfast: Holdfast, memory: MemoryManager) -> None:
    def last(item: str) -> tuple[str, str]:
        entry = holdfast.services.audit.of_item(Subject("default", "user_123"), item)[-1]
        assert (entry.detail["from"], entry.detail["to"], entry.detail["cause"]) == ("recycled", "active", "restore")
        return entry.action, entry.detail["reason"]

    old, full, parted = (
        memory.structured.put("trips", {"n": 1}, key="trip"),
        add(memory, "entity"),
        add(memory, "persona"),
    )
    memory.delete(old)
    memory.structured.put("trips", {"n": 2}, key="trip")
    memory.delete(full)
    holdfast.quotas.set("entity", max_memories=0)
    memory.short_term.add_message("user", "hello")
    holdfast.sessions.remove("travel_agent", "sess_abc123")
    (session,) = (item["id"] for item in holdfast.recycle.list() if item["type"] == "session")
    memory.short_term.add_message("user", "hello again")
    for refused in ({"memory_id": old}, {"memory_id": full}, {"session_id": session}):
        with pytest.raises((ConflictError, QuotaExceededError)):
            holdfast.recycle.restore(**refused)
    assert last(old) == last(session) == ("refused", "another goes by its name")
    assert last(full) == ("refused", "the quota has no room for it")
    holdfast.agents.remove("travel_agent")
    for refused in ({"memory_id": parted}, {"session_id": session}):
        with pytest.raises(AgentRemovedError):
            holdfast.recycle.restore(**refused)
    assert last(parted) == last(session) == ("refused", "its agent is in the recycle bin")
    check_sound(holdfast)


def test_a_request_that_names_nothing_is_refused(holdfast: Holdfast) -> None:
    with pytest.raises(InvalidInputError, match="say what to restore"):
        holdfast.recycle.restore()
    with pytest.raises(NotFoundError):
        holdfast.recycle.restore(memory_id="nothing")
    with pytest.raises(NotFoundError):
        holdfast.recycle.restore(session_id="nothing")


def test_an_entity_that_a_sweep_deleted_is_not_told_of_by_those_related_to_it(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory.entity.relate("Ann", "works_for", "Zephyr Airways")
    zephyr = memory.entity.get("Zephyr Airways")["entity_id"]
    holdfast.policies.set("entity", user_id="user_123", memory_id=zephyr, delete_after_days=10, confirm=True)
    clock.advance(days=10)
    holdfast.sweep()
    clock.advance(days=15)
    holdfast.sweep()
    assert raw.rows(holdfast, "SELECT 1 FROM records WHERE id = ?", (zephyr,)) == []
    assert not any("Zephyr" in unpack(content) for (content,) in raw.rows(holdfast, "SELECT content FROM records"))
