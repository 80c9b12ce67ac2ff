"""How long operations took: recorded for every operation and kind, and said aloud when a target is missed."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict, deque

from holdfast.results import LatencyResult

_log = logging.getLogger("holdfast.latency")
_KEPT = 1_024


class Stopwatch:
    """Runs from its making."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def ms(self) -> float:
        """Milliseconds since it was made."""
        return (time.perf_counter() - self._start) * 1_000


class Latencies:
    """The latest durations of each operation on each kind."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], deque[float]] = defaultdict(lambda: deque(maxlen=_KEPT))
        self._missed: dict[tuple[str, str], int] = defaultdict(int)
        self._lock = threading.Lock()

    def record(self, operation: str, kind: str, ms: float, target_ms: float) -> None:
        """Keep a duration; log a warning if it misses its target."""
        with self._lock:
            self._kept[operation, kind].append(ms)
            if ms > target_ms:
                self._missed[operation, kind] += 1
        if ms > target_ms:
            _log.warning("%s of %s memory took %.2f ms (target: %g ms)", operation, kind, ms, target_ms)

    def summary(self) -> list[LatencyResult]:
        """One row for each operation and kind: count, p50, p95, max in milliseconds, and targets missed."""
        with self._lock:
            kept = {key: sorted(values) for key, values in self._kept.items()}
            missed = dict(self._missed)
        return [
            {
                "operation": operation,
                "memory_type": kind,
                "count": len(values),
                "p50_ms": values[len(values) // 2],
                "p95_ms": values[min(len(values) - 1, len(values) * 95 // 100)],
                "max_ms": values[-1],
                "missed": missed.get((operation, kind), 0),
            }
            for (operation, kind), values in sorted(kept.items())
        ]
