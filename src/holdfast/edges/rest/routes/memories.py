"""``/v1/memories``: what is remembered, one by one and page by page."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from holdfast.core.access import Right
from holdfast.core.errors import InvalidFilterError, quote
from holdfast.core.types import MemoryType
from holdfast.edges.rest.guard import Asking
from holdfast.edges.rest.memory_forms import (
    Added,
    AddedMany,
    Changes,
    Deleted,
    Derived,
    Explanation,
    MemoryPage,
    NewMemories,
    NewMemory,
    WholeMemory,
)
from holdfast.edges.rest.models import InSession, Memory, MemoryId, OfAgent, OfKind, OfUser
from holdfast.edges.rest.operations import Routes, answer
from holdfast.edges.rest.pagination import After, Limit, cut, read_cursor, write_cursor
from holdfast.edges.rest.rights import Reach

routes = Routes("memories", "What is remembered: added, read, changed, deleted and brought back.")

Filters = Annotated[
    str | None,
    Query(
        max_length=16_384,
        description="A filter of the metadata, as a JSON object.",
        examples=['{"topic": "drinks"}'],
    ),
]
WithArchived = Annotated[bool, Query(description="Archived memories too.")]


@routes.add("POST", "/memories", Right.WRITE, Reach.MEMORY, answer=Added, status=201, errors=(409, 423))
def add_memory(caller: Asking, new: NewMemory) -> Response:
    """Remember something.

    When this answers, it is durable (working memory aside, which lives in the process that serves the session).
    """
    memory = caller.memory(new.user_id, new.agent_id, new.session_id)
    memory.auto_prune = new.auto_prune
    added = memory.add(new.content, new.memory_type, new.metadata, source=new.source, derived_from=new.derived_from)
    return answer(added, 201)


@routes.add("POST", "/memories:batch", Right.WRITE, Reach.MEMORY, answer=AddedMany, status=201, errors=(409, 423))
def add_memories(caller: Asking, new: NewMemories) -> Response:
    """Remember many things together: all of them, or none."""
    memory = caller.memory(new.user_id, new.agent_id, new.session_id)
    memory.auto_prune = new.auto_prune
    added = memory.add_many(
        new.contents, new.memory_type, new.metadata, source=new.source, derived_from=new.derived_from
    )
    return answer(added, 201)


@routes.add("GET", "/memories", Right.READ, Reach.MEMORY, answer=MemoryPage)
def list_memories(
    *,
    caller: Asking,
    user_id: OfUser,
    agent_id: OfAgent,
    memory_type: OfKind = MemoryType.LONG_TERM,
    filters: Filters = None,
    include_archived: WithArchived = False,
    source: Annotated[str | None, Query(max_length=256, description="Only what came from there.")] = None,
    limit: Limit = 100,
    cursor: After = None,
) -> Response:
    """List memories of a kind, newest first."""
    asked = (caller.gate.tenant_id, user_id, agent_id, memory_type, filters, include_archived, source)
    place = read_cursor(cursor, "memories", asked, str)
    found = caller.memory(user_id, agent_id).list_memories(
        memory_type,
        _read_filters(filters),
        limit=limit + 1,
        include_archived=include_archived,
        source=source,
        before=None if place is None else str(place[0]),
    )
    return answer(cut(found, limit, lambda one: write_cursor("memories", asked, [one["memory_id"]])))


@routes.add("GET", "/memories/{memory_id:id}", Right.READ, Reach.MEMORY, answer=WholeMemory, errors=(404,))
def get_memory(
    caller: Asking, memory_id: MemoryId, user_id: OfUser, agent_id: OfAgent, session_id: InSession = None
) -> Response:
    """Read one memory, with all that belongs to it."""
    return answer(caller.memory(user_id, agent_id, session_id).get(memory_id))


@routes.add("PATCH", "/memories/{memory_id:id}", Right.WRITE, Reach.MEMORY, answer=Memory, errors=(404, 409, 423))
def update_memory(
    *,
    caller: Asking,
    memory_id: MemoryId,
    user_id: OfUser,
    agent_id: OfAgent,
    changes: Changes,
    session_id: InSession = None,
) -> Response:
    """Change what a memory says, its metadata, or where it comes from; its age stays."""
    memory = caller.memory(user_id, agent_id, session_id)
    said = memory.update(
        memory_id, changes.content, changes.metadata, source=changes.source, derived_from=changes.derived_from
    )
    return answer(said)


@routes.add("DELETE", "/memories/{memory_id:id}", Right.WRITE, Reach.MEMORY, answer=Deleted, errors=(404, 409, 423))
def delete_memory(
    *,
    caller: Asking,
    memory_id: MemoryId,
    user_id: OfUser,
    agent_id: OfAgent,
    session_id: InSession = None,
    with_derived: Annotated[bool, Query(description="All that was derived from it too.")] = False,
) -> Response:
    """Send a memory to the recycle bin for 15 days, out of recall at once.

    Working and short-term memory is gone for good.
    """
    return answer(caller.memory(user_id, agent_id, session_id).delete(memory_id, with_derived=with_derived))


@routes.add(
    "POST", "/memories/{memory_id:id}/restore", Right.WRITE, Reach.MEMORY, answer=WholeMemory, errors=(404, 409)
)
def restore_memory(caller: Asking, memory_id: MemoryId, user_id: OfUser, agent_id: OfAgent) -> Response:
    """Bring a memory back from the recycle bin, exactly as it was."""
    return answer(caller.memory(user_id, agent_id).restore(memory_id))


@routes.add(
    "POST", "/memories/{memory_id:id}/rehydrate", Right.WRITE, Reach.MEMORY, answer=Memory, errors=(404, 409, 410)
)
def rehydrate_memory(caller: Asking, memory_id: MemoryId, user_id: OfUser, agent_id: OfAgent) -> Response:
    """Bring a memory back from cold storage: whole, in recall again, its age counted from now on."""
    return answer(caller.memory(user_id, agent_id).rehydrate(memory_id))


@routes.add("GET", "/memories/{memory_id:id}/explain", Right.READ, Reach.MEMORY, answer=Explanation, errors=(404,))
def explain_memory(
    caller: Asking, memory_id: MemoryId, user_id: OfUser, agent_id: OfAgent, session_id: InSession = None
) -> Response:
    """Say which rules a memory lives under, what happens to it next, and what protects it; or how it went."""
    return answer(caller.memory(user_id, agent_id, session_id).explain(memory_id))


@routes.add("GET", "/memories/{memory_id:id}/derived", Right.READ, Reach.MEMORY, answer=Derived, errors=(404,))
def list_derived(
    *,
    caller: Asking,
    memory_id: MemoryId,
    user_id: OfUser,
    agent_id: OfAgent,
    deep: Annotated[bool, Query(description="And what was derived from that, and so on.")] = False,
) -> Response:
    """List what was derived from a memory or a message."""
    return answer({"items": caller.memory(user_id, agent_id).derived(memory_id, deep=deep)})


def _read_filters(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidFilterError(f"filters must be a JSON object, not {quote(text)}") from None
    if not isinstance(read, dict):
        raise InvalidFilterError(f"filters must be a JSON object, not {quote(read)}")
    return read
