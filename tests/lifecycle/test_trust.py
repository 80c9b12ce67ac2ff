"""Trust in the clock within one process, on a real store; both clocks of the process are the test's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from api.client import Client
from clocks import FakeClock
from holdfast import ClockError, Holdfast
from holdfast.core.clock import Seen
from holdfast.core.values import DAY, SECOND, moment
from holdfast.edges.rest.app import build_app
from holdfast.health.store import check_lifecycle
from holdfast.lifecycle.clock import ClockWatch
from holdfast.storage.relational.database import Database
from homes import settings_of

START = datetime(2026, 1, 15, 12, tzinfo=UTC)


class Clocks:
    """The wall clock and the steady one of this process."""

    def __init__(self) -> None:
        self.wall, self.steady = START, 0

    def pass_by(self, **duration: float) -> None:
        """Time passes: both go on."""
        self.wall += timedelta(**duration)
        self.steady += int(timedelta(**duration).total_seconds() * SECOND)

    def leap(self, **duration: float) -> None:
        """Somebody sets the wall clock."""
        self.wall += timedelta(**duration)

    @property
    def now(self) -> int:
        return moment(self.wall)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    made = Clocks()
    monkeypatch.setattr("holdfast.store.system_clock", lambda: made.wall)
    monkeypatch.setattr("holdfast.health.store.system_clock", lambda: made.wall)
    monkeypatch.setattr("holdfast.lifecycle.clock.steady_now", lambda: made.steady)
    return made


@pytest.fixture
def opened(home: Path, clocks: Clocks) -> Iterator[Holdfast]:
    """A store that is open under the machine's clock, with something in the recycle bin."""
    with Holdfast.open(home=home) as holdfast:
        memory = holdfast.manager("ann", "guide")
        memory.delete(memory.add("Likes tea")["memory_id"])
        yield holdfast
    assert clocks.wall >= START


def purged(holdfast: Holdfast) -> int:
    return sum(holdfast.recycle.purge().values())


def test_a_clock_that_was_believed_is_believed_however_long_nothing_was_written(
    opened: Holdfast, clocks: Clocks
) -> None:
    clocks.pass_by(days=40)
    assert purged(opened) == 1
    assert opened.trust.seen() == Seen(clocks.now)


def test_a_leap_forward_halts_and_is_believed_when_it_has_gone_on_for_a_day(opened: Holdfast, clocks: Clocks) -> None:
    clocks.leap(days=20)
    for _ in range(3):
        with pytest.raises(ClockError, match="leaped forward by 20 days"):
            purged(opened)
        clocks.pass_by(hours=7)
    opened.manager("ann", "guide").add("Likes cake")
    assert opened.trust.seen() == Seen(moment(START), moment(START + timedelta(days=20))), "no write moves it"
    clocks.pass_by(hours=3)
    assert purged(opened) == 1


def test_a_leap_forward_is_believed_once_another_process_has_made_the_store_see_that_time(
    opened: Holdfast, clocks: Clocks
) -> None:
    clocks.leap(days=2)
    with pytest.raises(ClockError, match="leaped forward"):
        opened.sweep()
    with Holdfast.open(home=opened.settings.home) as another:
        another.sweep()
    opened.sweep()


def test_a_clock_that_runs_fast_is_noticed_however_often_it_is_asked() -> None:
    watch = ClockWatch(now=0, steady=0)

    def look(minute: int) -> None:  # each minute passes for two; what was asked for before was seen
        now = 2 * minute * 60 * SECOND
        watch.check(now, seen=now - 120 * SECOND, steady=minute * 60 * SECOND)

    for minute in range(6):
        look(minute)
    with pytest.raises(ClockError, match="leaped forward"):
        look(6)


@pytest.mark.parametrize("wrong", [20, -20])
def test_a_clock_that_was_wrong_at_the_start_and_is_put_right_goes_on(home: Path, clocks: Clocks, wrong: float) -> None:
    with Holdfast.open(home=home) as holdfast:
        holdfast.manager("ann", "guide").add("Likes tea")
    clocks.leap(days=wrong)
    with Holdfast.open(home=home) as holdfast:
        clocks.pass_by(minutes=1)
        clocks.leap(days=-wrong)
        holdfast.sweep()
        assert holdfast.trust.seen() == Seen(clocks.now)


