"""Filters: what a caller may ask of metadata, checked when it is written and evaluated anywhere.

    {"category": "sports"}                        equal (or, where the value is a list, contained in it)
    {"category": ["sports", "food"]}              one of
    {"price": {"gte": 10, "lt": 20}}              a range
    {"due": {"exists": False}}                    present or absent
    {"city": {"prefix": "San "}}                  a text that begins with this
    {"tags": {"any": ["a", "b"]}}                 a list that has any (or "all", or neither: "none") of these
    {"any": [{...}, {...}]}, {"all": [...]}, {"not": {...}}    combinations

Operators may be written with a leading ``$``, combinations also as ``AND``, ``OR`` and ``NOT``. A field is a dotted
path into the metadata; ``agent_id``, ``session_id``, ``created_at``, ``updated_at`` and ``memory_type`` mean the
record's own, and ``metadata.x`` always means metadata.

A filter has at most ``MAX_CONDITIONS`` conditions and ``MAX_VALUES`` values to compare with, so that no question costs
much more than another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import ge, gt, le, lt
from typing import Any, Final, NamedTuple

from holdfast.core.errors import InvalidFilterError, InvalidInputError, quote
from holdfast.core.values import json_key, json_problem, moment

#: A value that is not there, as opposed to ``None``, which is JSON's null.
MISSING: Final = object()

RECORD_FIELDS: Final = ("agent_id", "session_id", "created_at", "updated_at", "memory_type")
_TIME_FIELDS: Final = ("created_at", "updated_at")
_MAX_DEPTH: Final = 16
MAX_CONDITIONS: Final = 200
MAX_VALUES: Final = 1_000
#: A value that is nested deeper is no JSON to us, and is refused as such.
_MAX_VALUE_DEPTH: Final = 64
#: The operators that compare with a bound.
RANGES: Final[Mapping[str, Callable[[Any, Any], Any]]] = {"gt": gt, "gte": ge, "lt": lt, "lte": le}
#: The operators whose operand is a list of values.
_LISTS: Final = frozenset({"in", "nin", "any", "all", "none"})
#: The operator of conditions that are made by ``test_of``, and cannot be written.
_PASSES: Final = "passes"


@dataclass(frozen=True, slots=True)
class Condition:
    """One test of one field. ``path`` begins with ``metadata`` or is one of ``RECORD_FIELDS``."""

    path: tuple[str, ...]
    operator: str
    operand: Any
    keys: frozenset[object] = field(init=False, repr=False, compare=False)
    """What the values to compare with are looked up by."""

    def __post_init__(self) -> None:
        values = self.operand if self.operator in _LISTS else () if self.operator == _PASSES else (self.operand,)
        object.__setattr__(self, "keys", frozenset(map(json_key, values)))

    def test(self, value: object) -> bool:
        """Whether a field's value (or ``MISSING``) passes."""
        if self.operator == _PASSES:
            return bool(self.operand(value))
        return _OPERATORS[self.operator].test(value, self)


@dataclass(frozen=True, slots=True)
class Combination:
    """Parts of which, by its rule, ``all`` hold, ``any``, or ``none``."""

    rule: str
    parts: tuple[Filter, ...]


Filter = Condition | Combination


def test_of(path: tuple[str, ...], passes: Callable[[object], bool]) -> Condition:
    """A condition that the caller's own function decides, by the value at a path or ``MISSING``."""
    return Condition(path, _PASSES, passes)


def value_at(document: object, path: Sequence[str]) -> object:
    """The value at a path of keys, or ``MISSING``."""
    for key in path:
        if not isinstance(document, Mapping) or key not in document:
            return MISSING
        document = document[key]
    return document


def matches(where: Filter, fields: Callable[[tuple[str, ...]], object]) -> bool:
    """Whether a record passes; ``fields`` gives the value at a path, or ``MISSING``."""
    if isinstance(where, Condition):
        return where.test(fields(where.path))
    hold = (matches(part, fields) for part in where.parts)
    return all(hold) if where.rule == "all" else any(hold) == (where.rule == "any")


def within(where: Filter, *outer: str) -> Filter:
    """The same filter on fields that lie below ``outer`` in the metadata; the record's own stay what they are."""
    if isinstance(where, Combination):
        return Combination(where.rule, tuple(within(part, *outer) for part in where.parts))
    own = where.path[0] != "metadata"
    return where if own else Condition(("metadata", *outer, *where.path[1:]), where.operator, where.operand)


# --- what each operator means ------------------------------------------------------------------------------------


