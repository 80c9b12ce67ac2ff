"""What a hold covers: exactly what it names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.decisions import Held, Hold, find_hold, is_tagged

Names = st.sampled_from(["a", "b", "ab"])
Tags = st.sampled_from(["case=7", "legal", "open=true"])
Holds = st.builds(
    Hold,
    id=st.just("h"),
    tenant=st.just("acme"),
    reason=st.just("a lawsuit"),
    author=st.just("ann"),
    created_at=st.just(0),
    user_id=st.none() | Names,
    agent_id=st.none() | Names,
    session_id=st.none() | Names,
    memory_id=st.none() | Names,
    tag=st.none() | Tags,
)
Metadata = st.sampled_from([{}, {"case": 7}, {"case": "7"}, {"tags": ["legal"]}, {"tags": "legal"}, {"open": True}])
Things = st.builds(Held, Names, Names, st.none() | Names, Names, Metadata)


@given(Holds, Things)
def test_a_hold_covers_what_has_every_part_that_it_names_and_nothing_else(hold: Hold, thing: Held) -> None:
    pairs = zip((hold.user_id, hold.agent_id, hold.session_id, hold.memory_id), thing[:4], strict=True)
    same = all(wanted is None or wanted == there for wanted, there in pairs)
    assert hold.covers(thing) == (same and (hold.tag is None or is_tagged(thing.metadata, hold.tag)))


@given(Holds, Things)
def test_a_released_hold_covers_nothing(hold: Hold, thing: Held) -> None:
    assert not replace(hold, released_at=1, released_by="ann").covers(thing)


@given(st.lists(Holds, max_size=5), Things)
def test_the_first_hold_that_covers_something_stands_for_all(holds: list[Hold], thing: Held) -> None:
    found = find_hold(thing, holds)
    covering = [hold for hold in holds if hold.covers(thing)]
    assert found is (covering[0] if covering else None)


@pytest.mark.parametrize(
    ("metadata", "tag", "tagged"),
    [
        ({"case": 7}, "case=7", True),
        ({"case": "7"}, "case=7", True),
        ({"case": 77}, "case=7", False),
        ({"open": True}, "open=true", True),
        ({"open": None}, "open=None", False),
        ({"tags": ["legal", "hr"]}, "legal", True),
        ({"tags": "legal"}, "legal", True),
        ({"tags": ["illegal"]}, "legal", False),
        ({"tags": "illegal"}, "legal", False),
        ({"legal": True}, "legal", False),
        ({"a": "b=c"}, "a=b=c", True),
        ({}, "case=7", False),
    ],
)
def test_a_tag_is_a_field_with_its_value_or_one_of_the_tags(metadata: dict[str, Any], tag: str, tagged: bool) -> None:
    assert is_tagged(metadata, tag) is tagged
