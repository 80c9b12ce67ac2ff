"""Vectors of 8-bit numbers, and their products."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from holdfast.recall.vectors import add_up, cosine, pair_products, products, scales, to_steps, units, widen


@pytest.mark.parametrize("dim", [1, 6, 256, 1_040, 1_536, 3_072])
@pytest.mark.parametrize("fill", [None, 127, -127])
def test_products_are_exact_however_long_a_vector_is(dim: int, fill: int | None) -> None:
    drawn = np.random.default_rng(dim).integers(-127, 128, (301, dim), np.int8)
    vectors = drawn if fill is None else np.full_like(drawn, fill)
    whole = vectors.astype(np.int64)

    assert np.array_equal(products(vectors, vectors[7]), (whole @ whole[7]).astype(np.float32))
    assert np.array_equal(
        pair_products(vectors, vectors[::-1].copy()), np.vecdot(whole, whole[::-1]).astype(np.float32)
    )
    if dim <= 1_040:  # then no sum leaves the whole numbers that 32-bit floats have
        assert np.array_equal(products(vectors, vectors[7]), vectors.astype(np.float32) @ vectors[7].astype(np.float32))


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 1_000])
def test_a_sum_is_exact_and_the_same_in_any_order(count: int) -> None:
    vectors = np.random.default_rng(count).choice(np.array([-127, 127, 126], np.int8), (count, 9))
    vectors[:, 0] = 127

    assert add_up(vectors).tolist() == vectors.sum(0, np.int64).tolist() == add_up(vectors[::-1]).tolist()


def test_a_vector_by_itself_has_the_steps_that_it_has_among_others() -> None:
    vectors = np.random.default_rng(2).standard_normal((200, 256)).astype(np.float32)
    vectors[7] = 0
    steps = to_steps(vectors)

    assert [to_steps(one).tolist() for one in vectors] == steps.tolist()
    assert [to_steps(one[np.newaxis])[0].tolist() for one in vectors] == steps.tolist()
    assert to_steps(vectors[:0]).shape == (0, 256)


def test_a_vector_is_the_same_whatever_its_length_and_has_a_cosine_of_1_with_itself() -> None:
    vectors = np.random.default_rng(1).standard_normal((50, 256)).astype(np.float32)
    steps = to_steps(vectors)

    assert np.array_equal(to_steps(vectors * np.float32(8)), steps)
    assert np.array_equal(to_steps(steps.astype(np.float32)), steps)
    assert [cosine(one, one) for one in map(widen, steps)] == pytest.approx([1] * 50, abs=1e-6)
    assert np.linalg.norm(units(steps), axis=1) == pytest.approx(1, abs=1e-6)
    assert np.vecdot(units(steps), vectors) / np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-4)


def test_a_vector_without_a_direction_has_a_cosine_of_0_with_any() -> None:
    nothing, something = to_steps(np.array([[0, 0], [0.6, -0.8]], np.float32))

    assert (nothing.tolist(), something.tolist()) == ([0, 0], [95, -127])
    assert cosine(widen(nothing), widen(something)) == cosine(widen(nothing), widen(nothing)) == 0
    assert scales(np.stack([nothing, something])).tolist() == [0, pytest.approx((95**2 + 127**2) ** -0.5)]


def test_without_dimensions_there_are_products_of_nothing() -> None:
    nothing = np.zeros((3, 0), np.int8)

    assert products(nothing, nothing[0]).tolist() == scales(nothing).tolist() == [0, 0, 0]
    assert add_up(nothing).tolist() == []


def test_a_product_takes_no_reference_that_it_does_not_own() -> None:
    vectors = np.ones((2, 9), np.int8)
    before = sys.getrefcount(None)
    for _ in range(1_000):
        products(vectors, vectors[0])
        pair_products(vectors, vectors)

    assert sys.getrefcount(None) > before - 500
