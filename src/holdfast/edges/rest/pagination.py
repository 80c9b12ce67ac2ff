"""Pages: a list is given some at a time, each page from where the one before it ended.

A cursor is opaque: it names the list, what was asked of it, and the last thing that was shown, so that what is added or
removed meanwhile neither repeats nor hides anything else. It opens nothing: what it leads to is checked as ever.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, TypeVar

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from holdfast.core.errors import InvalidInputError

MAX_PAGE: Final = 1_000
MAX_CURSOR_CHARS: Final = 4_096
_SUM_BYTES: Final = 8
_T = TypeVar("_T")

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="How many at most.")]
After = Annotated[
    str | None,
    Query(max_length=MAX_CURSOR_CHARS, description="The `next_cursor` of the page before; the first page without it."),
]
Place = list[str | int]


class Page(BaseModel):
    """Some of a list."""

    model_config = ConfigDict(extra="forbid")

    next_cursor: str | None = Field(description="Ask with this for the next page; `null` where this is the last one.")


def write_cursor(listing: str, asked: Sequence[object], place: Sequence[str | int]) -> str:
    """The cursor that leads on from a place in a list."""
    content = json.dumps([listing, _mark(asked), *place], ensure_ascii=False, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_sum(content) + content).rstrip(b"=").decode()


def read_cursor(cursor: str | None, listing: str, asked: Sequence[object], *kinds: type) -> Place | None:
    """The place that a cursor leads on from: values of these kinds. ``None`` without a cursor."""
    if cursor is None:
        return None
    refused = InvalidInputError(
        "that is not a cursor of this list; take next_cursor of the page before and ask the same otherwise, or leave "
        "it out to begin anew"
    )
    try:
        raw = base64.b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        given, content = raw[:_SUM_BYTES], raw[_SUM_BYTES:]
        said = json.loads(content)
    except (ValueError, binascii.Error, RecursionError):
        raise refused from None
    if given != _sum(content) or not isinstance(said, list) or said[:2] != [listing, _mark(asked)]:
        raise refused
    place: Place = said[2:]
    if [type(part) for part in place] != list(kinds) or any(_is_huge(part) for part in place):
        raise refused
    return place


def page_of(
    items: Sequence[_T],
    limit: int,
    cursor: str | None,
    *,
    listing: str,
    asked: Sequence[object],
    key: Callable[[_T], str],
    descending: bool = False,
) -> dict[str, Any]:
    """A page of a list that is at hand whole, in the order of its keys."""
    place = read_cursor(cursor, listing, asked, str)
    rest = sorted(items, key=key, reverse=descending)
    if place is not None:
        last = str(place[0])
        rest = [one for one in rest if (key(one) < last if descending else key(one) > last)]
    return cut(rest[: limit + 1], limit, lambda one: write_cursor(listing, asked, [key(one)]))


def cut(found: Sequence[_T], limit: int, cursor_after: Callable[[_T], str]) -> dict[str, Any]:
    """A page of what was found, one more than its ``limit`` where there is more."""
    shown = list(found[:limit])
    return {"items": shown, "next_cursor": cursor_after(shown[-1]) if len(found) > limit else None}


def _mark(asked: Sequence[object]) -> str:
    """What was asked, as a cursor remembers it."""
    text = json.dumps(list(asked), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _sum(content: bytes) -> bytes:
    return hashlib.sha256(b"holdfast-cursor" + content).digest()[:_SUM_BYTES]


def _is_huge(part: object) -> bool:
    return isinstance(part, int) and not -(2**63) <= part < 2**63
