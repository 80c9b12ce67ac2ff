"""What governs memories: the clock, the schedule, what is overdue, the audit chain, what is in cold storage.

These checks read the store's own tables, whatever its engine. They run no job and write nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from holdfast.core.errors import HoldfastError, StorageError
from holdfast.core.values import DAY, describe_duration, iso, moment
from holdfast.health.checks import Check, advice_of, fail, ok, run_check, warn
from holdfast.health.keys import check_cold
from holdfast.health.store_state import check_identity
from holdfast.lifecycle.audit import Audit
from holdfast.lifecycle.clock import ClockTrust, ClockWatch, find_waiting
from holdfast.lifecycle.schedule.leadership import Leadership
from holdfast.lifecycle.schedule.schedule import GRACE, JOBS, Schedule
from holdfast.privacy.ledger import Ledger
from holdfast.settings import Settings
from holdfast.storage.objects import open_keeping
from holdfast.storage.relational.audit import SqlAudit
from holdfast.storage.relational.coordination import SqlClock, SqlJobs, SqlLeases, new_holder
from holdfast.storage.relational.database import Database
from holdfast.storage.relational.dues import SqlDues
from holdfast.storage.relational.registry import SqlRegistry
from holdfast.store import system_clock

#: Cold storage is filled weekly: what has waited for longer was forgotten by more than one job.
_LATE: Final = 8 * DAY
_KEEP_RUNNING: Final = (
    "keep `holdfast serve` or `holdfast schedule run` running, or run `holdfast schedule run --once` from cron"
)


def check_lifecycle(database: Database, settings: Settings) -> Iterator[Check]:
    """The checks, on a store that is open."""
    dues = SqlDues(database)
    now = moment(system_clock())
    tolerance = settings.clock_tolerance()
    fix = _advice("set the machine's clock, then sweep with --confirm")
    yield run_check("clock", lambda: _check_clock(database, dues, now, tolerance), fix)
    fix = _advice("correct HOLDFAST_TIMEZONE")
    yield run_check("schedule", lambda: _check_schedule(database, dues, now, settings.timezone), fix)
    yield run_check("overdue", lambda: _check_overdue(dues, now), _advice("look at holdfast sweep --dry-run"))
    yield from _check_erasures(settings)
    fix = _advice(f"make {settings.home / 'state'} readable")
    yield run_check("audit", lambda: _check_audit(database, settings.home), fix)
    yield from check_identity(database, settings)
    yield from check_cold(database, settings)


def _advice(fix: str) -> Callable[[HoldfastError], str]:
    """What to do: what the problem itself says where it is the store's, ``fix`` for any other."""
    return lambda problem: advice_of(problem) if isinstance(problem, StorageError) else fix


def _check_clock(database: Database, dues: SqlDues, now: int, tolerance: int) -> Check:
    """Whether the clock is where the store has seen the time go; what waits, and since when, where it is far ahead."""
    clock = SqlClock(database)
    seen = clock.seen()
    ClockWatch(now=now).check(now, seen=None if seen is None else seen.at)
    belief = ClockTrust(clock, lambda: now, tolerance=tolerance, watched=True).look(now)
    if belief.is_whole:
        known = "nothing was written yet" if seen is None else f"the store has seen {iso(seen.at)[:19]}"
        return ok("clock", f"{iso(now)[:19]} ({known})")
    registry = SqlRegistry(database)
    found = (find_waiting(dues, registry, tenant, at=now, belief=belief) for tenant in dues.tenants())
    count = sum(one.records for one in found if one is not None)
    since = "" if seen is None or seen.sighted is None else f" since {iso(seen.sighted)[:19]}"
    waits = f"{count:,} to be deleted or cleared for good: they wait{since}" if count else "nothing waits for that"
    fix = "set the clock if it is wrong; if it is right, holdfast sweep --confirm, or let it go on for a day"
    return warn("clock", f"{belief.explain().split(';')[0]}; {waits}", fix)


