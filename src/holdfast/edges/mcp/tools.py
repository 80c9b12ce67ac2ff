"""Tools: operations of the table as MCP clients see and call them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from itertools import chain
from typing import Any, Final, NamedTuple

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, CallToolResult, TextContent, Tool, ToolAnnotations
from pydantic import ValidationError

from holdfast.core.access import Principal, Right
from holdfast.core.audit import MCP
from holdfast.core.errors import InvalidInputError, InvalidScopeError
from holdfast.core.records import MemoryType
from holdfast.core.values import check_id
from holdfast.edges.access.gate import Gate
from holdfast.edges.operations.errors import form_error, publish
from holdfast.edges.operations.models import Input
from holdfast.edges.operations.operation import Operation, Reach
from holdfast.edges.operations.outputs import encode

#: The agent that sees a memory where neither the call, the server nor the key names one.
DEFAULT_AGENT: Final = "mcp"


class Defaults(NamedTuple):
    """Whose memory is meant where a call does not say."""

    user_id: str | None = None
    agent_id: str | None = None

    def fill(self, arguments: dict[str, Any], caller: Principal) -> dict[str, Any]:
        """Arguments with the user and the agent: those given, the server's, or the only ones the key is bound to."""
        user_id, agent_id = arguments.get("user_id"), arguments.get("agent_id")
        if user_id is None:
            user_id = self.user_id or _only(caller.users)
        if agent_id is None:
            agent_id = self.agent_id or _only(caller.agents)
        if user_id is None:
            raise InvalidScopeError("the call does not say whose memory it is about; give user_id")
        if agent_id is None and caller.agents is not None:
            raise InvalidScopeError(
                "the call does not say which agent it is for, and the key has several; give agent_id"
            )
        found = {"user_id": user_id, "agent_id": agent_id or DEFAULT_AGENT}
        for what, given in found.items():
            check_id(given, what)  # one of each: what is done to all of them is no work for a model
        return {**arguments, **found}


def describe_tool(operation: Operation, defaults: Defaults, *, keyed: bool) -> Tool:
    """An operation as a client sees it. ``keyed`` says that callers come with keys, which may be for one user."""
    output = operation.output if operation.brief is None else operation.brief.output
    read, safe = operation.right is Right.READ, operation.method == "POST"
    return Tool(
        name=operation.tool or operation.name,
        title=operation.summary,
        description=" ".join(operation.description.split()),
        input_schema=_describe_input(operation, defaults, keyed=keyed),
        output_schema=_inline(output.model_json_schema()),
        annotations=ToolAnnotations(
            read_only_hint=read,
            destructive_hint=not (read or safe),
            idempotent_hint=read or not safe,
            open_world_hint=False,
        ),
        _meta={"right": operation.right.value, "reach": operation.reach.value},
    )


def read_input(operation: Operation, arguments: Mapping[str, Any], gate: Gate, defaults: Defaults) -> Input:
    """The input of a call: complete, and checked."""
    given = {name: _unpack(operation, name, value) for name, value in arguments.items()}
    given = {**operation.tool_defaults, **given}
    if operation.reach is Reach.MEMORY:
        given = defaults.fill(given, gate.principal)
    try:
        asked = operation.inputs.model_validate(given, strict=False)  # some clients send numbers as text
    except ValidationError as problem:
        found = [{**one, "loc": ("body", *one["loc"])} for one in problem.errors(include_input=False)]
        before = f"the arguments of {operation.tool or operation.name} are wrong: "
        raise form_error(found, given, operation.inputs, before, skip=1) from None
    kinds = [getattr(asked, name, None) or () for name in ("memory_types", "kinds")]
    if MemoryType.WORKING in (getattr(asked, "memory_type", None), *chain(*kinds)):
        raise InvalidInputError("working memory ends with the process of an agent; a server keeps the other kinds")
    return asked


