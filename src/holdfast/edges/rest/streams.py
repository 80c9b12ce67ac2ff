"""Answers that take long: a file that is sent while it is written, and work that reports its progress.

Work runs in a thread of its own. What comes first decides the status: something to send, or an error. When the caller
goes away, or the server stops, the work gets an error as soon as it sends something, and ends there.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import io
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from holdfast.core.errors import HoldfastError, RequestTimeoutError
from holdfast.edges.access.callers import Shares
from holdfast.edges.operations.errors import publish
from holdfast.edges.operations.outputs import encode
from holdfast.edges.rest.errors import respond

_log = logging.getLogger("holdfast.rest")
_T = TypeVar("_T")
NDJSON: Final = "application/x-ndjson"
#: How many parts wait to be sent before the work waits for the caller.
_MAX_QUEUED: Final = 8
#: Of answers to a request that is still being sent, more: some callers read nothing before they have sent all of it.
_MAX_ANSWERS: Final = 64
_PART_BYTES: Final = 64 * 1024
#: An answer begins after so long, even if the work has sent nothing.
_FIRST_PART_SECONDS: Final = 5.0
#: A caller who reads nothing for so long is given up.
_SEND_TIMEOUT_SECONDS: Final = 60.0
#: So many of these run at once; others wait, and leave threads to the other requests.
_MAX_AT_ONCE: Final = 8


class ClientGoneError(BrokenPipeError):
    """The caller is gone."""


class Sink:
    """Where work sends its parts, from its own thread. ``ClientGoneError`` when the caller is gone."""

    def __init__(
        self, sender: MemoryObjectSendStream[bytes], body: MemoryObjectReceiveStream[bytes] | None = None
    ) -> None:
        self._sender = sender
        self._body = body

    def read_lines(self) -> Iterator[list[bytes]]:
        """The lines of a request that is read while it is answered: those that are whole, as they come."""
        pieces: list[bytes] = []
        while part := self._hand(partial(anyio.from_thread.run, self._next_part)):
            *whole, rest = part.split(b"\n")
            if whole:
                whole[0], pieces = b"".join((*pieces, whole[0])), []
                yield [line for line in whole if line.strip()]
            pieces.append(rest)
        yield [line for line in (b"".join(pieces),) if line.strip()]

    async def _next_part(self) -> bytes:
        assert self._body is not None  # noqa: S101 - only what has a body is read
        try:
            with anyio.fail_after(_SEND_TIMEOUT_SECONDS):
                return await self._body.receive()
        except anyio.EndOfStream:
            return b""
        except TimeoutError:
            raise RequestTimeoutError(f"nothing came for {_SEND_TIMEOUT_SECONDS:g} s; send the rest anew") from None

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *_: object) -> None:
        self._sender.close()
        if self._body is not None:
            self._body.close()

    def write(self, part: bytes) -> None:
        """Send a part, when there is room for it."""
        self._hand(partial(anyio.from_thread.run, self._sender.send, part))

    def try_write(self, part: bytes) -> None:
        """Send a part if there is room for it now: a caller who reads slowly does not hold the work up."""
        with suppress(anyio.WouldBlock):
            self._hand(partial(anyio.from_thread.run_sync, self._sender.send_nowait, part))

    def _hand(self, hand: Callable[[], _T]) -> _T:
        try:
            anyio.from_thread.check_cancelled()
            return hand()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as gone:
            raise ClientGoneError("nobody listens any more") from gone
        except (asyncio.CancelledError, concurrent.futures.CancelledError) as gone:
            raise ClientGoneError("nobody waits for it any more") from gone


class _Buffer(Sink):
    """Keeps the parts of an answer that is sent whole. Progress is left out: nobody would see it in time."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def write(self, part: bytes) -> None:
        self.parts.append(part)

    def try_write(self, part: bytes) -> None:
        del part


Work = Callable[[Sink], None]


