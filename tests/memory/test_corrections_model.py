"""Histories at random against a plain model: what is recalled as of a moment is what could be recalled then, less what may
not be read now; and what has ended is never recalled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clocks import FakeClock
from effort import everywhere, soak, times
from holdfast import Holdfast, MemoryManager
from holdfast.core.errors import ConflictError, HeldError, KeptOutError
from homes import Homes

ME, AGENT = "ann", "guide"
KEYS = ("city", "tea")
ASKED = "What is value"
#: The rules keep so many ended versions, for so many days.
MOST, DAYS = 10, 365
BIN = timedelta(days=15)
_HOMES = count()


class Said:
    """What one memory said, and since when; ``None`` since it was last known to say nothing."""

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.versions: list[tuple[datetime, str]] = []
        self.gone_at: datetime | None = None
        """When it is gone for good, if it is in the recycle bin."""
        self.hold: str | None = None

    @property
    def is_binned(self) -> bool:
        return self.gone_at is not None

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

    def copy(self) -> Said:
        """What a backup has of it."""
        made = Said(self.key)
        made.versions, made.gone_at = list(self.versions), self.gone_at
        return made


class Histories:
    """Corrections, texts said again, deletions, restores, holds, sweeps, erasures and backups, in any order."""

    def __init__(self, homes: Homes, outcomes: Counter[str]) -> None:
        self.homes, self.outcomes = homes, outcomes
        self.clock = FakeClock(datetime(2026, 1, 15, 12, tzinfo=UTC))
        self.numbers = count()
        self.home = self.homes.new(f"home {next(_HOMES)}")
        self.holdfast = Holdfast.open(home=self.home, clock=self.clock)
        self.holdfast.policies.set("long_term", archive_after_days="never")
        self.memories: dict[str, Said] = {}
        self.moments = [self.clock.now]
        self.backup: tuple[str, dict[str, Said]] | None = None
        self.kept_out: dict[str, str] = {}
        """What is kept out, with the memory that was deleted for it."""
        self.elsewhere = Holdfast.open(home=self.home, clock=self.clock)
        self.begin()

    def begin(self) -> None:
        """Something is known, so that there is something to change: a fact with a key, and one that is said twice."""
        for step, draw in BEGINNING:
            getattr(self, step)(draw)

    def teardown(self) -> None:
        self.elsewhere.close()
        self.holdfast.close()
        self.homes.remove(self.home)

    @property
    def memory(self) -> MemoryManager:
        return self.holdfast.manager(ME, AGENT)

    def note(self, outcome: str, happened: bool = True) -> None:
        self.outcomes[outcome] += happened

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

    def add(self, draw: int) -> None:
        self.tick(hours=1)
        key = (None, *KEYS)[draw % 3]
        value = self.value()
        added = self.memory.add(value, key=key)
        there = [one for one, said in self.memories.items() if key and said.key == key and not said.is_binned]
        assert (added["operation"] == "corrected") == bool(there)
        assert not there or there == [added["memory_id"]]
        self.memories.setdefault(added["memory_id"], Said(key))
        self.say(added["memory_id"], value)

    def change(self, draw: int) -> None:
        how, draw = ("correct", "update", "supersedes", "revert")[draw % 4], draw // 4
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

    def say_again(self, draw: int) -> None:
        """What is known stays one memory where that is asked for; what was corrected does not come back then."""
        dedupe, draw = draw % 2 == 0, draw // 2
        now, live = self.clock.now, self.live()
        ended = {value: one for one, said in live.items() for _, _, value in said.ended(now)}
        texts = (sorted({said.now for said in live.values()}), sorted(ended), sorted(self.kept_out))[draw % 3]
        if not texts:
            return
        self.tick(hours=1)
        text = texts[draw % len(texts)]
        there = [one for one, said in live.items() if said.now == text]
        added = self.elsewhere.manager(ME, AGENT).add(text.upper(), dedupe=dedupe)
        if text in self.kept_out:
            assert (added["operation"], added["memory_id"]) == ("kept_out", self.kept_out[text])
            self.note("fed what is kept out")
        elif not dedupe:
            self.memories[added["memory_id"]] = Said(None)
            self.say(added["memory_id"], text)
        elif there:
            assert (added["operation"], added["memory_id"] in there) == ("exists", True)
            self.note("known")
        else:
            self.note("known before")
            assert added["operation"] == "exists"
            assert added["corrected_to"].lower() == live[added["memory_id"]].now

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
            assert not any(said.hold for said in same)
            self.kept_out[text] = memory_id
            self.note("kept out")
            for said in same:
                said.gone_at = self.clock.now + BIN
        except HeldError:
            assert any(said.hold for said in same)
            self.note("held")

    def lift(self, draw: int) -> None:
        if self.kept_out:
            text = sorted(self.kept_out)[draw % len(self.kept_out)]
            self.memory.lift(self.kept_out.pop(text))
            self.note("lifted")

    def delete(self, draw: int) -> None:
        memory_id = self.choose(draw)
        if memory_id is None:
            return
        try:
            self.memory.delete(memory_id)
            assert not self.memories[memory_id].hold
            self.memories[memory_id].gone_at = self.clock.now + BIN
        except HeldError:
            assert self.memories[memory_id].hold
            self.note("held")

    def restore(self, draw: int) -> None:
        memory_id = self.choose(draw, binned=True)
        if memory_id is None:
            return
        said = self.memories[memory_id]
        if said.now in self.kept_out or self.holder(said.key):
            with pytest.raises(KeptOutError if said.now in self.kept_out else ConflictError):
                self.memory.restore(memory_id)
            self.note("not restored")
        else:
            self.memory.restore(memory_id)
            said.gone_at = None
            self.note("restored")

    def holder(self, key: str | None) -> str | None:
        """The live memory that goes by a key."""
        return next((one for one, said in self.live().items() if key and said.key == key), None)

    def hold(self, draw: int) -> None:
        memory_id = self.choose(draw)
        if memory_id is None:
            return
        said = self.memories[memory_id]
        if said.hold is None:
            said.hold = self.holdfast.holds.add(memory_id=memory_id, reason="a dispute", author="legal").id
        else:
            self.holdfast.holds.release(said.hold)
            said.hold = None

    def sweep(self, draw: int) -> None:
        """Gone for good is what has been in the recycle bin for its time, and nothing else."""
        self.tick(days=(1, 10, 20, 200)[draw % 4])
        self.holdfast.sweep(confirm=True)
        gone = [one for one, said in self.memories.items() if said.gone_at and said.gone_at <= self.clock.now]
        for one in gone:
            del self.memories[one]
            self.note("gone for good")
        exported = {one["memory_id"] for one in self.memory.export_kind(ME, "long_term")}
        assert exported == self.memories.keys()

    def forget(self, draw: int) -> None:
        """What one of the processes has in memory is read anew, as another that begins now would."""
        (self.holdfast, self.elsewhere)[draw % 2].recall.forget()

    def back_up(self, _draw: int) -> None:
        made = self.holdfast.backups.create()
        self.backup = (made.id, {one: said.copy() for one, said in self.memories.items()})

    def bring_back(self, _draw: int) -> None:
        """What is gone for good comes back with its versions, hidden if it is kept out by now; the rest stays."""
        lost = (
            {} if self.backup is None else {one: self.backup[1][one] for one in self.backup[1].keys() - self.memories}
        )
        if self.backup is None or not lost:
            return
        now = self.clock.now
        lost = {one: said.copy() for one, said in lost.items()}
        hidden = [said for said in lost.values() if not said.is_binned and said.now in self.kept_out]
        for said in hidden:
            said.gone_at = now + BIN
        for said in lost.values():
            if said.gone_at and said.gone_at <= now:
                said.gone_at = now + BIN
        taken = [one for one, said in lost.items() if not said.is_binned and self.holder(said.key)]
        lost = {one: said for one, said in lost.items() if one not in taken}

        done = self.holdfast.backups.restore(self.backup[0], user_id=ME)

        assert done.kept_out == len(hidden)
        self.memories |= lost
        held = {hold.memory_id: hold.id for hold in self.holdfast.holds.list()}
        for one, said in self.memories.items():
            said.hold = held.get(one)
        exported = {one["memory_id"]: one["state"] for one in self.memory.export_kind(ME, "long_term")}
        wanted = {one: "recycled" if said.is_binned else "active" for one, said in self.memories.items()}
        assert exported == wanted
        for said in lost.values():
            self.note("back, hidden" if said in hidden else "back")
            self.note("back, with what it said before" if len(said.versions) > 1 else "back")

    def erase(self, draw: int) -> None:
        if draw % 4 == 0 and not any(said.hold for said in self.memories.values()):
            self.holdfast.erase_user(ME)
            self.memories, self.backup, self.kept_out = {}, None, {}
            self.note("erased")
            self.begin()

    def check(self) -> None:
        """What is recalled now, and as of some moments, is what the model says."""
        live, now = self.live(), self.clock.now
        _compare(self.memory.retrieve(ASKED, top_k=100), {one: said.now for one, said in live.items()})
        past = self.moments[:-1] or self.moments
        moments = (past[-1], past[len(past) // 2], past[len(past) // 4])
        for when, engine in zip(moments, (self.holdfast, self.elsewhere, self.holdfast), strict=True):
            then = {one: value for one, said in live.items() if (value := said.at(when, now)) is not None}
            shown = {one: value for one, value in then.items() if value not in self.kept_out}
            self.note("another value then", shown != {one: said.now for one, said in live.items()} and bool(shown))
            self.note("kept out then", shown != then)
            then = shown
            _compare(engine.manager(ME, AGENT).retrieve(ASKED, top_k=100, as_of=when), then)


def _compare(results: list[Any], wanted: dict[str, str]) -> None:
    """What is recalled is what is wanted, by ids and contents; of memories that say the same, one is shown."""
    found = {one["memory_id"]: one["content"].lower() for one in results}
    assert found.items() <= wanted.items()
    assert sorted(found.values()) == sorted(set(wanted.values()))
    assert sum(one.get("count", 1) for one in results) == len(wanted)


#: Something is known, so that there is something to change: a fact with a key, one that is said twice, and one that is
#: kept out after a backup.
BEGINNING = [("add", 1), ("add", 0), ("say_again", 1), ("add", 0), ("back_up", 0), ("change", 4), ("keep_out", 2)]
#: How often a step is taken, beside the others.
STEPS = {
    "add": 3,
    "change": 5,
    "say_again": 4,
    "keep_out": 1,
    "lift": 1,
    "delete": 3,
    "restore": 3,
    "hold": 2,
    "sweep": 2,
    "back_up": 1,
    "bring_back": 2,
    "erase": 1,
}
ACTIONS = st.lists(
    st.tuples(st.sampled_from([step for step, weight in STEPS.items() for _ in range(weight)]), st.integers(0, 99)),
    min_size=30,
    max_size=50,
)
#: What is to happen in the histories, for them to say anything.
INTERESTING = {
    *(
        "another value then",
        "kept out then",
        "kept out",
        "fed what is kept out",
        "lifted",
        "known",
        "known before",
        "held",
    ),
    *("restored", "not restored", "gone for good", "back", "back, hidden", "back, with what it said before", "erased"),
}


@everywhere
@soak
def test_as_of_is_what_was_recallable_then_less_what_may_not_be_read_now(
    homes: Homes, engine_name: str, record_property: Callable[[str, object], None]
) -> None:
    outcomes = Counter[str]()

    @settings(max_examples=times(12, engine_name))
    @given(actions=ACTIONS)
    def live(actions: list[tuple[str, int]]) -> None:
        histories = Histories(homes, outcomes)
        try:
            for step, draw in actions:
                getattr(histories, step)(draw)
                histories.check()
        finally:
            histories.teardown()

    live()
    for outcome, often in sorted(outcomes.items()):
        record_property(outcome, often)
    if times(12, engine_name) >= 12:
        assert set(+outcomes) >= INTERESTING, INTERESTING - set(+outcomes)
