"""The whole service as one process and its child: opened, served, and closed in order."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import prometheus_client
from starlette.types import ASGIApp

from holdfast.core.errors import ForbiddenError
from holdfast.edges.service import scheduler
from holdfast.edges.service.connections import Connections, most_connections
from holdfast.edges.service.layers import MCP, build_api, build_service
from holdfast.edges.service.limits import Limits
from holdfast.edges.service.logs import LogFormat, install_logs
from holdfast.edges.service.loopback import resolves_to_loopback
from holdfast.edges.service.probes import HEALTH, METRICS, READY
from holdfast.edges.service.server import Server, listen
from holdfast.edges.service.supervisor import Supervisor
from holdfast.engine import Holdfast

_log = logging.getLogger("holdfast.service")
_WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not listened at
_STUCK: Final = 1


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


class Where(NamedTuple):
    """Where to look."""

    url: str
    keys_required: bool
    schedule: bool
    pid: int

    def as_dict(self) -> dict[str, Any]:
        """Every place, for people and programs."""
        paths = {"api": "/v1", "docs": "/docs", "mcp": MCP, "metrics": METRICS, "health": HEALTH, "ready": READY}
        places = {name: f"{self.url}{path}" for name, path in paths.items()}
        return {"url": self.url, **places, **self._asdict()}


def run(options: Options, *, announce: Callable[[Where], None], check: bool = False) -> str | None:
    """Serve until SIGTERM or SIGINT; which it was. ``announce`` hears where, once requests are answered.

    With ``check``, everything is opened and nothing is served. ``ForbiddenError`` if other machines could reach it and
    there is no API key.
    """
    with Holdfast.open(options.url, home=options.home) as holdfast:
        # Keys that were revoked or have expired count: that nobody may come in does not mean that anybody may.
        keys_required = bool(holdfast.access.list()) and not options.keyless
        if not keys_required:
            _check_loopback(options)
        with listen(options.host, options.port) as listener:
            port = listener.getsockname()[1]
            where = Where(_url(options.host, port), keys_required, options.schedule, os.getpid())
            api = build_api(holdfast, keys_required=keys_required)
            if check:
                announce(where)
                return None
            ended = _serve(options, holdfast, api, listener, where=where, announce=announce)
    _log.info("stopped", extra={"fields": {"by": ended}})
    return ended


def _serve(
    options: Options,
    holdfast: Holdfast,
    api: ASGIApp,
    listener: socket.socket,
    *,
    where: Where,
    announce: Callable[[Where], None],
) -> str:
    install_logs(options.form)
    # Of each counter a second series would tell when it was made, which nobody asks for.
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    settings = holdfast.settings
    connections = Connections(most_connections(settings.connections), head_seconds=settings.head_seconds)
    server = Server(listener, stop_seconds=options.stop_seconds, connections=connections)
    supervisor = _supervisor(options) if options.schedule else None
    service = build_service(
        api,
        holdfast,
        limits=Limits.of(settings),
        keys_required=where.keys_required,
        supervisor=supervisor,
        stopping=lambda: server.stopping,
    )
    if supervisor is not None:
        supervisor.start()
    try:
        ended = server.run(
            service.app,
            started=lambda: _announce(where, announce),
            stop=supervisor.ask_to_stop if supervisor is not None else lambda: None,
            finish=service.time_limit.finish,
        )
    finally:
        if supervisor is not None:
            supervisor.stop(options.stop_seconds)
    if server.stuck:
        _end_at_once()
    return ended


def _check_loopback(options: Options) -> None:
    if resolves_to_loopback(options.host):
        return
    why = "--keyless asks nobody who they are" if options.keyless else "there is no API key yet"
    raise ForbiddenError(
        f"{options.host} can be reached from other machines, and {why}; make a key with: holdfast access create "
        "--name operator --right admin --operator; or serve this machine only, with --host 127.0.0.1"
    )


def _end_at_once() -> None:
    """A thread that is stuck would keep the store from being closed, and the process from ending."""
    _log.error("something that was begun did not end in time; it is cut off, and its transaction has no effect")
    logging.shutdown()
    os._exit(_STUCK)


def _announce(where: Where, announce: Callable[[Where], None]) -> None:
    _log.info("serving", extra={"fields": where._asdict()})
    announce(where)


def _supervisor(options: Options) -> Supervisor:
    first_line = scheduler.first_line(
        None if options.home is None else str(options.home.absolute()),
        options.url,
        form=options.form,
        finish_seconds=options.stop_seconds / 2,
    )
    return Supervisor("schedule", scheduler.COMMAND, first_line)


def _url(host: str, port: int) -> str:
    shown = "localhost" if host in _WILDCARDS else f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"
