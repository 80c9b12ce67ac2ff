"""The service as one ASGI application: the API, and what every request passes through on the way to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple

from anyio.to_thread import current_default_thread_limiter
from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.core.errors import HoldfastError, ObjectMissingError
from holdfast.core.records import Scope as MemoryScope
from holdfast.edges.access.callers import WORKERS, Callers
from holdfast.edges.mcp.transport import McpApp
from holdfast.edges.rest.app import build_app
from holdfast.edges.rest.routes import NamedRoute
from holdfast.edges.service.limits import Buckets, ConcurrencyLimit, Limits, RateLimit, SizeLimit, TimeLimit
from holdfast.edges.service.loopback import LocalOnly
from holdfast.edges.service.probes import HEALTH, READY, Look, Part, Probes, Readiness
from holdfast.edges.service.request_log import RequestLog, Traffic
from holdfast.edges.service.supervisor import Supervisor
from holdfast.engine import Holdfast
from holdfast.ports.objects import ObjectStore
from holdfast.storage.objects import open_cold, open_keeping

MCP: Final = "/mcp"


def build_api(holdfast: Holdfast, *, keys_required: bool) -> Starlette:
    """The application over an open store. With keys it may be called by any name; without, LocalOnly sees to that."""
    callers = Callers(holdfast, keys_required=keys_required)
    mcp = McpApp(
        holdfast,
        callers=callers,
        keys_required=keys_required,
        hosts=None if keys_required else (),
        max_request_bytes=holdfast.settings.request_bytes,
    )
    routes = [NamedRoute(MCP, mcp)]  # a mount would answer below that path, not at it
    return build_app(
        holdfast, keys_required=keys_required, callers=callers, lifespan=lambda _: _running(mcp), routes=routes
    )


@asynccontextmanager
async def _running(mcp: McpApp) -> AsyncIterator[None]:
    current_default_thread_limiter().total_tokens = WORKERS
    async with mcp.running():
        yield


#: An answer of the API is data: a browser is to run, load, frame and keep nothing of it.
_DATA: Final = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
#: A page of the service runs its own scripts only; inline styles are what such pages are made with.
_PAGE: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
#: Which paths are pages: `/`, and those whose first folder is named here.
PAGES: Final = frozenset({"docs", "console"})
_ALWAYS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class SecurityHeaders:
    """Adds them to every answer; what the app says itself about caching and contents stays."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        is_page = path == "/" or ("/" in path and path.split("/", 2)[1] in PAGES)
        default = (
            (b"content-security-policy", (_PAGE if is_page else _DATA).encode()),
            (b"cache-control", b"no-store"),
        )

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                said = {name.lower() for name, _ in headers}
                headers += _ALWAYS
                headers += [pair for pair in default if pair[0] not in said]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, send_with_headers)


#: A session that nobody has, to ask a server for.
_NOBODY: Final = MemoryScope("default", "nobody", "nobody", "nobody")
#: How often a bucket is asked, which may cost something.
_BUCKET_SECONDS: Final = 15.0


class Service(NamedTuple):
    """The application, and the layer that knows what is still being done when it stops."""

    api: ASGIApp
    layers: ASGIApp
    time_limit: TimeLimit

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Requests pass through all layers; the start and the end of the process reach the API directly."""
        await (self.layers if scope["type"] == "http" else self.api)(scope, receive, send)


def build_service(
    api: ASGIApp,
    holdfast: Holdfast,
    *,
    limits: Limits,
    keys_required: bool,
    supervisor: Supervisor | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> Service:
    """``api`` with all layers around it, the outermost last.

    What a request set off counts as one at once until it has ended, even if its caller was answered before; so the
    limit on how many is within the limit on how long.
    """
    traffic = Traffic()
    if supervisor is not None:
        traffic.registry.register(supervisor)
    app: ASGIApp = SizeLimit(api, limits.request_bytes)
    app = ConcurrencyLimit(app, limits.requests_at_once)
    app = time_limit = TimeLimit(app, limits.request_seconds)
    app = Probes(
        app,
        readiness=Readiness(_parts(holdfast, supervisor, stopping)),
        exposition=_exposition(holdfast, traffic),
        access=holdfast.access,
    )
    if keys_required and limits.rate_per_second:
        app = RateLimit(app, Buckets(limits.rate_per_second), free=(HEALTH, READY))
    if not keys_required:
        app = LocalOnly(app)
    return Service(api, RequestLog(SecurityHeaders(app), traffic), time_limit)


def _parts(holdfast: Holdfast, supervisor: Supervisor | None, stopping: Callable[[], bool]) -> dict[str, Part]:
    """What the service needs. A bucket is only named when it is away: recall and new memories do without it."""

    def store() -> str | None:
        holdfast.database.check_usable()
        holdfast.trust.seen()  # one row, through everything that lies between here and the store
        return None

    def short_term() -> str | None:
        holdfast.services.short_term.expires_at(_NOBODY, now=0)
        return None

    parts = {"service": Part(lambda: "the service is stopping" if stopping() else None), "store": Part(store)}
    if holdfast.settings.short_term_url:
        parts["short_term"] = Part(short_term)
    for name, url, bucket in (
        ("archive", holdfast.settings.cold_url(), open_cold),
        ("state", holdfast.settings.keeping_url(), open_keeping),
    ):
        if not url.startswith("file:"):
            parts[name] = Part(_check_bucket(bucket(holdfast.settings)), needed=False, kept_seconds=_BUCKET_SECONDS)
    if supervisor is not None:
        parts[supervisor.name] = Part(lambda: supervisor.state.trouble)
    return parts


def _check_bucket(objects: ObjectStore) -> Look:
    """Ask a bucket for an object that is not there: that it is not is an answer."""

    def look() -> str | None:
        with suppress(ObjectMissingError):
            objects.get("check/ready")
        return None

    return look


def _exposition(holdfast: Holdfast, traffic: Traffic) -> Callable[[], bytes]:
    """What Prometheus reads: the metrics of this process, and those of the store if it answers."""

    def collect() -> bytes:
        try:
            stored = holdfast.metrics()
        except HoldfastError:
            stored = b""
        traffic.store_up.set(int(bool(stored)))
        own: bytes = generate_latest(traffic.registry)
        return own + stored

    return collect
