"""A crash anywhere is made good by the next sweep: nothing is lost, nothing stays half done.

Each scenario is run as often as it has effects, and dies at another one each time. After each death the engine is opened
again and swept; then the store must be what it would be had nothing happened, or had all of it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import raw
from clocks import FakeClock
from effort import soak, stride
from holdfast import Holdfast
from holdfast.core.records import Subject
from homes import Homes
from launcher import start_script
from lifecycle.fuses import DeathError, Fuse
from lifecycle.soundness import check_sound

SWEEPER = Path(__file__).with_name("sweeper.py")
LONG = "Ann likes the window seat, and tea with milk. " * 40
Picture = dict[str, tuple[Any, ...]]


def picture(holdfast: Holdfast) -> Picture:
    """Everything in a store as its owner would find it, wherever it lies."""
    seen: Picture = {}
    for user_id in ("ann", "bob"):
        subject = Subject(holdfast.tenant, user_id)
        whose = "SELECT id FROM records JOIN subjects ON subjects.no = records.subject WHERE subjects.subject = ?"
        ids = [row[0] for row in raw.rows(holdfast, whose, (subject,))]
        for record_id, entry in holdfast.services.records.entries(subject, ids).items():
            record = entry.record
            whole = record.content, record.body, record.metadata
            if record.pack is not None:
                document = holdfast.services.archives.read(record).document
                whole = document["content"], document["body"], document["metadata"]
            seen[record_id] = (
                record.state.value,
                record.pack is not None,
                json.dumps(whole, sort_keys=True),
                record.name,
                (record.aged_from, record.archive_at, record.hidden_from, record.purge_at),
                entry.encoding,
            )
    sessions = raw.rows(holdfast, "SELECT no, id, state, purge_at, aged_from FROM sessions")
    for number, item_id, *rest in sessions:
        messages = raw.rows(
            holdfast, "SELECT id, content, purge_at FROM history WHERE key >> 24 = ? ORDER BY key", (number,)
        )
        seen[item_id] = (*rest, tuple(messages))
    for row in raw.rows(holdfast, "SELECT sort, id, state, purge_at FROM registry"):
        seen[f"{row[0]} {row[1]}"] = row[2:]
    for row in raw.rows(holdfast, "SELECT id, kind, user_id, terms, version FROM rules WHERE version > 0"):
        seen[f"rule {row[1]} {row[2]}"] = row[3:]
    return seen


@dataclass(frozen=True)
class Scenario:
    """What is there before, and what is done to it."""

    prepare: Callable[[Holdfast, FakeClock], None]
    act: Callable[[Holdfast], object]
    """A sweep is done again by the next one; any other verb may also not have happened."""
    sweeps: bool = True


def sweep(holdfast: Holdfast) -> object:
    return holdfast.sweep()


def remember(holdfast: Holdfast, clock: FakeClock) -> None:
    """Conversations and memories of two people, which move together."""
    for user_id in ("ann", "bob"):
        memory = holdfast.manager(user_id, "guide", "trip")
        for n in range(3):
            memory.add(f"{LONG} {n} {user_id}", "long_term", {"n": n})
        memory.structured.put("trips", {"city": "Rome", "notes": LONG}, key="rome")
        memory.episodic.record_episode("book a train", [LONG], messages=["to Rome", "at night"])
        memory.add("speaks like a friend", "persona")
        memory.short_term.add_message("user", "hello")
        memory.short_term.add_message("assistant", "good day")


def due_in_place(holdfast: Holdfast, clock: FakeClock) -> None:
    remember(holdfast, clock)
    clock.advance(days=90)


def due_cold(holdfast: Holdfast, clock: FakeClock) -> None:
    remember(holdfast, clock)
    clock.advance(days=20)
    holdfast.sweep()
    clock.advance(days=364)


def due_merge(holdfast: Holdfast, clock: FakeClock) -> None:
    """A pack that is small, and something more for it."""
    due_cold(holdfast, clock)
    holdfast.sweep()
    holdfast.manager("ann", "guide").add(f"{LONG} later", "long_term")
    holdfast.manager("ann", "guide").add(f"{LONG} later still", "long_term")
    clock.advance(days=365)


def cold(holdfast: Holdfast, clock: FakeClock) -> None:
    due_cold(holdfast, clock)
    holdfast.sweep()


def cold_ids(holdfast: Holdfast) -> list[str]:
    return [row[0] for row in raw.rows(holdfast, "SELECT id FROM records WHERE pack IS NOT NULL ORDER BY key")]


def rehydrate_one(holdfast: Holdfast) -> object:
    return holdfast.manager("ann", "guide").rehydrate(cold_ids(holdfast)[0])


def due_removal(holdfast: Holdfast, clock: FakeClock) -> None:
    remember(holdfast, clock)
    holdfast.policies.set("long_term", user_id="ann", delete_after_days=25, confirm=True)
    clock.advance(days=31)


def older(holdfast: Holdfast, clock: FakeClock) -> None:
    remember(holdfast, clock)
    holdfast.policies.set("episodic", user_id="bob", delete_after_days=700)
    clock.advance(days=31)


def in_bin(holdfast: Holdfast, clock: FakeClock) -> None:
    remember(holdfast, clock)
    holdfast.manager("ann", "guide").delete_user_memories("ann")


def due_purge(holdfast: Holdfast, clock: FakeClock) -> None:
    in_bin(holdfast, clock)
    message = holdfast.manager("bob", "guide", "trip").short_term.messages()[0].id
    holdfast.manager("bob", "guide", "trip").short_term.delete(message)
    clock.advance(days=15)


def due_purge_of_some_in_a_pack(holdfast: Holdfast, clock: FakeClock) -> None:
    cold(holdfast, clock)
    holdfast.manager("ann", "guide").delete(cold_ids(holdfast)[0])
    clock.advance(days=15)


def due_purge_of_a_whole_pack(holdfast: Holdfast, clock: FakeClock) -> None:
    cold(holdfast, clock)
    holdfast.manager("ann", "guide").delete_user_memories("ann", "long_term")
    clock.advance(days=15)


def cold_in_bin(holdfast: Holdfast, clock: FakeClock) -> None:
    cold(holdfast, clock)
    holdfast.manager("ann", "guide").delete(cold_ids(holdfast)[0])


def restore_one(holdfast: Holdfast) -> object:
    return holdfast.recycle.restore(memory_id=cold_ids(holdfast)[0])


def agent_in_bin(holdfast: Holdfast, clock: FakeClock) -> None:
    remember(holdfast, clock)
    holdfast.agents.remove("guide")


def due_purge_of_an_agent(holdfast: Holdfast, clock: FakeClock) -> None:
    agent_in_bin(holdfast, clock)
    clock.advance(days=15)


SCENARIOS = {
    "archive in place": Scenario(due_in_place, sweep),
    "cold archive": Scenario(due_cold, sweep),
    "a merge of small packs": Scenario(due_merge, sweep),
    "rehydrate": Scenario(cold, rehydrate_one, sweeps=False),
    "recycle": Scenario(due_removal, sweep),
    "restore": Scenario(cold_in_bin, restore_one, sweeps=False),
    "purge": Scenario(due_purge, sweep),
    "purge of some in a pack": Scenario(due_purge_of_some_in_a_pack, sweep),
    "purge of a whole pack": Scenario(due_purge_of_a_whole_pack, sweep),
    "a change of a rule": Scenario(
        remember,
        lambda holdfast: holdfast.policies.set("long_term", user_id="ann", delete_after_days=25, confirm=True),
        sweeps=False,
    ),
    "a change of several rules": Scenario(
        older,
        lambda holdfast: holdfast.policies.set_all(
            [
                {"memory_type": "long_term", "delete_after_days": 25},
                {"memory_type": "long_term", "user_id": "ann", "keep_days": "forever"},
                {"memory_type": "*", "agent_id": "guide", "delete_after_days": 40},
            ],
            exclusive=True,
            confirm=True,
        ),
        sweeps=False,
    ),
    "removal of an agent": Scenario(remember, lambda holdfast: holdfast.agents.remove("guide"), sweeps=False),
    "return of an agent": Scenario(agent_in_bin, lambda holdfast: holdfast.agents.restore("guide"), sweeps=False),
    "purge of an agent": Scenario(due_purge_of_an_agent, sweep),
}


def forget_leases(holdfast: Holdfast) -> None:
    """As if the time of the dead engine's lease were over: its process, this one, goes on in a test."""
    raw.run(holdfast, "UPDATE leases SET expires_at = 0")


