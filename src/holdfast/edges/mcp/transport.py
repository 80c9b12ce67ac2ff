"""Serving: over stdio for one client on this machine, over streamable HTTP for many."""

from __future__ import annotations

import signal
import threading
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import anyio
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.core.access import LOCAL
from holdfast.core.errors import HoldfastError, InvalidInputError, UnauthenticatedError
from holdfast.edges.access.callers import Callers
from holdfast.edges.access.gate import Gate
from holdfast.edges.mcp.server import build_server
from holdfast.edges.mcp.tools import Defaults
from holdfast.edges.operations.errors import error_response
from holdfast.engine import Holdfast

#: The largest request, which is a memory of the largest size with its metadata, and room for JSON to escape it.
MAX_REQUEST_BYTES: Final = 20 * 1024 * 1024
DEFAULT_TENANT: Final = "default"
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
    with _ended_by_interrupt():
        anyio.run(_run_stdio, server)


@contextmanager
def _ended_by_interrupt() -> Iterator[None]:
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
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


class McpApp:
    """The ASGI application for streamable HTTP. It answers at whatever path it is mounted, while it is ``running``.

    Each request is complete in itself: there are no sessions to lose, and any of several processes may answer it.
    """

    def __init__(
        self,
        holdfast: Holdfast,
        *,
        keys_required: bool,
        hosts: Collection[str] | None = (),
        defaults: Defaults | None = None,
        max_request_bytes: int = MAX_REQUEST_BYTES,
        callers: Callers | None = None,
    ) -> None:
        """``hosts`` are the names, besides loopback's, by which it may be called: a page of another name in somebody's
        browser gets nowhere, even where its name leads here. ``None``: any name, which only keys make safe.
        """
        if hosts is None and not keys_required:
            raise InvalidInputError("without keys, MCP is served under known names only; name the hosts")
        self._callers = callers or Callers(holdfast, keys_required=keys_required)
        self._security = _security(hosts)
        self._max_request_bytes = max_request_bytes
        self._server = build_server(self._gate_of, defaults=defaults, keyed=True)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While this block is open, requests are answered: for the lifespan of the application that it is part of."""
        self._server.streamable_http_app(
            stateless_http=True,
            json_response=True,
            max_request_body_size=self._max_request_bytes,
            transport_security=self._security,
        )
        async with self._server.session_manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request: who calls is found out first."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http":
            raise NotImplementedError(f"MCP is served over http, not {scope['type']}")
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

    async def _live(self, receive: Receive, send: Send) -> None:
        """The lifespan of an application of its own, where it is part of no other."""
        await receive()
        async with self.running():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


def _security(hosts: Collection[str] | None) -> TransportSecuritySettings:
    if hosts is None:
        return TransportSecuritySettings(enable_dns_rebinding_protection=False)
    names = [*_LOOPBACK, *hosts]
    ported = [spelled for name in names for spelled in (name, f"{name}:*")]
    origins = [f"{scheme}://{name}" for scheme in ("http", "https") for name in ported]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True, allowed_hosts=ported, allowed_origins=origins
    )
