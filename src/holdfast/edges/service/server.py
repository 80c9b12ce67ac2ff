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
from typing import Any, ClassVar, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from holdfast.core.errors import HoldfastError, InvalidSettingsError, quote
from holdfast.edges.access.callers import THREADS

_connections_log = logging.getLogger("holdfast.connections")
#: How long a caller may take to read what was sent before it is given up.
STALLED_SECONDS: Final = 60.0
#: Files that are not connections: the store's, at least so many, or a quarter of what the process may open.
_OTHER_FILES: Final = 128
_LEAST: Final = 8
_CONTINUE: Final = b"HTTP/1.1 100 "
_MAX_HEAD_BYTES: Final = 64 * 1024


def _refuse(status: str, said: str, headers: str = "") -> bytes:
    """An answer to what is no request yet: no page is made of it, so it is said in plain text."""
    head = f"HTTP/1.1 {status}\r\n{headers}connection: close\r\ncontent-type: text/plain\r\ncontent-length: {len(said)}"
    return f"{head}\r\n\r\n{said}".encode()


_TOO_SLOW: Final = _refuse("408 Request Timeout", "The head of the request did not arrive in time.")
_LARGE: Final = _refuse(
    "431 Request Header Fields Too Large", "The address and the headers of the request come to more than 64 KiB."
)
_FULL: Final = _refuse("503 Service Unavailable", "All connections are taken; try again.", "retry-after: 1\r\n")


def most_connections(wanted: int) -> int:
    """How many connections there may be: as many as are wanted, if the process may have enough files open."""
    try:
        import resource  # noqa: PLC0415 - Windows has none, and no such limit
    except ImportError:
        return wanted
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return wanted
    return max(_LEAST, min(wanted, files - max(_OTHER_FILES, files // 4)))


@dataclass(eq=False, repr=False)
class Connections:
    """The connections of one server. Used in its loop only."""

    most: int
    head_seconds: float = field(kw_only=True)
    stalled_seconds: float = field(default=STALLED_SECONDS, kw_only=True)
    refused: int = field(default=0, init=False)
    _busy: set[_Connection] = field(default_factory=set, init=False)
    #: The one that has had no request for the longest time first.
    _idle: dict[_Connection, None] = field(default_factory=dict, init=False)

    def __len__(self) -> int:
        return len(self._busy) + len(self._idle)

    def admit(self, one: _Connection) -> bool:
        """Whether there is a place for a new connection; if need be, that of an idle one."""
        if len(self) >= self.most:
            self.refused += 1
            _connections_log.warning(
                "all %d connections are taken: idle ones are closed, and new ones refused (HOLDFAST_CONNECTIONS)",
                self.most,
            )
            if not self._idle:
                return False
            oldest = next(iter(self._idle))
            self.forget(oldest)
            oldest.close()
        self._idle[one] = None
        return True

    def note(self, one: _Connection, *, busy: bool) -> None:
        """A connection has a request, or has none any more."""
        if busy and one in self._idle:
            del self._idle[one]
            self._busy.add(one)
        elif not busy and one in self._busy:
            self._busy.discard(one)
            self._idle[one] = None

    def forget(self, one: _Connection) -> None:
        """A connection is no more."""
        self._busy.discard(one)
        self._idle.pop(one, None)

    def protocol(self) -> type[asyncio.Protocol]:
        """The protocol of connections that are counted here."""
        return type("Connection", (_Connection,), {"all": self})


class _Answer:
    """Where an answer is written to: its head together with the first piece of a body that is known to follow."""

    __slots__ = ("_head", "_transport", "write")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self.write: Callable[[bytes], None] = self._begin

    def _begin(self, data: bytes) -> None:
        if b"\r\ncontent-length: " in data:
            self._head, self.write = data, self._go_on
            return
        if not data.startswith(_CONTINUE):  # the head of a stream: nobody knows when its first piece comes
            self.write = self._transport.write
        self._transport.write(data)

    def _go_on(self, data: bytes) -> None:
        self.write = self._transport.write
        self.write(self._head + data)

    def close(self) -> None:
        """End the connection, if need be in the middle of an answer."""
        if self.write == self._go_on:
            self._go_on(b"")
        self._transport.close()


_Base: Any = AutoHTTPProtocol
_COUNTS: Final = hasattr(_Base, "on_headers_complete")  # which h11's has not


class _Connection(_Base):  # type: ignore[misc]  # whichever parser uvicorn finds
    """A connection: as uvicorn has it, with a limit on how long a head may take to arrive and an answer to be read."""

    all: ClassVar[Connections]

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._refused = False
        self._has_data = False
        self._unread_bytes = 0
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:
        if not self.all.admit(self):
            self._refused = True
            transport.write(_FULL)
            transport.close()
            return
        super().connection_made(transport)
        self._start(self._end_slow, self.all.head_seconds)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._has_data = True
        self._unread_bytes += len(data)
        super().data_received(data)
        if _COUNTS and self._unread_bytes > _MAX_HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(_LARGE)
            self.transport.close()
        self._note()

    def on_headers_complete(self) -> None:
        """A head is whole. It must name one host; h11 sees to that, and to how long a head is, by itself."""
        self._unread_bytes = 0
        if [name for name, _ in self.headers].count(b"host") != 1 and self.parser.get_http_version() == "1.1":
            raise ValueError("a request names one host")
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: Any, app: ASGIApp) -> None:
        if cycle.scope["method"] != "HEAD":  # whose answer has no body
            cycle.transport = _Answer(self.transport)
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        self._unread_bytes = 0  # what follows a body is counted as a head is
        super().on_body(body)

    def on_response_complete(self) -> None:
        self._has_data = False
        super().on_response_complete()
        self._note()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._refused:
            return
        self.all.forget(self)
        self._stop(self._end_slow)
        self._stop(self._give_up)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start(self._give_up, self.all.stalled_seconds)

    def resume_writing(self) -> None:
        self._stop(self._give_up)
        super().resume_writing()

    def close(self) -> None:
        """End the connection, which has no request."""
        self._stop(self._end_slow)
        self.transport.close()

    # --- within -------------------------------------------------------------------------------------------------------

    def _note(self) -> None:
        if self.transport.is_closing():
            return
        busy = self.cycle is not None and not self.cycle.response_complete
        self.all.note(self, busy=busy)
        if busy:
            self._stop(self._end_slow)
        elif self._has_data:
            self._start(self._end_slow, self.all.head_seconds)

    def _start(self, then: Callable[[], None], seconds: float) -> None:
        """Have something done after some time, unless that is arranged already."""
        if then not in self._timers:
            self._timers[then] = self.loop.call_later(seconds, then)

    def _stop(self, then: Callable[[], None]) -> None:
        timer = self._timers.pop(then, None)
        if timer is not None:
            timer.cancel()

    def _end_slow(self) -> None:
        _connections_log.warning(
            "a connection was closed: no request came within %g s (HOLDFAST_HEAD_SECONDS)", self.all.head_seconds
        )
        if self._has_data:
            self.transport.write(_TOO_SLOW)
        self.transport.close()

    def _give_up(self) -> None:
        seconds = self.all.stalled_seconds
        _connections_log.warning("a connection was closed: nothing of its answer was read for %g s", seconds)
        self.transport.abort()


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
#: Longer than proxies keep a connection that nobody uses: so it is they who close it, and no request meets its end.
_KEEP_ALIVE_SECONDS: Final = 75


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
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
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
