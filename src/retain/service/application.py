"""The API that is served: REST, with MCP at ``/mcp``."""

from __future__ import annotations

from starlette.middleware import Middleware
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from retain.api import build_app
from retain.engine import Retain
from retain.mcp.serving import McpApp
from retain.service.recording import note_route


def build_api(retain: Retain, *, keys_required: bool) -> ASGIApp:
    """The application over an open store. With keys it may be called by any name; without, LocalOnly sees to that."""
    mcp = McpApp(
        retain,
        keys_required=keys_required,
        hosts=None if keys_required else (),
        max_request_bytes=retain.settings.request_bytes,
    )
    app = build_app(retain, keys_required=keys_required, lifespan=lambda _: mcp.running())
    app.router.routes.append(Route("/mcp", mcp))  # a mount would answer below that path, not at it
    app.user_middleware.append(Middleware(_Routed))  # the innermost: it sees what the router was given
    return app


class _Routed:
    """Tells the layers around the application which route a request took."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        finally:
            note_route(scope)