def call_tool(
    operation: Operation, arguments: Mapping[str, Any] | None, gate: Gate, defaults: Defaults
) -> CallToolResult:
    """Do what a client asks for; the answer as JSON in few characters."""
    asked = read_input(operation, arguments or {}, gate, defaults)
    given = operation.bind(gate, asked, MCP)()
    text = encode(given if operation.brief is None else operation.brief.shorten(given, asked)).decode()
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=json.loads(text))


def error_result(problem: Exception) -> CallToolResult:
    """An error as the answer to a tool call: a sentence for the model, ``{"error": {…}}`` for programs."""
    error, _ = _describe_error(problem)
    text = TextContent(type="text", text=f"{error['message']} ({error['code']}) {error['advice']}")
    return CallToolResult(content=[text], structured_content={"error": error}, is_error=True)


def protocol_error(problem: Exception, uri: str | None = None) -> MCPError:
    """An error as the answer to anything else than a tool call."""
    error, status = _describe_error(problem)
    data = {"error": error} if uri is None else {"uri": uri, "error": error}
    return MCPError(code=INTERNAL_ERROR if status >= 500 else INVALID_PARAMS, message=error["message"], data=data)


def _describe_error(problem: Exception) -> tuple[dict[str, Any], int]:
    error = publish(problem)._asdict()
    return error, error.pop("status")


def _unpack(operation: Operation, name: str, value: object) -> object:
    """An argument as it is meant: some clients send objects and lists as JSON text."""
    if not isinstance(value, str) or name not in _packable(operation.inputs):
        return value
    try:
        inner = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return inner if isinstance(inner, dict | list) else value


@cache
def _packable(inputs: type[Input]) -> frozenset[str]:
    """Fields that are objects or lists, and no text but for fixed words."""
    types = {
        name: {one.get("type") for one in schema.get("anyOf", [schema]) if "const" not in one}
        for name, schema in inputs.model_json_schema()["properties"].items()
    }
    return frozenset(name for name, own in types.items() if own & {"object", "array"} and "string" not in own)


def _describe_input(operation: Operation, defaults: Defaults, *, keyed: bool) -> dict[str, Any]:
    schema = _inline(operation.inputs.model_json_schema())
    schema.setdefault("properties", {})
    for name, value in operation.tool_defaults.items():
        schema["properties"][name]["default"] = value
    if operation.reach is not Reach.MEMORY:
        return schema
    user, agent = schema["properties"]["user_id"], schema["properties"]["agent_id"]
    optional = {"agent_id"}
    if defaults.user_id is not None:
        user["description"] += f" Left out, it is {defaults.user_id!r}."
        optional.add("user_id")
    elif keyed:
        user["description"] += " Can be left out only if the key is for one user."
        optional.add("user_id")
    own = f"{defaults.agent_id or DEFAULT_AGENT!r}"
    only = "the key's only agent, or " if keyed and defaults.agent_id is None else ""
    agent["description"] += f" Left out, it is {only}{own}."
    schema["required"] = [name for name in schema["required"] if name not in optional]
    return schema


def _inline(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without examples, and with its lists of values where they are used. A server has no working memory."""
    kept = {name: one for name, one in schema.get("$defs", {}).items() if "enum" not in one}

    def walk(part: Any) -> Any:
        if isinstance(part, list):
            return [walk(one) for one in part]
        if not isinstance(part, dict):
            return part
        values = schema.get("$defs", {}).get(str(part.get("$ref", "")).rsplit("/", 1)[-1], {}).get("enum")
        if values is not None:
            named = {name: one for name, one in part.items() if name != "$ref"}
            return {**named, "type": "string", "enum": [one for one in values if one != MemoryType.WORKING]}
        return {name: walk(one) for name, one in part.items() if name not in ("example", "examples")}

    inlined: dict[str, Any] = walk({name: one for name, one in schema.items() if name != "$defs"})
    return {**inlined, "$defs": walk(kept)} if kept else inlined


def _only(ids: frozenset[str] | None) -> str | None:
    return next(iter(ids)) if ids is not None and len(ids) == 1 else None
