"""Columns: the fields of an index's records, laid out so that a filter costs one test for each distinct value.

A column is made when a filter first names its field, and extended when records have been added since. All fields of a
filter are read in one pass over the records.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from holdfast.core.clock import check_deadline, watch
from holdfast.core.filters import MISSING, RANGES, Condition, Filter, value_at
from holdfast.core.records import MemoryType
from holdfast.core.values import json_key
from holdfast.ports.feed import SEPARATOR
from holdfast.recall.arrays import Batch, GrowingArray

Mask = npt.NDArray[np.bool_]
_OPPOSITE: Final = {"ne": "eq", "nin": "in"}
#: Whole numbers up to here are exact as floats.
_EXACT: Final = 1 << 53
#: So many columns are kept, those that were asked for last.
_MOST_COLUMNS: Final = 256


class MetadataColumns:
    """The fields of records numbered from 0, in the order in which they were added."""

    def __init__(self, memory_type: MemoryType) -> None:
        self._memory_type = str(memory_type)
        self._count = 0
        self._joined: list[tuple[str, str, str]] = []  # what no filter has asked for yet
        self._names: dict[str, list[str]] = {"agent_id": [], "session_id": []}
        self._times = {"created_at": GrowingArray(np.int64), "updated_at": GrowingArray(np.int64)}
        self._metadata: list[str] = []
        self._columns: OrderedDict[tuple[str, ...], _Column] = OrderedDict()
        self._text_bytes = 0

    def __len__(self) -> int:
        return self._count

    @property
    def updated_at(self) -> npt.NDArray[np.int64]:
        """When each record was last changed."""
        return self._times["updated_at"].view

    def add(self, rows: Batch) -> None:
        """Add records. Their texts are read when a filter asks for them."""
        self._count += len(rows.id)
        self._joined.append((rows.agent_id, rows.session_id, rows.metadata))
        for name, times in self._times.items():
            times.extend(getattr(rows, name))
        self._text_bytes += len(rows.metadata)

    def keep(self, numbers: npt.NDArray[np.int64]) -> None:
        """Go on with these records only, numbered anew in that order."""
        self._split()
        kept = numbers.tolist()
        self._count = len(kept)
        self._names = {name: [values[number] for number in kept] for name, values in self._names.items()}
        self._metadata = [self._metadata[number] for number in kept]
        self._text_bytes = sum(map(len, self._metadata))
        for times in self._times.values():
            times.replace(times.view[numbers])
        self._columns.clear()

    def _split(self) -> None:
        """Take the texts apart that are joined. Of equal ones, one is kept."""
        same: dict[str, str] = {}
        for joined in self._joined:
            for column, text in zip((*self._names.values(), self._metadata), joined, strict=True):
                texts = text.split(SEPARATOR)
                column.extend(map(same.setdefault, texts, texts))
        self._joined.clear()

    def mask(self, where: Filter) -> Mask:
        """Which of the records pass a filter."""
        self._read(dict.fromkeys(_paths(where)))
        return self._mask(where)

    def _mask(self, where: Filter) -> Mask:
        check_deadline()
        if isinstance(where, Condition):
            return self._columns[where.path].test(where)
        together = np.logical_and if where.rule == "all" else np.logical_or
        passed: Mask = together.reduce([np.full(len(self), where.rule == "all"), *map(self._mask, where.parts)])
        return ~passed if where.rule == "none" else passed

    def count(self, path: tuple[str, ...], among: Mask) -> dict[Any, int]:
        """How many of some records have each value of a field that is a text or a number."""
        self._read([path])
        return self._columns[path].count(among)

    @property
    def nbytes(self) -> int:
        """About what the records' fields hold in memory."""
        return self._text_bytes + 90 * len(self) + sum(column.nbytes for column in self._columns.values())

    def _read(self, paths: Iterable[tuple[str, ...]]) -> None:
        """Bring the columns of these fields up to date; those that nobody asked for in a long time go."""
        behind: dict[int, list[tuple[str, ...]]] = {}
        for path in paths:
            column = self._columns.setdefault(path, _Column())
            self._columns.move_to_end(path)
            if len(column) < len(self):
                behind.setdefault(len(column), []).append(path)
        for start, late in behind.items():
            for path, values in zip(late, self._values(late, start), strict=True):
                self._columns[path].extend(values)
        while len(self._columns) > _MOST_COLUMNS:
            self._columns.popitem(last=False)

    def _values(self, paths: list[tuple[str, ...]], start: int) -> list[list[object]]:
        """The values of fields, of the records from ``start`` on; the metadata of each is read once."""
        self._split()
        inner = [path[1:] for path in paths if path[0] == "metadata"]
        texts = self._metadata[start:]
        read: dict[str, list[object]] = {}
        if inner:
            for text in watch(texts):
                if text not in read:
                    document = json.loads(text)
                    read[text] = [value_at(document, path) for path in inner]
        place = iter(range(len(inner)))
        found: list[list[object]] = []
        for name, *_ in paths:
            if name in self._names:
                found.append([value or MISSING for value in self._names[name][start:]])
            elif name in self._times:
                found.append(self._times[name].view[start:].tolist())
            elif name == "memory_type":
                found.append([self._memory_type] * len(texts))
            else:
                at = next(place)
                found.append([read[text][at] for text in texts])
        return found