def test_jobs_that_were_run_under_a_wrong_clock_go_on_when_it_is_right(opened: Holdfast, clocks: Clocks) -> None:
    opened.close()
    clocks.leap(days=20)
    with Holdfast.open(home=opened.settings.home) as ahead:
        assert [one["error"] for one in ahead.schedule.run_due()] == [None] * 7
    clocks.leap(days=-20)
    clocks.pass_by(minutes=1)
    with Holdfast.open(home=opened.settings.home) as right:
        assert [row["clock_set_back"] for row in right.schedule.list()] == [True] * 7
        right.schedule.run_due()
        assert [row["clock_set_back"] for row in right.schedule.list()] == [False] * 7
        clocks.pass_by(minutes=1)
        assert [one["name"] for one in right.schedule.run_due()] == ["minutely"]


@pytest.fixture
def ahead(opened: Holdfast, clocks: Clocks) -> Iterator[Holdfast]:
    """The same store, opened anew 20 days ahead."""
    home = opened.settings.home
    opened.close()
    clocks.leap(days=20)
    with Holdfast.open(home=home) as holdfast:
        yield holdfast


def test_the_doctor_says_what_waits_and_since_when(ahead: Holdfast, clocks: Clocks, database: Database) -> None:
    ahead.sweep()
    clocks.pass_by(hours=2)
    (clock,) = [one for one in check_lifecycle(database, settings_of(ahead.settings.home)) if one.name == "clock"]
    assert clock.status == "warning"
    assert "1 to be deleted or cleared for good: they wait since 2026-02-04T12:00:00" in clock.detail
    assert clock.fix is not None
    assert "holdfast sweep --confirm" in clock.fix
    assert ahead.trust.seen() == Seen(moment(START), moment(START) + 20 * DAY), "it only looks"
    ahead.sweep(confirm=True)
    (clock,) = [one for one in check_lifecycle(database, settings_of(ahead.settings.home)) if one.name == "clock"]
    assert clock.status == "ok"


def test_metrics_say_what_waits_and_for_how_long(ahead: Holdfast, clocks: Clocks) -> None:
    def read() -> dict[str, list[tuple[dict[str, str], float]]]:
        families = text_string_to_metric_families(ahead.metrics().decode())
        return {one.name: [(sample.labels, sample.value) for sample in one.samples] for one in families}

    ahead.sweep()
    clocks.pass_by(hours=2)
    assert read()["holdfast_clock_waiting_seconds"] == [({}, 7_200.0)]
    assert read()["holdfast_clock_waiting_records"] == [({"memory_type": "long_term", "action": "delete"}, 1.0)]
    ahead.sweep(confirm=True)
    assert read()["holdfast_clock_waiting_seconds"] == [({}, 0.0)]
    assert read()["holdfast_clock_waiting_records"] == []


def test_an_explanation_says_what_a_memory_waits_for(ahead: Holdfast) -> None:
    (memory_id,) = ahead.services.records.binned("default", None, limit=5)[0]
    said = ahead.explain(memory_id.id, user_id="ann")
    assert said["next"]["due"]  # type: ignore[index]
    assert "has seen" in said["next"]["waits_for"]  # type: ignore[index]
    assert "It waits: the clock says" in said["summary"]


def test_over_rest_a_plan_says_what_waits_and_one_confirmation_believes_the_time(ahead: Holdfast) -> None:
    with Client(build_app(ahead, keys_required=False)) as client:
        plan = client.post("/v1/sweeps/plan", {}).json()
        assert (plan["counts"]["delete"], plan["waiting"]["records"]) == (0, 1)
        swept = json.loads(client.post("/v1/sweeps", {}).text.splitlines()[-1])["result"]
        assert (swept["counts"]["delete"], swept["waiting"]["records"]) == (0, 1)
        refused = client.post("/v1/recycle/purge")
        assert (refused.status_code, refused.json()["code"]) == (428, "clock")
        assert client.post("/v1/recycle/purge", {"confirm": True}).json() == {"purged": {"long_term": 1}}
        assert client.post("/v1/sweeps/plan", {}).json()["waiting"] is None


def test_an_injected_clock_is_trusted(opened: Holdfast, clocks: Clocks) -> None:
    opened.close()
    clock = FakeClock(clocks.wall + timedelta(days=3_650))
    with Holdfast.open(home=opened.settings.home, clock=clock) as holdfast:
        assert purged(holdfast) == 1
