"""The whole service as one process and its child: opened, served, and closed in order."""

from __future__ import annotations

import gc
import io
import logging
import os
import platform
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import prometheus_client
from anyio.to_thread import current_default_thread_limiter
from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.core.errors import ForbiddenError, HoldfastError, InvalidSettingsError, ObjectMissingError
from holdfast.core.records import Scope as MemoryScope
from holdfast.edges.access.callers import WORKERS, Callers
from holdfast.edges.console.app import Console
from holdfast.edges.console.html import ProblemPages
from holdfast.edges.console.table import PREFIX
from holdfast.edges.mcp.transport import McpApp
from holdfast.edges.rest.app import build_app
from holdfast.edges.rest.direct import find_direct_paths, find_direct_way
from holdfast.edges.service import scheduler
from holdfast.edges.service.connections import Connections, most_connections
from holdfast.edges.service.limits import Buckets, Limits, RateLimit, RequestLimit
from holdfast.edges.service.logs import LogFormat, install_logs
from holdfast.edges.service.loopback import LocalOnly, resolves_to_loopback
from holdfast.edges.service.probes import HEALTH, METRICS, READY, Part, Probes, Readiness
from holdfast.edges.service.request_log import RequestLog, Traffic
from holdfast.edges.service.scheduler import Supervisor
from holdfast.edges.service.server import Server, listen
from holdfast.edges.service.workers import (
    Orders,
    ReportedSchedule,
    ReportedWorkers,
    Shared,
    note_often,
    read_orders,
    run_workers,
)
from holdfast.engine import Holdfast
from holdfast.lifecycle.metrics import PartCollector, exposition
from holdfast.ports.objects import ObjectStore
from holdfast.storage.objects import open_cold, open_keeping
from holdfast.telemetry import export

MCP: Final = "/mcp"


def build_api(holdfast: Holdfast, *, keys_required: bool) -> Starlette:
    """The application over an open store. With keys it may be called by any name; without, LocalOnly sees to that."""
    callers = Callers(holdfast, keys_required=keys_required)
    mcp = McpApp(callers, max_request_bytes=holdfast.settings.request_bytes)
    # A mount of MCP would answer below that path, not at it.
    routes = [Route(MCP, mcp), *Console(holdfast, callers).routes()]
    return build_app(
        holdfast, keys_required=keys_required, callers=callers, lifespan=lambda _: _run(mcp, callers), routes=routes
    )


@asynccontextmanager
async def _run(mcp: McpApp, callers: Callers) -> AsyncIterator[None]:
    current_default_thread_limiter().total_tokens = WORKERS
    async with mcp.run():
        yield
    callers.workers.close()


_NOBODY: Final = MemoryScope("default", "nobody", "nobody", "nobody")
#: How often a bucket is asked, which may cost something.
_BUCKET_SECONDS: Final = 15.0


