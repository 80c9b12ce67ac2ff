"""The server: it listens, serves until a signal asks it to stop, and finishes the requests in flight within a limit."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp

from holdfast.core.errors import HoldfastError, InvalidSettingsError, quote
from holdfast.edges.service.connections import Connections, most_connections

_log = logging.getLogger("holdfast.service")
_BACKLOG: Final = 2_048
#: So many connections are taken from the backlog at a time: the next only when it is known which of these stay.
_ACCEPTED_AT_ONCE: Final = 16
_POLL_SECONDS: Final = 0.01
_LOOK_SECONDS: Final = 0.5
#: How much longer than its limits a stop may take.
LATE_SECONDS: Final = 2.0
#: What the threads are called that handlers run in; an idle one ends with its loop.
_WORKERS: Final = "AnyIO worker thread"
#: Longer than proxies keep a connection that nobody uses: so it is they who close it, and no request meets its end.
_KEEP_ALIVE_SECONDS: Final = 75


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; ``InvalidSettingsError`` if it cannot be had. Port 0 is any that is free."""
    if not 0 <= port <= 65_535:
        raise InvalidSettingsError(f"a port is a number from 0 to 65535, not {port}")
    try:
        return _listener(host, port)
    except OSError as problem:
        raise InvalidSettingsError(
            f"cannot listen at {quote(host)}, port {port}: {problem.strerror or problem}; if another program has the "
            "port, choose one with --port"
        ) from problem


def _listener(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
    )[0]
    # With its protocol named, asyncio sends small answers at once; else each would wait for the caller's own ACK.
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name != "nt":  # there it would let two programs have one port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _workers() -> set[threading.Thread]:
    """The threads that requests are answered in."""
    return {thread for thread in threading.enumerate() if thread.name.startswith(_WORKERS)}


def _still_run(workers: set[threading.Thread], seconds: float) -> bool:
    """Whether threads go on that requests were answered in, though all answers were given up."""
    deadline = time.monotonic() + seconds
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
    return any(worker.is_alive() for worker in workers)


class Server:
    """Serves an application on a socket, in a thread, while the main thread waits for a signal."""

    def __init__(
        self,
        listener: socket.socket,
        *,
        stop_seconds: float,
        late_seconds: float = LATE_SECONDS,
        connections: Connections | None = None,
    ) -> None:
        self._listener = listener
        if connections is None:
            connections = Connections(most_connections(1_000), head_seconds=10.0)
        self._connections = connections
        self._stop_seconds = stop_seconds
        self._late_seconds = late_seconds
        self._problem: BaseException | None = None
        self._ended_by: str | None = None
        self.stuck = False
        """Whether something that was begun did not end, even after it was asked to stop and had its time."""

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._ended_by is not None

    def run(
        self,
        app: ASGIApp,
        *,
        started: Callable[[], None],
        stop: Callable[[], None],
        finish: Callable[[], Awaitable[None]],
    ) -> str:
        """Serve until SIGTERM or SIGINT; which it was.

        ``started`` is called once requests are answered, ``stop`` when it was asked to stop (in a signal handler: it
        must return at once), ``finish`` after the last answer, to wait for what is still being done.
        """
        server = uvicorn.Server(self._config(app))
        thread = threading.Thread(target=self._serve, args=(server, finish), name="holdfast-server", daemon=True)
        others = _workers()
        with self._signals(server, stop):
            thread.start()
            while thread.is_alive() and not server.started:
                time.sleep(_POLL_SECONDS)
            if server.started:
                self._listener.listen(_BACKLOG)  # uvicorn sets it to what it accepts at once
                started()
            while thread.is_alive() and not self.stopping:
                thread.join(_LOOK_SECONDS)
            thread.join(2 * self._stop_seconds + self._late_seconds)
            self.stuck = thread.is_alive() or _still_run(_workers() - others, self._late_seconds)
        if self._ended_by is None:
            raise HoldfastError("the service could not be started; the log says why") from self._problem
        return self._ended_by

    def _config(self, app: ASGIApp) -> uvicorn.Config:
        return uvicorn.Config(
            app,
            interface="asgi3",
            lifespan="on",
            http=self._connections.protocol(),
            ws="none",
            backlog=_ACCEPTED_AT_ONCE,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # who passes on what a caller says of itself lets callers choose their address
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=max(1, round(self._stop_seconds)),
        )

    def _serve(self, server: uvicorn.Server, finish: Callable[[], Awaitable[None]]) -> None:
        async def serve() -> None:
            await server.serve(sockets=[self._listener])
            await asyncio.wait_for(finish(), self._stop_seconds)

        try:
            asyncio.run(serve())
        except TimeoutError:
            _log.warning("requests that had been given up were not finished within %g s", self._stop_seconds)
        except BaseException as problem:  # noqa: BLE001 - the main thread raises it
            self._problem = problem

    @contextmanager
    def _signals(self, server: uvicorn.Server, stop: Callable[[], None]) -> Iterator[None]:
        def end(number: int, _frame: FrameType | None) -> None:
            if self.stopping and number == signal.SIGINT:
                server.force_exit = True  # the second signal ends it without waiting
            self._ended_by = self._ended_by or signal.Signals(number).name
            server.should_exit = True
            stop()

        before: dict[int, Any] = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
