"""The way into every route: who calls is known, may do it, and has spelled the question right, before it is read.

A route without a declaration of what it needs cannot be made.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any, Final
from urllib.parse import unquote

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from starlette.convertors import Convertor, register_url_convertor
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.access.replies import Replies
from holdfast.core.access import Right
from holdfast.core.errors import InvalidInputError, RequestTooLargeError, quote
from holdfast.edges.access.callers import Shares
from holdfast.edges.rest.idempotency import answer_once, do_once, key_of
from holdfast.edges.rest.identity import Identity
from holdfast.edges.rest.rights import Caller, Needs, Reach

#: Under these names a route says what it needs, to readers of the documentation too.
RIGHT: Final = "x-holdfast-right"
REACH: Final = "x-holdfast-reach"
#: Marks routes that may take longer than a request usually may.
LONG: Final = "x-holdfast-long"
PREFIX: Final = "/v1"
#: A question is not larger than this: it holds no memories. Reading it as JSON would keep all other callers waiting.
_MOST_ASKED: Final = 512 * 1024


class GuardedRoute(APIRoute):
    """A route that tells what it needs, and is reached only by those who have it."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        said: Mapping[str, Any] = options.get("openapi_extra") or {}
        if RIGHT not in said or REACH not in said:
            raise TypeError(f"the route {path} does not say what it needs: declare it with Routes")
        self.needs = Needs(Right(said[RIGHT]), Reach(said[REACH]))
        (self.method,) = options["methods"]
        self.is_long: bool = said.get(LONG, False)
        super().__init__(path, do_once(endpoint), **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """As FastAPI's own, behind the guard."""
        handle = super().get_route_handler()
        known = frozenset(field.alias for field in self.dependant.query_params)

        async def guarded(request: Request) -> Response:
            identity: Identity = request.app.state.identity
            replies: Replies = request.app.state.replies
            shares: Shares = request.app.state.shares
            caller = await identity.caller(request, self.needs)
            _check_query(request, known)
            request.state.caller = caller
            key = key_of(request)
            await _read_body(request, _MOST_ASKED if self.needs.right is Right.READ else None)
            async with shares.place(caller.gate.principal):  # once all of it is here: who sends slowly takes no place
                if key is None or self.needs.right is Right.READ:  # what only looks may look again
                    return await handle(request)
                return await answer_once(request, key, caller, replies, handle, is_long=self.is_long)

        return guarded


async def _caller(request: Request) -> Caller:
    found: Caller = request.state.caller
    return found


#: Who asks: what a handler takes to get at an engine.
Asking = Annotated[Caller, Depends(_caller)]


async def _read_body(request: Request, most: int | None) -> None:
    """Read a request to its end; ``RequestTooLargeError`` for a question of more than ``most`` bytes."""
    said = request.headers.get("content-length", "")
    length = int(said) if said.isdecimal() else len(await request.body())
    if most is not None and length > most:
        raise RequestTooLargeError(f"a question has at most {most:,} bytes, and this has {length:,}; ask for less")
    await request.body()


def _check_query(request: Request, known: frozenset[str]) -> None:
    """A question that nobody reads is refused: a misspelt filter would let everything through."""
    if not request.scope["query_string"]:
        return
    unknown = next((name for name in request.query_params if name not in known), None)
    if unknown is not None:
        names = ", ".join(sorted(known)) or "none"
        raise InvalidInputError(f"there is no query parameter {quote(unknown)} here; known are: {names}")
    twice = next((name for name in known if len(request.query_params.getlist(name)) > 1), None)
    if twice is not None:
        raise InvalidInputError(f"the query parameter {twice!r} is given more than once; give it once")


# --- ids in paths -----------------------------------------------------------------------------------------------------


class _Id(Convertor[str]):
    """One segment of a path, still as it was sent; read as what it means. So an id may have a slash in it."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value, errors="surrogateescape")  # what is no UTF-8 is refused as any text that is none

    def to_string(self, value: str) -> str:
        raise NotImplementedError("paths are not made from ids here")


register_url_convertor("id", _Id())


class SentPaths:
    """Lets routes of the API see paths as they were sent, so that ``%2F`` in an id does not part it in two."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes | None = scope.get("raw_path")
        if scope["type"] == "http" and raw is not None and scope["path"].startswith(f"{PREFIX}/"):
            sent = raw.partition(b"?")[0].decode("latin-1")
            if sent.startswith(f"{PREFIX}/"):
                scope = {**scope, "path": sent}
        await self._app(scope, receive, send)