def _equal(value: object, condition: Condition) -> bool:
    """Whether a value is one of those to compare with; of a list, whether it is, or has one that is no list."""
    if value is MISSING:
        return False
    if json_key(value) in condition.keys:
        return True
    if not isinstance(value, list):
        return False
    return any(json_key(item) in condition.keys for item in value if not isinstance(item, list))


def _keys(value: object) -> set[object]:
    """What the items of a list, or a value that is none, are looked up by."""
    if value is MISSING:
        return set()
    return set(map(json_key, value)) if isinstance(value, list) else {json_key(value)}


def _compare(value: object, condition: Condition) -> bool:
    operand = condition.operand
    number = isinstance(value, int | float) and not isinstance(value, bool) and isinstance(operand, int | float)
    comparable = number or (isinstance(value, str) and isinstance(operand, str))
    return comparable and bool(RANGES[condition.operator](value, operand))


def _scalar(operand: object) -> str | None:
    known = isinstance(operand, str | int | float | bool | dict | list) or operand is None
    return None if known and json_problem(operand) is None else "needs a JSON value"


def _check_ordered(operand: object) -> str | None:
    finite = isinstance(operand, int | float) and not isinstance(operand, bool) and operand - operand == 0
    return None if finite or isinstance(operand, str) else "needs a number or a text to compare with"


def _check_list(operand: object) -> str | None:
    if not isinstance(operand, list) or not operand:
        return "needs a list with at least one value"
    return next((problem for item in operand if (problem := _scalar(item))), None)


def _check_text(operand: object) -> str | None:
    return None if isinstance(operand, str) and operand else "needs a text that is not empty"


def _flag(operand: object) -> str | None:
    return None if isinstance(operand, bool) else "needs true or false"


class _Operator(NamedTuple):
    check: Callable[[object], str | None]
    test: Callable[[object, Condition], bool]


_OPERATORS: Final[Mapping[str, _Operator]] = {
    "eq": _Operator(_scalar, _equal),
    "ne": _Operator(_scalar, lambda value, asked: not _equal(value, asked)),
    "in": _Operator(_check_list, _equal),
    "nin": _Operator(_check_list, lambda value, asked: not _equal(value, asked)),
    **dict.fromkeys(RANGES, _Operator(_check_ordered, _compare)),
    "exists": _Operator(_flag, lambda value, asked: (value is not MISSING) == asked.operand),
    "prefix": _Operator(_check_text, lambda value, asked: isinstance(value, str) and value.startswith(asked.operand)),
    "any": _Operator(_check_list, lambda value, asked: not asked.keys.isdisjoint(_keys(value))),
    "all": _Operator(_check_list, lambda value, asked: asked.keys <= _keys(value)),
    "none": _Operator(_check_list, lambda value, asked: asked.keys.isdisjoint(_keys(value))),
}

_COMBINATORS: Final = {"all": "all", "and": "all", "any": "any", "or": "any"}


# --- reading what a caller wrote -----------------------------------------------------------------------------------


def parse(filters: Mapping[str, Any] | None) -> Filter | None:
    """The filter that a caller's mapping means; ``None`` where there is nothing to test."""
    if filters is None:
        return None
    if not isinstance(filters, Mapping):
        raise InvalidFilterError(f"filters must be an object such as {{'category': 'sports'}}, not {quote(filters)}")
    return _parse_object(filters, 0, _Size()) if filters else None


class _Size:
    """How large a filter is, as far as it was read; one that is too large is read no further."""

    def __init__(self) -> None:
        self.conditions = 0
        self.values = 0

    def add(self, operand: object) -> None:
        """Count a condition, and the values that it compares with, however deep they lie."""
        self.conditions += 1
        if self.conditions > MAX_CONDITIONS:
            raise InvalidFilterError(
                f"the filter has more than {MAX_CONDITIONS} conditions; ask in several calls, or give many values of "
                "one field as a list"
            )
        self._add_values(operand, 0)

    def _add_values(self, value: object, depth: int) -> None:
        if isinstance(value, Mapping | list | tuple | set | frozenset) and depth <= _MAX_VALUE_DEPTH:
            for inner in value.values() if isinstance(value, Mapping) else value:
                self._add_values(inner, depth + 1)
            return
        self.values += 1
        if self.values > MAX_VALUES:
            raise InvalidFilterError(f"the filter has more than {MAX_VALUES:,} values; ask in several calls")


