"""Filters: what each one means, and what is refused because it means nothing."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import InvalidFilterError
from holdfast.core.filters import (
    MAX_CONDITIONS,
    MAX_VALUES,
    MISSING,
    RECORD_FIELDS,
    Combination,
    matches,
    parse,
    value_at,
    within,
)
from holdfast.core.values import moment

CREATED = datetime(2026, 1, 15, 12, tzinfo=UTC)
DOCUMENT = {
    "agent_id": "planner",
    "session_id": None,
    "created_at": moment(CREATED),
    "updated_at": moment(CREATED) + 1,
    "memory_type": "long_term",
    "metadata": {
        "category": "sports",
        "price": 15,
        "ratio": 1.5,
        "vip": True,
        "zero": 0,
        "nothing": None,
        "tags": ["ski", "snow", 3],
        "flags": [True, None],
        "empty": [],
        "address": {"city": "Rome", "zip": {"code": "00100"}},
        "list_of": [{"a": 1}, [1, 2]],
        "agent_id": "the metadata's own",
        "any": "a field with an operator's name",
        "not": 5,
        "due": "2026-01-15T12:00:00+00:00",
    },
}


def passes(filters: Any, document: Any = DOCUMENT) -> bool:
    where = parse(filters)
    return where is None or matches(where, lambda path: value_at(document, path))


# --- what filters mean -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        # equality, as JSON sees it
        ({"category": "sports"}, True),
        ({"category": "Sports"}, False),
        ({"category": "sport"}, False),
        ({"category": {"eq": "sports"}}, True),
        ({"category": {"$eq": "sports"}}, True),
        ({"price": 15}, True),
        ({"price": 15.0}, True),
        ({"price": "15"}, False),
        ({"vip": True}, True),
        ({"vip": 1}, False),
        ({"zero": False}, False),
        ({"zero": 0}, True),
        ({"nothing": None}, True),
        ({"missing": None}, False),
        ({"nothing": False}, False),
        ({"address": {"eq": {"city": "Rome", "zip": {"code": "00100"}}}}, True),
        ({"address": {"eq": {"city": "Rome"}}}, False),
        # lists contain scalars
        ({"tags": "ski"}, True),
        ({"tags": 3}, True),
        ({"tags": "sk"}, False),
        ({"tags": True}, False),
        ({"flags": 1}, False),
        ({"flags": True}, True),
        ({"flags": None}, True),
        ({"empty": None}, False),
        ({"tags": {"eq": ["ski", "snow", 3]}}, True),
        ({"tags": {"eq": ["ski", "snow"]}}, False),
        ({"empty": {"eq": []}}, True),
        ({"list_of": {"eq": {"a": 1}}}, True),
        ({"list_of": {"eq": {"a": True}}}, False),
        # ne
        ({"category": {"ne": "food"}}, True),
        ({"category": {"ne": "sports"}}, False),
        ({"missing": {"ne": "x"}}, True),
        ({"tags": {"ne": "ski"}}, False),
        ({"vip": {"ne": 1}}, True),
        # one of
        ({"category": ["food", "sports"]}, True),
        ({"category": ("food", "sports")}, True),
        ({"category": {"food", "sports"}}, True),
        ({"category": {"in": ["food"]}}, False),
        ({"tags": ["rain", "snow"]}, True),
        ({"missing": ["a", None]}, False),
        ({"nothing": ["a", None]}, True),
        ({"vip": [1, "x"]}, False),
        ({"category": {"nin": ["food"]}}, True),
        ({"category": {"nin": ["food", "sports"]}}, False),
        ({"missing": {"nin": ["x"]}}, True),
        # ranges
        ({"price": {"gt": 14, "lt": 16}}, True),
        ({"price": {"gt": 15}}, False),
        ({"price": {"gte": 15, "lte": 15}}, True),
        ({"price": {"lt": 15}}, False),
        ({"price": {"lte": 14.999}}, False),
        ({"price": {"gt": 10**30}}, False),
        ({"ratio": {"gt": 1}}, True),
        ({"category": {"gte": "s", "lt": "t"}}, True),
        ({"category": {"gt": 5}}, False),
        ({"price": {"gt": "5"}}, False),
        ({"vip": {"gte": 0}}, False),
        ({"nothing": {"lte": 0}}, False),
        ({"missing": {"lt": 5}}, False),
        ({"tags": {"gt": 0}}, False),
        # presence
        ({"category": {"exists": True}}, True),
        ({"nothing": {"exists": True}}, True),
        ({"missing": {"exists": True}}, False),
        ({"missing": {"exists": False}}, True),
        ({"category": {"exists": False}}, False),
        # lists
        ({"tags": {"any": ["rain", "ski"]}}, True),
        ({"tags": {"any": ["rain"]}}, False),
        ({"tags": {"all": ["ski", "snow"]}}, True),
        ({"tags": {"all": ["ski", "rain"]}}, False),
        ({"tags": {"none": ["rain"]}}, True),
        ({"tags": {"none": ["rain", "ski"]}}, False),
        ({"category": {"any": ["sports"]}}, True),
        ({"category": {"all": ["sports"]}}, True),
        ({"missing": {"any": ["x"]}}, False),
        ({"missing": {"all": ["x"]}}, False),
        ({"missing": {"none": ["x"]}}, True),
        ({"empty": {"none": ["x"]}}, True),
        ({"flags": {"any": [1]}}, False),
        ({"list_of": {"any": [[1, 2]]}}, True),
        # several operators, several fields: all of them
        ({"price": {"gt": 10, "ne": 15}}, False),
        ({"category": "sports", "price": 15}, True),
        ({"category": "sports", "price": 16}, False),
        # paths
        ({"address.city": "Rome"}, True),
        ({"address.zip.code": "00100"}, True),
        ({"address.zip.code.more": {"exists": False}}, True),
        ({"address.street": {"exists": False}}, True),
        ({"metadata.category": "sports"}, True),
        ({"tags.0": {"exists": False}}, True),
        # the record's own fields
        ({"agent_id": "planner"}, True),
        ({"metadata.agent_id": "the metadata's own"}, True),
        ({"session_id": None}, True),
        ({"memory_type": ["long_term", "entity"]}, True),
        ({"memory_type": "entity"}, False),
        # a field that has an operator's name
        ({"any": "a field with an operator's name"}, True),
        ({"not": 5}, True),
        ({"any": ["x", "a field with an operator's name"]}, True),
        # combinations
        ({"any": [{"category": "food"}, {"price": 15}]}, True),
        ({"any": [{"category": "food"}, {"price": 16}]}, False),
        ({"or": [{"category": "food"}, {"price": 15}]}, True),
        ({"all": [{"category": "sports"}, {"price": 15}]}, True),
        ({"$and": [{"category": "sports"}, {"price": 16}]}, False),
        ({"not": {"category": "food"}}, True),
        ({"$not": {"category": "sports"}}, False),
        ({"not": {"category": "sports", "price": 16}}, True),
        ({"category": "sports", "any": [{"price": 16}, {"not": {"vip": False}}]}, True),
        ({"any": [{"all": [{"vip": True}, {"any": [{"price": 1}, {"not": {"zero": 1}}]}]}]}, True),
        # nothing to test
        (None, True),
        ({}, True),
    ],
)
def test_a_filter_means_what_it_says(filters: Any, expected: bool) -> None:
    assert passes(filters) is expected


@pytest.mark.parametrize("field", ["created_at", "updated_at"])
@pytest.mark.parametrize(
    "early", [datetime(2026, 1, 15, 11, tzinfo=UTC), "2026-01-15T12:00:00+01:00", 1_768_474_800, 1_768_474_800.5]
)
def test_dates_are_understood_in_every_form(field: str, early: object) -> None:
    assert passes({field: {"gt": early}})
    assert not passes({field: {"lt": early}})
    assert passes({field: {"exists": True}})


def test_dates_are_compared_to_the_microsecond() -> None:
    assert passes({"created_at": CREATED})
    assert passes({"created_at": [CREATED.isoformat()]})
    assert passes({"created_at": {"gte": CREATED, "lte": CREATED}})
    assert not passes({"created_at": {"gt": CREATED}})
    assert passes({"updated_at": {"gt": CREATED}})


def test_a_datetime_finds_the_iso_text_that_metadata_holds() -> None:
    assert passes({"due": CREATED})
    assert passes({"due": {"lte": CREATED}})


def test_every_record_field_can_be_filtered_on() -> None:
    assert all(passes({field: {"exists": True}}) for field in RECORD_FIELDS)


def test_a_filter_can_be_moved_below_a_field() -> None:
    document = {**DOCUMENT, "metadata": {"document": DOCUMENT["metadata"]}}
    where = parse({"any": [{"price": 1}, {"not": {"address.city": "Oslo"}, "agent_id": "planner"}]})
    assert where is not None

    assert matches(within(where, "document"), lambda path: value_at(document, path))
    price = parse({"price": 15})
    assert price is not None
    assert not matches(price, lambda path: value_at(document, path))
    assert matches(within(price, "document"), lambda path: value_at(document, path))


# --- what makes no sense -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ([], "filters must be an object such as"),
        ("category", "filters must be an object such as"),
        (5, "not 5"),
        ({"price": {"above": 5}}, "unknown operator 'above' in the filter on 'price'; use one of: eq, ne, in"),
        ({"price": {"$above": 5}}, "unknown operator '\\$above'"),
        ({"address": {"city": "Rome"}}, "to reach into an object write address.city"),
        ({"price": {5: 5}}, "unknown operator 5"),
        ({"price": {None: 5}}, "unknown operator None"),
        ({"price": {}}, "the filter on 'price' is empty"),
        ({"price": []}, "needs a list with at least one value"),
        ({"price": {"in": 5}}, "'in' in the filter on 'price' needs a list with at least one value, not 5"),
        ({"price": {"in": "abc"}}, "needs a list"),
        ({"price": {"nin": []}}, "needs a list"),
        ({"tags": {"any": []}}, "needs a list"),
        ({"tags": {"all": "ski"}}, "needs a list"),
        ({"tags": {"none": {}}}, "needs a list"),
        ({"price": {"gt": None}}, "needs a number or a text to compare with, not None"),
        ({"price": {"gt": True}}, "needs a number or a text to compare with, not True"),
        ({"price": {"lt": [5]}}, "needs a number or a text"),
        ({"price": {"lte": {}}}, "needs a number or a text"),
        ({"price": {"gte": math.nan}}, "needs a number or a text to compare with, not nan"),
        ({"price": {"gte": math.inf}}, "needs a number or a text to compare with, not inf"),
        ({"price": {"exists": 1}}, "'exists' in the filter on 'price' needs true or false, not 1"),
        ({"price": {"exists": None}}, "needs true or false"),
        ({"price": math.nan}, "needs a JSON value, not nan"),
        ({"price": {"eq": object()}}, "needs a JSON value, not <object"),
        ({"price": b"5"}, "needs a JSON value"),
        ({"price": {"eq": {"a": {1, 2}}}}, "needs a JSON value"),
        ({"price": [b"5"]}, "needs a JSON value"),
        ({"price": {"gt": 5, "lt": 5}}, "nothing can match the range on 'price': gt 5 and lt 5"),
        ({"price": {"gte": 6, "lte": 5}}, "nothing can match the range"),
        ({"price": {"gt": 5, "lte": 5}}, "nothing can match the range"),
        ({"price": {"gt": 5, "lt": "9"}}, "the range on 'price' mixes text and numbers: 5, '9'"),
        ({"price": {"gt": 1, "$gt": 5}}, "has an operator twice: gt, \\$gt"),
        ({"": 5}, "a filter's field must be a name, not ''"),
        ({5: 5}, "a filter's field must be a name, not 5"),
        ({None: 5}, "a filter's field must be a name"),
        ({"a..b": 5}, "the field 'a..b' is not a path"),
        ({".a": 5}, "is not a path"),
        ({"a.": 5}, "is not a path"),
        ({"$or": []}, "'\\$or' needs a list of filters"),
        ({"any": []}, "'any' needs a list of filters"),
        ({"$or": {"a": 1}}, "'\\$or' needs a list of filters"),
        ({"$not": [{"a": 1}]}, "'\\$not' needs a list of filters \\(for \\$not: a filter\\)"),
        ({"$near": [1, 2]}, "known here: \\$all, \\$and, \\$any, \\$or, \\$not"),
        ({"or": [{}]}, "a filter must be an object with at least one field, not {}"),
        ({"not": {}}, "a filter must be an object with at least one field"),
        ({"created_at": "yesterday"}, "the filter on 'created_at' needs a time: created_at 'yesterday' is not an ISO"),
        ({"created_at": CREATED.replace(tzinfo=None)}, "has no time zone"),
        ({"updated_at": None}, "needs a time"),
        ({"updated_at": {"gt": True}}, "needs a time"),
        ({"created_at": {"in": ["x"]}}, "needs a time"),
        ({"created_at": {"eq": {"a": 1}}}, "needs a time"),
        ({"created_at": {"gte": "2026-01-02T00:00:00Z", "lt": "2026-01-01T00:00:00Z"}}, "nothing can match the range"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(filters: Any, message: str) -> None:
    with pytest.raises(InvalidFilterError, match=message):
        parse(filters)


def test_filters_may_be_nested_deeply_but_not_endlessly() -> None:
    def deep(levels: int) -> dict[str, Any]:
        filters: dict[str, Any] = {"price": 15}
        for _ in range(levels):
            filters = {"not": filters}
        return filters

    assert passes(deep(16))
    with pytest.raises(InvalidFilterError, match="nested more than 16 deep"):
        parse(deep(17))


# --- properties --------------------------------------------------------------------------------------------------

Names = st.sampled_from(["a", "b", "a.b", "metadata.a", "agent_id", "session_id", "memory_type"])
Scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.sampled_from(["", "a", "b", "ü"])
Values = st.recursive(
    Scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner), max_leaves=5
)
Ordered = st.integers(-3, 3) | st.floats(-3, 3) | st.sampled_from(["", "a", "b"])
Lists = st.lists(Values, min_size=1, max_size=3)
Tests = st.one_of(
    st.sampled_from(["eq", "ne", "$eq"]).flatmap(lambda word: Values.map(lambda value: {word: value})),
    st.sampled_from(["in", "nin", "any", "all", "none"]).flatmap(lambda word: Lists.map(lambda value: {word: value})),
    st.sampled_from(["gt", "gte", "lt", "lte"]).flatmap(lambda word: Ordered.map(lambda value: {word: value})),
    st.booleans().map(lambda value: {"exists": value}),
    Scalars,
    Lists,
)
Fields = st.dictionaries(Names, Tests, min_size=1, max_size=2)
Filters = st.recursive(
    Fields,
    lambda inner: st.one_of(
        inner.map(lambda part: {"not": part}),
        st.sampled_from(["any", "all", "or", "and", "$or"]).flatmap(
            lambda word: st.lists(inner, min_size=1, max_size=3).map(lambda parts: {word: parts})
        ),
    ),
    max_leaves=4,
)
Documents = st.fixed_dictionaries(
    {},
    optional={
        "metadata": Values,
        "agent_id": st.sampled_from(["", "a", "b"]),
        "session_id": st.none() | st.sampled_from(["a", "b"]),
        "memory_type": st.sampled_from(["a", "long_term"]),
    },
)


@given(Filters, Documents)
def test_a_valid_filter_answers_for_any_json_value(filters: Any, document: Any) -> None:
    assert passes(filters, document) in (True, False)


@given(Filters, Documents)
def test_not_not_is_the_thing_itself(filters: Any, document: Any) -> None:
    assert passes({"not": {"not": filters}}, document) is passes(filters, document)
    assert passes({"not": filters}, document) is not passes(filters, document)


@given(Filters, Filters, Documents)
def test_any_and_all_are_each_others_opposite(one: Any, other: Any, document: Any) -> None:
    neither = {"all": [{"not": one}, {"not": other}]}
    assert passes({"any": [one, other]}, document) is not passes(neither, document)


@given(st.sampled_from([("eq", "ne"), ("in", "nin"), ("any", "none")]), Names, Lists, Documents)
def test_each_operator_and_its_negative_are_opposites(
    pair: tuple[str, str], name: str, operand: Any, document: Any
) -> None:
    assert passes({name: {pair[0]: operand}}, document) is not passes({name: {pair[1]: operand}}, document)


@given(
    st.recursive(
        st.from_type(object) | st.text() | Values,
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.none(), inner),
        max_leaves=6,
    )
)
def test_whatever_is_given_as_filters_is_understood_or_refused_in_our_words(filters: Any) -> None:
    try:
        where = parse(filters)
    except InvalidFilterError:
        return
    if where is not None:
        assert matches(Combination("none", (where,)), lambda path: MISSING) is not matches(where, lambda path: MISSING)


# --- how large a filter may be ----------------------------------------------------------------------------------------


def several(count: int) -> dict[str, Any]:
    """A filter of so many conditions, most of them within others."""
    inner = [{"x": {"gte": number, "lt": number + 1}} for number in range(count // 2)]
    return {"not": {"any": [{"all": inner}]}, **({"y": 1} if count % 2 else {})}


def test_a_filter_has_at_most_200_conditions_wherever_they_stand() -> None:
    assert MAX_CONDITIONS == 200
    assert parse(several(200)) is not None
    with pytest.raises(InvalidFilterError, match="more than 200 conditions; ask in several calls, or give many values"):
        parse(several(201))


@pytest.mark.parametrize(
    "given",
    [
        lambda count: {"x": list(range(count))},
        lambda count: {"x": {"none": [str(number) for number in range(count)]}},
        lambda count: {"x": {"eq": [[number] for number in range(count)]}},
        lambda count: {"x": {"eq": {"a": {str(number): number for number in range(count)}}}},
        lambda count: {"any": [{"x": list(range(count // 2))}, {"y": list(range(count - count // 2))}]},
    ],
    ids=["in", "none", "lists within", "an object", "together"],
)
def test_a_filter_has_at_most_1000_values_however_they_are_given(given: Any) -> None:
    assert MAX_VALUES == 1_000
    assert parse(given(1_000)) is not None
    with pytest.raises(InvalidFilterError, match="more than 1,000 values; ask in several calls"):
        parse(given(1_001))


def test_a_filter_that_is_too_large_is_read_no_further() -> None:
    read = []

    class Noticed(dict[str, Any]):
        def items(self) -> Any:
            read.append(1)
            return super().items()

    with pytest.raises(InvalidFilterError):
        parse({"any": [Noticed(x=number) for number in range(40_000)]})
    assert len(read) <= MAX_CONDITIONS + 1


def test_a_list_with_many_items_is_compared_with_many_values_in_one_pass() -> None:
    """Not each item with each value: that would be a hundred million comparisons."""
    looks = [0]

    class Item(int):
        def __eq__(self, other: object) -> bool:
            looks[0] += 1
            return int(self) == other

        __hash__ = int.__hash__

    items = [Item(number) for number in range(100_000)]
    assert passes({"tags": {"none": list(range(-1_000, 0))}}, {"metadata": {"tags": items}})
    assert looks[0] < 2 * len(items)
