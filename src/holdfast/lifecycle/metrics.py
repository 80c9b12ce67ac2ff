"""Metrics in Prometheus' format, read from the store when they are asked for: every process's work is in them."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import accumulate, chain
from threading import Lock
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from holdfast.core.decisions import first_wait
from holdfast.core.records import HISTORY, Cause, State
from holdfast.core.values import DAY, SECOND, moment
from holdfast.installation import missing_extra
from holdfast.lifecycle.clock import ClockTrust
from holdfast.lifecycle.schedule.schedule import Schedule
from holdfast.lifecycle.sweeping.due import find_all_waiting
from holdfast.ports.rules import StoreCounts
from holdfast.ports.stores import Tenant
from holdfast.recall.service import IndexMemory
from holdfast.results.figures import LatencyResult

#: Ages that live memories are counted up to, in days.
AGE_BUCKETS: Final = (1, 7, 30, 60, 90, 180, 365, 730, 1_825)
#: How long erasures take: a minute, ten, an hour, six, a day, three, a week, a month, in seconds.
ERASURE_BUCKETS: Final = (60, 600, 3_600, 21_600, 86_400, 259_200, 604_800, 2_592_000)


ERASURE_STAGES: Final = ("hidden", "gone", "certified")


class Metric(NamedTuple):
    """A metric of retention, as Prometheus knows it."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    meaning: str
    of_process: bool = False
    """Whether it tells of the process that is asked, and not of the store."""

    @property
    def exposed(self) -> str:
        """The name that its values have."""
        return f"{self.name}_total" if self.type == "counter" else self.name


METRICS: Final = {
    row["name"]: Metric(row["name"], row["type"], tuple(row["labels"]), row["meaning"], "of" in row)
    for row in json.loads(resources.files("holdfast.lifecycle").joinpath("metrics.json").read_bytes())
}
T = TypeVar("T")
#: The name of a metric, the values of its labels, and its value.
Sample = tuple[str, tuple[str, ...], float]
#: Ages are counted so often at most: that reads an entry of an index for each record.
_AGES_EVERY_SECONDS: Final = 30.0
#: What took longer than that rests for so many times as long: so reading it takes a twentieth of the time at most.
_LONG_SECONDS: Final = 1.0
_REST: Final = 20
#: Who asks while it is read for the first time waits for so long.
_PATIENCE: Final = 5.0


