"""Whether a record passes a filter, from what lies in its row; and what SQL can ask of it beforehand.

What SQL asks lets everything through that passes, and more: each record that it gives is looked at once more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from holdfast.core.deadline import check_deadline
from holdfast.core.filters import MISSING, Condition, Every, Filter, matches, value_at
from holdfast.core.types import Kind

#: From the first moment to the last.
ALWAYS: Final = (-(2**63), 2**63 - 1)
#: Numbers up to here are the same as text and as floats.
_EXACT: Final = 1 << 53
_SIGNS: Final = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_PLACES: Final = {"agent_id": 0, "session_id": 1, "created_at": 2, "updated_at": 3}


def passes(fields: Sequence[Any], metadata: str, kind: Kind, where: Filter | None) -> bool:
    """Whether a record of a kind passes; its fields are agent, session, and when it was made and changed."""
    check_deadline()

    def field(path: tuple[str, ...]) -> object:
        if path[0] == "metadata":
            return value_at(_parsed(metadata), path[1:])
        value = kind.name.value if path[0] == "memory_type" else fields[_PLACES[path[0]]]
        return MISSING if value is None else value

    return where is None or matches(where, field)


@lru_cache(maxsize=1_024)
def _parsed(metadata: str) -> Any:
    return json.loads(metadata)


def time_limits(where: Filter) -> tuple[int, int]:
    """The first and the last moment at which a record that passes can have been made."""
    first, last = ALWAYS
    for condition in _required(where):
        if condition.path == ("created_at",) and condition.operator in _SIGNS:
            if condition.operator in {"gt", "gte"}:
                first = max(first, condition.operand)
            else:
                last = min(last, condition.operand)
    return first, last


def json_path(where: Filter) -> str:
    """A JSON path that holds for the metadata of every record that passes; empty where nothing is known."""
    tests = []
    for condition in _required(where):
        if condition.path[0] == "metadata" and _can_be_asked(condition):
            place = "$" + "".join(f".{json.dumps(key, ensure_ascii=False)}" for key in condition.path[1:])
            if condition.operator in _SIGNS:
                tests.append(
                    f"{place} {_SIGNS[condition.operator]} {json.dumps(condition.operand, ensure_ascii=False)}"
                )
            elif condition.operator == "exists" and condition.operand:
                tests.append(f"exists({place})")
    return " && ".join(tests)


def _can_be_asked(condition: Condition) -> bool:
    """Whether PostgreSQL can read what a condition names, and compares it as we do."""
    if isinstance(condition.operand, int | float) and abs(condition.operand) > _EXACT:
        return False
    texts = "".join([*condition.path, condition.operand if isinstance(condition.operand, str) else ""])
    return "\0" not in texts and not any("\ud800" <= letter <= "\udfff" for letter in texts)


def _required(where: Filter) -> Iterator[Condition]:
    """The conditions all of which must hold."""
    match where:
        case Condition():
            yield where
        case Every(parts):
            for part in parts:
                yield from _required(part)
