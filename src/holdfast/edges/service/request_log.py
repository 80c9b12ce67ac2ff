"""Each request has an id, is counted, and is one line of the log; an error that nobody expected is an answer, too."""

from __future__ import annotations

import logging
import random
import re
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import cache
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast import __version__
from holdfast.core.errors import HoldfastError
from holdfast.edges.operations.errors import UNFORESEEN
from holdfast.edges.rest.direct import WholeRequest, find_direct_way
from holdfast.edges.rest.routes import Document
from holdfast.edges.service.logs import log_request, redact
from holdfast.edges.service.loopback import GIVE_UP, header, refusal
from holdfast.edges.service.probes import PATHS
from holdfast.telemetry import Telemetry

_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, float("inf"))
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Traffic:
    """Counts requests by route, in plain numbers: Prometheus's form is made of them when it asks.

    Labels have few values, whatever callers send. Only the thread of the loop counts.
    """

    def __init__(self) -> None:
        self.store_up = False
        """Whether the store's metrics could be read."""
        self.rate_callers: Callable[[], int] = lambda: 0
        self._inside = 0
        self._random_bits = random.Random().getrandbits  # noqa: S311 - no secret
        self._requests: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        self._seconds: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0] * (len(_BOUNDS) + 1))
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        prometheus_client.ProcessCollector(registry=self.registry)

    def new_id(self) -> str:
        """An id for a request: no secret, so that the system is not asked for each."""
        return f"{self._random_bits(128):032x}"

    def begin(self) -> None:
        """A request has come."""
        self._inside += 1

    def end(self) -> None:
        """A request has ended."""
        self._inside -= 1

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        if method not in _METHODS:
            method = "other"
        self._requests[method, route, str(status)] += 1
        times = self._seconds[method, route]
        times[bisect_left(_BOUNDS, seconds)] += 1
        times[-1] += seconds

    def collect(self) -> Iterator[Metric]:
        """All that was counted."""
        about = "Requests that were answered; 499: the caller left before."
        requests = CounterMetricFamily("holdfast_http_requests", about, labels=("method", "route", "status"))
        for labels, count in list(self._requests.items()):
            requests.add_metric(labels, count)
        yield requests
        about = "How long requests took, until the end of their answer."
        times = HistogramMetricFamily("holdfast_http_request_seconds", about, labels=("method", "route"))
        for route, (*counts, total) in list(self._seconds.items()):
            upto = [(_name_bound(bound), sum(counts[: at + 1])) for at, bound in enumerate(_BOUNDS)]
            times.add_metric(route, upto, total)
        yield times
        yield _gauge("http_requests_in_flight", "Requests that are being answered.", self._inside)
        yield _gauge("store_up", "1 if the store's metrics could be read.", int(self.store_up))
        info = GaugeMetricFamily("holdfast_info", "1, with the version as a label.", labels=["version"])
        info.add_metric([__version__], 1)
        yield info
        about = "Callers whose rate is counted: keys, and addresses without one."
        yield _gauge("rate_callers", about, self.rate_callers())


def _name_bound(bound: float) -> str:
    return "+Inf" if bound == _BOUNDS[-1] else str(bound)


def _gauge(name: str, about: str, value: int) -> Metric:
    return GaugeMetricFamily(f"holdfast_{name}", about, value=value)


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
_ALL_OF_DATA: Final = (*_ALWAYS, *_OF_DATA)
_LINES_OF_DATA: Final = b"\r\ncontent-length: %d\r\ncontent-type: application/json\r\nx-request-id: %b" + b"".join(
    b"\r\n%b: %b" % pair for pair in _ALL_OF_DATA
)
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
        self._app, self._directly = app, find_direct_way(app)
        self._telemetry = telemetry
        self._traffic = traffic
        self._timer = timer

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        answer = _Answer(scope, header(scope, b"x-request-id"), self._traffic, self._timer)
        if self._telemetry is None:
            return answer.run(self._app, receive, send)
        return self._trace(self._telemetry, answer, scope, receive, send)

    def answer_directly(self, asked: WholeRequest) -> Response | None:
        """An answer that is whole. It is counted once it has been sent."""
        if self._telemetry is not None:
            return None
        answer = _Answer(asked.scope, asked.headers.get("x-request-id"), self._traffic, self._timer)
        try:
            response = self._directly(asked)
        except Exception as problem:  # noqa: BLE001 - as below
            response = answer.fail(problem)
        if response is not None:
            asked.lines, asked.record = answer.complete(response), answer.note
        return response

    async def _trace(self, telemetry: Telemetry, answer: _Answer, scope: Scope, receive: Receive, send: Send) -> None:
        with telemetry.request(scope["headers"], scope["method"]) as end:
            await answer.run(self._app, receive, send)
            end(route_of(scope), answer.status or _CALLER_LEFT)


