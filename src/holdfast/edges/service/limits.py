"""What one caller may ask of the service: how much, how often, for how long, and how many at once."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from functools import lru_cache
from typing import Final, NamedTuple

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.core.clock import Deadline
from holdfast.core.errors import (
    HoldfastError,
    InvalidInputError,
    RateLimitedError,
    RequestTimeoutError,
    RequestTooLargeError,
    quote,
)
from holdfast.core.records import MIB
from holdfast.edges.console.sign_in import COOKIE
from holdfast.edges.rest.direct import WholeRequest, find_direct_way
from holdfast.edges.service.loopback import DISCONNECT, GIVE_UP, header, refuse, secret_of
from holdfast.edges.service.timeouts import Timeouts
from holdfast.settings import Settings

_log = logging.getLogger("holdfast.service")


class Limits(NamedTuple):
    """The limits in force; a rate of 0 is no limit."""

    request_bytes: int = 32 * MIB
    request_seconds: float = 30.0
    rate_per_second: float = 200.0
    requests_at_once: int = 2_000

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """As the settings have them."""
        return cls(*(getattr(settings, name) for name in cls._fields))


#: All that is being sent at once may come to so many of the largest request.
_BODIES: Final = 16
#: What is no larger is let in all the same: so nobody who sends much keeps out those who send little.
_SMALL_BYTES: Final = 64 * 1024


class Tally:
    """How many requests are at work."""

    _count = 0

    def add(self, count: int) -> None:
        """So many more, or fewer."""
        self._count += count

    def count(self) -> int:
        """All of them."""
        return self._count


class RequestLimit:
    """Limits each request: how many there are at once, and how much they hold (429), how large one is (413), how long
    it takes (503).

    A request that turns out too large ends for the app as if its caller had gone; what it answers to that is dropped.
    Of one that takes too long, be it to arrive or to be answered, what only looks is stopped, wherever it is: each
    request has a ``Deadline`` that its work looks at. A write that has begun goes on to its end, and its answer (which
    an idempotency key finds again) is sent to nobody. Answers that have begun take their time. A request counts until
    all that it set off has ended, even if its caller was answered before.
    """

    def __init__(self, app: ASGIApp, limits: Limits, tally: Tally | None = None) -> None:
        self._app, self._directly = app, find_direct_way(app)
        self._limits = limits
        self._inside = tally or Tally()
        self._bodies = _Bodies(limits.request_bytes)
        self._waiting = Timeouts(limits.request_seconds, self._give_up)
        #: What was given up and has not ended, with a future that waits for it.
        self._left: dict[_Request, asyncio.Future[None]] = {}
        self._refusals: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = self._refusal_reason(header(scope, b"content-length"))
        if problem is not None:
            await refuse(scope, send, problem, close=True)
            return
        request = _Request(scope, receive, send, self._bodies, self._waiting)
        self._inside.add(1)
        self._waiting.add(request)
        token = request.begin()
        try:
            await self._app(scope, request.receive, request.send)
        except Exception as problem:
            if not request.is_over:
                raise
            if not isinstance(problem, RequestTimeoutError):  # it was stopped, as it should be
                _log.exception("a request that had been given up failed")
        finally:
            request.end(token)
            self._inside.add(-1)
            self._waiting.discard(request)
            self._bodies.total -= request.bytes
            if request.is_over:
                self._left.pop(request).set_result(None)
            elif request.excess is not None and not request.has_answer:
                await refuse(scope, send, request.excess, close=True)

    def answer_directly(self, asked: WholeRequest) -> Response | None:
        """Let one in that is small and quick, if there is room."""
        is_small = len(asked.content) <= self._limits.request_bytes
        return self._directly(asked) if is_small and self._inside.count() < self._limits.requests_at_once else None

    async def finish(self) -> None:
        """Wait for what was left to itself to end."""
        while self._left:
            await asyncio.wait(self._left.values())

    @staticmethod
    async def _refuse_late(request: _Request, problem: HoldfastError) -> None:
        await refuse(request.scope, request.answer, problem, close=True)
        request.scope.get("state", {}).get(GIVE_UP, lambda: None)()

    def _give_up(self, request: _Request) -> None:
        """Answer for a request, and leave its work to itself."""
        loop = asyncio.get_running_loop()
        self._left[request] = loop.create_future()
        request.is_over = True
        request.expire()
        problem = self._timeout(has_arrived=request.has_arrived)
        task = loop.create_task(self._refuse_late(request, problem))
        self._refusals.add(task)
        task.add_done_callback(self._refusals.discard)

    def _refusal_reason(self, length: str | None) -> HoldfastError | None:
        """Why a request that says its length is not let in."""
        most = self._limits.requests_at_once
        if self._inside.count() >= most:
            return RateLimitedError(
                f"{most:,} requests are being answered already (HOLDFAST_REQUESTS_AT_ONCE); try again in a moment"
            )
        if length is not None and not (length.isascii() and length.isdecimal()):
            return InvalidInputError(f"content-length must be a number of bytes, not {quote(length)}")
        declared = 0 if length is None else int(length.lstrip("0")[:20] or 0)
        return self._bodies.find_excess(declared, to_come=declared)

    def _timeout(self, *, has_arrived: bool) -> RequestTimeoutError:
        seconds = f"{self._limits.request_seconds:g} s"
        if not has_arrived:
            return RequestTimeoutError(f"the request did not arrive within {seconds}; send it again")
        return RequestTimeoutError(
            f"no answer within {seconds}. A read was stopped; ask for less at once. A write may still be done: look "
            "before you try again, or send the same Idempotency-Key with it"
        )


class _Bodies:
    """What has arrived of the bodies of all requests that are at work, which is held in memory."""

    def __init__(self, most_each: int) -> None:
        self._most_each, self._most = most_each, _BODIES * most_each
        self.total = 0

    def find_excess(self, of_one: int, *, to_come: int = 0) -> HoldfastError | None:
        """What is wrong where one request has so many bytes, and so many of them are to come."""
        if of_one > self._most_each:
            return RequestTooLargeError(
                f"the request is larger than {self._most_each:,} bytes; send less at once, or let the service take "
                "more (HOLDFAST_REQUEST_MIB)"
            )
        if of_one > _SMALL_BYTES and self.total + to_come > self._most:
            return RateLimitedError(
                f"what is being sent at once comes to more than {self._most:,} bytes ({_BODIES} times "
                "HOLDFAST_REQUEST_MIB); try again in a moment"
            )
        return None


class _Request(Deadline):
    """One request: how long it may take, and its ways in and out, which are closed once it is over."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, bodies: _Bodies, waiting: Timeouts[_Request]
    ) -> None:
        super().__init__()
        self._receive = receive
        self._bodies = bodies
        self._waiting = waiting
        self.scope = scope
        self.answer = send
        self.has_arrived = self.has_answer = self.is_over = False
        self.bytes = 0
        """Of its body, so far."""
        self.excess: HoldfastError | None = None
        """Why it is not read any further."""

    async def receive(self) -> Message:
        if self.is_over or self.excess is not None:
            return DISCONNECT
        message = await self._receive()
        if body := message.get("body"):
            self.bytes += len(body)
            self._bodies.total += len(body)
            self.excess = self._bodies.find_excess(self.bytes)
        self.has_arrived = self.has_arrived or not message.get("more_body", False)
        return DISCONNECT if self.is_over or self.excess is not None else message

    def send(self, message: Message) -> Awaitable[None]:
        if self.is_over or (self.excess is not None and not self.has_answer):
            return _drop()
        if not self.has_answer:
            self.has_answer = True
            self._waiting.discard(self)  # what has begun takes its time
            self.keep_on()
        return self.answer(message)


