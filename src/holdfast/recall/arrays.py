"""Stored rows as arrays, which an index takes in at once; arrays that grow."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.core.records import Kind
from holdfast.ports.feed import SEPARATOR, IndexRow, PackedRows, read_numbers
from holdfast.recall.passages import expand
from holdfast.recall.ranking import Floats, Ints
from holdfast.recall.terms import Terms, decode
from holdfast.recall.vectors import Steps, read_steps, scales

#: Stands for a moment that does not come.
NEVER: Final = 2**63 - 1


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

    def clear(self) -> None:
        """Hold no rows."""
        self.view = self._buffer = self._buffer[:0].copy()

    def widen(self, width: int) -> None:
        """Make all rows this long, and all zeros."""
        self._buffer = self.view = np.zeros((len(self.view), width), self._buffer.dtype)


class SlotIds:
    """The ids of an index's slots. Which slot an id has, and whether the ids ascend, is found out when it is first
    asked: a scope that is only read never needs it.
    """

    def __init__(self) -> None:
        self.ids: list[str] = []
        """Those of all slots, also of the ones whose record is gone."""
        self._slot_of: dict[str, int] | None = None
        self._ascend: bool | None = None

    def __len__(self) -> int:
        """How many records there are."""
        return len(self.ids if self._slot_of is None else self._slot_of)

    @property
    def ascend(self) -> bool:
        """Whether slots are in the order of their ids."""
        if self._ascend is None:
            self._ascend = _ascend(self.ids)
        return self._ascend

    def find(self, record_id: str) -> int | None:
        """The slot of a record, if it is there."""
        return self._known.get(record_id)

    def add(self, ids: Sequence[str]) -> None:
        """Give these records, none of which is there, the next slots."""
        start = len(self.ids)
        self.ids += ids
        if self._slot_of is not None:
            self._slot_of.update(zip(ids, range(start, len(self.ids)), strict=True))
        if self._ascend:
            self._ascend = _ascend(self.ids[max(start - 1, 0) :])

    def remove(self, ids: Iterable[str]) -> list[int]:
        """The slots of those records that are there, which then are gone."""
        known = self._known
        return [slot for record_id in ids if (slot := known.pop(record_id, None)) is not None]

    def keep(self, slots: Sequence[int]) -> None:
        """Go on with these slots only, numbered anew."""
        self.ids[:] = [self.ids[slot] for slot in slots]
        self._slot_of = self._ascend = None

    @property
    def _known(self) -> dict[str, int]:
        if self._slot_of is None:
            self._slot_of = {record_id: slot for slot, record_id in enumerate(self.ids)}
        return self._slot_of


def _ascend(ids: Sequence[str]) -> bool:
    return all(map(str.__lt__, ids, ids[1:]))


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


class Batch(NamedTuple):
    """Records in columns."""

    id: list[str]
    agent_id: str
    """Joined, as in ``PackedRows``: most of the texts are read when a filter asks for them."""
    session_id: str
    created_at: Ints
    updated_at: Ints
    hidden_from: Ints
    archived_from: Ints
    metadata: str
    vectors: Steps
    """A row for each passage; zeros where there is no vector."""
    scale: Floats
    """What makes each of them one of length 1."""
    bare: list[str]
    """The ids of the records without vectors."""
    terms: Terms
    """Those of each passage; passages are numbered from 0."""
    text_hash: Ints
    """Equal texts have the same; 0 for records that are not to be taken for others."""
    ended_at: Ints | None
    """When versions ended; ``NEVER``, for those that are current. ``None``: all of them are."""

    @property
    def passages(self) -> Ints:
        """How many passages each record has."""
        return self.terms.passages

    @classmethod
    def read(cls, kind: Kind, rows: Sequence[IndexRow] | PackedRows) -> Batch:
        """Stored rows, at least one. Of several with one id, the last counts."""
        if not isinstance(rows, PackedRows):
            rows = rows if all(row.terms for row in rows) else expand(kind, rows)
            rows = [latest[1] for latest in sorted({row.id: row for row in rows}.items())]
        ids, agents, sessions, metadata, times, hashes, ended, vectors, said = (
            _unpack(rows) if isinstance(rows, PackedRows) else _gather(rows)
        )
        found = decode(*said)
        steps = _vectors(*vectors, found.passages)
        return cls(
            ids,
            agents,
            sessions,
            *times,
            metadata,
            steps,
            scales(steps),
            [] if vectors[1].all() else [ids[at] for at in np.flatnonzero(vectors[1] == 0).tolist()],
            found,
            hashes if kind.shown_once else np.zeros(len(ids), np.int64),
            ended,
        )


class _Columns(NamedTuple):
    """Rows in columns, before their vectors and terms are read."""

    id: list[str]
    agent_id: str
    session_id: str
    metadata: str
    times: tuple[Ints, Ints, Ints, Ints]
    """When records were made, changed, will be hidden and archived."""
    text_hash: Ints
    ended_at: Ints | None
    vectors: tuple[bytes, Ints]
    """Joined, and how many bytes are each record's."""
    terms: tuple[bytes, Ints]


