"""Histories at random against a plain model: what is recalled as of a moment is what could be recalled then, less what may
not be read now; and what has ended is never recalled.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from clocks import FakeClock
from effort import soak, times
from holdfast import Holdfast, MemoryManager
from holdfast.core.errors import ConflictError, HeldError, KeptOutError
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

    @property
    def now(self) -> str:
        """What it says."""
        return self.versions[-1][1]

    def ended(self, now: datetime) -> list[tuple[datetime, datetime, str]]:
        """What it said before, from when to when, as far as that is kept now."""
        ends = [began for began, _ in self.versions[1:]]
        told = [(began, end, value) for (began, value), end in zip(self.versions, ends, strict=False)]
        return [one for one in told[-MOST:] if one[1] + timedelta(days=DAYS) > now]

    def at(self, when: datetime, now: datetime) -> str | None:
        """What it said at a moment, if that is kept now."""
        if self.versions[-1][0] <= when:
            return self.now
        return next((value for began, end, value in self.ended(now) if began <= when < end), None)


class Histories(RuleBasedStateMachine):
    """Corrections, texts said again, deletions, restores, holds, sweeps, erasures and backups, in any order."""

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
        self.kept_out: set[str] = set()
        self.elsewhere = Holdfast.open(home=self.home, clock=self.clock)
        self.begin()

    def begin(self) -> None:
        """Something is known, so that there is something to change: a fact with a key, and one that is said twice."""
        self.add(KEYS[0])
        self.add(None)
        self.say_again(3, dedupe=False)
        self.change(1, "correct")

    def teardown(self) -> None:
        if hasattr(self, "elsewhere"):
            self.elsewhere.close()
            self.holdfast.close()
            self.homes.remove(self.home)

    @property
    def memory(self) -> MemoryManager:
        return self.holdfast.manager(ME, AGENT)

    def tick(self, **duration: float) -> None:
        self.clock.advance(**duration)
        self.moments.append(self.clock.now)

    def value(self) -> str:
        return f"the value is number {next(self.numbers)}."

    def choose(self, draw: int, *, binned: bool = False) -> str | None:
        found = sorted(one for one, said in self.memories.items() if said.is_binned is binned)
        return found[draw % len(found)] if found else None

    def live(self) -> dict[str, Said]:
        return {one: said for one, said in self.memories.items() if not said.is_binned}

    def say(self, memory_id: str, value: str, *, alone: bool = False) -> None:
        """A memory says something from now on, and with it what said the same and goes by no key."""
        said = self.memories[memory_id]
        before = said.now if said.versions and said.now != value else None
        twins = [one for one in self.live().values() if one is not said and one.key is None and one.versions]
        for one in [said, *(one for one in twins if one.now == before and not alone)]:
            one.versions.append((self.clock.now, value))

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
            value = one["content"].lower()  # it may have been said again in capitals
            self.memory.revert(memory_id, to=one["version"])
        self.say(memory_id, value, alone=how == "update")

    @rule(draw=st.integers(0, 99), dedupe=st.booleans())
    def say_again(self, draw: int, *, dedupe: bool) -> None:
        """What is known stays one memory where that is asked for; what was corrected does not come back then."""
        now, live = self.clock.now, self.live()
        ended = {value: one for one, said in live.items() for _, _, value in said.ended(now)}
        texts = sorted(ended) if draw % 3 else sorted({said.now for said in live.values()})
        if not texts:
            return
        self.tick(hours=1)
        text = texts[draw % len(texts)]
        there = [one for one, said in live.items() if said.now == text]
        added = self.elsewhere.manager(ME, AGENT).add(text.upper(), dedupe=dedupe)
        if text in self.kept_out:
            assert added["operation"] == "kept_out"
        elif not dedupe:
            self.memories[added["memory_id"]] = Said(None)
            self.say(added["memory_id"], text)
        elif there:
            assert (added["operation"], added["memory_id"] in there) == ("exists", True)
        else:
            assert added["operation"] == "exists"
            assert added["corrected_to"].lower() == live[added["memory_id"]].now

    @rule(draw=st.integers(0, 99))
    def keep_out(self, draw: int) -> None:
        live = self.live()
        before = {value for said in live.values() for _, _, value in said.ended(self.clock.now)}
        rather = sorted(one for one, said in live.items() if said.now in before)  # another said so before
        memory_id = rather[draw % len(rather)] if rather else self.choose(draw)
        if memory_id is None:
            return
        text = self.memories[memory_id].now
        same = [said for said in self.live().values() if said.now == text]
        try:
            self.memory.delete(memory_id, keep_out=True)
            assert not any(said.is_held for said in same)
            self.kept_out.add(text)
            for said in same:
                said.is_binned = True
        except HeldError:
            assert any(said.is_held for said in same)

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
        if memory_id is not None and self.memories[memory_id].now in self.kept_out:
            with pytest.raises((KeptOutError, ConflictError)):
                self.memory.restore(memory_id)
        elif memory_id is not None and not taken:
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

    @rule(seldom=st.integers(0, 3))
    def erase(self, seldom: int) -> None:
        if seldom == 0 and not any(said.is_held for said in self.memories.values()):
            self.holdfast.erase_user(ME)
            self.memories, self.backup, self.kept_out = {}, None, set()
            self.begin()

    @invariant()
    def recall_as_of_a_moment_is_what_was_recallable(self) -> None:
        if not hasattr(self, "holdfast"):
            return
        live, now = self.live(), self.clock.now
        _compare(self.memory.retrieve(ASKED, top_k=100), {one: said.now for one, said in live.items()})
        past = self.moments[:-1] or self.moments
        moments = (past[-1], past[len(past) // 2], past[len(past) // 4])
        for when, engine in zip(moments, (self.holdfast, self.elsewhere, self.holdfast), strict=True):
            then = {one: value for one, said in live.items() if (value := said.at(when, now)) is not None}
            then = {one: value for one, value in then.items() if value not in self.kept_out}
            _compare(engine.manager(ME, AGENT).retrieve(ASKED, top_k=100, as_of=when), then)


def _compare(results: list[Any], wanted: dict[str, str]) -> None:
    """What is recalled is what is wanted, by ids and contents; of memories that say the same, one is shown."""
    found = {one["memory_id"]: one["content"].lower() for one in results}
    assert found.items() <= wanted.items()
    assert sorted(found.values()) == sorted(set(wanted.values()))
    assert sum(one.get("count", 1) for one in results) == len(wanted)


@soak
def test_as_of_is_what_was_recallable_then_less_what_may_not_be_read_now(homes: Homes, engine_name: str) -> None:
    machine = type("HistoriesHere", (Histories,), {"homes": homes})
    most = times(6, engine_name)
    run_state_machine_as_test(machine, settings=settings(max_examples=most, stateful_step_count=25))
