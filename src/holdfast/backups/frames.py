"""Frames: rows of a table as bytes that describe themselves.

A frame is three parts, one after the other:

1. the line ``frame <bytes of part 2> <bytes of part 3>``;
2. JSON, compressed by zlib: ``table``, ``rows`` (how many), ``order`` (of the columns), ``columns`` (a list of values
   for each column that is not bytes) and ``bytes`` (a list of lengths for each column that is; -1 for a value that is
   missing). Where all of a list are the same, it is ``{"same": value}``;
3. the bytes themselves, column after column.

So any program that knows zlib and JSON can read one.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

_START: Final = b"frame "
_LONGEST_LINE: Final = 64
#: The quickest: text and numbers shrink to a third even so, and vectors do not shrink at all.
_LEVEL: Final = 1
_BINARY: Final = frozenset({"bytes", "packed"})
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
#: Rows in one frame, at most.
ROWS: Final = 4_096


class FrameDamagedError(ValueError):
    """The bytes are not frames, or not whole."""


class Frame(NamedTuple):
    """Some rows of a table."""

    table: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def write_frame(
    table: str, columns: Mapping[str, str], rows: Sequence[tuple[Any, ...]], digest: hashlib._Hash
) -> bytes:
    """Rows as a frame. ``columns`` has a column's sort; ``digest`` takes in what the frame says, not how it says it."""
    values: dict[str, Sequence[Any] | Mapping[str, Any]] = {}
    lengths: dict[str, Sequence[int] | Mapping[str, int]] = {}
    pieces: list[bytes] = []
    by_column = zip(*rows, strict=True) if rows else ((),) * len(columns)
    for (name, sort), column in zip(columns.items(), by_column, strict=True):
        if sort in _BINARY:
            if column.count(None) == len(column):
                lengths[name] = _shortened([-1] * len(column))
                continue
            lengths[name] = _shortened([-1 if value is None else len(value) for value in column])
            pieces += [value for value in column if value is not None]
        else:
            values[name] = _shortened(column)
    said = {"table": table, "rows": len(rows), "order": list(columns), "columns": values, "bytes": lengths}
    text, body = _encode(said).encode(), b"".join(pieces)
    digest.update(text)
    digest.update(body)
    packed = zlib.compress(text, _LEVEL)
    return b"%s%d %d\n" % (_START, len(packed), len(body)) + packed + body


def _shortened(values: Sequence[Any]) -> Sequence[Any] | Mapping[str, Any]:
    """Values, or the one that all of them are: in most columns they are."""
    same = bool(values) and values.count(values[0]) == len(values)
    return {"same": values[0]} if same else values


def _lengthened(values: Any, count: int) -> Sequence[Any]:
    """The values again."""
    return [values["same"]] * count if isinstance(values, dict) else values


def read_frames(data: bytes) -> Iterator[Frame]:
    """The frames that follow each other in ``data``; ``FrameDamagedError`` unless they are whole to the end."""
    place = 0
    while place < len(data):
        end = data.find(b"\n", place, place + _LONGEST_LINE)
        line = data[place:end].removeprefix(_START).split(b" ") if end > 0 else []
        if len(line) != 2 or not data.startswith(_START, place) or not all(part.isdigit() for part in line):
            raise FrameDamagedError(f"there is no frame at byte {place}")
        middle = end + 1 + int(line[0])
        stop = middle + int(line[1])
        if stop > len(data):
            raise FrameDamagedError(f"the frame at byte {place} is cut short")
        yield _parsed(data[end + 1 : middle], data[middle:stop])
        place = stop


def _parsed(packed: bytes, body: bytes) -> Frame:
    try:
        said = json.loads(zlib.decompress(packed))
        order, count, values, lengths = tuple(said["order"]), said["rows"], said["columns"], said["bytes"]
        place = 0
        columns: dict[str, Sequence[Any]] = {name: _lengthened(one, count) for name, one in values.items()}
        for name in order:
            if name in lengths:
                columns[name], place = _cut(body, place, _lengthened(lengths[name], count))
        if place != len(body) or any(len(columns[name]) != count for name in order):
            raise ValueError("it has other values than it says")  # noqa: TRY301 - one message for all
        rows = list(zip(*(columns[name] for name in order), strict=True)) if count else []
        return Frame(str(said["table"]), order, rows)
    except (ValueError, KeyError, TypeError, zlib.error, RecursionError) as problem:
        raise FrameDamagedError(f"a frame cannot be read: {problem}") from problem


def _cut(body: bytes, place: int, lengths: Iterable[int]) -> tuple[list[bytes | None], int]:
    """The values of one column, from a place on; the place after them."""
    values: list[bytes | None] = []
    for length in lengths:
        if length < 0:
            values.append(None)
        else:
            values.append(body[place : place + length])
            place += length
    return values, place
