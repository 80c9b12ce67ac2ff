"""A process that starts under a clock that is ahead: nothing that cannot be undone is done until the time is believed."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from clocks import FakeClock
from holdfast import Holdfast
from holdfast.core.clock import Seen
from holdfast.core.values import moment
from homes import Homes
from lifecycle.machine import Machine

_ADD = "holdfast.manager('ann', 'guide').add('Likes tea')"


class Store:
    """A home, looked at by a clock that is right, and used by processes whose clocks may not be."""

    def __init__(self, home: Path, clock: FakeClock) -> None:
        self.home, self.clock = home, clock
        self.start = clock.now
        self.machine = Machine(home, clock.now)

    def json(self, days: float, *arguments: str) -> Any:
        done = self.machine.cli(days, *arguments, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def look(self, question: Callable[[Holdfast], Any], days: float = 0) -> Any:
        """What an honest process finds, so many days after the start."""
        now = self.start + timedelta(days=days)
        with Holdfast.open(home=self.home, clock=lambda: now) as holdfast:
            return question(holdfast)

    def in_bin(self, days: float = 0) -> list[str]:
        return sorted(str(one["type"]) for one in self.look(lambda holdfast: holdfast.recycle.list(), days))

    def seen(self) -> Seen | None:
        found: Seen | None = self.look(lambda holdfast: holdfast.trust.seen())
        return found

    def at(self, days: float) -> int:
        return moment(self.start + timedelta(days=days))


@pytest.fixture
def store(home: Path, clock: FakeClock) -> Store:
    return Store(home, clock)


BINNED = ["agent", "memory", "memory", "message", "session", "tool"]
#: After a month the session that has the message is idle, and follows it.
AFTER_A_MONTH = ["agent", "memory", "memory", "session", "session", "tool"]


@pytest.fixture
def binned(store: Store) -> Store:
    """A store with something of every sort in the recycle bin, where it is for 15 days."""
    with Holdfast.open(home=store.home, clock=store.clock) as holdfast:
        memory = holdfast.manager("ann", "guide", "trip")
        memory.delete(memory.add("Likes tea")["memory_id"])
        memory.delete(memory.structured.put("trips", {"to": "Rome"}, key="1"))
        message = memory.short_term.add_message("user", "hello")
        memory.short_term.add_message("user", "and more")
        memory.delete(message)
        holdfast.manager("bob", "guide", "talk").short_term.add_message("user", "hello")
        holdfast.sessions.remove("guide", "talk", user_id="bob")
        holdfast.agents.add("other")
        holdfast.agents.remove("other")
        holdfast.tools.add("search")
        holdfast.tools.remove("search")
    assert store.in_bin() == BINNED
    return store


# --- a cold start -----------------------------------------------------------------------------------------------------


def test_a_schedule_that_starts_ahead_deletes_nothing_and_no_job_fails(binned: Store) -> None:
    done = binned.json(20, "schedule", "run", "--once")
    assert [one["error"] for one in done["ran"]] == [None] * len(done["ran"])
    (daily,) = [one["result"] for one in done["ran"] if one["name"] == "daily"]
    assert daily["counts"]["delete"] == 0
    assert daily["waiting"]["records"] == len(BINNED)
    assert "20 days later than the latest time that the store has seen" in daily["waiting"]["reason"]
    assert binned.in_bin() == BINNED


def test_a_sweep_ten_years_ahead_deletes_nothing_and_says_what_waits(binned: Store) -> None:
    report = binned.json(3_650, "sweep")
    assert report["counts"]["delete"] == 0
    assert {line["memory_type"]: line["records"] for line in report["waiting"]["lines"]} == {
        "agent": 1,
        "history": 1,
        "long_term": 1,
        "message": 1,
        "structured": 1,
        "tool": 1,
    }
    assert binned.in_bin() == AFTER_A_MONTH
    assert binned.look(lambda holdfast: holdfast.recycle.restore(user_id="ann"), days=0.1) == 4


def test_the_plan_of_a_clock_that_is_ahead_says_what_waits_and_is_carried_out_as_it_says(binned: Store) -> None:
    plan = binned.json(20, "sweep", "--dry-run", "--at", "2026-02-04")
    assert (plan["counts"]["delete"], plan["waiting"]["records"]) == (0, len(BINNED))
    report = binned.json(20, "sweep", "--digest", plan["digest"])
    assert (report["counts"], report["waiting"]["records"]) == (plan["counts"], len(BINNED))
    confirmed = binned.json(20, "sweep", "--dry-run", "--confirm")
    assert (confirmed["counts"]["delete"], confirmed["waiting"]) == (len(BINNED), None)
    forecast = binned.json(0.1, "sweep", "--dry-run", "--at", "+20d")
    assert (forecast["counts"]["delete"], forecast["waiting"]) == (len(BINNED), None)
    assert binned.in_bin() == BINNED


@pytest.mark.parametrize("together", [True, False])
def test_what_is_written_under_a_clock_that_is_ahead_does_not_make_it_believed(binned: Store, together: bool) -> None:
    if together:
        assert binned.machine.run(20, f"{_ADD}\nprint(holdfast.sweep().counts['delete'])") == "0\n"
    else:
        binned.machine.run(20, _ADD)
        assert binned.json(20.01, "sweep")["counts"]["delete"] == 0
    seen = binned.seen()
    assert seen is not None
    assert seen.at == binned.at(0)
    assert seen.sighted is not None
    assert seen.sighted >= binned.at(20)
    assert binned.in_bin() == BINNED
    assert binned.look(lambda holdfast: holdfast.manager("ann", "guide").retrieve("tea"), days=21), "it may write"


def test_a_clock_within_the_tolerance_is_believed_and_one_beyond_the_setting_is_not(binned: Store) -> None:
    binned.machine.run(2.9, _ADD)
    assert (seen := binned.seen()) is not None
    assert seen.at >= binned.at(2.9)
    path = binned.home / "holdfast.toml"
    text = path.read_text() if path.exists() else ""
    path.write_text(f"{text}clock_tolerance_days = 30\n")
    assert binned.json(20, "sweep")["counts"]["delete"] == len(BINNED)


# --- every path that cannot be undone -----------------------------------------------------------------------------------

_EPISODES = """
memory = holdfast.manager('ann', 'guide')
print(memory.archive_due('episodic'))
"""


def test_the_messages_of_an_episode_are_not_cleared(store: Store) -> None:
    with Holdfast.open(home=store.home, clock=store.clock) as holdfast:
        memory = holdfast.manager("ann", "guide")
        ended = memory.episodic.record_episode("trip", ["went", "came"], messages=["Where to?", "To Rome."])
    report = store.json(100, "sweep")
    assert report["counts"]["archive"] == 0
    assert [(line["memory_type"], line["action"]) for line in report["waiting"]["lines"]] == [("episodic", "archive")]
    assert store.machine.run(100.1, _EPISODES) == "0\n"
    messages = store.look(lambda holdfast: holdfast.manager("ann", "guide").episodic.get_messages(ended))
    assert "To Rome." in json.dumps(messages)
    assert store.json(101.2, "sweep")["counts"]["archive"] == 1, "a day later the time is believed"


def test_what_can_be_undone_goes_on(store: Store) -> None:
    with Holdfast.open(home=store.home, clock=store.clock) as holdfast:
        memory = holdfast.manager("ann", "guide")
        kept = memory.add("Likes tea " * 40)["memory_id"]
        memory.episodic.record_episode("trip", ["went"])
    report = store.json(400, "sweep")
    assert (report["counts"]["archive"], report["counts"]["recycle"], report["waiting"]) == (1, 1, None)
    back = store.look(lambda holdfast: holdfast.manager("ann", "guide").rehydrate(kept), days=401)
    assert back["content"] == "Likes tea " * 40
    assert store.look(lambda holdfast: holdfast.recycle.restore(user_id="ann"), days=401) == 1


def test_no_backup_is_removed(store: Store) -> None:
    with Holdfast.open(home=store.home, clock=store.clock) as holdfast:
        holdfast.manager("ann", "guide").add("Likes tea")
        first = holdfast.backups.create().id
        store.clock.advance(days=1)
        second = holdfast.backups.create().id
        assert holdfast.backups.verify(second, restore=True)
    done = store.json(40, "backup", "rotate")
    assert (done["removed"], done["waiting"]) == ([], [first, second])
    assert "has seen" in done["waiting_for"]
    ran = store.json(40.1, "schedule", "run", "backup")["result"]
    assert (ran["removed"], ran["waiting"]) == ([], [first, second])
    assert store.json(40.2, "backup", "rotate", "--confirm")["removed"] == [first]


def test_the_audit_chain_is_not_cut(store: Store) -> None:
    with Holdfast.open(home=store.home, clock=store.clock) as holdfast:
        memory = holdfast.manager("ann", "guide")
        memory.delete(memory.add("Likes tea")["memory_id"])
        holdfast.audit.seal()
        before = len(holdfast.audit.tail(100))
    ran = store.json(4_000, "schedule", "run", "daily")["result"]
    assert ran["audit_entries_cut"] == 0
    assert "has seen" in ran["audit_cut_waits"]
    assert len(store.look(lambda holdfast: holdfast.audit.tail(100))) >= before
    asked = """
