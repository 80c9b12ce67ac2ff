"""With ``auto_gc`` the memory domain's policy is a rule like any other, for records that say what they come from."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clocks import FakeClock
from domains.samples import configs
from domains.tenants import Tenants
from homes import ENGINES, Homes, fewer, on_sqlite
from lifecycle.fuses import DeathError, Fuse
from retain import ConfirmationNeededError, ConflictError, MemoryManager, Retain
from retain.core.domains import DEFAULT_POLICY, normalised
from retain.kinds.parts import Parts
from retain.lifecycle.domain_rules import wanted_by
from retain.lifecycle.plan import Plan

ON = {"auto_gc": True}


@pytest.fixture(scope="session", params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> str:
    return cast("str", request.param)


def add(memory: MemoryManager, source_type: str | None = "context", kind: str = "long_term", **metadata: Any) -> str:
    labels = metadata if source_type is None else {"source_type": source_type, **metadata}
    done = memory.add(f"a note of {source_type}", kind, labels)
    return cast("str", done["memory_id"])


def seen(memory: MemoryManager) -> set[str]:
    return {one["memory_id"] for one in memory.list_memories("long_term", limit=10_000)}


def plan_of(retain: Retain) -> Plan:
    plan = retain.sweep(dry_run=True)
    assert isinstance(plan, Plan)
    return plan


def rule_of(retain: Retain) -> dict[str, Any] | None:
    found = [rule for rule in retain.policies.list() if rule["level"] == "domain"]
    assert len(found) <= 1, "one policy is in force at a time"
    return found[0] if found else None


# --- what is undone ---------------------------------------------------------------------------------------------------


def test_a_write_that_was_undone_leaves_nothing_to_later_ones(
    retain: Retain, memory: MemoryManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    retain.domains.configure("memory", ON, confirm=True, author="ops")
    labels = [{"source_type": "context", "context_id": number} for number in range(3)]
    same = [retain.parts.new_id(0)] * 3
    with monkeypatch.context() as ids:  # two of one id: by then the profile was made, and found twice
        ids.setattr(Parts, "new_ids", lambda *_: same)
        with pytest.raises(ConflictError, match="has this id"):
            memory.add_many(["a", "b", "c"], metadata=labels)

    kept = memory.add_many(["a", "b", "c"], metadata=labels)["memory_ids"]

    assert seen(memory) == {*kept}
    assert seen(retain.manager("ann", "travel_agent")) == set()
    assert add(retain.manager("ann", "travel_agent")) in seen(retain.manager("ann", "travel_agent"))


# --- from the policy to the bin ---------------------------------------------------------------------------------------


def test_a_memory_goes_by_the_policy_from_read_to_bin_and_back(
    retain: Retain, memory: MemoryManager, clock: FakeClock
) -> None:
    old, other = add(memory), add(memory, None)
    retain.domains.configure("memory", {**ON, "older_than_days": 10}, confirm=True, author="ops")
    clock.advance(days=10, microseconds=-1)
    assert seen(memory) == {old, other}
    clock.advance(microseconds=1)
    assert seen(memory) == {other}, "out of sight at that instant, before any sweep"
    assert [hit["memory_id"] for hit in memory.retrieve("a note of context")] == [other]

    said = retain.explain(old)
    assert said["next"]["rule"] == "the memory domain's policy, version 1"
    assert said["next"]["due"]
    plan = plan_of(retain)
    assert [decision.id for decision in plan.decisions] == [old]
    assert plan.lines[0].reason == "10 days after it was made, by the memory domain's policy, version 1"
    report = retain.sweep(digest=plan.digest)
    assert report.lines == plan.lines
    assert retain.sweep(dry_run=True).counts["recycle"] == 0

    assert retain.explain(old)["days_left"] == 15
    assert retain.explain(old)["history"][-1]["rule"] == "the memory domain's policy, version 1"
    assert retain.recycle.restore(memory_id=old) == 1
    assert seen(memory) == {old, other}
    clock.advance(days=10)
    assert seen(memory) == {other}, "its time counts anew from when it was brought back"
    retain.sweep()
    clock.advance(days=15)
    retain.sweep()
    assert retain.explain(old, user_id="user_123")["state"] == "deleted"
    assert retain.audit.verify()


def test_only_what_names_a_source_of_the_policy_goes_and_nothing_that_is_kept(
    retain: Retain, memory: MemoryManager, clock: FakeClock
) -> None:
    kept_session = retain.manager("user_123", "travel_agent", "kept")
    going = [add(memory, "context"), add(memory, "action"), add(memory, "context", context_id="7")]
    staying = [
        add(memory, "thought"),
        add(memory, "else"),
        add(memory, None),
        add(memory, 3),  # type: ignore[arg-type]
        add(memory, "context", context_id=7),
        add(memory, "action", context_id=7.0),
        add(kept_session, "context"),
    ]
    persona = add(memory, "context", "persona")
    config = {"source_types": ["context", "action"], "keep_session_ids": ["kept"], "keep_context_ids": [7]}
    retain.domains.configure("memory", {**ON, **config}, confirm=True)
    clock.advance(days=30)
    assert seen(memory) == set(staying)
    retain.sweep()
    assert {retain.explain(one)["state"] for one in going} == {"recycled"}
    assert {retain.explain(one)["state"] for one in [*staying, persona]} == {"active"}, "no clean-up touches persona"


@pytest.mark.parametrize("kind", ["episodic", "entity", "structured"])
def test_every_kind_that_carries_metadata_goes_by_it(
    retain: Retain, memory: MemoryManager, clock: FakeClock, kind: str
) -> None:
    content = '{"name": "Ann"}' if kind == "structured" else "Ann"
    made = memory.add(content, kind, {"source_type": "action"})["memory_id"]
    retain.domains.configure("memory", ON, confirm=True)
    clock.advance(days=30)
    assert retain.sweep().counts["recycle"] == 1
    assert retain.explain(made)["state"] == "recycled"


def test_a_hold_keeps_what_the_policy_would_collect(retain: Retain, memory: MemoryManager, clock: FakeClock) -> None:
    held, free = add(memory), add(memory)
    hold = retain.holds.add(memory_id=held, reason="the case", author="legal")
    retain.domains.configure("memory", ON, confirm=True)
    clock.advance(days=31)
    plan = retain.sweep(dry_run=True)
    report = retain.sweep(digest=plan.digest)
    assert (plan.held, report.held) == (1, 1)
    assert (retain.explain(held)["state"], retain.explain(free)["state"]) == ("active", "recycled")
    retain.holds.release(hold.id, author="legal")
    retain.sweep()
    assert retain.explain(held)["state"] == "recycled"


def test_a_rule_that_keeps_and_one_that_is_nearer_are_stronger(
    retain: Retain, memory: MemoryManager, clock: FakeClock
) -> None:
    other = retain.manager("bob", "travel_agent")
    mine, theirs = add(memory), add(other)
    retain.domains.configure("memory", ON, confirm=True)
    retain.policies.set("long_term", user_id="user_123", keep_days=100)
    retain.policies.set("long_term", user_id="bob", delete_after_days=60, confirm=True)
    clock.advance(days=59)
    assert (seen(memory), seen(other)) == ({mine}, {theirs})
    clock.advance(days=1)
    assert (seen(memory), seen(other)) == ({mine}, set())
    clock.advance(days=40)
    assert seen(memory) == set()


# --- how much at a time -----------------------------------------------------------------------------------------------


def test_one_sweep_collects_no_more_than_the_limit_and_a_plan_says_which(
    retain: Retain, memory: MemoryManager, clock: FakeClock
) -> None:
    other = retain.manager("bob", "travel_agent")
    notes = [add(one, kind=kind) for one in (memory, other) for kind in ("long_term", "entity") for _ in range(1)]
    notes += [add(memory) for _ in range(6)]
    unlabelled = add(memory, None)
    retain.policies.set("long_term", delete_after_days=40, confirm=True)
    retain.domains.configure("memory", {**ON, "limit": 4}, confirm=True)
    clock.advance(days=35)
    gone: set[str] = set()
    for expected in (4, 4, 2, 0):
        plan = plan_of(retain)
        planned = {decision.id for decision in plan.decisions}
        assert plan.counts["recycle"] == len(planned) == expected
        report = retain.sweep(digest=plan.digest)
        assert report.lines == plan.lines
        gone |= planned
        assert {one for one in notes if retain.explain(one)["state"] == "recycled"} == gone
        assert seen(memory) == {unlabelled}, "what waits for the next one is out of sight like the rest"
    clock.advance(days=5)
    assert retain.sweep().counts["recycle"] == 1, "the limit is the policy's, not that of other rules"


@on_sqlite
def test_where_the_policy_cannot_be_read_nothing_goes_by_it(
    retain: Retain, memory: MemoryManager, home: Path, clock: FakeClock
) -> None:
    add(memory)
    retain.domains.configure("memory", ON, confirm=True)
    (home / "state" / "retention-policies.json").write_text("{")
    clock.advance(days=30)
    assert retain.sweep(dry_run=True).counts["recycle"] == retain.sweep().counts["recycle"] == 0
    assert seen(memory) == set()


@on_sqlite
@pytest.mark.parametrize("vacuum", [True, False])
def test_with_vacuum_space_goes_back_to_the_disk_after_a_sweep_that_collects(
    retain: Retain, memory: MemoryManager, home: Path, clock: FakeClock, vacuum: bool
) -> None:
    add(memory)
    retain.domains.configure("memory", {**ON, "vacuum": vacuum}, confirm=True)
    clock.advance(days=30)
    assert retain.sweep().counts["recycle"] == 1
    log = home / "retain.db-wal"
    assert (log.stat().st_size == 0) is vacuum


# --- changes ----------------------------------------------------------------------------------------------------------


def test_what_lets_memories_go_earlier_is_to_be_confirmed_and_nothing_else(
    retain: Retain, memory: MemoryManager, clock: FakeClock
) -> None:
    add(memory)
    add(memory, "action", context_id=3)
    clock.advance(days=50)

    def refused(config: dict[str, Any], due: int) -> None:
        before = retain.domains.get("memory"), rule_of(retain)
        told = f"{due} to recycle" if due else "nothing"
        with pytest.raises(ConfirmationNeededError, match=rf"shortens retention: it makes {told} due at once"):
            retain.domains.configure("memory", config)
        assert (retain.domains.get("memory"), rule_of(retain)) == before, "neither the policy nor the rule"

    refused(ON, 2)
    retain.domains.configure("memory", {"older_than_days": 60, "keep_context_ids": [3]})  # nothing goes by it yet
    refused(ON, 0)
    retain.domains.configure("memory", ON, confirm=True)
    refused({"older_than_days": 50}, 1)
    refused({"keep_context_ids": []}, 0)
    refused({"older_than_days": 40, "keep_context_ids": []}, 2)
    for config in (
        {"older_than_days": 61},
        {"source_types": ["context"]},
        {"keep_session_ids": ["s"], "keep_context_ids": [3, 4]},
        {"limit": 1, "vacuum": True},
        {"auto_gc": False},
        {"older_than_days": 1},
    ):
        retain.domains.configure("memory", config)
    assert rule_of(retain) is None
    retain.domains.configure("rag", {**ON, "older_than_days": 1})
    assert rule_of(retain) is None, "the other domain has no records of ours"


def test_switched_off_what_has_not_gone_yet_is_there_again(
    retain: Retain, memory: MemoryManager, clock: FakeClock
) -> None:
    note = add(memory)
    retain.domains.configure("memory", ON, confirm=True, author="ops")
    clock.advance(days=30)
    assert seen(memory) == set()
    retain.domains.configure("memory", {"auto_gc": False}, author="ops")
    assert seen(memory) == {note}
    later = add(memory)
    retain.domains.configure("memory", {**ON, "older_than_days": 40}, confirm=True)
    clock.advance(days=10)
    assert seen(memory) == {later}
    clock.advance(days=30)
    assert seen(memory) == set(), "what was added in between goes by it as well"
    entries = [entry["detail"] for entry in retain.audit.tail(50) if entry["action"] == "rule.changed"]
    assert [(one["level"], one["from"], one["to"], one["author"], one["version"]) for one in entries] == [
        ("domain", {}, {"delete_after_days": 30}, "ops", 1),
        ("domain", {"delete_after_days": 30}, {}, "ops", 2),
        ("domain", {}, {"delete_after_days": 40}, "unknown", 3),
    ]


def test_a_memory_whose_labels_change_goes_by_the_rules_of_its_new_ones(
    retain: Retain, memory: MemoryManager, clock: FakeClock
) -> None:
    one, two, three = add(memory), add(memory, None), add(memory, "action")
    retain.domains.configure("memory", {**ON, "keep_context_ids": [7]}, confirm=True)
    memory.update(one, metadata={"context_id": 7})
    memory.update(two, metadata={"source_type": "thought"})
    memory.update(three, content="another text")
    clock.advance(days=30)
    assert seen(memory) == {one}
    retain.sweep()
    assert [retain.explain(note)["state"] for note in (one, two, three)] == ["active", "recycled", "recycled"]


def test_tenants_go_by_policies_of_their_own(retain: Retain, clock: FakeClock) -> None:
    acme = retain.of_tenant("acme")
    mine, theirs = retain.manager("alice", "a"), acme.manager("alice", "a")
    add(mine)
    kept = add(theirs)
    retain.domains.configure("memory", ON, confirm=True)
    clock.advance(days=30)
    assert (seen(mine), seen(theirs)) == (set(), {kept})
    assert acme.domains.get("memory") == DEFAULT_POLICY.as_dict()


# --- crashes and others -----------------------------------------------------------------------------------------------


def test_after_a_crash_the_next_sweep_lets_the_rules_follow_the_policy(homes: Homes, clock: FakeClock) -> None:
    crashes = 0
    for burns_at in range(20):
        home = homes.new(f"home{burns_at}")
        with Retain.open(home=home, clock=clock) as retain:
            note = add(retain.manager("alice", "a"))
            retain.domains.configure("memory", {**ON, "older_than_days": 20, "keep_context_ids": [1]}, confirm=True)
            Fuse(retain, burns_at)
            try:
                retain.domains.configure("memory", {"older_than_days": 10, "keep_context_ids": [2]}, confirm=True)
            except DeathError:
                crashes += 1
                crashed = True
            else:
                crashed = False
        with Retain.open(home=home, clock=clock) as retain:
            retain.sweep()
            policy = normalised(retain.domains.get("memory"), DEFAULT_POLICY)
            assert policy.older_than_days == 10, "the policy was saved before"
            rule = rule_of(retain)
            assert rule is not None
            assert (rule["delete_after_days"], rule["keep_context_ids"]) == (10, [2])
            assert retain.domains._rules.is_followed(wanted_by(policy))
            clock.advance(days=10)
            assert seen(retain.manager("alice", "a")) == set()
            retain.sweep()
            assert retain.explain(note)["state"] == "recycled"
        homes.remove(home)
        if not crashed:
            break
    assert crashes >= 2, "between the policy and its rule, and within the change of the rule"


def test_of_two_who_configure_at_once_the_rules_follow_the_one_whose_policy_stands(
    home: Path, clock: FakeClock
) -> None:
    with Retain.open(home=home, clock=clock) as one, Retain.open(home=home, clock=clock) as two:
        add(one.manager("alice", "a"))

        def configure(retain: Retain, session: str) -> None:
            for number in range(5):
                config = {"older_than_days": 100 + number, "keep_session_ids": [session], "auto_gc": number % 3 != 2}
                retain.domains.configure("memory", config, confirm=True)

        threads = [
            threading.Thread(target=configure, args=(one, "s1")),
            threading.Thread(target=configure, args=(two, "s2")),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        policy = normalised(one.domains.get("memory"), DEFAULT_POLICY)
        assert policy.auto_gc
        rule = rule_of(two)
        assert rule is not None
        assert (rule["delete_after_days"], rule["keep_session_ids"]) == (104, list(policy.keep_session_ids))


# --- against a simple reading -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stores(engine_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    clock = FakeClock()
    with (
        Homes(engine_name, tmp_path_factory.mktemp("stores")) as homes,
        Retain.open(home=homes.new(), clock=clock) as retain,
    ):
        yield Tenants(retain, clock)


notes = st.tuples(
    st.sampled_from(["context", "action", "thought", "else", None]),
    st.sampled_from(["s1", "s2", "s3", None]),
    st.sampled_from([1, 2, 5, None]),
    st.integers(0, 40),
)


def check_against_naive(
    stores: Tenants, written: list[tuple[Any, ...]], changes: list[dict[str, Any]], then: list[tuple[Any, ...]]
) -> None:
    """Notes, changes of the policy, more notes; then what is seen, planned and swept is what a plain reading says."""
    retain, clock = stores.open(), stores.clock
    policy, made = DEFAULT_POLICY, {}
    start = clock()

    def write(some: list[tuple[Any, ...]]) -> None:
        for source_type, session, context, day in some:
            metadata = {"source_type": source_type, "context_id": context}
            labels = {name: value for name, value in metadata.items() if value is not None}
            clock.now = start + timedelta(days=day)
            done = retain.manager("alice", "a", session).add("a note", "long_term", labels)
            made[done["memory_id"]] = (source_type, session, context, clock())

    write(written)
    for config in changes:
        retain.domains.configure("memory", config, confirm=True)
        policy = normalised(config, policy)
    write(then)
    clock.now = start + timedelta(days=60)
    due = {
        note
        for note, (source_type, session, context, at) in made.items()
        if policy.auto_gc
        and source_type in policy.source_types
        and session not in policy.keep_session_ids
        and context not in policy.keep_context_ids
        and clock() - at >= timedelta(days=policy.older_than_days)
    }
    assert seen(retain.manager("alice", "a")) == set(made) - due
    plan = plan_of(retain)
    planned = {decision.id for decision in plan.decisions}
    assert planned <= due
    assert len(planned) == min(len(due), policy.limit)
    assert retain.sweep(digest=plan.digest).lines == plan.lines


def test_records_go_as_a_plain_reading_of_the_policy_says(engine_name: str, stores: Tenants) -> None:
    some = st.lists(notes, max_size=4)
    often = st.lists(configs.map(lambda config: {"auto_gc": True, **config}), min_size=1, max_size=3)
    check = given(written=some, changes=often, then=some)(lambda **drawn: check_against_naive(stores, **drawn))
    settings(max_examples=fewer(engine_name, 16))(check)()
