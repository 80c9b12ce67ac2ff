"""Resources: a user's memories as things that a client can list, show to its user and attach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

from mcp.shared.uri_template import UriTemplate
from mcp_types import Resource, ResourceTemplate
from pydantic import Field, ValidationError

from holdfast.core.access import Right
from holdfast.core.errors import NotFoundError, quote
from holdfast.core.types import DURABLE
from holdfast.edges.access.gate import Gate
from holdfast.edges.mcp.calls import Defaults
from holdfast.edges.mcp.errors import refused
from holdfast.edges.mcp.memories import MAX_SHOWN_CHARS, whole
from holdfast.edges.mcp.models import Kind, Memory, OneMemory, Output, Whose
from holdfast.engine import MemoryManager

JSON: Final = "application/json"
MAX_PAGE: Final = 100
_MAX_URI_CHARS: Final = 4_096
_NAME_CHARS: Final = 60


class ListMemories(Whose):
    """Which page of whose memories."""

    memory_type: Kind = "long_term"
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 50
    cursor: str | None = None


class ListedMemory(Memory):
    """A memory of a page."""

    uri: str
    is_cut: bool


class Listed(Output):
    """A page of memories, newest first."""

    user_id: str
    memory_type: str
    memories: list[ListedMemory]
    next_cursor: str | None
    next: Annotated[str | None, Field(description="The resource that has the next page.")]


def list_memories(memory: MemoryManager, asked: ListMemories) -> Listed:
    """A page of a user's memories."""
    found = memory.list_memories(asked.memory_type, limit=asked.limit + 1, include_archived=True, before=asked.cursor)
    shown = found[: asked.limit]
    more = shown[-1]["memory_id"] if len(found) > asked.limit else None
    agent = {} if asked.agent_id is None else {"agent_id": asked.agent_id}
    again = {"memory_type": asked.memory_type, "limit": str(asked.limit), **agent}
    return Listed(
        user_id=memory.user_id,
        memory_type=asked.memory_type,
        memories=[_listed(memory.user_id, one, agent) for one in shown],
        next_cursor=more,
        next=None if more is None else MEMORIES.uri.expand({"user_id": memory.user_id, **again, "cursor": more}),
    )


def read_memory(memory: MemoryManager, asked: OneMemory) -> Output:
    """One memory, all of it."""
    return whole(memory.get(asked.memory_id))


@dataclass(frozen=True, slots=True)
class Template:
    """One kind of resource. ``read`` gets the memory that the gate handed out for ``right``, and the checked inputs."""

    uri: UriTemplate
    name: str
    title: str
    about: str
    right: Right
    inputs: type[Whose]
    read: Callable[[Any, Any], Output]

    def shown(self) -> ResourceTemplate:
        """As a client sees it."""
        return ResourceTemplate(
            uri_template=str(self.uri), name=self.name, title=self.title, description=self.about, mime_type=JSON
        )


MEMORIES: Final = Template(
    UriTemplate.parse("holdfast://users/{user_id}/memories{?memory_type,agent_id,limit,cursor}"),
    "memories",
    "A user's memories",
    f"Memories of one kind (long_term, if not said), newest first, {MAX_PAGE} at most; `next` is the page after it.",
    Right.READ,
    ListMemories,
    list_memories,
)
MEMORY: Final = Template(
    UriTemplate.parse("holdfast://memories/{user_id}/{memory_id}{?agent_id,session_id}"),
    "memory",
    "A memory",
    "One memory, all of it.",
    Right.READ,
    OneMemory,
    read_memory,
)
TEMPLATES: Final = (MEMORIES, MEMORY)


def read(uri: str, gate: Gate, defaults: Defaults) -> str:
    """What a resource holds, as JSON; ``NotFoundError`` if there is no such thing."""
    for template in TEMPLATES:
        given = template.uri.match(uri, max_uri_length=_MAX_URI_CHARS)
        if given is None:
            continue
        try:
            asked = template.inputs.model_validate(given)
        except ValidationError as problem:
            raise refused(problem, "the resource") from None
        memory = defaults.memory(gate, template.right, asked)
        return template.read(memory, asked).model_dump_json()
    raise NotFoundError(
        f"there is no resource {quote(uri)}; there are {' and '.join(str(one.uri) for one in TEMPLATES)}"
    )


def listed(gate: Gate, defaults: Defaults, cursor: str | None) -> tuple[list[Resource], str | None]:
    """The resources of the user that is meant where nobody is named: their memories by kind, then each long-term one,
    newest first, a page at a time. Nothing, where no user is meant.
    """
    if defaults.user_id is None and (gate.principal.users is None or len(gate.principal.users) != 1):
        return [], None
    memory = defaults.memory(gate, Right.READ, Whose())
    page = list_memories(memory, ListMemories(limit=MAX_PAGE, cursor=cursor))
    kinds = [_collection(memory.user_id, kind.value) for kind in DURABLE] if cursor is None else []
    return [*kinds, *map(_one, page.memories)], page.next_cursor


def _collection(user_id: str, kind: str) -> Resource:
    return Resource(
        uri=MEMORIES.uri.expand({"user_id": user_id, "memory_type": kind}),
        name=f"{kind} memories",
        title=f"{kind.replace('_', ' ').capitalize()} memories of {user_id}",
        mime_type=JSON,
    )


def _one(memory: ListedMemory) -> Resource:
    words = " ".join(memory.content.split())
    name = words if len(words) <= _NAME_CHARS else f"{words[: _NAME_CHARS - 1]}…"
    return Resource(uri=memory.uri, name=name, mime_type=JSON)


def _listed(user_id: str, shown: dict[str, Any], agent: dict[str, str]) -> ListedMemory:
    content: str = shown["content"]
    uri = MEMORY.uri.expand({"user_id": user_id, "memory_id": shown["memory_id"], **agent})
    cut = len(content) > MAX_SHOWN_CHARS
    return ListedMemory.model_validate({**shown, "content": content[:MAX_SHOWN_CHARS], "uri": uri, "is_cut": cut})
