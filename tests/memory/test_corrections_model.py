"""Histories at random against a plain model: what is recalled as of a moment is what could be recalled then, less what may
not be read now; and what has ended is never recalled.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from clocks import FakeClock
from holdfast import Holdfast, MemoryManager
from holdfast.core.errors import HeldError
from homes import Homes

ME, AGENT = "ann", "guide"
KEYS = ("city", "tea")
ASKED = "What is value"
#: The rules keep so many ended versions, for so many days.
MOST, DAYS = 10, 365
_HOMES = count()


class Said:
    """What one memory said, and since when; ``None`` since it was last known to say nothing."""

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.versions: list[tuple[datetime, str]] = []
        self.is_binned = False
        self.is_held = False

    def at(self, when: datetime, now: datetime) -> str | None:
        """What it said at a moment, if that is kept now."""
        ends = [began for began, _ in self.versions[1:]]
        for number, (began, value) in enumerate(self.versions):
            if number == len(self.versions) - 1:
                return value if began <= when else None
            is_kept = len(self.versions) - 1 - number <= MOST and ends[number] + timedelta(days=DAYS) > now
            if began <= when < ends[number]:
                return value if is_kept else None
        return None


class Histories(RuleBasedStateMachine):
    """Corrections, deletions, restores, holds, sweeps, erasures and backups, in any order."""

    homes: Homes

    @initialize()
    def start(self) -> None:
        self.clock = FakeClock(datetime(2026, 1, 15, 12, tzinfo=UTC))
        self.numbers = count()
        self.home = self.homes.new(f"home {next(_HOMES)}")
        self.holdfast = Holdfast.open(home=self.home, clock=self.clock)
        self.holdfast.policies.set("long_term", archive_after_days="never")
        self.memories: dict[str, Said] = {}
        self.moments = [self.clock.now]
        self.backup: tuple[str, dict[str, Said]] | None = None

    def teardown(self) -> None:
        if hasattr(self, "holdfast"):
            self.holdfast.close()
            self.homes.remove(self.home)

    @property
    def memory(self) -> MemoryManager:
        return self.holdfast.manager(ME, AGENT)

    def tick(self, **duration: float) -> None:
        self.clock.advance(**duration)
        self.moments.append(self.clock.now)

    def value(self) -> str:
        return f"The value is number {next(self.numbers)}."

    def choose(self, draw: int, *, binned: bool = False) -> str | None:
        found = sorted(one for one, said in self.memories.items() if said.is_binned is binned)
        return found[draw % len(found)] if found else None

    def say(self, memory_id: str, value: str) -> None:
        self.memories[memory_id].versions.append((self.clock.now, value))

    @rule(key=st.sampled_from((None, *KEYS)))
    def add(self, key: str | None) -> None:
        self.tick(hours=1)
        value = self.value()
        added = self.memory.add(value, key=key)
        there = [one for one, said in self.memories.items() if key and said.key == key and not said.is_binned]
        assert (added["operation"] == "corrected") == bool(there)
        assert not there or there == [added["memory_id"]]
        self.memories.setdefault(added["memory_id"], Said(key))
        self.say(added["memory_id"], value)

    @rule(draw=st.integers(0, 99), how=st.sampled_from(("correct", "update", "supersedes", "revert")))
    def change(self, draw: int, how: str) -> None:
        memory_id = self.choose(draw)
        if memory_id is None:
            return
        self.tick(hours=1)
        value = self.value()
        if how == "correct":
            self.memory.correct(memory_id, value)
        elif how == "update":
            self.memory.update(memory_id, value)
        elif how == "supersedes":
            self.memory.add(value, supersedes=memory_id)
        else:
            ended = self.memory.history(memory_id)[:-1]
            if not ended:
                return
            one = ended[draw % len(ended)]
            value = one["content"]
            self.memory.revert(memory_id, to=one["version"])
        self.say(memory_id, value)

    @rule(draw=st.integers(0, 99))
    def delete(self, draw: int) -> None:
        memory_id = self.choose(draw)
        if memory_id is None:
            return
        try:
            self.memory.delete(memory_id)
            assert not self.memories[memory_id].is_held
            self.memories[memory_id].is_binned = True
        except HeldError:
            assert self.memories[memory_id].is_held

    @rule(draw=st.integers(0, 99))
    def restore(self, draw: int) -> None:
        memory_id = self.choose(draw, binned=True)
        key = None if memory_id is None else self.memories[memory_id].key
        taken = key is not None and any(one.key == key and not one.is_binned for one in self.memories.values())
        if memory_id is not None and not taken:
            self.memory.restore(memory_id)
            self.memories[memory_id].is_binned = False

    @rule(draw=st.integers(0, 99))
    def hold(self, draw: int) -> None:
        memory_id = self.choose(draw)
        if memory_id is not None and not self.memories[memory_id].is_held:
            self.holdfast.holds.add(memory_id=memory_id, reason="a dispute", author="legal")
            self.memories[memory_id].is_held = True

    @rule(days=st.sampled_from((1, 10, 200)))
    def sweep(self, days: int) -> None:
        self.tick(days=days)
        self.holdfast.sweep(confirm=True)
        exported = {one["memory_id"] for one in self.memory.export_kind(ME, "long_term")}
        self.memories = {one: said for one, said in self.memories.items() if one in exported}

    @rule()
    def back_up(self) -> None:
        made = self.holdfast.backups.create()
        copies = {one: Said(said.key) for one, said in self.memories.items()}
        for one, said in self.memories.items():
            copies[one].versions = list(said.versions)
            copies[one].is_binned = said.is_binned
        self.backup = (made.id, copies)

    @rule()
    def restore_what_is_lost(self) -> None:
        """What is gone for good comes back with its versions; what is there stays as it is."""
        if self.backup is None or not self.memories.keys() < self.backup[1].keys():
            return
        self.holdfast.backups.restore(self.backup[0], user_id=ME)
        exported = {one["memory_id"]: one for one in self.memory.export_kind(ME, "long_term")}
        for one, said in self.backup[1].items():
            if one in exported and one not in self.memories:
                said.is_binned = exported[one]["state"] == "recycled"
                self.memories[one] = said

    @rule()
    def erase(self) -> None:
        if not any(said.is_held for said in self.memories.values()):
            self.holdfast.erase_user(ME)
            self.memories, self.backup = {}, None

    @invariant()
    def recall_as_of_a_moment_is_what_was_recallable(self) -> None:
        if not hasattr(self, "holdfast"):
            return
        live = {one: said for one, said in self.memories.items() if not said.is_binned}
        now = self.clock.now
        assert _found(self.memory.retrieve(ASKED, top_k=100)) == {
            (one, said.versions[-1][1]) for one, said in live.items()
        }
        for when in {self.moments[0], self.moments[len(self.moments) // 2], self.moments[-1]}:
            then = {(one, value) for one, said in live.items() if (value := said.at(when, now)) is not None}
            assert _found(self.memory.retrieve(ASKED, top_k=100, as_of=when)) == then, when


def _found(results: list[Any]) -> set[tuple[str, str]]:
    return {(one["memory_id"], one["content"]) for one in results}


def test_as_of_is_what_was_recallable_then_less_what_may_not_be_read_now(homes: Homes) -> None:
    machine = type("HistoriesHere", (Histories,), {"homes": homes})
    most = max(settings().max_examples // 10, 3)
    run_state_machine_as_test(machine, settings=settings(max_examples=most, stateful_step_count=25))
