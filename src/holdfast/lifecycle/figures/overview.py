"""The overview of a tenant: what is kept, what is late, what comes next, and how long erasures take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from holdfast.core.records import State, Subject
from holdfast.core.values import DAY, SECOND, iso
from holdfast.lifecycle.figures.days import note_day, read_days
from holdfast.lifecycle.schedule.schedule import Schedule
from holdfast.ports.figures import ErasureTime, Holding
from holdfast.ports.stores import Tenant
from holdfast.results.figures import (
    DueResult,
    ErasureTimesResult,
    HoldCountResult,
    KeptResult,
    LastBackupResult,
    OverviewResult,
    SpanResult,
)

_DAYS: Final = 30
#: For each action, so many things that are due are counted.
_MOST_DUE: Final = 50_000
#: Of so many holds on users it is counted how much they cover.
_MOST_HOLDS: Final = 100
_HOUR: Final = 3_600 * SECOND
#: The job after which nothing is due any more.
_SWEEP: Final = "daily"


@dataclass(frozen=True, eq=False)
class Overview:
    """Reads the overview of one tenant, from counters and indexes."""

    tenant: Tenant
    schedule: Schedule
    last_backup: Callable[[], LastBackupResult | None]
    objective_hours: float

    def read(self) -> OverviewResult:
        """All of it."""
        tenant, figures, now = self.tenant, self.tenant.figures, self.tenant.now()
        note_day(tenant, now)
        holdings, ends = figures.holdings(tenant.name), figures.bin_ends(tenant.name)
        erasures = figures.erasures(tenant.name, since=now - _DAYS * DAY)
        next_run = self.schedule.next_run(_SWEEP)
        due = [first for _, first in tenant.dues.first_due(tenant.name)]
        due += [] if ends.first is None else [ends.first]
        next_at = now if next_run is None else max(now, next_run)
        return {
            "at": iso(now),
            "kept": _list_kept(holdings),
            "users": figures.users(tenant.name),
            "sessions": {state: count for state, count in figures.sessions(tenant.name).items() if state in _SHOWN},
            "overdue": self._count_due(now, due),
            "next_sweep": self._count_due(next_at, due),
            "next_sweep_at": _iso(next_run),
            "bin": {
                "memories": sum(one.binned for one in holdings),
                "bytes": sum(one.binned_bytes for one in holdings),
                "first_leaves_at": _iso(ends.first),
                "last_leaves_at": _iso(ends.last),
            },
            "holds": self._count_holds(),
            "backup": self.last_backup(),
            "erasures": _measure(erasures, self.objective_hours),
            "days": read_days(tenant, now, _DAYS, [one.requested_at for one in erasures]),
        }

    def _count_due(self, at: int, due: Sequence[int]) -> DueResult:
        """What is due at a moment; ``due`` is when the first of each kind is."""
        first = [one for one in due if one <= at]
        found = self.tenant.figures.due(self.tenant.name, at, most=_MOST_DUE) if first else []
        counts: Counter[str] = Counter({"archive": 0, "recycle": 0, "delete": 0})
        kinds: Counter[str] = Counter()
        for one in found:
            counts[one.action] += one.records
            kinds[one.kind] += one.records
        return {
            "counts": dict(counts),
            "kinds": dict(kinds),
            "is_whole": all(count < _MOST_DUE for count in counts.values()),
            "since": _iso(min(first, default=None)),
        }

    def _count_holds(self) -> HoldCountResult:
        holds = self.tenant.holds.list(self.tenant.name)
        whole = {hold.user_id for hold in holds if [*hold.scope] == ["user_id"] and hold.user_id is not None}
        counted = len(whole) <= _MOST_HOLDS
        subjects = [Subject(self.tenant.name, user_id) for user_id in sorted(whole)] if counted else []
        return {
            "count": len(holds),
            "users": len(whole),
            "memories": sum(self.tenant.dues.live(subject) for subject in subjects) if counted else None,
            "others": sum([*hold.scope] != ["user_id"] for hold in holds),
        }


_SHOWN: Final = (State.ACTIVE, State.RECYCLED)


def _list_kept(holdings: Sequence[Holding]) -> list[KeptResult]:
    """How much there is of each kind in each state."""
    rows: list[KeptResult] = []
    for one in holdings:
        states = (
            (State.ACTIVE, one.memories - one.archived, one.bytes - one.archived_bytes),
            (State.ARCHIVED, one.archived, one.archived_bytes),
            (State.RECYCLED, one.binned, one.binned_bytes),
        )
        rows += [
            {"memory_type": one.kind.value, "state": state.value, "memories": memories, "bytes": size}
            for state, memories, size in states
        ]
    return rows


def _measure(erasures: Sequence[ErasureTime], objective_hours: float) -> ErasureTimesResult:
    """How long erasures took, from when each was asked for."""
    most = objective_hours * _HOUR

    def span(end: str) -> SpanResult:
        took = sorted((at - one.requested_at) / SECOND for one in erasures if (at := getattr(one, end)) is not None)
        return {"count": len(took), "p50_seconds": _rank(took, 50), "p99_seconds": _rank(took, 99)}

    done = [one for one in erasures if one.certified_at is not None]
    result: dict[str, Any] = {
        "objective_hours": objective_hours,
        "count": len(erasures),
        "pending": len(erasures) - len(done),
        "late": sum((one.certified_at or 0) - one.requested_at > most for one in done),
        "out_of_recall": span("hidden_at"),
        "gone": span("gone_at"),
        "certified": span("certified_at"),
    }
    return cast("ErasureTimesResult", result)


def _rank(values: Sequence[float], percent: int) -> float | None:
    """The value that so many of a hundred do not exceed."""
    return values[max(0, -(-len(values) * percent // 100) - 1)] if values else None


def _iso(at: int | None) -> str | None:
    return None if at is None else iso(at)
