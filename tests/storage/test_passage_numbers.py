"""Records are found by the numbers of their fields: a filter never passes over one that it should find."""

from __future__ import annotations

import atexit
import json
from functools import cache
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from databases import postgres_server
from holdfast.core.filters import parse
from holdfast.core.types import TYPES, MemoryType
from holdfast.storage.postgres.filter_sql import json_path, passes, time_limits
from holdfast.storage.postgres.term_ids import asked_numbers, field_numbers, marks, space_of

KIND = TYPES[MemoryType.LONG_TERM]
NAMES = st.sampled_from(["a", "b", "c.d", "agent_id", "x" * 50])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0**60]),
    st.sampled_from("uvé"),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
FIELDS = st.sampled_from(["a", "b", "c", "a.b", "metadata.agent_id", "agent_id", "session_id"])
TESTS = st.one_of(
    SCALARS,
    st.builds(lambda value: {"eq": value}, VALUES),
    st.builds(
        lambda word, values: {word: values},
        st.sampled_from(["in", "any", "all", "none", "nin"]),
        st.lists(VALUES, min_size=1, max_size=3),
    ),
    st.builds(lambda there: {"exists": there}, st.booleans()),
    st.builds(lambda number: {"gte": number}, st.integers(-3, 3)),
)
SIMPLE = st.dictionaries(FIELDS, TESTS, min_size=1, max_size=3)
FILTERS = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.builds(lambda parts: {"any": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: {"all": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda part: {"not": part}, inner),
    ),
    max_leaves=4,
)


@cache
def connection() -> psycopg.Connection[tuple[Any, ...]]:
    opened = psycopg.connect(postgres_server().url(), autocommit=True)
    atexit.register(opened.close)
    return opened


@given(st.dictionaries(NAMES, VALUES, max_size=4), FILTERS, st.sampled_from(["u", "v"]), st.sampled_from([None, "u"]))
def test_what_passes_a_filter_has_a_number_of_each_set(
    metadata: dict[str, Any], filters: dict[str, Any], agent: str, session: str | None
) -> None:
    where = parse(filters)
    assert where is not None
    text = json.dumps(metadata)
    if passes((agent, session, 1, 2), text, KIND, where):
        there = set(field_numbers(7, agent, session, text))
        assert all(there & set(group) for group in asked_numbers(7, where))


def test_a_record_with_very_many_fields_is_looked_at_by_every_filter() -> None:
    text = json.dumps({f"field {n}": n for n in range(10_000)})
    there = field_numbers(7, "agent", None, text)
    assert len(there) == 1
    where = parse({"field 77": 77})
    assert where is not None
    assert all(set(there) & set(group) for group in asked_numbers(7, where))


def test_most_filters_that_ask_for_a_value_are_told_apart() -> None:
    for filters in ({"a": 1}, {"a": ["x", "y"]}, {"tags": {"all": ["x", "y"]}}, {"any": [{"a": 1}, {"b": 2}]}):
        where = parse(filters)
        assert where is not None
        assert asked_numbers(7, where)


def test_scopes_do_not_share_numbers_or_marks() -> None:
    spaces = {
        space_of(scope, agent, what) for scope in range(50) for agent in (None, "a") for what in ("words", "fields")
    }
    assert len(spaces) == 200
    assert max(spaces) < 2**31
    one, other = marks(11, None), marks(19, None)
    assert abs(float(one @ other)) < 0.9 * float(one @ one)


@given(st.dictionaries(NAMES, VALUES, max_size=4), FILTERS)
def test_what_passes_a_filter_passes_what_sql_asks_beforehand(
    metadata: dict[str, Any], filters: dict[str, Any]
) -> None:
    where = parse(filters)
    assert where is not None
    text, path = json.dumps(metadata, ensure_ascii=False), json_path(where)
    if path and passes(("u", None, 1, 2), text, KIND, where):
        asked = "SELECT %s::text::jsonb @@ %s::text::jsonpath"
        assert connection().execute(asked, (text, path)).fetchone() == (True,)


@pytest.mark.parametrize(
    ("filters", "path"),
    [
        ({"a.b": {"gte": 1, "lt": 2.5}}, '$."a"."b" >= 1 && $."a"."b" < 2.5'),
        ({'say "so"': {"exists": True}, "n": 3}, 'exists($."say \\"so\\"")'),
        ({"a": {"gt": "x\0"}}, ""),
        ({"a": {"gt": 2**60}}, ""),
        ({"not": {"a": {"gt": 1}}}, ""),
    ],
)
def test_ranges_and_presence_are_asked_by_sql(filters: dict[str, Any], path: str) -> None:
    where = parse(filters)
    assert where is not None
    assert json_path(where) == path


def test_the_time_that_a_filter_names_is_asked_by_sql() -> None:
    where = parse({"created_at": {"gte": "2026-01-01T00:00:00Z", "lt": "2026-01-02T00:00:00Z"}, "a": {"gt": 1}})
    assert where is not None
    first, last = time_limits(where)
    assert last - first == 86_400_000_000
