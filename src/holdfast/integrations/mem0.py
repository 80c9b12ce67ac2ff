"""Memories of mem0's local store: a file of SQLite in which Qdrant's local mode keeps each point as a pickle.

Reading a pickle as Python does runs whatever it says. Here nothing is unpickled: its steps are read as data
(``pickletools``), names of classes stay names, and what would make an object makes a dictionary of its fields.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import apsw

from holdfast.core.errors import InvalidInputError, quote
from holdfast.integrations.imports import Found

#: A point is larger than any memory if it has so many values.
_MAX_VALUES: Final = 200_000
_STORAGE: Final = "storage.sqlite"
#: What mem0 notes of a memory beside its text; the rest of a point's payload is the caller's metadata.
_OWN: Final = frozenset({"data", "hash", "created_at", "updated_at", "user_id", "text_lemmatized", "attributed_to"})

_MARK: Final = object()
_VALUES: Final = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "MARK": _MARK}
_EMPTY: Final = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple, "EMPTY_SET": list}
_LITERALS: Final = ("INT", "LONG", "FLOAT", "UNICODE", "BYTES", "STRING")
_PUT: Final = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
_GET: Final = frozenset({"GET", "BINGET", "LONG_BINGET"})


class _Stack(list[Any]):
    """What the steps of a pickle have put down."""

    def since_mark(self) -> list[Any]:
        """Take what was put down since the last mark."""
        at = len(self) - 1 - self[::-1].index(_MARK)
        taken = self[at + 1 :]
        del self[at:]
        return taken


def read_pickle(data: bytes) -> Any:
    """What a pickle describes, without making it: objects are dictionaries of their fields.

    ``ValueError`` where it is damaged, or has steps that plain values do not need.
    """
    stack, memo = _Stack(), dict[int, Any]()
    try:
        for count, (code, argument, _) in enumerate(pickletools.genops(data)):
            if count > _MAX_VALUES:
                raise ValueError("it has too many values")
            if code.name == "STOP":
                return _copy(stack.pop(), iter(range(_MAX_VALUES)), 50)
            _step(code.name, argument, stack, memo)
    except (IndexError, KeyError, TypeError, AttributeError, StopIteration) as problem:
        raise ValueError(f"it is damaged ({type(problem).__name__})") from None
    raise ValueError("it has no end")


def _copy(value: Any, left: Iterator[int], depth: int) -> Any:
    """A value of bounded size: a pickle may name one list many times over."""
    next(left)
    if depth == 0:
        raise ValueError("it is nested too deep")
    if isinstance(value, dict):
        return {name: _copy(one, left, depth - 1) for name, one in value.items()}
    return [_copy(one, left, depth - 1) for one in value] if isinstance(value, list | tuple) else value


def _step(name: str, argument: Any, stack: _Stack, memo: dict[int, Any]) -> None:
    """A step that puts a value down, or knows it by a number."""
    if name == "MEMOIZE":
        memo[len(memo)] = stack[-1]
    elif name in _PUT:
        memo[int(argument)] = stack[-1]
    elif name in _GET:
        stack.append(memo[int(argument)])
    elif name in _VALUES:
        stack.append(_VALUES[name])
    elif name in _EMPTY:
        stack.append(_EMPTY[name]())
    elif name not in ("PROTO", "FRAME"):
        _step_group(name, argument, stack)


def _step_group(name: str, argument: Any, stack: _Stack) -> None:
    """A step that makes lists and dictionaries of values."""
    match name:
        case "TUPLE" | "LIST" | "FROZENSET":
            stack.append(stack.since_mark())
        case "TUPLE1" | "TUPLE2" | "TUPLE3":
            count = int(name[-1])
            stack[-count:] = [stack[-count:]]
        case "APPEND":
            value = stack.pop()
            stack[-1].append(value)
        case "APPENDS" | "ADDITEMS":
            values = stack.since_mark()
            stack[-1].extend(values)
        case "SETITEM":
            value, key = stack.pop(), stack.pop()
            stack[-1][key] = value
        case "DICT":
            pairs = stack.since_mark()
            stack.append(dict(zip(pairs[::2], pairs[1::2], strict=True)))
        case "SETITEMS":
            pairs = stack.since_mark()
            stack[-1].update(zip(pairs[::2], pairs[1::2], strict=True))
        case _:
            _step_object(name, argument, stack)


def _step_object(name: str, argument: Any, stack: _Stack) -> None:
    """A step that would find a class, or make or fill an object."""
    match name:
        case "GLOBAL":
            stack.append({"class": argument})
        case "STACK_GLOBAL":
            stack[-2:] = [{"class": f"{stack[-2]} {stack[-1]}"}]
        case "NEWOBJ" | "REDUCE":
            stack[-2:] = [{"class": stack[-2], "arguments": stack[-1]}]
        case "BUILD":
            state = stack.pop()
            made = stack[-1]
            fields = state.get("__dict__", state) if isinstance(state, dict) else {"state": state}
            made.update(fields)
        case _ if name.startswith(("BIN", "SHORT_BIN", "LONG")) or name in _LITERALS:
            stack.append(argument)
        case _:
            raise ValueError(f"it has a step that plain values do not need ({name})")


def read_mem0(path: Path, of_user: str) -> Iterator[Found]:
    """The memories of one of mem0's users, in a folder of Qdrant's local mode or in its ``storage.sqlite``."""
    files = [path] if path.is_file() else sorted(path.rglob(_STORAGE))
    if not files:
        raise InvalidInputError(f"{path} has no {_STORAGE}; name the folder that mem0's config has as path of qdrant")
    for file in files:
        for number, point in _read_points(file):
            where = f"{file.parent.name}, point {number}"
            found = _read_memory(point, of_user)
            yield Found(where, **({"problem": found} if isinstance(found, str) else {"item": found}))


def _read_points(file: Path) -> Iterator[tuple[int, bytes]]:
    try:
        database = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            yield from database.execute("SELECT rowid, point FROM points ORDER BY rowid")
        finally:
            database.close()
    except apsw.Error as problem:
        raise InvalidInputError(f"{file} is not a store of Qdrant's local mode, or is in use: {problem}") from None


def _read_memory(point: object, of_user: str) -> dict[str, Any] | str:
    """A memory as ``import_memories`` takes it, or why it is none."""
    try:
        read = read_pickle(point if isinstance(point, bytes) else b"")
    except ValueError as problem:
        return f"its pickle was not read: {problem}"
    payload = read.get("payload") if isinstance(read, dict) else None
    if not isinstance(payload, Mapping) or not isinstance(payload.get("data"), str):
        return "it is no memory of mem0: its payload has no text named 'data'"
    if payload.get("user_id") != of_user:
        return f"it belongs to mem0's user {quote(payload.get('user_id'))}, not to {of_user!r} (--of)"
    return {
        "key": f"mem0:{read.get('id')}",
        "content": payload["data"],
        "metadata": {str(name): value for name, value in payload.items() if name not in _OWN and value is not None},
        "created_at": payload.get("created_at"),
        "updated_at": payload.get("updated_at"),
    }
