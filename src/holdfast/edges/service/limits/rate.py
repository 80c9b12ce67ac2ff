"""How often one caller may ask: a bucket of tokens for each API key, and for each address.

A request takes one from its key's bucket, or from its address's if it has no key. One whose key was refused, or that
nobody looked at, costs its address as well: so guessing keys, or sending ever new ones, does not go on for long.
"""

from __future__ import annotations

import hashlib
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.core.errors import RateLimitedError
from holdfast.edges.service.asgi import refuse, secret_of

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
        if scope["type"] != "http" or scope["path"] in self._free:
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
