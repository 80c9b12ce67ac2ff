"""What requests and answers have in common. A request says nothing that is not read; an answer nothing unannounced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from holdfast.core.content import MAX_ID_CHARS, json_problem, to_json
from holdfast.core.types import MemoryType
from holdfast.edges.rest.validation_errors import NOT_JSON, SEND_JSON

MEMORY_ID: Final = "0198c2d4-7b1a-7c3e-9f60-5d2a1c8e4b77"
MOMENT: Final = "2026-01-15T12:00:00+00:00"

Metadata = dict[str, Any]


class Request(BaseModel):
    """The body of a request. Nothing in it is taken for something else: 0 is not false, and "5" is not 5."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _check_json(cls, body: Any) -> Any:
        """Refuse what Python's reader lets through and JSON, or a store, cannot hold: wherever in the body it is."""
        if isinstance(body, bytes):  # what is not called JSON comes as it is
            raise PydanticCustomError(NOT_JSON, SEND_JSON)
        problem = json_problem(body)
        if problem is not None:
            raise ValueError(problem)
        try:
            to_json(body).encode()
        except UnicodeEncodeError as wrong:
            raise ValueError("it has a lone surrogate, which is not a character") from wrong
        return body


class Answer(BaseModel):
    """The body of an answer."""

    model_config = ConfigDict(extra="forbid")


def _named(description: str, example: str) -> Any:
    return Field(min_length=1, max_length=MAX_ID_CHARS, description=description, examples=[example])


def _asked(description: str, example: str) -> Any:
    return Query(min_length=1, max_length=MAX_ID_CHARS, description=description, examples=[example])


# In bodies.
UserId = Annotated[str, _named("Whose memory.", "alice")]
AgentId = Annotated[str, _named("The agent that sees it.", "travel_agent")]
SessionId = Annotated[str, _named("In which session.", "s1")]
Kind = Annotated[MemoryType, Field(strict=False, description="The kind of memory.")]  # given by its name
Source = Annotated[str, _named("Who or what it comes from; its agent, if not said.", "import:crm-2026-05")]

# In queries.
OfUser = Annotated[str, _asked("Whose memory.", "alice")]
OfAgent = Annotated[str, _asked("The agent that sees it.", "travel_agent")]
InSession = Annotated[str | None, _asked("In which session.", "s1")]
MaybeUser = Annotated[str | None, _asked("Of which user; of all of them, if not given.", "alice")]
MaybeAgent = Annotated[str | None, _asked("Of which agent; of all of them, if not given.", "travel_agent")]
OfKind = Annotated[MemoryType, Query(description="The kind of memory.")]

# In paths.
MemoryId = Annotated[str, Path(description="The memory's id.", examples=[MEMORY_ID])]
UserInPath = Annotated[str, Path(max_length=MAX_ID_CHARS, description="The user's id.", examples=["alice"])]
SessionInPath = Annotated[str, Path(max_length=MAX_ID_CHARS, description="The session's id.", examples=["s1"])]


class Scoped(Request):
    """A request about the memory of a user, as an agent sees it."""

    user_id: UserId
    agent_id: AgentId
    session_id: SessionId | None = None


def example(value: Any, *, closed: bool = True) -> ConfigDict:
    """A model's example. One that is not ``closed`` may say more than its fields do."""
    said = ConfigDict(json_schema_extra={"example": value})
    return said if closed else ConfigDict(**said, extra="allow")


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


class Memory(Answer):
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


class Counted(Answer):
    """How many."""

    model_config = example({"count": 3})

    count: int
