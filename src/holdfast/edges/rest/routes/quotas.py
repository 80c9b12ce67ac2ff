"""``/v1/quotas``: how much of each kind a user may hold."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated, Literal

from fastapi import Path
from pydantic import Field
from starlette.responses import Response

from holdfast.core.access import Right
from holdfast.core.types import DURABLE
from holdfast.edges.rest.guard import Asking
from holdfast.edges.rest.models import Answer, Request, UserId, UserInPath, example
from holdfast.edges.rest.operations import Routes, answer
from holdfast.edges.rest.rights import Reach

routes = Routes("quotas", "How much of each kind a user holds, and how much they may.")

Kept = StrEnum("Kept", {kind.name: kind.value for kind in DURABLE})  # type: ignore[misc]  # the durable kinds
Most = Annotated[int, Field(ge=0, lt=2**63)]


class Limits(Request):
    """How much is allowed; what is not given stays."""

    model_config = example({"user_id": "alice", "max_memories": 500, "max_bytes": "unlimited"})

    user_id: UserId | None = Field(
        default=None, description="For whom; for everyone without a quota of their own, if it is not given."
    )
    max_memories: Most | Literal["unlimited"] | None = Field(default=None, description="So many of the kind.")
    max_bytes: Most | Literal["unlimited"] | None = Field(default=None, description="So much of the kind.")


class Usage(Answer):
    """What a user holds of a kind."""

    memory_type: str
    memories: int
    bytes: int
    max_memories: int | None = Field(description="`null`: no limit.")
    max_bytes: int | None = Field(description="`null`: no limit.")


class Usages(Answer):
    """What a user holds, by kind."""

    model_config = example(
        {
            "items": [
                {
                    "memory_type": "long_term",
                    "memories": 12,
                    "bytes": 3_400,
                    "max_memories": 10_000,
                    "max_bytes": 1_073_741_824,
                }
            ]
        }
    )

    items: list[Usage]


class SetLimits(Answer):
    """A quota that was set."""

    model_config = example({"memory_type": "long_term", "user_id": "alice", "max_memories": 500, "max_bytes": None})

    memory_type: str
    user_id: str | None
    max_memories: int | str | None
    max_bytes: int | str | None


@routes.add("GET", "/users/{user_id:id}/quotas", Right.READ, Reach.USER, answer=Usages)
def get_quotas(caller: Asking, user_id: UserInPath) -> Response:
    """Say what a user holds of each kind, and how much they may."""
    quotas = caller.user(user_id).quotas
    return answer({"items": [{"memory_type": kind.value, **quotas.get(kind, user_id)._asdict()} for kind in DURABLE]})


@routes.add("PUT", "/quotas/{memory_type:id}", Right.GOVERN, Reach.WHOSE, answer=SetLimits)
def set_quota(
    caller: Asking, memory_type: Annotated[Kept, Path(description="The kind of memory.")], limits: Limits
) -> Response:
    """Set a quota. A lower one removes nothing: it stops further writes."""
    caller.whose(limits.user_id).quotas.set(
        memory_type.value,
        max_memories=_number(limits.max_memories),
        max_bytes=_number(limits.max_bytes),
        user_id=limits.user_id,
    )
    return answer({"memory_type": memory_type.value, **limits.model_dump()})


def _number(limit: int | str | None) -> float | None:
    return math.inf if isinstance(limit, str) else limit
