"""The schedule: jobs run by slot, once each, whatever stops in the middle and however many processes look after them."""

from __future__ import annotations

import logging
import multiprocessing
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import raw
from clocks import FakeClock
from holdfast.core.errors import ClosedError, InvalidInputError, LeaseLostError
from holdfast.core.values import SECOND, moment
from holdfast.lifecycle.schedule.leadership import LEASE_TTL, SWEEPER, Leadership
from holdfast.lifecycle.schedule.schedule import JOBS, Job, Runner, Schedule, take_back
from holdfast.ports.coordination import Lease
from holdfast.results import JobResult
from holdfast.storage.relational.coordination import SqlJobs, SqlLeases, check_lease, new_holder
from holdfast.storage.relational.database import Database
from holdfast.storage.stores import open_database
from homes import database_of, on_sqlite, settings_of

TTL = 15 * SECOND
NIGHTLY = (Job("nightly", "30 2 * * *", "everything", "A job of these tests."),)
SPAWN = multiprocessing.get_context("spawn")

#: The jobs that sweep; those for backups are tried where backups are.
SWEEPS = tuple(job for job in JOBS if not job.name.startswith("backup"))


def made(
    jobs: SqlJobs,
    leases: SqlLeases,
    runners: Mapping[Job, Runner],
    *,
    wall: Callable[[], int],
    holder: str,
    ttl: int = LEASE_TTL,
    **how: Any,
) -> Schedule:
    """A schedule with a leadership of its own."""
    return Schedule(jobs, Leadership(leases, wall=wall, holder=holder, ttl=ttl), runners, **how)


class CrashError(BaseException):
    """What no job can catch: the process is gone."""


