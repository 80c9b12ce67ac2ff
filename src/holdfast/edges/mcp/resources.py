"""Resources: a user's memories as things that a client can list, show to its user and attach."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from mcp.shared.uri_template import UriTemplate
from mcp_types import Resource, ResourceTemplate

from holdfast.core.errors import NotFoundError, quote
from holdfast.core.records import DURABLE
from holdfast.edges.access.gate import Gate
from holdfast.edges.mcp.tools import Defaults, read_input
from holdfast.edges.operations.catalog import OPERATIONS
from holdfast.edges.operations.memories import shorten
from holdfast.edges.operations.operation import Operation
from holdfast.edges.operations.outputs import encode

JSON: Final = "application/json"
_PAGE: Final = 100
_MAX_URI_CHARS: Final = 4_096
_NAME_CHARS: Final = 60


class Template(NamedTuple):
    """One kind of resource, and the operation that reads it."""

    uri: UriTemplate
    name: str
    title: str
    about: str
    operation: Operation

    def describe(self) -> ResourceTemplate:
        """As a client sees it."""
        return ResourceTemplate(
            uri_template=str(self.uri), name=self.name, title=self.title, description=self.about, mime_type=JSON
        )


MEMORIES: Final = Template(
    UriTemplate.parse("holdfast://users/{user_id}/memories{?memory_type,agent_id,limit,cursor}"),
    "memories",
    "A user's memories",
    f"Memories of one kind (long_term, if not said), newest first, {_PAGE} unless limited; `next` is the page after.",
    OPERATIONS["list_memories"],
)
MEMORY: Final = Template(
    UriTemplate.parse("holdfast://memories/{user_id}/{memory_id}{?agent_id,session_id}"),
    "memory",
    "A memory",
    "One memory, all of it.",
    OPERATIONS["get_memory"],
)
TEMPLATES: Final = (MEMORIES, MEMORY)


def read_resource(uri: str, gate: Gate, defaults: Defaults) -> str:
    """What a resource holds, as JSON; ``NotFoundError`` if there is no such thing."""
    for template in TEMPLATES:
        given = template.uri.match(uri, max_uri_length=_MAX_URI_CHARS)
        if given is None:
            continue
        if template is MEMORIES:
            return encode(_read_page(dict(given), gate, defaults)).decode()
        asked = read_input(template.operation, given, gate, defaults)
        return encode(template.operation.bind(gate, asked)()).decode()
    raise NotFoundError(
        f"there is no resource {quote(uri)}; there are {' and '.join(str(one.uri) for one in TEMPLATES)}"
    )


def list_resources(gate: Gate, defaults: Defaults, cursor: str | None) -> tuple[list[Resource], str | None]:
    """The resources of the user that is meant where nobody is named: their memories by kind, then each long-term one,
    newest first, a page at a time. Nothing, where no user is meant.
    """
    if defaults.user_id is None and (gate.principal.users is None or len(gate.principal.users) != 1):
        return [], None
    page = _read_page({"cursor": cursor}, gate, defaults)
    kinds = [_describe_kind(page["user_id"], kind.value) for kind in DURABLE] if cursor is None else []
    return [*kinds, *map(_describe_one, page["items"])], page["next_cursor"]


def _read_page(given: dict[str, Any], gate: Gate, defaults: Defaults) -> dict[str, Any]:
    """A page of a user's memories, each with the resource that it is, and with the resource that is the next page."""
    asked: Any = read_input(MEMORIES.operation, {"limit": _PAGE, **given, "include_archived": True}, gate, defaults)
    page = MEMORIES.operation.bind(gate, asked)()
    user_id, cursor = asked.user_id, page["next_cursor"]
    agent = {} if given.get("agent_id") is None else {"agent_id": asked.agent_id}
    again = {"user_id": user_id, "memory_type": asked.memory_type.value, "limit": str(asked.limit), **agent}
    items = [
        {**one, "uri": MEMORY.uri.expand({"user_id": user_id, "memory_id": one["memory_id"], **agent})}
        for one in shorten(page, asked)["items"]
    ]
    return {
        "user_id": user_id,
        "memory_type": asked.memory_type.value,
        "items": items,
        "next_cursor": cursor,
        "next": None if cursor is None else MEMORIES.uri.expand({**again, "cursor": cursor}),
    }


def _describe_kind(user_id: str, kind: str) -> Resource:
    return Resource(
        uri=MEMORIES.uri.expand({"user_id": user_id, "memory_type": kind}),
        name=f"{kind} memories",
        title=f"{kind.replace('_', ' ').capitalize()} memories of {user_id}",
        mime_type=JSON,
    )


def _describe_one(memory: dict[str, Any]) -> Resource:
    words = " ".join(memory["content"].split())
    name = words if len(words) <= _NAME_CHARS else f"{words[: _NAME_CHARS - 1]}…"
    return Resource(uri=memory["uri"], name=name, mime_type=JSON)
