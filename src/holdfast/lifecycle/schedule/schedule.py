"""``holdfast.schedule``: jobs that fire by slot, once each, however many processes look after them.

A slot is claimed before its job runs and finished after; only the holder of the lease does either. So a slot runs once;
one that was cut short (claimed, and not finished by whoever had the lease) runs once more. Slots that nobody was there
for are made up for by one run, for the latest of them: a sweep does all that is due.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.core.audit import SCHEDULE, acting_as
from holdfast.core.clock import SKEW
from holdfast.core.errors import HoldfastError, InvalidInputError, LeaseLostError, quote
from holdfast.core.slots import check_cron, check_timezone, count_missed, latest_slot, next_slot
from holdfast.core.values import SECOND, Clock, dump_json, iso, moment
from holdfast.ports.coordination import JobRow, JobRun, JobStore, Lease

if TYPE_CHECKING:
    from holdfast.lifecycle.clock import ClockTrust
    from holdfast.lifecycle.schedule.leadership import Leadership
    from holdfast.results.lifecycle import JobResult, RunResult

_log = logging.getLogger("holdfast.schedule")
#: A job is overdue when a slot has been waiting for longer: someone should look at least once an hour.
GRACE: Final = 3_600 * SECOND
_MOST_PAUSE: Final = 30.0
_LEAST_PAUSE: Final = 0.05
_MOST_ERROR_CHARS: Final = 2_000
_DEFAULT: Final = "default"

Runner = Callable[[], dict[str, Any]]
Rows = list[dict[str, Any]]
Runs = list["RunResult"]


class Job(NamedTuple):
    """A job, as it is unless it was set otherwise."""

    name: str
    cron: str
    sweeps: str
    meaning: str


JOBS: Final = tuple(Job(**row) for row in json.loads(Path(__file__).with_name("jobs.json").read_bytes()))


class _JobState(NamedTuple):
    """A job, what is set about it, and its slots as the clock stands."""

    job: Job
    row: JobRow
    cron: str
    timezone: str
    due: int | None = None
    """The latest slot that was not begun."""
    waiting: int | None = None
    """The earliest slot that was not finished."""
    next: int | None = None
    trouble: str | None = None
    """Why its slots cannot be told."""

    @property
    def after(self) -> int:
        return max(self.row.since, self.row.slot or self.row.since)

    @property
    def cut_short(self) -> bool:
        """Of a job that runs now, this says so too."""
        return self.row.slot is not None and self.row.finished_at is None


def take_back(jobs: JobStore, now: int, name: str | None = None) -> list[str]:
    """Let jobs whose last slot lies ahead of the clock, which was ahead then, go on from now; their names.

    Slots up to now are not run again. One that lies ahead by less than clocks may differ has run in its time.
    """
    return jobs.take_back(now=now, beyond=now + SKEW, name=name)


@dataclass(eq=False, repr=False)
class Schedule:
    """The jobs of a store. ``clock`` tells which slots are due. Safe for many threads; one at a time runs jobs."""

    jobs: JobStore
    leadership: Leadership
    runners: Mapping[Job, Runner]
    clock: Clock
    timezone: str = "UTC"
    trust: ClockTrust | None = None

    def __post_init__(self) -> None:
        check_timezone(self.timezone)

    @property
    def lease(self) -> Lease | None:
        """The lease under which a job runs now, for its batches to check; ``None`` while none runs here."""
        return self.leadership.lease

    def enrol(self) -> None:
        """Make the jobs known: slots from now on count as missed if nobody runs them."""
        known = {row.name for row in self.jobs.rows()}
        for job in self.runners:
            if job.name not in known:
                self.jobs.enrol(job.name, now=self._now())

    def set(
        self, name: str, *, cron: str | None = None, timezone: str | None = None, enabled: bool | None = None
    ) -> JobResult:
        """Change when a job runs, or whether; what is not given stays, and ``"default"`` goes back to the default.

        A job that waits for a slot far ahead, because the clock was set back, goes on from now.
        """
        job = self._job(name)
        if cron is None and timezone is None and enabled is None:
            raise InvalidInputError(f"nothing to set about {job.name}; give cron=, timezone= or enabled=")
        if enabled is not None and not isinstance(enabled, bool):
            raise InvalidInputError(f"enabled must be True or False, not {quote(enabled)}")
        self.jobs.configure(
            job.name,
            cron=cron if cron is None else "" if cron == _DEFAULT else check_cron(cron),
            timezone=timezone if timezone is None else "" if timezone == _DEFAULT else check_timezone(timezone),
            enabled=enabled,
            now=self._now(),
        )
        take_back(self.jobs, self._now(), job.name)
        return next(row for row in self.list() if row["name"] == job.name)

    def run(self, name: str) -> dict[str, Any]:
        """Run a job now, by hand, and give its result; its slots stay as they are, and how it went is recorded."""
        job = self._job(name)
        with self.leadership.held() as lease:
            if lease is None:
                raise LeaseLostError(f"{job.name} was not run: {self.leadership.other()}; try again when it is done")
            started = self._now()
            result, problem = self._attempt(job)
            error = None if problem is None else _words(problem)
            finished = self._now()
            self.jobs.note(job.name, started=started, finished=finished, result=result, error=error, lease=lease)
            self._keep(JobRun(job.name, started, finished, None, result, error))
        if problem is not None:
            raise problem
        return result or {}

    def run_due(self, now: datetime | float | str | None = None) -> Rows:
        """Run every job that has a slot to be run, and say how each went.

        Empty if nothing is due, or if another process (or thread) is at it: the log says which.
        """
        given = None if now is None else moment(now, what="now")
        self.enrol()
        states = self._states(self._now(given))
        if given is None and self.trust is not None:
            states = self._note_time(self.trust, states)
        if not any(map(_is_due, states)):
            return []
        done: Rows = []
        with self.leadership.held() as lease:
            if lease is None:
                _log.info("no job was run here: %s", self.leadership.other())
                return []
            for state in self._states(self._now(given)):  # again: they may have been run meanwhile
                if not _is_due(state):
                    continue
                try:
                    done.append(self._run_slot(state, lease, given))
                except LeaseLostError as lost:
                    _log.warning("%s: %s", state.job.name, lost)
                    break  # whoever has the lease now goes on
        return done

    def _note_time(self, trust: ClockTrust, states: list[_JobState]) -> list[_JobState]:
        """Tell the store the time before a slot is begun. Where it is believed, jobs whose last slot lies ahead of it
        were begun under a clock that was wrong, and go on from now.
        """
        now = self._now()
        ahead = any(one.after > now + SKEW for one in states)
        if not ahead and not any(map(_is_due, states)):
            return states
        is_right = trust.is_right(now)
        return self._states(now) if ahead and is_right and take_back(self.jobs, now) else states

    def serve(self, stop: threading.Event, poll_seconds: float = _MOST_PAUSE) -> None:
        """Run jobs when they are due, here, until ``stop`` is set; looks every ``poll_seconds`` (30 at most)."""
        if isinstance(poll_seconds, bool) or not isinstance(poll_seconds, int | float) or not poll_seconds > 0:
            raise InvalidInputError(f"poll_seconds must be a number above 0, not {quote(poll_seconds)}")
        while not stop.is_set():
            pause = _MOST_PAUSE
            try:
                self.run_due()
                now = self._now()
                ahead = [row.next - now for row in self._states(now) if row.next is not None]
                pause = min([pause, *(micros / SECOND for micros in ahead)])
            except HoldfastError as problem:
                if not problem.retryable:
                    raise
                _log.warning("jobs that are due wait: %s", problem)
            stop.wait(max(_LEAST_PAUSE, min(pause, poll_seconds)))

    def problems(self) -> list[str]:
        """What an operator should know: jobs that failed, that are overdue, or whose slots cannot be told."""
        return [problem for row in self.list() for problem in _problems(row)]

    # --- one slot ------------------------------------------------------------------------------------------------

    def _run_slot(self, state: _JobState, lease: Lease, given: int | None) -> dict[str, Any]:
        name, row, started = state.job.name, state.row, self._now(given)
        slot = row.slot if state.due is None else state.due
        assert slot is not None  # noqa: S101 - it is due
        passed = 0 if state.due is None else self._missed(state, state.due) - 1
        begin = self.jobs.reclaim if state.due is None else self.jobs.claim
        if begin(name, slot, now=started, lease=lease):
            result, problem = self._attempt(state.job)
            error = None if problem is None else _words(problem)
            if problem is not None:
                _log.error("the job %s failed", name, exc_info=problem)
        else:
            result, error = None, "cut short twice before it was finished; not tried again before its next slot"
        finished = self._now(given)
        self.jobs.finish(name, slot, now=finished, result=result, error=error, lease=lease)
        self._keep(JobRun(name, started, finished, slot, result, error))
        level = logging.DEBUG if error is None and _is_idle(result) else logging.INFO
        _log.log(level, "the job %s ran for its slot of %s: %s", name, iso(slot), error or result)
        return {
            "name": name,
            "slot": iso(slot),
            "missed": passed,
            "again": state.due is None,
            "started_at": iso(started),
            "finished_at": iso(finished),
            "result": result,
            "error": error,
        }

    def _keep(self, run: JobRun) -> None:
        """Keep a run that did something, or failed."""
        if run.error is not None or not _is_idle(run.result):
            self.jobs.keep_run(run)

    def runs(self, name: str | None = None) -> Runs:
        """The runs of a job, or of all, that did something or failed, the latest first. A hundred of each are kept."""
        found = self.jobs.runs(None if name is None else self._job(name).name)
        return [
            {
                "name": run.name,
                "slot": _iso(run.slot),
                "started_at": iso(run.started_at),
                "finished_at": iso(run.finished_at),
                "result": run.result,
                "error": run.error,
            }
            for run in found
        ]

    def _attempt(self, job: Job) -> tuple[dict[str, Any] | None, Exception | None]:
        """What the job's runner returned, or what it raised."""
        try:
            with acting_as(SCHEDULE):
                result = dict(self.runners[job]())
            dump_json(result, InvalidInputError, f"the result of {job.name}")
        except LeaseLostError:
            raise
        except Exception as problem:  # noqa: BLE001 - whatever a job raises is its failure, and the others go on
            return None, problem
        return result, None

    # --- states -----------------------------------------------------------------------------------------------

    def _now(self, given: int | None = None) -> int:
        return moment(self.clock(), what="the clock's time") if given is None else given

    def _job(self, name: object) -> Job:
        job = next((job for job in self.runners if job.name == name), None)
        if job is None:
            known = ", ".join(job.name for job in self.runners)
            raise InvalidInputError(f"there is no job {quote(name)}; jobs are: {known}")
        return job

    def _states(self, now: int) -> list[_JobState]:
        known = {row.name: row for row in self.jobs.rows()}
        return [self._state(job, known.get(job.name), now) for job in self.runners]

    def _state(self, job: Job, known: JobRow | None, now: int) -> _JobState:
        row = known or JobRow(job.name, None, None, True, now, None, None, None, None, None)
        state = _JobState(job, row, row.cron or job.cron, row.timezone or self.timezone)
        if not row.enabled:
            return state
        cron, timezone, after = state.cron, state.timezone, state.after
        try:
            due = latest_slot(cron, timezone, after=after, now=now)
            waiting = row.slot if state.cut_short else None if due is None else next_slot(cron, timezone, after)
            return state._replace(due=due, waiting=waiting, next=next_slot(cron, timezone, max(now, after)))
        except InvalidInputError as problem:  # a zone that this machine does not know must not stop the other jobs
            return state._replace(trouble=str(problem))

    def _missed(self, state: _JobState, upto: int) -> int:
        return count_missed(state.cron, state.timezone, after=state.after, upto=upto)

    def next_run(self, name: str) -> int | None:
        """When a job runs next; ``None`` if it does not. Slots that nobody was there for are not counted."""
        known = next((row for row in self.jobs.rows() if row.name == name), None)
        return self._state(self._job(name), known, self._now()).next

    def list(self) -> list[JobResult]:
        """Every job: when it runs, how its last run went, and what is wrong with it."""
        now = self._now()
        held = self.leadership.is_taken()
        return [self._describe(state, now, held=held) for state in self._states(now)]

    def _describe(self, state: _JobState, now: int, *, held: bool) -> JobResult:
        job, row = state.job, state.row
        running = held and state.cut_short
        late = state.waiting is not None and now - state.waiting > GRACE
        return {
            "name": job.name,
            "cron": state.cron,
            "timezone": state.timezone,
            "enabled": row.enabled,
            "sweeps": job.sweeps,
            "meaning": job.meaning,
            "last_slot": _iso(row.slot),
            "last_started": _iso(row.started_at),
            "last_finished": _iso(row.finished_at),
            "last_result": row.result,
            "error": state.trouble or row.error,
            "next_run": _iso(state.next),
            "running": running,
            "overdue": late and not running,
            "failed": state.trouble is not None or (row.finished_at is not None and row.error is not None),
            "missed": 0 if state.due is None else self._missed(state, now),
            "waiting_since": _iso(state.waiting),
            "clock_set_back": row.enabled and state.after - now > GRACE,
        }


