"""Metrics in Prometheus' format, read from the store when they are asked for: every process's work is in them."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from itertools import accumulate, chain
from typing import Any, Final, Literal, NamedTuple

from holdfast.core.records import Cause, State
from holdfast.core.values import DAY, moment
from holdfast.installation import missing_extra
from holdfast.lifecycle.clock import ClockTrust
from holdfast.lifecycle.schedule.schedule import Schedule
from holdfast.lifecycle.sweeping.due import find_all_waiting, find_overdue
from holdfast.ports.stores import Tenant
from holdfast.results.lifecycle import LatencyResult

#: Ages that live memories are counted up to, in days.
AGE_BUCKETS: Final = (1, 7, 30, 60, 90, 180, 365, 730, 1_825)


class Metric(NamedTuple):
    """A metric of retention, as Prometheus knows it."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    meaning: str

    @property
    def exposed(self) -> str:
        """The name that its values have."""
        return f"{self.name}_total" if self.type == "counter" else self.name


METRICS: Final = {
    row["name"]: Metric(row["name"], row["type"], tuple(row["labels"]), row["meaning"])
    for row in json.loads(resources.files("holdfast.lifecycle").joinpath("metrics.json").read_bytes())
}
#: The name of a metric, the values of its labels, and its value.
Sample = tuple[str, tuple[str, ...], float]
#: Counting ages reads one index entry for each record, so it is done this often at most.
_AGES_EVERY_SECONDS: Final = 30.0


@dataclass(eq=False, repr=False)
class Collector:
    """What Prometheus' client calls to collect: ``registry.register(holdfast.collector)``."""

    tenant: Tenant
    trust: ClockTrust
    schedule: Schedule
    latencies: Callable[[], list[LatencyResult]]

    def __post_init__(self) -> None:
        self._families = _prometheus().core
        self._ages: tuple[float, Any] = (float("-inf"), None)

    def collect(self) -> Iterable[Any]:
        """Every metric as it is now."""
        found: dict[str, defaultdict[tuple[str, ...], float]] = {name: defaultdict(float) for name in METRICS}
        for name, labels, value in chain(self._moves(), self._state(), self._jobs()):
            found[name][labels] += value
        for name, metric in METRICS.items():
            if metric.type == "histogram":
                yield self._age(metric)
                continue
            make = self._families.CounterMetricFamily if metric.type == "counter" else self._families.GaugeMetricFamily
            family = make(metric.name, metric.meaning, labels=metric.labels)
            for labels, value in sorted(found[name].items()):
                family.add_metric(list(labels), value)
            yield family

    def _moves(self) -> Iterator[Sample]:
        for kind, state, cause, count in self.tenant.dues.totals():
            match State(state):
                case State.RECYCLED:
                    yield "memory_deleted", (kind, cause), count
                case State.DELETED:
                    yield "memory_purged", (kind,), count
                case State.ARCHIVED if cause == Cause.RULE:
                    yield "memory_archived", (kind,), count
                case State.ACTIVE | State.ARCHIVED:
                    yield "memory_restored", (kind,), count

    def _state(self) -> Iterator[Sample]:
        """What there is, what is late, and what waits for the time to be believed."""
        dues, now = self.tenant.dues, self.tenant.now()
        for kind, size, memories in dues.holdings():
            yield "memory_storage_bytes", (kind,), size
            yield "memory_count", (kind,), memories
        for kind, late in find_overdue(dues, now).items():
            yield "holdfast_overdue_seconds", (kind,), late / 1e6
        yield "holdfast_sessions_behind", (), self.tenant.history.count_behind()
        belief = self.trust.look(now)
        yield "holdfast_clock_waiting_seconds", (), 0 if belief.since is None else (belief.now - belief.since) / 1e6
        waiting = find_all_waiting(self.tenant, now, belief)
        for line in () if waiting is None else waiting.lines:
            yield "holdfast_clock_waiting_records", (line.memory_type, line.action), line.records

    def _jobs(self) -> Iterator[Sample]:
        """How the last run of each job went, and how long operations take."""
        for job in self.schedule.list():
            name, result = (job["name"],), job["last_result"]
            yield "holdfast_job_failed", name, job["failed"]
            yield "holdfast_job_overdue", name, job["overdue"]
            if job["last_finished"] is not None:
                yield "holdfast_job_finished_timestamp_seconds", name, moment(job["last_finished"]) / 1e6
            if result is not None:
                yield "holdfast_job_seconds", name, result.get("seconds", 0.0)
                yield "holdfast_job_set_aside", name, len(result.get("set_aside", ()))
                for action, count in result.get("counts", {}).items():
                    yield "holdfast_job_records", (*name, action), count
        for row in self.latencies():
            yield "holdfast_operation_p95_ms", (row["operation"], row["memory_type"]), row["p95_ms"]

    def _age(self, metric: Metric) -> Any:
        read, histogram = self._ages
        if time.monotonic() - read > _AGES_EVERY_SECONDS:
            now = self.tenant.now()
            histogram = self._families.HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)
            bounds = [now - days * DAY - 1 for days in AGE_BUCKETS]
            for kind, (counts, total) in self.tenant.dues.ages(bounds).items():
                upto = list(accumulate(counts))
                buckets = list(zip((*map(str, AGE_BUCKETS), "+Inf"), upto, strict=True))
                histogram.add_metric([kind], buckets, sum_value=(upto[-1] * now - total) / DAY)
            self._ages = (time.monotonic(), histogram)
        return histogram


def exposition(collector: Collector) -> bytes:
    """All metrics as Prometheus reads them."""
    client = _prometheus()
    registry = client.CollectorRegistry(auto_describe=False)
    registry.register(collector)
    text: bytes = client.generate_latest(registry)
    return text


def _prometheus() -> Any:
    try:
        import prometheus_client.core  # noqa: PLC0415 - only those who are scraped need it
    except ImportError:
        raise missing_extra("the text of metrics", "metrics") from None
    return prometheus_client
