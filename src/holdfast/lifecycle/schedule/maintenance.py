"""Maintenance: what has to be done to a store again and again. A sweep does all of it; jobs do their parts of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from holdfast.core import errors
from holdfast.core.clock import Belief
from holdfast.core.records import AUDIT, DURABLE, HISTORY, MemoryType, Scope, State
from holdfast.core.values import DAY, FOREVER, iso, moment, when
from holdfast.lifecycle.audit import Audit
from holdfast.lifecycle.clock import ClockTrust
from holdfast.lifecycle.figures.days import note_day
from holdfast.lifecycle.policies import Policies
from holdfast.lifecycle.registry import Registry
from holdfast.lifecycle.schedule.leadership import Leadership
from holdfast.lifecycle.schedule.schedule import take_back
from holdfast.lifecycle.session_parts import SessionParts
from holdfast.lifecycle.sweeping.due import EVERYTHING, Extent, Progress, SweepOrder, find_waiting
from holdfast.lifecycle.sweeping.forecast import DayForecast, Forecast
from holdfast.lifecycle.sweeping.plan import ACTIONS, Plan, Report, digest_moment, join_waiting
from holdfast.lifecycle.sweeping.sweep import Sweeper
from holdfast.ports.coordination import CONSOLE_JOBS_KEPT
from holdfast.ports.rules import DueStore
from holdfast.ports.stores import Tenant

_log = logging.getLogger("holdfast.maintenance")
_SOME: Final = 1_000
_PAGES: Final = 400
#: So many of those who were set aside are named in a job's result.
_SHOWN: Final = 20

EPISODES: Final = Extent(frozenset({MemoryType.EPISODIC.value}), bin=False)
COLD: Final = Extent(
    frozenset({MemoryType.LONG_TERM.value, MemoryType.STRUCTURED.value}), frozenset({State.ARCHIVED}), bin=False
)
DAILY: Final = Extent(
    frozenset({HISTORY, *(kind.value for kind in DURABLE if kind is not MemoryType.EPISODIC)}),
    frozenset({State.RECYCLED}),
)
SHORT: Final = Extent(bin=False, shorter_than=DAY)
#: How many seconds a sweep waits for readers to let the store's log be emptied: writers wait with it.
_PATIENCE: Final = 0.2


@dataclass(eq=False, repr=False)
class Maintenance:
    """Sweeps a tenant, and does what goes with it."""

    sweeper: Sweeper
    leadership: Leadership
    trust: ClockTrust
    audit: Audit
    finish_erasures: Callable[[], int]
    _has_left: bool = field(default=False, init=False)
    """Whether something that was deleted is still in the store's log."""

    @property
    def tenant(self) -> Tenant:
        """Whom it sweeps."""
        return self.sweeper.tenant

    def plan(
        self,
        at: datetime | float | str | None = None,
        *,
        confirm: bool = False,
        progress: Progress = lambda _count: None,
    ) -> Plan:
        """What a sweep would do, now or at a moment to come. Changes nothing, but notes what belongs to sessions."""
        now = self.tenant.now()
        due_at = now if at is None else moment(at, what="at")
        belief = Belief(now, now) if confirm else self.trust.look(now)
        SessionParts(self.tenant).refresh_due(due_at, EVERYTHING.takes)
        plan = self.sweeper.plan(SweepOrder(due_at, belief.until(due_at), confirm=confirm), progress)
        return replace(plan, waiting=find_waiting(self.tenant, due_at, belief))

    def forecast(
        self, days: int, *, confirm: bool = False, progress: Progress = lambda _count: None
    ) -> list[DayForecast]:
        """What a sweep would do now and on each of the days to come, as the plan for that moment says it, if the clock
        is right by then. Changes nothing, but notes what belongs to sessions.
        """
        now = self.tenant.now()
        SessionParts(self.tenant).refresh_due(now + days * DAY, EVERYTHING.takes)
        return Forecast(self.sweeper, now, days, confirm, progress).read()

    def sweep(
        self,
        *,
        at: datetime | float | str | None = None,
        digest: str | None = None,
        confirm: bool = False,
        extent: Extent = EVERYTHING,
        progress: Progress = lambda _count: None,
    ) -> Report:
        """Carry out what is due. With the digest of a plan: what was due at its moment, if that is still the same."""
        now = self.tenant.now()
        note_day(self.tenant, now)
        due_at = moment(at, what="at") if at is not None else now if digest is None else digest_moment(digest)
        if digest is not None and digest_moment(digest) != due_at:
            raise errors.InvalidInputError(
                f"the plan {digest} was made for {iso(digest_moment(digest))}, not for {iso(due_at)}"
            )
        if due_at > now:
            raise errors.InvalidInputError(
                f"{iso(due_at)} lies ahead: a forecast can be looked at (dry run), not carried out"
            )
        belief = None if confirm else self.trust.check(now)
        with self.leadership.held() as lease:
            if lease is None:
                raise errors.LeaseLostError(f"nothing was swept: {self.leadership.other()}; try again when it is done")
            if belief is None:
                self.trust.confirm(now, self.tenant.name, lambda: take_back(self.tenant.jobs, self.tenant.now()))
                belief = self.trust.check(now)
            upto, leadership = belief.until(due_at), self.leadership
            order = SweepOrder(due_at, upto, extent, confirm, now, lambda: leadership.lease, progress)
            try:
                report = self._carry_out(order, digest)
            except errors.ObjectStoreError:  # all but what needs cold storage was done, and so is the rest
                self.sweeper.purge(order)
                self._tidy(belief.upto)
                raise
            self._tidy(belief.upto)
        waiting = find_waiting(self.tenant, due_at, belief, extent)
        if waiting is not None:
            _log.warning("set aside: %d to be deleted or cleared for good; %s", waiting.records, belief.explain())
            report = replace(report, waiting=waiting)
        self._scrub(report)
        return report

    def _scrub(self, report: Report) -> None:
        """Empty the store's log, in which what was deleted for good still is; if a reader is in its way, the next sweep
        does it.
        """
        domains = self.sweeper.domains
        gives_back = report.total and domains is not None and domains.vacuums()
        self._has_left = bool(self._has_left or gives_back or report.counts[ACTIONS[State.DELETED]])
        if self._has_left and self.tenant.subjects.scrub(_PATIENCE):
            self._has_left = False
        elif self._has_left:
            _log.warning("what the sweep deleted stays in the store's log until the next sweep: a reader is in its way")

    def _carry_out(self, order: SweepOrder, digest: str | None) -> Report:
        """Finish what was cut short, sweep, and remove what goes with it."""
        if digest is None:
            self._follow_domains()
            Policies(self.tenant).finish()
            Registry(self.tenant).finish_unfinished(order.lease(), "restore")  # before the bin is emptied
            self.finish_erasures()
        SessionParts(self.tenant).refresh_due(order.at, order.extent.takes)
        report = self.sweeper.apply(order, digest)
        if left := self.sweeper.purge(order):
            order.progress(sum(line.records for line in left))
            report = report.with_lines(self.tenant.name, left, digest)
        return report

    def _follow_domains(self) -> None:
        """Let rules say what the memory domain's policy asks, should a crash have left them behind it."""
        try:
            if self.sweeper.domains is not None:
                self.sweeper.domains.follow()
        except (errors.ObjectStoreError, errors.StoreTooNewError) as problem:  # rules that are in force go on
            _log.warning("the memory domain's policy cannot be read: %s", problem)

    def _tidy(self, upto: int) -> None:
        """What goes with a sweep and takes nothing that could be seen up to a moment."""
        SessionParts(self.tenant).try_to_follow(upto)
        try:
            while self.tenant.short_term.end_expired(upto, _SOME) == _SOME:
                pass
        except errors.StoreAwayError as problem:  # what has expired is out of sight without it
            _log.warning("what expired in short-term memory is not removed yet: %s", problem)
        self.tenant.console_jobs.forget(upto - CONSOLE_JOBS_KEPT)
        left, before = self.tenant.dues.give_back(_PAGES), None
        while left and left != before:  # a file that was made without it gives nothing back
            left, before = self.tenant.dues.give_back(_PAGES), left

    def empty_bin(self, *, confirm: bool = False) -> dict[str, int]:
        """Delete for good what has had its time in the recycle bin; how many memories (and sessions, messages, agents,
        tools) of each kind. ``ClockError`` if some of it waits until the time is believed, unless confirmed.
        """
        report = self.sweep(extent=Extent(frozenset()), confirm=confirm)
        if report.waiting is not None:
            raise errors.ClockError(
                f"{report.counts[ACTIONS[State.DELETED]]:,} of what is in the recycle bin were deleted, and "
                f"{report.waiting.records:,} were not: {report.waiting.belief.explain()}"
            )
        return {line.memory_type: line.records for line in report.lines if line.action == ACTIONS[State.DELETED]}

    def audit_life(self) -> int:
        """How long the tenant's audit entries are kept, in microseconds."""
        life = self.tenant.rules.life(AUDIT, Scope(self.tenant.name, "", ""))
        return FOREVER if life.delete_after is None else life.delete_after

    def keep_audit(self, life: int) -> dict[str, Any]:
        """Seal the audit chains of the whole store, and cut what is older than ``life``: they are of one sequence, so
        the tenant who keeps them longest decides.
        """
        sealed, belief = self.audit.seal(), self.trust.look(self.tenant.now())
        cut = 0 if life >= FOREVER else self.audit.cut(when(belief.upto - life))
        waits = {} if belief.is_whole or life >= FOREVER else {"audit_cut_waits": belief.explain()}
        return {"audit_checkpoint": sealed["checkpoint"], "audit_entries_cut": cut, **waits}


