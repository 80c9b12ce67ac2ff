"""How facts follow one another."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.records import Fact, holds_at, succession
from holdfast.core.values import same_json

Told = tuple[int, int | None, Any]


def spans(length: st.SearchStrategy[int | None]) -> st.SearchStrategy[list[Told]]:
    """Facts as (since, how long, value), in the order in which they are told."""
    values = st.sampled_from(["Rome", "Oslo", 1, True, None, [1], [True]])
    return st.lists(st.tuples(st.integers(0, 12), length, values), max_size=8)


def learn(told: list[Told], *, replacing: bool) -> tuple[list[Fact], list[Fact]]:
    """Tell facts one after the other; what is known then, and those that said nothing new."""
    known: dict[str, Fact] = {}
    repeated = []
    for place, (since, length, value) in enumerate(told):
        until = None if length is None else since + length
        new = Fact(f"fact {place}", "ann", "city", None, value, since, until, place)
        ended, added = succession(list(known.values()), new, replacing=replacing)
        assert {fact.id for fact in ended} <= set(known), "only what is known can end"
        assert [fact.id for fact in added] in ([], [new.id])
        repeated += [] if added else [new]
        known.update((fact.id, fact) for fact in (*ended, *added))
    return list(known.values()), repeated


Open = st.none()
Any_length = st.none() | st.integers(1, 12)


@given(spans(Any_length))
def test_with_replacing_at_most_one_fact_of_a_name_holds_at_any_moment(told: list[Told]) -> None:
    known, _ = learn(told, replacing=True)

    for moment in range(26):
        assert len([fact for fact in known if holds_at(fact, moment)]) <= 1


@given(spans(Any_length), st.booleans())
def test_nothing_known_is_lost(told: list[Told], replacing: bool) -> None:
    known, repeated = learn(told, replacing=replacing)

    assert len(known) + len(repeated) == len(told)
    for place, (since, _, value) in enumerate(told):
        kept = next((fact for fact in (*known, *repeated) if fact.id == f"fact {place}"), None)
        assert kept is not None
        assert (kept.since, kept.value, type(kept.value)) == (since, value, type(value)), "it ends; it is not rewritten"


@given(spans(Any_length))
def test_a_fact_never_holds_longer_than_it_was_told_to(told: list[Told]) -> None:
    known, _ = learn(told, replacing=True)

    for fact in known:
        length = told[int(fact.id.split()[1])][1]
        assert fact.until is None or fact.until >= fact.since
        assert length is None or (fact.until is not None and fact.until <= fact.since + length)


@given(spans(Open), st.randoms())
def test_the_order_in_which_facts_arrive_does_not_matter(told: list[Told], chance: Any) -> None:
    """As long as no two begin at once and nothing is told twice, and none says when it ends."""
    apart = list({since: (since, length, str(since)) for since, length, _ in told}.values())
    shuffled = list(apart)
    chance.shuffle(shuffled)

    def timeline(order: list[Told]) -> list[Any]:
        known, _ = learn(order, replacing=True)
        return [[fact.value for fact in known if holds_at(fact, moment)] for moment in range(14)]

    assert timeline(apart) == timeline(shuffled)


@given(spans(Open))
def test_the_latest_begun_holds_in_the_end(told: list[Told]) -> None:
    known, _ = learn(told, replacing=True)

    holding = [fact for fact in known if holds_at(fact, 99)]
    assert len(holding) == min(1, len(told))
    assert all(fact.since <= holding[0].since for fact in known)


@given(spans(Any_length))
def test_without_replacing_a_fact_ends_only_when_it_is_told_to_have_ended(told: list[Told]) -> None:
    known, repeated = learn(told, replacing=False)

    for fact in known:
        since, length, _ = told[int(fact.id.split()[1])]
        own = None if length is None else since + length
        told_later = {new.until for new in repeated if same_json(new.value, fact.value)}
        assert fact.until == own or (own is None and fact.until in told_later)


def test_a_fact_holds_from_its_first_instant_until_just_before_its_last() -> None:
    fact = Fact("f", "ann", "city", None, "Rome", 10, 20, 0)

    assert [moment for moment in (9, 10, 19, 20) if holds_at(fact, moment)] == [10, 19]
    assert holds_at(fact._replace(until=None), 10**18)
    assert not holds_at(fact._replace(until=10), 10), "one that was replaced at its first instant never held"


def test_facts_of_another_source_or_name_are_left_alone() -> None:
    known = [Fact("1", "bob", "city", None, "Rome", 0, None, 0), Fact("2", "ann", "job", None, "Rome", 0, None, 0)]
    new = Fact("3", "ann", "city", None, "Rome", 5, None, 0)

    assert succession(known, new, replacing=True) == ([], [new])


def test_relations_are_told_apart_by_their_target() -> None:
    acme = Fact("1", "ann", "works_at", "acme", None, 0, None, 0)
    moved = Fact("2", "ann", "works_at", "globex", None, 5, None, 0)

    assert succession([acme], moved, replacing=False) == ([], [moved])
    assert succession([acme], moved, replacing=True) == ([acme._replace(until=5)], [moved])
    assert succession([acme], acme._replace(id="3", since=7), replacing=True) == ([], [])


def test_true_is_not_one() -> None:
    yes = Fact("1", "ann", "vip", None, True, 0, None, 0)

    assert succession([yes], yes._replace(id="2", value=1, since=5), replacing=True)[1] != []
    assert succession([yes], yes._replace(id="2", since=5), replacing=True) == ([], [])
