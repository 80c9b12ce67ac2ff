"""Serving: over stdio for one client on this machine, over streamable HTTP for many."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from importlib import resources
from typing import Any, Final, TypeVar

import anyio
import mcp_types as types
from anyio import to_thread
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast import __version__
from holdfast.core.access import LOCAL
from holdfast.core.errors import HoldfastError, UnauthenticatedError, quote
from holdfast.edges.access.callers import Callers
from holdfast.edges.access.gate import DEFAULT_TENANT, Gate
from holdfast.edges.mcp.prompts import get_prompt, list_prompts
from holdfast.edges.mcp.resources import JSON, TEMPLATES, list_resources, read_resource
from holdfast.edges.mcp.tools import Defaults, call_tool, describe_tool, error_result, protocol_error
from holdfast.edges.operations.catalog import TOOLS
from holdfast.edges.operations.errors import error_response
from holdfast.engine import Holdfast

_Call = ServerRequestContext[Any, Any]
_Page = types.PaginatedRequestParams | None
_Answer = TypeVar("_Answer")
#: What a caller may reach: the gate of one request, which is ``None`` where there is no HTTP.
GateOf = Callable[[Request | None], Gate]

#: So long is waited for answers to what was asked before the input ended.
_LAST_SECONDS: Final = 30.0
#: What a model is told of the tools as a whole.
INSTRUCTIONS: Final = resources.files(__package__).joinpath("instructions.txt").read_text(encoding="utf-8").strip()


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
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
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

    async def list_tools(self, context: _Call, _params: _Page) -> types.ListToolsResult:
        """The tools that the caller may use."""
        caller = (await _in_thread(partial(self._gate_of, context.request))).principal
        return types.ListToolsResult(tools=[self._tools[name] for name, tool in TOOLS.items() if tool.is_for(caller)])

    async def call_tool(self, context: _Call, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Run a tool."""
        tool = TOOLS.get(params.name)
        if tool is None:
            message = f"there is no tool {quote(params.name)}; there are {', '.join(TOOLS)}"
            raise MCPError(code=types.INVALID_PARAMS, message=message)

        def run() -> types.CallToolResult:
            return call_tool(tool, params.arguments, self._gate_of(context.request), self._defaults)

        try:
            return await to_thread.run_sync(run)
        except Exception as problem:  # noqa: BLE001 - the edge: whatever fails is an answer, too
            return error_result(problem)

    async def list_resources(self, context: _Call, params: _Page) -> types.ListResourcesResult:
        """The memories of the user that is meant where nobody is named."""
        cursor = None if params is None else params.cursor
        found, after = await _in_thread(lambda: list_resources(self._gate_of(context.request), self._defaults, cursor))
        return types.ListResourcesResult(resources=found, next_cursor=after)

    async def list_resource_templates(self, _context: _Call, _params: _Page) -> types.ListResourceTemplatesResult:
        """How the memories of any user are named."""
        return types.ListResourceTemplatesResult(resource_templates=[one.describe() for one in TEMPLATES])

    async def read_resource(self, context: _Call, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        """What a resource holds."""
        uri = str(params.uri)
        text = await _in_thread(lambda: read_resource(uri, self._gate_of(context.request), self._defaults), uri)
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, text=text, mime_type=JSON)])

    async def list_prompts(self, context: _Call, _params: _Page) -> types.ListPromptsResult:
        """The prompts that the caller may use."""
        found = await _in_thread(lambda: list_prompts(self._gate_of(context.request)))
        return types.ListPromptsResult(prompts=found)

    async def get_prompt(self, context: _Call, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        """What a prompt says."""
        given = params.arguments or {}
        return await _in_thread(lambda: get_prompt(params.name, given, self._gate_of(context.request), self._defaults))


async def _in_thread(do: Callable[[], _Answer], uri: str | None = None) -> _Answer:
    """Do something in a worker thread; what fails is answered as an error of the protocol."""
    try:
        return await to_thread.run_sync(do)
    except Exception as problem:  # noqa: BLE001 - the edge: it is logged with its traceback, and nothing of it shown
        raise protocol_error(problem, uri) from None


#: The largest request, which is a memory of the largest size with its metadata, and room for JSON to escape it.
MAX_REQUEST_BYTES: Final = 20 * 1024 * 1024
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_PRINCIPAL: Final = "holdfast.principal"


def serve_stdio(holdfast: Holdfast, *, secret: str | None = None, defaults: Defaults | None = None) -> None:
    """Serve the one client at standard input and output until it goes away.

    Nothing but the protocol gets onto standard output. With the ``secret`` of a key, the client may do what that key
    allows, for as long as it does; without, it is the one who sits at the machine.
    """

    def gate_of(_request: Request | None) -> Gate:
        principal = LOCAL if secret is None else holdfast.access.identify(secret)
        own = holdfast.tenant == DEFAULT_TENANT and not principal.is_operator  # nobody named another than the key's
        return Gate(holdfast, principal, None if own else holdfast.tenant)

    gate_of(None)  # a key that lets nobody in, or not here, is told before anything is served
    server = build_server(gate_of, defaults=defaults, keyed=secret is not None)
    with _end_on_interrupt():
        anyio.run(_run_stdio, server)


@contextmanager
def _end_on_interrupt() -> Iterator[None]:
    """Within the block an interrupt ends the process at once, as a termination does: the thread that waits for input
    cannot be woken. What is being written then is written whole, or not at all.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


async def _run_stdio(server: Server[Any]) -> None:
    async with stdio_server() as (incoming, outgoing), anyio.create_task_group() as group:
        onward, readable = anyio.create_memory_object_stream[SessionMessage | Exception]()
        replies, made = anyio.create_memory_object_stream[SessionMessage]()
        waiting: set[object] = set()
        group.start_soon(_read_stdio, incoming, onward, outgoing, waiting)
        group.start_soon(_write_stdio, made, outgoing, waiting)
        await server.run(readable, replies, server.create_initialization_options())
        group.cancel_scope.cancel()
        await outgoing.aclose()


async def _read_stdio(incoming: Any, onward: Any, outgoing: Any, waiting: set[object]) -> None:
    """Pass on what comes in. What cannot be read is answered here: the SDK would say nothing, and its caller wait. At
    the end of the input, what was asked before is answered first: the SDK would drop it.
    """
    async with onward:
        async for message in incoming:
            if isinstance(message, Exception):
                await outgoing.send(SessionMessage(_refuse_unreadable(message)))
                continue
            if isinstance(message.message, types.JSONRPCRequest):
                waiting.add(message.message.id)
            await onward.send(message)
        with anyio.move_on_after(_LAST_SECONDS):
            while waiting:
                await anyio.sleep(0.01)


async def _write_stdio(made: Any, outgoing: Any, waiting: set[object]) -> None:
    async for reply in made:
        await outgoing.send(reply)
        waiting.discard(getattr(reply.message, "id", None))


def _refuse_unreadable(problem: Exception) -> types.JSONRPCError:
    """The answer to what is no request, with the id that it has nevertheless."""
    wrong: Any = problem.errors()[0] if isinstance(problem, ValidationError) else {"type": "", "input": "", "msg": ""}
    given = wrong["input"]
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            given = None
    number = given.get("id") if isinstance(given, dict) else None
    code = types.PARSE_ERROR if wrong["type"] == "json_invalid" else types.INVALID_REQUEST
    message = f"the request cannot be read ({wrong['msg']}); send JSON of whole characters that is not nested too deep"
    return types.JSONRPCError(
        jsonrpc="2.0",
        id=number if isinstance(number, str | int) and not isinstance(number, bool) else None,
        error=types.ErrorData(code=code, message=message),
    )


class McpApp:
    """The ASGI application for streamable HTTP. It answers at whatever path it is a route of, while it is running.

    Each request is complete in itself: there are no sessions to lose, and any of several processes may answer it.
    Without keys it may be called by the names of this machine only: a page of another name in somebody's browser gets
    nowhere, even where its name leads here. With keys, any name is safe.
    """

    def __init__(self, callers: Callers, *, max_request_bytes: int = MAX_REQUEST_BYTES) -> None:
        self._callers = callers
        self._max_request_bytes = max_request_bytes
        self._server = build_server(self._gate_of, keyed=True)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """While this block is open, requests are answered: for the lifespan of the application that it is part of."""
        names = [spelled for name in _LOOPBACK for spelled in (name, f"{name}:*")]
        security = TransportSecuritySettings(
            enable_dns_rebinding_protection=not self._callers.keys_required,
            allowed_hosts=names,
            allowed_origins=[f"{scheme}://{name}" for scheme in ("http", "https") for name in names],
        )
        self._server.streamable_http_app(
            stateless_http=True,
            json_response=True,
            max_request_body_size=self._max_request_bytes,
            transport_security=security,
        )
        async with self._server.session_manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request: who calls is found out first."""
        if scope["method"] != "POST":  # without sessions there is nothing to listen to, and nothing to end
            await Response("MCP takes POST", 405, {"allow": "POST"})(scope, receive, send)
            return
        try:
            principal = await self._callers.principal(Headers(scope=scope))
            scope.setdefault("state", {})["caller"] = principal  # for the log, and for who counts requests
            async with self._callers.shares.slot(principal):
                await self._server.session_manager.handle_request({**scope, _PRINCIPAL: principal}, receive, send)
        except HoldfastError as problem:  # before the protocol begins: nobody calls, too many do, or the store is away
            await error_response(scope, problem)(scope, receive, send)

    def _gate_of(self, request: Request | None) -> Gate:
        if request is None:
            raise UnauthenticatedError("the call has no request, so that nobody is known to make it")
        return self._callers.gate(request.scope[_PRINCIPAL], request.headers)
