"""The two tables that the rest of Holdfast reads are complete and make sense."""

from __future__ import annotations

import pytest

from holdfast.core.errors import InvalidKindError
from holdfast.core.records import DURABLE, LIVE, NEXT, PRUNE_FRACTION, TYPES, Archive, MemoryType, State, kind_of


def test_every_kind_has_a_row_under_its_own_name() -> None:
    assert set(TYPES) == set(MemoryType)
    assert all(kind.name is name for name, kind in TYPES.items())


def test_the_codes_of_kinds_are_unique_and_fit_into_three_bits() -> None:
    codes = [kind.code for kind in TYPES.values()]
    assert len(set(codes)) == len(codes)
    assert all(0 < code < 8 for code in codes)


def test_the_codes_of_kinds_never_change() -> None:
    """They are in people's files."""
    assert {name.value: kind.code for name, kind in TYPES.items()} == {
        "working": 1,
        "short_term": 2,
        "long_term": 3,
        "persona": 4,
        "episodic": 5,
        "entity": 6,
        "structured": 7,
    }


@pytest.mark.parametrize(
    ("kinds", "scope"),
    [
        (("working", "short_term"), {"user", "agent", "session"}),
        (("long_term", "entity", "structured"), {"user"}),
        (("persona", "episodic"), {"user", "agent"}),
    ],
)
def test_each_kind_is_selected_by_the_parts_of_a_scope_that_the_design_names(
    kinds: tuple[str, ...], scope: set[str]
) -> None:
    assert all(kind_of(kind).scope == scope for kind in kinds)


def test_every_kind_has_a_target_and_a_quota() -> None:
    for kind in TYPES.values():
        assert kind.latency_ms > 0
        assert kind.max_memories > 0
        assert kind.max_bytes > 0
    assert kind_of("long_term").max_memories == 10_000
    assert PRUNE_FRACTION == 0.1


def test_working_and_short_term_memory_are_the_kinds_that_are_not_durable() -> None:
    assert set(MemoryType) - set(DURABLE) == {MemoryType.WORKING, MemoryType.SHORT_TERM}


def test_every_state_has_its_moves() -> None:
    assert set(NEXT) == set(State)
    assert all(targets <= set(State) for targets in NEXT.values())
    assert all(state not in NEXT[state] for state in State), "staying is not a move"


def test_deleted_is_the_end() -> None:
    assert NEXT[State.DELETED] == frozenset()


def test_nothing_leads_back_from_deleting() -> None:
    assert NEXT[State.DELETING] == {State.DELETED}


def test_what_is_live_can_be_recalled_and_counts() -> None:
    assert {State.ACTIVE, State.ARCHIVED} == LIVE


def test_every_state_can_be_reached_and_every_record_can_be_deleted() -> None:
    def reachable(start: State) -> set[State]:
        seen, frontier = {start}, [start]
        while frontier:
            new = NEXT[frontier.pop()] - seen
            seen |= new
            frontier += new
        return seen

    assert reachable(State.ACTIVE) == set(State)
    assert all(State.DELETED in reachable(state) for state in State)


def test_only_the_recycle_bin_and_a_claim_lead_to_deletion() -> None:
    assert [state for state in State if State.DELETED in NEXT[state]] == [State.RECYCLED, State.DELETING]


def test_the_kinds_that_are_archived_and_how() -> None:
    assert {name.value: kind.archive for name, kind in TYPES.items() if kind.archive is not None} == {
        "long_term": Archive.COLD,
        "episodic": Archive.SUMMARY,
        "structured": Archive.COLD,
    }


@pytest.mark.parametrize("kind", MemoryType)
def test_a_kind_is_known_by_its_member_and_by_its_name(kind: MemoryType) -> None:
    assert kind_of(kind) is kind_of(kind.value) is TYPES[kind]


@pytest.mark.parametrize("value", ["", "LONG_TERM", "long-term", "longterm", None, 3, [], "episodic "])
def test_an_unknown_kind_is_refused_with_the_known_ones(value: object) -> None:
    with pytest.raises(
        InvalidKindError, match=r"working, short_term, long_term, persona, episodic, entity, structured"
    ):
        kind_of(value)  # type: ignore[arg-type]
