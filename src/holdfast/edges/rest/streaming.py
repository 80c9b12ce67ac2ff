"""Answers that take a while: a file that is written as it is sent, and work that tells how far it is.

Work runs in a thread of its own. Its status is decided by what comes first: something to send, or an error. When the
caller goes away, or the server stops, the work hears of it as soon as it has something to send, and ends there.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import io
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from fastapi import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from holdfast.core.access import Principal
from holdfast.core.content import to_json
from holdfast.core.errors import HoldfastError
from holdfast.edges.access.callers import Shares
from holdfast.edges.operations.errors import publish
from holdfast.edges.rest.errors import failed, respond

_log = logging.getLogger("holdfast.api")
_T = TypeVar("_T")
NDJSON: Final = "application/x-ndjson"
#: How many parts wait to be sent before the work waits for the caller.
_WAITING: Final = 8
_LEAST_PART: Final = 64 * 1024
#: An answer begins after so long, whether or not there is anything to tell.
_PATIENCE_SECONDS: Final = 5.0
#: A caller who reads nothing for so long is given up.
_STALLED_SECONDS: Final = 60.0
#: So much of it is done at once; what is more waits, and leaves threads to the other requests.
_MOST_AT_ONCE: Final = 8


class GoneError(BrokenPipeError):
    """Nobody is there any more to be told."""


class Outlet(Protocol):
    """Where work puts what it has to say. Both raise ``GoneError`` when nobody listens any more."""

    def write(self, part: bytes) -> None:
        """Send a part, when there is room for it."""

    def offer(self, part: bytes) -> None:
        """Send a part if there is room for it now: a caller who reads slowly does not hold the work up."""


Work = Callable[[Outlet], None]


class Streamed(Response):
    """An answer that is made while it is sent.

    Where the work has nothing to say for ``patience`` seconds, the answer begins with ``opening``, lest anyone give it
    up. ``tell`` gives the last words of an answer that has begun and goes wrong; without it, such an answer breaks off.
    """

    def __init__(
        self,
        work: Work,
        *,
        media_type: str,
        headers: Mapping[str, str] | None = None,
        opening: bytes | None = None,
        tell: Callable[[HoldfastError], bytes] | None = None,
        patience: float = _PATIENCE_SECONDS,
    ) -> None:
        super().__init__(b"", 200, dict(headers or {}), media_type)
        del self.headers["content-length"]
        self._work = work
        self._opening = opening
        self._tell = tell
        self._patience = patience

    async def whole(self, scope: Scope) -> Response:
        """The same answer, made before any of it is sent; an error is raised."""
        kept = _Kept()
        async with self._shares(scope).place(_principal(scope)):
            await anyio.to_thread.run_sync(self._work, kept, limiter=self._limiter(scope))
        return Response(b"".join(kept.parts), 200, dict(self.headers))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        giving, taking = anyio.create_memory_object_stream[bytes](_WAITING)
        problems: list[Exception] = []
        untold: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch, receive, tasks.cancel_scope)
            tasks.start_soon(self._carry_out, giving, problems, scope)
            with taking:
                try:
                    untold = await self._send(Request(scope), receive, _impatient(send), taking, problems)
                except GoneError:
                    _log.info("the caller does not read: what was being done for it was ended")
            tasks.cancel_scope.cancel()
        if untold is not None:
            raise untold

    def _limiter(self, scope: Scope) -> anyio.CapacityLimiter:
        """Who waits for files does not keep work waiting."""
        return _kept(scope, self._what, lambda: anyio.CapacityLimiter(_MOST_AT_ONCE))

    def _shares(self, scope: Scope) -> Shares:
        return _kept(scope, f"{self._what}_shares", lambda: Shares(_MOST_AT_ONCE))

    @property
    def _what(self) -> str:
        return "long_files" if self._opening is None else "long_work"

    async def _carry_out(self, giving: MemoryObjectSendStream[bytes], problems: list[Exception], scope: Scope) -> None:
        """Do the work in a thread, and wait for its end whatever happens: it stops when nobody listens any more."""
        with giving:
            try:
                async with self._shares(scope).place(_principal(scope)):
                    await anyio.to_thread.run_sync(self._work, _Piped(giving), limiter=self._limiter(scope))
            except GoneError:
                _log.info("the caller went away: what was being done for it was ended")
            except Exception as problem:  # noqa: BLE001 - whatever it is, it is told, or raised where it can be
                problems.append(problem)

    async def _send(
        self,
        request: Request,
        receive: Receive,
        send: Send,
        parts: MemoryObjectReceiveStream[bytes],
        problems: list[Exception],
    ) -> Exception | None:
        """Send what comes, and its end; the error that the caller could not be told, or was told nothing of."""
        begun = False
        while (part := await self._next(parts, waiting=not begun)) is not None:
            if not begun:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                begun = True
            await send({"type": "http.response.body", "body": part, "more_body": True})
        problem = problems[0] if problems else None
        last = self._tell(problem) if begun and self._tell is not None and isinstance(problem, HoldfastError) else b""
        if problem is None or last:
            if not begun:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": last, "more_body": False})
            return None
        if begun:
            return problem  # the answer stays without its end, so that nobody takes it for whole
        response = respond(request, problem) if isinstance(problem, HoldfastError) else failed(request)
        await response(request.scope, receive, send)
        return None if isinstance(problem, HoldfastError) else problem

    async def _next(self, parts: MemoryObjectReceiveStream[bytes], *, waiting: bool) -> bytes | None:
        """The next part; ``None`` when there are no more. Who waits for the first one is not kept waiting for long."""
        patience = self._patience if waiting and self._opening is not None else None
        try:
            with anyio.move_on_after(patience):
                return await parts.receive()
        except anyio.EndOfStream:
            return None
        return self._opening


class _Piped:
    """Hands parts from the work's thread to the one that sends them."""

    def __init__(self, giving: MemoryObjectSendStream[bytes]) -> None:
        self._giving = giving

    def write(self, part: bytes) -> None:
        self._hand_over(partial(anyio.from_thread.run, self._giving.send, part))

    def offer(self, part: bytes) -> None:
        try:
            self._hand_over(partial(anyio.from_thread.run_sync, self._giving.send_nowait, part))
        except anyio.WouldBlock:
            return

    def _hand_over(self, hand: Callable[[], object]) -> None:
        try:
            anyio.from_thread.check_cancelled()
            hand()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as gone:
            raise GoneError("nobody listens any more") from gone
        except (asyncio.CancelledError, concurrent.futures.CancelledError) as gone:
            raise GoneError("nobody waits for it any more") from gone


