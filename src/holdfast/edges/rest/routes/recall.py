"""``/v1/recall``: what bears on a question."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from starlette.responses import Response

from holdfast.core.access import Right
from holdfast.core.content import MAX_TOP_K
from holdfast.core.types import MemoryType
from holdfast.edges.rest.guard import Asking
from holdfast.edges.rest.models import A_MEMORY, Answer, Kind, Memory, Scoped, example
from holdfast.edges.rest.operations import Routes, answer
from holdfast.edges.rest.rights import Reach

routes = Routes("recall", "What is remembered that bears on a question.")


class Question(Scoped):
    """What is asked, of whose memory."""

    model_config = example(
        {
            "user_id": "alice",
            "agent_id": "travel_agent",
            "query": "What does Ann drink?",
            "memory_types": ["long_term", "episodic"],
            "top_k": 5,
            "filters": {"topic": "drinks"},
        }
    )

    query: str = Field(description="The question, in any words.")
    memory_types: list[Kind] | None = Field(
        default=None, min_length=1, max_length=len(MemoryType), description="Long-term memory, if not given."
    )
    top_k: int = Field(default=5, ge=1, le=MAX_TOP_K, description="So many at most.")
    filters: dict[str, Any] | None = Field(default=None, description="What the metadata must be like.")
    include_archived: bool | None = Field(
        default=None, description="Archived memories too; of episodes, they are unless this is false."
    )
    explain: bool = Field(default=False, description="The parts of each score too.")


class Recalled(Memory):
    """A memory that bears on a question."""

    score: float = Field(description="From 0 to 1; higher is better.")
    explanation: dict[str, float] | None = None


class Results(Answer):
    """What was found, best first."""

    model_config = example(
        {
            "items": [{**A_MEMORY, "score": 0.83}],
        }
    )

    items: list[Recalled]


@routes.add("POST", "/recall", Right.READ, Reach.MEMORY, answer=Results)
def recall(caller: Asking, question: Question) -> Response:
    """Recall what bears on a question, best first.

    Of several kinds each keeps its best match; working memory comes first, the others by score.
    """
    memory = caller.memory(question.user_id, question.agent_id, question.session_id)
    found = memory.retrieve(
        question.query,
        question.memory_types,
        question.top_k,
        question.filters,
        include_archived=question.include_archived,
        explain=question.explain,
    )
    return answer({"items": found})
