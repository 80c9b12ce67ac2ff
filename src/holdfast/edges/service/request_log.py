"""Each request has an id, is counted, and is one line of the log; an error that nobody expected is an answer, too."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.core.access import Principal
from holdfast.core.errors import HoldfastError
from holdfast.edges.service.asgi import header, refuse
from holdfast.edges.service.traffic import Traffic

_log = logging.getLogger("holdfast.requests")
_GIVEN: Final = re.compile(r"[0-9A-Za-z._-]{1,64}")
#: Asked for every few seconds by machines; a log of them tells nothing.
_QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_CONVERTER: Final = re.compile(r":\w+}")
#: The label of requests that no route is for.
NO_ROUTE: Final = "none"
_CALLER_LEFT: Final = 499


class Recorded:
    """The outermost layer. A caller's own ``X-Request-ID`` is kept if it is a plain one."""

    def __init__(self, app: ASGIApp, traffic: Traffic, *, timer: Callable[[], float] = time.perf_counter) -> None:
        self._app = app
        self._traffic = traffic
        self._timer = timer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = header(scope, b"x-request-id") or ""
        request_id = given if _GIVEN.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        answer = _Answer(send, request_id)
        began = self._timer()
        self._traffic.begin()
        try:
            await self._run(scope, receive, answer)
        finally:
            self._record(scope, answer, request_id, self._timer() - began)

    async def _run(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        try:
            await self._app(scope, receive, answer.send)
        except Exception as problem:  # noqa: BLE001 - whatever it is, the caller gets an answer and the log a line
            fields = {"request_id": scope["state"]["request_id"], "route": route_of(scope)}
            _log.error("a request failed unexpectedly", exc_info=problem, extra={"fields": fields})
            if answer.status is None:
                said = HoldfastError("something failed that should not; the log has it under this request's id")
                await refuse(scope, answer.send, said)

    def _record(self, scope: Scope, answer: _Answer, request_id: str, seconds: float) -> None:
        status = answer.status or _CALLER_LEFT
        route = route_of(scope)
        self._traffic.end(scope["method"], route, status, seconds)
        level = logging.DEBUG if route in _QUIET and status < 500 else logging.INFO
        if not _log.isEnabledFor(level):
            return
        fields: dict[str, Any] = {
            "request_id": request_id,
            "method": scope["method"],
            "route": route,
            "status": status,
            "ms": round(seconds * 1_000, 3),
            "bytes": answer.length,
            "client": scope["client"][0] if scope.get("client") else None,
            "key_id": _key_id(scope),
        }
        _log.log(level, "request", extra={"fields": fields})


class _Answer:
    """What was answered, as it went by."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id.encode()
        self.status: int | None = None
        self.length = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", self._request_id)]}
        else:
            self.length += len(message.get("body", b""))
        await self._send(message)


def _key_id(scope: Scope) -> str | None:
    """Of whoever asked, if the API found that out."""
    caller = scope["state"].get("caller")
    principal = caller if caller is None or isinstance(caller, Principal) else caller.gate.principal
    key_id: str | None = None if principal is None else principal.key_id
    return key_id


def note_route(scope: Scope) -> None:
    """Let the layers outside of one that passes on a scope of its own see which route was taken."""
    if "state" in scope and "route" in scope:
        scope["state"]["route"] = scope["route"]


def route_of(scope: Scope) -> str:
    """The template of the route that a request took: a path names users and memories, its template names nobody."""
    route = scope.get("route") or scope["state"].get("route")
    path = getattr(route, "path", None)
    return _CONVERTER.sub("}", path) if isinstance(path, str) and path else NO_ROUTE