class CachedReading(Generic[T]):
    """What is read from the store, kept for some seconds; longer, if it took long. One thread at a time reads it."""

    def __init__(
        self, read: Callable[[], T], seconds: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read, self._seconds, self._clock = read, seconds, clock
        self._lock = Lock()
        self._kept: list[T] = []
        self._until = float("-inf")

    def get(self) -> T | None:
        """As it is now, or was a while ago; ``None`` while another reads it for the first time, if that takes long."""
        if self._clock() >= self._until and self._lock.acquire(timeout=0 if self._kept else _PATIENCE):
            try:
                self._renew()
            finally:
                self._lock.release()
        return self._kept[0] if self._kept else None

    def _renew(self) -> None:
        began = self._clock()
        if began < self._until:
            return  # another has just done so
        self._kept = [self._read()]
        ended = self._clock()
        rest = _REST * (ended - began) if ended - began > _LONG_SECONDS else 0.0
        self._until = ended + max(self._seconds, rest)


class Ages(NamedTuple):
    """What is live, by its age; of each kind."""

    counts: Mapping[str, Sequence[int]]
    """How many memories are in each bucket, the youngest first."""
    days: Mapping[str, float]
    """The sum of their ages."""
    first_due: Mapping[str, int]
    """When the next move of the first is due, or was."""


@dataclass(eq=False, repr=False)
class Collector:
    """What Prometheus' client calls to collect: ``registry.register(holdfast.collector)``."""

    tenant: Tenant
    trust: ClockTrust
    schedule: Schedule
    latencies: Callable[[], list[LatencyResult]]
    process: Callable[[], Iterable[Sample]]
    """What is measured of this process."""
    objective: float
    """Within how many hours an erasure is to be done and certified."""

    def __post_init__(self) -> None:
        self._families = _prometheus().core
        self._counts = CachedReading(self.tenant.dues.counts)
        self._ages = CachedReading(self._read_ages, _AGES_EVERY_SECONDS)
        self._erasure_times = CachedReading(self._read_erasure_times, _AGES_EVERY_SECONDS)
        self._collected: tuple[float, list[Any]] = (float("-inf"), [])

    def collect(self) -> Iterable[Any]:
        """Every metric as it is now."""
        yield from self.collect_stored()
        yield from self.collect_process()

    def collect_stored(self) -> Iterable[Any]:
        """The metrics that are read from the store, and how long operations take."""
        counts, ages = self._counts.get(), self._ages.get() or Ages({}, {}, {})
        stored = chain(_count(counts), self._wait(ages), self._jobs(), self._erasures())
        yield from self._make(False, stored)
        yield from self._histograms(ages)

    def collect_process(self) -> Iterable[Any]:
        """The metrics of this process."""
        yield from self._make(True, self.process())

    def _make(self, of_process: bool, samples: Iterable[Sample]) -> Iterator[Any]:  # noqa: FBT001 - see above
        wanted = [one for one in METRICS.values() if one.of_process is of_process and one.type != "histogram"]
        found: dict[str, defaultdict[tuple[str, ...], float]] = {one.name: defaultdict(float) for one in wanted}
        for name, labels, value in samples:
            found[name][labels] += value
        for metric in wanted:
            make = self._families.CounterMetricFamily if metric.type == "counter" else self._families.GaugeMetricFamily
            family = make(metric.name, metric.meaning, labels=metric.labels)
            for labels, value in sorted(found[metric.name].items()):
                family.add_metric(list(labels), value)
            yield family

    def collect_once(self) -> Sequence[Any]:
        """The same, for those who ask for one metric after the other: as it was within the last second."""
        read, families = self._collected
        if time.monotonic() - read > 1.0:
            self._collected = (time.monotonic(), families := list(self.collect()))
        return families

    def _wait(self, ages: Ages) -> Iterator[Sample]:
        """What is late, and what waits for the time to be believed."""
        now = self.tenant.now()
        for kind, since in ages.first_due.items():
            if since <= now:
                yield "holdfast_overdue_seconds", (kind,), (now - since) / 1e6
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

    def _erasures(self) -> Iterator[Sample]:
        """How erasures do against the objective."""
        now, objective = self.tenant.now(), self.objective * 3_600
        record = self.tenant.figures.judge_erasures(int(objective * SECOND), now=now)
        yield "holdfast_erasures", ("in_time",), record.in_time
        yield "holdfast_erasures", ("late",), record.late
        yield "holdfast_erasure_pending_seconds", (), 0 if record.oldest is None else (now - record.oldest) / SECOND
        yield "holdfast_erasure_objective_seconds", (), objective

    def _histograms(self, ages: Ages) -> Iterator[Any]:
        """Ages, and how long erasures took."""
        make = self._families.HistogramMetricFamily
        kinds = {one.name: one for one in METRICS.values() if one.type == "histogram"}
        families = {name: make(name, one.meaning, labels=one.labels) for name, one in kinds.items()}
        for kind, counts in ages.counts.items():
            _fill(families["memory_age_days"], kind, AGE_BUCKETS, counts, ages.days[kind])
        for stage, (counts, seconds) in (self._erasure_times.get() or {}).items():
            _fill(families["holdfast_erasure_seconds"], stage, ERASURE_BUCKETS, counts, seconds)
        yield from families.values()

    def _read_ages(self) -> Ages:
        dues, now = self.tenant.dues, self.tenant.now()
        profiles = {profile.number: profile for name in dues.tenants() for profile in dues.profiles(name)}
        counts: dict[str, list[int]] = defaultdict(lambda: [0] * (len(AGE_BUCKETS) + 1))
        days: dict[str, float] = defaultdict(float)
        first_due: dict[str, int] = {}
        for row in dues.ages([now - age * DAY for age in AGE_BUCKETS], now):
            after: int | None = 0
            kind = "bin"
            if row.state is not State.RECYCLED:
                if (profile := profiles.get(row.profile)) is None:
                    continue  # it was made meanwhile
                kind, after = profile.kind, first_wait(profile.life, row.state)
                if kind != HISTORY:
                    counts[kind][len(AGE_BUCKETS) - row.place] += row.records
                    days[kind] += (row.records * now - row.seconds * SECOND) / DAY
            if after is not None:
                first_due[kind] = min(row.first + after, first_due.get(kind, row.first + after))
        return Ages(counts, days, first_due)

    def _read_erasure_times(self) -> dict[str, tuple[list[int], float]]:
        found = self.tenant.figures.count_erasures([seconds * SECOND for seconds in ERASURE_BUCKETS])
        times: dict[str, tuple[list[int], float]] = {}
        for stage in ERASURE_STAGES:
            own = {one.bound: one for one in found if one.stage == stage}
            counts = [own[n].erasures if n in own else 0 for n in range(len(ERASURE_BUCKETS) + 1)]
            times[stage] = counts, sum(one.total for one in own.values()) / SECOND
        return times


def _count(counts: StoreCounts | None) -> Iterator[Sample]:
    """What there is, and what became of what there was."""
    if counts is None:
        return
    for kind, (memories, size) in counts.live.items():
        yield "memory_storage_bytes", (kind,), size
        yield "memory_count", (kind,), memories
    yield "holdfast_sessions_behind", (), counts.behind
    for (kind, state, cause), count in counts.moves.items():
        match State(state):
            case State.RECYCLED:
                yield "memory_deleted", (kind, cause), count
            case State.DELETED:
                yield "memory_purged", (kind,), count
            case State.ARCHIVED if cause == Cause.RULE:
                yield "memory_archived", (kind,), count
            case State.ACTIVE | State.ARCHIVED:
                yield "memory_restored", (kind,), count


def _fill(family: Any, label: str, bounds: Sequence[int], counts: Sequence[int], total: float) -> None:
    """Add to a histogram how many values are up to each bound, given how many there are between them."""
    buckets = list(zip((*map(str, bounds), "+Inf"), accumulate(counts), strict=True))
    family.add_metric([label], buckets, sum_value=total)


def measure_process(index: IndexMemory, pool: Mapping[str, int], replies: Mapping[str, int]) -> Iterator[Sample]:
    """What a process holds of a store: its indexes, its connections, and requests that it has done once."""
    names = ("holdfast_index_bytes", "holdfast_index_limit_bytes", "holdfast_index_scopes", "holdfast_index_evictions")
    for name, value in zip(names, index, strict=True):
        yield name, (), value
    for state, count in pool.items():
        if state in ("waiting", "refused"):
            yield f"holdfast_pool_{state}", (), count
        else:
            yield "holdfast_pool_connections", (state,), count
    for result, count in replies.items():
        yield "holdfast_replies", (result,), count


class PartCollector:
    """A part of a collector, as a registry takes it."""

    def __init__(self, collect: Callable[[], Iterable[Any]]) -> None:
        self.collect = collect


def exposition(collect: Callable[[], Iterable[Any]]) -> bytes:
    """Metrics as Prometheus reads them."""
    client = _prometheus()
    registry = client.CollectorRegistry(auto_describe=False)
    registry.register(PartCollector(collect))
    text: bytes = client.generate_latest(registry)
    return text


def _prometheus() -> Any:
    try:
        import prometheus_client.core
    except ImportError:
        raise missing_extra("the text of metrics", "metrics") from None
    return prometheus_client