class Bench:
    """A store, clocks that stand still, and runners that note that they ran."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.clock = FakeClock()
        self.wall = 1_000_000 * SECOND
        self.ran: list[str] = []
        self.deeds: dict[str, Callable[[], dict[str, Any]]] = {}
        self.opened: list[Database] = []
        self.database = self.open()
        self.jobs, self.leases = SqlJobs(self.database), SqlLeases(self.database)
        self.schedule = self.another(self.database)

    def open(self, **settings: Any) -> Database:
        self.opened.append(open_database(replace(settings_of(self.home), **settings)))
        return self.opened[-1]

    def another(self, database: Database | None = None, **how: Any) -> Schedule:
        """The schedule as another engine on the same store has it."""
        database = database or self.open()
        table = how.pop("table", SWEEPS)
        how = {"clock": self.clock, "wall": lambda: self.wall, "holder": new_holder(), **how}
        runners = {job: self._runner(job.name) for job in table}
        return made(SqlJobs(database), SqlLeases(database), runners, **how)

    def _runner(self, name: str) -> Runner:
        def run() -> dict[str, Any]:
            self.ran.append(name)
            return self.deeds.get(name, lambda: {"moved": 3})()

        return run

    def known(self, **how: Any) -> Schedule:
        """A schedule whose jobs the store has known since now."""
        schedule = self.another(self.database, **how)
        schedule.enrol()
        return schedule

    def row(self, name: str, schedule: Schedule | None = None) -> JobResult:
        return next(row for row in (schedule or self.schedule).list() if row["name"] == name)

    def take_back(self) -> list[str]:
        return take_back(self.jobs, moment(self.clock()))

    def at(self, text: str) -> None:
        self.clock.now = datetime.fromisoformat(text).astimezone(UTC)


@pytest.fixture
def bench(home: Path) -> Iterator[Bench]:
    made = Bench(home)
    yield made
    for database in made.opened:
        database.close()


def crash() -> dict[str, Any]:
    raise CrashError


def real_time() -> int:
    return time.time_ns() // 1_000


def fail() -> dict[str, Any]:
    raise OSError("the bucket is gone")


# --- slots -----------------------------------------------------------------------------------------------------------


def test_the_default_jobs_run_at_their_times_and_each_slot_once(bench: Bench) -> None:
    schedule = bench.known()
    ran = []
    for _ in range(7 * 24):
        bench.clock.advance(hours=1)
        ran += [(done["name"], done["slot"][11:16]) for done in schedule.run_due()]
        assert schedule.run_due() == []

    counts = Counter(ran)
    assert counts["episodes", "02:00"] == 7
    assert counts["daily", "03:00"] == 7
    assert counts["archive", "03:00"] == 1
    assert sum(count for (name, _), count in counts.items() if name == "minutely") == 7 * 24
    assert Counter(bench.ran) == Counter(name for name, _ in ran)
    assert schedule.problems() == []


def test_archive_runs_on_sundays(bench: Bench) -> None:
    assert bench.row("archive")["next_run"] == "2026-01-18T03:00:00+00:00"
    assert datetime(2026, 1, 18, tzinfo=UTC).strftime("%A") == "Sunday"


def test_slots_before_the_store_knew_the_job_are_not_made_up_for(bench: Bench) -> None:
    assert bench.schedule.run_due() == []
    bench.clock.advance(seconds=59)
    assert bench.schedule.run_due() == []
    bench.clock.advance(seconds=1)
    assert [done["name"] for done in bench.schedule.run_due()] == ["minutely"]


def test_weeks_of_missed_slots_are_made_up_for_once(bench: Bench) -> None:
    schedule = bench.known()
    bench.clock.advance(weeks=5)
    assert {row["name"]: row["missed"] for row in schedule.list()} == {
        "minutely": 1_000,
        "episodes": 35,
        "archive": 5,
        "daily": 35,
    }

    done = {row["name"]: row for row in schedule.run_due()}

    assert sorted(bench.ran) == ["archive", "daily", "episodes", "minutely"]
    assert (done["daily"]["slot"], done["daily"]["missed"]) == ("2026-02-19T03:00:00+00:00", 34)
    assert (done["archive"]["slot"], done["archive"]["missed"]) == ("2026-02-15T03:00:00+00:00", 4)
    assert schedule.run_due() == []
    assert {row["missed"] for row in schedule.list()} == {0}


@on_sqlite
@pytest.mark.parametrize("start", ["2026-03-27T12:00+01:00", "2026-10-23T12:00+02:00"])
def test_a_nightly_job_runs_once_a_day_when_clocks_are_changed(bench: Bench, start: str) -> None:
    bench.at(start)
    schedule = bench.known(table=NIGHTLY, timezone="Europe/Berlin")
    slots = []
    for _ in range(4 * 24 * 12):
        bench.clock.advance(minutes=5)
        slots += [moment(done["slot"]) for done in schedule.run_due()]

    assert len(slots) == len(bench.ran) == 4
    assert all(23 * 3_600 * SECOND <= later - earlier <= 25 * 3_600 * SECOND for earlier, later in pairwise(slots))


@on_sqlite
@pytest.mark.parametrize("start", ["2026-03-29T01:30+01:00", "2026-10-25T02:30+02:00"])
def test_a_minutely_job_goes_on_when_clocks_are_changed(bench: Bench, start: str) -> None:
    bench.at(start)
    schedule = bench.known(timezone="Europe/Berlin")
    for _ in range(90):
        bench.clock.advance(minutes=1)
        schedule.run_due()
    assert bench.ran.count("minutely") == 90


def test_a_clock_that_goes_back_runs_nothing_twice(bench: Bench) -> None:
    schedule = bench.known()
    bench.at("2026-01-16T03:00:30+00:00")
    schedule.run_due()
    assert sorted(bench.ran) == ["daily", "episodes", "minutely"]

    for text in ("2026-01-15T23:00+00:00", "2026-01-16T02:30+00:00", "2026-01-16T03:00:10+00:00"):
        bench.at(text)
        assert schedule.run_due() == []
    assert len(bench.ran) == 3

    bench.at("2026-01-16T03:01+00:00")
    assert [done["name"] for done in schedule.run_due()] == ["minutely"]


def test_a_job_that_waits_for_a_clock_that_was_set_back_is_told_of(bench: Bench) -> None:
    schedule = bench.known()
    bench.at("2030-06-01T12:00+00:00")
    schedule.run_due()
    bench.at("2026-01-15T12:00+00:00")

    assert schedule.run_due() == []
    problems = schedule.problems()
    assert len(problems) == len(SWEEPS)
    assert "the job daily waits until 2030-06-02T03:00:00+00:00" in "\n".join(problems)
    assert "holdfast sweep --confirm" in problems[0]
    assert schedule.run("daily") == {"moved": 3}, "by hand it can be run meanwhile"


@pytest.mark.parametrize("change", [{"cron": "0 3 * * *"}, {"cron": "default"}, {"enabled": True}])
def test_setting_a_job_lets_it_go_on_from_a_clock_that_was_set_back(bench: Bench, change: dict[str, Any]) -> None:
    schedule = bench.known()
    bench.at("2036-06-01T12:00+00:00")
    schedule.run_due()
    bench.at("2026-01-15T12:00+00:00")
    row = schedule.set("daily", **change)
    assert (row["next_run"], row["clock_set_back"]) == ("2026-01-16T03:00:00+00:00", False)
    assert bench.row("episodes")["clock_set_back"], "the others wait until they are set, or a sweep is confirmed"
    bench.ran.clear()
    bench.at("2026-01-16T03:00:10+00:00")
    assert [done["name"] for done in schedule.run_due()] == ["daily"]
    assert (schedule.run_due(), bench.ran) == ([], ["daily"])


def test_jobs_that_are_taken_back_run_no_slot_again_that_was_run_in_its_time(bench: Bench) -> None:
    schedule = bench.known()
    bench.at("2026-01-16T03:00:10+00:00")
    schedule.run_due()
    bench.at("2036-06-01T12:00+00:00")
    schedule.run_due()
    bench.at("2026-01-16T12:00+00:00")
    bench.ran.clear()
    assert bench.take_back() == sorted(job.name for job in SWEEPS)
    assert schedule.run_due() == [], "today's slots are done"
    assert all(row["last_finished"] == "2026-01-16T12:00:00+00:00" for row in schedule.list())
    bench.at("2026-01-17T03:00:10+00:00")
    assert sorted(done["name"] for done in schedule.run_due()) == ["daily", "episodes", "minutely"]
    assert (bench.take_back(), schedule.problems()) == ([], [])


def test_jobs_that_the_store_got_to_know_under_a_clock_that_was_ahead_can_be_taken_back(bench: Bench) -> None:
    bench.at("2036-06-01T12:00+00:00")
    schedule = bench.known()
    bench.at("2026-01-15T12:00+00:00")
    assert len(schedule.problems()) == len(SWEEPS)
    bench.take_back()
    bench.at("2026-01-16T03:00:10+00:00")
    assert sorted(done["name"] for done in schedule.run_due()) == ["daily", "episodes", "minutely"]


def test_a_slot_that_was_run_by_a_clock_a_little_ahead_is_not_run_again(bench: Bench) -> None:
    schedule = bench.known()
    bench.at("2026-01-16T03:00:01+00:00")
    schedule.run_due()
    bench.ran.clear()
    bench.at("2026-01-16T02:59:30+00:00")
    assert bench.take_back() == []
    schedule.set("daily", enabled=True)
    bench.at("2026-01-16T03:00:02+00:00")
    assert (schedule.run_due(), bench.ran) == ([], [])


def test_a_slot_that_was_cut_short_under_a_clock_that_was_ahead_runs_once_more(bench: Bench) -> None:
    schedule = bench.known()
    bench.at("2036-06-01T12:00+00:00")
    bench.deeds["minutely"] = crash
    with pytest.raises(CrashError):
        schedule.run_due()
    bench.at("2026-01-15T12:00:30+00:00")
    del bench.deeds["minutely"]
    bench.ran.clear()
    assert bench.take_back() == ["minutely"]
    assert [(done["name"], done["again"]) for done in schedule.run_due()] == [("minutely", True)]
    bench.at("2026-01-15T12:01+00:00")
    assert [(done["name"], done["again"]) for done in schedule.run_due()] == [("minutely", False)]


# --- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_job_that_fails_is_recorded_and_the_others_go_on(bench: Bench) -> None:
    schedule = bench.known()
    bench.deeds["episodes"] = fail
    bench.clock.advance(days=1)

    done = {row["name"]: row for row in schedule.run_due()}

    assert set(done) == {"minutely", "episodes", "daily"}
    assert done["episodes"]["error"] == "OSError: the bucket is gone"
    assert done["daily"]["error"] is None
    row = bench.row("episodes")
    assert (row["failed"], row["error"], row["last_result"]) == (True, "OSError: the bucket is gone", None)
    assert schedule.problems() == ["the job episodes failed at 2026-01-16T12:00:00+00:00: OSError: the bucket is gone"]
    assert schedule.run_due() == [], "a slot that failed is not tried again"

    del bench.deeds["episodes"]
    bench.clock.advance(days=1)
    schedule.run_due()
    assert schedule.problems() == []
    assert bench.row("episodes")["last_result"] == {"moved": 3}


@pytest.mark.parametrize(
    "deed", [lambda: {"at": datetime.now(UTC)}, lambda: None, lambda: [1], lambda: {"x": float("nan")}]
)
def test_a_result_that_cannot_be_kept_is_a_failure(bench: Bench, deed: Callable[[], dict[str, Any]]) -> None:
    schedule = bench.known()
    bench.deeds["minutely"] = deed
    bench.clock.advance(minutes=1)
    (done,) = schedule.run_due()
    assert done["error"]
    assert bench.row("minutely")["failed"]


def test_an_error_that_is_hardly_text_is_recorded(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, "holdfast.schedule")  # the text itself cannot be told to another process

    def fail_oddly() -> dict[str, Any]:
        raise RuntimeError("\ud800\x00" + "x" * 9_000)

    schedule = bench.known()
    bench.deeds["minutely"] = fail_oddly
    bench.clock.advance(minutes=1)
    schedule.run_due()
    error = str(bench.row("minutely")["error"])
    assert error.startswith("RuntimeError: ?xxx")
    assert len(error) <= 2_000


def test_a_slot_that_was_cut_short_runs_once_more(bench: Bench) -> None:
    schedule = bench.known()
    bench.deeds["minutely"] = crash
    bench.clock.advance(minutes=1)
    with pytest.raises(CrashError):
        schedule.run_due()
    row = bench.row("minutely")
    assert (row["last_slot"], row["last_finished"]) == ("2026-01-15T12:01:00+00:00", None)

    del bench.deeds["minutely"]
    other = bench.another()
    (done,) = other.run_due()
    assert (done["slot"], done["again"], done["result"]) == ("2026-01-15T12:01:00+00:00", True, {"moved": 3})
    assert (other.run_due(), schedule.run_due()) == ([], [])
    assert bench.ran == ["minutely", "minutely"]
    assert bench.row("minutely")["error"] is None


def test_a_slot_that_is_cut_short_again_and_again_is_given_up_and_told_of(bench: Bench) -> None:
    schedule = bench.known()
    bench.deeds["minutely"] = crash
    bench.clock.advance(minutes=1)
    for _ in range(2):
        with pytest.raises(CrashError):
            schedule.run_due()

    (done,) = schedule.run_due()

    assert "cut short twice" in done["error"]
    assert bench.ran == ["minutely", "minutely"]
    assert "cut short twice" in schedule.problems()[0]
    assert schedule.run_due() == []
    del bench.deeds["minutely"]
    bench.clock.advance(minutes=1)
    assert [done["error"] for done in schedule.run_due()] == [None], "the next slot is a new one"


def test_a_crash_is_made_up_for_by_the_next_slot_if_that_has_come(bench: Bench) -> None:
    schedule = bench.known()
    bench.deeds["minutely"] = crash
    bench.clock.advance(minutes=1)
    with pytest.raises(CrashError):
        schedule.run_due()
    del bench.deeds["minutely"]
    bench.clock.advance(minutes=1)
    assert [(done["slot"], done["again"]) for done in schedule.run_due()] == [("2026-01-15T12:02:00+00:00", False)]
    assert schedule.run_due() == []


def test_a_job_is_overdue_when_its_slot_has_waited_for_over_an_hour(bench: Bench) -> None:
    schedule = bench.known()
    schedule.set("minutely", enabled=False)
    bench.at("2026-01-16T03:00+00:00")
    assert not any(row["overdue"] for row in schedule.list())
    bench.at("2026-01-16T03:00:01+00:00")
    assert [row["name"] for row in schedule.list() if row["overdue"]] == ["episodes"]
    (problem,) = schedule.problems()
    assert "the job episodes is overdue: its slot of 2026-01-16T02:00:00+00:00 was not finished" in problem
    schedule.run_due()
    assert schedule.problems() == []


def test_a_slot_that_was_cut_short_and_left_is_overdue_and_a_running_one_is_not(bench: Bench) -> None:
    seen: list[JobResult] = []

    def run_long() -> dict[str, Any]:
        bench.clock.advance(hours=3)
        seen.append(bench.row("daily"))
        raise CrashError

    schedule = bench.known()
    schedule.set("minutely", enabled=False)
    schedule.set("episodes", enabled=False)
    bench.deeds["daily"] = run_long
    bench.at("2026-01-16T03:00+00:00")
    with pytest.raises(CrashError):
        schedule.run_due()
    assert (seen[0]["running"], seen[0]["overdue"]) == (True, False)
    row = bench.row("daily")
    assert (row["running"], row["overdue"]) == (False, True)


def test_a_zone_that_this_machine_does_not_know_stops_its_job_only(bench: Bench) -> None:
    schedule = bench.known()
    bench.jobs.configure("daily", cron=None, timezone="Mars/Base", enabled=None, now=0)
    bench.clock.advance(days=1)
    assert [done["name"] for done in schedule.run_due()] == ["minutely", "episodes"]
    row = bench.row("daily")
    assert (row["failed"], row["next_run"]) == (True, None)
    assert "'Mars/Base' is not known" in schedule.problems()[0]


# --- by hand, and settings -------------------------------------------------------------------------------------------


def test_a_job_run_by_hand_uses_no_slot(bench: Bench) -> None:
    schedule = bench.known()
    bench.clock.advance(days=1)
    assert schedule.run("daily") == {"moved": 3}
    assert bench.row("daily")["last_slot"] is None
    assert "daily" in [done["name"] for done in schedule.run_due()]


def test_a_job_run_by_hand_raises_what_went_wrong(bench: Bench) -> None:
    bench.deeds["daily"] = fail
    with pytest.raises(OSError, match="the bucket is gone"):
        bench.schedule.run("daily")
    assert bench.schedule.lease is None
    assert bench.leases.current(SWEEPER, now=bench.wall) is None


def test_how_a_job_run_by_hand_went_is_recorded(bench: Bench) -> None:
    schedule = bench.known()
    bench.deeds["daily"] = fail
    bench.clock.advance(days=1)
    schedule.run_due()
    slot = bench.row("daily")["last_slot"]
    assert "the job daily failed" in schedule.problems()[0]

    del bench.deeds["daily"]
    bench.clock.advance(minutes=5)
    schedule.run("daily")
    row = bench.row("daily")
    assert schedule.problems() == [], "it was put right"
    assert (row["last_result"], row["last_finished"]) == ({"moved": 3}, bench.clock.now.isoformat())
    assert (row["last_slot"], row["missed"]) == (slot, 0)

    bench.deeds["daily"] = fail
    with pytest.raises(OSError, match="the bucket is gone"):
        schedule.run("daily")
    assert bench.row("daily")["last_slot"] == slot
    assert "the job daily failed" in schedule.problems()[0]


def test_a_slot_that_was_cut_short_still_runs_again_after_the_job_was_run_by_hand(bench: Bench) -> None:
    schedule = bench.known()
    bench.deeds["minutely"] = crash
    bench.clock.advance(minutes=1)
    with pytest.raises(CrashError):
        schedule.run_due()
    bench.deeds["minutely"] = fail
    with pytest.raises(OSError, match="the bucket is gone"):
        schedule.run("minutely")
    del bench.deeds["minutely"]
    assert [(done["name"], done["again"]) for done in schedule.run_due()] == [("minutely", True)]


def test_what_is_set_holds_for_every_engine_and_goes_back_to_the_default(bench: Bench) -> None:
    schedule = bench.known()
    row = schedule.set("daily", cron="15  4 * * *", timezone="Asia/Tokyo")
    assert (row["cron"], row["timezone"], row["next_run"]) == ("15 4 * * *", "Asia/Tokyo", "2026-01-15T19:15:00+00:00")
    assert bench.row("daily", bench.another()) == row

    assert schedule.set("daily", enabled=False)["cron"] == "15 4 * * *", "what is not given stays"
    row = schedule.set("daily", cron="default", timezone="default", enabled=True)
    assert (row["cron"], row["timezone"], row["enabled"]) == ("0 3 * * *", "UTC", True)


def test_a_job_that_is_off_does_not_run_and_has_missed_nothing_when_it_is_on_again(bench: Bench) -> None:
    schedule = bench.known()
    schedule.set("daily", enabled=False)
    bench.clock.advance(days=30)
    assert "daily" not in [done["name"] for done in schedule.run_due()]
    row = bench.row("daily")
    assert (row["next_run"], row["missed"], row["overdue"]) == (None, 0, False)

    schedule.set("daily", enabled=True)
    assert schedule.run_due() == []
    bench.clock.advance(days=1)
    assert "daily" in [done["name"] for done in schedule.run_due()]


def test_new_times_count_from_when_they_were_set(bench: Bench) -> None:
    schedule = bench.known()
    bench.clock.advance(days=1)
    schedule.run_due()
    schedule.set("daily", cron="0 11 * * *")
    assert schedule.run_due() == [], "11:00 is past, and was no slot of this job when it came"
    bench.clock.advance(days=1)
    schedule.set("daily", enabled=True)
    assert "daily" in [done["name"] for done in schedule.run_due()], "what was true already changes nothing"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"name": "nightly", "enabled": True},
            r"there is no job 'nightly'; jobs are: minutely, episodes, archive, daily",
        ),
        ({"name": None, "enabled": True}, "there is no job None"),
        ({"name": "daily"}, "nothing to set about daily; give cron=, timezone= or enabled="),
        ({"name": "daily", "cron": "at night"}, "cron 'at night' does not have five fields"),
        ({"name": "daily", "timezone": "Mars/Base"}, "timezone 'Mars/Base' is not known"),
        ({"name": "daily", "enabled": "no"}, "enabled must be True or False, not 'no'"),
    ],
)
def test_what_cannot_be_set_is_refused_and_nothing_changes(
    bench: Bench, arguments: dict[str, Any], message: str
) -> None:
    before = bench.jobs.rows()
    with pytest.raises(InvalidInputError, match=message):
        bench.schedule.set(**arguments)
    assert bench.jobs.rows() == before


def test_a_schedule_needs_a_zone_that_is_known(bench: Bench) -> None:
    with pytest.raises(InvalidInputError, match="timezone 'Mars/Base' is not known"):
        bench.another(bench.database, timezone="Mars/Base")


def test_listing_writes_nothing(bench: Bench) -> None:
    assert [row["name"] for row in bench.schedule.list()] == [job.name for job in SWEEPS]
    assert bench.schedule.problems() == []
    assert bench.jobs.rows() == []


# --- serving ---------------------------------------------------------------------------------------------------------


def test_serving_runs_what_comes_due_until_it_is_told_to_stop(bench: Bench) -> None:
    stop = threading.Event()
    schedule = bench.known()

    def pass_on() -> dict[str, Any]:
        bench.clock.advance(minutes=1)  # the next slot has come when this one is done
        if bench.ran.count("minutely") == 5:
            stop.set()
        return {}

    bench.deeds["minutely"] = pass_on
    bench.clock.advance(minutes=1)
    schedule.serve(stop, poll_seconds=0.01)
    assert bench.ran == ["minutely"] * 5


def test_serving_sleeps_until_the_next_slot_and_half_a_minute_at_most(bench: Bench) -> None:
    class Nap(threading.Event):
        """Sleeps in no time: the clock goes on instead."""

        naps: list[float]

        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            self.naps.append(timeout)
            bench.clock.advance(seconds=timeout)
            if len(self.naps) == 6:
                self.set()
            return self.is_set()

    stop = Nap()
    stop.naps = []
    schedule = bench.known()
    bench.clock.advance(seconds=10)
    schedule.serve(stop)
    assert stop.naps == [30.0, 20.0, 30.0, 30.0, 30.0, 30.0]
    assert bench.ran == ["minutely", "minutely"]


def test_serving_outlasts_a_store_that_is_busy(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    class Nap(threading.Event):
        """The writer that kept the store busy is done when the schedule has gone to sleep."""

        def wait(self, timeout: float | None = None) -> bool:
            if not napped:
                busy.__exit__(None, None, None)
            else:
                self.set()
            napped.append(timeout)
            return self.is_set()

    bench.known()
    bench.clock.advance(minutes=1)
    hasty = bench.open(busy_seconds=0.5)
    napped: list[float | None] = []
    busy = bench.open().alone("leases")
    busy.__enter__()
    bench.another(hasty).serve(Nap())
    assert bench.ran == ["minutely"]
    assert "jobs that are due wait: " in caplog.text


def test_serving_ends_when_the_store_was_closed(bench: Bench) -> None:
    database = bench.open()
    schedule = bench.another(database)
    database.close()
    with pytest.raises(ClosedError):
        schedule.serve(threading.Event())


@pytest.mark.parametrize("poll", [0, -1, True, "5", None, float("nan")])
def test_a_pause_that_is_none_is_refused(bench: Bench, poll: Any) -> None:
    with pytest.raises(InvalidInputError, match="poll_seconds must be a number above 0"):
        bench.schedule.serve(threading.Event(), poll_seconds=poll)


# --- the lease -------------------------------------------------------------------------------------------------------


def test_one_holder_has_the_lease_and_keeps_its_epoch(bench: Bench) -> None:
    lease = bench.leases.acquire("l", "elsewhere:1:a", now=0, ttl=TTL)
    assert lease == Lease("l", "elsewhere:1:a", 1, TTL)
    assert bench.leases.acquire("l", "elsewhere:2:b", now=TTL - 1, ttl=TTL) is None
    assert bench.leases.acquire("l", "elsewhere:1:a", now=5, ttl=TTL) == lease._replace(expires_at=TTL + 5)
    assert bench.leases.renew(lease, now=10, ttl=TTL)
    assert bench.leases.current("l", now=TTL + 9) == lease._replace(expires_at=TTL + 10)
    assert bench.leases.current("l", now=TTL + 10) is None


def test_a_lease_that_expired_changes_hands_and_the_old_holder_finds_out_in_its_batch(bench: Bench) -> None:
    old = bench.leases.acquire("l", "elsewhere:1:a", now=0, ttl=TTL)
    assert old is not None
    with bench.database.write() as tx:
        check_lease(tx, old)
    new = bench.leases.acquire("l", "elsewhere:2:b", now=TTL, ttl=TTL)
    assert new == Lease("l", "elsewhere:2:b", 2, 2 * TTL)

    assert not bench.leases.renew(old, now=TTL, ttl=TTL)
    bench.leases.release(old)
    assert bench.leases.current("l", now=TTL) == new, "what it no longer has it cannot give back"

    def batch() -> None:
        with bench.database.write() as tx:
            raw.run(tx, "INSERT INTO jobs (name, since) VALUES ('written under an old lease', 0)")
            check_lease(tx, old)

    with pytest.raises(LeaseLostError, match="of elsewhere:1:a was taken over by elsewhere:2:b") as lost:
        batch()
    assert (lost.value.code, lost.value.retryable) == ("lease_lost", True)
    assert bench.jobs.rows() == [], "the batch was undone"


def test_a_lease_that_was_given_back_can_be_had_at_once_under_a_new_epoch(bench: Bench) -> None:
    first = bench.leases.acquire("l", "elsewhere:1:a", now=0, ttl=TTL)
    assert first is not None
    bench.leases.release(first)
    with pytest.raises(LeaseLostError, match="was released"), bench.database.write() as tx:
        check_lease(tx, first)
    again = bench.leases.acquire("l", "elsewhere:1:a", now=1, ttl=TTL)
    assert again is not None
    assert again.epoch == 2


@pytest.mark.skipif(os.name == "nt", reason="there, a process cannot be asked whether it lives")
def test_the_lease_of_a_dead_process_of_this_host_can_be_had_at_once(bench: Bench) -> None:
    child = SPAWN.Process(target=int)
    child.start()
    child.join()
    dead = f"{socket.gethostname()}:{child.pid}:x"
    assert bench.leases.acquire("dead", dead, now=0, ttl=TTL)
    assert bench.leases.acquire("alive", new_holder(), now=0, ttl=TTL)
    assert bench.leases.acquire("away", f"elsewhere:{child.pid}:x", now=0, ttl=TTL)
    assert bench.leases.acquire("odd", f"{socket.gethostname()}:{10**30}:x", now=0, ttl=TTL)

    taken = bench.leases.acquire("dead", new_holder(), now=1, ttl=TTL)

    assert taken is not None
    assert taken.epoch == 2
    for name in ("alive", "away", "odd"):
        assert bench.leases.acquire(name, new_holder(), now=1, ttl=TTL) is None


def test_a_lease_from_before_the_clock_was_set_back_does_not_last_for_ever(bench: Bench) -> None:
    future = 10 * 365 * 86_400 * SECOND
    assert bench.leases.acquire("l", "elsewhere:1:a", now=future, ttl=TTL)
    assert bench.leases.acquire("l", "elsewhere:2:b", now=0, ttl=TTL) is not None
    assert bench.leases.acquire("near", "elsewhere:1:a", now=60 * SECOND, ttl=TTL)
    assert bench.leases.acquire("near", "elsewhere:2:b", now=0, ttl=TTL) is None, "clocks may differ by a minute"


def test_jobs_run_under_a_lease_that_their_batches_can_check(bench: Bench) -> None:
    seen: list[Lease | None] = []

    def look() -> dict[str, Any]:
        seen.append(schedule.lease)
        return {}

    schedule = bench.known()
    bench.deeds["minutely"] = look
    bench.clock.advance(minutes=1)
    schedule.run_due()
    (lease,) = seen
    assert lease is not None
    assert lease.holder.startswith(f"{socket.gethostname()}:{os.getpid()}:")
    assert schedule.lease is None
    assert bench.leases.current(SWEEPER, now=bench.wall) is None


def test_while_one_engine_runs_jobs_another_runs_none_and_says_so(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    other = bench.another()
    answers: list[Any] = []

    def look() -> dict[str, Any]:
        answers.append(other.run_due())
        with pytest.raises(LeaseLostError, match=r"daily was not run: .* is running jobs; try again"):
            other.run("daily")
        return {}

    schedule = bench.known()
    bench.deeds["minutely"] = look
    bench.clock.advance(minutes=1)
    with caplog.at_level(logging.INFO, "holdfast.schedule"):
        schedule.run_due()
    assert answers == [[]]
    assert bench.ran == ["minutely"]
    assert f"no job was run here: {socket.gethostname()}:{os.getpid()}:" in caplog.text


def test_while_one_thread_runs_jobs_another_of_the_same_engine_runs_none(bench: Bench) -> None:
    schedule = bench.known()
    answers: list[Any] = []

    def look() -> dict[str, Any]:
        thread = threading.Thread(target=lambda: answers.append(schedule.run_due()))
        thread.start()
        thread.join()
        return {}

    bench.deeds["minutely"] = look
    bench.clock.advance(minutes=1)
    schedule.run_due()
    assert answers == [[]]
    assert bench.ran == ["minutely"]


def test_whoever_lost_the_lease_records_nothing_and_the_new_holder_runs_the_slot_again(bench: Bench) -> None:
    schedule = bench.known()
    other = bench.another()

    def lose() -> dict[str, Any]:
        bench.wall += 2 * TTL  # this process was asleep
        del bench.deeds["minutely"]
        assert [done["again"] for done in other.run_due()] == [True]
        return {"moved": -1}

    bench.deeds["minutely"] = lose
    bench.clock.advance(minutes=1)
    assert schedule.run_due() == []
    row = bench.row("minutely")
    assert (row["last_result"], row["error"]) == ({"moved": 3}, None)
    assert bench.ran == ["minutely", "minutely"]


def test_a_batch_that_finds_the_lease_lost_ends_the_run_and_is_no_failure_of_the_job(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    schedule = bench.known()

    def lose() -> dict[str, Any]:
        lease = schedule.lease
        assert lease is not None
        bench.wall += 2 * TTL
        assert bench.leases.acquire(SWEEPER, "elsewhere:2:b", now=bench.wall, ttl=TTL)
        with bench.database.write() as tx:
            check_lease(tx, lease)
        return {}

    bench.deeds["minutely"] = lose
    bench.clock.advance(days=1)
    assert schedule.run_due() == []
    assert bench.ran == ["minutely"], "the jobs after it are left to the new holder"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "was taken over by elsewhere:2:b" in caplog.text


def test_a_long_job_keeps_its_lease(bench: Bench) -> None:
    quick = SECOND // 50
    schedule = bench.known(wall=real_time, ttl=quick)

    def run_long() -> dict[str, Any]:
        lease = schedule.lease
        assert lease is not None
        held: Lease | None = lease
        while held is not None and held.expires_at < lease.expires_at + 5 * quick:
            held = bench.leases.current(SWEEPER, now=lease.expires_at - 1)
        return {"epoch": 0 if held is None else held.epoch - lease.epoch}

    bench.deeds["minutely"] = run_long
    bench.clock.advance(minutes=1)
    (done,) = schedule.run_due()
    assert (done["result"], done["error"]) == ({"epoch": 0}, None)


# --- claims ----------------------------------------------------------------------------------------------------------


def test_a_slot_is_claimed_once_and_never_an_earlier_one(bench: Bench) -> None:
    assert bench.jobs.claim("daily", 100, now=100)
    assert not bench.jobs.claim("daily", 100, now=101)
    assert not bench.jobs.claim("daily", 99, now=101)
    assert bench.jobs.finish("daily", 100, now=102, result={"moved": 1}, error=None)
    assert not bench.jobs.finish("daily", 100, now=103, result=None, error="late")
    assert not bench.jobs.claim("daily", 100, now=104)
    assert bench.jobs.claim("daily", 101, now=105)
    assert not bench.jobs.finish("daily", 100, now=106, result=None, error="late")


def test_a_finished_slot_cannot_be_claimed_again_and_a_cut_one_only_under_the_lease(bench: Bench) -> None:
    old = bench.leases.acquire(SWEEPER, "elsewhere:1:a", now=0, ttl=TTL)
    new = bench.leases.acquire(SWEEPER, "elsewhere:2:b", now=TTL, ttl=TTL)
    assert old is not None
    assert new is not None
    assert bench.jobs.claim("daily", 100, now=100, lease=new)
    for attempt in (bench.jobs.claim, bench.jobs.reclaim):
        with pytest.raises(LeaseLostError):
            attempt("daily", 100, now=101, lease=old)
    with pytest.raises(LeaseLostError):
        bench.jobs.finish("daily", 100, now=101, result=None, error=None, lease=old)
    assert not bench.jobs.reclaim("daily", 99, now=102, lease=new)
    assert bench.jobs.reclaim("daily", 100, now=102, lease=new)
    assert bench.jobs.finish("daily", 100, now=103, result=None, error=None, lease=new)
    assert not bench.jobs.reclaim("daily", 100, now=104, lease=new)


def test_of_many_threads_on_two_databases_one_gets_each_slot(bench: Bench) -> None:
    stores = [bench.jobs, SqlJobs(bench.open())]
    won: list[int] = []

    def compete(store: SqlJobs) -> None:
        won.extend(slot for slot in range(1, 21) if store.claim("daily", slot, now=slot))

    threads = [threading.Thread(target=compete, args=(stores[n % 2],)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == len(set(won))
    assert max(won) == 20


# --- processes -------------------------------------------------------------------------------------------------------

START = datetime(2026, 1, 15, 12, tzinfo=UTC)
MINUTES = 25


def work(home: Path, start: Any, answers: Any) -> None:
    """A process that looks after the schedule for some minutes of its clock."""
    database = database_of(home)
    clock = FakeClock(START)
    alone = home.with_name("at work")

    def run() -> dict[str, Any]:
        alone.touch(exist_ok=False)  # two at a time would fail here
        time.sleep(0.002)
        alone.unlink()
        return {"pid": os.getpid()}

    schedule = made(
        SqlJobs(database),
        SqlLeases(database),
        dict.fromkeys(JOBS, run),
        clock=clock,
        wall=real_time,
        holder=new_holder(),
    )
    start.wait()
    done = []
    for _ in range(MINUTES):
        clock.advance(minutes=1)
        for _ in range(4):
            done += schedule.run_due()
    database.close()
    answers.put(done)


def test_processes_that_compete_run_each_slot_once_and_one_at_a_time(bench: Bench) -> None:
    bench.clock.now = START
    bench.known()
    start, answers = SPAWN.Barrier(3), SPAWN.Queue()
    workers = [SPAWN.Process(target=work, args=(bench.home, start, answers), daemon=True) for _ in range(3)]
    for worker in workers:
        worker.start()
    done = [row for _ in workers for row in answers.get(timeout=120)]
    for worker in workers:
        worker.join(timeout=120)
        assert worker.exitcode == 0

    slots = [(row["name"], row["slot"]) for row in done]
    assert len(slots) == len(set(slots))
    assert [row["error"] for row in done] == [None] * len(done)
    bench.clock.advance(minutes=MINUTES)
    bench.schedule.run_due()
    assert bench.row("minutely")["last_slot"] == (START + timedelta(minutes=MINUTES)).isoformat()


def die(home: Path) -> None:
    """A process that is gone in the middle of a job."""
    database = database_of(home)
    runners: dict[Job, Runner] = {job: lambda: os._exit(7) for job in JOBS}
    clock = FakeClock(START + timedelta(minutes=1))
    jobs, leases = SqlJobs(database), SqlLeases(database)
    made(jobs, leases, runners, clock=clock, wall=real_time, holder=new_holder()).run_due()


@pytest.mark.skipif(os.name == "nt", reason="there, the lease has to expire first")
def test_when_a_process_dies_in_the_middle_another_runs_its_slot_at_once(bench: Bench) -> None:
    bench.clock.now = START
    schedule = bench.known(wall=real_time, ttl=3_600 * SECOND)
    child = SPAWN.Process(target=die, args=(bench.home,))
    child.start()
    child.join(timeout=120)
    assert child.exitcode == 7
    assert bench.row("minutely")["last_finished"] is None

    bench.clock.advance(minutes=1)
    (done,) = schedule.run_due()
    assert (done["name"], done["again"], done["error"]) == ("minutely", True, None)
    assert bench.ran == ["minutely"]