class _Kept:
    """Keeps parts, for an answer that is sent whole: of what is only offered, nobody would see anything in time."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def write(self, part: bytes) -> None:
        self.parts.append(part)

    def offer(self, part: bytes) -> None:
        del part


async def _watch(receive: Receive, scope: anyio.CancelScope) -> None:
    """Cancel a scope when the caller goes away."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _impatient(send: Send) -> Send:
    """Sends, and gives up a caller who takes nothing for a minute: others wait for its place."""

    async def sent(message: Message) -> None:
        with anyio.move_on_after(_STALLED_SECONDS) as waiting:
            await send(message)
        if waiting.cancelled_caught:
            raise GoneError("nobody reads what is sent")

    return sent


def _kept(scope: Scope, name: str, make: Callable[[], _T]) -> _T:
    """What an application has one of, made when it is first needed."""
    state = scope["app"].state
    if not hasattr(state, name):
        setattr(state, name, make())
    found: _T = getattr(state, name)
    return found


def _principal(scope: Scope) -> Principal | None:
    """Who asks, if the guard found that out."""
    caller = (scope.get("state") or {}).get("caller")
    found: Principal | None = None if caller is None else caller.gate.principal
    return found


# --- files ------------------------------------------------------------------------------------------------------------


class _File(io.RawIOBase):
    """A file that goes to an outlet, in parts of some size."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._waiting = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._waiting += data
        if len(self._waiting) >= _LEAST_PART:
            self.send()
        return len(data)

    def send(self) -> None:
        """Send what is there."""
        if self._waiting:
            part, self._waiting = bytes(self._waiting), bytearray()
            self._outlet.write(part)


def stream_file(write: Callable[[io.RawIOBase], object], *, media_type: str, filename: str) -> Streamed:
    """A file as an answer, sent while ``write`` writes it."""

    def work(outlet: Outlet) -> None:
        file = _File(outlet)
        write(file)
        file.send()

    disposition = f'attachment; filename="{filename}"'
    return Streamed(work, media_type=media_type, headers={"Content-Disposition": disposition})


# --- work -------------------------------------------------------------------------------------------------------------


def stream_progress(work: Callable[[Callable[[int], None]], Mapping[str, Any]]) -> Streamed:
    """Work as lines of JSON: ``{"progress": done}`` now and then, and at the end ``{"result": …}``.

    What goes wrong before the first line is answered as any error; after it, the last line is ``{"problem": …}``.
    """

    def run(outlet: Outlet) -> None:
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            outlet.offer(_line({"progress": done}))

        outlet.write(_line({"result": work(advance)}))

    return Streamed(run, media_type=NDJSON, opening=_line({"progress": 0}), tell=_problem_line)


def _problem_line(problem: HoldfastError) -> bytes:
    known = publish(problem)
    return _line({"problem": {"code": known.code, "detail": known.message, "retryable": known.retryable}})


def _line(said: Mapping[str, Any]) -> bytes:
    return to_json(said).encode("utf-8", "backslashreplace") + b"\n"
