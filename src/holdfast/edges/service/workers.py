"""Workers: several processes that serve one address.

The process that was asked for them listens, starts them, starts one anew that has ended, and runs the schedule. They
share a folder: how often callers asked and how many requests are at work, in memory that is mapped from a file; what
each of them counted, for metrics; and how it is with all processes. Each ends when its standard input does.
"""

from __future__ import annotations

import io
import json
import logging
import mmap
import os
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from holdfast.core.errors import HoldfastError
from holdfast.edges.service.limits import Buckets, Tally
from holdfast.edges.service.scheduler import ProcessState, Supervisor, describe_process
from holdfast.settings import MAX_WORKERS

try:
    import fcntl
except ImportError:  # on Windows, where no workers are started
    fcntl = None  # type: ignore[assignment]

_log = logging.getLogger("holdfast.service")
COMMAND: Final = (sys.executable, "-m", "holdfast.edges.service.run")
#: How often processes write down what they counted and how they are.
_NOTED_SECONDS: Final = 1.0
_START_SECONDS: Final = 120.0


# --- what they share --------------------------------------------------------------------------------------------------

#: A caller, by a hash; its tokens, and when it had so many. A caller is kept in one of a few places by its hash.
_BUCKET: Final = struct.Struct("=16sdd")
_BUCKETS, _PLACES = 16_384, 8
_TALLIES: Final = _BUCKETS * _BUCKET.size
_BYTES: Final = _TALLIES + MAX_WORKERS * 8


class SharedBuckets(Buckets):
    """Tokens that all workers take from. Of more callers than there is room for, those are forgotten who are quiet."""

    def __init__(self, rate: float, memory: mmap.mmap, file: int) -> None:
        super().__init__(rate)
        self._memory = memory
        self._file = file

    def __len__(self) -> int:
        return sum(since > 0 for _, _, since in _BUCKET.iter_unpack(self._memory[:_TALLIES]))

    def wait(self, name: str) -> float:
        with self._locked(name):
            return super().wait(name)

    def take(self, name: str, tokens: float = 1.0) -> None:
        with self._locked(name):
            super().take(name, tokens)

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """Let no other process change a caller's tokens meanwhile."""
        self._hash = blake2b(name.encode(), digest_size=16).digest()
        self._first = int.from_bytes(self._hash[:8]) % (_BUCKETS - _PLACES) * _BUCKET.size
        fcntl.lockf(self._file, fcntl.LOCK_EX, _PLACES * _BUCKET.size, self._first)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, _PLACES * _BUCKET.size, self._first)

    def _read(self, name: str) -> tuple[float, float] | None:
        del name
        return next(((left, since) for _, hashed, left, since in self._places() if hashed == self._hash), None)

    def _write(self, name: str, left: float, since: float) -> None:
        del name
        own = [place for place, hashed, *_ in self._places() if hashed == self._hash]
        place = own[0] if own else min(self._places(), key=lambda one: one[3])[0]
        _BUCKET.pack_into(self._memory, place, self._hash, left, since)

    def _places(self) -> Iterator[tuple[int, bytes, float, float]]:
        for place in range(self._first, self._first + _PLACES * _BUCKET.size, _BUCKET.size):
            yield place, *_BUCKET.unpack_from(self._memory, place)


class SharedTally(Tally):
    """How many requests are at work in all workers. Each writes its own number only."""

    def __init__(self, memory: mmap.mmap, number: int) -> None:
        self._all = memoryview(memory)[_TALLIES:_BYTES].cast("q")
        self._number = number
        self._all[number] = 0  # whoever had it before has ended

    def add(self, count: int) -> None:
        self._all[self._number] += count

    def count(self) -> int:
        return sum(self._all)


class Shared:
    """The folder of some workers, as one of them (or, without a ``number``, who started them) sees it."""

    def __init__(self, folder: Path, number: int | None = None) -> None:
        self._folder = folder
        self._number = number
        path = folder / "limits"
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if os.fstat(self._file).st_size < _BYTES:
            os.ftruncate(self._file, _BYTES)
        self._memory = mmap.mmap(self._file, _BYTES)

    def buckets(self, rate: float) -> Buckets:
        """Tokens of callers, of which there are so many more each second."""
        return SharedBuckets(rate, self._memory, self._file)

    def tally(self) -> Tally:
        """Counts the requests that are at work."""
        return SharedTally(self._memory, self._number or 0)

    # --- how it is with the processes -----------------------------------------------------------------------------

    def tell(self, schedule: ProcessState | None, workers: Sequence[ProcessState]) -> None:
        """Write down how it is with all processes."""
        self._put("state", {"schedule": schedule, "workers": workers})

    def read(self) -> tuple[ProcessState | None, list[ProcessState]]:
        """How it is with the schedule, and with each worker."""
        try:
            said = json.loads((self._folder / "state").read_bytes())
        except OSError:
            return None, []
        schedule = said["schedule"]
        return None if schedule is None else ProcessState(*schedule), [ProcessState(*one) for one in said["workers"]]

    # --- metrics ------------------------------------------------------------------------------------------------------

    def note_metrics(self, registry: CollectorRegistry) -> None:
        """Write down what this worker has counted."""
        families = [
            (one.name, one.type, one.documentation, [(s.name, s.labels, s.value) for s in one.samples])
            for one in registry.collect()
        ]
        self._put(f"metrics-{os.getpid()}", families)

    def write_metrics(self, registry: CollectorRegistry) -> bytes:
        """The metrics of all workers as those of one service: sums, or the largest where a sum would mean nothing.

        Of those that have ended, what only grows still counts.
        """
        self.note_metrics(registry)
        alive = {f"metrics-{one.pid}" for one in self.read()[1]} | {f"metrics-{os.getpid()}"}
        merged = _Merged()
        for path in sorted(self._folder.glob("metrics-*")):
            merged.add(json.loads(path.read_bytes()), is_alive=path.name in alive)
        whole = CollectorRegistry()
        whole.register(merged)
        text: bytes = generate_latest(whole)
        return text

    def _put(self, name: str, content: Any) -> None:
        draft = self._folder / f".{name}.{os.getpid()}"
        draft.write_text(json.dumps(content))
        draft.replace(self._folder / name)


