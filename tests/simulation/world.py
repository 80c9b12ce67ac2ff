"""Years in the life of a store, from one seed: what people do, what rules do, and everything that goes wrong.

Several engines share the store. Each step is taken by one of them, which may die before any of its effects, find the disk
full or the server gone; and another looks. What a step that was cut short had to do has then happened or has not: one of
two models must be right, and that one goes on.
"""

from __future__ import annotations

import copy
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

import raw
from holdfast import Holdfast
from holdfast.core.errors import AgentRemovedError, ClockError, HeldError, NotFoundError, StorageError
from holdfast.core.values import moment, to_json, when
from holdfast_prove.scan import Wanted, search
from lifecycle.fuses import DeathError, Fuse
from lifecycle.machine import Machine
from lifecycle.model import LIVE, Model, Part, Thing
from lifecycle.soundness import check_sound
from lifecycle.steps import USERS
from lifecycle.texts import ALL_CHECKS, ALL_STEPS, TextSteps
from privacy.backups.stores import lose_machine

YEAR: Final = timedelta(days=365)
#: What stops a step in the middle: the process dies, or the store cannot be written or reached.
FAILURES: Final = (DeathError, StorageError)
#: What of a home is kept apart from it, and is not as it was when an older copy of the rest is used.
_STATE: Final = ("keys", "ledger", "erased", "certificates")
#: How many of the steps are taken within a day of the one before.
_BUSY: Final = 0.75
_LEAPS: Final = (30, 100, 400)
#: The steps of the lifecycle without those that only let time pass, which years do by themselves, and with more.
MORE: Final[dict[str, dict[str, Any]]] = {
    "erase": {"user": USERS},
    "back_up": {},
    "restore_elsewhere": {"place": range(1_000)},
    "bring_back": {"place": range(1_000)},
    "copy_the_store": {},
    "open_the_copy": {},
    "leap_ahead": {"days": _LEAPS},
    "leap_back": {"days": _LEAPS},
    "sweep_in_another_process": {"dies_at": range(6)},
}
ALL: Final = {name: given for name, given in {**ALL_STEPS, **MORE}.items() if not name.startswith("let_time_pass")}
#: How often each is taken, where that is not once: a store in which much is said has much to lose.
_OFTEN: Final = {
    "add": 8,
    "record_episode": 3,
    "add_message": 4,
    "set_rule": 2,
    "sweep": 3,
    "update": 2,
    "restore": 4,
    "add_hold": 2,
    "delete": 2,
    "correct": 2,
    "keep_out": 2,
    "erase": 2,
    "back_up": 2,
    "restore_elsewhere": 2,
}
_CHOICES: Final = [name for name in ALL for _ in range(_OFTEN.get(name, 1))]
#: These set the scene for themselves, or look at more than one answer: nothing else goes wrong meanwhile.
_UNDISTURBED: Final = {
    "reopen",
    "restore_elsewhere",
    "bring_back",
    "copy_the_store",
    "open_the_copy",
    "leap_ahead",
    "leap_back",
    "sweep_in_another_process",
}

#: These have several effects, some of which may have happened: what was cut short is done again.
_IN_PARTS: Final = {"delete_user_memories", "keep_out", "lift"}


class _Lost:
    """What an engine that died would have answered: nobody knows, so nothing that is said of it is wrong."""

    def __eq__(self, _other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return id(self)

    def __getattr__(self, name: str) -> _Lost:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, _name: object) -> _Lost:
        return self

    def __contains__(self, _thing: object) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __call__(self, *_arguments: Any) -> _Lost:
        return self

    def __deepcopy__(self, _memo: object) -> _Lost:
        return self


LOST: Final[Any] = _Lost()


def _mark(user: str, life: int) -> str:
    return f"as-{user}-says-in-life-{life}-"


