"""What LangGraph stored, as plain data: it is read without making any object, and no code of an application runs."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from typing import Any, Final

#: How LangGraph packs the difference of a channel, and an array of numpy; its other objects name their class.
_DELTA: Final = 7
_ARRAY: Final = 6


def to_plain(kind: str | None, data: Any) -> Any:
    """A stored value as JSON can say it; its bytes in base64 where it is not known how to read it."""
    if not isinstance(data, bytes | bytearray | memoryview):
        return _plain(data)
    stored = bytes(data)
    if kind in ("null", "empty"):
        return None
    try:
        if kind == "msgpack":
            return _plain(_unpack(stored))
        if kind in ("json", None):
            return _plain(json.loads(stored))
    except (ValueError, TypeError, IndexError, RecursionError):
        pass  # it is of another version of LangGraph, or damaged
    return {"type": kind, **_plain(stored)}


def _unpack(data: bytes) -> Any:
    import ormsgpack  # noqa: PLC0415 - comes with LangGraph

    return ormsgpack.unpackb(data, ext_hook=_describe, option=ormsgpack.OPT_NON_STR_KEYS)


def _describe(code: int, data: bytes) -> Any:
    """An object by the name of its class and by what it is made from."""
    if code == _DELTA:
        return _unpack(data)
    if code == _ARRAY:
        dtype, shape, order, numbers = _unpack(data)
        return {"type": "numpy.ndarray", "dtype": dtype, "shape": shape, "order": order, "value": numbers}
    module, name, value, *_ = _unpack(data)
    return {"type": f"{module}.{name}", "value": value}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key if isinstance(key, str) else repr(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value
