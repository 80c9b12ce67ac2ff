"""Dot products of many vectors with one, on the caller's core alone."""

from __future__ import annotations

from typing import Final

import numpy as np

from holdfast.recall.ranking import Floats

#: Blocks of so many numbers are too small for the linear algebra library to share out among the cores.
_UNSHARED: Final = 8_192


def products(vectors: Floats, query: Floats) -> Floats:
    """Each vector's product with the query.

    Shared out among all cores a large product takes half the time on an idle machine. But the library's threads keep
    their cores busy for milliseconds after each one, at the cost of whatever else runs there, and on a busy machine
    each product waits for the slowest of them. So the vectors are multiplied in blocks that are not shared out.
    """
    if not len(query):
        return np.zeros(len(vectors), np.float32)
    rows = max(_UNSHARED // len(query), 1)
    whole = len(vectors) // rows * rows
    found = np.empty(len(vectors), np.float32)
    np.matmul(vectors[:whole].reshape(-1, rows, len(query)), query, out=found[:whole].reshape(-1, rows))
    np.vecdot(vectors[whole:], query, out=found[whole:])
    return found
