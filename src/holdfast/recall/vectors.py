"""Vectors: directions of 8-bit numbers, and their products.

A number is how many steps of 1/127 of the vector's largest number it is. That is the only form there is: stored, in
archives and backups, in an index, and of a query. A length says nothing, so it is taken out of every product. Products
of steps are sums of whole numbers: exact, and the same in any order, on every machine.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.recall.ranking import Doubles, Floats

Steps = npt.NDArray[np.int8]
#: How many steps the largest number of a vector has.
_LARGEST: Final = 127
#: So many vectors are added up in 16 bits.
_BLOCK: Final = 256
#: What spreads numbers over 64 bits: 2**64 by the golden ratio.
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)


def to_steps(vectors: npt.NDArray[np.float32] | npt.NDArray[np.float64]) -> Steps:
    """Vectors, in rows, by their steps. One without a direction is all zeros."""
    sizes = np.abs(vectors)
    if vectors.size == vectors.shape[-1]:  # of one, the same with two steps fewer
        longest = np.maximum.reduce(sizes, None) or 1
    else:
        longest = np.maximum.reduce(sizes, -1, initial=0, keepdims=True)
        longest = np.where(longest, longest, 1)
    steps: Steps = np.rint(vectors * (_LARGEST / longest)).astype(np.int8)
    return steps


def read_steps(blob: bytes, count: int) -> Steps:
    """So many vectors, as they are stored."""
    return np.frombuffer(blob, np.int8).reshape(count, -1)


def scales(vectors: Steps) -> Floats:
    """What makes each vector one of length 1; 0 for one without a direction."""
    lengths = np.sqrt(pair_products(vectors, vectors))
    return np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)


def units(vectors: Steps) -> Floats:
    """Vectors of length 1."""
    return vectors * scales(vectors)[:, np.newaxis]


def products(vectors: Steps, other: Steps) -> Floats:
    """The product of each vector's steps with those of another one."""
    if not vectors.size:
        return np.zeros(len(vectors), np.float32)
    from simsimd import dot  # noqa: PLC0415 - who only writes does not wait for it

    # Not into an array of ours: with ``out``, simsimd gives back a None that is not its own, until none are left.
    return np.asarray(dot(other, vectors, out_dtype="float32"))


def pair_products(vectors: Steps, others: Steps) -> Floats:
    """The product of each vector's steps with those of its partner."""
    if not vectors.size:
        return np.zeros(len(vectors), np.float32)
    from simsimd import dot  # noqa: PLC0415

    return np.asarray(dot(vectors, others, out_dtype="float32"))


class Wide(NamedTuple):
    """A vector that is multiplied with single ones: its steps, and how many steps long it is."""

    steps: Doubles
    length: float


def widen(vector: Steps) -> Wide:
    """A vector, ready for that."""
    steps = vector.astype(np.float64)
    return Wide(steps, math.sqrt(steps @ steps))


def cosine(one: Wide, other: Wide) -> float:
    """The product of two vectors of length 1; 0 if one has no direction."""
    product = float(one.steps @ other.steps)
    return product / (one.length * other.length) if product else 0.0


def add_up(vectors: Steps) -> npt.NDArray[np.int64]:
    """The sum of all steps."""
    blocks = len(vectors) // _BLOCK
    whole, rest = vectors[: blocks * _BLOCK], vectors[blocks * _BLOCK :]
    sums = np.add.reduce(whole.reshape(blocks, _BLOCK, vectors.shape[1]), 1, np.int16)
    total: npt.NDArray[np.int64] = sums.sum(0, np.int64) + rest.sum(0, np.int64)
    return total


def draw(vectors: Steps, level: int) -> npt.NDArray[np.bool_]:
    """Which vectors are in a sample of about one in ``2 ** level``. That depends on a vector's first numbers alone."""
    head = np.zeros((len(vectors), 8), np.int8)
    head[:, : vectors.shape[1]] = vectors[:, :8]
    chosen: npt.NDArray[np.bool_] = head.view("<u8")[:, 0] * _SPREAD >> np.uint64(32) < np.uint64(1 << 32 - level)
    return chosen
