"""What the service itself can tell Prometheus: its requests, and the process beside it that runs the schedule."""

from __future__ import annotations

from typing import Any, Final

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from holdfast import __version__

_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Traffic:
    """Counts requests by route, in a registry of its own. Labels have few values, whatever callers send."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._requests = Counter(
            "holdfast_http_requests",
            "Requests that were answered, by route and status; 499: the caller left before.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "holdfast_http_request_seconds",
            "How long requests took, until the end of their answer.",
            ["method", "route"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._in_flight = Gauge(
            "holdfast_http_requests_in_flight", "Requests that are being answered.", registry=self.registry
        )
        self._info = Gauge("holdfast_info", "1, with the version as a label.", ["version"], registry=self.registry)
        self._info.labels(__version__).set(1)
        self.store_up = Gauge("holdfast_store_up", "1 if the store's metrics could be read.", registry=self.registry)
        prometheus_client.ProcessCollector(registry=self.registry)

    def metrics(self) -> list[Any]:
        """The metrics themselves, for those who describe them."""
        return [self._requests, self._seconds, self._in_flight, self.store_up, self._info]

    def begin(self) -> None:
        """A request has come."""
        self._in_flight.inc()

    def end(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request has ended."""
        self._in_flight.dec()
        method = method if method in _METHODS else "other"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)
