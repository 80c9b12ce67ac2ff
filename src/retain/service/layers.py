"""The service as one ASGI application: the API, and what every request passes through on the way to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from prometheus_client import generate_latest
from starlette.types import ASGIApp

from retain.core.errors import RetainError
from retain.engine import Retain
from retain.service.headers import SecurityHeaders
from retain.service.keeper import Keeper
from retain.service.limits import Limits
from retain.service.limits.crowd import CrowdLimit
from retain.service.limits.duration import TimeLimit
from retain.service.limits.rate import Buckets, RateLimit
from retain.service.limits.size import SizeLimit
from retain.service.locality import LocalOnly
from retain.service.probes import HEALTH, READY, Probes
from retain.service.readiness import Look, Readiness
from retain.service.recording import Recorded
from retain.service.traffic import Traffic


class Layered(NamedTuple):
    """The application, and the layer that knows what is still being done when it stops."""

    app: ASGIApp
    time_limit: TimeLimit


def layered(
    api: ASGIApp,
    retain: Retain,
    *,
    limits: Limits,
    keys_required: bool,
    keeper: Keeper | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> Layered:
    """``api`` with all layers around it, the outermost last.

    What a request set off counts as one at once until it has ended, even if its caller was answered before; so the
    limit on how many is within the limit on how long.
    """
    traffic = Traffic()
    if keeper is not None:
        traffic.registry.register(keeper)
    app: ASGIApp = SizeLimit(api, limits.request_bytes)
    app = CrowdLimit(app, limits.requests_at_once)
    app = time_limit = TimeLimit(app, limits.request_seconds)
    app = Probes(
        app,
        readiness=Readiness(_checks(retain, keeper, stopping)),
        exposition=_exposition(retain, traffic),
        identify=retain.access.identify,
    )
    if keys_required and limits.rate_per_second:
        app = RateLimit(app, Buckets(limits.rate_per_second), free=(HEALTH, READY))
    if not keys_required:
        app = LocalOnly(app)
    return Layered(Recorded(SecurityHeaders(app), traffic), time_limit)


def _checks(retain: Retain, keeper: Keeper | None, stopping: Callable[[], bool]) -> dict[str, Look]:
    def store() -> str | None:
        retain.database.check_usable()
        retain.trust.seen()  # one row, through everything that lies between here and the store
        return None

    checks: dict[str, Look] = {
        "service": lambda: "the service is stopping" if stopping() else None,
        "store": store,
    }
    if keeper is not None:
        checks[keeper.name] = lambda: keeper.standing.trouble
    return checks


def _exposition(retain: Retain, traffic: Traffic) -> Callable[[], bytes]:
    """What Prometheus is told: of the store, and, even if that does not answer, of this process."""

    def collect() -> bytes:
        try:
            stored = retain.metrics()
        except RetainError:
            stored = b""
        traffic.store_up.set(int(bool(stored)))
        own: bytes = generate_latest(traffic.registry)
        return own + stored

    return collect