def _words(problem: Exception) -> str:
    """What a job raised, as it can be kept."""
    text = str(problem) if isinstance(problem, HoldfastError) else f"{type(problem).__name__}: {problem}"
    return text[:_MOST_ERROR_CHARS].encode(errors="replace").decode().replace("\x00", "")


def _is_due(state: _JobState) -> bool:
    usable = state.row.enabled and state.trouble is None
    return usable and (state.due is not None or state.cut_short)


def _problems(row: Mapping[str, Any]) -> Iterator[str]:
    name = row["name"]
    if row["failed"]:
        at = f" at {row['last_finished']}" if row["last_finished"] else ""
        yield f"the job {name} failed{at}: {row['error']}"
    if row["overdue"]:
        yield (
            f"the job {name} is overdue: its slot of {row['waiting_since']} was not finished; "
            "see that a process serves the schedule, or run what is due from cron"
        )
    if row["clock_set_back"]:
        yield (
            f"the job {name} waits until {row['next_run']}: its last slot lies ahead of the clock, which was set back; "
            "check the clock, then confirm a sweep (holdfast sweep --confirm): jobs go on from then"
        )


def _iso(at: int | None) -> str | None:
    return None if at is None else iso(at)


def _is_idle(result: Mapping[str, Any] | None) -> bool:
    """Whether a job found nothing to do, so that nobody needs to read of it."""
    found = {name: value for name, value in (result or {}).items() if name not in ("tenants", "seconds")}
    counts = found.pop("counts", {})
    return not any(counts.values()) and not any(found.values())