class History(Model):
    """The model, and how often each user was erased."""

    def __init__(self) -> None:
        super().__init__()
        self.erased: Counter[str] = Counter()

    def erase(self, user: str) -> None:
        """All that is somebody's is gone, and so are the rules for it; and the holds, which an old copy may have."""
        mine = {thing.id for thing in self.things if thing.user == user}
        self.things = [thing for thing in self.things if thing.user != user]
        gone = [key for key, rule in self.rules.items() if rule.user_id == user or rule.memory_id in mine]
        for key in gone:
            del self.rules[key]
        gone_holds = [name for name, hold in self.holds.items() if hold.user_id == user or hold.memory_id in mine]
        for name in gone_holds:
            del self.holds[name]
        self.kept_out = {name: text for name, text in self.kept_out.items() if text[0] != user}
        self.erased[user] += 1

    def keep_out_since(self, later: History, now: int) -> None:
        """What was kept out later stays out of a store that was restored, of users whom that store knows."""
        known = {thing.user for thing in self.things if later.erased[thing.user] == self.erased[thing.user]}
        self.kept_out |= {name: text for name, text in later.kept_out.items() if text[0] in known}
        for thing in self.records():
            if thing.state in LIVE and self.is_kept_out(thing):
                self.recycle(thing, now)

    def keeps_from_erasure(self, user: str) -> bool:
        """Whether a hold keeps anything of somebody."""
        named = any(hold.user_id == user for hold in self.holds.values())
        return named or any(
            self.is_held(thing) for thing in self.things if thing.user == user and thing.state != "gone"
        )