class StreamedResponse(Response):
    """An answer that is made while it is sent.

    Where the work sends nothing for ``first_after`` seconds, the answer begins with ``first_part``, so that nobody
    gives it up. ``last_part`` makes the end of an answer that has begun and then fails; without it, it breaks off.
    What ``reads`` takes the lines of the request while it answers them.
    """

    def __init__(
        self,
        work: Work,
        *,
        media_type: str,
        headers: Mapping[str, str] | None = None,
        first_part: bytes | None = None,
        last_part: Callable[[HoldfastError], bytes] | None = None,
        first_after: float = _FIRST_PART_SECONDS,
        reads: bool = False,
    ) -> None:
        super().__init__(b"", 200, dict(headers or {}), media_type)
        del self.headers["content-length"]
        self._work = work
        self._first_part = first_part
        self._last_part = last_part
        self._first_after = first_after
        self._reads = reads

    async def make_whole(self, scope: Scope) -> Response:
        """The same answer, made before any of it is sent; an error is raised."""
        kept = _Buffer()
        await self._work_on(scope, kept)
        return Response(b"".join(kept.parts), 200, dict(self.headers))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sender, receiver = anyio.create_memory_object_stream[bytes](_MAX_ANSWERS if self._reads else _MAX_QUEUED)
        arrived, body = anyio.create_memory_object_stream[bytes](_MAX_QUEUED) if self._reads else (None, None)
        problems: list[Exception] = []
        unreported: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch, receive, tasks.cancel_scope, arrived)
            tasks.start_soon(self._carry_out, Sink(sender, body), problems, scope)
            with receiver:
                try:
                    unreported = await self._send(Request(scope), receive, _with_timeout(send), receiver, problems)
                except ClientGoneError:
                    _log.info("the caller does not read; its work was ended")
            tasks.cancel_scope.cancel()
        if unreported is not None:
            raise unreported

    async def _work_on(self, scope: Scope, sink: Sink) -> None:
        """Do the work in a thread. Files and other work have threads of their own, of which each caller has a share."""
        state, name = scope["app"].state, "long_files" if self._first_part is None else "long_work"
        if not hasattr(state, name):
            setattr(state, name, (anyio.CapacityLimiter(_MAX_AT_ONCE), Shares(_MAX_AT_ONCE)))
        limiter, shares = getattr(state, name)
        async with shares.slot((scope.get("state") or {}).get("caller")):  # nobody, if the guard did not find that out
            await anyio.to_thread.run_sync(self._work, sink, limiter=limiter)

    async def _carry_out(self, sink: Sink, problems: list[Exception], scope: Scope) -> None:
        """Do the work, and wait for its end whatever happens: it stops when nobody listens any more."""
        with sink:
            try:
                await self._work_on(scope, sink)
            except ClientGoneError:
                _log.info("the caller went away; its work was ended")
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
        """Send what comes, and its end; the error that was not reported to the caller, if there is one."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        begun = False
        while (part := await self._next(parts, waiting=not begun)) is not None:
            if not begun:
                await send(start)
                begun = True
            await send({"type": "http.response.body", "body": part, "more_body": True})
        problem = problems[0] if problems else None
        if problem is not None and not begun:
            await respond(request, problem)(request.scope, receive, send)
            return None if isinstance(problem, HoldfastError) else problem
        if problem is not None and (self._last_part is None or not isinstance(problem, HoldfastError)):
            return problem  # the answer stays without its end, so that nobody takes it for whole
        if not begun:
            await send(start)
        last = self._last_part(problem) if self._last_part is not None and isinstance(problem, HoldfastError) else b""
        await send({"type": "http.response.body", "body": last, "more_body": False})
        return None

    async def _next(self, parts: MemoryObjectReceiveStream[bytes], *, waiting: bool) -> bytes | None:
        """The next part; ``None`` when there are no more. The first one comes within some seconds."""
        patience = self._first_after if waiting and self._first_part is not None else None
        try:
            with anyio.move_on_after(patience):
                return await parts.receive()
        except anyio.EndOfStream:
            return None
        return self._first_part


async def _watch(
    receive: Receive, scope: anyio.CancelScope, arrived: MemoryObjectSendStream[bytes] | None = None
) -> None:
    """Pass on what still comes of a request; cancel a scope when the caller goes away."""
    with arrived or nullcontext():
        while (message := await receive())["type"] != "http.disconnect":
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # nobody reads any more
                if arrived is not None and message.get("body"):
                    await arrived.send(message["body"])
            if arrived is not None and not message.get("more_body", False):
                arrived.close()
    scope.cancel()


def _with_timeout(send: Send) -> Send:
    """Sends, and gives up a caller who reads nothing for a minute: others wait for its thread."""

    async def send_in_time(message: Message) -> None:
        with anyio.move_on_after(_SEND_TIMEOUT_SECONDS) as waiting:
            await send(message)
        if waiting.cancelled_caught:
            raise ClientGoneError("nobody reads what is sent")

    return send_in_time


# --- files ------------------------------------------------------------------------------------------------------------


class _File(io.RawIOBase):
    """A file that goes to an sink, in parts of some size."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._waiting = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._waiting += data
        if len(self._waiting) >= _PART_BYTES:
            self.send()
        return len(data)

    def send(self) -> None:
        """Send what is there."""
        if self._waiting:
            part, self._waiting = bytes(self._waiting), bytearray()
            self._sink.write(part)


