"""Dot products of many vectors with one: as fast as the machine allows, without waiting for cores that are busy."""

from __future__ import annotations

import time
from typing import Final

import numpy as np

from retain.recall.ranking import Floats

#: Blocks of so many numbers are too small for the linear algebra library to share out among the cores.
_UNSHARED: Final = 8_192
#: Below this size there is little to gain from a second core.
_WORTH_SHARING: Final = 1_000_000
#: A shared product that takes so many times its best is one in which cores waited for each other ...
_WAITED: Final = 3.0
#: ... and for so many products after it, each is done by one core.
_ALONE: Final = 256


class Products:
    """Multiplies matrices of vectors by a vector. Calls must not overlap.

    Shared out among all cores, a large product takes half the time while the machine is idle, and many times as long
    while it is busy, because the cores wait for the slowest of them. So one that was slow is followed by some that are
    not shared out.
    """

    def __init__(self) -> None:
        self._best = float("inf")
        self._alone = 0

    def dot(self, vectors: Floats, query: Floats) -> Floats:
        """Each vector's product with the query."""
        if not len(query):
            return np.zeros(len(vectors), np.float32)
        if vectors.size < _WORTH_SHARING or self._alone:
            self._alone = max(self._alone - 1, 0)
            return _unshared(vectors, query)
        start = time.perf_counter()
        products: Floats = vectors @ query
        each = (time.perf_counter() - start) / vectors.size
        self._best = min(self._best, each)
        if each > _WAITED * self._best:
            self._alone = _ALONE
        return products


def _unshared(vectors: Floats, query: Floats) -> Floats:
    rows = max(_UNSHARED // len(query), 1)
    whole = len(vectors) // rows * rows
    products = np.empty(len(vectors), np.float32)
    np.matmul(vectors[:whole].reshape(-1, rows, len(query)), query, out=products[:whole].reshape(-1, rows))
    np.vecdot(vectors[whole:], query, out=products[whole:])
    return products
