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
from effort import soak, times
from holdfast import ConfirmationNeededError, ConflictError, Holdfast, MemoryManager
from holdfast.core.domains import DEFAULT_POLICY, normalize
from holdfast.lifecycle.domains import wanted_by
from holdfast.lifecycle.sweeping.plan import Plan
from holdfast.memory.services import Services
from holdfast.results import RuleResult
from homes import ENGINES, Homes, on_sqlite
from lifecycle.fuses import DeathError, Fuse

ON = {"auto_gc": True}


@pytest.fixture(scope="session", params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> str:
    return cast("str", request.param)


def add(memory: MemoryManager, source_type: str | None = "context", kind: str = "long_term", **metadata: Any) -> str:
    labels = metadata if source_type is None else {"source_type": source_type, **metadata}
    done = memory.add(f"a note of {source_type}", kind, labels)
    return done["memory_id"]


def seen(memory: MemoryManager) -> set[str]:
    return {one["memory_id"] for one in memory.list_memories("long_term", limit=10_000)}


def plan_of(holdfast: Holdfast) -> Plan:
    plan = holdfast.sweep(dry_run=True)
    assert isinstance(plan, Plan)
    return plan


def rule_of(holdfast: Holdfast) -> RuleResult | None:
    found = [rule for rule in holdfast.policies.list() if rule["level"] == "domain"]
    assert len(found) <= 1, "one policy is in force at a time"
    return found[0] if found else None


# --- what is undone ---------------------------------------------------------------------------------------------------


def test_a_write_that_was_undone_leaves_nothing_to_later_ones(
    holdfast: Holdfast, memory: MemoryManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    holdfast.domains.configure("memory", ON, confirm=True, author="ops")
    labels = [{"source_type": "context", "context_id": number} for number in range(3)]
    same = [holdfast.services.new_id(0)] * 3
    with monkeypatch.context() as ids:  # two of one id: by then the profile was made, and found twice
        ids.setattr(Services, "ids_at", lambda *_: same)
        with pytest.raises(ConflictError, match="has this id"):
            memory.add_many(["a", "b", "c"], metadata=labels)

    kept = memory.add_many(["a", "b", "c"], metadata=labels)["memory_ids"]

    assert seen(memory) == {*kept}
    assert seen(holdfast.manager("ann", "travel_agent")) == set()
    assert add(holdfast.manager("ann", "travel_agent")) in seen(holdfast.manager("ann", "travel_agent"))


# --- from the policy to the bin ---------------------------------------------------------------------------------------


def test_a_memory_goes_by_the_policy_from_read_to_bin_and_back(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    old, other = add(memory), add(memory, None)
    holdfast.domains.configure("memory", {**ON, "older_than_days": 10}, confirm=True, author="ops")
    clock.advance(days=10, microseconds=-1)
    assert seen(memory) == {old, other}
    clock.advance(microseconds=1)
    assert seen(memory) == {other}, "out of sight at that instant, before any sweep"
    assert [hit["memory_id"] for hit in memory.retrieve("a note of context")] == [other]

    said = holdfast.explain(old)
    assert said["next"]["rule"] == "the memory domain's policy, version 1"  # type: ignore[index]
    assert said["next"]["due"]  # type: ignore[index]
    plan = plan_of(holdfast)
    assert [decision.id for decision in plan.decisions] == [old]
    assert plan.lines[0].reason == "10 days after it was made, by the memory domain's policy, version 1"
    report = holdfast.sweep(digest=plan.digest)
    assert report.lines == plan.lines
    assert holdfast.sweep(dry_run=True).counts["recycle"] == 0

    assert holdfast.explain(old)["days_left"] == 15
    assert holdfast.explain(old)["history"][-1]["rule"] == "the memory domain's policy, version 1"
    assert holdfast.recycle.restore(memory_id=old) == 1
    assert seen(memory) == {old, other}
    clock.advance(days=10)
    assert seen(memory) == {other}, "its time counts anew from when it was brought back"
    holdfast.sweep()
    clock.advance(days=15)
    holdfast.sweep()
    assert holdfast.explain(old, user_id="user_123")["state"] == "deleted"
    assert holdfast.audit.verify()


def test_only_what_names_a_source_of_the_policy_goes_and_nothing_that_is_kept(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    kept_session = holdfast.manager("user_123", "travel_agent", "kept")
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
    holdfast.domains.configure("memory", {**ON, **config}, confirm=True)
    clock.advance(days=30)
    assert seen(memory) == set(staying)
    holdfast.sweep()
    assert {holdfast.explain(one)["state"] for one in going} == {"recycled"}
    assert {holdfast.explain(one)["state"] for one in [*staying, persona]} == {"active"}, "no clean-up touches persona"


@pytest.mark.parametrize("kind", ["episodic", "entity", "structured"])
def test_every_kind_that_carries_metadata_goes_by_it(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock, kind: str
) -> None:
    content = '{"name": "Ann"}' if kind == "structured" else "Ann"
    made = memory.add(content, kind, {"source_type": "action"})["memory_id"]
    holdfast.domains.configure("memory", ON, confirm=True)
    clock.advance(days=30)
    assert holdfast.sweep().counts["recycle"] == 1
    assert holdfast.explain(made)["state"] == "recycled"


def test_a_hold_keeps_what_the_policy_would_collect(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    held, free = add(memory), add(memory)
    hold = holdfast.holds.add(memory_id=held, reason="the case", author="legal")
    holdfast.domains.configure("memory", ON, confirm=True)
    clock.advance(days=31)
    plan = holdfast.sweep(dry_run=True)
    report = holdfast.sweep(digest=plan.digest)
    assert (plan.held, report.held) == (1, 1)
    assert (holdfast.explain(held)["state"], holdfast.explain(free)["state"]) == ("active", "recycled")
    holdfast.holds.release(hold.id, author="legal")
    holdfast.sweep()
    assert holdfast.explain(held)["state"] == "recycled"


def test_a_rule_that_keeps_and_one_that_is_nearer_are_stronger(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    other = holdfast.manager("bob", "travel_agent")
    mine, theirs = add(memory), add(other)
    holdfast.domains.configure("memory", ON, confirm=True)
    holdfast.policies.set("long_term", user_id="user_123", keep_days=100)
    holdfast.policies.set("long_term", user_id="bob", delete_after_days=60, confirm=True)
    clock.advance(days=59)
    assert (seen(memory), seen(other)) == ({mine}, {theirs})
    clock.advance(days=1)
    assert (seen(memory), seen(other)) == ({mine}, set())
    clock.advance(days=40)
    assert seen(memory) == set()


# --- how much at a time -----------------------------------------------------------------------------------------------


def test_one_sweep_collects_no_more_than_the_limit_and_a_plan_says_which(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    other = holdfast.manager("bob", "travel_agent")
    notes = [add(one, kind=kind) for one in (memory, other) for kind in ("long_term", "entity") for _ in range(1)]
    notes += [add(memory) for _ in range(6)]
    unlabelled = add(memory, None)
    holdfast.policies.set("long_term", delete_after_days=40, confirm=True)
    holdfast.domains.configure("memory", {**ON, "limit": 4}, confirm=True)
    clock.advance(days=35)
    gone: set[str] = set()
    for expected in (4, 4, 2, 0):
        plan = plan_of(holdfast)
        planned = {decision.id for decision in plan.decisions}
        assert plan.counts["recycle"] == len(planned) == expected
        report = holdfast.sweep(digest=plan.digest)
        assert report.lines == plan.lines
        gone |= planned
        assert {one for one in notes if holdfast.explain(one)["state"] == "recycled"} == gone
        assert seen(memory) == {unlabelled}, "what waits for the next one is out of sight like the rest"
    clock.advance(days=5)
    assert holdfast.sweep().counts["recycle"] == 1, "the limit is the policy's, not that of other rules"


@on_sqlite
def test_where_the_policy_cannot_be_read_nothing_goes_by_it(
    holdfast: Holdfast, memory: MemoryManager, home: Path, clock: FakeClock
) -> None:
    add(memory)
    holdfast.domains.configure("memory", ON, confirm=True)
    (home / "state" / "retention-policies.json").write_text("{")
    clock.advance(days=30)
    assert holdfast.sweep(dry_run=True).counts["recycle"] == holdfast.sweep().counts["recycle"] == 0
    assert seen(memory) == set()


@on_sqlite
@pytest.mark.parametrize("vacuum", [True, False])
def test_with_vacuum_space_goes_back_to_the_disk_after_a_sweep_that_collects(
    holdfast: Holdfast, memory: MemoryManager, home: Path, clock: FakeClock, vacuum: bool
) -> None:
    add(memory)
    holdfast.domains.configure("memory", {**ON, "vacuum": vacuum}, confirm=True)
    clock.advance(days=30)
    assert holdfast.sweep().counts["recycle"] == 1
    log = home / "holdfast.db-wal"
    assert (log.stat().st_size == 0) is vacuum


# --- changes ----------------------------------------------------------------------------------------------------------


def test_what_lets_memories_go_earlier_is_to_be_confirmed_and_nothing_else(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    add(memory)
    add(memory, "action", context_id=3)
    clock.advance(days=50)

    def refused(config: dict[str, Any], due: int) -> None:
        before = holdfast.domains.get("memory"), rule_of(holdfast)
        told = f"{due} to recycle" if due else "nothing"
        with pytest.raises(ConfirmationNeededError, match=rf"shortens retention: it makes {told} due at once"):
            holdfast.domains.configure("memory", config)
        assert (holdfast.domains.get("memory"), rule_of(holdfast)) == before, "neither the policy nor the rule"

    refused(ON, 2)
    holdfast.domains.configure("memory", {"older_than_days": 60, "keep_context_ids": [3]})  # nothing goes by it yet
    refused(ON, 0)
    holdfast.domains.configure("memory", ON, confirm=True)
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
        holdfast.domains.configure("memory", config)
    assert rule_of(holdfast) is None
    holdfast.domains.configure("rag", {**ON, "older_than_days": 1})
    assert rule_of(holdfast) is None, "the other domain has no records of ours"


def test_switched_off_what_has_not_gone_yet_is_there_again(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    note = add(memory)
    holdfast.domains.configure("memory", ON, confirm=True, author="ops")
    clock.advance(days=30)
    assert seen(memory) == set()
    holdfast.domains.configure("memory", {"auto_gc": False}, author="ops")
    assert seen(memory) == {note}
    later = add(memory)
    holdfast.domains.configure("memory", {**ON, "older_than_days": 40}, confirm=True)
    clock.advance(days=10)
    assert seen(memory) == {later}
    clock.advance(days=30)
    assert seen(memory) == set(), "what was added in between goes by it as well"
    entries = [entry for entry in holdfast.audit.tail(50) if entry["action"] == "rule.changed"]
    said = [(one["detail"], one["actor"]) for one in entries]
    assert [(one["level"], one["from"], one["to"], actor, one["version"]) for one, actor in said] == [
        ("domain", {}, {"delete_after_days": 30}, "ops", 1),
        ("domain", {"delete_after_days": 30}, {}, "ops", 2),
        ("domain", {}, {"delete_after_days": 40}, "python", 3),
    ]


def test_a_memory_whose_labels_change_goes_by_the_rules_of_its_new_ones(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    one, two, three = add(memory), add(memory, None), add(memory, "action")
    holdfast.domains.configure("memory", {**ON, "keep_context_ids": [7]}, confirm=True)
    memory.update(one, metadata={"context_id": 7})
    memory.update(two, metadata={"source_type": "thought"})
    memory.update(three, content="another text")
    clock.advance(days=30)
    assert seen(memory) == {one}
    holdfast.sweep()
    assert [holdfast.explain(note)["state"] for note in (one, two, three)] == ["active", "recycled", "recycled"]


def test_tenants_go_by_policies_of_their_own(holdfast: Holdfast, clock: FakeClock) -> None:
    acme = holdfast.of_tenant("acme")
    mine, theirs = holdfast.manager("alice", "a"), acme.manager("alice", "a")
    add(mine)
    kept = add(theirs)
    holdfast.domains.configure("memory", ON, confirm=True)
    clock.advance(days=30)
    assert (seen(mine), seen(theirs)) == (set(), {kept})
    assert acme.domains.get("memory") == DEFAULT_POLICY.as_dict()


# --- crashes and others -----------------------------------------------------------------------------------------------


def test_after_a_crash_the_next_sweep_lets_the_rules_follow_the_policy(homes: Homes, clock: FakeClock) -> None:
    crashes = 0
    for burns_at in range(20):
        home = homes.new(f"home{burns_at}")
        with Holdfast.open(home=home, clock=clock) as holdfast:
            note = add(holdfast.manager("alice", "a"))
            holdfast.domains.configure("memory", {**ON, "older_than_days": 20, "keep_context_ids": [1]}, confirm=True)
            Fuse(holdfast, burns_at)
            try:
                holdfast.domains.configure("memory", {"older_than_days": 10, "keep_context_ids": [2]}, confirm=True)
            except DeathError:
                crashes += 1
                crashed = True
            else:
                crashed = False
        with Holdfast.open(home=home, clock=clock) as holdfast:
            holdfast.sweep()
            policy = normalize(holdfast.domains.get("memory"), DEFAULT_POLICY)
            assert policy.older_than_days == 10, "the policy was saved before"
            rule = rule_of(holdfast)
            assert rule is not None
            assert (rule["delete_after_days"], rule["keep_context_ids"]) == (10, [2])
            assert holdfast.domains._rules.is_followed(wanted_by(policy))
            clock.advance(days=10)
            assert seen(holdfast.manager("alice", "a")) == set()
            holdfast.sweep()
            assert holdfast.explain(note)["state"] == "recycled"
        homes.remove(home)
        if not crashed:
            break
    assert crashes >= 2, "between the policy and its rule, and within the change of the rule"


def test_of_two_who_configure_at_once_the_rules_follow_the_one_whose_policy_stands(
    home: Path, clock: FakeClock
) -> None:
    with Holdfast.open(home=home, clock=clock) as one, Holdfast.open(home=home, clock=clock) as two:
        add(one.manager("alice", "a"))

        def configure(holdfast: Holdfast, session: str) -> None:
            for number in range(5):
                config = {"older_than_days": 100 + number, "keep_session_ids": [session], "auto_gc": number % 3 != 2}
                holdfast.domains.configure("memory", config, confirm=True)

        threads = [
            threading.Thread(target=configure, args=(one, "s1")),
            threading.Thread(target=configure, args=(two, "s2")),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        policy = normalize(one.domains.get("memory"), DEFAULT_POLICY)
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
        Holdfast.open(home=homes.new(), clock=clock) as holdfast,
    ):
        yield Tenants(holdfast, clock)


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
    holdfast, clock = stores.open(), stores.clock
    policy, made = DEFAULT_POLICY, {}
    start = clock()

    def write(some: list[tuple[Any, ...]]) -> None:
        for source_type, session, context, day in some:
            metadata = {"source_type": source_type, "context_id": context}
            labels = {name: value for name, value in metadata.items() if value is not None}
            clock.now = start + timedelta(days=day)
            done = holdfast.manager("alice", "a", session).add("a note", "long_term", labels)
            made[done["memory_id"]] = (source_type, session, context, clock())

    write(written)
    for config in changes:
        holdfast.domains.configure("memory", config, confirm=True)
        policy = normalize(config, policy)
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
    assert seen(holdfast.manager("alice", "a")) == set(made) - due
    plan = plan_of(holdfast)
    planned = {decision.id for decision in plan.decisions}
    assert planned <= due
    assert len(planned) == min(len(due), policy.limit)
    assert holdfast.sweep(digest=plan.digest).lines == plan.lines


@soak
def test_records_go_as_a_plain_reading_of_the_policy_says(engine_name: str, stores: Tenants) -> None:
    some = st.lists(notes, max_size=4)
    often = st.lists(configs.map(lambda config: {"auto_gc": True, **config}), min_size=1, max_size=3)
    check = given(written=some, changes=often, then=some)(lambda **drawn: check_against_naive(stores, **drawn))
    settings(max_examples=times(16, engine_name))(check)()
