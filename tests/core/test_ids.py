"""Record ids sort by the moment they were made for, and by order of making within it."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.clock import IdSource
from holdfast.core.values import is_id

NOW = 1_768_478_400_000_000
Moments = st.integers(min_value=0, max_value=NOW * 100)


def randomly(seed: int) -> Callable[[int], int]:
    return random.Random(seed).getrandbits


@given(st.lists(Moments, min_size=2), st.integers())
def test_ids_sort_by_time_even_across_processes(moments: list[int], seed: int) -> None:
    ids = {moment: IdSource(randomly(seed + place)).next(moment) for place, moment in enumerate(moments)}

    assert [ids[moment] for moment in sorted(ids)] == sorted(ids.values())


@given(st.lists(st.integers(0, 3), min_size=1), Moments, st.integers())
def test_ids_of_one_source_sort_by_order_of_making_while_time_does_not_go_back(
    steps: list[int], moment: int, seed: int
) -> None:
    source = IdSource(randomly(seed))
    ids = []
    for step in steps:
        moment += step
        ids.append(source.next(moment))

    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("bits", [lambda n: 0, lambda n: (1 << n) - 1, randomly(5)], ids=["zeros", "ones", "random"])
def test_many_ids_of_one_moment_keep_their_order_whatever_chance_says(bits: Callable[[int], int]) -> None:
    source = IdSource(bits)
    ids = [source.next(NOW) for _ in range(20_000)]

    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_neighbouring_microseconds_are_told_apart() -> None:
    highest, lowest = IdSource(lambda n: (1 << n) - 1), IdSource(lambda n: 0)

    for moment in range(NOW, NOW + 2_001):
        assert highest.next(moment) < lowest.next(moment + 1)


@given(Moments, st.integers())
def test_an_id_is_a_uuid_of_version_7_that_tells_its_millisecond(moment: int, seed: int) -> None:
    text = IdSource(randomly(seed)).next(moment)
    value = uuid.UUID(text)

    assert (value.version, value.variant) == (7, uuid.RFC_4122)
    assert value.int >> 80 == moment // 1_000
    assert is_id(text)


@given(st.lists(Moments, min_size=2, unique=True), st.integers())
def test_ids_sort_as_bytes_as_they_do_as_text(moments: list[int], seed: int) -> None:
    source = IdSource(randomly(seed))
    ids = [source.next(moment) for moment in sorted(moments)]

    assert sorted(ids, key=lambda text: uuid.UUID(text).bytes) == ids


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        None,
        7,
        b"019bc16e-0000-7000-8000-000000000000",
        "019BC16E-0000-7000-8000-000000000000",
        "{019bc16e-0000-7000-8000-00000000000}",
        "019bc16e000070008000000000000000",
        "019bc16e-0000-7000-8000-00000000000g",
        "019bc16e-0000-7000-8000-000000000000\n",
        "urn:uuid:019bc16e-0000-7000-8000-000",
        "\ud800" * 36,
    ],
)
def test_whatever_else_is_not_an_id(text: object) -> None:
    assert is_id(text) is False
