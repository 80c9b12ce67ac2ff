"""The service as one ASGI application: the API, and what every request passes through on the way to it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from prometheus_client import generate_latest
from starlette.types import ASGIApp

from retain.core.errors import ObjectMissingError, RetainError
from retain.core.records import Scope
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
from retain.service.readiness import Look, Part, Readiness
from retain.service.recording import Recorded
from retain.service.traffic import Traffic
from retain.storage.objects import ObjectStore, open_cold, open_keeping

#: A session that nobody has, to ask a server for.
_NOBODY: Final = Scope("default", "nobody", "nobody", "nobody")
#: How often a bucket is asked, which may cost something.
_BUCKET_SECONDS: Final = 15.0


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
        readiness=Readiness(_parts(retain, keeper, stopping)),
        exposition=_exposition(retain, traffic),
        access=retain.access,
    )
    if keys_required and limits.rate_per_second:
        app = RateLimit(app, Buckets(limits.rate_per_second), free=(HEALTH, READY))
    if not keys_required:
        app = LocalOnly(app)
    return Layered(Recorded(SecurityHeaders(app), traffic), time_limit)


def _parts(retain: Retain, keeper: Keeper | None, stopping: Callable[[], bool]) -> dict[str, Part]:
    """What the service needs. A bucket is only named when it is away: recall and new memories do without it."""

    def store() -> str | None:
        retain.database.check_usable()
        retain.trust.seen()  # one row, through everything that lies between here and the store
        return None

    def short_term() -> str | None:
        retain.parts.short_term.expires_at(_NOBODY, now=0)
        return None

    parts = {"service": Part(lambda: "the service is stopping" if stopping() else None), "store": Part(store)}
    if retain.settings.short_term_url:
        parts["short_term"] = Part(short_term)
    for name, url, bucket in (
        ("archive", retain.settings.cold_url(), open_cold),
        ("state", retain.settings.keeping_url(), open_keeping),
    ):
        if not url.startswith("file:"):
            parts[name] = Part(_look_at(bucket(retain.settings)), needed=False, kept_seconds=_BUCKET_SECONDS)
    if keeper is not None:
        parts[keeper.name] = Part(lambda: keeper.standing.trouble)
    return parts


def _look_at(objects: ObjectStore) -> Look:
    """Ask a bucket for an object that is not there: that it is not is an answer."""

    def look() -> str | None:
        with suppress(ObjectMissingError):
            objects.get("check/ready")
        return None

    return look


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
