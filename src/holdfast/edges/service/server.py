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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp

from holdfast.core.errors import HoldfastError, InvalidSettingsError, quote
from holdfast.edges.access.callers import THREADS
from holdfast.edges.service.connections import Connections, most_connections

_new_loop = asyncio.new_event_loop
with suppress(ImportError):  # there is none for this platform
    import uvloop

    _new_loop = uvloop.new_event_loop

_log = logging.getLogger("holdfast.service")
_BACKLOG: Final = 2_048
#: So many connections are taken from the backlog at a time: the next only when it is known which of these stay.
_ACCEPTED_AT_ONCE: Final = 16
_POLL_SECONDS: Final = 0.01
_LOOK_SECONDS: Final = 0.5
#: How much longer than its limits a stop may take.
LATE_SECONDS: Final = 2.0
#: What the threads are called that other handlers run in; an idle one ends with its loop.
_ANYIO: Final = "AnyIO worker thread"


def listen(host: str, port: int, *, shares: bool = False) -> socket.socket:
    """A socket that listens; ``InvalidSettingsError`` if it cannot be had. Port 0 is any that is free.

    One that ``shares`` lets others of this user listen at the same port: the system gives each its part of the callers.
    """
    if not 0 <= port <= 65_535:
        raise InvalidSettingsError(f"a port is a number from 0 to 65535, not {port}")
    try:
        return _listener(host, port, shares=shares)
    except OSError as problem:
        raise InvalidSettingsError(
            f"cannot listen at {quote(host)}, port {port}: {problem.strerror or problem}; if another program has the "
            "port, choose one with --port"
        ) from problem


def _listener(host: str, port: int, *, shares: bool) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
    )[0]
    # With its protocol named, asyncio sends small answers at once; else each would wait for the caller's own ACK.
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name != "nt":  # there it would let two programs have one port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shares:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _workers() -> set[threading.Thread]:
    """The threads that requests are answered in."""
    return {thread for thread in threading.enumerate() if thread.name.startswith((_ANYIO, THREADS))}


def _still_run(workers: set[threading.Thread], seconds: float) -> bool:
    """Whether threads go on that requests were answered in, though all answers were given up."""
    deadline = time.monotonic() + seconds
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
    return any(worker.is_alive() for worker in workers)


@dataclass(eq=False, repr=False)
class Server:
    """Serves an application on a socket, in a thread, while the main thread waits for a signal."""

    listener: socket.socket
    stop_seconds: float = field(kw_only=True)
    late_seconds: float = field(default=LATE_SECONDS, kw_only=True)
    connections: Connections = field(
        default_factory=lambda: Connections(most_connections(1_000), head_seconds=10.0), kw_only=True
    )
    stuck: bool = field(default=False, init=False)
    """Whether something that was begun did not end, even after it was asked to stop and had its time."""
    _problem: BaseException | None = field(default=None, init=False)
    _ended_by: str | None = field(default=None, init=False)

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
                self.listener.listen(_BACKLOG)  # uvicorn sets it to what it accepts at once
                started()
            while thread.is_alive() and not self.stopping:
                thread.join(_LOOK_SECONDS)
            thread.join(2 * self.stop_seconds + self.late_seconds)
            self.stuck = thread.is_alive() or _still_run(_workers() - others, self.late_seconds)
        if self._ended_by is None:
            raise HoldfastError("the service could not be started; the log says why") from self._problem
        return self._ended_by

    def _config(self, app: ASGIApp) -> uvicorn.Config:
        return uvicorn.Config(
            app,
            interface="asgi3",
            lifespan="on",
            http=self.connections.protocol(),
            ws="none",
            backlog=_ACCEPTED_AT_ONCE,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # who passes on what a caller says of itself lets callers choose their address
            timeout_graceful_shutdown=max(1, round(self.stop_seconds)),
        )

    def _serve(self, server: uvicorn.Server, finish: Callable[[], Awaitable[None]]) -> None:
        async def serve() -> None:
            await server.serve(sockets=[self.listener])
            await asyncio.wait_for(finish(), self.stop_seconds)

        try:
            with asyncio.Runner(loop_factory=_new_loop) as runner:
                runner.run(serve())
        except TimeoutError:
            _log.warning("requests that had been given up were not finished within %g s", self.stop_seconds)
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