def _paths(where: Filter) -> Iterator[tuple[str, ...]]:
    """The fields that a filter names."""
    if isinstance(where, Condition):
        yield where.path
    else:
        for part in where.parts:
            yield from _paths(part)


class _Column:
    """One field's value of every record, as the number of a distinct value."""

    def __init__(self) -> None:
        self._codes: list[int] = []
        self._array: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._values: list[object] = []
        self._numbers: npt.NDArray[np.float64] | None = None
        self._code_of: dict[object, int] = {}
        self._nested: list[int] = []

    def __len__(self) -> int:
        return len(self._codes)

    def extend(self, values: Iterable[object]) -> None:
        """Add the values of further records."""
        for value in values:
            key = json_key(value)
            code = self._code_of.get(key)
            if code is None:
                code = self._code_of[key] = len(self._values)
                self._values.append(value)
                if isinstance(value, list | dict):
                    self._nested.append(code)
            self._codes.append(code)
        self._array = np.array(self._codes, np.int64)
        self._numbers = None

    def test(self, condition: Condition) -> Mask:
        """Which records pass: each distinct value is asked at most once."""
        compare = RANGES.get(condition.operator)
        if condition.operator in ("eq", "in"):
            passing = self._equal(condition)
        elif condition.operator in ("ne", "nin"):
            passing = ~self._equal(Condition(condition.path, _OPPOSITE[condition.operator], condition.operand))
        elif compare and _is_number(condition.operand) and (numbers := self._as_numbers()) is not None:
            passing = compare(numbers, condition.operand)  # what is no number is NaN, and compares as false
        else:
            passing = np.fromiter(map(condition.test, watch(self._values)), bool, len(self._values))
        return passing.take(self._array)

    def count(self, among: Mask) -> dict[Any, int]:
        """How many of some records have each value; lists, objects and what is missing are left out."""
        counts = np.bincount(self._array[among], minlength=len(self._values)).tolist()
        return {
            value: count
            for value, count in zip(self._values, counts, strict=True)
            if count and isinstance(value, str | int | float)
        }

    @property
    def nbytes(self) -> int:
        return 16 * len(self._codes) + 200 * len(self._values)

    def _equal(self, condition: Condition) -> Mask:
        """Which distinct values equal an operand: looked up, but for lists and objects, which are asked."""
        passing = np.zeros(len(self._values), bool)
        codes = [self._code_of[key] for key in condition.keys if key in self._code_of]
        for code in watch(codes + self._nested):
            passing[code] = condition.test(self._values[code])
        return passing

    def _as_numbers(self) -> npt.NDArray[np.float64] | None:
        """The distinct values as numbers; ``None`` if that would round one of them."""
        if self._numbers is None:
            if any(isinstance(value, int) and not -_EXACT <= value <= _EXACT for value in self._values):
                return None
            numbers = (value if _is_number(value) else np.nan for value in self._values)
            self._numbers = np.fromiter(numbers, np.float64, len(self._values))
        return self._numbers


def _is_number(value: object) -> bool:
    return isinstance(value, float) or (
        isinstance(value, int) and not isinstance(value, bool) and -_EXACT <= value <= _EXACT
    )
