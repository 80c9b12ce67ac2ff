"""The form of a certificate: which fields it has, and what each of them must look like."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

VERSION: Final = 1
_HEX_32, _HEX_64 = r"[0-9a-f]{32}", r"[0-9a-f]{64}"
_MOMENT: Final = r"[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}(\.[0-9]{6})?\+00:00"


def _is(pattern: str) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and value != ""


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_all(shape: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(shape, value))


def _or_none(shape: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or shape(value)


def _has(shape: Mapping[str, Callable[[object], bool]]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, Mapping) and _misfit(value, shape) is None


def _misfit(value: Mapping[str, Any], shape: Mapping[str, Callable[[object], bool]]) -> str | None:
    """The first field that is missing, unknown or not as it must be."""
    unknown = [str(name) for name in value if name not in shape]
    wrong = (name for name, fits in shape.items() if name not in value or not fits(value[name]))
    return unknown[0] if unknown else next(wrong, None)


def in_base64(data: bytes) -> str:
    """Bytes as a certificate has them."""
    return base64.b64encode(data).decode()


def _is_base64(size: int) -> Callable[[object], bool]:
    """Whether it is so many bytes, written in the one way that base64 has: its last letter has bits to spare."""

    def fits(value: object) -> bool:
        try:
            data = base64.b64decode(value, validate=True) if isinstance(value, str) else b""
        except (binascii.Error, ValueError):
            return False
        return len(data) == size and in_base64(data) == value

    return fits


_SHAPE: Final[Mapping[str, Callable[[object], bool]]] = {
    "holdfast_certificate": lambda value: type(value) is int,
    "id": _is(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    "issued_at": _is(_MOMENT),
    "subject": _is(_HEX_32),
    "ledger": _has({"no": _is_count, "hash": _is(_HEX_64), "begun_at": _is(_MOMENT)}),
    "engine": _is(r"[a-z]+"),
    "places": _is_all(_has({"name": _is_text, "found": _is_count, "removed": _is_count, "left": _is_count})),
    "pending": _is_flag,
    "audit": _or_none(_has({"chain": _is(_HEX_32), "seq": _is_count, "hash": _is(_HEX_64)})),
    "remarks": _is_all(_is_text),
    "software": _is_text,
    "key": _has({"id": _is(_HEX_32), "algorithm": _is("Ed25519"), "public": _is_base64(32)}),
    "signature": _is_base64(64),
}


def form_problem(document: Mapping[str, Any]) -> str | None:
    """What keeps a document from being a certificate, signatures aside."""
    version = document.get("holdfast_certificate")
    if type(version) is not int:
        return "it is no certificate of Holdfast"
    if version != VERSION:
        return f"it is a certificate of version {version}, and this Holdfast knows version {VERSION}"
    misfit = _misfit(document, _SHAPE)
    return None if misfit is None else f"its {misfit[:40]!r} is missing, or not what a certificate has there"
