"""How large a request may be, whether it says so beforehand or not."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.core.errors import InvalidInputError, RequestTooLargeError, quote
from holdfast.edges.service.asgi import header, refuse


class SizeLimit:
    """Refuses larger requests with 413: at once, if they say their length; else when they have come to be larger.

    A request that turns out too large ends for the app as if its caller had gone; what it answers to that is dropped.
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        said = header(scope, b"content-length")
        if said is not None and not (said.isascii() and said.isdecimal()):
            problem = InvalidInputError(f"content-length must be a number of bytes, not {quote(said)}")
            await refuse(scope, send, problem, close=True)
        elif said is not None and int(said[:20]) > self._most:
            await self._refuse(scope, send)
        else:
            counted = _Counted(receive, send, self._most)
            try:
                await self._app(scope, counted.receive, counted.send)
            finally:
                if counted.too_large and not counted.answered:
                    await self._refuse(scope, send)

    async def _refuse(self, scope: Scope, send: Send) -> None:
        problem = RequestTooLargeError(
            f"the request is larger than {self._most:,} bytes; send less at once, or let the service take more "
            "(HOLDFAST_REQUEST_MIB)"
        )
        await refuse(scope, send, problem, close=True)


class _Counted:
    """One request, its body counted as it is read."""

    def __init__(self, receive: Receive, send: Send, most: int) -> None:
        self._receive = receive
        self._send = send
        self._left = most
        self.too_large = False
        self.answered = False

    async def receive(self) -> Message:
        if not self.too_large:
            message = await self._receive()
            self._left -= len(message.get("body", b""))
            if self._left >= 0:
                return message
            self.too_large = True
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self.answered or not self.too_large:
            self.answered = True
            await self._send(message)
