"""One request of a connection and its answer: what an application is given, and what it says, as HTTP has it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from starlette.types import ASGIApp, Message, Scope

from holdfast.edges.service.heads import make_head, say_plainly
from holdfast.edges.service.loopback import DISCONNECT

if TYPE_CHECKING:
    from holdfast.edges.service.connections import Connection

_log = logging.getLogger("holdfast.connections")


_FAILED: Final = say_plainly("500 Internal Server Error", "The request failed.")
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_NO_BODY: Final = frozenset({204, 304})


class Exchange:
    """One request and its answer."""

    __slots__ = (
        "_body",
        "_connection",
        "_expects_continue",
        "_has_body",
        "_has_news",
        "_head",
        "_is_chunked",
        "_is_gone",
        "_left",
        "_news",
        "_scope",
        "has_more",
        "is_answered",
        "is_begun",
        "keep_alive",
        "task",
    )

    task: asyncio.Task[None]

    def __init__(
        self, connection: Connection, scope: Scope, *, keep_alive: bool, expects_continue: bool = False
    ) -> None:
        self._connection, self._scope, self._expects_continue = connection, scope, expects_continue
        self.keep_alive = keep_alive
        """Whether the connection goes on after it."""
        self._body, self.has_more, self._has_news = b"", True, False
        self._news: asyncio.Event | None = None
        self._head, self._is_chunked, self._has_body = b"", False, True
        self._left: int | None = None
        """How much of the body is to come, where that is known."""
        self.is_begun = self.is_answered = self._is_gone = False

    async def run(self, app: ASGIApp, tasks: set[asyncio.Task[None]]) -> None:
        """Have the application answer; where it does not, the connection ends."""
        try:
            await app(self._scope, self.receive, self.send)
            if not self.is_answered and not self._is_gone:
                _log.error("a request was not answered to its end")
        except BaseException as problem:  # noqa: BLE001 - a task that nobody waits for
            _log.error("a request failed", exc_info=problem)
        finally:
            tasks.discard(self.task)
            del self.task
            if not self.is_answered and not self._is_gone:
                self._break_off()

    def take(self, body: bytes, *, is_last: bool = False) -> int:
        """More of the request has come, or its end; how much of it waits."""
        if self.is_answered:
            return 0
        self._body = self._body + body if self._body else body
        self.has_more, self._has_news = not is_last, True
        if self._news is not None:
            self._news.set()
        return len(self._body)

    def leave(self) -> None:
        """The caller has left."""
        self._is_gone = True
        self._tell()

    # --- what the application is given --------------------------------------------------------------------------------

    async def receive(self) -> Message:
        """What has come of the body since; when nothing more can come, that the caller has left."""
        connection = self._connection
        if self._expects_continue and not self.is_begun and not connection.transport.is_closing():
            connection.transport.write(_CONTINUE)
        self._expects_continue = False
        while not (self._has_news or self._is_gone or self.is_answered):
            connection.resume_reading()
            self._news = asyncio.Event()
            await self._news.wait()
        if self._is_gone or self.is_answered:
            return DISCONNECT
        body, self._body, self._has_news = self._body, b"", False
        return {"type": "http.request", "body": body, "more_body": self.has_more}

    async def send(self, message: Message) -> None:
        """Take a part of the answer."""
        if self._connection.drained is not None:
            await asyncio.shield(self._connection.drained)
        if self._is_gone:
            return
        wanted = "http.response.body" if self.is_begun else "http.response.start"
        if self.is_answered or message["type"] != wanted:
            raise RuntimeError(f"an answer goes on with {wanted}, not {message['type']}, and ends with its last part")
        if self.is_begun:
            self._write(message.get("body", b""), has_more=message.get("more_body", False))
        else:
            self._start(message["status"], message.get("headers", ()))

    # --- within -------------------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        self._has_news = True
        if self._news is not None:
            self._news.set()

    def _start(self, status: int, headers: Any) -> None:
        """Make the head. It is written with the first of a body of known length; before the parts of a stream."""
        head, length, keep_alive = make_head(status, (*self._connection.default_headers, *headers))
        self.keep_alive = self.keep_alive and keep_alive
        self._has_body = self._scope["method"] != "HEAD" and status not in _NO_BODY
        is_stream = self._has_body and length is None
        self._is_chunked = is_stream and self._scope["http_version"] != "1.0"
        self._left = length
        if self._is_chunked:
            head += b"\r\ntransfer-encoding: chunked"
        if not self.keep_alive:
            head += b"\r\nconnection: close"
        self.is_begun = True
        self._head = head + b"\r\n\r\n"
        if is_stream:
            self._connection.transport.write(self._head)
            self._head = b""

    def _write(self, body: bytes, *, has_more: bool) -> None:
        if not self._has_body:
            body = b""
        elif self._is_chunked:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            body += b"" if has_more else b"0\r\n\r\n"
        elif self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (self._left and not has_more):
                raise RuntimeError("the body of an answer is not as long as its content-length says")
        if not has_more:
            self.is_answered = True
        if self._head or body:
            self._connection.transport.write(self._head + body)
            self._head = b""
        if not has_more:
            self._tell()
            self._connection.go_on(keep_alive=self.keep_alive)

    def _break_off(self) -> None:
        """End an answer before its end, and the connection with it: nothing else tells the caller."""
        self._is_gone = True
        transport = self._connection.transport
        if not transport.is_closing():
            transport.write(self._head if self.is_begun else _FAILED)
            self._connection.close()
