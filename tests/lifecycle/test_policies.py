"""Policies: a change can be looked at before it is made, asks where it shortens, and takes effect at once for all."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import raw
from clocks import FakeClock
from effort import sampled, soak, times
from holdfast import Holdfast, MemoryManager
from holdfast.core.errors import ConfirmationNeededError, InvalidInputError, InvalidRuleError, NotFoundError
from holdfast.core.rules import EpisodicRetentionPolicy
from holdfast.lifecycle.policies import RuleScope, read_policies
from lifecycle.fuses import DeathError
from lifecycle.soundness import check_sound


def record(memory: MemoryManager, clock: FakeClock, *ages: float) -> list[str]:
    """Episodes that ended so many days ago."""
    return [
        memory.episodic.record_episode(f"trip {age}", ["went"], timestamp=clock.now - timedelta(days=age))
        for age in ages
    ]


def due(holdfast: Holdfast) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {"archive": set(), "recycle": set(), "delete": set()}
    for shown in holdfast.sweep(dry_run=True).to_dict(10_000)["samples"]:  # type: ignore[call-arg]
        found[shown["action"]].add(shown["memory_id"])
    return found


# --- previews ----------------------------------------------------------------------------------------------------------


def test_a_preview_says_how_much_becomes_due_and_changes_nothing(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    record(memory, clock, 10, 20, 40, 100, 400)
    before = due(holdfast)
    preview = holdfast.policies.preview("episodic", archive_after_days=15, delete_after_days=30)
    assert preview.shortens
    assert preview.newly_due == {"archive": 1, "recycle": 2, "delete": 0}
    assert preview.bytes > 0
    assert "2 to recycle" in preview.describe()
    assert due(holdfast) == before
    holdfast.policies.set("episodic", archive_after_days=15, delete_after_days=30, confirm=True)
    assert {action: len(ids) for action, ids in due(holdfast).items()} == {"archive": 1, "recycle": 3, "delete": 0}


Days = st.sampled_from([5.0, 15.0, 30.0, 60.0, 120.0, 400.0])


@settings(max_examples=times(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=st.tuples(Days, Days), second=st.tuples(Days, Days))
def test_what_a_preview_counts_is_what_the_change_makes_due(
    holdfast: Holdfast, clock: FakeClock, first: tuple[float, float], second: tuple[float, float]
) -> None:
    """Of each action: what is due after the change and was not due that before."""
    memory = holdfast.manager("ann", "guide")
    if memory.count_memories("episodic") == 0:
        record(memory, clock, 1, 6, 7, 16, 31, 32, 61, 121, 122, 123, 401)
    for archive, delete in (first, second):
        if archive >= delete:
            return
    holdfast.policies.set("episodic", archive_after_days=first[0], delete_after_days=first[1], confirm=True)
    before = due(holdfast)
    terms: dict[str, Any] = {"archive_after_days": second[0], "delete_after_days": second[1]}
    preview = holdfast.policies.preview("episodic", **terms)
    holdfast.policies.set("episodic", **terms, confirm=True)
    after = due(holdfast)
    assert preview.newly_due == {action: len(after[action] - before[action]) for action in after}
    assert preview.shortens == (second[0] < first[0] or second[1] < first[1])


def test_a_preview_counts_only_what_the_rule_selects(holdfast: Holdfast, clock: FakeClock) -> None:
    for user_id in ("ann", "bob"):
        for agent_id in ("guide", "cook"):
            record(holdfast.manager(user_id, agent_id, "trip"), clock, 50)
    record(holdfast.manager("ann", "guide", "other trip"), clock, 50)
    scopes: dict[str, RuleScope] = {
        "all": {},
        "ann": {"user_id": "ann"},
        "guide": {"agent_id": "guide"},
        "both": {"user_id": "ann", "agent_id": "guide"},
        "session": {"session_id": "trip"},
        "nobody": {"user_id": "nobody"},
    }
    counted = {
        name: holdfast.policies.preview("episodic", delete_after_days=40, archive_after_days=10, **scope).newly_due
        for name, scope in scopes.items()
    }
    assert {name: found["recycle"] for name, found in counted.items()} == {
        "all": 5,
        "ann": 3,
        "guide": 3,
        "both": 2,
        "session": 4,
        "nobody": 0,
    }


def test_a_preview_of_conversations_counts_sessions(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory.short_term.add_message("user", "hello")
    clock.advance(days=10)
    assert holdfast.policies.preview("history", delete_after_days=10).newly_due["recycle"] == 1
    assert holdfast.policies.preview("history", delete_after_days=11).newly_due["recycle"] == 0
    assert holdfast.policies.preview("history", user_id="user_123", delete_after_days=5).newly_due["recycle"] == 1


def remember(holdfast: Holdfast, user_id: str, agent_id: str, count: int, **metadata: Any) -> list[str]:
    memory = holdfast.manager(user_id, agent_id)
    return [memory.add(f"fact {n}", "long_term", metadata)["memory_id"] for n in range(count)]


def test_a_preview_counts_what_a_hold_keeps_apart(holdfast: Holdfast, clock: FakeClock) -> None:
    remember(holdfast, "ann", "guide", 4)
    remember(holdfast, "bob", "guide", 2)
    (tagged,) = remember(holdfast, "bob", "cook", 1, case="4711")
    one, _ = remember(holdfast, "bob", "cook", 2)
    clock.advance(days=40)

    def counted() -> tuple[int, int]:
        preview = holdfast.policies.preview("long_term", delete_after_days=30)
        assert preview.shortens
        return preview.newly_due["recycle"], preview.held

    assert counted() == (9, 0)
    holdfast.holds.add(user_id="ann", reason="a case", author="legal")
    assert counted() == (5, 4)
    holdfast.holds.add(user_id="bob", memory_id=one, reason="a case", author="legal")
    assert counted() == (4, 5)
    holdfast.holds.add(tag="case=4711", reason="a case", author="legal")
    assert counted() == (3, 6)
    with pytest.raises(ConfirmationNeededError, match=r"3 to recycle due at once .* a hold keeps 6"):
        holdfast.policies.set("long_term", delete_after_days=30)
    done = holdfast.policies.set("long_term", delete_after_days=30, confirm=True)
    assert (done["newly_due"]["recycle"], done["held"]) == (3, 6)
    plan = holdfast.sweep(dry_run=True)
    assert (plan.counts["recycle"], plan.held) == (3, 6)
    assert tagged not in due(holdfast)["recycle"]


def test_a_preview_counts_a_conversation_of_which_a_message_is_held_apart(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory.short_term.add_message("user", "hello")
    message = memory.short_term.messages()[0].id
    clock.advance(days=10)
    holdfast.holds.add(memory_id=message, user_id="user_123", reason="a case", author="legal")
    preview = holdfast.policies.preview("history", delete_after_days=5)
    assert (preview.newly_due["recycle"], preview.held) == (0, 1)
    holdfast.policies.set("history", delete_after_days=5, confirm=True)
    plan = holdfast.sweep(dry_run=True)
    assert (plan.counts["recycle"], plan.held) == (0, 1)


# --- several rules as one ------------------------------------------------------------------------------------------------

KEPT: list[dict[str, Any]] = [
    {"memory_type": "long_term", "user_id": "ann", "keep_days": "forever"},
    {"memory_type": "long_term", "agent_id": "guide", "keep_days": "forever"},
]
ENDING: dict[str, Any] = {"memory_type": "long_term", "delete_after_days": 30}


def test_taking_away_rules_that_cover_each_other_is_seen_to_shorten(holdfast: Holdfast, clock: FakeClock) -> None:
    remember(holdfast, "ann", "guide", 5)
    holdfast.policies.set_all([ENDING, *KEPT], confirm=True)
    clock.advance(days=40)
    for rule in KEPT:
        (left,) = [other for other in KEPT if other != rule]
        alone = holdfast.policies.preview_all([ENDING, left], exclusive=True)
        assert alone.preview.newly_due["recycle"] == 0, "the other one still keeps them"
    changes = holdfast.policies.preview_all([ENDING], exclusive=True)
    assert [change["action"] for change in changes.changes] == ["keep", "remove", "remove"]
    assert (changes.preview.shortens, changes.preview.newly_due["recycle"]) == (True, 5)
    with pytest.raises(ConfirmationNeededError, match="5 to recycle due at once"):
        holdfast.policies.set_all([ENDING], exclusive=True)
    assert due(holdfast)["recycle"] == set()
    holdfast.policies.set_all([ENDING], exclusive=True, confirm=True)
    assert len(due(holdfast)["recycle"]) == 5


def test_what_a_rule_of_the_same_set_keeps_is_not_counted(holdfast: Holdfast, clock: FakeClock) -> None:
    remember(holdfast, "ann", "guide", 2)
    remember(holdfast, "ann", "cook", 3)
    remember(holdfast, "bob", "cook", 4)
    clock.advance(days=40)
    preview = holdfast.policies.preview_all([ENDING, KEPT[0]]).preview
    assert (preview.shortens, preview.newly_due["recycle"]) == (True, 4)
    preview = holdfast.policies.preview_all([ENDING, KEPT[1]]).preview
    assert (preview.shortens, preview.newly_due["recycle"]) == (True, 7)
    holdfast.policies.set_all([ENDING, *KEPT], confirm=True)
    assert len(due(holdfast)["recycle"]) == 4
    assert not holdfast.policies.preview_all([{**ENDING, "delete_after_days": 60}, *KEPT]).preview.shortens


def test_rules_are_compared_with_the_narrower_ones_that_stand(holdfast: Holdfast, clock: FakeClock) -> None:
    remember(holdfast, "ann", "guide", 1)
    remember(holdfast, "bob", "guide", 1)
    holdfast.policies.set("long_term", user_id="ann", delete_after_days=100, confirm=True)
    longer: dict[str, Any] = {"user_id": "ann", "agent_id": "guide", "delete_after_days": 200}
    assert not holdfast.policies.preview("long_term", **longer).shortens, "ann's went after 100 days"
    assert holdfast.policies.preview("long_term", **{**longer, "delete_after_days": 50}).shortens


SAID: list[dict[str, Any]] = [
    {"delete_after_days": 8},
    {"delete_after_days": 25},
    {"delete_after_days": "never"},
    {"archive_after_days": 5},
    {"archive_after_days": 12, "delete_after_days": 40},
    {"keep_days": 15},
    {"keep_days": "forever"},
]
Whose = st.fixed_dictionaries(
    {
        "memory_type": st.sampled_from(["long_term", "*"]),
        "user_id": st.sampled_from([None, "ann", "bob"]),
        "agent_id": st.sampled_from([None, "guide", "cook"]),
    }
)
Sets = st.lists(
    st.builds(lambda whose, said: {**whose, **said}, Whose, st.sampled_from(SAID)),
    max_size=5,
    unique_by=lambda rule: (rule["memory_type"], rule["user_id"], rule["agent_id"]),
)
Held = st.sampled_from([{}, {"agent_id": "cook"}, {"tag": "x"}])


@soak
def test_what_a_preview_of_several_rules_counts_is_what_they_make_due_together(
    holdfast: Holdfast, clock: FakeClock, engine_name: str
) -> None:
    for days in range(0, 50, 7):
        for user_id in ("ann", "bob"):
            for agent_id in ("guide", "cook"):
                remember(holdfast, user_id, agent_id, 1, tags=["x"] if days % 2 else [])
        clock.advance(days=7)

    @settings(max_examples=times(24, engine_name))
    @given(sets=st.tuples(Sets, Sets), exclusive=st.booleans(), held=Held)
    def check(sets: tuple[Any, Any], exclusive: bool, held: dict[str, str]) -> None:
        first, second = sets
        holdfast.policies.set_all(first, exclusive=True, confirm=True)
        hold = holdfast.holds.add(**held, reason="a case", author="legal") if held else None
        before = due(holdfast)
        preview = holdfast.policies.preview_all(second, exclusive=exclusive).preview
        if preview.shortens:
            with pytest.raises(ConfirmationNeededError):
                holdfast.policies.set_all(second, exclusive=exclusive)
        assert due(holdfast) == before
        done = holdfast.policies.set_all(second, exclusive=exclusive, confirm=True)
        after = due(holdfast)
        assert replace(done.preview, rules=()) == replace(preview, rules=())
        assert preview.newly_due == {action: len(after[action] - before[action]) for action in after}
        assert preview.shortens or not preview.newly_due["recycle"]
        if hold is not None:
            holdfast.holds.release(hold.id)
        again = holdfast.policies.preview_all(second, exclusive=exclusive)
        assert {change["action"] for change in again.changes} <= {"keep"}
        assert not again.preview.shortens

    check()


def test_several_rules_take_effect_in_one_instant(holdfast: Holdfast, clock: FakeClock) -> None:
    (vip,) = remember(holdfast, "vip", "guide", 1)
    (other,) = remember(holdfast, "bob", "guide", 1)
    clock.advance(days=40)
    seen = []

    def look(_count: int) -> None:
        with Holdfast.open(home=holdfast.settings.home, clock=clock) as another:
            plan = another.sweep(dry_run=True).counts["recycle"]
            found = [another.manager("vip", "guide").get(vip), another.manager("bob", "guide").get(other)]
            seen.append((plan, len(found), another.policies.get("long_term")["delete_after_days"]))

    keep = {"memory_type": "long_term", "user_id": "vip", "keep_days": "forever"}
    holdfast.policies.set_all([ENDING, keep], confirm=True, author="dpo", progress=look)
    assert set(seen) == {(0, 2, None)}, "while records are told, nothing has changed"
    assert holdfast.manager("vip", "guide").get(vip)
    with pytest.raises(NotFoundError):
        holdfast.manager("bob", "guide").get(other)
    entries = [entry for entry in holdfast.audit.tail(10) if entry["action"] == "rule.changed"]
    assert {(entry["detail"]["level"], entry["actor"]) for entry in entries} == {("tenant", "dpo"), ("user", "dpo")}
    assert len({entry["at"] for entry in entries}) == 1
    check_sound(holdfast)


def cut_short(holdfast: Holdfast, rules: list[dict[str, Any]]) -> None:
    """Set rules, and die while the records are told of them."""

    def die(_count: int) -> None:
        raise DeathError("cut short")

    with pytest.raises(DeathError):
        holdfast.policies.set_all(rules, confirm=True, progress=die)


def test_rules_that_were_cut_short_take_effect_together_or_not_at_all(holdfast: Holdfast, clock: FakeClock) -> None:
    (vip,) = remember(holdfast, "ann", "cook", 1)
    remember(holdfast, "bob", "cook", 1)
    clock.advance(days=40)
    cut_short(holdfast, [ENDING, *KEPT])
    assert due(holdfast)["recycle"] == set()
    assert [rule["level"] for rule in holdfast.policies.list() if rule["level"] != "default"] == []
    assert holdfast.sweep().counts["recycle"] == 1, "bob's; the sweep lets all of them take effect first"
    assert holdfast.manager("ann", "cook").get(vip)
    assert len([rule for rule in holdfast.policies.list() if rule["level"] != "default"]) == 3


def test_what_was_cut_short_does_not_come_after_rules_that_were_set_since(holdfast: Holdfast, clock: FakeClock) -> None:
    remember(holdfast, "ann", "cook", 1)
    long = {**ENDING, "delete_after_days": 700}
    holdfast.policies.set_all([long], confirm=True)
    clock.advance(days=40)
    cut_short(holdfast, [ENDING, {**KEPT[1], "keep_days": 90}])
    changes = holdfast.policies.preview_all([long], exclusive=True)
    assert [change["action"] for change in changes.changes] == ["set", "remove"]
    holdfast.policies.set_all([long], exclusive=True)
    assert holdfast.sweep().counts["recycle"] == 0
    rules = [rule for rule in holdfast.policies.list() if rule["level"] != "default"]
    assert [rule["delete_after_days"] for rule in rules] == [700]


@pytest.mark.parametrize(
    "rules",
    [
        [ENDING, ENDING],
        [ENDING, {"memory_type": "*", "delete_after": 3}],
        [ENDING, {"delete_after_days": 3}],
        [ENDING, "long_term"],
        [ENDING, {"memory_type": "long_term", "user_id": "ann"}],
    ],
)
def test_of_several_rules_a_wrong_one_leaves_all_as_they_were(holdfast: Holdfast, rules: Any) -> None:
    with pytest.raises(InvalidRuleError):
        holdfast.policies.set_all(rules, confirm=True)
    with pytest.raises(InvalidInputError):
        holdfast.policies.set_all([ENDING], confirm=True, author="")
    assert raw.rows(holdfast, "SELECT count(*) FROM rules") == [(0,)]


# --- asking ------------------------------------------------------------------------------------------------------------


def test_a_rule_that_shortens_retention_asks_first(holdfast: Holdfast, memory: MemoryManager, clock: FakeClock) -> None:
    (episode,) = record(memory, clock, 50)
    with pytest.raises(ConfirmationNeededError, match="1 to recycle due at once"):
        holdfast.policies.set("episodic", archive_after_days=10, delete_after_days=40)
    assert memory.episodic.get_steps(episode) == [{"content": "went"}]
    assert holdfast.policies.get("episodic")["delete_after_days"] == 365
    holdfast.policies.set("episodic", archive_after_days=10, delete_after_days=40, confirm=True)
    with pytest.raises(NotFoundError):
        memory.get(episode)


def test_a_rule_that_lengthens_retention_does_not_ask(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    record(memory, clock, 50)
    holdfast.policies.set("episodic", archive_after_days=100, delete_after_days=400)
    holdfast.policies.set("episodic", user_id="user_123", archive_after_days="never", delete_after_days="never")
    holdfast.policies.set("long_term", keep_days=100)
    with pytest.raises(ConfirmationNeededError):
        holdfast.policies.remove("episodic", user_id="user_123")
    holdfast.policies.remove("episodic", user_id="user_123", confirm=True)


def test_a_rule_for_one_user_is_not_compared_with_the_rules_of_another(holdfast: Holdfast, clock: FakeClock) -> None:
    for user_id in ("ann", "bob"):
        record(holdfast.manager(user_id, "guide"), clock, 1)
    holdfast.policies.set("episodic", user_id="ann", delete_after_days=1_000)
    holdfast.policies.set("episodic", user_id="bob", delete_after_days=500)
    assert holdfast.policies.get("episodic", user_id="bob")["delete_after_days"] == 500


def test_a_refused_author_leaves_nothing_that_takes_effect_later(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    (episode,) = record(memory, clock, 50)
    with pytest.raises(InvalidInputError):
        holdfast.policies.set("episodic", archive_after_days=10, delete_after_days=40, confirm=True, author="")
    holdfast.sweep()
    assert holdfast.policies.get("episodic")["delete_after_days"] == 365
    assert memory.get(episode)


# --- taking effect -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["tenant", "user", "agent", "session", "memory"])
def test_a_rule_takes_effect_at_once_for_what_is_there_and_what_comes(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock, level: str
) -> None:
    old = memory.add("an old fact", "long_term")["memory_id"]
    others = holdfast.manager("bob", "cook", "other").add("somebody else's fact", "long_term")["memory_id"]
    memory.retrieve("fact")
    clock.advance(days=20)
    scope: dict[str, Any] = {
        "tenant": {},
        "user": {"user_id": "user_123"},
        "agent": {"agent_id": "travel_agent"},
        "session": {"session_id": "sess_abc123"},
        "memory": {"user_id": "user_123", "memory_id": old},
    }[level]
    holdfast.policies.set("long_term", delete_after_days=10, confirm=True, **scope)
    assert memory.retrieve("fact") == []
    new = memory.add("a new fact", "long_term")["memory_id"]
    clock.advance(days=10)
    seen = {found["memory_id"] for found in memory.retrieve("fact")}
    assert seen == ({new} if level == "memory" else set())
    theirs = holdfast.manager("bob", "cook", "other").retrieve("fact")
    assert [found["memory_id"] for found in theirs] == ([] if level == "tenant" else [others])
    holdfast.policies.remove("long_term", **scope)
    assert {found["memory_id"] for found in memory.retrieve("fact")} == {old, new}, "nothing was swept meanwhile"
    check_sound(holdfast)


def test_another_engine_that_is_open_follows_a_change(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory.add("a fact", "long_term")
    with Holdfast.open(home=holdfast.settings.home, clock=clock) as other:
        theirs = other.manager("user_123", "travel_agent")
        assert theirs.retrieve("fact")
        clock.advance(days=20)
        holdfast.policies.set("long_term", delete_after_days=10, confirm=True)
        assert theirs.retrieve("fact") == []
        theirs.add("a new fact", "long_term")
        clock.advance(days=10)
        assert theirs.retrieve("fact") == []
        assert other.policies.get("long_term")["delete_after_days"] == 10


def test_every_change_is_a_version_and_is_audited(holdfast: Holdfast) -> None:
    first = holdfast.policies.set("long_term", user_id="ann", delete_after_days=500, confirm=True, author="dpo")
    second = holdfast.policies.set("long_term", user_id="ann", delete_after_days=600, author="dpo")
    third = holdfast.policies.remove("long_term", user_id="ann", author="dpo")
    assert [rule["version"] for rule in (first, second, third)] == [1, 2, 3]
    assert len({rule["rule_id"] for rule in (first, second, third)}) == 1
    changes = [entry for entry in holdfast.audit.tail(10) if entry["action"] == "rule.changed"]
    entries = [entry["detail"] for entry in changes]
    assert [(entry["from"], entry["to"], entry["version"]) for entry in entries] == [
        ({}, {"delete_after_days": 500}, 1),
        ({"delete_after_days": 500}, {"delete_after_days": 600}, 2),
        ({"delete_after_days": 600}, {}, 3),
    ]
    assert {entry["actor"] for entry in changes} == {"dpo"}
    assert [rule for rule in holdfast.policies.list() if rule["level"] != "default"] == []


def test_a_decision_names_the_rule_and_its_version(holdfast: Holdfast, memory: MemoryManager, clock: FakeClock) -> None:
    memory_id = memory.add("a fact", "long_term")["memory_id"]
    holdfast.policies.set("long_term", user_id="user_123", delete_after_days=10, confirm=True)
    holdfast.policies.set("long_term", user_id="user_123", delete_after_days=20)
    clock.advance(days=20)
    holdfast.sweep()
    clock.advance(days=15)
    holdfast.sweep()
    told = memory.explain(memory_id)
    assert told["rule"] == "the user's rule for long_term, version 2"
    assert told["reason"] == "20 days after it was made, by the user's rule for long_term, version 2"


def test_a_rule_for_every_kind_leaves_persona_memory_alone(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    for kind in ("long_term", "persona", "episodic", "entity"):
        memory.add("a fact", kind)
    holdfast.policies.set("*", delete_after_days=10, confirm=True)
    clock.advance(days=10)
    assert [m["memory_type"] for m in memory.retrieve("fact", ["long_term", "persona", "episodic", "entity"])] == [
        "persona"
    ]
    assert holdfast.sweep().counts["recycle"] == 3


def test_a_rule_that_names_the_kind_wins_over_one_for_every_kind(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory_id = memory.add("a fact", "long_term")["memory_id"]
    holdfast.policies.set("*", delete_after_days=30, confirm=True)
    clock.advance(days=40)
    with pytest.raises(NotFoundError):
        memory.get(memory_id)
    holdfast.policies.set("long_term", delete_after_days="never")
    assert memory.get(memory_id)
    assert due(holdfast)["recycle"] == set()
    life = holdfast.policies.get("long_term")
    assert (life["delete_after_days"], life["delete_by"]) == (None, "the tenant's rule for long_term, version 1")
    assert "every kind" not in str(memory.explain(memory_id))
    assert holdfast.policies.get("entity")["delete_after_days"] == 30


def test_short_term_memory_lives_as_long_as_its_rule_says(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    holdfast.policies.set("short_term", agent_id="travel_agent", delete_after_days=2 / 24)
    memory.short_term.add_message("user", "hello")
    assert memory.short_term.get_ttl() == 7_200
    clock.advance(hours=2)
    assert memory.short_term.get_conversation_history() == []


def test_an_agents_four_knobs_are_its_rule_for_episodes(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    (episode,) = record(memory, clock, 50)
    holdfast.policies.set_episodic(
        "travel_agent", EpisodicRetentionPolicy(40, 60, archive_on_expiry=True), confirm=True
    )
    assert memory.episodic.get_steps(episode) == "archived"
    holdfast.policies.set_episodic("travel_agent", EpisodicRetentionPolicy(40, archive_on_expiry=False), confirm=True)
    with pytest.raises(NotFoundError):
        memory.get(episode)
    holdfast.policies.set_episodic("other", EpisodicRetentionPolicy(5, 6), confirm=True)
    assert holdfast.policies.get("episodic", agent_id="travel_agent")["delete_after_days"] == 40


def test_the_longest_rule_that_keeps_wins_over_one_that_removes(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory_id = memory.add("a fact", "long_term")["memory_id"]
    holdfast.policies.set("long_term", keep_days=50)
    holdfast.policies.set("long_term", user_id="user_123", delete_after_days=10, confirm=True)
    clock.advance(days=49)
    assert memory.get(memory_id)
    clock.advance(days=1)
    with pytest.raises(NotFoundError):
        memory.get(memory_id)


@sampled
@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("long_term", {}),
        ("working", {"delete_after_days": 1}),
        ("long_term", {"delete_after_days": 0}),
        ("long_term", {"delete_after_days": "soon"}),
        ("long_term", {"archive_after_days": 10, "delete_after_days": 10}),
        ("long_term", {"keep_days": 20, "delete_after_days": 10}),
        ("persona", {"archive_after_days": 10}),
        ("persona", {"keep_days": 30}),
        ("history", {"keep_days": 10}),
        ("short_term", {"delete_after_days": "never"}),
        ("audit", {"delete_after_days": 10, "user_id": "ann"}),
        ("long_term", {"delete_after_days": 10, "memory_id": "0" * 32}),
        ("long_term", {"delete_after_days": 10, "memory_id": "x", "user_id": "ann"}),
        ("nothing", {"delete_after_days": 10}),
        (["long_term"], {"delete_after_days": 10}),
    ],
)
def test_a_rule_that_cannot_be_is_refused_and_nothing_changes(holdfast: Holdfast, kind: Any, arguments: Any) -> None:
    with pytest.raises(InvalidRuleError):
        holdfast.policies.set(kind, **arguments, confirm=True)
    assert raw.rows(holdfast, "SELECT count(*) FROM rules") == [(0,)]


def test_a_rule_that_is_not_there_cannot_be_removed(holdfast: Holdfast) -> None:
    with pytest.raises(NotFoundError):
        holdfast.policies.remove("long_term")


# --- policy files ----------------------------------------------------------------------------------------------------------


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "policies.toml"
    path.write_text(text, encoding="utf-8")
    return path


def apply_file(holdfast: Holdfast, path: Path) -> None:
    wanted, exclusive = read_policies(path)
    holdfast.policies.set_all(wanted, exclusive=exclusive, confirm=True, author="ops")


GOOD = """
[[policy]]
memory_type = "episodic"
agent_id = "travel_agent"
active_retention_days = 30
archive_retention_days = 180

