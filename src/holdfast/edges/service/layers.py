"""The service as one ASGI application: the API, and what every request passes through on the way to it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from prometheus_client import generate_latest
from starlette.types import ASGIApp

from holdfast.core.errors import HoldfastError, ObjectMissingError
from holdfast.core.records import Scope
from holdfast.edges.service.headers import SecurityHeaders
from holdfast.edges.service.limits import Limits
from holdfast.edges.service.limits.crowd import CrowdLimit
from holdfast.edges.service.limits.duration import TimeLimit
from holdfast.edges.service.limits.rate import Buckets, RateLimit
from holdfast.edges.service.limits.size import SizeLimit
from holdfast.edges.service.loopback import LocalOnly
from holdfast.edges.service.probes import HEALTH, READY, Probes
from holdfast.edges.service.readiness import Look, Part, Readiness
from holdfast.edges.service.request_log import Recorded
from holdfast.edges.service.supervisor import Keeper
from holdfast.edges.service.traffic import Traffic
from holdfast.engine import Holdfast
from holdfast.storage.objects import ObjectStore, open_cold, open_keeping

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
    holdfast: Holdfast,
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
        readiness=Readiness(_parts(holdfast, keeper, stopping)),
        exposition=_exposition(holdfast, traffic),
        access=holdfast.access,
    )
    if keys_required and limits.rate_per_second:
        app = RateLimit(app, Buckets(limits.rate_per_second), free=(HEALTH, READY))
    if not keys_required:
        app = LocalOnly(app)
    return Layered(Recorded(SecurityHeaders(app), traffic), time_limit)


def _parts(holdfast: Holdfast, keeper: Keeper | None, stopping: Callable[[], bool]) -> dict[str, Part]:
    """What the service needs. A bucket is only named when it is away: recall and new memories do without it."""

    def store() -> str | None:
        holdfast.database.check_usable()
        holdfast.trust.seen()  # one row, through everything that lies between here and the store
        return None

    def short_term() -> str | None:
        holdfast.parts.short_term.expires_at(_NOBODY, now=0)
        return None

    parts = {"service": Part(lambda: "the service is stopping" if stopping() else None), "store": Part(store)}
    if holdfast.settings.short_term_url:
        parts["short_term"] = Part(short_term)
    for name, url, bucket in (
        ("archive", holdfast.settings.cold_url(), open_cold),
        ("state", holdfast.settings.keeping_url(), open_keeping),
    ):
        if not url.startswith("file:"):
            parts[name] = Part(_look_at(bucket(holdfast.settings)), needed=False, kept_seconds=_BUCKET_SECONDS)
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


def _exposition(holdfast: Holdfast, traffic: Traffic) -> Callable[[], bytes]:
    """What Prometheus is told: of the store, and, even if that does not answer, of this process."""

    def collect() -> bytes:
        try:
            stored = holdfast.metrics()
        except HoldfastError:
            stored = b""
        traffic.store_up.set(int(bool(stored)))
        own: bytes = generate_latest(traffic.registry)
        return own + stored

    return collect
