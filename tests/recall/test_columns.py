"""Filters over the records of an index."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.filters import _OPERATORS, parse
from holdfast.core.records import TYPES, MemoryType
from holdfast.ports.feed import IndexRow
from holdfast.recall.arrays import Batch
from holdfast.recall.metadata_columns import MetadataColumns
from recall import naive


def row(number: int, metadata: dict[str, Any], *, agent: str = "a", session: str | None = None) -> IndexRow:
    return IndexRow(str(number), agent, session, number * 10, number * 20, None, 0, json.dumps(metadata), None, b"")


def passing(rows: list[IndexRow], filters: dict[str, Any]) -> list[int]:
    columns = MetadataColumns(MemoryType.LONG_TERM)
    if rows:
        columns.add(Batch.read(TYPES[MemoryType.LONG_TERM], rows))
    where = parse(filters)
    assert where is not None
    return np.flatnonzero(columns.mask(where)).tolist()


ROWS = [
    row(0, {"kind": "tea", "price": 3, "tags": ["hot", "green"], "at": {"city": "Oslo"}}),
    row(1, {"kind": "coffee", "price": 4.5, "tags": ["hot"], "at": {"city": "Rome"}}, agent="b", session="s"),
    row(2, {"kind": "water", "price": None, "vip": True}),
    row(3, {"kind": ["tea", "cake"], "price": "3", "vip": 1}),
    row(4, {}),
]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"kind": "tea"}, [0, 3]),
        ({"kind": ["tea", "water"]}, [0, 2, 3]),
        ({"kind": {"ne": "tea"}}, [1, 2, 4]),
        ({"kind": {"nin": ["tea", "water"]}}, [1, 4]),
        ({"kind": {"eq": ["tea", "cake"]}}, [3]),
        ({"price": {"gte": 3, "lt": 4.5}}, [0]),
        ({"price": {"gt": "2"}}, [3]),
        ({"price": None}, [2]),
        ({"price": {"exists": False}}, [4]),
        ({"vip": True}, [2]),
        ({"vip": 1}, [3]),
        ({"kind": {"prefix": "t"}}, [0]),
        ({"kind": {"prefix": "tea"}}, [0]),
        ({"kind": {"prefix": "ea"}}, []),
        ({"price": {"prefix": "3"}}, [3]),
        ({"at.city": {"prefix": "Os"}}, [0]),
        ({"not": {"kind": {"prefix": "t"}}}, [1, 2, 3, 4]),
        ({"agent_id": {"prefix": "b"}}, [1]),
        ({"session_id": {"prefix": "s"}}, [1]),
        ({"memory_type": {"prefix": "long"}}, [0, 1, 2, 3, 4]),
        ({"tags": {"any": ["green", "cold"]}}, [0]),
        ({"tags": {"all": ["hot"]}}, [0, 1]),
        ({"tags": {"none": ["hot"]}}, [2, 3, 4]),
        ({"at.city": "Oslo"}, [0]),
        ({"at": {"eq": {"city": "Rome"}}}, [1]),
        ({"any": [{"kind": "water"}, {"at.city": "Rome"}]}, [1, 2]),
        ({"not": {"kind": "tea"}, "price": {"exists": True}}, [1, 2]),
        ({"agent_id": "b"}, [1]),
        ({"session_id": "s"}, [1]),
        ({"session_id": {"exists": False}}, [0, 2, 3, 4]),
        ({"memory_type": "long_term"}, [0, 1, 2, 3, 4]),
        ({"metadata.agent_id": "b"}, []),
    ],
)
def test_a_filter_finds_what_it_says(filters: dict[str, Any], expected: list[int]) -> None:
    assert passing(ROWS, filters) == expected


def test_times_are_compared_as_microseconds() -> None:
    assert passing(ROWS, {"created_at": {"gte": 0.00002, "lte": 0.00003}}) == [2, 3]
    assert passing(ROWS, {"updated_at": {"lt": 0.00002}}) == [0]


def test_whole_numbers_too_large_for_a_float_are_compared_exactly() -> None:
    large = 1 << 60
    rows = [row(0, {"n": large}), row(1, {"n": large + 1})]
    assert passing(rows, {"n": {"gt": large}}) == [1]
    assert passing(rows, {"n": large + 1}) == [1]


def test_a_column_follows_records_that_are_added_and_dropped() -> None:
    columns = MetadataColumns(MemoryType.LONG_TERM)
    where = parse({"kind": "tea"})
    assert where is not None
    columns.add(Batch.read(TYPES[MemoryType.LONG_TERM], ROWS[:2]))
    assert columns.mask(where).tolist() == [True, False]
    columns.add(Batch.read(TYPES[MemoryType.LONG_TERM], ROWS[2:]))
    assert columns.mask(where).tolist() == [True, False, False, True, False]
    columns.keep(np.array([1, 3]))
    assert columns.mask(where).tolist() == [False, True]
    assert len(columns) == 2
    assert columns.nbytes > 0


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.0, 2.5, "1", "b", "bc", ""]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner, max_size=2),
    max_leaves=4,
)
SCALARS = st.booleans() | st.integers(-3, 3) | st.sampled_from([1.0, 2.5, "1", "b", None])
ORDERED = st.integers(-3, 3) | st.sampled_from([1.5, "1", "b"])
#: Operators, and what each of them may be given.
CONDITIONS: dict[tuple[str, ...], st.SearchStrategy[Any]] = {
    ("eq", "ne"): VALUES,
    ("in", "nin", "any", "all", "none"): st.lists(SCALARS, min_size=1, max_size=3),
    ("gt", "gte", "lt", "lte"): ORDERED,
    ("exists",): st.booleans(),
    ("prefix",): st.sampled_from(["1", "b", "bc", "c"]),
}


def test_every_operator_is_tried() -> None:
    assert {operator for operators in CONDITIONS for operator in operators} == set(_OPERATORS)


@settings(deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from("fg"), VALUES, max_size=2), max_size=8),
    st.sampled_from(["f", "f.x", "g"]),
    st.one_of(*(st.tuples(st.sampled_from(operators), operands) for operators, operands in CONDITIONS.items())),
)
def test_columns_agree_with_testing_each_record(
    metadata: list[dict[str, Any]], field: str, condition: tuple[str, Any]
) -> None:
    rows = [row(number, values) for number, values in enumerate(metadata)]
    filters = {field: {condition[0]: condition[1]}}
    where = parse(filters)
    assert where is not None
    assert passing(rows, filters) == [number for number, each in enumerate(rows) if naive.passes(each, where)]
