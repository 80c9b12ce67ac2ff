"""What inputs and outputs have in common. No field of an input is ignored; an output has only declared fields."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import NoneType
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from holdfast.core.records import MemoryType
from holdfast.core.values import MAX_ID_CHARS, json_problem, to_json
from holdfast.edges.operations.validation_errors import NOT_JSON, SEND_JSON

MEMORY_ID: Final = "0198c2d4-7b1a-7c3e-9f60-5d2a1c8e4b77"
MOMENT: Final = "2026-01-15T12:00:00+00:00"

Metadata = dict[str, Any]


class Input(BaseModel):
    """What an operation takes. Nothing in it is converted: 0 is not false, and "5" is not 5."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _check_json(cls, given: Any) -> Any:
        """Refuse what Python's reader lets through and JSON, or a store, cannot hold."""
        if isinstance(given, bytes):  # a body that is not declared as JSON comes as bytes
            raise PydanticCustomError(NOT_JSON, SEND_JSON)
        problem = json_problem(given)
        if problem is not None:
            raise ValueError(problem)
        try:
            to_json(given).encode()
        except UnicodeEncodeError as wrong:
            raise ValueError("it has a lone surrogate, which is not a character") from wrong
        return given


class Nothing(Input):
    """An input without fields."""


class Answer(BaseModel):
    """What an operation gives. The examples of its fields make its example."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def __pydantic_init_subclass__(cls, **_options: Any) -> None:
        values = {name: _example_of(name, field) for name, field in cls.model_fields.items() if field.is_required()}
        cls.model_config["json_schema_extra"] = {"example": values}


class OpenAnswer(Answer):
    """What an operation gives, and whatever else belongs to it."""

    model_config = ConfigDict(extra="allow")


def example(value: Any) -> ConfigDict:
    """An input's example."""
    return ConfigDict(json_schema_extra={"example": value})


#: What fields of these names have in examples.
_EXAMPLES: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("memory_id", "message_id", "episode_id", "key_id", "hold_id", "archive_id", "rule_id"), MEMORY_ID),
    **dict.fromkeys(("created_at", "updated_at", "deleted_at", "at", "last_active_at", "cutoff_date"), MOMENT),
    **dict.fromkeys(("timestamp", "date", "updated_on", "next_run", "tried_at", "believed", "since"), MOMENT),
    **dict.fromkeys(("purge_at", "keeps_until"), "2026-01-30T12:00:00+00:00"),
    **dict.fromkeys(("ok", "success", "signed", "trusted", "good", "enabled", "is_visible"), True),
    **dict.fromkeys(("pseudonym", "subject", "chain"), "9f2c…"),
    **dict.fromkeys(("archive_by", "delete_by"), "the default for episodic"),
    "user_id": "alice",
    "agent_id": "travel_agent",
    "session_id": "s1",
    "tool_id": "route_finder",
    "tenant": "acme",
    "rights": ["read", "write"],
    "content": "Ann likes green tea.",
    "role": "user",
    "task": "Book a train to Leeds",
    "summary": "Looked up trains and booked the 9:15.",
    "description": "Books journeys",
    "metadata": {"topic": "drinks"},
    "memory_type": "long_term",
    "memory_ids": [MEMORY_ID],
    "operation": "add",
    "source": "agent:travel_agent",
    **dict.fromkeys(("author", "actor"), f"key:{MEMORY_ID}"),
    "score": 0.83,
    "quota_remaining": 9_999,
    "max_memories": 10_000,
    "state": "active",
    "level": "user",
    "action": "archive",
    "reason": "90 days after it ended",
    "archive_after_days": 90,
    "delete_after_days": 365,
    "recycle_bin_days": 15,
    "days_left": 15,
    "counts": {"archive": 3},
    "newly_due": {"archive": 0, "delete": 0, "recycle": 12},
    "domain": "memory",
    "older_than_days": 30,
    "source_types": ["context", "action", "thought"],
    "name": "daily",
    "cron": "0 3 * * *",
    "timezone": "UTC",
}
_BY_TYPE: Final[Mapping[object, Any]] = {str: "…", int: 3, float: 1.2, bool: False, dict: {}, list: []}


def _example_of(name: str, field: FieldInfo) -> Any:
    if field.examples:
        return field.examples[0]
    return _EXAMPLES[name] if name in _EXAMPLES else _example_value(field.annotation)


def _example_value(annotation: Any) -> Any:
    parts = get_args(annotation)
    if NoneType in parts:
        return None
    if get_origin(annotation) is list and isinstance(parts[0], type) and issubclass(parts[0], Answer):
        return [_example_value(parts[0])]
    if isinstance(annotation, type) and issubclass(annotation, Answer):
        extra: Any = annotation.model_config["json_schema_extra"]
        return extra["example"]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return next(iter(annotation)).value
    return _BY_TYPE[get_origin(annotation) or annotation]


Id = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS)]
UserId = Annotated[Id, Field(description="Whose memory it is.", examples=["alice"])]
AgentId = Annotated[Id, Field(description="The agent that sees it.", examples=["travel_agent"])]
SessionId = Annotated[Id, Field(description="The session's id.", examples=["s1"])]
MemoryId = Annotated[str, Field(description="The memory's id.", examples=[MEMORY_ID])]
KindName = Annotated[MemoryType, Field(strict=False)]
Kind = Annotated[KindName, Field(description="The kind of memory.")]

MaybeUser = Annotated[Id | None, Field(description="Of which user; of all of them, if not given.", examples=["alice"])]
MaybeAgent = Annotated[Id | None, Field(description="Of which agent; of all of them, if not given.")]
MaybeSession = Annotated[Id | None, Field(description="In which session; the one without a name, if not given.")]
Confirm = Annotated[bool, Field(description="You have looked at what it comes to.")]
ConfirmClock = Annotated[bool, Field(description="The clock is right, though it leaped or is far ahead.")]


class Scoped(Input):
    """Whose memory an operation works on."""

    user_id: UserId
    agent_id: AgentId
    session_id: MaybeSession = None


class OneUser(Input):
    """One user."""

    user_id: UserId


class OneMemory(Scoped):
    """One memory, by its id."""

    memory_id: MemoryId


class Count(Answer):
    """How many."""

    count: int
