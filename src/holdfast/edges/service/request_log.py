"""Each request has an id, is counted, and is one line of the log; an error that nobody expected is an answer, too."""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast import __version__
from holdfast.core.errors import HoldfastError
from holdfast.edges.service.logs import redact
from holdfast.edges.service.loopback import header, refuse
from holdfast.edges.service.probes import PATHS
from holdfast.telemetry import Telemetry

_OPTIONS: Final = {Histogram: {"buckets": (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)}}
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


_METRICS: Final[Mapping[str, tuple[Any, Sequence[str], str]]] = {
    "requests": (Counter, ("method", "route", "status"), "Requests that were answered; 499: the caller left before."),
    "request_seconds": (Histogram, ("method", "route"), "How long requests took, until the end of their answer."),
    "requests_in_flight": (Gauge, (), "Requests that are being answered."),
}


class Traffic:
    """Counts requests by route, in a registry of its own. Labels have few values, whatever callers send."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.store_up = Gauge("holdfast_store_up", "1 if the store's metrics could be read.", registry=self.registry)
        info = Gauge("holdfast_info", "1, with the version as a label.", ["version"], registry=self.registry)
        info.labels(__version__).set(1)
        about = "Callers whose rate is counted: keys, and addresses without one."
        self.rate_callers = Gauge("holdfast_rate_callers", about, registry=self.registry)
        own = {
            name: family(f"holdfast_http_{name}", about, labels, registry=self.registry, **_OPTIONS.get(family, {}))
            for name, (family, labels, about) in _METRICS.items()
        }
        self._requests, self._seconds, in_flight = own.values()
        self._inside = 0  # changed by the one thread of the loop
        in_flight.set_function(lambda: self._inside)
        self._known: dict[tuple[str, str, int], tuple[Any, Any]] = {}
        self.metrics = [*own.values(), self.store_up, info, self.rate_callers]
        """The metrics themselves, for those who describe them."""
        prometheus_client.ProcessCollector(registry=self.registry)

    def begin(self) -> None:
        """A request has come."""
        self._inside += 1

    def end(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request has ended."""
        self._inside -= 1
        counted = self._known.get((method, route, status))
        if counted is None:
            said = method if method in _METHODS else "other"
            counted = self._requests.labels(said, route, str(status)), self._seconds.labels(said, route)
            if said == method:  # of others there may be many
                self._known[method, route, status] = counted
        counted[0].inc()
        counted[1].observe(seconds)


_log = logging.getLogger("holdfast.requests")
_GIVEN: Final = re.compile(r"[0-9A-Za-z._-]{1,64}")
_CONVERTER: Final = re.compile(r":\w+}")
#: The label of requests that no route is for.
NO_ROUTE: Final = "none"
_CALLER_LEFT: Final = 499
#: An answer of the API is data: a browser is to run, load, frame and keep nothing of it.
_DATA: Final = b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
#: A page of the service runs its own scripts only; inline styles are what such pages are made with.
_PAGE: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; "
    b"connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
#: Which paths are pages: `/`, and those whose first folder is named here.
_PAGE_FOLDERS: Final = (["docs"], ["console"])
_ALWAYS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_REST: Final = ((b"cache-control", b"no-store"), (b"referrer-policy", b"no-referrer"))
_OF_DATA: Final = ((b"content-security-policy", _DATA), *_REST)
_OF_PAGES: Final = ((b"content-security-policy", _PAGE), *_REST)
#: What most answers say themselves.
_PLAIN: Final = frozenset({b"content-type", b"content-length"})


class RequestLog:
    """The outermost layer; it tells browsers to be careful with each answer, too.

    A caller's own ``X-Request-ID`` is kept if it is a plain one.
    """

    def __init__(
        self,
        app: ASGIApp,
        traffic: Traffic,
        *,
        timer: Callable[[], float] = time.perf_counter,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._app = app
        self._telemetry = telemetry
        self._traffic = traffic
        self._timer = timer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._telemetry is None:
            await self._answer(scope, receive, send)
            return
        with self._telemetry.request(scope["headers"], scope["method"]) as end:
            status = await self._answer(scope, receive, send)
            end(route_of(scope), status)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> int:
        """Answer a request; its status."""
        given = header(scope, b"x-request-id") or ""
        request_id = given if _GIVEN.fullmatch(given) else secrets.token_hex(16)
        scope.setdefault("state", {})["request_id"] = request_id
        answer = _Answer(send, request_id, scope["path"])
        began = self._timer()
        self._traffic.begin()
        try:
            await self._run(scope, receive, answer)
        finally:
            self._record(scope, answer, request_id, self._timer() - began)
        return answer.status or _CALLER_LEFT

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
        # Machines ask probes every few seconds; a log of them tells nothing.
        level = logging.DEBUG if route in PATHS and status < 500 else logging.INFO
        if not _log.isEnabledFor(level):
            return
        fields: dict[str, Any] = {
            "request_id": redact(request_id),
            "method": redact(scope["method"]),
            "route": route,
            "status": status,
            "ms": round(seconds * 1_000, 3),
            "bytes": answer.length,
            "client": scope["client"][0] if scope.get("client") else None,
            "key_id": getattr(scope["state"].get("caller"), "key_id", None),  # of whoever asked, if that was found out
        }
        entry = logging.LogRecord(_log.name, level, "", 0, "request", None, None)
        # Without looking for who called this, which is known, and for secrets in what callers do not choose.
        entry.__dict__.update(fields=fields, is_plain=True)
        _log.handle(entry)


class _Answer:
    """What was answered, as it went by. What an app says itself about caching and contents stays."""

    def __init__(self, send: Send, request_id: str, path: str) -> None:
        self._send = send
        self._request_id = request_id.encode()
        self._is_page = path == "/" or path.split("/", 2)[1:2] in _PAGE_FOLDERS
        self.status: int | None = None
        self.length = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message.get("headers", ()))
            said = {name.lower() for name, _ in headers}
            headers += (*_ALWAYS, (b"x-request-id", self._request_id))
            defaults = _OF_PAGES if self._is_page else _OF_DATA
            headers += defaults if said <= _PLAIN else [pair for pair in defaults if pair[0] not in said]
            message = {**message, "headers": headers}
        else:
            self.length += len(message.get("body", b""))
        await self._send(message)


def route_of(scope: Scope) -> str:
    """The template of the route that a request took: a path names users and memories, its template names nobody."""
    path = getattr(scope.get("route"), "path", None)
    return _name_route(path) if isinstance(path, str) and path else NO_ROUTE


@cache
def _name_route(path: str) -> str:
    return _CONVERTER.sub("}", path)
