"""Columns: the fields of an index's records, laid out so that a filter costs one test for each distinct value.

A column is made when a filter first names its field, and extended when records have been added since.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from operator import ge, gt, le, lt
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from retain.core.filters import MISSING, Condition, Every, Filter, Negated, Some, value_at
from retain.core.types import MemoryType
from retain.ports import IndexRow

Mask = npt.NDArray[np.bool_]
_RANGES: Final[dict[str, Callable[[Any, Any], Any]]] = {"gt": gt, "gte": ge, "lt": lt, "lte": le}
_OPPOSITE: Final = {"ne": "eq", "nin": "in"}
#: Whole numbers up to here are exact as floats.
_EXACT: Final = 1 << 53


class Columns:
    """The fields of records numbered from 0, in the order in which they were added."""

    def __init__(self, memory_type: MemoryType) -> None:
        self._memory_type = str(memory_type)
        self._rows: list[tuple[str, str | None, int, int, str]] = []
        self._columns: dict[tuple[str, ...], _Column] = {}
        self._text_bytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: Iterable[IndexRow]) -> None:
        """Add records. Their metadata is read when a filter asks for it."""
        start = len(self._rows)
        self._rows += [(row.agent_id, row.session_id, row.created_at, row.updated_at, row.metadata) for row in rows]
        self._text_bytes += sum(len(row[4]) for row in self._rows[start:])

    def keep(self, numbers: npt.NDArray[np.int64]) -> None:
        """Go on with these records only, numbered anew in that order."""
        self._rows = [self._rows[number] for number in numbers.tolist()]
        self._text_bytes = sum(len(row[4]) for row in self._rows)
        self._columns.clear()

    def mask(self, where: Filter) -> Mask:
        """Which of the records pass a filter."""
        match where:
            case Condition(path):
                return self._column(path).test(where)
            case Every(parts):
                passed = np.ones(len(self._rows), bool)
                for part in parts:
                    passed &= self.mask(part)
                return passed
            case Some(parts):
                passed = np.zeros(len(self._rows), bool)
                for part in parts:
                    passed |= self.mask(part)
                return passed
            case Negated(part):
                return ~self.mask(part)

    @property
    def nbytes(self) -> int:
        """About what the records' fields hold in memory."""
        return self._text_bytes + 200 * len(self._rows) + sum(column.nbytes for column in self._columns.values())

    def _column(self, path: tuple[str, ...]) -> _Column:
        column = self._columns.get(path)
        if column is None:
            column = self._columns[path] = _Column()
        if len(column) < len(self._rows):
            column.extend(self._values(path, len(column)))
        return column

    def _values(self, path: tuple[str, ...], start: int) -> Iterable[object]:
        rows = self._rows[start:]
        match path[0]:
            case "agent_id":
                return [row[0] for row in rows]
            case "session_id":
                return [MISSING if row[1] is None else row[1] for row in rows]
            case "created_at":
                return [row[2] for row in rows]
            case "updated_at":
                return [row[3] for row in rows]
            case "memory_type":
                return [self._memory_type] * len(rows)
        seen: dict[str, object] = {}
        for row in rows:
            if row[4] not in seen:
                seen[row[4]] = value_at(json.loads(row[4]), path[1:])
        return [seen[row[4]] for row in rows]


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
            key = _key(value)
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
        compare = _RANGES.get(condition.operator)
        if condition.operator in ("eq", "in"):
            passing = self._equal(condition)
        elif condition.operator in ("ne", "nin"):
            passing = ~self._equal(Condition(condition.path, _OPPOSITE[condition.operator], condition.operand))
        elif compare and _is_number(condition.operand) and (numbers := self._as_numbers()) is not None:
            passing = compare(numbers, condition.operand)  # what is no number is NaN, and compares as false
        else:
            passing = np.fromiter(map(condition.test, self._values), bool, len(self._values))
        return passing.take(self._array)

    @property
    def nbytes(self) -> int:
        return 16 * len(self._codes) + 200 * len(self._values)

    def _equal(self, condition: Condition) -> Mask:
        """Which distinct values equal an operand: looked up, but for lists and objects, which are asked."""
        operands = condition.operand if condition.operator == "in" else [condition.operand]
        passing = np.zeros(len(self._values), bool)
        codes = [self._code_of[key] for key in map(_key, operands) if key in self._code_of]
        for code in codes + self._nested:
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


def _key(value: object) -> object:
    """Unequal for values that a filter tells apart: ``true`` is not 1. A number is what it is, whole or not."""
    if isinstance(value, list | dict):
        return "json", json.dumps(value, sort_keys=True)
    return isinstance(value, bool), value
