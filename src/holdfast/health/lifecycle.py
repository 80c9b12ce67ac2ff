"""What governs memories: the clock, the schedule, what is overdue, the audit chain, what is in cold storage.

These checks read the store's own tables, whatever its engine. They run no job and write nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from holdfast.core.values import DAY, describe_duration, iso, moment
from holdfast.health.checks import Check, advise, check, fail, ok, warn
from holdfast.health.keys import check_cold, check_identity, check_keyring
from holdfast.lifecycle.audit import compare_note
from holdfast.lifecycle.clock import ClockTrust, ClockWatch
from holdfast.lifecycle.schedule.leadership import Leadership
from holdfast.lifecycle.schedule.schedule import GRACE, JOBS, Job, Schedule
from holdfast.lifecycle.sweeping.due import find_all_waiting, find_overdue
from holdfast.ports.records import AuditStore
from holdfast.ports.stores import Tenant
from holdfast.privacy.ledger import Ledger
from holdfast.settings import Settings
from holdfast.storage.objects import open_keeping
from holdfast.storage.relational.coordination import new_holder
from holdfast.storage.relational.database import Database
from holdfast.storage.stores import stores_over
from holdfast.store import system_clock

#: Cold storage is filled weekly: what has waited for longer was forgotten by more than one job.
_LATE: Final = 8 * DAY
_KEEP_RUNNING: Final = (
    "keep `holdfast serve` or `holdfast schedule run` running, or run `holdfast schedule run --once` from cron"
)


def check_lifecycle(database: Database, settings: Settings) -> Iterator[Check]:
    """The checks, on a store that is open."""
    now = moment(system_clock())
    store = Tenant(**vars(stores_over(database, None)), name="default", now=lambda: now, new_id=str)
    yield from _check_clock(store, settings.clock_tolerance())
    yield from _check_schedule(store, settings.timezone)
    yield from _check_overdue(store)
    yield from _check_erasures(settings)
    yield from _check_audit(store.audit, settings)
    yield from check_identity(store.identity, settings)
    yield from check_keyring(store.identity, settings)
    yield from check_cold(store.packs, settings)


@check("clock", advise("set the machine's clock, then sweep with --confirm"))
def _check_clock(store: Tenant, tolerance: int) -> Check:
    """Whether the clock is where the store has seen the time go; what waits, and since when, where it is far ahead."""
    now, seen = store.now(), store.clock_store.seen()
    ClockWatch(now=now).check(now, seen=None if seen is None else seen.at)
    belief = ClockTrust(store.clock_store, store.now, tolerance=tolerance, watched=True).look(now)
    if belief.is_whole:
        known = "nothing was written yet" if seen is None else f"the store has seen {iso(seen.at)[:19]}"
        return ok(f"{iso(now)[:19]} ({known})")
    waiting = find_all_waiting(store, now, belief)
    count = 0 if waiting is None else waiting.records
    since = "" if seen is None or seen.sighted is None else f" since {iso(seen.sighted)[:19]}"
    waits = f"{count:,} to be deleted or cleared for good: they wait{since}" if count else "nothing waits for that"
    fix = "set the clock if it is wrong; if it is right, holdfast sweep --confirm, or let it go on for a day"
    return warn(f"{belief.explain().split(';')[0]}; {waits}", fix)


@check("schedule", advise("correct HOLDFAST_TIMEZONE"))
def _check_schedule(store: Tenant, timezone: str) -> Check:
    leadership = Leadership(store.leases, wall=lambda: time.time_ns() // 1_000, holder=new_holder())
    nothing: Mapping[Job, Callable[[], dict[str, Any]]] = dict.fromkeys(JOBS, dict)  # looked at, never run
    schedule = Schedule(store.jobs, leadership, nothing, clock=system_clock, timezone=timezone)
    rows, problems = schedule.list(), schedule.problems()
    idle = not any(row["last_slot"] or row["failed"] or row["clock_set_back"] for row in rows)
    # Where nobody ever looked after the jobs, slots that pass are no harm until there is something to be done.
    if problems and not (idle and max(find_overdue(store.dues, store.now()).values(), default=0) <= GRACE):
        return fail("\n".join(problems), f"see holdfast schedule; {_KEEP_RUNNING}")
    if idle:
        return warn("no job has ever run by itself: nothing is swept unless somebody does it", _KEEP_RUNNING)
    disabled = [row["name"] for row in rows if not row["enabled"]]
    coming = min((row for row in rows if row["next_run"]), key=lambda row: str(row["next_run"]), default=None)
    found = "nothing will run" if coming is None else f"{coming['name']} runs next, at {str(coming['next_run'])[:16]}"
    if disabled:
        fix = f"if that is not meant: holdfast schedule set {disabled[0]} --enable"
        return warn(f"{found}; disabled: {', '.join(disabled)}", fix)
    return ok(found)


@check("overdue", advise("look at holdfast sweep --dry-run"))
def _check_overdue(store: Tenant) -> Check:
    """What should have been swept long ago; what is on hold may be among it."""
    waiting = find_overdue(store.dues, store.now())
    if not waiting:
        return ok("nothing is waiting to be swept")
    kind = max(waiting, key=lambda name: waiting[name])
    found = f"something of {', '.join(waiting)} is due, {kind} for {_roughly(waiting[kind])}"
    if waiting[kind] <= _LATE:
        return ok(found)
    fix = "see holdfast sweep --dry-run: sweep what is due, confirm who was set aside, release holds that have ended"
    return warn(found, fix)


@check("erasures", "correct HOLDFAST_STATE_URL, or the permissions there")
def _check_erasures(settings: Settings) -> Check | None:
    """Those that have begun and that a hold keeps; nothing is said where there are none."""
    deferred = Ledger(open_keeping(settings)).deferred()
    fix = "holdfast hold list; an erasure goes on when the hold that keeps it is released"
    return warn(f"begun, and kept by a hold: {', '.join(deferred)}", fix) if deferred else None


@check("audit", advise("correct HOLDFAST_STATE_URL, or the permissions there"))
def _check_audit(store: AuditStore, settings: Settings) -> Check:
    problem = compare_note(open_keeping(settings), store)  # the cheap part of verify()
    if problem is not None:
        fix = "run holdfast audit verify; if a backup was restored, say so: holdfast audit seal --accept 'REASON'"
        return fail(problem.problem, fix)
    last = next(iter(store.checkpoints(limit=1)), None)
    if last is None:
        return ok("not sealed yet")
    found = f"checkpoint {last.no} seals {last.entries:,} entries ({iso(last.at)[:19]})"
    return ok(f"{found}; not verified here: holdfast audit verify")


def _roughly(duration: int) -> str:
    return describe_duration(duration // DAY * DAY) if duration >= DAY else "less than a day"
