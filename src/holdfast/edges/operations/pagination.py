"""Pages: a list is given some at a time, each page from where the one before it ended.

A cursor names the list, what was asked of it, and the last thing that was shown, so that what is added or removed
meanwhile neither repeats nor hides anything else. It gives no access: what it leads to is checked as ever.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, TypeVar

from pydantic import Field, PrivateAttr

from holdfast.core.errors import InvalidInputError
from holdfast.edges.operations.models import Answer, Input

MAX_PAGE: Final = 1_000
MAX_CURSOR_CHARS: Final = 4_096
_SUM_BYTES: Final = 8
_T = TypeVar("_T")
Place = list[str | int]


class Page(Answer):
    """Some of a list."""

    next_cursor: str | None = Field(description="Ask with this for the next page; `null` where this is the last one.")


class Paged(Input):
    """A request for some of a list."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE, description="How many at most.")] = 100
    cursor: Annotated[
        str | None,
        Field(
            max_length=MAX_CURSOR_CHARS, description="The `next_cursor` of the page before; the first page without it."
        ),
    ] = None
    _listing: str = PrivateAttr("")
    _tenant: str = PrivateAttr("")

    def bind(self, listing: str, tenant: str) -> None:
        """Say which list of which tenant is asked for: a cursor of another one is refused."""
        self._listing, self._tenant = listing, tenant

    def place(self, *kinds: type) -> Place | None:
        """Where the page before ended: values of these kinds. ``None`` for the first page."""
        return read_cursor(self.cursor, self._listing, self._asked, *kinds)

    def page(self, found: Sequence[_T], place: Callable[[_T], Sequence[str | int]]) -> dict[str, Any]:
        """A page of what was found, which is one more than ``limit`` where there is more. ``place`` is a thing's."""
        items = list(found[: self.limit])
        return {"items": items, "next_cursor": self.cursor_to(place(items[-1])) if len(found) > self.limit else None}

    def page_of_all(self, items: Sequence[_T], key: Callable[[_T], str], *, descending: bool = False) -> dict[str, Any]:
        """A page of a list that is at hand whole, in the order of its keys."""
        place = self.place(str)
        rest = sorted(items, key=key, reverse=descending)
        if place is not None:
            last = str(place[0])
            rest = [one for one in rest if (key(one) < last if descending else key(one) > last)]
        return self.page(rest[: self.limit + 1], lambda one: [key(one)])

    def cursor_to(self, place: Sequence[str | int]) -> str:
        """The cursor that leads on from a place."""
        return write_cursor(self._listing, self._asked, place)

    @property
    def _asked(self) -> list[object]:
        return [self._tenant, self.model_dump(mode="json", exclude={"limit", "cursor"})]


def write_cursor(listing: str, asked: Sequence[object], place: Sequence[str | int]) -> str:
    """The cursor that leads on from a place in a list."""
    content = json.dumps([listing, _hash(asked), *place], ensure_ascii=False, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_checksum(content) + content).rstrip(b"=").decode()


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
        checksum, content = raw[:_SUM_BYTES], raw[_SUM_BYTES:]
        parts = json.loads(content)
    except (ValueError, binascii.Error, RecursionError):
        raise refused from None
    if checksum != _checksum(content) or not isinstance(parts, list) or parts[:2] != [listing, _hash(asked)]:
        raise refused
    place: Place = parts[2:]
    if [type(part) for part in place] != list(kinds) or any(_is_huge(part) for part in place):
        raise refused
    return place


def _hash(asked: Sequence[object]) -> str:
    text = json.dumps(list(asked), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(b"holdfast-cursor" + content).digest()[:_SUM_BYTES]


def _is_huge(part: object) -> bool:
    return isinstance(part, int) and not -(2**63) <= part < 2**63