def runners(dues: DueStore, maintenance_of: Callable[[str], Maintenance]) -> dict[str, Callable[[], dict[str, Any]]]:
    """What each job of the schedule does: a part of the maintenance, for every tenant of the store."""

    def sweep(extent: Extent) -> Callable[[], dict[str, Any]]:
        return lambda: sweep_all(dues.tenants(), maintenance_of, extent)

    def daily() -> dict[str, Any]:
        tenants = dues.tenants()
        cut = max((maintenance_of(tenant).audit_life() for tenant in tenants), default=None)
        sealed = {} if cut is None else maintenance_of(tenants[0]).keep_audit(cut)
        return {**sweep(DAILY)(), **sealed}

    return {"minutely": sweep(SHORT), "episodes": sweep(EPISODES), "archive": sweep(COLD), "daily": daily}


def sweep_all(tenants: Sequence[str], maintenance_of: Callable[[str], Maintenance], extent: Extent) -> dict[str, Any]:
    """Sweep every tenant. One who cannot be swept keeps none of the others from it; it is an error in the end."""
    reports: dict[str, Report] = {}
    trouble: errors.HoldfastError | None = None
    for tenant in tenants:
        try:
            reports[tenant] = maintenance_of(tenant).sweep(extent=extent)
        except errors.LeaseLostError:
            raise
        except errors.HoldfastError as problem:
            trouble = trouble or problem
    if trouble is not None:
        raise trouble
    return join_reports(reports)


def join_reports(reports: Mapping[str, Report]) -> dict[str, Any]:
    """The reports of several tenants as one result of a job."""
    several = list(reports.values())
    totals = ("bytes", "bytes_before", "bytes_after", "held", "stale")
    confirmations = [
        {"tenant": tenant, **aside._asdict()} for tenant, report in reports.items() for aside in report.set_aside
    ]
    waiting = join_waiting(report.waiting for report in several)
    return {
        "tenants": len(several),
        "counts": {action: sum(report.counts[action] for report in several) for action in ACTIONS.values()},
        **{name: sum(getattr(report, name) for report in several) for name in totals},
        "set_aside": confirmations[:_SHOWN],
        "waiting": None if waiting is None else waiting.as_dict(),
        "seconds": sum(report.seconds for report in several),
    }
