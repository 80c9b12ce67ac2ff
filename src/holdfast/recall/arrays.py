"""Arrays that grow, and the products of many vectors with one."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from holdfast.recall.ranking import Floats

#: Blocks of so many numbers are too small for the linear algebra library to share out among the cores.
_UNSHARED: Final = 8_192
#: From so many numbers on a second thread takes half of them.
_LARGE: Final = 1 << 23
_CORES: Final = os.cpu_count() or 1


class GrowingArray:
    """An array to which rows are appended at a constant cost a row. ``view`` is its content, and may be written to."""

    def __init__(self, dtype: npt.DTypeLike, width: int | None = None) -> None:
        self._buffer: npt.NDArray[Any] = np.zeros(0 if width is None else (0, width), dtype)
        self.view: npt.NDArray[Any] = self._buffer

    def __len__(self) -> int:
        return len(self.view)

    @property
    def width(self) -> int:
        """The length of a row."""
        return int(self._buffer.shape[1])

    @property
    def nbytes(self) -> int:
        """The memory it takes, with its spare room."""
        return self._buffer.nbytes

    def extend(self, rows: npt.ArrayLike) -> None:
        """Append rows. Earlier views are no longer current. The first rows are taken over without a copy."""
        new = np.asarray(rows, self._buffer.dtype)
        start, end = len(self.view), len(self.view) + len(new)
        if not start:
            self.replace(new)
            return
        if end > len(self._buffer):
            buffer = np.empty((end + end // 4 + 16, *self._buffer.shape[1:]), self._buffer.dtype)
            buffer[:start] = self.view
            self._buffer = buffer
        self._buffer[start:end] = new
        self.view = self._buffer[:end]

    def replace(self, rows: npt.NDArray[Any]) -> None:
        """Hold these rows and no others."""
        self._buffer = self.view = np.ascontiguousarray(rows, self._buffer.dtype)

    def widen(self, width: int) -> None:
        """Make all rows this long, and all zeros."""
        self._buffer = self.view = np.zeros((len(self.view), width), self._buffer.dtype)


def dot(vectors: Floats, query: Floats) -> Floats:
    """Each vector's product with the query.

    The linear algebra library shares a large product out among all cores, and then its threads keep them busy for
    milliseconds after each one. So the vectors are multiplied in blocks that it does not share out. Of very many
    vectors, a thread that ends with its work takes one half.
    """
    if not len(query):
        return np.zeros(len(vectors), np.float32)
    found = np.empty(len(vectors), np.float32)
    if vectors.size < _LARGE or _CORES == 1:
        _multiply(vectors, query, found)
        return found
    half = len(vectors) // 2
    other = Thread(target=_multiply, args=(vectors[half:], query, found[half:]))
    other.start()
    _multiply(vectors[:half], query, found[:half])
    other.join()
    return found


def _multiply(vectors: Floats, query: Floats, found: Floats) -> None:
    rows = max(_UNSHARED // len(query), 1)
    whole = len(vectors) // rows * rows
    np.matmul(vectors[:whole].reshape(-1, rows, len(query)), query, out=found[:whole].reshape(-1, rows))
    np.vecdot(vectors[whole:], query, out=found[whole:])


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Do not look for cycles meanwhile: a load makes hundreds of thousands of objects, and no cycle."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def release_free_memory() -> None:
    """Give back to the system what was freed: the allocator of Linux keeps it otherwise."""
    with suppress(AttributeError, OSError, TypeError):  # other systems have no such call
        ctypes.CDLL(None).malloc_trim(0)
