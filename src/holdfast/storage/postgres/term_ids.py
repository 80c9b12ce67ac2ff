"""Numbers for what is searched by: the words of a record and the fields of its metadata, each scope's its own.

A number is 31 bits of the scope (and, where records are an agent's own, of the agent) above 32 bits of the word or
field. So all that is found under a number is the scope's, however many scopes share the index. Two fields may share a
number: what is found by one is looked at before it counts.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from holdfast.core.filters import Condition, Every, Filter, Some

Numbers = list[int]
#: A record with more fields than this is found by every filter, and looked at.
_MOST_FIELDS: Final = 200
_ANY_FIELD: Final = "too many to tell"
_EQUAL: Final = frozenset({"eq", "in", "any"})
_OWN: Final = frozenset({"agent_id", "session_id"})
#: How many numbers after its own a vector has that tell its scope from others, and how much they count.
MARKS: Final = 16
_MARKED: Final = 1.5


def space_of(scope: int, agent: str | None, what: str) -> int:
    """The 31 bits that stand for a scope: for its ``words``, or for its ``fields``."""
    digest = blake2b(f"{scope}\0{agent or ''}".encode(), digest_size=4, person=what.encode()).digest()
    return int.from_bytes(digest) >> 1


def word_numbers(space: int, terms: npt.NDArray[np.uint32]) -> Numbers:
    """The numbers of terms."""
    found: Numbers = (terms.astype(np.int64) | space << 32).tolist()
    return found


def field_numbers(space: int, agent_id: str, session_id: str | None, metadata: str) -> Numbers:
    """The numbers of a record's fields, by which filters that ask for a value find it."""
    found = {_number(space, ("agent_id",), agent_id)}
    if session_id is not None:
        found.add(_number(space, ("session_id",), session_id))
    for path, value in _leaves(("metadata",), _parsed(metadata)):
        if len(found) > _MOST_FIELDS:
            return [_number(space, (), _ANY_FIELD)]
        found.add(_number(space, path, value))
    return list(found)


def asked_numbers(space: int, where: Filter) -> list[Numbers]:
    """Sets of numbers, of each of which a record that passes a filter has at least one; none where that is unknown."""
    return [[*group, _number(space, (), _ANY_FIELD)] for group in _groups(space, where)]


def _groups(space: int, where: Filter) -> list[Numbers]:
    match where:
        case Condition(path, operator, operand) if path[0] == "metadata" or path[0] in _OWN:
            values = operand if isinstance(operand, list) else [operand]
            if any(isinstance(value, list | dict) for value in values) or (operator == "eq" and values is operand):
                return []
            if operator == "all":
                return [[_number(space, path, value)] for value in values]
            return [[_number(space, path, value) for value in values]] if operator in _EQUAL else []
        case Every(parts):
            return [group for part in parts for group in _groups(space, part)]
        case Some(parts):
            each = [_groups(space, part) for part in parts]
            return [[number for groups in each for number in groups[0]]] if all(each) else []
    return []


def _leaves(path: tuple[str, ...], value: object) -> Iterator[tuple[tuple[str, ...], object]]:
    """The values in a document that are no object, by their paths; of a list, its items, and not what is in them."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves((*path, key), inner)
    elif isinstance(value, list):
        yield from ((path, item) for item in value if not isinstance(item, list | dict))
    else:
        yield path, value


def _number(space: int, path: Sequence[str], value: object) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a number is what it is, whole or not
    text = json.dumps([*path, value])
    return space << 32 | zlib.crc32(text.encode())


@lru_cache(maxsize=1_024)
def _parsed(metadata: str) -> Any:
    return json.loads(metadata)


@lru_cache(maxsize=64)
def marks(scope: int, agent: str | None) -> npt.NDArray[np.float32]:
    """What is put after every vector of a scope, so that those of other scopes are far from it."""
    digest = blake2b(f"{scope}\0{agent or ''}".encode(), digest_size=2 * MARKS, person=b"marks").digest()
    drawn = np.frombuffer(digest, "<u2").astype(np.float64) - 32_767.5
    return (drawn * (_MARKED / np.linalg.norm(drawn))).astype(np.float32)