def _parse_object(filters: object, depth: int, size: _Size) -> Filter:
    if depth > _MAX_DEPTH:
        raise InvalidFilterError(f"filters are nested more than {_MAX_DEPTH} deep")
    if not isinstance(filters, Mapping) or not filters:
        raise InvalidFilterError(f"a filter must be an object with at least one field, not {quote(filters)}")
    parts: list[Filter] = []
    for name, wanted in filters.items():
        if not isinstance(name, str) or not name:
            raise InvalidFilterError(f"a filter's field must be a name, not {quote(name)}")
        word = name.removeprefix("$").lower() if name.isupper() else name.removeprefix("$")
        if word == "not" and isinstance(wanted, Mapping):
            parts.append(Combination("none", (_parse_object(wanted, depth + 1, size),)))
        elif word in _COMBINATORS and _is_list_of_objects(wanted):
            inner = tuple(_parse_object(part, depth + 1, size) for part in wanted)
            parts.append(Combination(_COMBINATORS[word], inner))
        elif name.startswith("$") or (word in _COMBINATORS and wanted in ([], ())):
            known = ", ".join(f"${word}" for word in (*_COMBINATORS, "not"))
            raise InvalidFilterError(
                f"{quote(name)} needs a list of filters (for $not: a filter); known here: {known}; got {quote(wanted)}"
            )
        else:
            parts.extend(_parse_field(name, wanted, size))
    return parts[0] if len(parts) == 1 else Combination("all", tuple(parts))


def _is_list_of_objects(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _parse_field(name: str, wanted: object, size: _Size) -> list[Filter]:
    path = _path(name)
    tests: dict[str, object]
    if isinstance(wanted, list | tuple | set | frozenset):
        tests = {"in": list(wanted)}
    elif isinstance(wanted, Mapping):
        tests = {_operator(name, word): operand for word, operand in wanted.items()}
        if not tests:
            raise InvalidFilterError(
                f"the filter on {quote(name)} is empty; say what it should be, such as {{'exists': True}}"
            )
        if len(tests) < len(wanted):
            raise InvalidFilterError(
                f"the filter on {quote(name)} has an operator twice: {', '.join(wanted)}; keep one"
            )
    else:
        tests = {"eq": wanted}
    for operand in tests.values():
        size.add(operand)
    conditions = [_condition(name, path, operator, operand) for operator, operand in tests.items()]
    _refuse_empty_range(name, conditions)
    return list(conditions)


def _path(name: str) -> tuple[str, ...]:
    if name in RECORD_FIELDS:
        return (name,)
    path = tuple(name.split("."))
    if not all(path):
        raise InvalidFilterError(f"the field {quote(name)} is not a path; write it as 'field' or 'outer.inner'")
    return path if path[0] == "metadata" and len(path) > 1 else ("metadata", *path)


def _operator(name: str, word: object) -> str:
    operator = word.removeprefix("$") if isinstance(word, str) else ""
    if operator not in _OPERATORS:
        known = ", ".join(_OPERATORS)
        raise InvalidFilterError(
            f"unknown operator {quote(word)} in the filter on {quote(name)}; use one of: {known} "
            f"(to reach into an object write {name[:40]}.{str(word)[:40]}; to compare with a whole one use 'eq')"
        )
    return operator


def _condition(name: str, path: tuple[str, ...], operator: str, operand: object) -> Condition:
    if isinstance(operand, tuple | set | frozenset):
        operand = list(operand)
    if path[0] in _TIME_FIELDS and operator != "exists":
        operand = [_time(name, item) for item in operand] if isinstance(operand, list) else _time(name, operand)
    elif isinstance(operand, datetime):
        operand = operand.isoformat()
    problem = _OPERATORS[operator].check(operand)
    if problem:
        raise InvalidFilterError(f"{operator!r} in the filter on {quote(name)} {problem}, not {quote(operand)}")
    return Condition(path, operator, operand)


def _time(name: str, operand: object) -> int:
    try:
        return moment(operand, what=name)  # type: ignore[arg-type]  # anything else is refused there
    except InvalidInputError as problem:
        raise InvalidFilterError(f"the filter on {quote(name)} needs a time: {problem}") from None


def _refuse_empty_range(name: str, conditions: Sequence[Condition]) -> None:
    lows = [c for c in conditions if c.operator in ("gt", "gte")]
    highs = [c for c in conditions if c.operator in ("lt", "lte")]
    for low in lows:
        for high in highs:
            if isinstance(low.operand, str) != isinstance(high.operand, str):
                raise InvalidFilterError(
                    f"the range on {quote(name)} mixes text and numbers: {quote(low.operand)}, {quote(high.operand)}"
                )
            closed = low.operator == "gte" and high.operator == "lte"
            if low.operand > high.operand or (low.operand == high.operand and not closed):
                raise InvalidFilterError(
                    f"nothing can match the range on {quote(name)}: {low.operator} {quote(low.operand)} and "
                    f"{high.operator} {quote(high.operand)}"
                )