def _unpack(rows: PackedRows) -> _Columns:
    created = read_numbers(rows.created_at)
    aged, codes = created + read_numbers(rows.aged_after), read_numbers(rows.profile)
    profiles = sorted(rows.profiles)
    places = np.searchsorted([profile.no for profile in profiles], codes >> 1)
    archived = _moments(aged, [profile.archive_after for profile in profiles], places)
    archived[codes & 1 > 0] = 0
    hidden = _moments(aged, [profile.delete_after for profile in profiles], places)
    return _Columns(
        rows.id.split(SEPARATOR),
        rows.agent_id,
        rows.session_id,
        rows.metadata,
        (created, created + read_numbers(rows.changed_after), hidden, archived),
        read_numbers(rows.text_hash),
        None,
        (rows.vectors or b"", read_numbers(rows.vector_sizes)),
        (rows.terms, read_numbers(rows.term_sizes)),
    )


def _gather(rows: Sequence[IndexRow]) -> _Columns:
    vectors, said = [row.vectors or b"" for row in rows], [row.terms for row in rows]
    times = (
        [row.created_at for row in rows],
        [row.updated_at for row in rows],
        [NEVER if row.hidden_from is None else row.hidden_from for row in rows],
        [NEVER if row.archived_from is None else row.archived_from for row in rows],
    )
    created, updated, hidden, archived = np.array(times, np.int64)
    is_current = all(row.ended_at is None for row in rows)
    return _Columns(
        [row.id for row in rows],
        SEPARATOR.join([row.agent_id for row in rows]),
        SEPARATOR.join([row.session_id or "" for row in rows]),
        SEPARATOR.join([row.metadata for row in rows]),
        (created, updated, hidden, archived),
        np.array([row.text_hash or 0 for row in rows]),
        None if is_current else np.array([NEVER if row.ended_at is None else row.ended_at for row in rows]),
        (b"".join(vectors), np.array([len(one) for one in vectors])),
        (b"".join(said), np.array([len(one) for one in said])),
    )


def _moments(since: Ints, after: Sequence[int | None], places: Ints) -> Ints:
    """What comes so long after other moments: ``after`` has that of each profile, ``places`` each moment's profile."""
    found: Ints = since + np.array([time or 0 for time in after])[places]
    found[np.array([time is None for time in after])[places]] = NEVER
    return found


def _vectors(blob: bytes, sizes: Ints, passages: Ints) -> Steps:
    """The vectors of all passages; zeros for records without any, or with some of another length than the first."""
    embedded = np.flatnonzero(sizes)
    dim = int(sizes[embedded[0]] // passages[embedded[0]]) if len(embedded) else 0
    expected = dim * passages
    if (sizes != expected).any():
        ends = np.cumsum(sizes)
        parts = zip((ends - sizes).tolist(), ends.tolist(), expected.tolist(), strict=True)
        blob = b"".join(blob[start:end] if end - start == size else bytes(size) for start, end, size in parts)
    return read_steps(blob, int(passages.sum())) if dim else np.zeros((int(passages.sum()), 0), np.int8)