def settled(home: Path, clock: FakeClock) -> Picture:
    """The store after an engine has been opened and has swept; sound in every way."""
    with Holdfast.open(home=home, clock=clock) as holdfast:
        forget_leases(holdfast)
        holdfast.sweep()
        check_sound(holdfast)
        plan = holdfast.sweep(dry_run=True)
        assert plan.lines == (), "the next sweep has nothing left to do"
        return picture(holdfast)


@soak
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_crash_at_any_effect_is_made_good(homes: Homes, engine_name: str, name: str) -> None:
    scenario = SCENARIOS[name]
    clock = FakeClock()
    before = homes.new("before")
    with Holdfast.open(home=before, clock=clock) as holdfast:
        scenario.prepare(holdfast, clock)
    whole = homes.copy(before, "whole")
    with Holdfast.open(home=whole, clock=clock) as holdfast:
        scenario.act(holdfast)
    right = [settled(whole, clock)]
    if not scenario.sweeps:
        right.append(settled(homes.copy(before, "never"), clock))
    effects = 0
    while True:
        home = homes.copy(before, f"crash {effects}")
        holdfast = Holdfast.open(home=home, clock=clock)
        fuse = Fuse(holdfast, effects)
        try:
            scenario.act(holdfast)
        except DeathError:
            pass
        finally:
            holdfast.close()
        if not fuse.is_dead:
            break
        where = f"died before {fuse.last}, effect {effects}"
        try:
            found = settled(home, clock)
        except Exception as problem:
            raise AssertionError(f"{where}: {problem}") from problem
        assert found in right, where
        homes.remove(home)
        effects += stride(engine_name)
    assert effects > 0


