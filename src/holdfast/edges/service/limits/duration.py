"""How long a request may take before its answer begins."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.core.deadline import Deadline
from holdfast.core.errors import RequestTimeoutError
from holdfast.edges.service.asgi import refuse

_log = logging.getLogger("holdfast.service")
_STARTED, _ENDED, _LATE = "started", "ended", "late"
_DISCONNECT: Final[Message] = {"type": "http.disconnect"}


class TimeLimit:
    """Answers with 503 for requests that take too long, be it to arrive or to be answered.

    What only looks is stopped then, wherever it is: each request has a ``Deadline`` that its work looks at. A write
    that has begun goes on to its end, and its answer (which an idempotency key finds again) is sent to nobody. Answers
    that have begun take their time.
    """

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self._app = app
        self._seconds = seconds
        self._left: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        loop = asyncio.get_running_loop()
        turn = _Turn(receive, send, loop.create_future())
        task: asyncio.Task[None] = loop.create_task(_run(self._app, scope, turn))
        task.add_done_callback(lambda _: turn.decide(_ENDED))
        timer = loop.call_later(self._seconds, turn.decide, _LATE)
        try:
            if await turn.verdict == _LATE:
                self._leave(task, turn)
                await self._refuse(scope, send, arrived=turn.arrived)
            else:
                timer.cancel()
                await task
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            timer.cancel()

    async def finish(self) -> None:
        """Wait for what was left to itself to end."""
        while self._left:
            await asyncio.wait(self._left)

    def _leave(self, task: asyncio.Task[None], turn: _Turn) -> None:
        turn.over = True
        turn.deadline.expire()
        self._left.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._left.discard(task)
        problem = None if task.cancelled() else task.exception()
        if problem is not None and not isinstance(problem, RequestTimeoutError):  # it was stopped, as it should be
            _log.error("a request that had been given up failed", exc_info=problem)

    async def _refuse(self, scope: Scope, send: Send, *, arrived: bool) -> None:
        if arrived:
            problem = RequestTimeoutError(
                f"no answer within {self._seconds:g} s. A read was stopped; ask for less at once. A write may still be "
                "done: look before you try again, or send the same Idempotency-Key with it"
            )
        else:
            problem = RequestTimeoutError(f"the request did not arrive within {self._seconds:g} s; send it again")
        await refuse(scope, send, problem, close=True, wait_seconds=1)


async def _run(app: ASGIApp, scope: Scope, turn: _Turn) -> None:
    with turn.deadline.applied():
        await app(scope, turn.receive, turn.send)


class _Turn:
    """One request: what it came to, and its ways in and out, which are closed once it is over."""

    def __init__(self, receive: Receive, send: Send, verdict: asyncio.Future[str]) -> None:
        self._receive = receive
        self._send = send
        self.verdict = verdict
        self.deadline = Deadline()
        self.arrived = False
        self.over = False

    def decide(self, verdict: str) -> None:
        if not self.verdict.done():
            self.verdict.set_result(verdict)

    async def receive(self) -> Message:
        if self.over:
            return _DISCONNECT
        message = await self._receive()
        self.arrived = self.arrived or not message.get("more_body", False)
        return _DISCONNECT if self.over else message

    async def send(self, message: Message) -> None:
        if self.over:
            return
        self.decide(_STARTED)
        if self.verdict.result() != _LATE:  # its time was over before it began to answer
            self.deadline.keep_on()
            await self._send(message)