def stream_file(write: Callable[[io.RawIOBase], object], *, media_type: str, filename: str) -> StreamedResponse:
    """A file as an answer, sent while ``write`` writes it."""

    def work(sink: Sink) -> None:
        file = _File(sink)
        write(file)
        file.send()

    disposition = f'attachment; filename="{filename}"'
    return StreamedResponse(work, media_type=media_type, headers={"Content-Disposition": disposition})


# --- work -------------------------------------------------------------------------------------------------------------


def stream_progress(work: Callable[[Callable[[int], None]], Mapping[str, Any]]) -> StreamedResponse:
    """Work as lines of JSON: ``{"progress": done}`` now and then, and at the end ``{"result": …}``.

    What goes wrong before the first line is answered as any error; after it, the last line is ``{"problem": …}``.
    """

    def run(sink: Sink) -> None:
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            sink.try_write(_line({"progress": done}))

        sink.write(_line({"result": work(advance)}))

    return StreamedResponse(run, media_type=NDJSON, first_part=_line({"progress": 0}), last_part=_problem_line)


def stream_items(run: Callable[[int, bytes], Mapping[str, Any]]) -> StreamedResponse:
    """A line of JSON for each line of a request, which is read while it is answered. ``run`` takes the number of a line
    and the line.
    """

    def work(sink: Sink) -> None:
        file, numbers = _File(sink), count()
        for lines in sink.read_lines():
            for line in lines:
                file.write(_line(run(next(numbers), line)))
            file.send()

    return StreamedResponse(work, media_type=NDJSON, last_part=_problem_line, reads=True)


def stream_pages(read: Callable[[str | None], Mapping[str, Any]], *, is_whole: bool) -> StreamedResponse:
    """A list as lines of JSON: all of its pages if ``is_whole``, else the first. ``read`` takes a cursor."""

    def work(sink: Sink) -> None:
        file, page = _File(sink), read(None)
        while True:
            for item in page["items"]:
                file.write(_line(item))
            cursor = page.get("next_cursor") if is_whole else None
            if cursor is None:
                break
            page = read(cursor)
        file.send()

    return StreamedResponse(work, media_type=NDJSON, last_part=_problem_line)


def is_ndjson(media_type: str | None) -> bool:
    """Whether a header names lines of JSON."""
    return media_type is not None and media_type.partition(";")[0].strip().lower() in (NDJSON, "application/jsonl")


def _problem_line(problem: HoldfastError) -> bytes:
    known = publish(problem)
    return _line({"problem": {"code": known.code, "detail": known.message, "retryable": known.retryable}})


def _line(said: Mapping[str, Any]) -> bytes:
    return encode(said) + b"\n"
