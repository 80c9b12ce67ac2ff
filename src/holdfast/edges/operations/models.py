"""What inputs have in common: no field of one is ignored. Pages: a list is given some at a time.

The cursor of a page names the list, what was asked of it, and the last thing that was shown: what is added or removed
meanwhile neither repeats nor hides anything else. A cursor gives no access: what it leads to is checked as ever.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from holdfast.core.errors import InvalidInputError
from holdfast.core.records import MemoryType
from holdfast.core.values import MAX_ID_CHARS, json_problem
from holdfast.edges.operations.errors import NOT_JSON, SEND_JSON
from holdfast.edges.operations.outputs import PageOf

MEMORY_ID: Final = "0198c2d4-7b1a-7c3e-9f60-5d2a1c8e4b77"
MAX_PAGE: Final = 1_000
MAX_CURSOR_CHARS: Final = 4_096
_SUM_BYTES: Final = 8
_T = TypeVar("_T")
Place = list[str | int]
#: The context of what is known to be JSON, so that nothing is looked at again.
PLAIN: Final = MappingProxyType({"json": "plain"})


def check_json(given: Any) -> Any:
    """Refuse what Python's reader lets through and JSON, or a store, cannot hold."""
    if isinstance(given, bytes):  # a body that is not declared as JSON comes as bytes
        raise PydanticCustomError(NOT_JSON, SEND_JSON)
    problem = json_problem(given)
    if problem is not None:
        raise ValueError(problem)
    try:
        orjson.dumps(given)
    except TypeError as wrong:
        raise ValueError("it has a lone surrogate, which is not a character") from wrong
    return given


class Input(BaseModel):
    """What an operation takes. Nothing in it is converted: 0 is not false, and "5" is not 5."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _check_json(cls, given: Any, info: ValidationInfo) -> Any:
        return given if info.context is PLAIN else check_json(given)

    #: Fields that say whose memory is meant: an operation gets that memory.
    _whose: ClassVar[frozenset[str]] = frozenset()

    def to_arguments(self, *besides: str) -> dict[str, Any]:
        """What was given, as named arguments of a verb; without the fields that are named here, and whose memory."""
        whose, given = self._whose, self.__dict__.items()
        return {name: it for name, it in given if it is not None and name not in whose and name not in besides}


def example(value: Any) -> ConfigDict:
    """An input's example."""
    return ConfigDict(json_schema_extra={"example": value})


class Nothing(Input):
    """An input without fields."""


# --- fields that inputs share -----------------------------------------------------------------------------------------

Id = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS)]
UserId = Annotated[Id, Field(description="Whose memory it is.", examples=["alice"])]
AgentId = Annotated[Id, Field(description="The agent that sees it.", examples=["travel_agent"])]
KindName = Annotated[MemoryType, Field(strict=False)]

MaybeUser = Annotated[Id | None, Field(description="Of which user; of all of them, if not given.", examples=["alice"])]
MaybeSession = Annotated[Id | None, Field(description="In which session; the one without a name, if not given.")]
Confirm = Annotated[bool, Field(description="You have looked at what it comes to.")]
ConfirmClock = Annotated[bool, Field(description="The clock is right, though it leaped or is far ahead.")]


class Scoped(Input):
    """Whose memory an operation works on."""

    user_id: UserId
    agent_id: AgentId
    session_id: MaybeSession = None

    _whose = frozenset({"user_id", "agent_id", "session_id"})


class OneUser(Input):
    """One user."""

    user_id: UserId


# --- pages ------------------------------------------------------------------------------------------------------------


class Paged(Input):
    """A request for some of a list."""

    limit: int = Field(100, ge=1, le=MAX_PAGE, description="How many at most.")
    cursor: str | None = Field(
        None, max_length=MAX_CURSOR_CHARS, description="The `next_cursor` of the page before; without it, the first."
    )
    _listing: str = PrivateAttr("")
    _tenant: str = PrivateAttr("")

    def bind(self, listing: str, tenant: str) -> None:
        """Say which list of which tenant is asked for: a cursor of another one is refused."""
        self._listing, self._tenant = listing, tenant

    def read_place(self, *kinds: type) -> Place | None:
        """Where the page before ended: values of these kinds. ``None`` for the first page."""
        return read_cursor(self.cursor, self._listing, self._asked, *kinds)

    def read_last(self) -> str | None:
        """The key of the last thing on the page before. ``None`` for the first page."""
        place = self.read_place(str)
        return None if place is None else str(place[0])

    def make_page(self, found: Sequence[_T], key: Callable[[_T], str]) -> PageOf[_T]:
        """A page of what was found, which is one more than ``limit`` where there is more."""
        items = list(found[: self.limit])
        return {"items": items, "next_cursor": self.make_cursor([key(items[-1])]) if len(found) > self.limit else None}

    def cut_page(self, items: Sequence[_T], key: Callable[[_T], str], *, descending: bool = False) -> PageOf[_T]:
        """A page of a list that is at hand whole, in the order of its keys."""
        last = self.read_last()
        rest = [one for one in items if last is None or (key(one) < last if descending else key(one) > last)]
        return self.make_page(sorted(rest, key=key, reverse=descending)[: self.limit + 1], key)

    def make_cursor(self, place: Sequence[str | int]) -> str:
        """The cursor that leads on from a place."""
        return write_cursor(self._listing, self._asked, place)

    @property
    def _asked(self) -> list[object]:
        return [self._tenant, self.model_dump(mode="json", exclude={"limit", "cursor"})]


def write_cursor(listing: str, asked: Sequence[object], place: Sequence[str | int]) -> str:
    """The cursor that leads on from a place in a list."""
    content = json.dumps(list(place), ensure_ascii=False, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_checksum(listing, asked, content) + content).rstrip(b"=").decode()


def read_cursor(cursor: str | None, listing: str, asked: Sequence[object], *kinds: type) -> Place | None:
    """The place that a cursor leads on from: values of these kinds. ``None`` without a cursor."""
    if cursor is None:
        return None
    try:
        raw = base64.b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        place: Place = (
            json.loads(raw[_SUM_BYTES:]) if raw.startswith(_checksum(listing, asked, raw[_SUM_BYTES:])) else []
        )
    except (ValueError, RecursionError):
        place = []
    if [type(part) for part in place] != list(kinds) or json_problem(place) is not None:
        raise InvalidInputError(
            "that is not a cursor of this list; take next_cursor of the page before and ask the same otherwise, or "
            "leave it out to begin anew"
        )
    return place


def _checksum(listing: str, asked: Sequence[object], content: bytes) -> bytes:
    question = json.dumps([listing, *asked], sort_keys=True, default=str).encode()
    return hashlib.sha256(b"holdfast-cursor" + hashlib.sha256(question).digest() + content).digest()[:_SUM_BYTES]