class _Answer:
    """The answer to one request, as it goes by. What an app says itself about caching and contents stays."""

    __slots__ = ("_began", "_given_id", "_request_id", "_scope", "_send", "_timer", "_traffic", "length", "status")

    def __init__(self, scope: Scope, given: str | None, traffic: Traffic, timer: Callable[[], float]) -> None:
        self._scope, self._given_id, self._traffic, self._timer = scope, given, traffic, timer
        self._request_id = given if given and _GIVEN.fullmatch(given) else traffic.new_id()
        self.status: int | None = None
        self.length = 0
        scope.setdefault("state", {})["request_id"] = self._request_id
        self._began = timer()

    async def run(self, app: ASGIApp, receive: Receive, send: Send) -> None:
        """Have an app answer. Where it fails, it is answered for."""
        self._send = send
        self._begin()
        try:
            await app(self._scope, receive, self.send)
        except Exception as problem:  # noqa: BLE001 - whatever it is, the caller gets an answer and the log a line
            response = self.fail(problem)
            if self.status is None:
                await response(self._scope, receive, self.send)
        finally:
            self.record()

    def _begin(self) -> None:
        self._scope["state"][GIVE_UP] = self.record
        self._traffic.begin()

    def fail(self, problem: Exception) -> Response:
        """What is answered where nobody foresaw an error: the log has it."""
        fields = {"request_id": self._request_id, "route": route_of(self._scope)}
        _log.error("a request failed unexpectedly", exc_info=problem, extra={"fields": fields})
        return refusal(self._scope, HoldfastError(UNFORESEEN))

    def complete(self, response: Response) -> bytes:
        """Take note of an answer of the API that is whole. What it does not say itself is returned, as lines."""
        self.status, self.length = response.status_code, len(response.body)
        if type(response) is Document:  # its own two headers are among the lines
            response.raw_headers = []
            return _LINES_OF_DATA % (self.length, self._request_id.encode())
        response.raw_headers = self._complete(response.raw_headers)
        return b""

    def send(self, message: Message) -> Awaitable[None]:
        """Take note of a part of the answer, and pass it on."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": self._complete(message.get("headers", ()))}
        else:
            self.length += len(message.get("body", b""))
        return self._send(message)

    def record(self) -> None:
        """The request has ended: note it, once."""
        if self._scope["state"].pop(GIVE_UP, None) is None:
            return
        self._traffic.end()
        self.note()

    def note(self) -> None:
        """Count the request, and write its line."""
        seconds = self._timer() - self._began
        scope, request_id = self._scope, self._request_id
        status, route, method = self.status or _CALLER_LEFT, route_of(scope), scope["method"]
        self._traffic.count(method, route, status, seconds)
        # Machines ask probes every few seconds; a log of them tells nothing.
        level = logging.DEBUG if route in PATHS and status < 500 else logging.INFO
        if _log.isEnabledFor(level):
            fields = {
                "request_id": redact(request_id) if self._given_id else request_id,
                "method": method if method in _METHODS else redact(method),
                "route": route,
                "status": status,
                "ms": round(seconds * 1_000, 3),
                "bytes": self.length,
                "client": scope["client"][0] if scope.get("client") else None,
                "key_id": getattr(scope["state"].get("caller"), "key_id", None),  # if it was found out who asked
            }
            log_request(_log, level, fields)

    def _complete(self, headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """The headers of an answer, with those that it does not have itself."""
        path, own = self._scope["path"], (b"x-request-id", self._request_id.encode())
        is_page = path == "/" or path.split("/", 2)[1:2] in _PAGE_FOLDERS
        for name, _ in headers:
            if name not in _PLAIN:
                break
        else:
            if not is_page:
                return [*headers, own, *_ALL_OF_DATA]
        said = {name.lower() for name, _ in headers}
        defaults = _OF_PAGES if is_page else _OF_DATA
        return [*headers, own, *_ALWAYS, *(pair for pair in defaults if pair[0] not in said)]


def route_of(scope: Scope) -> str:
    """The template of the route that a request took: a path names users and memories, its template names nobody."""
    path = getattr(scope.get("route"), "path", None)
    return _name_route(path) if isinstance(path, str) and path else NO_ROUTE


@cache
def _name_route(path: str) -> str:
    return _CONVERTER.sub("}", path)
