"""``/healthz``, ``/readyz`` and ``/metrics``: what machines ask a service, answered before any limit.

- ``/healthz``: the process is up and answers. Whoever restarts processes should ask this and nothing more.
- ``/readyz``: it can do its work: 200, or 503; in either case with the part that is away, within 300 ms. Whoever sends
  requests here should ask this.
- ``/metrics``: for Prometheus. It counts everyone's memories, so it is for callers on this machine, and for keys of an
  operator with the right to read.

Anyone may ask whether the service is healthy and ready; why it is not is told to those who may read the metrics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.access.keys import Access
from holdfast.core.access import Principal, Right
from holdfast.core.errors import ForbiddenError, HoldfastError, InvalidInputError, UnauthenticatedError
from holdfast.edges.service.asgi import answer, answer_json, refuse, secret_of
from holdfast.edges.service.loopback import is_local
from holdfast.edges.service.readiness import Readiness

HEALTH, READY, METRICS = "/healthz", "/readyz", "/metrics"
PATHS: Final = (HEALTH, READY, METRICS)


class Route(NamedTuple):
    """As what a probe is counted."""

    path: str


class Probes:
    """Answers the three paths, and passes on all others."""

    def __init__(self, app: ASGIApp, *, readiness: Readiness, exposition: Callable[[], bytes], access: Access) -> None:
        self._app = app
        self._readiness = readiness
        self._exposition = exposition
        self._access = access
        self._collecting = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in PATHS:
            await self._app(scope, receive, send)
            return
        scope["route"] = Route(scope["path"])
        if scope["method"] not in {"GET", "HEAD"}:
            await refuse(scope, send, InvalidInputError(f"{scope['path']} takes GET"), status=405)
        elif scope["path"] == HEALTH:
            await answer_json(send, 200, {"status": "ok"})
        elif scope["path"] == READY:
            found = await self._readiness.look()
            # Nobody asks why all is well; and of a store that is away nobody is asked who may know why.
            detailed = not found.whole and (
                self._is_known(scope) or (found.checks.get("store") is None and await self._objection(scope) is None)
            )
            await answer_json(send, 200 if found.ready else 503, found.as_dict(detailed=detailed))
        else:
            await self._metrics(scope, send)

    async def _metrics(self, scope: Scope, send: Send) -> None:
        problem = await self._objection(scope)
        if problem is not None:
            await refuse(scope, send, problem)
            return
        async with self._collecting:
            text = await asyncio.to_thread(self._exposition)
        await answer(send, 200, text, CONTENT_TYPE_LATEST)

    async def _objection(self, scope: Scope) -> HoldfastError | None:
        """Why a caller may not see what an operator sees."""
        if is_local(scope):
            return None
        secret = secret_of(scope)
        if secret is None:
            return UnauthenticatedError(
                "metrics are for callers on this machine, or with an operator's key: send it as Authorization: Bearer …"
            )
        try:
            principal = await asyncio.to_thread(self._access.identify, secret)
        except HoldfastError as problem:
            return problem
        if _sees_metrics(principal):
            return None
        return ForbiddenError("metrics count every tenant's memories: they need an operator's key (tenant *)")

    def _is_known(self, scope: Scope) -> bool:
        """Whether a caller may see what an operator sees, as far as that can be told without asking the store."""
        secret = secret_of(scope)
        key = None if secret is None else self._access.known(secret)
        return is_local(scope) or (key is not None and _sees_metrics(key.principal))


def _sees_metrics(principal: Principal) -> bool:
    return principal.is_operator and principal.allows(Right.READ)