class Service:
    """The application, and the layer that knows what is still being done when it stops."""

    def __init__(self, api: ASGIApp, layers: ASGIApp, limit: RequestLimit) -> None:
        self.api, self.layers, self.limit = api, layers, limit
        self.direct_paths, self.answer_directly = find_direct_paths(api), find_direct_way(layers)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Requests pass through all layers; the start and the end of the process reach the API alone."""
        return (self.layers if scope["type"] == "http" else self.api)(scope, receive, send)


def build_service(
    api: ASGIApp,
    holdfast: Holdfast,
    *,
    limits: Limits,
    keys_required: bool,
    schedule: Supervisor | ReportedSchedule | None = None,
    shared: Shared | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> Service:
    """``api`` with all layers around it, the outermost last. ``shared`` is what a worker has in common with others."""
    traffic = Traffic()
    traffic.registry.register(PartCollector(holdfast.collector.collect_process))
    parts = _parts(holdfast, schedule, stopping)
    if schedule is not None:
        traffic.registry.register(schedule)
    if shared is not None:
        workers = ReportedWorkers(shared)
        traffic.registry.register(workers)
        parts["workers"] = Part(workers.find_trouble, needed=False)
        note_often(shared, traffic.registry)
    readiness = Readiness(parts)
    limit = RequestLimit(api, limits, None if shared is None else shared.tally())
    expose = generate_latest if shared is None else shared.write_metrics
    metrics = partial(_write_metrics, holdfast, traffic, expose)
    app: ASGIApp = Probes(limit, readiness=readiness, exposition=metrics, access=holdfast.access)
    if not keys_required:
        app = LocalOnly(app)
    elif limits.rate_per_second:
        rate = limits.rate_per_second
        buckets = Buckets(rate) if shared is None else shared.buckets(rate)
        traffic.rate_callers = lambda: len(buckets)
        app = RateLimit(app, buckets, free=(HEALTH, READY))
    return Service(api, RequestLog(ProblemPages(app), traffic, telemetry=holdfast.telemetry), limit)


def _parts(
    holdfast: Holdfast, schedule: Supervisor | ReportedSchedule | None, stopping: Callable[[], bool]
) -> dict[str, Part]:
    """What the service needs. A bucket is only named when it is away: recall and new memories do without it."""

    def store() -> None:
        holdfast.database.check_usable()
        holdfast.trust.seen()  # one row, through everything that lies between here and the store

    def short_term() -> None:
        holdfast.services.short_term.expires_at(_NOBODY, now=0)

    parts = {"service": Part(lambda: "the service is stopping" if stopping() else None), "store": Part(store)}
    if holdfast.settings.short_term_url:
        parts["short_term"] = Part(short_term)
    for name, url, bucket in (
        ("archive", holdfast.settings.cold_url(), open_cold),
        ("state", holdfast.settings.keeping_url(), open_keeping),
    ):
        if not url.startswith("file:"):
            check = partial(_check_bucket, bucket(holdfast.settings))
            parts[name] = Part(check, needed=False, kept_seconds=_BUCKET_SECONDS)
    if schedule is not None:
        parts[schedule.name] = Part(lambda: schedule.state.trouble)
    return parts


def _check_bucket(objects: ObjectStore) -> None:
    """Ask a bucket for an object that is not there: that it is not is an answer."""
    with suppress(ObjectMissingError):
        objects.get("check/ready")


def _write_metrics(holdfast: Holdfast, traffic: Traffic, expose: Callable[[CollectorRegistry], bytes]) -> bytes:
    """What Prometheus reads: the metrics of this process, and those of the store if it answers."""
    try:
        stored = exposition(holdfast.collector.collect_stored)
    except HoldfastError:
        stored = b""
    traffic.store_up = bool(stored)
    return expose(traffic.registry) + stored


_log = logging.getLogger("holdfast.service")
_WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not listened at


class Options(NamedTuple):
    """What was asked for."""

    host: str
    port: int
    schedule: bool
    form: LogFormat
    stop_seconds: float
    keyless: bool = False
    home: Path | None = None
    url: str | None = None
    workers: int = 1


class Where(NamedTuple):
    """Where to look."""

    url: str
    keys_required: bool
    schedule: bool
    pid: int
    workers: int = 1

    def as_dict(self) -> dict[str, Any]:
        """Every place, for people and programs."""
        paths = {
            "api": "/v1",
            "docs": "/docs",
            "console": PREFIX,
            "mcp": MCP,
            "metrics": METRICS,
            "health": HEALTH,
            "ready": READY,
        }
        places = {name: f"{self.url}{path}" for name, path in paths.items()}
        return {"url": self.url, **places, **self._asdict()}


def run(options: Options, *, announce: Callable[[Where], None], check: bool = False) -> str | None:
    """Serve until SIGTERM or SIGINT; which it was. ``announce`` hears where, once requests are answered.

    With ``check``, everything is opened and nothing is served. ``ForbiddenError`` if other machines could reach it and
    there is no API key.
    """
    with Holdfast.open(options.url, home=options.home) as holdfast, ExitStack() as listening:
        # Keys that were revoked or have expired count: that nobody may come in does not mean that anybody may.
        keys_required = bool(holdfast.access.list()) and not options.keyless
        if not keys_required:
            _check_loopback(options)
        listeners = [listening.enter_context(one) for one in _listen(options)]
        port = listeners[0].getsockname()[1]
        where = Where(_url(options.host, port), keys_required, options.schedule, os.getpid(), options.workers)
        if check:
            build_api(holdfast, keys_required=keys_required)
            announce(where)
            return None

        def started() -> None:
            _log.info("serving", extra={"fields": where._asdict()})
            announce(where)

        install_logs(options.form)
        schedule = _supervisor(options) if options.schedule else None
        orders = _orders(options, keys_required=keys_required)
        if options.workers == 1:
            ended = _serve(orders, holdfast, listeners[0], schedule, started=started)
        else:
            holdfast.close()
            ended = run_workers(orders, listeners, schedule, announce=started)
    _log.info("stopped", extra={"fields": {"by": ended}})
    return ended


def _listen(options: Options) -> list[socket.socket]:
    """A socket for each worker, at one port. Where the system does not share callers out, they have one together."""
    if options.workers == 1:
        return [listen(options.host, options.port)]
    if os.name == "nt":
        raise InvalidSettingsError("several workers cannot share a port on Windows; serve with --workers 1")
    is_spread = platform.system() == "Linux"
    first = listen(options.host, options.port, shares=is_spread)
    port = first.getsockname()[1]
    others = range(options.workers - 1)
    return [first, *(listen(options.host, port, shares=True) if is_spread else first.dup() for _ in others)]


def _orders(options: Options, *, keys_required: bool) -> Orders:
    home = None if options.home is None else str(options.home.absolute())
    return Orders(home, options.url, options.form.value, options.stop_seconds, keys_required, options.schedule)


def _serve(
    orders: Orders,
    holdfast: Holdfast,
    listener: socket.socket,
    schedule: Supervisor | ReportedSchedule | None,
    *,
    started: Callable[[], None],
    shared: Shared | None = None,
) -> str:
    # Of each counter a second series would tell when it was made, which nobody asks for.
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    if holdfast.telemetry is not None:
        export()
        holdfast.telemetry.observe(holdfast.collector)
    settings = holdfast.settings
    connections = Connections(most_connections(settings.connections), head_seconds=settings.head_seconds)
    server = Server(listener, stop_seconds=orders.stop_seconds, connections=connections)
    own = schedule if isinstance(schedule, Supervisor) else None
    service = build_service(
        build_api(holdfast, keys_required=orders.keys_required),
        holdfast,
        limits=Limits.of(settings),
        keys_required=orders.keys_required,
        schedule=schedule,
        shared=shared,
        stopping=lambda: server.stopping,
    )
    if own is not None:
        own.start()
    gc.freeze()  # what is here now stays: requests are not to wait while the collector looks at all of it
    try:
        stop = own.ask_to_stop if own is not None else lambda: None
        ended = server.run(service, started=started, stop=stop, finish=service.limit.finish)
    finally:
        if own is not None:
            own.stop(orders.stop_seconds)
    if server.stuck:  # a thread that is stuck would keep the store from being closed, and the process from ending
        _log.error("something that was begun did not end in time; it is cut off, and its transaction has no effect")
        logging.shutdown()
        os._exit(1)
    return ended


def main() -> None:
    """Be one of several workers: ``python -m holdfast.edges.service.run``, started by the process that has them."""
    with io.FileIO(0, closefd=False) as given:
        orders = read_orders(given)
        install_logs(LogFormat(orders.form))
        shared = Shared(Path(orders.folder), orders.number)

        def started() -> None:
            sys.stdout.write("ready\n")
            sys.stdout.flush()

        with Holdfast.open(orders.url, home=orders.home) as holdfast, socket.socket(fileno=orders.listener) as listener:
            schedule = ReportedSchedule(shared) if orders.schedule else None
            _serve(orders, holdfast, listener, schedule, started=started, shared=shared)


def _check_loopback(options: Options) -> None:
    if resolves_to_loopback(options.host):
        return
    why = "--keyless asks nobody who they are" if options.keyless else "there is no API key yet"
    raise ForbiddenError(
        f"{options.host} can be reached from other machines, and {why}; make a key with: holdfast access create "
        "--name operator --right admin --operator; or serve this machine only, with --host 127.0.0.1"
    )


def _supervisor(options: Options) -> Supervisor:
    home = None if options.home is None else str(options.home.absolute())
    finish_seconds = options.stop_seconds / 2
    first_line = scheduler.first_line(home, options.url, form=options.form, finish_seconds=finish_seconds)
    return Supervisor("schedule", scheduler.COMMAND, first_line)


def _url(host: str, port: int) -> str:
    shown = "localhost" if host in _WILDCARDS else f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


if __name__ == "__main__":
    main()
