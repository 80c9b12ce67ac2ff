"""Connections of callers: HTTP as it comes and goes, with limits on what a caller may keep the service waiting for.

``httptools`` reads requests, uvicorn listens, starts and stops. What lies between is here, because every request pays
for it: an answer whose length is known is written at once, and a limit on time costs no timer of its own (ADR 38).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final
from urllib.parse import unquote

import httptools
from starlette.types import ASGIApp, Scope
from uvicorn import Config
from uvicorn.server import ServerState

from holdfast.edges.rest.direct import SMALL_BYTES, WholeRequest, find_direct_paths, find_direct_way
from holdfast.edges.service import heads
from holdfast.edges.service.exchange import Exchange
from holdfast.edges.service.heads import MAX_WAITING, make_head, make_parser, read_framing, split_url
from holdfast.edges.service.timeouts import Timeouts

_log = logging.getLogger("holdfast.connections")
#: How long a caller may take to read what was sent before it is given up.
STALLED_SECONDS: Final = 60.0
#: Longer than proxies keep a connection that nobody uses: so it is they who close it, and no request meets its end.
_UNUSED_SECONDS: Final = 75.0
#: Files that are not connections: the store's, at least so many, or a quarter of what the process may open.
_OTHER_FILES: Final = 128
_LEAST: Final = 8
_MAX_HEAD_BYTES: Final = 64 * 1024
_MAX_HEADERS: Final = 200
#: So much of a body is taken before the application has asked for it.
_MAX_UNREAD_BYTES: Final = 64 * 1024


_END: Final = b"\r\n\r\n"
_END_OF_ALL: Final = b"\r\nconnection: close\r\n\r\n"
_ASGI: Final = {"version": "3.0", "spec_version": "2.3"}


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
    _count: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.heads = Timeouts(self.head_seconds, Connection.end_slow)
        """Those of which a request is to come: they are new, or a part of it is there."""
        self.unused = Timeouts(_UNUSED_SECONDS, Connection.close)
        """Those between two requests."""
        self.stalled = Timeouts(self.stalled_seconds, Connection.give_up)
        """Those who do not read what they are sent."""

    def __len__(self) -> int:
        return self._count

    def admit(self, one: Connection) -> bool:
        """Whether there is a place for a new connection; if need be, that of an idle one."""
        if self._count >= self.most:
            self.refused += 1
            _log.warning(
                "all %d connections are taken: idle ones are closed, and new ones refused (HOLDFAST_CONNECTIONS)",
                self.most,
            )
            idle = [found for found in (self.heads.oldest, self.unused.oldest) if found is not None]
            if not idle:
                return False
            _, longest = min(idle, key=lambda found: found[0])
            self.forget(longest)
            longest.transport.abort()  # what it has not read would keep it open
        self._count += 1
        self.heads.add(one)
        return True

    def forget(self, one: Connection) -> None:
        """A connection is no more."""
        if not one.is_forgotten:
            one.is_forgotten = True
            self._count -= 1
        for limit in (self.heads, self.unused, self.stalled):
            limit.discard(one)

    def protocol(self) -> type[asyncio.Protocol]:
        """The protocol of connections that are counted here."""
        return type("Connection", (Connection,), {"all": self})


class Connection(asyncio.Protocol):
    """One connection: its requests are answered one after the other, in the order in which they come."""

    all: ClassVar[Connections]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._app: ASGIApp = config.loaded_app
        self._directly, self._direct_paths = find_direct_way(self._app), find_direct_paths(self._app)
        self._server, self._app_state = server_state, app_state
        self._loop = _loop or asyncio.get_running_loop()
        self._parser = make_parser(self)
        self._exchange: Exchange | None = None
        """The request that is answered, or was last, unless that was done directly."""
        self._coming: Scope | None = None
        """A small request that begins when all of it is here; so much of its body is, and whether this goes on then."""
        self._content, self._keep_alive = b"", True
        self._is_new = True
        """Whether no request was answered yet."""
        self._waiting: deque[Exchange] = deque()
        """Requests that came before the one in front of them was answered; the last may still be on its way."""
        self._refusal: bytes | None = None
        """What is said once the requests before it are answered: then this ends."""
        self._fault = heads.NO_HTTP
        """What is wrong with what cannot be read."""
        self._unread_bytes = 0
        self._is_in_message = self._is_in_head = False
        """Whether a part of a request has come, and not all of it, or of its head."""
        self._is_upgrade = False
        """Whether what has come asks for another protocol, and is to be read again."""
        self._is_paused = False
        self.drained: asyncio.Future[None] | None = None
        """Where the caller does not read what it is sent: until it does."""
        self.is_forgotten = False
        """Whether it does not count as a connection: it was refused, or has ended."""

    # --- what the transport says --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]  # it is TCP
        if not self.all.admit(self):
            self.is_forgotten = True
            self._refuse(heads.FULL)
            return
        self._server.connections.add(self)  # type: ignore[arg-type]  # it names the two that it has itself
        self._local, self._peer = _address(self.transport, "sockname"), _address(self.transport, "peername")

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            return
        self._unread_bytes += len(data)
        try:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as found:
                self._read_on(data[found.args[0] :])
        except httptools.HttpParserError:
            if not self.transport.is_closing():
                _log.warning("what came on a connection is no HTTP request; it was closed")
                self._refuse(self._fault)
        else:
            if self._unread_bytes > _MAX_HEAD_BYTES:
                self._refuse(heads.LARGE)
        if (self._exchange is None or self._exchange.is_answered) and not self.transport.is_closing():
            self._limit_time()

    def connection_lost(self, _problem: Exception | None) -> None:
        self.all.forget(self)
        self._server.connections.discard(self)
        self._waiting.clear()
        self._coming = None
        if self._exchange is not None:
            self._exchange.leave()
        self.resume_writing()
        del self._parser  # which refers to this

    def pause_writing(self) -> None:
        self.drained = self._loop.create_future()
        self.all.stalled.add(self)

    def resume_writing(self) -> None:
        if not self.transport.is_closing():  # else all of it must be read in time
            self.all.stalled.discard(self)
        if self.drained is not None and not self.drained.done():  # who waited for it may have been stopped
            self.drained.set_result(None)
        self.drained = None

    # --- what the parser says -----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._is_in_message = self._is_in_head = True
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        headers = self._headers
        headers.append((name.lower(), value.rstrip(b" \t")))
        if len(headers) > _MAX_HEADERS:
            self._fail(heads.LARGE)

    def on_headers_complete(self) -> None:
        """A head is whole. Its size, its version, its host and its coding are looked at before anything is asked."""
        if self.transport.is_closing():
            raise ValueError("the last answer was sent; nothing more is read")
        parser = self._parser
        version, method = parser.get_http_version(), parser.get_method()
        if method == b"CONNECT":
            self._fail(heads.NO_PROXY)
        self._is_upgrade = parser.should_upgrade()
        if self._is_upgrade:
            return
        hosts, codings, length, expects_continue = read_framing(self._headers)
        if self._unread_bytes > _MAX_HEAD_BYTES and self._head_bytes > _MAX_HEAD_BYTES:
            self._fail(heads.LARGE)
        elif version not in {"1.0", "1.1"}:
            self._fail(heads.VERSION)
        elif hosts != 1 and version == "1.1":
            self._fail(heads.NO_HOST)
        elif codings > 1:
            self._fail(heads.CODING)
        elif len(self._waiting) == MAX_WAITING:
            self._fail(heads.MUCH)
        self._unread_bytes, self._is_in_head = 0, False
        raw_path, query = split_url(self._url)
        path = raw_path.decode("ascii")
        scope: Scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": self._local,
            "client": self._peer,
            "scheme": "http",
            "root_path": "",
            "method": method.decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self._headers,
            "state": self._app_state.copy(),
        }
        self._headers = []  # what comes after a body is none of the request's: it was not there when it was let in
        keep_alive = version != "1.0" and parser.should_keep_alive()
        if self._exchange is not None and not self._exchange.is_answered:
            self._waiting.append(Exchange(self, scope, keep_alive=keep_alive, expects_continue=expects_continue))
        elif length > SMALL_BYTES or codings or expects_continue:
            self._begin(Exchange(self, scope, keep_alive=keep_alive, expects_continue=expects_continue))
        else:
            self._coming, self._content, self._keep_alive = scope, b"", keep_alive

    def on_body(self, body: bytes) -> None:
        self._unread_bytes = 0  # what follows a body is counted as a head is
        if self._coming is not None:
            self._content += body
            if len(self._content) > SMALL_BYTES:
                self._fail(heads.MUCH)
        elif self._latest.take(body) > _MAX_UNREAD_BYTES:
            if self._waiting:  # to wait for it would be not to see that the caller leaves
                self._fail(heads.MUCH)
            self.pause_reading()

    def on_message_complete(self) -> None:
        if self._is_upgrade:
            return
        self._is_in_message = False
        self._unread_bytes = 0
        scope, self._coming = self._coming, None
        if scope is None:
            self._latest.take(b"", is_last=True)
        elif not self._answer_directly(scope):
            exchange = Exchange(self, scope, keep_alive=self._keep_alive)
            exchange.take(self._content, is_last=True)
            self._begin(exchange)

    def _fail(self, said: bytes) -> None:
        """Read no further."""
        self._fault = said
        raise ValueError("what is read is refused")  # which ends the parser

    @property
    def _head_bytes(self) -> int:
        return len(self._url) + sum(len(name) + len(value) for name, value in self._headers)

    # --- what exchanges say -------------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        return self._exchange is not None and not self._exchange.is_answered

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """What each answer says: when it was made."""
        return self._server.default_headers

    def pause_reading(self) -> None:
        """Take nothing more for now."""
        if not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Take what comes."""
        if self._is_paused:
            self._is_paused = False
            self.transport.resume_reading()

    def go_on(self, *, keep_alive: bool) -> None:
        """A request was answered: the next one has its turn."""
        self._server.total_requests += 1
        self._is_new = False
        if self.transport.is_closing():
            return
        if not keep_alive:
            self.close()
        elif self._waiting:
            self._begin(self._waiting.popleft())
        elif self._refusal is not None:
            self._refuse(self._refusal)
        else:
            self.resume_reading()
            self.all.unused.discard(self)  # that time begins anew
            self._limit_time()

    # --- its end ------------------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """End it after the answer that is being made, if there is one."""
        if self._coming is not None:
            self._keep_alive = False
        elif self._exchange is not None and self.is_busy:
            self._exchange.keep_alive = False
        else:
            self.close()

    def close(self) -> None:
        """End it, once what was said is sent; who does not read that in time is given up."""
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.all.stalled.add(self)

    def end_slow(self) -> None:
        """End it: the head of a request did not come in time."""
        _log.warning(
            "a connection was closed: no request came within %g s (HOLDFAST_HEAD_SECONDS)", self.all.head_seconds
        )
        if self._is_in_head or self._coming is not None:
            self.transport.write(heads.TOO_SLOW)
        self.close()

    def give_up(self) -> None:
        """End it in the middle of an answer: nobody reads it."""
        _log.warning("a connection was closed: nothing of its answer was read for %g s", self.all.stalled_seconds)
        self.transport.abort()

    # --- within -------------------------------------------------------------------------------------------------------

    @property
    def _latest(self) -> Exchange:
        """The request whose head came last."""
        found = self._waiting[-1] if self._waiting else self._exchange
        assert found is not None  # noqa: S101 - what comes after a head has one
        return found

    def _begin(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.all.heads.discard(self)
        self.all.unused.discard(self)
        exchange.task = self._loop.create_task(exchange.run(self._app, self._server.tasks))
        self._server.tasks.add(exchange.task)

    def _answer_directly(self, scope: Scope) -> bool:
        """Answer a small request of which all is here, if that can be done without a task."""
        if scope["raw_path"] not in self._direct_paths or self.drained is not None:
            return False
        asked = WholeRequest(scope, self._content)
        response = self._directly(asked) if asked.is_plain else None
        if response is None:
            return False
        head, _, keep_alive = make_head(response.status_code, (*self.default_headers, *response.raw_headers))
        end = asked.lines + (_END if keep_alive and self._keep_alive else _END_OF_ALL)
        self.transport.write(head + end + response.body)
        self.go_on(keep_alive=keep_alive and self._keep_alive)
        if asked.record is not None:
            asked.record()
        return True

    def _read_on(self, rest: bytes) -> None:
        """Read a request again that asks for another protocol, as one that does not; then the rest of what has come.

        No other protocol is spoken here, and the parser leaves the body of such a request to it.
        """
        while True:
            method, version = self._parser.get_method(), self._parser.get_http_version().encode()
            head = [b"%b %b HTTP/%b" % (method, self._url, version)]
            head += [b"%b: %b" % pair for pair in self._headers if pair[0] != b"upgrade"]
            self._parser = make_parser(self)
            data = b"\r\n".join(head) + b"\r\n\r\n" + rest
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as found:  # the next one asks for it, too
                rest = data[found.args[0] :]
            else:
                return

    def _refuse(self, said: bytes) -> None:
        """Say it when all that was asked before it is answered, and end the connection."""
        self._refusal = said
        if self._waiting and self._waiting[-1].has_more:
            self._waiting.pop()  # the rest of it will never come
        current = self._exchange
        if current is not None and self.is_busy:
            if not current.has_more:
                return
            current.leave()
        if current is None or current.is_answered or not current.is_begun:
            self.transport.write(said)
        self.close()

    def _limit_time(self) -> None:
        """No request is being answered: one is to come soon, or its rest, or the connection is kept for later."""
        is_expected = self._is_in_message or self._is_new
        (self.all.unused if is_expected else self.all.heads).discard(self)
        (self.all.heads if is_expected else self.all.unused).add(self)


def _address(transport: asyncio.Transport, name: str) -> tuple[str, int] | None:
    """An end of a connection; ``None`` if the caller has left before it was asked for."""
    found = transport.get_extra_info(name)
    return None if found is None else (found[0], found[1])