def test_an_agent_is_out_of_sight_from_its_removals_first_step(home: Path) -> None:
    clock = FakeClock()
    holdfast = Holdfast.open(home=home, clock=clock)
    memory = holdfast.manager("ann", "guide")
    persona = memory.add("speaks like a friend", "persona")["memory_id"]
    fuse = Fuse(holdfast, 1)  # the agent is in the bin, and nothing of its own has followed
    with pytest.raises(DeathError):
        holdfast.agents.remove("guide")
    assert fuse.is_dead
    holdfast.close()
    with Holdfast.open(home=home, clock=clock) as again:
        memory = again.manager("ann", "guide")
        assert [row["state"] for row in again.agents.list(include_removed=True)] == ["recycled"]
        assert memory.retrieve("friend", ["persona"]) == []
        assert memory.list_memories("persona") == []
        with pytest.raises(LookupError):
            memory.get(persona)
        clock.now += timedelta(minutes=1)
        again.sweep()
        check_sound(again)
        assert persona in {item.get("memory_id") for item in again.recycle.list()}


# --- really killed -----------------------------------------------------------------------------------------------------


def kill_a_sweep(home: Path, clock: FakeClock, after: int) -> bool:
    """Let another process sweep, and kill it when it has told of so many batches; whether it was still at it."""
    process = start_script(SWEEPER, home, clock.now.timestamp(), stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        for _ in range(after + 1):
            if not process.stdout.readline():
                break
    finally:
        process.kill()
        process.communicate()
    return process.returncode < 0


def whole_contents(holdfast: Holdfast) -> dict[str, str]:
    """Of every memory that is not deleted, and has not begun to be: its content, from wherever that lies."""
    found = {}
    for record_id, user_id in raw.rows(
        holdfast,
        "SELECT id, substr(subjects.subject, 9) FROM records JOIN subjects ON subjects.no = records.subject "
        "WHERE state <> 'deleting'",
    ):
        record = holdfast.services.records.get(Subject("default", user_id), record_id)
        assert record is not None
        cold = record.pack is not None
        found[record_id] = holdfast.services.archives.read(record).document["content"] if cold else record.content
    return found


def stored_ids(holdfast: Holdfast) -> set[str]:
    """The memories that have a row, whatever their state."""
    return {row[0] for row in raw.rows(holdfast, "SELECT id FROM records")}


def test_a_sweep_that_is_killed_is_finished_by_the_next(home: Path) -> None:
    clock = FakeClock()
    said: dict[str, str] = {}
    doomed: set[str] = set()
    with Holdfast.open(home=home, clock=clock) as holdfast:
        for n in range(12):
            memory = holdfast.manager(f"user_{n}", "guide", "trip")
            for place in range(6):
                text = f"{n}.{place}: {LONG}"
                said[memory.add(text, "long_term")["memory_id"]] = text
            memory.short_term.add_message("user", "hello")
    killed = 0
    for age, after, removes in (
        (365, 0, False),
        (0, 2, False),
        (0, 7, False),
        (15, 0, True),
        (0, 3, True),
        (0, 9, True),
    ):
        if removes and age:  # half of each user's go to the bin, out of objects that they share with the other half
            with Holdfast.open(home=home, clock=clock) as holdfast:
                for place, memory_id in enumerate(sorted(said)):
                    record = holdfast.services.records.find("default", memory_id)
                    if place % 2 and record is not None:
                        holdfast.manager(record.scope.user_id, "guide").delete(memory_id)
                        doomed.add(memory_id)
        clock.advance(days=age)
        killed += kill_a_sweep(home, clock, after)
        with Holdfast.open(home=home, clock=clock) as holdfast:
            kept = whole_contents(holdfast)
            assert {memory_id: said[memory_id] for memory_id in kept} == kept, "no content is lost or changed"
            assert kept.keys() >= said.keys() - doomed, "and only what was due is gone, or has begun to go"
    assert killed >= 2
    with Holdfast.open(home=home, clock=clock) as holdfast:
        holdfast.sweep()  # the lease of a process that is dead is free
        check_sound(holdfast)  # nothing is being deleted any more, and no object has what was
        assert stored_ids(holdfast) == said.keys() - doomed, "what had begun to go is gone"
        assert whole_contents(holdfast).keys() == said.keys() - doomed
        assert holdfast.sweep(dry_run=True).lines == ()


def test_what_had_begun_to_be_deleted_is_finished_even_if_a_hold_comes_and_the_dry_run_says_so(home: Path) -> None:
    """Its object may be gone already: there is nothing left that a hold could keep."""
    clock = FakeClock()
    holdfast = Holdfast.open(home=home, clock=clock)
    due_purge_of_some_in_a_pack(holdfast, clock)
    doomed = cold_ids(holdfast)[0]
    holdfast.close()
    for effect in range(100):
        holdfast = Holdfast.open(home=home, clock=clock)
        forget_leases(holdfast)
        Fuse(holdfast, effect)
        with suppress(DeathError):
            holdfast.sweep()
        holdfast.close()
        with Holdfast.open(home=home, clock=clock) as again:
            forget_leases(again)
            if raw.rows(again, "SELECT state FROM records WHERE id = ?", (doomed,)) == [("deleting",)]:
                again.holds.add(memory_id=doomed, reason="too late", author="counsel")
                plan = again.sweep(dry_run=True)
                report = again.sweep()
                assert raw.rows(again, "SELECT state FROM records WHERE id = ?", (doomed,)) == []
                assert (report.lines, report.held) == (plan.lines, plan.held)
                check_sound(again)
                return
    raise AssertionError("no crash left the record half deleted")