def _check_schedule(database: Database, dues: SqlDues, now: int, timezone: str) -> Check:
    leadership = Leadership(SqlLeases(database), wall=lambda: time.time_ns() // 1_000, holder=new_holder())
    nothing: Mapping[str, Callable[[], dict[str, Any]]] = {job.name: dict for job in JOBS}  # looked at, never run
    schedule = Schedule(SqlJobs(database), leadership, nothing, clock=system_clock, timezone=timezone)
    rows, problems = schedule.list(), schedule.problems()
    idle = not any(row["last_slot"] or row["failed"] or row["clock_set_back"] for row in rows)
    # Where nobody ever looked after the jobs, slots that pass are no harm until there is something to be done.
    if problems and not (idle and max(_waiting(dues, now).values(), default=0) <= GRACE):
        return fail("schedule", "\n".join(problems), f"see holdfast schedule; {_KEEP_RUNNING}")
    if idle:
        return warn(
            "schedule", "no job has ever run by itself: nothing is swept unless somebody does it", _KEEP_RUNNING
        )
    disabled = [row["name"] for row in rows if not row["enabled"]]
    coming = min((row for row in rows if row["next_run"]), key=lambda row: str(row["next_run"]), default=None)
    found = "nothing will run" if coming is None else f"{coming['name']} runs next, at {str(coming['next_run'])[:16]}"
    if disabled:
        fix = f"if that is not meant: holdfast schedule set {disabled[0]} --enable"
        return warn("schedule", f"{found}; disabled: {', '.join(disabled)}", fix)
    return ok("schedule", found)


def _check_overdue(dues: SqlDues, now: int) -> Check:
    """What should have been swept long ago; what is on hold may be among it."""
    waiting = _waiting(dues, now)
    if not waiting:
        return ok("overdue", "nothing is waiting to be swept")
    kind = max(waiting, key=lambda name: waiting[name])
    found = f"something of {', '.join(waiting)} is due, {kind} for {_roughly(waiting[kind])}"
    if waiting[kind] <= _LATE:
        return ok("overdue", found)
    fix = "see holdfast sweep --dry-run: sweep what is due, confirm who was set aside, release holds that have ended"
    return warn("overdue", found, fix)


def _waiting(dues: SqlDues, now: int) -> dict[str, int]:
    """For each kind of which something is due, in any tenant: for how long."""
    waiting: dict[str, int] = {}
    for tenant in dues.tenants():
        for kind, since in dues.overdue_since(tenant, now):
            waiting[kind] = max(waiting.get(kind, 0), now - since)
    return waiting


def _check_erasures(settings: Settings) -> Iterator[Check]:
    """Those that have begun and that a hold keeps; nothing is said where there are none."""
    try:
        deferred = Ledger(open_keeping(settings)).deferred()
    except HoldfastError as problem:
        yield fail("erasures", problem, "correct HOLDFAST_STATE_URL, or the permissions there")
        return
    if deferred:
        found = f"begun, and kept by a hold: {', '.join(deferred)}"
        fix = "holdfast hold list; an erasure goes on when the hold that keeps it is released"
        yield warn("erasures", found, fix)


def _check_audit(database: Database, home: Path) -> Check:
    store = SqlAudit(database)
    problem = Audit(store, "default", home / "state", system_clock).compare()  # the cheap part of verify()
    if problem is not None:
        fix = "run holdfast audit verify; if a backup was restored, say so: holdfast audit seal --accept 'REASON'"
        return fail("audit", problem.problem, fix)
    last = next(iter(store.checkpoints(limit=1)), None)
    if last is None:
        return ok("audit", "not sealed yet")
    found = f"checkpoint {last.no} seals {last.entries:,} entries ({iso(last.at)[:19]})"
    return ok("audit", f"{found}; not verified here: holdfast audit verify")


def _roughly(duration: int) -> str:
    return describe_duration(duration // DAY * DAY) if duration >= DAY else "less than a day"
