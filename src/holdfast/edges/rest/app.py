"""The application: every route behind the guard, every error in one form, and a page that describes it all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from holdfast import __version__
from holdfast.access.replies import Replies
from holdfast.edges.access.callers import Callers
from holdfast.edges.rest import errors
from holdfast.edges.rest.description import describe
from holdfast.edges.rest.docs_page import render, render_index
from holdfast.edges.rest.routes import PREFIX, SentPaths, answer, methods_at, route_table
from holdfast.engine import Holdfast

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]
#: The description, once it was made: all applications of a process are described alike.
_DESCRIBED: Final[dict[bool, dict[str, Any]]] = {}
_ABOUT: Final = "Memory for AI agents that knows when to let go."
_MAX_QUERY_CHARS: Final = 200
#: What the page at ``/`` leads to.
_PATHS: Final = MappingProxyType(
    {
        "The REST API, operation by operation": "/docs",
        "The same for programs (OpenAPI)": "/openapi.json",
        "The MCP server, for agents": "/mcp",
        "Whether the process answers": "/healthz",
        "Whether the service can do its work": "/readyz",
        "Metrics for Prometheus": "/metrics",
    }
)


def build_app(
    holdfast: Holdfast,
    *,
    keys_required: bool,
    replies: Replies | None = None,
    callers: Callers | None = None,
    lifespan: Lifespan | None = None,
) -> FastAPI:
    """The REST API over an open engine, which stays the caller's to close.

    Without ``keys_required`` a caller without a key is the local one, who may do everything: serve that to nobody but
    the machine itself. ``callers`` are those of the process, where more than this is served. ``lifespan`` is
    entered while the application runs.
    """
    app = FastAPI(
        title="Holdfast",
        version=__version__,
        description=_ABOUT,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        swagger_ui_oauth2_redirect_url=None,
        redirect_slashes=False,
    )
    app.state.callers = callers or Callers(holdfast, keys_required=keys_required)
    app.state.replies = replies or holdfast.replies
    errors.install(app, methods_at=methods_at)
    app.add_middleware(SentPaths)
    app.router.routes.extend(route_table())  # as they are: routers within it would take time with each request
    _add_documentation(app, keys_required=keys_required)
    return app


def _add_documentation(app: FastAPI, *, keys_required: bool) -> None:
    """``/`` leads to the rest; ``/openapi.json`` describes the API to programs, and ``/docs`` to people."""

    def openapi() -> dict[str, Any]:
        if keys_required not in _DESCRIBED:
            _DESCRIBED[keys_required] = describe(app, keys_required=keys_required)
        return _DESCRIBED[keys_required]

    def index() -> Response:
        return HTMLResponse(render_index(app.title, app.version, _ABOUT, _PATHS))

    rendered = lru_cache(16)(lambda base_url, query: render(app.openapi(), base_url, query))

    def for_programs() -> Response:  # in a thread: the first time it takes a while
        return answer(app.openapi())

    def for_people(request: Request, q: str = "") -> Response:
        return HTMLResponse(rendered(str(request.base_url), q[:_MAX_QUERY_CHARS]))

    def paths() -> Response:
        return answer({"name": app.title, "version": app.version, "docs": "/docs", "openapi": "/openapi.json"})

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to change it
    for path, handler in (("/", index), (PREFIX, paths), ("/openapi.json", for_programs), ("/docs", for_people)):
        app.add_api_route(path, handler, methods=["GET"], include_in_schema=False)
