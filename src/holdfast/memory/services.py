"""What a memory is made of: the engine's parts, handed to every kind."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

from holdfast.core.clock import IdSource
from holdfast.core.records import Scope, State, Subject
from holdfast.core.values import MAX_CONTENT_BYTES, Clock, moment, name_in_logs
from holdfast.memory.working import WorkingStore
from holdfast.ports.registry import AGENT, removed_agent
from holdfast.ports.stores import Stores, Tenant

if TYPE_CHECKING:  # what a process does not ask for is not loaded
    from holdfast.lifecycle.archive import Archives
    from holdfast.lifecycle.clock import ClockTrust
    from holdfast.lifecycle.schedule.leadership import Leadership
    from holdfast.ports.feed import Summarizer
    from holdfast.ports.objects import ObjectStore
    from holdfast.ports.registry import Registered
    from holdfast.ports.session_parts import PartRegistration, SessionPart
    from holdfast.privacy.erasure import Erasure
    from holdfast.privacy.export.export import Exports
    from holdfast.privacy.keep_out import KeepOut
    from holdfast.recall.service import Recall
    from holdfast.results.figures import LatencyResult

_log = logging.getLogger("holdfast.latency")
_KEPT = 1_024


def _random_bits(count: int) -> int:
    """So many bits, 64 at most, that nobody can guess."""
    return int.from_bytes(os.urandom(8)) >> (64 - count)


def start_watch() -> Callable[[], float]:
    """Says how many milliseconds have passed since it was started."""
    start = time.perf_counter()
    return lambda: (time.perf_counter() - start) * 1_000


class Latencies:
    """The latest durations of each operation on each kind."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], deque[float]] = defaultdict(lambda: deque(maxlen=_KEPT))
        self._missed: dict[tuple[str, str], int] = defaultdict(int)
        self._lock = threading.Lock()
        self.observe: Callable[[str, str, float], None] | None = None
        """Hears of each operation, where anybody wants to."""

    def record(self, operation: str, kind: str, ms: float, target_ms: float) -> None:
        """Keep a duration; log a warning if it misses its target."""
        with self._lock:
            self._kept[operation, kind].append(ms)
            if ms > target_ms:
                self._missed[operation, kind] += 1
        if self.observe is not None:
            self.observe(operation, kind, ms)
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


@dataclass(frozen=True)
class Services(Stores):
    """The stores, and what works on them: shared by all memories of one engine, and safe for many threads."""

    make: Callable[[str], Any]
    leadership: Leadership
    """Whoever writes to cold storage, or sweeps, does so alone."""
    trust: ClockTrust
    """How far the clock is believed: what cannot be undone is done as far as that."""
    objects: Callable[[], ObjectStore]
    """Cold storage, opened when it is first needed."""
    recall: Recall
    summarizer: Summarizer
    clock: Clock
    keep_out: KeepOut
    erase: Callable[[Subject], Erasure]
    """Erases a subject for good, in every place."""
    open_part: Callable[[PartRegistration, str | None], SessionPart]
    """Opens what belongs to sessions and lies elsewhere."""
    check: Callable[[], None]
    """Raises ``ClosedError`` where the engine cannot be used (any more, or in this process)."""
    max_content_bytes: int = MAX_CONTENT_BYTES
    refuse_kept_out: bool = False
    """Whether adding a text that is kept out is an error, and not an answer."""
    dedupe: bool = False
    """Whether adding a text that is there gives what is there, where the caller does not say."""
    working: WorkingStore = field(default_factory=WorkingStore)
    latencies: Latencies = field(default_factory=Latencies)
    _ids: IdSource = field(default_factory=lambda: IdSource(_random_bits))
    _ids_lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def archives(self) -> Archives:
        """Archives records, and brings them back."""
        from holdfast.lifecycle.archive import Archives

        return Archives(
            self.records, self.packs, self.objects, self.summarizer, new_id=self.new_id, encode=self.recall.encode
        )

    @property
    def exports(self) -> Exports:
        """Gathers what is held on people."""
        from holdfast.lifecycle.session_parts import SessionParts
        from holdfast.privacy.export.export import Exports
        from holdfast.privacy.export.readers import Sources

        stores = (self.reader, self.records, self.versions, self.short_term, self.schemas, self.rules, self.holds)
        sources = Sources(*stores, self.archives, self.working.of_user, lambda name: SessionParts(self.tenant(name)))
        return Exports(sources, self.now)

    def tenant(self, name: str) -> Tenant:
        """What the services of a tenant work with."""
        return Tenant(partial(getattr, self), name=name, now=self.now, new_id=self.new_id, open_part=self.open_part)

    def pseudonym(self, subject: Subject) -> str:
        """What logs call a subject."""
        return name_in_logs(self.reader.alias(subject))

    def removed_agent(self, scope: Scope) -> Registered | None:
        """The agent of a scope, if it is in the recycle bin."""
        agent = self.registry.get(scope.tenant, AGENT, scope.agent_id)
        return None if agent is None or agent.state is State.ACTIVE else agent

    def check_agent(self, scope: Scope) -> None:
        """``AgentRemovedError`` if the agent of a scope is in the recycle bin: it changes nothing from there.

        Whoever changes something as an agent asks this first; adding asks again in the transaction that writes.
        """
        if (agent := self.removed_agent(scope)) is not None:
            raise removed_agent(agent.id, agent.purge_at or 0)

    def now(self) -> int:
        """The present moment, by the engine's clock; every verb asks for it before it takes a lock."""
        self.check()
        return moment(self.clock(), what="the clock's time")

    def ids_at(self, moments: Iterable[int]) -> list[str]:
        """Ids for records made at these moments, in their order."""
        with self._ids_lock:
            return [*map(self._ids.next, moments)]

    def new_ids(self, now: int, count: int) -> list[str]:
        """Ids for ``count`` records made now, in their order."""
        return self.ids_at(repeat(now, count))

    def new_id(self, now: int) -> str:
        """An id for a record made now."""
        return self.ids_at((now,))[0]