class World(TextSteps):
    """A store, the engines that share it, the model, and chance."""

    model: History
    words = frozenset({*ALL, *ALL_CHECKS, "check_forgotten", "check_cold_content", "check_swept", "settle"})
    """The names of the steps, and of what is looked at."""

    def __init__(self, engine_name: str, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.leaped = timedelta()
        self.is_lost = False
        self.fault: str | None = None
        self.fuse: Fuse | None = None
        self.outcome = ""
        self.cut: Any = None
        self.done: Counter[str] = Counter()
        self.trail: list[str] = []
        self.backups: dict[str, History] = {}
        self.copied: tuple[Path, History] | None = None
        self.ledger = 0
        patch.setattr("holdfast.store.system_clock", lambda: self.clock.now)
        patch.setattr("holdfast.lifecycle.clock.steady_now", lambda: moment(self.clock.now - self.leaped))
        super().__init__(engine_name)
        self.model = History()
        self.is_shared = engine_name == "postgres"
        self.engines = [self.holdfast, self.open()]

    def text(self, user: str) -> str:
        """What somebody says, with a mark of theirs, which is another after each erasure."""
        return f"{super().text(user)} {_mark(user, self.model.erased[user])}"

    def open(self) -> Holdfast:
        """Under the clock of the machine, which the world has replaced: what it says is not always believed."""
        return Holdfast.open(home=self.home)

    def teardown(self) -> None:
        self.drop_the_copy()
        self.holdfast = self.engines[0]
        for engine in self.engines[1:]:
            engine.close()
        super().teardown()

    # --- years ----------------------------------------------------------------------------------------------------------------

    def live(self, years: int, steps: int) -> None:
        """Let years pass in so many steps, and look at everything after each."""
        self.begin_with_something()
        end = self.clock.now + years * YEAR
        pace = (end - self.clock.now) / steps
        while self.clock.now < end:
            self.let_some_time_pass(pace)
            self.holdfast = self.chance.choice(self.engines)
            name = self.chance.choice(_CHOICES)
            self.take(name, {option: self.chance.choice(values) for option, values in ALL[name].items()})
            self.holdfast = self.chance.choice(self.engines)
            self.check()
        self.holdfast.sweep()
        self.model.sweep(self.now, Part())
        self.check()
        check_sound(self.holdfast)

    def let_some_time_pass(self, pace: timedelta) -> None:
        """Some days, or until the next moment at which something happens, or just before it."""
        ahead = self.model.boundaries(self.now)
        soon = when(ahead[0]) if ahead else None
        if soon is not None and soon - self.clock.now < pace and self.chance.random() < 0.5:
            self.clock.now = max(self.clock.now, soon - timedelta(microseconds=self.chance.choice((0, 1))))
        elif self.chance.random() < _BUSY:
            self.clock.now += timedelta(days=1) * self.chance.random()
        else:  # much is done on a few days, and then nothing for months
            self.clock.now += 2 * pace / (1 - _BUSY) * self.chance.random()
        for engine in self.engines:  # as the job does that runs every minute
            engine.trust.note(self.now)

    def take(self, name: str, given: dict[str, Any]) -> None:
        """One step, with or without something that goes wrong in it."""
        self.fault = self.choose_fault(name)
        said = ", ".join(f"{option}={value!r}" for option, value in given.items())
        self.trail.append(
            f"{self.clock.now:%Y-%m-%d %H:%M:%S.%f} {name}({said})" + f" [{self.fault}]" * bool(self.fault)
        )
        before, self.outcome = copy.deepcopy(self.model), "nothing to do"
        with self.go_wrong():
            getattr(self, name)(**given)
        self.done[f"{name}: {self.outcome}" if self.outcome else name] += 1
        if self.is_lost:
            if name in _IN_PARTS:
                self.finish()
            self.settle(before)

    def check(self) -> None:
        outcome = self.outcome
        super().check()
        self.outcome = outcome

    # --- what goes wrong ------------------------------------------------------------------------------------------------------

    def choose_fault(self, name: str) -> str | None:
        if name in _UNDISTURBED or self.chance.random() < 0.5:
            return None
        if name == "run_the_jobs_that_are_due":  # a job whose store is full says so, and the others are done
            return "it dies"
        if self.is_shared:
            return self.chance.choice(["it dies", "the server goes away", "an answer is lost"])
        return self.chance.choice(["it dies", "it dies", "the disk is full"])

    @contextmanager
    def go_wrong(self) -> Iterator[None]:
        engine = self.holdfast
        if self.fault is None:
            yield
            return
        full = self.fault == "the disk is full"
        what = None if self.fault == "it dies" else partial(_fill_disk, engine) if full else self.go_away
        after = self.fault == "an answer is lost"
        fuse = Fuse(engine, self.chance.choice((0, 0, 1, 1, 2, 3, 5, 8)), what, everywhere=True, after=after)
        fuse.is_lit, self.fuse = False, fuse
        try:
            yield
        finally:
            fuse.remove()
            self.fuse = None
            self.done[self.fault] += bool(fuse.last)
            if self.fault == "the disk is full":
                _free_disk(engine)

    @contextmanager
    def burn(self) -> Iterator[None]:
        """What goes wrong does so in what is tried, not in what is asked to see how that went."""
        if self.fuse is None:
            yield
            return
        self.fuse.is_lit = True
        try:
            yield
        finally:
            self.fuse.is_lit = False

    def go_away(self) -> None:
        self.homes.throw_out(self.home)

    def act(self, verb: Any, *arguments: Any, **options: Any) -> Any:
        if self.is_lost:
            return LOST
        self.outcome = ""
        try:
            with self.burn():
                return verb(*arguments, **options)
        except FAILURES:
            if self.fault is None:
                raise
            self.is_lost, self.cut = True, (verb, arguments, options)
            return LOST

    def refused(self, error: Any, act: Any, *arguments: Any, **options: Any) -> None:
        if self.is_lost:
            return
        self.outcome, self.cut = "refused", (act, arguments, options)
        with pytest.raises((error, *FAILURES) if self.fault else error) as found, self.burn():
            act(*arguments, **options)
        self.is_lost = self.fault is not None and not isinstance(found.value, error)

    def check_swept(self) -> None:
        if not self.is_lost:
            super().check_swept()

    def finish(self) -> None:
        """Whoever asked for what was cut short asks again."""
        verb, arguments, options = self.cut
        memory = verb.__self__
        with self.open() as another, suppress(AgentRemovedError, HeldError, NotFoundError):
            again = another.manager(memory.user_id, memory.agent_id, memory.session_id)
            getattr(again, verb.__name__)(*arguments, **options)

    def settle(self, before: History) -> None:
        """Who is left sweeps. What was cut short has happened then, or it has not."""
        engine, dies = self.holdfast, self.fault == "it dies"
        self.is_lost, self.fault = False, None
        if dies:
            with suppress(DeathError):
                engine.close()
            self.engines[self.engines.index(engine)] = self.open()
        self.holdfast = self.chance.choice(self.engines)
        raw.run(self.holdfast, "UPDATE leases SET expires_at = 0")  # this process, which held them, has not died
        self.holdfast.sweep()
        after = self.model
        if self.find_what_was_lost(before, after):
            if after.erased != before.erased:
                self.forget_rules_and_holds(after)
            after.sweep(self.now, Part())
            try:
                self.check_all()
            except AssertionError:
                pass
            else:
                return
        self.model = before
        before.sweep(self.now, Part())
        self.check_all()

    def check_all(self) -> None:
        """Whatever can be read, and what lies in cold storage, of which nothing else tells whether it was changed."""
        self.check()
        self.check_cold_content()

    def find_what_was_lost(self, before: History, model: History) -> bool:
        """Give what a dead engine made the id that it has; whether it is there. An erasure has begun with its entry in the
        ledger, and is then finished by whoever is left; of one that has not, nobody who has nothing could tell.
        """
        if model.erased != before.erased and self.holdfast.ledger.last() == self.ledger:
            return False
        new = [thing for thing in model.things if thing.id is LOST]
        if new:
            known = {thing.id for thing in model.things if thing.id is not LOST}
            found = [row[0] for row in raw.rows(self.holdfast, "SELECT id FROM records") if row[0] not in known]
            if len(found) != 1:
                return False
            new[0].id = found[0]
        if any(hold is LOST for hold in model.holds.values()):
            model.holds = {hold.id: hold for hold in model.holds.values() if hold is not LOST}
            holds = [hold for hold in self.holdfast.holds.list() if hold.id not in model.holds]
            if len(holds) != 1:
                return False
            model.holds[holds[0].id] = holds[0]
        return True

    # --- more steps -----------------------------------------------------------------------------------------------------------

    def reopen(self) -> None:
        place = self.engines.index(self.holdfast)
        self.act(self.holdfast.close)
        self.holdfast = self.engines[place] = self.open()

    def erase(self, user: str) -> None:
        if self.model.keeps_from_erasure(user):
            self.refused(HeldError, self.holdfast.erase_user, user)
            return
        self.ledger = self.holdfast.ledger.last()
        erasure = self.act(self.holdfast.erase_user, user)
        self.model.erase(user)
        if not self.is_lost and erasure.pending:  # it says that it was cut short: whoever is left goes on with it
            assert self.fault is not None
            self.is_lost = True
        if not self.is_lost:
            self.forget_rules_and_holds(self.model)
            self.check_forgotten(self.home)

    def check_forgotten(self, home: Path) -> None:
        """Nothing of what anybody said who was erased since lies anywhere in a home or on its server, in any form, nor is
        any of it in what they are given of themselves.
        """
        marks = [_mark(user, life) for user, times in self.model.erased.items() for life in range(times)]
        assert search([home, *self.homes.tables(home).items()], Wanted(marks, {})) == {}
        for user in USERS:
            with suppress(NotFoundError):
                given = to_json(self.holdfast.export_user(user))
                assert [mark for mark in marks if mark in given] == []

    def forget_rules_and_holds(self, model: History) -> None:
        """Rules and holds on a session that was theirs alone went with who was erased."""
        used = {thing.session for thing in model.things if thing.state != "gone"}
        listed = {hold.id for hold in self.holdfast.holds.list()}
        for name, hold in list(model.holds.items()):
            if hold.session_id is not None and name not in listed:
                assert hold.session_id not in used
                del model.holds[name]
        there = {(one["memory_type"], one.get("session_id")) for one in self.holdfast.policies.list()}
        for key, rule in list(model.rules.items()):
            if rule.session_id is not None and (rule.kind, rule.session_id) not in there:
                assert rule.session_id not in used
                del model.rules[key]

    def back_up(self) -> None:
        made = self.act(self.holdfast.backups.create)
        if made is not LOST:
            self.backups[made.id] = copy.deepcopy(self.model)

    def choose_backup(self, place: int) -> tuple[str, History] | None:
        """One of the backups that are still there, and what is left of what was in it."""
        listed = [one.id for one in self.holdfast.backups.list() if one.id in self.backups]
        if not listed:
            return None
        name = listed[place % len(listed)]
        return name, self.forget_since(self.backups[name])

    def forget_since(self, held: History) -> History:
        """What there was at an earlier time, without those who were erased since, and without what was kept out since."""
        left = copy.deepcopy(held)
        for user in USERS:
            if self.model.erased[user] > left.erased[user]:
                self.done["an erased user in what comes back"] += any(thing.user == user for thing in left.records())
                left.erase(user)
        return left

    def restore_elsewhere(self, place: int) -> None:
        """The machine is lost, and another takes over from a backup."""
        chosen = self.choose_backup(place)
        if chosen is None:
            return
        backup_id, held = chosen
        for thing in held.things:
            thing.window = None  # what does not last is in no backup
        home = lose_machine(self.home, self.homes)
        held.keep_out_since(self.model, self.now)
        self.look_elsewhere(home, held, lambda again: again.backups.restore(backup_id).whole)

    def copy_the_store(self) -> None:
        """Somebody stops everything, and copies the whole machine."""
        for engine in self.engines:
            self.act(engine.close)
        self.drop_the_copy()
        self.copied = self.homes.copy(self.home, "copy"), copy.deepcopy(self.model)
        self.engines = [self.open() for _ in self.engines]

    def open_the_copy(self) -> None:
        """The copy is used, with the keys and the ledger as they are now: nobody who was erased since is in it."""
        if self.copied is not None:
            (home, was), self.copied = self.copied, None
            for folder in _STATE:
                shutil.rmtree(home / folder, ignore_errors=True)
                if (self.home / folder).exists():
                    shutil.copytree(self.home / folder, home / folder)
            self.look_elsewhere(home, self.forget_since(was), lambda _again: True)

    def drop_the_copy(self) -> None:
        if self.copied is not None:
            self.homes.remove(self.copied[0])

    def look_elsewhere(self, home: Path, held: History, begin: Callable[[Holdfast], bool]) -> None:
        """See that a store that somebody brought back is as it was, without what was forgotten since."""
        mine = self.model, self.holdfast
        try:
            with Holdfast.open(home=home) as again:
                assert self.act(begin, again)
                self.model, self.holdfast = held, again
                self.check_forgotten(home)
                again.sweep(confirm=True)
                held.sweep(self.now, Part())
                self.forget_rules_and_holds(held)
                self.check()
                check_sound(again)
        finally:
            self.model, self.holdfast = mine
            self.homes.remove(home)

    def bring_back(self, place: int) -> None:
        """One memory that was deleted for good, from a backup; into the recycle bin, if its text is to stay out."""
        chosen = self.choose_backup(place)
        if chosen is None:
            return
        backup_id, held = chosen
        there = {thing.id for thing in self.model.records()}
        lost = [thing for thing in held.records() if self.can_come_back(thing) and thing.id not in there]
        if lost:
            thing = lost[place % len(lost)]
            done = self.act(self.holdfast.backups.restore, backup_id, user_id=thing.user, memory_id=thing.id)
            assert done.memories + done.expired + done.kept_out == 1
            self.model.things = [one for one in self.model.things if one.id != thing.id]
            self.model.things.append(thing)
            if self.model.is_kept_out(thing):
                self.model.recycle(thing, self.now)

    def can_come_back(self, thing: Thing) -> bool:
        return thing.state in LIVE and not thing.cold and not self.model.is_removed(thing.agent)

    def leap_ahead(self, days: int) -> None:
        """Somebody sets the clock far ahead, and later sets it right: what cannot be undone is not done meanwhile."""
        self.sweep("here")
        was = self.clock.now
        self.clock.now, self.leaped = was + timedelta(days=days), timedelta(days=days)
        for engine in self.engines:
            self.refused(ClockError, engine.sweep)
        with self.open() as ahead:
            ahead.sweep()
            self.part = Part(bin=False, clears=False)
            self.model.sweep(self.now, self.part)
            seen, self.holdfast = self.holdfast, ahead
            self.check()
        self.holdfast, self.part = seen, Part()
        self.clock.now, self.leaped = was, timedelta()

    def leap_back(self, days: int) -> None:
        """Somebody sets the clock back: nothing is swept until it is right."""
        was = self.clock.now
        self.clock.now, self.leaped = was - timedelta(days=days), -timedelta(days=days)
        for engine in self.engines:
            self.refused(ClockError, engine.sweep)
        with self.open() as behind:
            self.refused(ClockError, behind.sweep)
        self.clock.now, self.leaped = was, timedelta()

    def sweep_in_another_process(self, dies_at: int) -> None:
        """A real one, which kills itself before one of its transactions."""
        script = _KILLED.format(now=self.clock.now.isoformat(), home=str(self.home), dies_at=dies_at)
        ended = Machine(self.home, self.clock.now).attempt(script)
        assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
        raw.run(self.holdfast, "UPDATE leases SET expires_at = 0")
        self.sweep("here")


_KILLED: Final = """
import os, signal
from datetime import datetime
from holdfast import Holdfast
now = datetime.fromisoformat({now!r})
with Holdfast.open(home={home!r}, clock=lambda: now) as holdfast:
    write, count = holdfast.database.write, [0]
    def guarded(*arguments, **options):
        if count[0] == {dies_at}:
            os.kill(os.getpid(), signal.SIGKILL)
        count[0] += 1
        return write(*arguments, **options)
    holdfast.database.write = guarded
    holdfast.sweep()
"""


def _fill_disk(engine: Holdfast) -> None:
    """From here on no page more is to be had, nor is any of the file free."""
    writer = raw.sqlite(engine)._writer
    writer.execute("PRAGMA incremental_vacuum").fetchall()
    writer.execute(f"PRAGMA max_page_count = {writer.pragma('page_count')}")


def _free_disk(engine: Holdfast) -> None:
    raw.sqlite(engine)._writer.execute(f"PRAGMA max_page_count = {2**32 - 2}")
