"""The application: every route behind the guard, every error in one form, and a page that describes it all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from holdfast.access.replies import Replies
from holdfast.core.errors import HoldfastError
from holdfast.edges.access.callers import Callers
from holdfast.edges.rest.description import INFO, describe
from holdfast.edges.rest.direct import WholeRequest
from holdfast.edges.rest.docs_page import render, render_index
from holdfast.edges.rest.errors import answer_error, error_handlers, respond
from holdfast.edges.rest.routes import PREFIX, OperationRoute, answer, direct_routes, methods_at, route_table
from holdfast.engine import Holdfast

_MAX_QUERY_CHARS: Final = 200
_API: Final = f"{PREFIX}/"


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
    app = Api(
        routes=[*route_table(), *_documentation(keys_required=keys_required), *routes],
        exception_handlers=error_handlers(methods_at),
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.callers = callers or Callers(holdfast, keys_required=keys_required)
    app.replies = holdfast.replies
    return app


#: Routes by method and path; those of operations whose path has ids in it by the number of its parts.
_Table = tuple[dict[tuple[str, str], Route], dict[tuple[str, int], list[OperationRoute]]]


class Api(Starlette):
    """Finds the route of a request in a table, and lets it answer without the layers that Starlette puts between.

    What has no route there (it is unknown, or its path has parts that only Starlette understands) goes Starlette's way.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # a coroutine: servers look
        """Answer a request, or start and stop with the process."""
        if scope["type"] == "http":
            _take_sent_path(scope)
            found = self._find(scope)
            if found is not None:
                scope["app"], scope["route"], scope["path_params"] = self, *found
                await _answer(found[0], scope, receive, send)
                return
        await super().__call__(scope, receive, send)

    @property
    def direct_paths(self) -> Collection[bytes]:
        """Where something may be answered directly."""
        return direct_routes().keys()

    def answer_directly(self, asked: WholeRequest) -> Response | None:
        """The answer to what is quick, if nobody waits meanwhile."""
        scope = asked.scope
        route = direct_routes()[scope["raw_path"]]
        if scope["method"] != route.method:
            return None
        scope["app"], scope["route"], scope["path_params"] = self, route, {}
        try:
            return self.callers.attempt(route.answer_directly, asked, self.callers)
        except (HoldfastError, HTTPException) as problem:
            return answer_error(Request(scope), problem, methods_at)

    def _find(self, scope: Scope) -> tuple[Route, dict[str, Any]] | None:
        method, path = scope["method"], scope["path"]
        exact, by_length = self._table
        route = exact.get((method, path))
        if route is not None:
            return route, {}
        for one in by_length.get((method, path.count("/")), ()):
            if match := one.path_regex.match(path):
                values = match.groupdict().items()
                return one, {name: one.param_convertors[name].convert(value) for name, value in values}
        return None

    @property
    def _table(self) -> _Table:
        if len(self.routes) != self._counted:  # some may be added before anything is asked
            self._counted, self._tables = len(self.routes), ({}, {})
            for route in self.routes:
                if isinstance(route, Route):
                    self._note(route)
        return self._tables

    def _note(self, route: Route) -> None:
        exact, by_length = self._tables
        for method in route.methods or ():
            if "{" not in route.path:
                exact.setdefault((method, route.path), route)
            elif isinstance(route, OperationRoute):
                by_length.setdefault((method, route.path.count("/")), []).append(route)

    callers: Callers
    replies: Replies
    _counted = -1
    _tables: _Table


def _take_sent_path(scope: Scope) -> None:
    """Let routes of the API see a path as it was sent, so that ``%2F`` in an id does not split it."""
    raw: bytes | None = scope.get("raw_path")
    if raw is not None and scope["path"].startswith(_API):
        sent = raw.partition(b"?")[0].decode("latin-1")
        if sent.startswith(_API):
            scope["path"] = sent


async def _answer(route: Route, scope: Scope, receive: Receive, send: Send) -> None:
    """Let a route answer; an error is answered in our form. What nobody foresaw is raised too, for the log."""
    request = Request(scope, receive)
    try:
        if not isinstance(route, OperationRoute):
            await route.handle(scope, receive, send)
            return
        response = await route.answer(request)
    except (HoldfastError, HTTPException) as problem:
        response = answer_error(request, problem, methods_at)
    except ClientDisconnect:  # before all of the request was here; nobody waits for an answer
        return
    except Exception as problem:
        await respond(request, problem)(scope, receive, send)
        raise
    await response(scope, receive, send)


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
    return [Route(path, handler) for path, handler in handlers.items()]
