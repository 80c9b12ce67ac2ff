"""Forgetting all that came from one source: all of it, what was made of it, nothing else, and back again if need be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raw
from clocks import FakeClock
from effort import soak, times
from holdfast import HeldError, Holdfast, MemoryManager
from holdfast.core.errors import AgentRemovedError, InvalidInputError, InvalidScopeError, NotFoundError
from homes import Homes
from lifecycle.soundness import check_sound

CRM = "import:crm-2026-05"
BUNDLE = f"source:{CRM}"
KINDS = ("long_term", "persona", "episodic", "entity", "structured")


def add(memory: MemoryManager, content: str = "Ann lives in Rome", kind: str = "long_term", **said: Any) -> str:
    text = f'{{"text": "{content}"}}' if kind == "structured" else content
    memory_id: str = memory.add(text, kind, **said)["memory_id"]
    return memory_id


def live(memory: MemoryManager) -> set[str]:
    listed = [memory.list_memories(kind, limit=10_000, include_archived=True) for kind in KINDS]
    return {one["memory_id"] for found in listed for one in found}


def in_bin(holdfast: Holdfast) -> set[str]:
    return {item["memory_id"] for item in holdfast.recycle.list(limit=10_000)}


@pytest.fixture
def bob(holdfast: Holdfast) -> MemoryManager:
    return holdfast.manager("bob", "travel_agent")


def test_a_trial_is_asked_for_by_true_and_nothing_else(holdfast: Holdfast, memory: MemoryManager) -> None:
    kept = {add(memory, source=CRM)}
    for wrong in ("", 0, None, "yes"):
        with pytest.raises(InvalidInputError, match="dry_run must be True or False, not "):
            holdfast.forget_source(CRM, dry_run=wrong)  # type: ignore[arg-type]
    assert live(memory) == kept


def test_all_that_a_source_wrote_goes_whatever_its_kind(
    holdfast: Holdfast, memory: MemoryManager, bob: MemoryManager
) -> None:
    gone = {add(memory, kind=kind, source=CRM) for kind in KINDS}
    theirs = add(bob, source=CRM)
    kept = {add(memory, "of another", source="import:crm"), add(memory, "the agent's own")}

    counts = holdfast.forget_source(CRM, "user_123")

    assert counts == {
        "source": CRM,
        "memories": 5,
        "derived": 0,
        "held": 0,
        "users": 1,
        "by_kind": dict.fromkeys(sorted(KINDS), 1),
        "bundle": BUNDLE,
        "purge_at": "2026-01-30T12:00:00+00:00",
        "dry_run": False,
    }
    assert (live(memory), in_bin(holdfast), live(bob)) == (kept, gone, {theirs})
    assert holdfast.forget_source(CRM, "user_123")["memories"] == 0
    check_sound(holdfast)


def test_it_goes_for_every_user_of_the_tenant_and_for_nobody_elses(homes: Homes, clock: FakeClock) -> None:
    home = homes.new("tenants")
    with Holdfast.open(home=home, tenant="acme", clock=clock) as other:
        add(other.manager("ann", "travel_agent"), source=CRM)
    with Holdfast.open(home=home, clock=clock) as holdfast:
        for user in ("ann", "bob", "zoë"):
            holdfast.manager(user, "travel_agent").add_many(["one", "two"], source=CRM)
        counts = holdfast.forget_source(CRM)
        assert (counts["memories"], counts["users"]) == (6, 3)
        assert all(live(holdfast.manager(user, "travel_agent")) == set() for user in ("ann", "bob", "zoë"))
    with Holdfast.open(home=home, tenant="acme", clock=clock) as other:
        assert len(live(other.manager("ann", "travel_agent"))) == 1


def test_what_was_made_of_it_goes_too_and_is_counted_apart(holdfast: Holdfast, memory: MemoryManager) -> None:
    root = add(memory, source=CRM)
    summary = add(memory, "a summary", kind="episodic", derived_from=[root])
    fact = memory.entity.add("Rex", derived_from=[summary])
    of_theirs = add(memory, "made by the import of its own", source=CRM, derived_from=[root])
    kept = add(memory, "what it is made of stays")
    add(memory, "from both", derived_from=[kept, of_theirs])

    counts = holdfast.forget_source(CRM)

    assert (counts["memories"], counts["derived"]) == (2, 3)
    assert live(memory) == {kept}
    assert fact in in_bin(holdfast)
    reasons = {item["memory_id"]: item["reason"] for item in holdfast.recycle.list()}
    assert reasons[root] == f"forgotten with its source {CRM}"
    assert reasons[summary] == f"forgotten: derived from what came from {CRM}"


def test_what_was_made_of_something_in_the_bin_goes_too(holdfast: Holdfast, memory: MemoryManager) -> None:
    root = add(memory, source=CRM)
    summary = add(memory, "a summary", derived_from=[root])
    memory.delete(root)

    counts = holdfast.forget_source(CRM)

    assert (counts["memories"], counts["derived"]) == (0, 1)
    assert live(memory) == set()
    assert holdfast.recycle.restore(bundle=BUNDLE) == 1
    assert live(memory) == {summary}, "what went before stays where it is"


def test_a_dry_run_says_what_would_go_and_touches_nothing(
    holdfast: Holdfast, memory: MemoryManager, bob: MemoryManager
) -> None:
    root = add(memory, source=CRM, metadata={"case": "1"})
    add(memory, "a summary", derived_from=[root])
    add(bob, source=CRM)
    add(bob, "held", source=CRM, metadata={"case": "4711"})
    holdfast.holds.add(tag="case=4711", reason="Case 4711", author="legal")
    before = live(memory) | live(bob)

    foreseen = holdfast.forget_source(CRM, dry_run=True)

    assert live(memory) | live(bob) == before
    assert in_bin(holdfast) == set()
    assert holdfast.audit.tail(1_000, user_id="bob") == []
    assert {**foreseen, "dry_run": False} == holdfast.forget_source(CRM)
    assert (foreseen["memories"], foreseen["derived"], foreseen["held"]) == (2, 1, 1)


def test_all_of_it_comes_back_together_exactly(holdfast: Holdfast, memory: MemoryManager, bob: MemoryManager) -> None:
    root = add(memory, source=CRM, metadata={"n": 1})
    made = [root, add(memory, "a summary", derived_from=[root]), add(memory, kind="structured", source=CRM)]
    theirs = add(bob, source=CRM)
    before = [memory.get(one) for one in made]
    holdfast.forget_source(CRM)

    assert {item["bundle"] for item in holdfast.recycle.list()} == {BUNDLE}
    assert holdfast.recycle.restore(bundle=BUNDLE, user_id="bob") == 1
    assert (live(bob), live(memory)) == ({theirs}, set())
    assert holdfast.recycle.restore(bundle=BUNDLE) == 3
    assert [memory.get(one) for one in made] == before
    assert in_bin(holdfast) == set()
    with pytest.raises(NotFoundError, match="recycle bin"):
        holdfast.recycle.restore(bundle=BUNDLE)
    check_sound(holdfast)


def test_it_is_gone_for_good_after_fifteen_days(holdfast: Holdfast, memory: MemoryManager, clock: FakeClock) -> None:
    root = add(memory, source=CRM)
    add(memory, "a summary", derived_from=[root])
    holdfast.forget_source(CRM)
    clock.advance(days=15)
    with pytest.raises(NotFoundError):
        holdfast.recycle.restore(bundle=BUNDLE)
    holdfast.recycle.purge()
    assert raw.rows(holdfast, "SELECT count(*) FROM records") == [(0,)]
    assert raw.rows(holdfast, "SELECT count(*) FROM derivations") == [(0,)]


def test_holds_keep_what_they_cover_and_all_of_it_is_refused_aloud(holdfast: Holdfast, memory: MemoryManager) -> None:
    kept, gone = add(memory, "kept", source=CRM), add(memory, "gone", source=CRM)
    holdfast.holds.add(memory_id=kept, reason="Case 1", author="legal")

    counts = holdfast.forget_source(CRM)

    assert (counts["memories"], counts["held"]) == (1, 1)
    assert (live(memory), in_bin(holdfast)) == ({kept}, {gone})
    with pytest.raises(HeldError, match=r"memories that came from .* are on hold \(1\)"):
        holdfast.forget_source(CRM)


def test_each_is_in_the_audit_chain_with_its_cause(holdfast: Holdfast, memory: MemoryManager) -> None:
    root = add(memory, source=CRM)
    holdfast.forget_source(CRM)
    (entry,) = memory.explain(root)["history"]
    assert (entry["action"], entry["cause"]) == ("recycled", "source")
    assert CRM in entry["reason"]
    holdfast.recycle.restore(bundle=BUNDLE)
    assert [one["action"] for one in memory.explain(root)["history"]] == ["recycled", "restored"]
    assert holdfast.audit.verify().ok


def test_an_agents_own_is_what_nothing_else_was_said_of(holdfast: Holdfast, memory: MemoryManager) -> None:
    other = holdfast.manager("user_123", "another")
    gone = {add(memory, kind=kind) for kind in KINDS} | {add(other, "in its name", source="agent:travel_agent")}
    kept = {add(memory, "imported by it", source=CRM), add(other, "of another")}

    counts = holdfast.forget_source("agent:travel_agent")

    assert counts["memories"] == 6
    assert (live(memory) | live(other), in_bin(holdfast)) == (kept, gone)


def test_many_go_in_batches_with_what_is_cold(holdfast: Holdfast, memory: MemoryManager, clock: FakeClock) -> None:
    root = add(memory, "an old one " * 200, source=CRM)
    clock.advance(days=365)
    holdfast.sweep()
    memory.add_many([f"fact {n}" for n in range(1_203)], source=CRM)
    memory.add_many([f"made of it {n}" for n in range(700)], derived_from=[root])
    holdfast.manager("zoë", "travel_agent").add_many([f"hers {n}" for n in range(501)], source=CRM)

    foreseen = holdfast.forget_source(CRM, dry_run=True)
    counts = holdfast.forget_source(CRM)

    assert {**foreseen, "dry_run": False} == counts
    assert (counts["memories"], counts["derived"], counts["users"]) == (1_705, 700, 2)
    assert memory.count_memories() == 0
    assert holdfast.recycle.restore(bundle=BUNDLE) == 2_405
    assert memory.count_memories() == 1_904
    check_sound(holdfast)


def test_what_was_cut_short_goes_on_and_comes_back_together(
    holdfast: Holdfast, memory: MemoryManager, bob: MemoryManager
) -> None:
    """It goes user by user, batch by batch; whatever had gone by then has the same name in the bin."""
    mine, theirs = add(memory, source=CRM), add(bob, source=CRM)
    holdfast.forget_source(CRM, "user_123")
    assert (live(memory), live(bob)) == (set(), {theirs})
    assert holdfast.forget_source(CRM)["memories"] == 1
    assert holdfast.recycle.restore(bundle=BUNDLE) == 2
    assert live(memory) | live(bob) == {mine, theirs}


def test_entities_that_are_related_tell_what_is_left(holdfast: Holdfast, memory: MemoryManager) -> None:
    memory.entity.add("Rex", source=CRM)
    memory.entity.relate("Ann", "owns", "Rex")
    holdfast.forget_source(CRM)
    assert "Rex" not in memory.list_memories("entity")[0]["content"]
    holdfast.recycle.restore(bundle=BUNDLE)
    assert any("Ann owns Rex" in one["content"] for one in memory.list_memories("entity"))


def test_what_is_a_removed_agents_own_comes_back_with_the_agent(holdfast: Holdfast, memory: MemoryManager) -> None:
    add(memory, kind="persona", source=CRM)
    holdfast.forget_source(CRM)
    holdfast.agents.add("travel_agent")
    holdfast.agents.remove("travel_agent")
    with pytest.raises(AgentRemovedError, match="restore the agent"):
        holdfast.recycle.restore(bundle=BUNDLE)
    holdfast.agents.restore("travel_agent")
    assert holdfast.recycle.restore(bundle=BUNDLE) == 1


@pytest.mark.parametrize("source", ["", None, 7, "*", "x" * 300])
def test_a_source_has_to_be_named(holdfast: Holdfast, source: Any) -> None:
    with pytest.raises(InvalidScopeError):
        holdfast.forget_source(source)
    with pytest.raises(InvalidScopeError):
        holdfast.forget_source(CRM, "*")


def test_a_source_that_nothing_came_from_leaves_all_as_it_is(holdfast: Holdfast, memory: MemoryManager) -> None:
    kept = add(memory)
    counts = holdfast.forget_source(CRM, "nobody_yet")
    assert (counts["memories"], counts["derived"], counts["users"], counts["by_kind"]) == (0, 0, 0, {})
    assert live(memory) == {kept}


@st.composite
def families(draw: st.DrawFn) -> list[tuple[bool, list[int]]]:
    """Memories, each: whether it is of the source, and of which of all of them it is made, later ones too."""
    count = draw(st.integers(1, 12))
    places = st.lists(st.integers(0, count - 1), max_size=3)
    return [(draw(st.booleans()), draw(places)) for _ in range(count)]


@soak
def test_exactly_what_leads_back_to_the_source_goes_and_comes_back(homes: Homes, engine_name: str) -> None:
    """Whatever was made of whatever, in whatever circles."""
    with Holdfast.open(home=homes.new("families"), clock=FakeClock()) as holdfast:
        users = iter(range(10**6))

        @settings(max_examples=times(20, engine_name))
        @given(families())
        def check(family: list[tuple[bool, list[int]]]) -> None:
            user = f"user_{next(users)}"
            memory = holdfast.manager(user, "travel_agent")
            made = [add(memory, f"memory {n}", source=CRM if is_its else None) for n, (is_its, _) in enumerate(family)]
            for n, (_, sources) in enumerate(family):
                memory.update(made[n], derived_from=[made[one] for one in sources if one != n])
            gone = {n for n, (is_its, _) in enumerate(family) if is_its}
            roots = len(gone)
            while more := {n for n, (_, sources) in enumerate(family) if gone & set(sources)} - gone:
                gone |= more
            everything = {one["memory_id"]: one for one in memory.list_memories(limit=100)}

            counts = holdfast.forget_source(CRM, user)

            assert (counts["memories"], counts["derived"]) == (roots, len(gone) - roots)
            assert live(memory) == {made[n] for n in range(len(family)) if n not in gone}
            if gone:
                assert holdfast.recycle.restore(bundle=BUNDLE, user_id=user) == len(gone)
            assert {one["memory_id"]: one for one in memory.list_memories(limit=100)} == everything

        check()
