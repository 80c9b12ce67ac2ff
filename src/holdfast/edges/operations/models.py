"""What inputs and outputs have in common. No field of an input is ignored; an output has only declared fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from holdfast.core.content import MAX_ID_CHARS, json_problem, to_json
from holdfast.core.records import MemoryType
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


class Output(BaseModel):
    """What an operation gives."""

    model_config = ConfigDict(extra="forbid")


def example(value: Any, *, closed: bool = True) -> ConfigDict:
    """A model's example. A model that is not ``closed`` may have more than its fields."""
    config = ConfigDict(json_schema_extra={"example": value})
    return config if closed else ConfigDict(**config, extra="allow")


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


#: A memory, as examples show it.
A_MEMORY: Final[Mapping[str, Any]] = {
    "memory_id": MEMORY_ID,
    "content": "Ann likes green tea.",
    "memory_type": "long_term",
    "metadata": {"topic": "drinks"},
    "agent_id": "travel_agent",
    "session_id": "s1",
    "created_at": MOMENT,
    "updated_at": MOMENT,
    "is_archived": False,
    "source": "agent:travel_agent",
    "derived_from": [],
}


class Memory(Output):
    """A memory."""

    model_config = example(dict(A_MEMORY))

    memory_id: str
    content: str = Field(description="Its text; of working memory that was added as an object, the JSON of it.")
    memory_type: MemoryType
    metadata: Metadata
    agent_id: str
    session_id: str | None
    created_at: str
    updated_at: str
    is_archived: bool
    source: str = Field(description="Who or what wrote it.")
    derived_from: list[str] = Field(description="Ids of the memories and messages that it was made from.")


class Count(Output):
    """How many."""

    model_config = example({"count": 3})

    count: int