async def _drop() -> None:
    """Send nothing."""


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
        self._write(name, max(self._tokens(name) - tokens, -self._burst), self._now())

    def _tokens(self, name: str) -> float:
        tokens, since = self._read(name) or (self._burst, 0.0)
        return min(self._burst, tokens + (self._now() - since) * self._rate)

    def _read(self, name: str) -> tuple[float, float] | None:
        """The tokens that there were of a name, and when."""
        return self._kept.get(name)

    def _write(self, name: str, left: float, since: float) -> None:
        self._kept[name] = (left, since)
        self._kept.move_to_end(name)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)


class RateLimit:
    """Refuses with 429, and says when to come back. What is asked for at the ``free`` paths costs nothing."""

    def __init__(self, app: ASGIApp, buckets: Buckets, *, free: Collection[str] = ()) -> None:
        self._app, self._directly = app, find_direct_way(app)
        self._buckets = buckets
        self._free = frozenset(free)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in self._free:
            await self._app(scope, receive, send)
            return
        address, caller = self._names(scope)
        wait = self._wait(address, caller)
        if wait > 0:
            problem = RateLimitedError(
                f"too many requests; come back in {wait:.1f} s, or let the service take more (HOLDFAST_RATE_PER_SECOND)"
            )
            await refuse(scope, send, problem, wait_seconds=wait)
            return
        self._buckets.take(caller)

        async def charge_and_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._charge(scope, address, caller, message["status"])
            await send(message)

        await self._app(scope, receive, charge_and_send)

    def answer_directly(self, asked: WholeRequest) -> Response | None:
        """Let a caller in who need not wait."""
        address, caller = self._names(asked.scope)
        answer = self._directly(asked) if self._wait(address, caller) <= 0 else None
        if answer is not None:
            self._buckets.take(caller)
            self._charge(asked.scope, address, caller, answer.status_code)
        return answer

    def _charge(self, scope: Scope, address: str, caller: str, status: int) -> None:
        """Let the address pay, too, where nobody found out who called: anything may pass for a key."""
        if caller != address and "caller" not in (scope.get("state") or {}):
            self._buckets.take(address, _WRONG_KEY if status == _UNAUTHENTICATED else 1.0)

    def _wait(self, address: str, caller: str) -> float:
        return max(self._buckets.wait(address), self._buckets.wait(caller))

    @staticmethod
    def _names(scope: Scope) -> tuple[str, str]:
        """The names of a request's buckets: of its address, and of its caller, which may be the same."""
        # A browser has a token instead of a key.
        address, secret = _address(scope), secret_of(scope) or HTTPConnection(scope).cookies.get(COOKIE)
        return address, address if secret is None else _hash(secret)


def _hash(secret: str) -> str:
    """A name for a key that does not tell it."""
    return "key " + hashlib.blake2b(secret.encode(errors="replace"), digest_size=16).hexdigest()


def _address(scope: Scope) -> str:
    """Where a request comes from; of IPv6 the network, since one caller has all of its addresses."""
    return _name_address(scope["client"][0] if scope.get("client") else "")


@lru_cache(1_024)
def _name_address(host: str) -> str:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return f"address {host}"
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return f"network {ipaddress.ip_network((address, _IPV6_NETWORK), strict=False)}"
    return f"address {address}"
