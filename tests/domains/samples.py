"""Policies, configurations and resources, also such as nobody should send."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from holdfast.core.domains import FIELDS, SOURCE_TYPES

NOW = datetime(2026, 1, 15, 12, tzinfo=UTC)

junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.text(max_size=5),
    st.just("30"),
    st.binary(max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)
items = st.one_of(
    junk,
    st.sampled_from([*SOURCE_TYPES, "context ", "CONTEXT"]),
    st.integers(-2, 9),
    st.lists(st.integers(), max_size=1),
)
values = st.one_of(junk, st.lists(items, max_size=6), st.lists(items, max_size=6).map(tuple))
fields = {
    "older_than_days": st.integers(-5, 4_000) | st.floats(-5, 4_000),
    "source_types": st.lists(st.sampled_from([*SOURCE_TYPES, "else"]), max_size=5),
    "keep_session_ids": st.lists(st.sampled_from(["s1", "s2", "s3", ""]), max_size=4),
    "keep_context_ids": st.lists(st.integers(-1, 5), max_size=4),
    "limit": st.integers(-5, 30_000),
    "vacuum": st.booleans(),
    "auto_gc": st.booleans(),
}
#: What a careful caller sends.
configs = st.fixed_dictionaries({}, optional=fields)
#: And what anyone may send, by the names that there are.
wild_configs = st.dictionaries(st.sampled_from(FIELDS), values, max_size=7)

_zones = st.sampled_from(
    [UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-12)), timezone(timedelta(minutes=330))]
)
_NAIVE = datetime(2020, 1, 1)  # noqa: DTZ001 - it says no offset, and that is the point
_ages = st.one_of(
    st.integers(-3_700 * 86_400, 86_400),
    st.sampled_from([days * 86_400 + second for days in (-1, -2, -30, -3_650) for second in (-1, 0, 1)]),
)


@st.composite
def moments(draw: st.DrawFn) -> tuple[Any, datetime | None]:
    """When something was made, in one of the ways to say it; and when that was, if it says so."""
    made = NOW + timedelta(seconds=draw(_ages))
    unreadable = ["", "yesterday", "2020-01-01", "2020-01-01T00:00:00", _NAIVE, True, float("nan"), [], 1e18]
    return draw(
        st.sampled_from(
            [
                (made.astimezone(draw(_zones)).isoformat(), made),
                (made.astimezone(draw(_zones)), made),
                (made.strftime("%Y-%m-%dT%H:%M:%SZ"), made),
                (int(made.timestamp()), made),
                (made.timestamp(), made),
                (int(made.timestamp()) * 1_000, made),
                (None, None),
                (draw(st.sampled_from(unreadable)), None),
            ]
        )
    )


@st.composite
def resources(draw: st.DrawFn) -> tuple[dict[str, Any], datetime | None]:
    """A resource, and when it was made if it says so."""
    said, made = draw(moments())
    given = {
        "id": draw(st.integers(0, 99)),
        "session_id": draw(st.sampled_from(["s1", "s2", "s9", None, 7, ["s1"]])),
        "context_id": draw(st.sampled_from([1, 2.0, 5, 9, "1", None, True, float("nan"), {}])),
        "source_type": draw(st.sampled_from([*SOURCE_TYPES, *SOURCE_TYPES, "else", None, 3, ["context"]])),
        "created_at": said,
    }
    missing = draw(st.sets(st.sampled_from(["session_id", "context_id"])))
    return {name: value for name, value in given.items() if name not in missing}, made
