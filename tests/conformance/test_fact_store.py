"""What every ``FactStore`` does."""

from __future__ import annotations

import pytest

from conformance.engines import Engine
from conformance.samples import NOW, Person, fact
from holdfast.core.errors import HoldfastError
from holdfast.core.values import DAY
from holdfast.ports.records import FactStore


@pytest.fixture
def store(engine: Engine) -> FactStore:
    return engine.facts


@pytest.mark.parametrize(
    "value", ["Paris", "Zürich 🎿", 42, 1.5, True, None, [1, "a", None], {"a": {"b": []}}, "x" * 5_000]
)
def test_an_attribute_comes_back_exactly_as_it_was(
    store: FactStore, elsewhere: Engine, me: Person, value: object
) -> None:
    told = fact("city", value)

    assert store.record(me.subject, [told], replacing=True) == [told.id]

    (found,) = store.facts(me.subject, ["ann"])
    assert found == told
    assert type(found.value) is type(value)
    assert elsewhere.facts.facts(me.subject, ["ann"]) == [told]


def test_a_relation_is_known_from_both_its_ends(store: FactStore, me: Person) -> None:
    told = fact("works_at", source="ann", target="acme", until_day=9)
    store.record(me.subject, [told], replacing=False)

    assert store.facts(me.subject, ["ann"]) == [told]
    assert store.facts(me.subject, ["acme"]) == [told]
    assert store.facts(me.subject, ["ann", "acme"]) == [told], "once, not twice"
    assert store.facts(me.subject, ["an", "works_at"]) == []


def test_a_fact_that_is_replaced_ends(store: FactStore, me: Person) -> None:
    rome, oslo = fact("city", "Rome", day=0), fact("city", "Oslo", day=5)
    store.record(me.subject, [rome], replacing=True)

    store.record(me.subject, [oslo], replacing=True)

    assert store.facts(me.subject, ["ann"]) == [rome._replace(until=oslo.since), oslo]


def test_an_older_fact_that_is_told_late_ends_where_the_known_one_begins(store: FactStore, me: Person) -> None:
    oslo, rome = fact("city", "Oslo", day=5), fact("city", "Rome", day=0)
    store.record(me.subject, [oslo], replacing=True)

    assert store.record(me.subject, [rome], replacing=True) == [rome.id]

    assert store.facts(me.subject, ["ann"]) == [rome._replace(until=oslo.since), oslo]


def test_facts_that_do_not_replace_hold_side_by_side(store: FactStore, me: Person) -> None:
    friends = [fact("knows", target=name, day=day) for day, name in enumerate(("bob", "eve"))]
    store.record(me.subject, friends, replacing=False)

    assert store.facts(me.subject, ["ann"]) == friends


def test_what_is_known_to_hold_is_not_added_again(store: FactStore, me: Person) -> None:
    told = fact("city", "Rome", day=0)
    store.record(me.subject, [told], replacing=True)

    assert store.record(me.subject, [fact("city", "Rome", day=3)], replacing=True) == []
    assert store.record(me.subject, [fact("city", "Rome", day=3)], replacing=False) == []
    assert store.facts(me.subject, ["ann"]) == [told]


@pytest.mark.parametrize(("old", "new"), [(True, 1), (0, False), ([1], [True]), ("1", 1), (None, False)])
def test_values_that_only_look_alike_are_different(store: FactStore, me: Person, old: object, new: object) -> None:
    store.record(me.subject, [fact("vip", old, day=0)], replacing=True)

    assert len(store.record(me.subject, [fact("vip", new, day=1)], replacing=True)) == 1
    (latest,) = [known for known in store.facts(me.subject, ["ann"]) if known.until is None]
    assert (latest.value, type(latest.value)) == (new, type(new))


def test_facts_told_together_follow_one_another(store: FactStore, me: Person) -> None:
    rome, oslo, bern = (fact("city", city, day=day) for city, day in (("Rome", 1), ("Oslo", 9), ("Bern", 4)))

    assert store.record(me.subject, [rome, oslo, bern], replacing=True) == [rome.id, oslo.id, bern.id]

    found = [(known.value, known.until) for known in store.facts(me.subject, ["ann"])]
    assert found == [("Rome", bern.since), ("Bern", oslo.since), ("Oslo", None)]


def test_facts_told_together_are_recorded_together_or_not_at_all(store: FactStore, me: Person) -> None:
    known = fact("city", "Rome", day=0)
    store.record(me.subject, [known], replacing=True)
    new = fact("city", "Oslo", day=1)

    with pytest.raises(HoldfastError):
        store.record(me.subject, [new, fact("age", 5, id=known.id)], replacing=True)

    assert store.facts(me.subject, ["ann"]) == [known]


def test_other_names_and_other_sources_are_not_replaced(store: FactStore, me: Person) -> None:
    kept = [fact("city", "Rome"), fact("country", "Italy"), fact("city", "Rome", source="bob")]
    for told in kept:
        store.record(me.subject, [told], replacing=True)

    store.record(me.subject, [fact("city", "Oslo", day=1)], replacing=True)

    assert store.facts(me.subject, ["bob"]) == [kept[2]]
    assert kept[1] in store.facts(me.subject, ["ann"])


def test_facts_come_oldest_first(store: FactStore, me: Person) -> None:
    told = [fact(f"name {day}", day, day=day) for day in (3, 1, 2)]
    store.record(me.subject, told, replacing=False)

    assert [known.value for known in store.facts(me.subject, ["ann"])] == [1, 2, 3]


def test_ending_reaches_what_still_holds(store: FactStore, me: Person) -> None:
    holds, ended, begins_later = fact("a", 1), fact("b", 2, until_day=1), fact("c", 3, day=9)
    store.record(me.subject, [holds, ended, begins_later], replacing=False)
    ids = [holds.id, ended.id, begins_later.id, fact("d").id]

    assert store.end(me.subject, ids, at=NOW + 5 * DAY) == 1

    assert store.facts(me.subject, ["ann"]) == [holds._replace(until=NOW + 5 * DAY), ended, begins_later]
    assert store.end(me.subject, ids, at=NOW + 5 * DAY) == 0, "it ended already"


def test_people_do_not_share_facts(store: FactStore, me: Person) -> None:
    mine = fact("city", "Rome")
    store.record(me.subject, [mine], replacing=True)

    for stranger in (me.other("user_12"), me.other("user_1234"), Person(me.tenant + "x", me.user_id)):
        assert store.facts(stranger.subject, ["ann"]) == []
        assert store.end(stranger.subject, [mine.id], at=NOW + DAY) == 0
        theirs = mine._replace(value="Oslo", since=NOW + DAY)
        assert store.record(stranger.subject, [theirs], replacing=True) == [mine.id]

    assert store.facts(me.subject, ["ann"]) == [mine]
    assert store.facts(me.subject, []) == []
