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
#: So seldom the way that is not in use is tried, to see whether it has become the better one.
_TRIED_EVERY: Final = 256
#: How much the latest product counts in what a way is taken to cost.
_LATEST: Final = 0.2


class Products:
    """Multiplies matrices of vectors by a vector. Calls must not overlap.

    Shared out among all cores, a large product takes half the time while the machine is idle, and many times as long
    while it is busy, because the cores wait for the slowest of them. So both are timed, and the better one is used.
    """

    def __init__(self) -> None:
        self._cost = {True: 0.0, False: 0.0}  # seconds a number: shared out, and not
        self._count = 0

    def dot(self, vectors: Floats, query: Floats) -> Floats:
        """Each vector's product with the query."""
        if not len(query):
            return np.zeros(len(vectors), np.float32)
        if vectors.size < _WORTH_SHARING:
            return _unshared(vectors, query)
        self._count += 1
        trying = self._count % _TRIED_EVERY == 0
        shared = (self._cost[True] <= self._cost[False]) != trying
        start = time.perf_counter()
        products: Floats = vectors @ query if shared else _unshared(vectors, query)
        taken = (time.perf_counter() - start) / vectors.size
        known = self._cost[shared]
        self._cost[shared] = taken if trying or not known else known + _LATEST * (taken - known)
        return products


def _unshared(vectors: Floats, query: Floats) -> Floats:
    rows = max(_UNSHARED // len(query), 1)
    whole = len(vectors) // rows * rows
    products = np.empty(len(vectors), np.float32)
    np.matmul(vectors[:whole].reshape(-1, rows, len(query)), query, out=products[:whole].reshape(-1, rows))
    np.vecdot(vectors[whole:], query, out=products[whole:])
    return products
