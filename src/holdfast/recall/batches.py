"""Batches: stored rows in columns, with their vectors and terms as arrays, so that an index takes in many at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.core.records import Kind
from holdfast.ports.feed import IndexRow
from holdfast.recall import terms
from holdfast.recall.compaction import expand
from holdfast.recall.ranking import Ints

_NEVER: Final = np.iinfo(np.int64).max


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
    record: npt.NDArray[np.uint32]
    """For each term of each passage: which record holds it, ..."""
    term: npt.NDArray[np.uint32]
    times: npt.NDArray[np.uint8]
    """... and how often."""
    blobs: dict[int, bytes]
    """The stored terms of the records of several passages."""

    @classmethod
    def read(cls, kind: Kind, rows: Sequence[IndexRow]) -> Batch:
        """Stored rows. Of several with one id, the last counts."""
        column = _transpose(rows)
        if not all(column.terms):
            rows = expand(kind, rows)
            column = _transpose(rows)
        if column.id != sorted(set(column.id)):
            latest = dict(zip(column.id, rows, strict=True))
            column = _transpose([latest[record_id] for record_id in sorted(latest)])
        said = terms.decode(column.terms)
        texts: dict[Any, Any] = {}  # of equal ones, one is kept
        return cls(
            column.id,
            list(map(texts.setdefault, column.agent_id, column.agent_id)),
            list(map(texts.setdefault, column.session_id, column.session_id)),
            np.array(column.created_at, np.int64),
            np.array(column.updated_at, np.int64),
            _moments(column.hidden_from),
            _moments(column.archived_from),
            list(map(texts.setdefault, column.metadata, column.metadata)),
            said.passages,
            _vectors(column.vectors, said.passages),
            [name for name, blob in zip(column.id, column.vectors, strict=True) if blob is None],
            said.row.astype(np.uint32),
            said.term,
            said.times,
            {at: column.terms[at] for at in np.flatnonzero(said.passages > 1).tolist()},
        )


class Columns(NamedTuple):
    """Rows by column: the fields of ``IndexRow``."""

    id: list[str]
    agent_id: list[str]
    session_id: list[str | None]
    created_at: list[int]
    updated_at: list[int]
    hidden_from: list[int | None]
    archived_from: list[int | None]
    metadata: list[str]
    vectors: list[bytes | None]
    terms: list[bytes]
    text: list[str | None]


def _transpose(rows: Sequence[IndexRow]) -> Columns:
    columns: Iterable[Iterable[Any]] = zip(*rows, strict=True) if rows else ([] for _ in Columns._fields)
    return Columns(*map(list, columns))


def _moments(values: Sequence[int | None]) -> Ints:
    return np.array([_NEVER if value is None else value for value in values], np.int64)


def _vectors(blobs: Sequence[bytes | None], passages: Ints) -> npt.NDArray[np.float16]:
    """The vectors of all passages; zeros for records without any, or with some of another length than the first."""
    found = [blob or b"" for blob in blobs]
    sizes = np.fromiter(map(len, found), np.int64, len(found))
    embedded = np.flatnonzero(sizes)
    dim = int(sizes[embedded[0]] // passages[embedded[0]]) // 2 if len(embedded) else 0
    for at in np.flatnonzero(sizes != 2 * dim * passages).tolist():
        found[at] = bytes(2 * dim * int(passages[at]))
    return np.frombuffer(b"".join(found), np.float16).reshape(int(passages.sum()), dim)
