"""The API that is served: REST, with MCP at ``/mcp``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.edges.access.callers import WORKERS, Callers
from holdfast.edges.mcp.transport import McpApp
from holdfast.edges.rest.app import build_app
from holdfast.edges.service.request_log import note_route
from holdfast.engine import Holdfast

MCP: Final = "/mcp"


def build_api(holdfast: Holdfast, *, keys_required: bool) -> FastAPI:
    """The application over an open store. With keys it may be called by any name; without, LocalOnly sees to that."""
    callers = Callers(holdfast)
    mcp = McpApp(
        holdfast,
        callers=callers,
        keys_required=keys_required,
        hosts=None if keys_required else (),
        max_request_bytes=holdfast.settings.request_bytes,
    )
    app = build_app(holdfast, keys_required=keys_required, callers=callers, lifespan=lambda _: _running(mcp))
    app.router.routes.append(Route(MCP, _Named(mcp, MCP)))  # a mount would answer below that path, not at it
    app.user_middleware.append(Middleware(_Routed))  # the innermost: it sees what the router was given
    return app


@asynccontextmanager
async def _running(mcp: McpApp) -> AsyncIterator[None]:
    current_default_thread_limiter().total_tokens = WORKERS
    async with mcp.running():
        yield


class _Named:
    """An application that is a route by itself."""

    def __init__(self, app: ASGIApp, path: str) -> None:
        self._app = app
        self.path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self
        await self._app(scope, receive, send)


class _Routed:
    """Tells the layers around the application which route a request took."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        finally:
            note_route(scope)
