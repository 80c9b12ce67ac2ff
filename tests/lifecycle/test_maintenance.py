"""Maintenance: jobs look after every tenant of a store, give space back, and say how late things are."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import raw
from clocks import FakeClock
from holdfast import ClockError, Holdfast
from holdfast.core.values import DAY, SECOND
from holdfast.lifecycle.clock import ClockWatch
from holdfast.lifecycle.sweeping.due import find_overdue
from homes import on_sqlite


def test_jobs_look_after_every_tenant_of_the_store(home: Path, clock: FakeClock) -> None:
    with Holdfast.open(home=home, clock=clock, tenant="a") as a, Holdfast.open(home=home, clock=clock, tenant="b") as b:
        for engine in (a, b):
            engine.manager("user", "agent").episodic.record_episode("Book a flight", ["booked"])
        clock.advance(days=91)
        (run,) = [run for run in a.schedule.run_due() if run["name"] == "episodes"]
        assert run["result"]["tenants"] == 2
        assert run["result"]["counts"]["archive"] == 2
        assert b.sweep(dry_run=True).counts["archive"] == 0


def test_a_sweep_of_one_tenant_leaves_the_others_alone(home: Path, clock: FakeClock) -> None:
    with Holdfast.open(home=home, clock=clock, tenant="a") as a, Holdfast.open(home=home, clock=clock, tenant="b") as b:
        for engine in (a, b):
            engine.manager("user", "agent").episodic.record_episode("Book a flight", ["booked"])
        clock.advance(days=91)
        assert a.sweep().counts["archive"] == 1
        assert b.sweep(dry_run=True).counts["archive"] == 1


@on_sqlite
def test_freed_space_goes_back_to_the_disk(holdfast: Holdfast, clock: FakeClock) -> None:
    memory = holdfast.manager("user", "agent")
    ids = memory.add_many([f"{n} " * 500 for n in range(500)])["memory_ids"]
    assert len(ids) == 500
    holdfast.manager("user", "agent").delete_user_memories("user")
    clock.advance(days=15)
    database = raw.sqlite(holdfast)
    before = sum(path.stat().st_size for path in database.path.parent.glob("holdfast.db*"))
    assert holdfast.sweep().counts["delete"] == 500
    with database.write() as tx:
        tx.connection.execute("SELECT 1")
    holdfast.close()
    assert database.path.stat().st_size < before / 2


def overdue(holdfast: Holdfast) -> dict[str, int]:
    return find_overdue(holdfast.services.dues, holdfast.services.now())


def test_how_late_things_are_is_told(holdfast: Holdfast, clock: FakeClock) -> None:
    holdfast.manager("user", "agent").episodic.record_episode("Book a flight", ["booked"])
    assert overdue(holdfast) == {}
    clock.advance(days=90, hours=6)
    assert overdue(holdfast) == {"episodic": 6 * 3_600 * SECOND}
    families = {family.name: family for family in text_string_to_metric_families(holdfast.metrics().decode())}
    (late,) = families["holdfast_overdue_seconds"].samples
    assert (late.labels, late.value) == ({"memory_type": "episodic"}, 21_600)
    holdfast.sweep()
    assert overdue(holdfast) == {}


def test_a_job_that_failed_is_visible(holdfast: Holdfast, clock: FakeClock, home: Path) -> None:
    holdfast.manager("user", "agent").add("Enjoys skiing")
    clock.advance(days=372)
    (home / "archive").write_text("a file where the folder should be")
    failed = {run["name"]: run["error"] for run in holdfast.schedule.run_due() if run["error"]}
    assert set(failed) == {"archive"}, "what needs cold storage; the others go on"
    assert any("archive" in problem for problem in holdfast.schedule.problems())
    families = {family.name: family for family in text_string_to_metric_families(holdfast.metrics().decode())}
    assert {s.labels["job_name"]: s.value for s in families["holdfast_job_failed"].samples}["archive"] == 1
    assert holdfast.manager("user", "agent").retrieve("skiing", include_archived=True), "and nothing is lost"


@pytest.mark.parametrize("leap", [timedelta(days=400), timedelta(days=-1)])
def test_a_clock_that_leaps_halts_the_sweep_until_it_is_confirmed(leap: timedelta) -> None:
    start = 1_768_478_400_000_000
    watch = ClockWatch(now=start, steady=0)
    watch.check(start + 3 * DAY, seen=None, steady=3 * DAY)
    with pytest.raises(ClockError, match="leaped"):
        watch.check(start + 3 * DAY + int(leap.total_seconds()) * SECOND, seen=None, steady=3 * DAY)


def test_a_clock_behind_what_the_store_has_seen_halts_the_sweep() -> None:
    start = 1_768_478_400_000_000
    watch = ClockWatch(now=start, steady=0)
    watch.check(start, seen=start + 60 * SECOND, steady=0)
    with pytest.raises(ClockError, match="but the store has seen"):
        watch.check(start, seen=start + DAY, steady=0)


def test_the_machines_own_clock_is_watched_and_an_injected_one_is_trusted(home: Path, clock: FakeClock) -> None:
    with Holdfast.open(home=home, clock=clock) as holdfast:
        clock.advance(days=36_500)
        holdfast.sweep()
    with Holdfast.open(home=home) as holdfast:
        with pytest.raises(ClockError, match="but the store has seen"):
            holdfast.sweep()
        holdfast.sweep(confirm=True)