try:
    holdfast.audit.cut(holdfast.services.clock())
except Exception as problem:
    print(type(problem).__name__)
"""
    assert store.machine.run(4_000.1, asked) == "ClockError\n"
    assert store.look(lambda holdfast: bool(holdfast.audit.verify()))
    assert store.json(4_001.2, "schedule", "run", "daily")["result"]["audit_entries_cut"] >= before


def test_the_recycle_bin_is_not_emptied_by_hand_unless_that_is_confirmed(binned: Store) -> None:
    refused = binned.machine.cli(20, "recycle", "purge")
    assert refused.returncode != 0
    assert f"{len(BINNED)} were not" in " ".join(refused.stderr.split())
    assert binned.in_bin() == BINNED
    gone = binned.json(20, "recycle", "purge", "--confirm")["purged"]
    assert sum(gone.values()) == len(BINNED)
    assert binned.in_bin() == []


# --- belief -----------------------------------------------------------------------------------------------------------


def test_one_confirmation_is_enough_for_everything_after_it(binned: Store) -> None:
    binned.json(20, "sweep")
    report = binned.json(20.1, "sweep", "--confirm")
    assert (report["counts"]["delete"], report["waiting"]) == (len(BINNED), None)
    binned.machine.run(20.2, "memory = holdfast.manager('ann', 'guide')\nmemory.delete(memory.add('x')['memory_id'])")
    plan = binned.json(20.3, "sweep", "--dry-run")
    assert plan["waiting"] is None
    seen = binned.seen()
    assert seen is not None
    assert seen.sighted is None
    assert seen.at >= binned.at(20.1)
    entries = binned.look(lambda holdfast: holdfast.audit.tail(50), days=21)
    assert [entry["action"] for entry in entries].count("clock.accepted") == 1


def test_a_machine_that_was_off_for_a_month_goes_on_unattended_after_a_day(binned: Store) -> None:
    for days in (30, 30.5, 30.99):
        binned.json(days, "schedule", "run", "--once")
        assert binned.in_bin() == AFTER_A_MONTH
    ran = {one["name"]: one["result"] for one in binned.json(31.7, "schedule", "run", "--once")["ran"]}
    assert (ran["daily"]["counts"]["delete"], ran["daily"]["waiting"]) == (len(BINNED), None)
    assert binned.in_bin(32) == ["session"], "the idle one has its 15 days"


def test_a_clock_that_is_put_right_within_a_day_has_destroyed_nothing_and_jobs_go_on(binned: Store) -> None:
    binned.json(20, "schedule", "run", "--once")
    binned.json(20.9, "sweep")
    assert binned.json(0.2, "schedule", "run", "--once")["ran"] == [], "their slots up to now have been run"
    seen = binned.seen()
    assert seen is not None
    assert seen.sighted is None, "the time is right again: what was sighted is forgotten"
    assert binned.json(0.21, "schedule", "list")["problems"] == []
    binned.json(20.5, "sweep")
    binned.json(1, "schedule", "run", "--once")
    binned.json(21.9, "sweep")
    assert binned.in_bin() == BINNED, "and no later mistake bears it out"
    assert binned.look(lambda holdfast: holdfast.recycle.purge(), days=14.9) == {}
    assert sum(binned.look(lambda holdfast: holdfast.recycle.purge(), days=16).values()) == len(BINNED), (
        "in its own time"
    )


def test_a_store_that_is_rarely_opened_lags_by_one_sighting(binned: Store) -> None:
    assert binned.json(30, "sweep")["counts"]["delete"] == 0
    with_more = "memory = holdfast.manager('ann', 'guide')\nmemory.delete(memory.add('later')['memory_id'])"
    binned.machine.run(30.1, with_more)
    report = binned.json(60, "sweep")
    assert (report["counts"]["delete"], report["waiting"]["records"]) == (len(BINNED), 2), "a memory and a session"
    assert binned.json(90, "sweep")["counts"]["delete"] == 2


def test_writes_alone_bear_a_time_out(binned: Store) -> None:
    for days in (30, 30.5, 31.1):
        binned.machine.run(days, _ADD)
    assert binned.json(31.2, "sweep")["counts"]["delete"] == len(BINNED)


def test_a_new_store_believes_the_time_of_its_first_write(store: Store) -> None:
    assert store.machine.run(3_650, f"{_ADD}\nprint(holdfast.sweep().waiting)") == "None\n"
    assert (seen := store.seen()) is not None
    assert seen.at >= store.at(3_650)
    assert seen.sighted is None


def test_a_backup_that_is_restored_under_a_clock_that_is_ahead_is_not_swept_empty(binned: Store, homes: Homes) -> None:
    with Holdfast.open(home=binned.home, clock=binned.clock) as holdfast:
        holdfast.backups.create()
    other = homes.new("other")
    other.mkdir(exist_ok=True)
    with (other / "holdfast.toml").open("a") as file:
        file.write(f'backup_url = "file://{binned.home}/backups"\nstate_url = "file://{binned.home}"\n')
        file.write(f'master_key = "file:{binned.home}/keys/master.key"\n')
    restored = Store(other, binned.clock)
    restored.json(20, "backup", "restore", "latest")
    report = restored.json(20.1, "sweep")
    assert (report["counts"]["delete"], report["waiting"]["records"]) == (0, len(BINNED))
    assert restored.in_bin() == BINNED


def test_a_time_that_is_told_is_the_time_of_the_latest_write_to_the_hour(store: Store) -> None:
    with Holdfast.open(home=store.home, clock=store.clock) as holdfast:
        memory = holdfast.manager("ann", "guide")
        memory.add("one")
        first = store.clock.now
        store.clock.advance(minutes=59)
        memory.add("two")
        assert holdfast.trust.seen() == Seen(moment(first)), "a write tells the time once an hour, and costs no more"
        store.clock.advance(minutes=2)
        memory.add("three")
        assert holdfast.trust.seen() == Seen(moment(store.clock.now))