#: Metrics that say the same of every worker, or of which a sum means nothing.
_NOT_SUMMED: Final = (
    "holdfast_info",
    "holdfast_store_up",
    "holdfast_schedule",
    "holdfast_workers",
    "holdfast_rate",
    "process_start",
    "process_max",
)


class _Merged:
    """Metrics of several processes, as one."""

    def __init__(self) -> None:
        self._families: dict[str, tuple[str, str]] = {}
        self._samples: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = defaultdict(dict)

    def add(self, families: Iterable[Any], *, is_alive: bool) -> None:
        for name, kind, about, samples in families:
            if not is_alive and kind not in ("counter", "histogram"):
                continue
            self._families[name] = kind, about
            found = self._samples[name]
            for sample, labels, value in samples:
                key = (sample, tuple(labels.items()))
                known = found.get(key, 0.0)
                found[key] = max(known, value) if name.startswith(_NOT_SUMMED) else known + value

    def collect(self) -> Iterator[Metric]:
        for name, (kind, about) in self._families.items():
            family = Metric(name, about, kind)
            for (sample, labels), value in self._samples[name].items():
                family.add_sample(sample, dict(labels), value)
            yield family


class ReportedSchedule:
    """The process of the schedule, which another process keeps running."""

    name = "schedule"

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    @property
    def state(self) -> ProcessState:
        """How it is with it."""
        found, _ = self._shared.read()
        return found or ProcessState(None, ready=False, restarts=0, trouble="not started yet")

    def collect(self) -> Iterable[Any]:
        """Its metrics."""
        return describe_process(self.name, self.state)


class ReportedWorkers:
    """All workers, as one of them knows them."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def find_trouble(self) -> str | None:
        """What is wrong with some of them."""
        _, workers = self._shared.read()
        wrong = [f"worker {number} {one.trouble}" for number, one in enumerate(workers) if one.trouble is not None]
        return "; ".join(wrong) or None

    def collect(self) -> Iterable[Any]:
        """Their metrics."""
        return describe_workers(self._shared.read()[1])


def describe_workers(workers: Sequence[ProcessState]) -> Iterable[Any]:
    """The metrics of workers, where a service has several."""
    yield GaugeMetricFamily("holdfast_workers", "Workers that are up.", value=sum(one.ready for one in workers))
    restarts = sum(one.restarts for one in workers)
    yield CounterMetricFamily("holdfast_workers_restarts", "How often workers were started again.", value=restarts)


# --- one worker -------------------------------------------------------------------------------------------------------


class Orders(NamedTuple):
    """What a worker is told on its standard input: it may hold a password, which a command line would show."""

    home: str | None
    url: str | None
    form: str
    stop_seconds: float
    keys_required: bool
    schedule: bool
    listener: int = -1
    folder: str = ""
    number: int = 0


def read_orders(given: io.FileIO) -> Orders:
    """What this worker is told. When there is nothing left to read, the process is asked to stop."""
    orders = Orders(**json.loads(given.readline()))
    threading.Thread(target=_end_with, args=(given,), daemon=True).start()
    return orders


def _end_with(given: io.FileIO) -> None:
    while given.read(4_096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def note_often(shared: Shared, registry: CollectorRegistry) -> None:
    """Write down what this worker has counted, now and then, for those who are asked for metrics."""

    def note() -> None:
        while True:
            with suppress(OSError):
                shared.note_metrics(registry)
            time.sleep(_NOTED_SECONDS)

    threading.Thread(target=note, name="holdfast-metrics", daemon=True).start()


# --- all of them ------------------------------------------------------------------------------------------------------


def run_workers(
    orders: Orders, listeners: Sequence[socket.socket], schedule: Supervisor | None, *, announce: Callable[[], None]
) -> str:
    """Serve by a process for each listener until SIGTERM or SIGINT; which it was."""
    ended: list[str] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _frame: ended.append(signal.Signals(got).name))
    with tempfile.TemporaryDirectory(prefix="holdfast-", ignore_cleanup_errors=True) as folder:
        shared = Shared(Path(folder))
        workers = [_supervise(orders._replace(folder=folder), *one) for one in enumerate(listeners)]
        processes = [*workers, *([] if schedule is None else [schedule])]
        for process in processes:
            process.start()
        try:
            _await_ready(workers, ended)
            if not ended:
                announce()
            while not ended:
                shared.tell(None if schedule is None else schedule.state, [one.state for one in workers])
                time.sleep(_NOTED_SECONDS / 5)
        finally:
            for listener in listeners:
                listener.close()  # nobody new comes in
            for process in processes:
                process.ask_to_stop()
            for process in processes:
                process.stop(2 * orders.stop_seconds)
    return ended[0]


def _supervise(orders: Orders, number: int, listener: socket.socket) -> Supervisor:
    told = orders._replace(number=number, listener=listener.fileno())
    return Supervisor(f"worker {number}", COMMAND, json.dumps(told._asdict()), pass_fds=(told.listener,))


def _await_ready(workers: Sequence[Supervisor], ended: Sequence[str]) -> None:
    until = time.monotonic() + _START_SECONDS
    while not ended and not all(one.state.ready for one in workers):
        if time.monotonic() > until:
            raise HoldfastError("the workers could not be started; the log says why")
        time.sleep(_NOTED_SECONDS / 20)