[[policy]]
memory_type = "long_term"
user_id = "ann"
delete_after_days = "never"

[[policy]]
memory_type = "history"
delete_after_days = 60
"""


def test_a_file_of_rules_is_applied_as_one_change_set(holdfast: Holdfast, tmp_path: Path) -> None:
    wanted, exclusive = read_policies(written(tmp_path, GOOD))
    changes = holdfast.policies.preview_all(wanted, exclusive=exclusive)
    assert [change["action"] for change in changes.changes] == ["set", "set", "set"]
    assert changes.preview.shortens
    with pytest.raises(ConfirmationNeededError, match="nothing was changed"):
        holdfast.policies.set_all(wanted, exclusive=exclusive, author="ops")
    assert raw.rows(holdfast, "SELECT count(*) FROM rules") == [(0,)]
    holdfast.policies.set_all(wanted, exclusive=exclusive, confirm=True, author="ops")
    assert holdfast.policies.get("episodic", agent_id="travel_agent")["archive_after_days"] == 30
    assert holdfast.policies.get("history")["delete_after_days"] == 60
    again = holdfast.policies.preview_all(wanted, exclusive=exclusive)
    assert [change["action"] for change in again.changes] == ["keep", "keep", "keep"]
    assert not again.preview.shortens


def test_an_exclusive_file_takes_other_rules_away(holdfast: Holdfast, tmp_path: Path) -> None:
    holdfast.policies.set("long_term", user_id="bob", delete_after_days=500, confirm=True)
    wanted, exclusive = read_policies(written(tmp_path, "exclusive = true\n" + GOOD))
    assert exclusive
    holdfast.policies.set_all(wanted, exclusive=True, confirm=True, author="ops")
    left = {(rule["memory_type"], rule["level"]) for rule in holdfast.policies.list() if rule["level"] != "default"}
    assert left == {("episodic", "agent"), ("long_term", "user"), ("history", "tenant")}
    assert holdfast.policies.get("long_term", user_id="bob")["delete_after_days"] is None


@sampled
@pytest.mark.parametrize(
    "text",
    [
        "",
        "[[policy]",
        "policy = 3",
        "policy = []",
        "exclusive = true",
        "[policy]\nmemory_type = 'long_term'",
        "[[policy]]\ndelete_after_days = 3",
        "[[policy]]\nmemory_type = 'long_term'\nfoo = 3",
        "[[policy]]\nmemory_type = 'long_term'",
        "[[policy]]\nmemory_type = 'nothing'\ndelete_after_days = 3",
        "[[policy]]\nmemory_type = ['long_term']\ndelete_after_days = 3",
        "[[policy]]\nmemory_type = 'long_term'\ndelete_after_days = 3\nuser_id = ['ann']",
        "[[policy]]\nmemory_type = 'long_term'\ndelete_after_days = 3\nuser_id = 7",
        "[[policy]]\nmemory_type = 'long_term'\ndelete_after_days = true",
        "[[policy]]\nmemory_type = 'long_term'\ndelete_after_days = -1",
        "[[policy]]\nmemory_type = 'long_term'\nactive_retention_days = 3",
        "[[policy]]\nmemory_type = 'episodic'\nactive_retention_days = 3\ndelete_after_days = 9",
        "[[policy]]\nmemory_type = 'episodic'\nactive_retention_days = 400",
        "[[policy]]\narchive_on_expiry = false\ndelete_after_archival_period = false",
        "[[policy]]\narchive_on_expiry = false\narchive_retention_days = 200",
        "[[policy]]\nmemory_type = 'long_term'\ndelete_after_days = 3\n" * 2,
        "exclusive = 'yes'\n[[policy]]\nmemory_type = 'long_term'\ndelete_after_days = 3",
        "other = 1\n[[policy]]\nmemory_type = 'long_term'\ndelete_after_days = 3",
    ],
)
def test_a_bad_file_is_refused_and_nothing_changes(holdfast: Holdfast, tmp_path: Path, text: str) -> None:
    good = "[[policy]]\nmemory_type = 'history'\ndelete_after_days = 5\n"
    for whole in (text, good + text if text.startswith("[[policy]]") else text):
        with pytest.raises(InvalidInputError):
            apply_file(holdfast, written(tmp_path, whole))
        assert raw.rows(holdfast, "SELECT count(*) FROM rules") == [(0,)]


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidRuleError, match="cannot read"):
        read_policies(tmp_path / "nothing.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidRuleError, match="cannot read"):
        read_policies(tmp_path / "bytes.toml")
