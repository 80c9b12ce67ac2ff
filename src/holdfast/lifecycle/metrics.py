"""Metrics in Prometheus' format, read from the store when they are asked for: every process's work is in them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, NamedTuple

from holdfast.core.records import Cause, State
from holdfast.core.values import DAY, moment
from holdfast.installation import missing_extra
from holdfast.lifecycle.schedule.maintenance import Maintenance
from holdfast.lifecycle.schedule.schedule import Schedule
from holdfast.ports.rules import StoreFigures
from holdfast.results import JobResult, LatencyResult

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


ARCHIVED: Final = Metric("memory_archived", "counter", ("memory_type",), "Memories that were archived.")
DELETED: Final = Metric(
    "memory_deleted", "counter", ("memory_type", "reason"), "Memories that were removed, into the recycle bin."
)
PURGED: Final = Metric("memory_purged", "counter", ("memory_type",), "Memories that were deleted for good.")
RESTORED: Final = Metric("memory_restored", "counter", ("memory_type",), "Memories that came back.")
STORAGE: Final = Metric("memory_storage_bytes", "gauge", ("memory_type",), "Bytes of the content of live memories.")
AGE: Final = Metric("memory_age_days", "histogram", ("memory_type",), "Age of live memories, in days.")
#: Counting ages reads one index entry for each record, so it is done this often at most.
_AGES_EVERY_SECONDS: Final = 30.0


class Collector:
    """What Prometheus' client calls to collect: ``registry.register(holdfast.collector)``."""

    def __init__(
        self,
        dues: StoreFigures,
        maintenance: Maintenance,
        schedule: Schedule,
        latencies: Callable[[], list[LatencyResult]],
        now: Callable[[], int],
    ) -> None:
        self._dues = dues
        self._upkeep = maintenance
        self._schedule = schedule
        self._latest = latencies
        self._now = now
        self._families = _prometheus()
        self._ages: tuple[float, list[Any]] = (float("-inf"), [])

    def collect(self) -> Iterable[Any]:
        """Every metric as it is now."""
        yield from self._moves()
        yield from self._holdings()
        yield from self._age()
        yield from self._lateness()
        yield from self._waiting()
        yield from self._jobs()
        yield from self._latencies()

    def _moves(self) -> Iterable[Any]:
        counts: dict[Metric, Counter[tuple[str, ...]]] = {
            metric: Counter() for metric in (ARCHIVED, DELETED, PURGED, RESTORED)
        }
        for kind, state, cause, count in self._dues.totals():
            match State(state):
                case State.RECYCLED:
                    counts[DELETED][kind, cause] += count
                case State.DELETED:
                    counts[PURGED][(kind,)] += count
                case State.ARCHIVED if cause == Cause.RULE:
                    counts[ARCHIVED][(kind,)] += count
                case State.ACTIVE | State.ARCHIVED:
                    counts[RESTORED][(kind,)] += count
        for metric, counted in counts.items():
            family = self._families.CounterMetricFamily(metric.name, metric.meaning, labels=metric.labels)
            for values, count in sorted(counted.items()):
                family.add_metric(list(values), count)
            yield family

    def _holdings(self) -> Iterable[Any]:
        gauge = self._families.GaugeMetricFamily
        size = gauge(STORAGE.name, STORAGE.meaning, labels=STORAGE.labels)
        count = gauge("memory_count", "Live memories.", labels=["memory_type"])
        for kind, held, memories in self._dues.holdings():
            size.add_metric([kind], held)
            count.add_metric([kind], memories)
        yield from (size, count)

    def _age(self) -> Iterable[Any]:
        read, kept = self._ages
        if time.monotonic() - read > _AGES_EVERY_SECONDS:
            now = self._now()
            histogram = self._families.HistogramMetricFamily(AGE.name, AGE.meaning, labels=AGE.labels)
            for kind, (counts, total) in self._dues.ages([now - days * DAY - 1 for days in AGE_BUCKETS]).items():
                upto, buckets = 0, []
                for bound, count in zip((*map(str, AGE_BUCKETS), "+Inf"), counts, strict=True):
                    upto += count
                    buckets.append((bound, upto))
                histogram.add_metric([kind], buckets, sum_value=(upto * now - total) / DAY)
            kept = [histogram]
            self._ages = (time.monotonic(), kept)
        yield from kept

    def _lateness(self) -> Iterable[Any]:
        late = self._families.GaugeMetricFamily(
            "holdfast_overdue_seconds", "For how long the oldest due memory has been waiting.", labels=["memory_type"]
        )
        for kind, seconds in self._upkeep.lateness(self._dues.tenants()).items():
            late.add_metric([kind], seconds)
        yield late

    def _waiting(self) -> Iterable[Any]:
        gauge = self._families.GaugeMetricFamily
        seconds = gauge(
            "holdfast_clock_waiting_seconds",
            "For how long what cannot be undone has waited for the time to be believed; 0 while it is believed.",
        )
        records = gauge(
            "holdfast_clock_waiting_records",
            "What is to be deleted or cleared for good, and waits for the time to be believed.",
            labels=["memory_type", "action"],
        )
        found = self._upkeep.waiting(self._dues.tenants())
        belief = None if found is None else found.belief
        since = 0 if belief is None or belief.since is None else belief.now - belief.since
        seconds.add_metric([], since / 1e6)
        counts: Counter[tuple[str, str]] = Counter()
        for line in () if found is None else found.lines:
            counts[line.memory_type, line.action] += line.records
        for labels, count in sorted(counts.items()):
            records.add_metric(list(labels), count)
        yield from (seconds, records)

    def _jobs(self) -> Iterable[Any]:
        gauge = self._families.GaugeMetricFamily
        failed = gauge("holdfast_job_failed", "1 while the job's last run has failed.", labels=["job_name"])
        overdue = gauge("holdfast_job_overdue", "1 while a slot of the job waits for too long.", labels=["job_name"])
        rows = self._schedule.list()
        for job in rows:
            failed.add_metric([job["name"]], int(job["failed"]))
            overdue.add_metric([job["name"]], int(job["overdue"]))
        yield from (failed, overdue)
        yield from self._results(rows)

    def _results(self, jobs: list[JobResult]) -> Iterable[Any]:
        """What the last run of each job came to."""
        gauge = self._families.GaugeMetricFamily
        at = gauge("holdfast_job_finished_timestamp_seconds", "When the job's last run ended.", labels=["job_name"])
        took = gauge("holdfast_job_seconds", "How long the job's last run was sweeping.", labels=["job_name"])
        moved = gauge(
            "holdfast_job_records", "What the job's last run moved, by what it did.", labels=["job_name", "action"]
        )
        aside = gauge(
            "holdfast_job_set_aside",
            "Users whom the job's last run left alone since they would lose much at once; 20 at most are counted.",
            labels=["job_name"],
        )
        for job in jobs:
            name, result = job["name"], job["last_result"]
            if job["last_finished"] is not None:
                at.add_metric([name], moment(job["last_finished"]) / 1e6)
            if result is not None:
                took.add_metric([name], result.get("seconds", 0.0))
                aside.add_metric([name], len(result.get("set_aside", ())))
                for action, count in sorted(result.get("counts", {}).items()):
                    moved.add_metric([name, action], count)
        yield from (at, took, moved, aside)

    def _latencies(self) -> Iterable[Any]:
        took = self._families.GaugeMetricFamily(
            "holdfast_operation_p95_ms",
            "95th percentile of the latest operations of this process, in milliseconds.",
            labels=["operation", "memory_type"],
        )
        for row in self._latest():
            took.add_metric([row["operation"], row["memory_type"]], row["p95_ms"])
        yield took


def exposition(collector: Collector) -> bytes:
    """All metrics as Prometheus reads them."""
    families = _prometheus()
    registry = families.CollectorRegistry(auto_describe=False)
    registry.register(collector)
    text: bytes = families.generate_latest(registry)
    return text


def _prometheus() -> Any:
    try:
        import prometheus_client  # noqa: PLC0415 - only those who are scraped need it
        import prometheus_client.core  # noqa: PLC0415
    except ImportError:
        raise missing_extra("the text of metrics", "metrics") from None
    return _Families(prometheus_client)


class _Families:
    """The parts of the client that are used, by their names."""

    def __init__(self, client: Any) -> None:
        self.CollectorRegistry = client.CollectorRegistry
        self.generate_latest = client.generate_latest
        self.CounterMetricFamily = client.core.CounterMetricFamily
        self.GaugeMetricFamily = client.core.GaugeMetricFamily
        self.HistogramMetricFamily = client.core.HistogramMetricFamily
