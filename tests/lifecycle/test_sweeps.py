"""Sweeps: what a dry run says is what is done; what is unusual asks first; one sweeps at a time."""

from __future__ import annotations

import sys
import time
from datetime import timedelta

import pytest

import raw
from clocks import FakeClock
from holdfast import Holdfast, MemoryManager
from holdfast.core.errors import ClockError, InvalidInputError, LeaseLostError, PlanChangedError
from holdfast.core.records import State
from holdfast.core.values import DAY, SECOND
from holdfast.lifecycle import archive, bulk_delete, recycle_bin
from holdfast.lifecycle.clock import ClockWatch
from holdfast.lifecycle.schedule.schedule import JOBS
from holdfast.lifecycle.sweeping import batches, due, sweep
from holdfast.lifecycle.sweeping.due import is_too_much
from holdfast.lifecycle.sweeping.plan import Plan, Report
from holdfast.storage.relational import rules
from holdfast.storage.relational.coordination import SqlLeases
from lifecycle.soundness import check_sound

KINDS = ("long_term", "persona", "episodic", "entity", "structured")


def planned(holdfast: Holdfast, *, confirm: bool = False) -> Plan:
    plan = holdfast.sweep(dry_run=True, confirm=confirm)
    assert isinstance(plan, Plan)
    return plan


def swept(holdfast: Holdfast, **options: object) -> Report:
    report = holdfast.sweep(**options)  # type: ignore[arg-type]
    assert isinstance(report, Report)
    return report


def fill(holdfast: Holdfast, clock: FakeClock, users: int = 3) -> None:
    """Something of every kind that is due something, of several users, and something that is not."""
    for n in range(users):
        memory = holdfast.manager(f"user_{n}", f"agent_{n % 2}", "trip")
        for place in range(4):
            memory.add(f"fact {place} of {n}", "long_term", {"place": place})
            memory.structured.put("trips", {"place": place}, key=str(place))
            ended = clock.now - timedelta(days=40 * place)
            memory.episodic.record_episode(f"trip {place}", ["went"], timestamp=ended, metadata={"place": place})
        memory.add("speaks like a friend", "persona")
        memory.entity.add("Ann", "person")
        memory.short_term.add_message("user", "hello")
        memory.delete(memory.add("binned", "long_term")["memory_id"])
    clock.advance(days=300)
    for n in range(users):
        holdfast.manager(f"user_{n}", "agent_0").add("young", "long_term")


# --- beside others ----------------------------------------------------------------------------------------------------


