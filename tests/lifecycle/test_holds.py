"""Holds: what nothing removes, by any path, until they are released; each refusal is in the audit chain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import raw
from clocks import FakeClock
from effort import sampled
from holdfast import Holdfast, MemoryManager
from holdfast.core.decisions import Hold
from holdfast.core.errors import HeldError, InvalidInputError, NotFoundError, QuotaExceededError
from holdfast.core.records import Subject
from holdfast.core.values import unpack
from holdfast.lifecycle.holds import digest_of
from lifecycle.soundness import check_sound


def refusals(holdfast: Holdfast, hold: Hold) -> int:
    entries = holdfast.audit.tail(1_000)
    return sum(entry["action"] == "refused" and entry["detail"].get("hold") == hold.id for entry in entries)


def states(holdfast: Holdfast) -> dict[str, str]:
    return dict(raw.rows(holdfast, "SELECT id, state FROM records UNION SELECT id, state FROM sessions"))


def hold_all(holdfast: Holdfast, **scope: str) -> Hold:
    return holdfast.holds.add(**scope, reason="a lawsuit", author="counsel")


SCOPES: dict[str, Callable[[str], dict[str, str]]] = {
    "user": lambda _: {"user_id": "user_123"},
    "agent": lambda _: {"agent_id": "travel_agent"},
    "session": lambda _: {"session_id": "sess_abc123"},
    "memory": lambda memory_id: {"memory_id": memory_id},
    "tag": lambda _: {"tag": "case=7"},
    "user and tag": lambda _: {"user_id": "user_123", "tag": "case=7"},
}


@sampled
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("kind", ["long_term", "episodic", "persona", "entity", "structured"])
def test_a_hold_keeps_a_memory_from_every_sweep_and_delete_until_it_is_released(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock, kind: str, scope: str
) -> None:
    content = {"city": "Rome"} if kind == "structured" else "Ann lives in Rome"
    memory_id = memory.add(content, kind, {"case": 7})["memory_id"]
    holdfast.policies.set(kind, delete_after_days=400, confirm=True)
    hold = hold_all(holdfast, **SCOPES[scope](memory_id))
    with pytest.raises(HeldError, match="on hold"):
        memory.delete(memory_id)
    assert refusals(holdfast, hold) == 1
    with pytest.raises(HeldError):
        memory.delete_user_memories("user_123", kind)
    assert refusals(holdfast, hold) == 2
    clock.advance(days=400)
    report = holdfast.sweep()
    assert (report.total, report.held) == (0, 1)
    assert states(holdfast)[memory_id] == "active"
    assert memory.retrieve("Rome", [kind]) == [], "past its time it is out of recall, and kept whole"
    assert memory.explain(memory_id)["protected_by"][0]["hold_id"] == hold.id
    holdfast.holds.release(hold.id, author="counsel")
    assert holdfast.sweep().counts["recycle"] == 1
    assert states(holdfast)[memory_id] == "recycled"
    check_sound(holdfast)


def test_a_hold_on_others_keeps_nothing(holdfast: Holdfast, memory: MemoryManager, clock: FakeClock) -> None:
    memory.add("Ann lives in Rome", "long_term", {"case": 70})
    for scope in ({"user_id": "user_12"}, {"agent_id": "travel"}, {"session_id": "sess_abc"}, {"tag": "case=7"}):
        hold_all(holdfast, **scope)
    holdfast.policies.set("long_term", delete_after_days=400, archive_after_days="never", confirm=True)
    clock.advance(days=400)
    assert holdfast.sweep().counts["recycle"] == 1


def test_what_is_in_the_bin_is_kept_there_by_a_hold_and_can_be_restored(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    ids = [memory.add(f"fact {n}", "long_term")["memory_id"] for n in range(3)]
    for memory_id in ids[:2]:
        memory.delete(memory_id)
    hold = hold_all(holdfast, user_id="user_123")
    assert memory.restore(ids[0])
    clock.advance(days=15)
    assert holdfast.recycle.purge() == {}
    assert holdfast.sweep().held == 1
    assert states(holdfast)[ids[1]] == "recycled"
    holdfast.holds.release(hold.id)
    assert holdfast.recycle.purge() == {"long_term": 1}
    assert ids[1] not in states(holdfast)


def test_a_prune_passes_over_what_is_held(holdfast: Holdfast, memory: MemoryManager) -> None:
    holdfast.quotas.set("long_term", max_memories=20)
    ids = [memory.add(f"fact {n}", "long_term", {"n": n})["memory_id"] for n in range(20)]
    hold_all(holdfast, memory_id=ids[0])
    hold_all(holdfast, tag="n=1")
    assert memory.add_with_auto_prune("one more", "long_term")["pruned"] == 2
    gone = {memory_id for memory_id, state in states(holdfast).items() if state == "recycled"}
    assert gone == set(ids[2:4])
    hold_all(holdfast, user_id="user_123")
    memory.add("to the limit", "long_term")
    with pytest.raises(QuotaExceededError):
        memory.add_with_auto_prune("too much", "long_term")
    check_sound(holdfast)


def test_a_prune_that_a_hold_keeps_from_making_room_says_so_and_is_in_the_chain(
    holdfast: Holdfast, memory: MemoryManager
) -> None:
    holdfast.quotas.set("long_term", max_memories=2)
    oldest = memory.add("fact 1", "long_term")["memory_id"]
    memory.add("fact 2", "long_term")
    hold = hold_all(holdfast, user_id="user_123")
    with pytest.raises(QuotaExceededError) as refused:
        memory.add_with_auto_prune("too much", "long_term")
    assert f"hold {hold.id} (a lawsuit) keeps the oldest" in str(refused.value)
    assert f"holdfast hold release {hold.id}" in str(refused.value)
    assert "auto_prune" not in str(refused.value)
    (entry,) = memory.explain(oldest)["history"]
    assert (entry["action"], entry["to"], entry["cause"], entry["hold"]) == ("refused", "recycled", "prune", hold.id)
    assert memory.count_memories() == 2
    check_sound(holdfast)
    with pytest.raises(QuotaExceededError, match="auto_prune"):
        memory.add("too much", "long_term")
    assert refusals(holdfast, hold) == 1


def test_who_asked_for_pruning_is_not_told_to_ask_for_it(holdfast: Holdfast, memory: MemoryManager) -> None:
    holdfast.quotas.set("long_term", max_bytes=10)
    with pytest.raises(QuotaExceededError) as refused:
        memory.add_with_auto_prune("this is far too long", "long_term")
    assert "auto_prune" not in str(refused.value)


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        ({"memory_id": "zzz"}, "memory_id 'zzz' is not the id"),
        ({"memory_id": "search", "user_id": "user_123"}, "memory_id 'search' is not the id"),
        ({"tag": "="}, "tag '=' lacks"),
        ({"tag": "case="}, "tag 'case=' lacks"),
        ({"tag": "=7"}, "tag '=7' lacks"),
    ],
)
def test_a_hold_that_could_keep_nothing_is_refused(holdfast: Holdfast, what: dict[str, str], problem: str) -> None:
    holdfast.tools.add("search")
    with pytest.raises(InvalidInputError, match=problem):
        hold_all(holdfast, **what)
    assert holdfast.holds.list() == []


def test_a_hold_says_how_much_it_covers_where_that_is_cheap(holdfast: Holdfast, memory: MemoryManager) -> None:
    fact = memory.add("a fact", "long_term")["memory_id"]
    memory.add("another", "persona")
    message = memory.short_term.add_message("user", "hello")
    holdfast.tools.add("search")
    covered = holdfast.holds.covered
    assert covered(hold_all(holdfast, user_id="user_123")) == {"memories": 2, "sessions": 1}
    assert covered(hold_all(holdfast, user_id="nobody")) == {"memories": 0, "sessions": 0}
    assert covered(hold_all(holdfast, memory_id=fact)) == {"memories": 1}
    assert covered(hold_all(holdfast, memory_id=fact, agent_id="other")) == {"memories": 0}
    assert covered(hold_all(holdfast, memory_id=message, user_id="user_123")) == {"messages": 1}
    assert covered(hold_all(holdfast, memory_id="search")) == {"tools": 1}
    assert covered(hold_all(holdfast, tag="case=7")) is None
    with pytest.raises(HeldError):
        holdfast.tools.remove("search")


def test_a_hold_or_a_rule_for_what_is_nobodys_is_refused(holdfast: Holdfast, memory: MemoryManager) -> None:
    fact = memory.add("a fact")["memory_id"]
    message = memory.short_term.add_message("user", "hello")
    unknown = "0198c2d4-7b1a-7c3e-9f60-5d2a1c8e4b77"
    for user, one in (("bob", fact), ("bob", message), ("user_123", unknown)):
        said = f"no memory or message '{one}' is or was user '{user}''s"
        with pytest.raises(NotFoundError, match=said):
            hold_all(holdfast, user_id=user, memory_id=one)
        for change in (holdfast.policies.set, holdfast.policies.preview):
            with pytest.raises(NotFoundError, match=said):
                change("long_term", user_id=user, memory_id=one, keep_days=900)
        rule = {"memory_type": "long_term", "user_id": user, "memory_id": one, "keep_days": 900}
        with pytest.raises(NotFoundError, match=said):
            holdfast.policies.set_all([rule])
    for one in (message, unknown):
        for hold in (holdfast.holds.preview, partial(hold_all, holdfast)):
            with pytest.raises(NotFoundError, match=f"there is no memory '{one}'.*name its user too"):
                hold(memory_id=one)
    assert holdfast.holds.list() == []
    hold_all(holdfast, memory_id=fact)
    for one in (fact, message):
        hold_all(holdfast, memory_id=one, user_id="user_123")
    hold_all(holdfast, user_id="nobody")  # they may come


def test_a_rule_and_a_hold_can_wait_for_what_comes_back_from_a_backup(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    fact = memory.add("a fact")["memory_id"]
    memory.delete(fact)
    clock.advance(days=20)
    holdfast.sweep()
    holdfast.policies.set("long_term", user_id="user_123", memory_id=fact, keep_days=900)
    hold_all(holdfast, user_id="user_123", memory_id=fact)


@pytest.mark.parametrize("whom", [{"user_id": "user_123"}, {"agent_id": "travel_agent"}])
def test_what_is_wholly_on_hold_is_held_and_not_set_aside(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock, whom: dict[str, str]
) -> None:
    memory.add_many([f"episode {n}" for n in range(1_200)], "episodic")
    hold = hold_all(holdfast, **whom)
    clock.advance(days=366)
    plan = holdfast.sweep(dry_run=True)
    assert (plan.set_aside, plan.held, plan.total) == ((), 1_200, 0)
    report = holdfast.sweep()
    assert (report.set_aside, report.held, report.total) == ((), 1_200, 0)
    holdfast.holds.release(hold.id)
    plan = holdfast.sweep(dry_run=True)
    assert [(aside.due, aside.of) for aside in plan.set_aside][:1] == [(1_200, 1_200)], "now it is at risk"
    assert plan.held == 0


def test_a_prune_passes_over_what_a_rule_keeps(holdfast: Holdfast, memory: MemoryManager, clock: FakeClock) -> None:
    holdfast.quotas.set("long_term", max_memories=10)
    ids = [memory.add(f"fact {n}", "long_term")["memory_id"] for n in range(10)]
    holdfast.policies.set("long_term", user_id="user_123", memory_id=ids[0], keep_days=100)
    memory.add_with_auto_prune("one more", "long_term")
    assert states(holdfast)[ids[0]] == "active"
    assert states(holdfast)[ids[1]] == "recycled"


def test_cleaning_up_old_episodes_passes_over_what_is_held(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    held, free = (memory.episodic.record_episode(task, ["went"]) for task in ("a trip", "another"))
    hold = hold_all(holdfast, memory_id=held)
    clock.advance(days=90)
    assert memory.episodic.cleanup_old_episodes() == 1
    assert (states(holdfast)[held], states(holdfast)[free]) == ("active", "recycled")
    assert refusals(holdfast, hold) == 1
    holdfast.holds.release(hold.id)
    assert memory.episodic.cleanup_old_episodes() == 1


def test_archiving_by_hand_passes_over_what_is_held(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    held, free = (memory.add(text, "long_term")["memory_id"] for text in ("one", "two"))
    hold_all(holdfast, memory_id=held)
    clock.advance(days=365)
    assert memory.long_term.archive_old_memories() == 1
    assert (states(holdfast)[held], states(holdfast)[free]) == ("active", "archived")


def test_removing_an_agent_leaves_what_is_held_out_of_sight_and_whole(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    held = memory.add("a trait", "persona")["memory_id"]
    memory.add("another trait", "persona")
    hold = hold_all(holdfast, memory_id=held)
    removed = holdfast.agents.remove("travel_agent")
    assert (removed["persona"], removed["held"]) == (1, 1)
    assert refusals(holdfast, hold) == 1
    assert memory.retrieve("trait", ["persona"]) == []
    with pytest.raises(NotFoundError):
        memory.get(held)
    clock.advance(days=30)
    holdfast.sweep()
    assert states(holdfast) == {held: "active"}
    holdfast.holds.release(hold.id)
    holdfast.sweep()
    clock.advance(days=15)
    holdfast.sweep()
    holdfast.sweep()
    assert states(holdfast) == {}
    assert holdfast.agents.list(include_removed=True) == []
    check_sound(holdfast)


def test_an_episode_that_goes_with_its_removed_agent_is_not_archived_first(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    episode = memory.episodic.record_episode("Booked a train", ["looked"])
    hold = hold_all(holdfast, memory_id=episode)
    holdfast.agents.remove("travel_agent")
    clock.advance(days=91)
    holdfast.holds.release(hold.id)
    plan = holdfast.sweep(dry_run=True)
    today = holdfast.forecast(1)["days"][0]
    report = holdfast.sweep(digest=plan.digest)
    assert plan.counts == today["counts"] == report.counts == {"archive": 0, "recycle": 1, "delete": 0}
    moves = [(line["memory_type"], line["action"]) for line in report.to_dict()["lines"]]
    assert (moves, states(holdfast)[episode]) == ([("episodic", "recycle")], "recycled")


def test_an_agent_on_hold_is_not_removed(holdfast: Holdfast, memory: MemoryManager) -> None:
    memory.add("a trait", "persona")
    hold = hold_all(holdfast, agent_id="travel_agent")
    with pytest.raises(HeldError):
        holdfast.agents.remove("travel_agent")
    assert refusals(holdfast, hold) == 1
    assert memory.retrieve("trait", ["persona"])


@pytest.mark.parametrize("what", ["user", "session", "message", "tag"])
def test_a_held_conversation_is_kept_by_every_path(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock, what: str
) -> None:
    message_id = memory.short_term.add_message("user", "hello", {"case": 7})
    scope = {
        "user": {"user_id": "user_123"},
        "session": {"session_id": "sess_abc123"},
        "message": {"memory_id": message_id, "user_id": "user_123"},
        "tag": {"tag": "case=7"},
    }[what]
    hold = hold_all(holdfast, **scope)
    with pytest.raises(HeldError):
        memory.short_term.delete(message_id)
    with pytest.raises(HeldError):
        holdfast.sessions.remove("travel_agent", "sess_abc123")
    with pytest.raises(HeldError):
        memory.delete_user_memories("user_123", "short_term")
    assert refusals(holdfast, hold) == 3
    clock.advance(days=30)
    plan = holdfast.sweep(dry_run=True)
    report = holdfast.sweep()
    assert (report.total, report.held) == (0, 1)
    assert (plan.lines, plan.held) == ((), 1), "the dry run knows of the hold"
    assert list(states(holdfast).values()) == ["active"]
    assert holdfast.sessions.history("travel_agent", "sess_abc123") == []
    holdfast.holds.release(hold.id)
    assert holdfast.sweep().counts["recycle"] == 1


def test_sweeping_what_is_held_again_and_again_does_not_fill_the_audit_chain(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    message_id = memory.short_term.add_message("user", "hello")
    memory_id = memory.add("fact", "long_term")["memory_id"]
    holdfast.policies.set("long_term", archive_after_days="never", delete_after_days=30, confirm=True)
    for held in (message_id, memory_id):
        hold_all(holdfast, memory_id=held, user_id="user_123")
    clock.advance(days=30)
    holdfast.sweep()
    entries = len(holdfast.audit.tail(1_000))
    for _ in range(3):
        clock.advance(minutes=1)
        holdfast.sweep()
    assert len(holdfast.audit.tail(1_000)) == entries


@pytest.mark.parametrize("kind", ["structured", "entity"])
def test_a_held_memory_past_its_time_gives_up_its_name_and_is_kept_whole(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock, kind: str
) -> None:
    """Nobody sees it, and its name is wanted: what is held is kept, and whoever wants the name is not kept waiting."""
    put: dict[str, Callable[[], str]] = {
        "structured": lambda: memory.structured.put("trips", {"city": "Rome"}, key="trip"),
        "entity": lambda: memory.entity.add("Ann"),
    }
    memory_id = put[kind]()
    holdfast.policies.set(kind, delete_after_days=400, confirm=True)
    hold = hold_all(holdfast, memory_id=memory_id)
    before = holdfast.services.records.entries(Subject("default", "user_123"), [memory_id])[memory_id].record
    clock.advance(days=400)
    assert put[kind]() != memory_id
    kept = holdfast.services.records.entries(Subject("default", "user_123"), [memory_id])[memory_id].record
    assert (kept.content, kept.metadata, kept.state) == (before.content, before.metadata, before.state)
    holdfast.holds.release(hold.id)
    holdfast.sweep()
    assert holdfast.explain(memory_id)["state"] == "recycled"


def test_a_hold_is_audited_when_it_is_added_and_when_it_is_released(holdfast: Holdfast) -> None:
    hold = hold_all(holdfast, user_id="ann")
    released = holdfast.holds.release(hold.id, author="judge")
    assert (released.released_by, released.released_at is not None) == ("judge", True)
    assert [entry["action"] for entry in holdfast.audit.tail(10)] == ["hold.added", "hold.released"]
    assert "ann" not in str(holdfast.audit.tail(10)), "whose memory it is stays out of the chain"
    assert holdfast.holds.list() == []
    assert holdfast.holds.list(released=True) == [released]
    with pytest.raises(NotFoundError):
        holdfast.holds.release(hold.id)


def test_what_a_hold_says_is_in_the_hold_and_the_chain_can_tell_that_it_is_what_was_said(holdfast: Holdfast) -> None:
    hold = holdfast.holds.add(user_id="ann", tag="about=ann", reason="what Ann said", author="counsel")

    (entry,) = holdfast.audit.tail(10)
    assert (entry["detail"]["on"], entry["actor"]) == (["user", "tag"], "counsel")
    assert entry["detail"]["words"] == digest_of(hold) != digest_of(replace(hold, reason="something else"))
    holdfast.holds.release(hold.id, author="counsel")
    holdfast.erase_user("ann")
    rows = str(raw.rows(holdfast, "SELECT entry FROM audit"))
    assert "about=ann" not in rows
    assert "what Ann said" not in rows
    assert holdfast.audit.verify()


def test_a_hold_says_on_what_and_why(holdfast: Holdfast) -> None:
    with pytest.raises(InvalidInputError, match="say what to hold"):
        hold_all(holdfast)
    with pytest.raises(InvalidInputError):
        holdfast.holds.add(user_id="ann", reason="", author="counsel")
    with pytest.raises(InvalidInputError):
        holdfast.holds.add(user_id="ann", reason="a lawsuit", author="")


@pytest.mark.parametrize("hold_id", ["", "nonsense", "a\0b", "\ud800", None, 7], ids=repr)
def test_a_hold_that_does_not_stand_is_not_found(holdfast: Holdfast, hold_id: Any) -> None:
    with pytest.raises(NotFoundError, match="no hold"):
        holdfast.holds.release(hold_id)


def test_holds_stop_at_the_tenant(holdfast: Holdfast, memory: MemoryManager, clock: FakeClock) -> None:
    with Holdfast.open(home=holdfast.settings.home, tenant="acme", clock=clock) as acme:
        acme.holds.add(user_id="user_123", reason="a lawsuit", author="counsel")
    memory_id = memory.add("fact", "long_term")["memory_id"]
    assert memory.delete(memory_id)["operation"] == "recycle"


def test_a_held_conversation_past_its_time_gives_up_its_name_and_keeps_its_content(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory.short_term.add_message("user", "an old secret")
    hold = hold_all(holdfast, session_id="sess_abc123")
    clock.advance(days=30)
    memory.short_term.add_message("user", "hello again")
    assert [m["content"] for m in holdfast.sessions.history("travel_agent", "sess_abc123")] == ["hello again"]
    assert holdfast.sweep().held == 1
    assert [unpack(content) for (content,) in raw.rows(holdfast, "SELECT content FROM history ORDER BY key")] == [
        "an old secret",
        "hello again",
    ]
    holdfast.policies.set("history", delete_after_days=100)
    assert [one["messages"] for one in holdfast.sessions.list("user_123")] == [1], "one session of a name, not two"
    holdfast.policies.remove("history", confirm=True)
    holdfast.holds.release(hold.id)
    assert holdfast.sweep().counts["recycle"] == 1
    assert [m["content"] for m in holdfast.sessions.history("travel_agent", "sess_abc123")] == ["hello again"]
    check_sound(holdfast)


def test_a_conversation_that_a_hold_keeps_keeps_its_window_too(holdfast: Holdfast) -> None:
    for session in ("held", "free"):
        holdfast.manager("ann", "guide", session).short_term.add_message("user", f"hello from {session}")
    holdfast.holds.add(session_id="held", reason="a case", author="counsel")
    memory = holdfast.manager("ann", "guide", "held")
    assert memory.delete_user_memories("ann", "short_term") == 1
    assert [one["content"] for one in memory.short_term.get_conversation_history()] == ["hello from held"]
    assert holdfast.manager("ann", "guide", "free").short_term.get_conversation_history() == []


def test_counting_what_holds_cover_reads_so_much_and_no_more(holdfast: Holdfast, memory: MemoryManager) -> None:
    memory.add_many([f"fact {n}" for n in range(30)], metadata={"case": "7"})
    memory.add("other")
    holds = [hold_all(holdfast, **whom) for whom in ({"tag": "case=7"}, {"agent_id": "travel_agent"})]
    whole = [
        {"counts": {"memories": 30}, "is_whole": True},
        {"counts": {"memories": 31, "sessions": 0}, "is_whole": True},
    ]
    assert list(holdfast.holds.count_some(holds)) == whole
    first, second = holdfast.holds.count_some(holds, most=20)
    assert first["counts"]["memories"] in (19, 20), (
        "which of them are read, the other one too, is the engine's to choose"
    )
    assert (first["is_whole"], second) == (False, {"counts": {}, "is_whole": False})
    of_user = {"user_id": "user_123", "agent_id": "travel_agent"}
    assert holdfast.holds.preview(**of_user) == whole[1]
    assert holdfast.holds.preview(user_id="nobody", tag="case=7") == {"counts": {"memories": 0}, "is_whole": True}
