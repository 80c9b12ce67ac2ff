"""The application: every route behind the guard, every error in one form, and a page that describes it all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from typing import Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute

from holdfast.edges.access.callers import Callers
from holdfast.edges.rest.description import INFO, describe
from holdfast.edges.rest.docs_page import render, render_index
from holdfast.edges.rest.errors import error_handlers
from holdfast.edges.rest.routes import PREFIX, NamedRoute, SentPaths, answer, methods_at, route_table
from holdfast.engine import Holdfast

_MAX_QUERY_CHARS: Final = 200


def build_app(
    holdfast: Holdfast,
    *,
    keys_required: bool,
    callers: Callers | None = None,
    lifespan: Callable[[Starlette], AbstractAsyncContextManager[None]] | None = None,
    routes: Sequence[BaseRoute] = (),
) -> Starlette:
    """The REST API over an open engine, which stays the caller's to close.

    Without ``keys_required`` a caller without a key is the local one, who may do everything: serve that to nobody but
    the machine itself. ``callers`` are those of the process, where more than this is served: by other ``routes``.
    ``lifespan`` is entered while the application runs.
    """
    app = Starlette(
        routes=[*route_table(), *_documentation(keys_required=keys_required), *routes],
        middleware=[Middleware(SentPaths)],
        exception_handlers=error_handlers(methods_at),
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.callers = callers or Callers(holdfast, keys_required=keys_required)
    app.state.replies = holdfast.replies
    return app


def _documentation(*, keys_required: bool) -> list[BaseRoute]:
    """``/`` leads to the rest; ``/openapi.json`` describes the API to programs, and ``/docs`` to people."""
    rendered = lru_cache(16)(lambda base_url, query: render(describe(keys_required=keys_required), base_url, query))

    def index(_request: Request) -> Response:
        return HTMLResponse(render_index(INFO))

    def for_programs(_request: Request) -> Response:  # in a thread: the first time it takes a while
        return answer(describe(keys_required=keys_required))

    def for_people(request: Request) -> Response:
        return HTMLResponse(rendered(str(request.base_url), request.query_params.get("q", "")[:_MAX_QUERY_CHARS]))

    def paths(_request: Request) -> Response:
        return answer({"name": INFO["title"], "version": INFO["version"], "docs": "/docs", "openapi": "/openapi.json"})

    handlers = {"/": index, PREFIX: paths, "/openapi.json": for_programs, "/docs": for_people}
    return [NamedRoute(path, handler) for path, handler in handlers.items()]