def test_threads_take_shorter_turns_while_a_sweep_goes_on(
    holdfast: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(holdfast, clock, users=1)
    before, turns = sys.getswitchinterval(), list[float]()
    flush = batches.Batches.flush

    def watch(one: batches.Batches) -> None:
        turns.append(sys.getswitchinterval())
        with sweep.TURNS:  # another sweep, which ends before this one
            flush(one)
        turns.append(sys.getswitchinterval())

    monkeypatch.setattr(batches.Batches, "flush", watch)
    swept(holdfast)
    assert max(turns) < 0.001 <= before == sys.getswitchinterval()


# --- dry runs ----------------------------------------------------------------------------------------------------------


def test_a_sweep_does_exactly_what_its_dry_run_said(holdfast: Holdfast, clock: FakeClock) -> None:
    fill(holdfast, clock)
    plan = planned(holdfast)
    before = raw.rows(holdfast, "SELECT id, state, version FROM records ORDER BY key")
    assert planned(holdfast) == plan, "a dry run changes nothing"
    decided = {decision.id: decision for decision in plan.decisions}
    assert len(decided) == plan.total == len(plan.decisions)
    report = swept(holdfast, digest=plan.digest)
    assert report.lines == plan.lines
    assert report.counts == plan.counts
    assert (report.held, report.stale, report.set_aside) == (0, 0, ())
    after = {
        row[0]: row[1]
        for row in raw.rows(holdfast, "SELECT id, state FROM records UNION SELECT id, state FROM sessions")
    }
    for decision in decided.values():
        target = State.DELETED if decision.target is State.DELETING else decision.target
        assert after.get(decision.id, State.DELETED) == target
    for record_id, state, _ in before:
        if record_id not in decided:
            assert after[record_id] == state, "what was not planned did not move"
    check_sound(holdfast)


@pytest.mark.parametrize("hold", [{"user_id": "user_1"}, {"agent_id": "agent_1"}, {"tag": "place=2"}])
def test_with_a_hold_a_sweep_does_exactly_what_its_dry_run_said(
    holdfast: Holdfast, clock: FakeClock, hold: dict[str, str]
) -> None:
    fill(holdfast, clock)
    free = planned(holdfast)
    holdfast.holds.add(**hold, reason="a lawsuit", author="legal")
    plan = planned(holdfast)
    assert plan.held > 0
    assert plan.total + plan.held == free.total
    report = swept(holdfast, digest=plan.digest)
    assert report.lines == plan.lines
    assert report.held == plan.held
    check_sound(holdfast)
    again = planned(holdfast)
    assert (again.lines, again.held) == ((), plan.held)


def went(holdfast: Holdfast, **options: object) -> dict[tuple[str, str], int]:
    """What a sweep did, which is what its dry run had said."""
    plan = planned(holdfast)
    report = swept(holdfast, **options)
    assert report.lines == plan.lines
    return {(line.memory_type, line.action): line.records for line in report.lines}


@pytest.mark.parametrize("by_digest", [False, True])
def test_messages_agents_and_tools_that_go_are_in_the_plan_and_in_the_report(
    holdfast: Holdfast, clock: FakeClock, by_digest: bool
) -> None:
    memory = holdfast.manager("ann", "guide", "trip")
    memory.short_term.add_message("user", "hello")
    said = memory.short_term.add_message("user", "my number is 4711")
    memory.delete(said)
    for name in ("one", "two"):
        holdfast.tools.add(name)
    holdfast.agents.add("clerk")
    holdfast.tools.remove("one")
    holdfast.agents.remove("clerk")
    assert planned(holdfast).lines == ()
    clock.advance(days=16)
    plan = planned(holdfast)
    assert plan.counts["delete"] == plan.total == 3
    options = {"digest": plan.digest} if by_digest else {}
    gone = went(holdfast, **options)
    assert gone == {("agent", "delete"): 1, ("message", "delete"): 1, ("tool", "delete"): 1}
    assert plan.bytes == len("my number is 4711")
    assert [tool["tool_id"] for tool in holdfast.tools.list(include_removed=True)] == ["two"]
    assert holdfast.agents.list(include_removed=True) == []
    assert planned(holdfast).lines == ()


def test_a_plan_is_stale_once_another_message_or_tool_was_held(holdfast: Holdfast, clock: FakeClock) -> None:
    holdfast.tools.add("one")
    holdfast.tools.remove("one")
    clock.advance(days=16)
    plan = planned(holdfast)
    holdfast.holds.add(memory_id="one", reason="a lawsuit", author="legal")
    with pytest.raises(PlanChangedError):
        swept(holdfast, digest=plan.digest)
    assert planned(holdfast).lines == ()
    assert went(holdfast) == {}


def test_what_was_due_after_a_plan_is_not_taken_with_it(holdfast: Holdfast, clock: FakeClock) -> None:
    for name in ("one", "two"):
        holdfast.tools.add(name)
        holdfast.tools.remove(name)
        clock.advance(days=1)
    clock.advance(days=13, hours=1)
    plan = planned(holdfast)
    clock.advance(days=2)
    assert swept(holdfast, digest=plan.digest).lines == plan.lines
    assert plan.counts["delete"] == 1
    assert [tool["tool_id"] for tool in holdfast.tools.list(include_removed=True)] == ["two"]
    assert holdfast.recycle.purge() == {"tool": 1}


def test_what_follows_an_agent_once_a_hold_is_released_is_in_the_plan_and_in_the_report(
    holdfast: Holdfast, clock: FakeClock
) -> None:
    memory = holdfast.manager("ann", "guide", "trip")
    kept = memory.add("speaks like a friend", "persona")["memory_id"]
    memory.add("is brief", "persona")
    memory.short_term.add_message("user", "hello")
    hold = holdfast.holds.add(memory_id=kept, reason="a lawsuit", author="legal")
    holdfast.agents.remove("guide")
    clock.advance(days=16)
    assert went(holdfast) == {("persona", "delete"): 1, ("history", "delete"): 1}, "the agent waits for what is held"
    assert went(holdfast) == {}
    holdfast.holds.release(hold.id, author="legal")
    assert went(holdfast) == {("persona", "recycle"): 1}
    assert went(holdfast) == {}, "it is in the bin, and the agent with it"
    clock.advance(days=15)
    assert went(holdfast) == {("persona", "delete"): 1, ("agent", "delete"): 1}


def test_what_a_rule_takes_is_not_counted_again_for_following_its_agent(holdfast: Holdfast, clock: FakeClock) -> None:
    memory = holdfast.manager("ann", "guide")
    memory.episodic.record_episode("Book a flight", ["booked"])
    hold = holdfast.holds.add(user_id="ann", reason="a lawsuit", author="legal")
    holdfast.agents.remove("guide")
    clock.advance(days=366)
    assert went(holdfast) == {}
    holdfast.holds.release(hold.id, author="legal")
    assert went(holdfast) == {("episodic", "recycle"): 1, ("agent", "delete"): 1}
    clock.advance(days=16)
    assert went(holdfast) == {("episodic", "delete"): 1}


def test_an_agent_stays_in_the_plan_as_in_the_bin_while_a_hold_keeps_what_went_with_it(
    holdfast: Holdfast, clock: FakeClock
) -> None:
    memory = holdfast.manager("ann", "guide", "trip")
    memory_id = memory.add("speaks like a friend", "persona")["memory_id"]
    memory.short_term.add_message("user", "hello")
    holdfast.agents.remove("guide")
    hold = holdfast.holds.add(memory_id=memory_id, reason="a lawsuit", author="legal")
    clock.advance(days=16)
    assert went(holdfast) == {("history", "delete"): 1}
    holdfast.holds.release(hold.id, author="legal")
    assert went(holdfast) == {("persona", "delete"): 1, ("agent", "delete"): 1}


def test_a_message_that_goes_with_its_whole_conversation_is_not_counted_by_itself(
    holdfast: Holdfast, clock: FakeClock
) -> None:
    memory = holdfast.manager("ann", "guide", "trip")
    memory.short_term.add_message("user", "hello")
    said = memory.short_term.add_message("user", "my number is 4711")
    memory.delete(said)
    holdfast.agents.remove("guide")
    clock.advance(days=16)
    assert went(holdfast) == {("history", "delete"): 1, ("agent", "delete"): 1}
    check_sound(holdfast)


def test_sweeping_twice_plans_nothing(holdfast: Holdfast, clock: FakeClock) -> None:
    fill(holdfast, clock)
    assert swept(holdfast).total > 0
    assert planned(holdfast).lines == ()
    assert swept(holdfast).lines == ()


def test_a_plan_whose_records_changed_is_refused_and_nothing_is_done(holdfast: Holdfast, clock: FakeClock) -> None:
    fill(holdfast, clock)
    plan = planned(holdfast)
    memory = holdfast.manager("user_0", "agent_0")
    memory.delete(memory.list_memories("structured", include_archived=True)[0]["memory_id"])
    before = raw.rows(holdfast, "SELECT id, state, version FROM records ORDER BY key")
    with pytest.raises(PlanChangedError, match="nothing was changed"):
        swept(holdfast, digest=plan.digest)
    assert raw.rows(holdfast, "SELECT id, state, version FROM records ORDER BY key") == before


@pytest.mark.parametrize("change", ["update", "rule", "hold", "message"])
def test_any_change_that_bears_on_a_plan_makes_it_stale(holdfast: Holdfast, clock: FakeClock, change: str) -> None:
    memory = holdfast.manager("ann", "guide", "trip")
    memory_id = memory.add("fact", "long_term")["memory_id"]
    memory.short_term.add_message("user", "hello")
    holdfast.policies.set("long_term", archive_after_days="never", delete_after_days=400, confirm=True)
    clock.advance(days=400)
    holdfast.policies.set("history", delete_after_days=500)
    clock.advance(days=-1)
    extra = memory.add("another", "long_term")["memory_id"]
    plan_at = clock.now + timedelta(days=1)
    clock.now = plan_at
    plan = planned(holdfast)
    assert plan.counts["recycle"] == 1
    clock.now = plan_at - timedelta(days=1)
    if change == "update":
        memory.update(memory_id, "changed")
    elif change == "rule":
        holdfast.policies.set("long_term", archive_after_days="never", delete_after_days=399, confirm=True)
    elif change == "hold":
        holdfast.holds.add(memory_id=memory_id, reason="a lawsuit", author="legal")
    else:
        holdfast.policies.set("history", delete_after_days=300, confirm=True)
    clock.now = plan_at
    with pytest.raises(PlanChangedError):
        swept(holdfast, digest=plan.digest)
    assert memory.get(extra)


def test_what_came_after_a_plan_does_not_make_it_stale(holdfast: Holdfast, clock: FakeClock) -> None:
    fill(holdfast, clock)
    plan = planned(holdfast)
    clock.advance(days=1)
    holdfast.manager("user_0", "agent_0").add("brand new", "long_term")
    assert swept(holdfast, digest=plan.digest).lines == plan.lines


def test_a_forecast_can_be_looked_at_and_not_carried_out(holdfast: Holdfast, clock: FakeClock) -> None:
    fill(holdfast, clock)
    ahead = clock.now + timedelta(days=100)
    forecast = holdfast.sweep(dry_run=True, at=ahead)
    assert isinstance(forecast, Plan)
    assert forecast.total > planned(holdfast).total
    with pytest.raises(InvalidInputError, match="lies ahead"):
        swept(holdfast, digest=forecast.digest)
    with pytest.raises(InvalidInputError, match="lies ahead"):
        swept(holdfast, at=ahead)
    clock.now = ahead
    assert planned(holdfast).lines == forecast.lines, "it comes as it was forecast"


@pytest.mark.parametrize("digest", ["", "x", "abc-def", "-" * 40, "zz-" + "0" * 32])
def test_what_is_no_digest_is_refused(holdfast: Holdfast, digest: str) -> None:
    with pytest.raises(InvalidInputError, match="not the digest of a plan"):
        swept(holdfast, digest=digest)


@pytest.mark.parametrize("digest", ["junk", "", "a plan's own"])
def test_a_dry_run_takes_no_digest(holdfast: Holdfast, digest: str) -> None:
    given = planned(holdfast).digest if digest == "a plan's own" else digest
    with pytest.raises(InvalidInputError, match="leave dry_run out, or make a new plan without a digest"):
        holdfast.sweep(dry_run=True, digest=given)


def test_a_digest_of_nobody_is_refused(holdfast: Holdfast, clock: FakeClock) -> None:
    plan = planned(holdfast)
    with pytest.raises(PlanChangedError):
        swept(holdfast, digest=plan.digest[:-1] + ("0" if plan.digest[-1] != "0" else "1"))


# --- distrust ----------------------------------------------------------------------------------------------------------


NOW = 1_800_000_000 * SECOND


@pytest.mark.parametrize("leap", [301 * SECOND, DAY, 365 * DAY, -301 * SECOND, -DAY])
def test_a_clock_that_leaps_halts(leap: int) -> None:
    watch = ClockWatch(now=NOW, steady=1_000)
    passed = 3_600 * SECOND
    with pytest.raises(ClockError, match="leaped forward" if leap > 0 else "leaped back"):
        watch.check(NOW + passed + leap, seen=None, steady=1_000 + passed)


@pytest.mark.parametrize("off", [0, 300 * SECOND, -300 * SECOND])
def test_a_clock_that_is_corrected_a_little_does_not(off: int) -> None:
    watch = ClockWatch(now=NOW, steady=0)
    watch.check(NOW + 365 * DAY + off, seen=NOW, steady=365 * DAY)


def test_a_clock_behind_what_a_sweep_has_seen_halts() -> None:
    watch = ClockWatch(now=NOW, steady=0)
    watch.check(NOW, seen=NOW + 300 * SECOND, steady=0)
    with pytest.raises(ClockError, match="the store has seen"):
        watch.check(NOW, seen=NOW + 301 * SECOND, steady=0)


def test_a_store_that_has_seen_the_future_is_not_swept_by_the_machines_clock(
    holdfast: Holdfast, clock: FakeClock
) -> None:
    clock.now = clock.now.replace(year=2190)
    holdfast.sweep()
    holdfast.close()
    with Holdfast.open(home=holdfast.settings.home) as honest:
        with pytest.raises(ClockError, match="nothing was done"):
            honest.sweep()
        assert isinstance(honest.sweep(confirm=True), Report)
        assert isinstance(honest.sweep(), Report), "the clock was confirmed, and is trusted from there on"


def test_once_the_time_is_confirmed_sweeps_and_jobs_go_on(holdfast: Holdfast, clock: FakeClock) -> None:
    holdfast.manager("ann", "guide").add("Likes tea")
    clock.now = clock.now.replace(year=2190)
    assert holdfast.schedule.run_due()
    holdfast.sweep()
    holdfast.close()
    with Holdfast.open(home=holdfast.settings.home) as honest:
        with pytest.raises(ClockError, match="check the clock"):
            honest.schedule.run("daily")
        with pytest.raises(ClockError, match="check the clock"):
            honest.recycle.purge()
        honest.sweep(confirm=True)
        assert isinstance(honest.sweep(), Report)
        assert honest.schedule.run("daily")["tenants"] == 1
        assert honest.recycle.purge() == {}
        assert honest.schedule.problems() == []
        assert not any(str(row["next_run"]) > "2189" for row in honest.schedule.list())
        (accepted,) = [entry for entry in honest.audit.tail(50) if entry["action"] == "clock.accepted"]
        assert accepted["detail"]["seen"].startswith("2190")
        assert accepted["detail"]["jobs"] == sorted(job.name for job in JOBS)
        honest.sweep(confirm=True)
        assert len([entry for entry in honest.audit.tail(50) if entry["action"] == "clock.accepted"]) == 1
        assert honest.audit.verify()


def test_a_confirmed_sweep_leaves_what_a_clock_a_little_ahead_has_seen(holdfast: Holdfast, clock: FakeClock) -> None:
    holdfast.sweep()
    seen = holdfast.trust.seen()
    clock.advance(seconds=-60)
    holdfast.sweep(confirm=True)
    assert holdfast.trust.seen() == seen
    assert "clock.accepted" not in [entry["action"] for entry in holdfast.audit.tail()]


def test_a_clock_whose_leap_was_accepted_is_trusted_until_it_leaps_again() -> None:
    watch = ClockWatch(now=NOW + 365 * DAY, steady=0)
    with pytest.raises(ClockError, match="leaped back"):
        watch.check(NOW, seen=None, steady=0)
    assert watch.accept(NOW, steady=0) == -365 * DAY
    watch.check(NOW + DAY, seen=NOW, steady=DAY)
    with pytest.raises(ClockError, match="leaped forward"):
        watch.check(NOW + 365 * DAY, seen=NOW, steady=DAY)


def test_a_clock_that_was_set_back_is_trusted_once_that_was_confirmed_in_another_process() -> None:
    ahead = NOW + 365 * DAY
    watch = ClockWatch(now=ahead, steady=0)
    watch.check(ahead, seen=ahead, steady=0)
    for _ in range(2):
        with pytest.raises(ClockError, match="leaped back"):
            watch.check(NOW, seen=ahead, steady=0)
    watch.check(NOW + 60 * SECOND, seen=NOW, steady=60 * SECOND)
    watch.check(NOW + DAY, seen=NOW, steady=DAY)


def test_a_clock_that_leaped_forward_is_not_trusted_for_what_another_process_confirmed() -> None:
    watch = ClockWatch(now=NOW, steady=0)
    watch.check(NOW, seen=NOW + 60 * SECOND, steady=0)
    with pytest.raises(ClockError, match="leaped forward"):
        watch.check(NOW + 365 * DAY, seen=NOW, steady=0)


@pytest.mark.parametrize(
    ("due", "of", "too_much"),
    [(1_000, 1_000, False), (1_001, 1_001, True), (1_001, 5_004, True), (1_001, 5_005, False), (2_000, 10_000, False)],
)
def test_more_than_1000_and_more_than_a_fifth_is_too_much(due: int, of: int, too_much: bool) -> None:
    assert is_too_much(due, of) is too_much


def much(holdfast: Holdfast, clock: FakeClock, *, agent: str, users: dict[str, int]) -> None:
    """Users who are about to lose so many memories each."""
    holdfast.policies.set("long_term", archive_after_days="never", delete_after_days=30, confirm=True)
    for user_id, count in users.items():
        holdfast.manager(user_id, f"{agent}_{user_id}").add_many([f"fact {n}" for n in range(count)], "long_term")
    clock.advance(days=30)


def test_someone_who_would_lose_much_is_set_aside_while_others_are_swept(holdfast: Holdfast, clock: FakeClock) -> None:
    much(holdfast, clock, agent="agent", users={"ann": 1_001, "bob": 1_000, "cy": 5})
    plan = planned(holdfast)
    assert plan.set_aside == (("ann", None, 1_001, 1_001),)
    assert plan.counts["recycle"] == 1_005
    report = swept(holdfast)
    assert report.counts["recycle"] == 1_005
    assert report.lines == plan.lines
    assert holdfast.quotas.get("long_term", "ann").memories == 1_001
    assert not holdfast.manager("ann", "agent_ann").list_memories(), "set aside, and out of sight all the same"
    assert "user 'ann' would lose 1,001 of 1,001" in report.set_aside[0].describe()
    confirmed = planned(holdfast, confirm=True)
    assert confirmed.counts["recycle"] == 1_001
    assert swept(holdfast, confirm=True).counts["recycle"] == 1_001
    check_sound(holdfast)


@pytest.mark.parametrize("kind", ["long_term", "episodic"])
def test_someone_set_aside_does_not_hold_back_others_who_share_their_agent(
    holdfast: Holdfast, clock: FakeClock, kind: str
) -> None:
    holdfast.policies.set(kind, archive_after_days="never", delete_after_days=30, confirm=True)
    for user_id, count in (("ann", 1_001), ("bob", 5)):
        holdfast.manager(user_id, "guide").add_many([f"fact {n}" for n in range(count)], kind)
    clock.advance(days=30)
    assert swept(holdfast).counts["recycle"] == 5
    assert holdfast.quotas.get(kind, "bob").memories == 0
    assert holdfast.quotas.get(kind, "ann").memories == 1_001


def test_an_agent_that_would_lose_much_over_many_users_is_set_aside(holdfast: Holdfast, clock: FakeClock) -> None:
    holdfast.policies.set("persona", agent_id="guide", delete_after_days=30, confirm=True)
    for n in range(3):
        holdfast.manager(f"user_{n}", "guide").add_many([f"trait {k}" for k in range(400)], "persona")
        holdfast.manager(f"user_{n}", "other").add_many([f"trait {k}" for k in range(10)], "persona")
    holdfast.policies.set("persona", agent_id="other", delete_after_days=30, confirm=True)
    clock.advance(days=30)
    report = swept(holdfast)
    assert [(aside.agent_id, aside.due) for aside in report.set_aside] == [("guide", 1_200)]
    assert report.counts["recycle"] == 30
    assert swept(holdfast, confirm=True).counts["recycle"] == 1_200


def test_an_agents_loss_is_added_up_over_all_its_kinds_and_states(holdfast: Holdfast, clock: FakeClock) -> None:
    for n in range(2):
        memory = holdfast.manager(f"user_{n}", "guide")
        memory.add_many([f"episode {k}" for k in range(300)], "episodic")
        memory.add_many([f"trait {k}" for k in range(300)], "persona")
    holdfast.policies.set("persona", agent_id="guide", delete_after_days=365, confirm=True)
    clock.advance(days=365)
    report = swept(holdfast)
    assert [(aside.agent_id, aside.due) for aside in report.set_aside] == [("guide", 1_200)]


def test_archiving_much_is_no_loss(holdfast: Holdfast, clock: FakeClock) -> None:
    holdfast.manager("ann", "guide").add_many([f"episode {n}" for n in range(1_500)], "episodic")
    clock.advance(days=90)
    report = swept(holdfast)
    assert (report.set_aside, report.counts["archive"]) == ((), 1_500)


# --- one at a time -----------------------------------------------------------------------------------------------------


def test_a_lease_held_elsewhere_refuses(holdfast: Holdfast, clock: FakeClock) -> None:
    fill(holdfast, clock, users=1)
    leases = SqlLeases(holdfast.database)
    lease = leases.acquire("sweeper", "another host:1:x", now=time.time_ns() // 1_000, ttl=60 * SECOND)
    assert lease is not None
    with pytest.raises(LeaseLostError, match="another host:1:x is sweeping"):
        swept(holdfast)
    with pytest.raises(LeaseLostError):
        holdfast.recycle.purge()
    assert planned(holdfast).total > 0, "nothing was swept, and a dry run needs no lease"
    leases.release(lease)
    assert swept(holdfast).total > 0


def test_a_lease_that_is_lost_midway_stops_the_sweep_with_the_next_batch(holdfast: Holdfast, clock: FakeClock) -> None:
    much(holdfast, clock, agent="agent", users={f"user_{n}": 900 for n in range(4)})
    moved: list[int] = []

    def progress(count: int) -> None:
        moved.append(count)
        if len(moved) == 2:
            raw.run(holdfast, "UPDATE leases SET holder = 'thief', epoch = epoch + 1")

    with pytest.raises(LeaseLostError, match="thief"):
        swept(holdfast, progress=progress)
    left = planned(holdfast).counts["recycle"]
    assert left == 3_600 - sum(moved) > 0
    raw.run(holdfast, "DELETE FROM leases")
    assert swept(holdfast).counts["recycle"] == left
    check_sound(holdfast)


def test_batches_of_many_users_are_swept_whole(holdfast: Holdfast, clock: FakeClock) -> None:
    holdfast.policies.set("long_term", archive_after_days="never", delete_after_days=30, confirm=True)
    for n in range(300):
        holdfast.manager(f"user_{n}", "guide").add(f"fact {n}", "long_term")
    clock.advance(days=29)
    for n in range(0, 300, 2):
        holdfast.manager(f"user_{n}", "guide").add("young", "long_term")
    clock.advance(days=1)
    heard: list[int] = []
    report = swept(holdfast, progress=heard.append)
    assert report.counts["recycle"] == sum(heard) == 300
    assert raw.rows(holdfast, "SELECT count(*) FROM records WHERE state = 'active'") == [(150,)]
    check_sound(holdfast)


def test_another_tenants_memories_are_left_alone(holdfast: Holdfast, clock: FakeClock) -> None:
    with Holdfast.open(home=holdfast.settings.home, tenant="acme", clock=clock) as acme:
        acme.policies.set("long_term", archive_after_days="never", delete_after_days=30, confirm=True)
        acme.manager("ann", "guide").add("acme's", "long_term")
        holdfast.manager("ann", "guide").add("ours", "long_term")
        clock.advance(days=30)
        assert swept(holdfast).total == 0
        assert planned(holdfast).total == 0
        assert planned(acme).total == 1
        assert swept(acme).counts["recycle"] == 1
        assert holdfast.manager("ann", "guide").list_memories()
        assert holdfast.recycle.list() == []


def test_each_job_sweeps_its_part_and_all_of_them_everything(holdfast: Holdfast, clock: FakeClock) -> None:
    holdfast.schedule.enrol()
    fill(holdfast, clock)
    done = holdfast.schedule.run_due()
    assert {run["name"]: run["error"] for run in done} == dict.fromkeys(job.name for job in JOBS)
    clock.advance(minutes=1)
    assert planned(holdfast).lines == ()
    check_sound(holdfast)


def test_a_report_and_a_plan_can_be_shown(holdfast: Holdfast, clock: FakeClock) -> None:
    fill(holdfast, clock, users=1)
    shown = planned(holdfast).to_dict()
    assert len(shown["samples"]) == 5
    assert {sample["action"] for sample in shown["samples"]} <= {"archive", "recycle", "delete"}
    assert swept(holdfast).to_dict()["counts"] == shown["counts"]


def test_the_memory_says_what_comes_next_and_that_comes(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory_id = memory.episodic.record_episode("a trip", ["went"])
    for action, days in (("archive", 90), ("recycle", 275), ("delete", 15)):
        told = memory.explain(memory_id)["next"]
        assert (told["action"], told["due"]) == (action, False)  # type: ignore[index]
        clock.advance(days=days)
        told = memory.explain(memory_id)["next"]
        assert (told["action"], told["due"]) == (action, True)  # type: ignore[index]
        assert told["at"] == clock.now.isoformat()  # type: ignore[index]
        assert swept(holdfast).counts[action] == 1
    assert memory.explain(memory_id)["state"] == "deleted"


# --- in small pages ------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a page ends, and whether someone has many, must not matter."""
    for module, name, size in (
        (due, "PAGE", 3),
        (due, "_TOGETHER", 1),
        (batches, "_ARCHIVED", 3),
        (batches, "_MESSAGES", 1),
        (batches, "_FIRST", 2),
        (batches, "_LEAST", 2),
        (batches, "_MOST", 2),
        (archive, "_PACKS", 1),
        (bulk_delete, "_BATCH", 2),
        (recycle_bin, "_BATCH", 2),
        (rules, "_BATCH", 2),
    ):
        assert hasattr(module, name)
        monkeypatch.setattr(module, name, size)


@pytest.mark.parametrize("hold", [None, {"user_id": "user_1"}, {"tag": "place=2"}, {"session_id": "trip"}])
@pytest.mark.usefixtures("small_pages")
def test_small_pages_come_to_the_same(holdfast: Holdfast, clock: FakeClock, hold: dict[str, str] | None) -> None:
    fill(holdfast, clock)
    free = planned(holdfast).total
    if hold is not None:
        holdfast.holds.add(**hold, reason="a lawsuit", author="legal")
    plan = planned(holdfast)
    decided = [decision.id for decision in plan.decisions]
    assert len(set(decided)) == len(decided) == plan.total == free - plan.held
    report = swept(holdfast, digest=plan.digest)
    assert (report.lines, report.held, report.stale) == (plan.lines, plan.held, 0)
    assert (planned(holdfast).lines, planned(holdfast).held) == ((), plan.held)
    check_sound(holdfast)


@pytest.mark.usefixtures("small_pages")
def test_much_is_cleared_and_restored_in_small_pages(holdfast: Holdfast, clock: FakeClock) -> None:
    fill(holdfast, clock, users=2)
    memory = holdfast.manager("user_0", "agent_0")
    live = raw.rows(
        holdfast,
        "SELECT count(*) FROM records JOIN subjects ON subjects.no = records.subject "
        "WHERE subjects.subject = 'default/user_0' AND state = 'active'",
    )[0][0]
    assert memory.delete_user_memories("user_0") == live
    assert holdfast.recycle.restore(user_id="user_0") == live, "what was in the bin before has had its time"
    holdfast.policies.set("*", user_id="user_0", delete_after_days=1, confirm=True)
    assert planned(holdfast).counts["recycle"] > 10
    swept(holdfast)
    check_sound(holdfast)


def test_parts_of_what_leaves_the_bin_are_counted_as_they_were_planned(holdfast: Holdfast, clock: FakeClock) -> None:
    memory = holdfast.manager("ann", "guide", "trip")
    memory_id = memory.add("a trip to Rome")["memory_id"]
    memory.correct(memory_id, "a trip to Paris")
    clock.advance(days=350)
    memory.short_term.add_message("user", "hello")
    memory.delete(memory.short_term.add_message("user", "I was in Rome"))
    memory.delete(memory_id)
    holdfast.sessions.remove("guide", "trip", user_id="ann")
    clock.advance(days=16)
    plan = planned(holdfast)
    assert {"long_term", "version"} <= {line.memory_type for line in plan.lines}
    assert swept(holdfast, digest=plan.digest).lines == plan.lines
