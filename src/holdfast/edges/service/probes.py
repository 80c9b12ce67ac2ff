"""``/healthz``, ``/readyz`` and ``/metrics``: what machines ask a service, answered before any limit.

- ``/healthz``: the process is up and answers. Whoever restarts processes should ask this and nothing more.
- ``/readyz``: it can do its work: 200, or 503; in either case with the part that is away, within 300 ms. Whoever sends
  requests here should ask this.
- ``/metrics``: for Prometheus. It counts everyone's memories, so it is for callers on this machine, and for keys of an
  operator with the right to read.

Anyone may ask whether the service is healthy and ready; only those who may read the metrics see why it is not.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.access.keys import Access
from holdfast.core.access import Principal, Right
from holdfast.core.errors import ForbiddenError, HoldfastError, InvalidInputError, UnauthenticatedError
from holdfast.edges.rest.direct import find_direct_way
from holdfast.edges.service.loopback import is_local, refuse, secret_of

#: How long an answer waits for looks that have begun: with what else it takes, it comes within 300 ms.
ANSWER_SECONDS: Final = 0.15
#: Probes within so many seconds are given one answer: asking is not to be a load.
KEPT_SECONDS: Final = 1.0

Look = Callable[[], str | None]
"""What is wrong, or ``None``."""


class Part(NamedTuple):
    """Something that the service needs."""

    look: Look
    needed: bool = True
    """Whether nothing is to be sent here while it is away; else it is only named."""
    kept_seconds: float = KEPT_SECONDS


class Findings(NamedTuple):
    """What was found: for each part what is wrong with it, or ``None``."""

    checks: Mapping[str, str | None]
    needed: frozenset[str]

    @property
    def ready(self) -> bool:
        """Whether all is well that is needed."""
        return not any(wrong for name, wrong in self.checks.items() if name in self.needed)

    @property
    def whole(self) -> bool:
        """Whether all is well."""
        return not any(self.checks.values())

    def as_dict(self, *, detailed: bool) -> dict[str, Any]:
        """``detailed`` says why: that may name hosts and files, and is not for everyone."""
        said = {
            name: "ok" if wrong is None else wrong if detailed else "not ready" for name, wrong in self.checks.items()
        }
        return {"status": "ready" if self.ready else "not_ready", "checks": said}


@dataclass(eq=False)
class _PartState:
    """One part, and what was found when it was last looked at."""

    name: str
    part: Part
    now: Callable[[], float]
    _looking: Future[str | None] | None = None
    _at: float | None = None
    _wrong: str | None = None

    def refresh(self) -> Future[str | None] | None:
        """The look that is under way, begun if what is known is too old; ``None`` if it is not."""
        self._take()
        if self._looking is None and (self._at is None or self.now() - self._at >= self.part.kept_seconds):
            self._looking = Future()
            name = f"holdfast-ready-{self.name}"  # a daemon: a look that hangs keeps no process from ending
            threading.Thread(target=_run_check, args=(self.part.look, self._looking), name=name, daemon=True).start()
        return self._looking

    def wrong(self, seconds: float) -> str | None:
        """What is wrong, as far as is known after waiting so long."""
        self._take()
        return self._wrong or (None if self._looking is None else f"no answer within {seconds:g} s")

    def _take(self) -> None:
        """Take what a look has found, if it has ended."""
        if self._looking is not None and self._looking.done():
            self._wrong, self._at, self._looking = self._looking.result(), self.now(), None


class Readiness:
    """Looks at all parts at once, and answers in time."""

    def __init__(
        self, parts: Mapping[str, Part], *, seconds: float = ANSWER_SECONDS, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._parts = {name: _PartState(name, part, now) for name, part in parts.items()}
        self._needed = frozenset(name for name, part in parts.items() if part.needed)

    async def look(self) -> Findings:
        """What is found now, or was found a moment ago; of a part that does not answer in time, that it does not."""
        looking = [one for part in self._parts.values() if (one := part.refresh()) is not None]
        if looking:
            await asyncio.wait(map(asyncio.wrap_future, looking), timeout=self._seconds)
        return Findings({name: part.wrong(self._seconds) for name, part in self._parts.items()}, self._needed)


def _run_check(look: Look, found: Future[str | None]) -> None:
    try:
        found.set_result(look())
    except HoldfastError as problem:
        found.set_result(str(problem))
    except BaseException as problem:  # noqa: BLE001 - the answer says that something is wrong
        found.set_result(f"it failed unexpectedly ({type(problem).__name__})")


HEALTH, READY, METRICS = "/healthz", "/readyz", "/metrics"
PATHS: Final = (HEALTH, READY, METRICS)


class Probes:
    """Answers the three paths, and passes on all others."""

    def __init__(self, app: ASGIApp, *, readiness: Readiness, exposition: Callable[[], bytes], access: Access) -> None:
        self._app = app
        self.answer_directly = find_direct_way(app)  # which has none of the three paths
        self._readiness = readiness
        self._exposition = exposition
        self._access = access
        self._collecting = asyncio.Lock()

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return (self._answer if scope["path"] in PATHS else self._app)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = SimpleNamespace(path=scope["path"])  # as what it is counted
        if scope["method"] not in {"GET", "HEAD"}:
            await refuse(scope, send, InvalidInputError(f"{scope['path']} takes GET"), status=405)
        elif scope["path"] == HEALTH:
            await JSONResponse({"status": "ok"})(scope, receive, send)
        elif scope["path"] == READY:
            found = await self._readiness.look()
            # Keys are looked up in the store only if it answers.
            detailed = not found.whole and (
                self._is_known(scope)
                or (found.checks.get("store") is None and await self._refusal_reason(scope) is None)
            )
            response = JSONResponse(found.as_dict(detailed=detailed), 200 if found.ready else 503)
            await response(scope, receive, send)
        else:
            await self._metrics(scope, receive, send)

    async def _metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = await self._refusal_reason(scope)
        if problem is not None:
            await refuse(scope, send, problem)
            return
        async with self._collecting:
            text = await asyncio.to_thread(self._exposition)
        await Response(text, headers={"content-type": CONTENT_TYPE_LATEST})(scope, receive, send)

    async def _refusal_reason(self, scope: Scope) -> HoldfastError | None:
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
        """Whether a caller may see what an operator sees, as far as this process knows it without the store."""
        secret = secret_of(scope)
        key = None if secret is None else self._access.find_cached(secret)
        return is_local(scope) or (key is not None and _sees_metrics(key.principal))


def _sees_metrics(principal: Principal) -> bool:
    return principal.is_operator and principal.allows(Right.READ)
