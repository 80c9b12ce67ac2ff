"""What one caller may ask of the service: how much, how often, for how long, and how many at once."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.core.clock import Deadline
from holdfast.core.errors import InvalidInputError, RateLimitedError, RequestTimeoutError, RequestTooLargeError, quote
from holdfast.core.records import MIB
from holdfast.edges.service.asgi import DISCONNECT, header, refuse, secret_of
from holdfast.settings import Settings

_log = logging.getLogger("holdfast.service")
_STARTED, _ENDED, _LATE = "started", "ended", "late"


class Limits(NamedTuple):
    """The limits in force; a rate of 0 is no limit."""

    request_bytes: int = 32 * MIB
    request_seconds: float = 30.0
    rate_per_second: float = 200.0
    requests_at_once: int = 500

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """As the settings have them."""
        return cls(
            settings.request_bytes, settings.request_seconds, settings.rate_per_second, settings.requests_at_once
        )


class SizeLimit:
    """Refuses larger requests with 413: at once, if they say their length; else when they have come to be larger.

    A request that turns out too large ends for the app as if its caller had gone; what it answers to that is dropped.
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        said = header(scope, b"content-length")
        if said is not None and not (said.isascii() and said.isdecimal()):
            problem = InvalidInputError(f"content-length must be a number of bytes, not {quote(said)}")
            await refuse(scope, send, problem, close=True)
        elif said is not None and int(said[:20]) > self._most:
            await self._refuse(scope, send)
        else:
            counted = _CountedRequest(receive, send, self._most)
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


class _CountedRequest:
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
        return DISCONNECT

    async def send(self, message: Message) -> None:
        if self.answered or not self.too_large:
            self.answered = True
            await self._send(message)


class ConcurrencyLimit:
    """Refuses with 429 what would be one too many; a request counts until all that it set off has ended."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._inside >= self._most:
            problem = RateLimitedError(
                f"{self._most:,} requests are being answered already (HOLDFAST_REQUESTS_AT_ONCE); try again in a moment"
            )
            await refuse(scope, send, problem, wait_seconds=1, close=True)
            return
        self._inside += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._inside -= 1


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
        loop = asyncio.get_running_loop()
        turn = _TimedRequest(receive, send, loop.create_future())
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

    def _leave(self, task: asyncio.Task[None], turn: _TimedRequest) -> None:
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


async def _run(app: ASGIApp, scope: Scope, turn: _TimedRequest) -> None:
    with turn.deadline.applied():
        await app(scope, turn.receive, turn.send)


class _TimedRequest:
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
            return DISCONNECT
        message = await self._receive()
        self.arrived = self.arrived or not message.get("more_body", False)
        return DISCONNECT if self.over else message

    async def send(self, message: Message) -> None:
        if self.over:
            return
        self.decide(_STARTED)
        if self.verdict.result() != _LATE:  # its time was over before it began to answer
            self.deadline.keep_on()
            await self._send(message)


#: A bucket holds what comes in so many seconds: a burst.
BURST_SECONDS: Final = 2.0
#: What a wrong key costs its address.
_WRONG_KEY: Final = 10.0
_UNAUTHENTICATED: Final = 401
_IPV6_NETWORK: Final = 64


class Buckets:
    """Tokens by name, ``rate`` more of them each second up to ``burst``. Remembers ``most`` names, the latest used."""

    def __init__(
        self, rate: float, *, burst: float | None = None, most: int = 10_000, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = max(1.0, rate * BURST_SECONDS if burst is None else burst)
        self._most = most
        self._now = now
        self._kept: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def wait(self, name: str) -> float:
        """Seconds until there is a token; 0 if there is one."""
        tokens = self._tokens(name)
        return 0.0 if tokens >= 1.0 else (1.0 - tokens) / self._rate

    def take(self, name: str, tokens: float = 1.0) -> None:
        """Take tokens, if need be some that are yet to come (not more than a full bucket of them)."""
        left = max(self._tokens(name) - tokens, -self._burst)
        self._kept[name] = (left, self._now())
        self._kept.move_to_end(name)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def _tokens(self, name: str) -> float:
        tokens, since = self._kept.get(name, (self._burst, 0.0))
        return min(self._burst, tokens + (self._now() - since) * self._rate)


class RateLimit:
    """Refuses with 429, and says when to come back. What is asked for at the ``free`` paths costs nothing."""

    def __init__(self, app: ASGIApp, buckets: Buckets, *, free: Collection[str] = ()) -> None:
        self._app = app
        self._buckets = buckets
        self._free = frozenset(free)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in self._free:
            await self._app(scope, receive, send)
            return
        address, secret = _address(scope), secret_of(scope)
        caller = address if secret is None else _key(secret)
        wait = max(self._buckets.wait(address), self._buckets.wait(caller))
        if wait > 0:
            problem = RateLimitedError(
                f"too many requests; come back in {wait:.1f} s, or let the service take more (HOLDFAST_RATE_PER_SECOND)"
            )
            await refuse(scope, send, problem, wait_seconds=wait)
            return
        self._buckets.take(caller)

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start" and secret is not None and not _is_known(scope):
                self._buckets.take(address, _WRONG_KEY if message["status"] == _UNAUTHENTICATED else 1.0)
            await send(message)

        await self._app(scope, receive, watched)


def _is_known(scope: Scope) -> bool:
    """Whether somebody found out who called; where nobody looks at keys, anything passes for one."""
    state = scope.get("state") or {}
    return "caller" in state


def _key(secret: str) -> str:
    """A name for a key that does not tell it."""
    return "key " + hashlib.blake2b(secret.encode(errors="replace"), digest_size=16).hexdigest()


def _address(scope: Scope) -> str:
    """Where a request comes from; of IPv6 the network, since one caller has all of its addresses."""
    client = scope.get("client")
    host = client[0] if client else ""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return f"address {host}"
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return f"network {ipaddress.ip_network((address, _IPV6_NETWORK), strict=False)}"
    return f"address {address}"
