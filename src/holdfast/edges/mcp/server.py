"""The server: tools and resources, behind the SDK's protocol."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from anyio import to_thread
from mcp.server import Server, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    TextResourceContents,
)
from starlette.requests import Request

from holdfast import __version__
from holdfast.core.errors import quote
from holdfast.edges.access.gate import Gate
from holdfast.edges.mcp.resources import JSON, TEMPLATES, list_resources, read_resource
from holdfast.edges.mcp.tools import Defaults, call_tool, describe_tool, error_result, protocol_error
from holdfast.edges.operations.catalog import TOOLS

_Context = ServerRequestContext[Any, Any]
_Page = PaginatedRequestParams | None
_Answer = TypeVar("_Answer")
#: What a caller may reach: the gate of one request, which is ``None`` where there is no HTTP.
GateOf = Callable[[Request | None], Gate]

INSTRUCTIONS: Final = """\
Holdfast is the user's memory across conversations. Before you answer something that may depend on earlier
conversations, look with memory_search. When the user says something worth knowing later (a preference, a fact, a
decision), keep it with memory_add: one thought each, in a sentence that stands by itself. Correct what has changed
with memory_update; forget with memory_delete what the user wants forgotten (memory_restore undoes it for 15 days).
What is remembered has a lifetime: memory_rules says how long each kind is kept, memory_explain why something is still
there, or no longer."""


def build_server(gate_of: GateOf, *, defaults: Defaults | None = None, keyed: bool = False) -> Server[Any]:
    """The MCP server. ``gate_of`` gives the gate of a request, and is asked anew for each; ``defaults`` say whose
    memory is meant where a call does not; ``keyed`` says that callers come with keys, which may be for one user.
    """
    handlers = Handlers(gate_of, defaults or Defaults(), keyed=keyed)
    return Server(
        "holdfast",
        version=__version__,
        title="Holdfast",
        description="Memory for AI agents that knows when to let go.",
        instructions=INSTRUCTIONS,
        get_tool_input_schema=handlers.input_schema,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_resource_templates,
        on_read_resource=handlers.read_resource,
    )


class Handlers:
    """What is answered to each request. The engine blocks, so all that asks it runs in worker threads."""

    def __init__(self, gate_of: GateOf, defaults: Defaults, *, keyed: bool) -> None:
        self._gate_of = gate_of
        self._defaults = defaults
        self._tools = {name: describe_tool(tool, defaults, keyed=keyed) for name, tool in TOOLS.items()}

    def input_schema(self, name: str) -> dict[str, Any] | None:
        """The schema of a tool's arguments."""
        tool = self._tools.get(name)
        return None if tool is None else tool.input_schema

    async def list_tools(self, context: _Context, _params: _Page) -> ListToolsResult:
        """The tools that the caller may use."""
        caller = (await _in_thread(partial(self._gate_of, context.request))).principal
        return ListToolsResult(tools=[self._tools[name] for name, tool in TOOLS.items() if tool.is_for(caller)])

    async def call_tool(self, context: _Context, params: CallToolRequestParams) -> CallToolResult:
        """Run a tool."""
        tool = TOOLS.get(params.name)
        if tool is None:
            message = f"there is no tool {quote(params.name)}; there are {', '.join(TOOLS)}"
            raise MCPError(code=INVALID_PARAMS, message=message)

        def run() -> CallToolResult:
            return call_tool(tool, params.arguments, self._gate_of(context.request), self._defaults)

        try:
            return await to_thread.run_sync(run)
        except Exception as problem:  # noqa: BLE001 - the edge: whatever fails is an answer, too
            return error_result(problem)

    async def list_resources(self, context: _Context, params: _Page) -> ListResourcesResult:
        """The memories of the user that is meant where nobody is named."""
        cursor = None if params is None else params.cursor
        found, after = await _in_thread(lambda: list_resources(self._gate_of(context.request), self._defaults, cursor))
        return ListResourcesResult(resources=found, next_cursor=after)

    async def list_resource_templates(self, _context: _Context, _params: _Page) -> ListResourceTemplatesResult:
        """How the memories of any user are named."""
        return ListResourceTemplatesResult(resource_templates=[one.describe() for one in TEMPLATES])

    async def read_resource(self, context: _Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        """What a resource holds."""
        uri = str(params.uri)
        text = await _in_thread(lambda: read_resource(uri, self._gate_of(context.request), self._defaults), uri)
        return ReadResourceResult(contents=[TextResourceContents(uri=uri, text=text, mime_type=JSON)])


async def _in_thread(do: Callable[[], _Answer], uri: str | None = None) -> _Answer:
    """Do something in a worker thread; what fails is answered as an error of the protocol."""
    try:
        return await to_thread.run_sync(do)
    except Exception as problem:  # noqa: BLE001 - the edge: it is logged with its traceback, and nothing of it shown
        raise protocol_error(problem, uri) from None
