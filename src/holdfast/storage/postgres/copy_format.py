"""Rows of passages as PostgreSQL's binary COPY takes them: the fastest way in, vectors bit by bit as they are."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.storage.postgres.transactions import STATEMENTS, Connection

_HEAD: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END: Final = b"\xff\xff"
_NULL: Final = b"\xff\xff\xff\xff"
_COLUMNS: Final = struct.pack(">h", 10)
_BIGINT_OID: Final = 20


class Passage(NamedTuple):
    """A row of ``passages``, in the order of its columns."""

    subject: int
    key: int
    place: int
    length: float | None
    scope: int
    model: int | None
    session_id: str | None
    id: str | None
    words: list[int] | None
    vector: npt.NDArray[np.float16] | None


def copy_in(connection: Connection, passages: Iterable[Passage]) -> None:
    """Add rows, in the transaction that the connection is in."""
    data = b"".join([_HEAD, *map(_row, passages), _END])
    with connection.cursor().copy(STATEMENTS["passages.copy"].text) as copy:
        copy.write(data)


def _row(row: Passage) -> bytes:
    return b"".join(
        [
            _COLUMNS,
            _fixed(">q", row.subject),
            _fixed(">q", row.key),
            _fixed(">i", row.place),
            _fixed(">f", row.length),
            _fixed(">q", row.scope),
            _fixed(">q", row.model),
            _sized(None if row.session_id is None else row.session_id.encode()),
            _sized(None if row.id is None else row.id.encode()),
            _sized(None if row.words is None else _array(row.words)),
            _sized(None if row.vector is None else _half_vector(row.vector)),
        ]
    )


def _fixed(form: str, value: Any) -> bytes:
    return _NULL if value is None else _sized(struct.pack(form, value))


def _sized(data: bytes | None) -> bytes:
    return _NULL if data is None else struct.pack(">i", len(data)) + data


def _array(numbers: list[int]) -> bytes:
    if not numbers:
        return struct.pack(">iii", 0, 0, _BIGINT_OID)
    items = np.empty(len(numbers), np.dtype([("size", ">i4"), ("value", ">i8")]))
    items["size"] = 8
    items["value"] = numbers
    return struct.pack(">iiiii", 1, 0, _BIGINT_OID, len(numbers), 1) + items.tobytes()


def _half_vector(vector: npt.NDArray[np.float16]) -> bytes:
    return struct.pack(">hh", len(vector), 0) + vector.astype(">f2").tobytes()
