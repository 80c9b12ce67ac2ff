"""Stored rows as arrays, which an index takes in at once; arrays that grow; products of many vectors with one."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.core.records import Kind
from holdfast.ports.feed import IndexRow
from holdfast.recall import terms
from holdfast.recall.passages import expand
from holdfast.recall.ranking import Floats, Ints

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


NEVER: Final = np.iinfo(np.int64).max


class Batch(NamedTuple):
    """Records in columns, in the order of their ids."""

    id: list[str]
    agent_id: list[str]
    session_id: list[str | None]
    created_at: Ints
    updated_at: Ints
    hidden_from: Ints
    archived_from: Ints
    metadata: list[str]
    passages: Ints
    """How many passages each record has."""
    vectors: npt.NDArray[np.float16]
    """A row for each passage; zeros where there is no vector."""
    bare: list[str]
    """The ids of the records without vectors."""
    passage: npt.NDArray[np.uint32]
    """For each term of each passage: which passage of the batch holds it, ..."""
    term: npt.NDArray[np.uint32]
    times: npt.NDArray[np.uint8]
    """... and how often."""
    text_hash: Ints
    """Equal texts have the same; 0 for records that are not to be taken for others."""
    ended_at: Ints
    """When versions ended; never, for those that are current."""

    @classmethod
    def read(cls, kind: Kind, rows: Sequence[IndexRow]) -> Batch:
        """Stored rows. Of several with one id, the last counts."""
        if not all(row.terms for row in rows):
            rows = expand(kind, rows)
        ids = [row.id for row in rows]
        if ids != sorted(set(ids)):
            latest = dict(zip(ids, rows, strict=True))
            ids = sorted(latest)
            rows = [latest[record_id] for record_id in ids]
        columns = list(zip(*rows, strict=True)) or [()] * len(IndexRow._fields)
        _, agents, sessions, created_at, updated_at, hidden_from, archived_from, metadata, *found_by = columns
        vectors, blobs, _, hashes, ended_at = found_by
        said = terms.decode(blobs)
        texts: dict[Any, Any] = {}  # of equal ones, one is kept
        return cls(
            ids,
            list(map(texts.setdefault, agents, agents)),
            list(map(texts.setdefault, sessions, sessions)),
            np.array(created_at, np.int64),
            np.array(updated_at, np.int64),
            _moments(hidden_from),
            _moments(archived_from),
            list(map(texts.setdefault, metadata, metadata)),
            said.passages,
            _vectors(vectors, said.passages),
            [name for name, blob in zip(ids, vectors, strict=True) if blob is None],
            ((np.cumsum(said.passages) - said.passages)[said.row] + said.passage).astype(np.uint32),
            said.term,
            said.times,
            np.array([one or 0 for one in hashes] if kind.shown_once else [0] * len(ids), np.int64),
            _moments(ended_at),
        )


def _moments(values: Sequence[int | None]) -> Ints:
    return np.array([NEVER if value is None else value for value in values], np.int64)


def _vectors(blobs: Sequence[bytes | None], passages: Ints) -> npt.NDArray[np.float16]:
    """The vectors of all passages; zeros for records without any, or with some of another length than the first."""
    found = [blob or b"" for blob in blobs]
    sizes = np.fromiter(map(len, found), np.int64, len(found))
    embedded = np.flatnonzero(sizes)
    dim = int(sizes[embedded[0]] // passages[embedded[0]]) // 2 if len(embedded) else 0
    for at in np.flatnonzero(sizes != 2 * dim * passages).tolist():
        found[at] = bytes(2 * dim * int(passages[at]))
    return np.frombuffer(b"".join(found), np.float16).reshape(int(passages.sum()), dim)
