"""Metrics in Prometheus' format, read from the store when they are asked for: every process's work is in them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, Final, Literal, NamedTuple

from holdfast.core.records import Cause, State
from holdfast.core.values import DAY, moment
from holdfast.installation import missing_extra
from holdfast.lifecycle.clock import ClockTrust
from holdfast.lifecycle.schedule.schedule import Schedule
from holdfast.lifecycle.sweeping.due import find_all_waiting, find_overdue
from holdfast.ports.stores import Tenant
from holdfast.results import LatencyResult

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


_KIND, _JOB = ("memory_type",), ("job_name",)
ARCHIVED: Final = Metric("memory_archived", "counter", _KIND, "Memories that were archived.")
DELETED: Final = Metric(
    "memory_deleted", "counter", ("memory_type", "reason"), "Memories that were removed, into the recycle bin."
)
PURGED: Final = Metric("memory_purged", "counter", _KIND, "Memories that were deleted for good.")
RESTORED: Final = Metric("memory_restored", "counter", _KIND, "Memories that came back.")
STORAGE: Final = Metric("memory_storage_bytes", "gauge", _KIND, "Bytes of the content of live memories.")
COUNT: Final = Metric("memory_count", "gauge", _KIND, "Live memories.")
AGE: Final = Metric("memory_age_days", "histogram", _KIND, "Age of live memories, in days.")
OVERDUE: Final = Metric(
    "holdfast_overdue_seconds", "gauge", _KIND, "For how long the oldest due memory has been waiting."
)
WAITING: Final = Metric(
    "holdfast_clock_waiting_seconds",
    "gauge",
    (),
    "For how long what cannot be undone has waited for the time to be believed; 0 while it is believed.",
)
WAITING_RECORDS: Final = Metric(
    "holdfast_clock_waiting_records",
    "gauge",
    ("memory_type", "action"),
    "What is to be deleted or cleared for good, and waits for the time to be believed.",
)
JOB_FAILED: Final = Metric("holdfast_job_failed", "gauge", _JOB, "1 while the job's last run has failed.")
JOB_OVERDUE: Final = Metric("holdfast_job_overdue", "gauge", _JOB, "1 while a slot of the job waits for too long.")
JOB_FINISHED: Final = Metric("holdfast_job_finished_timestamp_seconds", "gauge", _JOB, "When the job's last run ended.")
JOB_SECONDS: Final = Metric("holdfast_job_seconds", "gauge", _JOB, "How long the job's last run was sweeping.")
JOB_RECORDS: Final = Metric(
    "holdfast_job_records", "gauge", ("job_name", "action"), "What the job's last run moved, by what it did."
)
JOB_SET_ASIDE: Final = Metric(
    "holdfast_job_set_aside",
    "gauge",
    _JOB,
    "Users whom the job's last run left alone since they would lose much at once; 20 at most are counted.",
)
LATENCY: Final = Metric(
    "holdfast_operation_p95_ms",
    "gauge",
    ("operation", "memory_type"),
    "95th percentile of the latest operations of this process, in milliseconds.",
)
METRICS: Final = (
    *(ARCHIVED, DELETED, PURGED, RESTORED, STORAGE, COUNT, AGE, OVERDUE, WAITING, WAITING_RECORDS),
    *(JOB_FAILED, JOB_OVERDUE, JOB_FINISHED, JOB_SECONDS, JOB_RECORDS, JOB_SET_ASIDE, LATENCY),
)
#: A metric, the values of its labels, and its value.
Sample = tuple[Metric, tuple[str, ...], float]
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
        found: dict[Metric, defaultdict[tuple[str, ...], float]] = {metric: defaultdict(float) for metric in METRICS}
        for metric, labels, value in chain(self._moves(), self._state(), self._jobs()):
            found[metric][labels] += value
        for metric, values in found.items():
            if metric is AGE:
                yield self._age()
                continue
            make = self._families.CounterMetricFamily if metric.type == "counter" else self._families.GaugeMetricFamily
            family = make(metric.name, metric.meaning, labels=metric.labels)
            for labels, value in sorted(values.items()):
                family.add_metric(list(labels), value)
            yield family

    def _moves(self) -> Iterator[Sample]:
        for kind, state, cause, count in self.tenant.dues.totals():
            match State(state):
                case State.RECYCLED:
                    yield DELETED, (kind, cause), count
                case State.DELETED:
                    yield PURGED, (kind,), count
                case State.ARCHIVED if cause == Cause.RULE:
                    yield ARCHIVED, (kind,), count
                case State.ACTIVE | State.ARCHIVED:
                    yield RESTORED, (kind,), count

    def _state(self) -> Iterator[Sample]:
        """What there is, what is late, and what waits for the time to be believed."""
        dues, now = self.tenant.dues, self.tenant.now()
        for kind, size, memories in dues.holdings():
            yield STORAGE, (kind,), size
            yield COUNT, (kind,), memories
        for kind, late in find_overdue(dues, now).items():
            yield OVERDUE, (kind,), late / 1e6
        belief = self.trust.look(now)
        yield WAITING, (), 0 if belief.since is None else (belief.now - belief.since) / 1e6
        waiting = find_all_waiting(self.tenant, now, belief)
        for line in () if waiting is None else waiting.lines:
            yield WAITING_RECORDS, (line.memory_type, line.action), line.records

    def _jobs(self) -> Iterator[Sample]:
        """How the last run of each job went, and how long operations take."""
        for job in self.schedule.list():
            name, result = (job["name"],), job["last_result"]
            yield JOB_FAILED, name, job["failed"]
            yield JOB_OVERDUE, name, job["overdue"]
            if job["last_finished"] is not None:
                yield JOB_FINISHED, name, moment(job["last_finished"]) / 1e6
            if result is not None:
                yield JOB_SECONDS, name, result.get("seconds", 0.0)
                yield JOB_SET_ASIDE, name, len(result.get("set_aside", ()))
                for action, count in result.get("counts", {}).items():
                    yield JOB_RECORDS, (*name, action), count
        for row in self.latencies():
            yield LATENCY, (row["operation"], row["memory_type"]), row["p95_ms"]

    def _age(self) -> Any:
        read, histogram = self._ages
        if time.monotonic() - read > _AGES_EVERY_SECONDS:
            now = self.tenant.now()
            histogram = self._families.HistogramMetricFamily(AGE.name, AGE.meaning, labels=AGE.labels)
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
