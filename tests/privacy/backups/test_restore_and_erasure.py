"""Whatever comes between, a restore is finished by doing it again, and never brings back a life that was erased."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raw
from clocks import FakeClock
from effort import soak, stride, times
from holdfast import Holdfast
from holdfast.core.errors import KeyDestroyedError, NotFoundError
from holdfast.core.records import KIND_BITS
from homes import Homes
from lifecycle.fuses import DeathError, Fuse
from lifecycle.soundness import check_sound
from privacy.backups.losses import lose, remember, rows_in
from privacy.backups.stores import lose_machine

TABLES = ("records", "sessions", "history", "facts")


def burning(holdfast: Holdfast, at: int) -> Fuse:
    """A fuse on everything that a restore does: transactions, and objects that are put into cold storage."""
    fuse = Fuse(holdfast, at)
    host: Any = holdfast.backups._host
    cold: Any = host.open_cold()
    put = cold.put

    def guarded(*arguments: Any, **options: Any) -> Any:
        fuse.burn("a put of a cold object")
        return put(*arguments, **options)

    cold.put = guarded
    host.open_cold = lambda: cold
    return fuse


def state_of(holdfast: Holdfast) -> dict[str, Any]:
    """What a user has, and what lies in cold storage; versions of sessions count how often messages came."""
    return {table: rows_in(holdfast, table, "ann") for table in TABLES if table != "sessions"}


def prepare(home: Path, clock: FakeClock) -> str:
    """A store of which a user has lost cold memories, warm ones, a conversation and facts; the backup's id."""
    with Holdfast.open(home=home, clock=clock) as holdfast:
        memory = holdfast.manager("ann", "guide", "trip")
        cold = [memory.add(f"ann was in town {n}. " * 20, "long_term")["memory_id"] for n in range(3)]
        clock.advance(days=366)
        holdfast.sweep()
        kept = remember(holdfast, "ann")
        backup = holdfast.backups.create()
        before = state_of(holdfast)
        holdfast.sessions.remove("guide", "trip", user_id="ann")
        lose(holdfast, clock, "ann", cold[0], *kept.values())
        assert state_of(holdfast) != before
    return backup.id


@soak
def test_a_crash_at_any_effect_is_made_good_by_restoring_again(
    homes: Homes, clock: FakeClock, engine_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.backups.merge._ROWS", 5)
    before = homes.new("before")
    backup_id = prepare(before, clock)
    whole = homes.copy(before, "whole")
    with Holdfast.open(home=whole, clock=clock) as holdfast:
        holdfast.backups.restore(backup_id, user_id="ann")
        wanted = state_of(holdfast)
    effects = 0
    while True:
        home = homes.copy(before, f"crash {effects}")
        holdfast = Holdfast.open(home=home, clock=clock)
        fuse = burning(holdfast, effects)
        try:
            holdfast.backups.restore(backup_id, user_id="ann")
        except DeathError:
            pass
        finally:
            holdfast.close()
        if not fuse.is_dead:
            break
        where = f"died before {fuse.last}, effect {effects}"
        with Holdfast.open(home=home, clock=clock) as again:
            raw.run(again, "DELETE FROM leases")  # its time is over
            again.sweep()
            again.backups.restore(backup_id, user_id="ann")
            assert state_of(again) == wanted, where
            again.sweep()
            check_sound(again)
        homes.remove(home)
        effects += stride(engine_name)
    assert effects > 5


def test_an_erasure_at_the_same_time_comes_before_or_after(holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.backups.merge._ROWS", 2)
    remember(holdfast, "ann")
    backup = holdfast.backups.create()
    begun = threading.Event()

    def restore() -> None:
        for _ in range(200):
            holdfast.backups.restore(backup.id, user_id="ann", overwrite=True, progress=lambda _count: begun.set())

    with ThreadPoolExecutor(1) as pool:
        restoring = pool.submit(restore)
        begun.wait(60)
        erasure = holdfast.erase_user("ann")
        with pytest.raises(KeyDestroyedError, match="was erased"):
            restoring.result(120)

    assert not holdfast.erase_user("ann").pending
    assert erasure.alias is not None
    for table in (*TABLES, "packs", "derivations"):
        assert raw.rows(holdfast, f"SELECT count(*) FROM {table}") == [(0,)], table  # noqa: S608
    assert holdfast.audit.verify()


# --- everything at random --------------------------------------------------------------------------------------------


USERS = ("ann", "bob")


@dataclass
class Model:
    """What is to be there: the texts of each user's life, and what backups know of whose life."""

    lives: dict[str, int] = field(default_factory=lambda: dict.fromkeys(USERS, 0))
    texts: dict[str, set[str]] = field(default_factory=lambda: {user: set() for user in USERS})
    known: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(USERS, False))
    backups: list[tuple[str, dict[str, tuple[int, frozenset[str]]]]] = field(default_factory=list)
    count: int = 0

    def bring_back(self, user: str, kept: dict[str, tuple[int, frozenset[str]]]) -> None:
        """What a restore does to a user."""
        if user in kept and kept[user][0] == self.lives[user]:
            self.texts[user] |= kept[user][1]
            self.known[user] = True


def step(holdfast: Holdfast, model: Model, verb: str, user: str, which: int) -> None:
    memory = holdfast.manager(user, "guide", "trip")
    match verb:
        case "add":
            model.count += 1
            text = f"life {model.lives[user]} of {user}, memory {model.count}"
            memory.add(text, "long_term")
            model.texts[user].add(text)
            model.known[user] = True
        case "lose":  # all of it, without a word: as if by somebody else's hand
            number = "(SELECT no FROM subjects WHERE subject = ?)"
            whose = (f"default/{user}",)
            raw.run(holdfast, f"DELETE FROM records WHERE subject = {number}", whose)  # noqa: S608
            counted = "seq = seq + 1, floor = seq + 1, memories = 0, bytes = 0"
            raw.run(holdfast, f"UPDATE scopes SET {counted} WHERE scope >> {KIND_BITS} = {number}", whose)  # noqa: S608
            model.texts[user] = set()
        case "create":
            made = holdfast.backups.create()
            kept = {u: (model.lives[u], frozenset(model.texts[u])) for u in USERS if model.known[u]}
            model.backups.append((made.id, kept))
        case "erase":
            holdfast.erase_user(user)
            model.lives[user] += model.known[user]
            model.texts[user], model.known[user] = set(), False
        case "restore" if model.backups:
            backup_id, kept = model.backups[which % len(model.backups)]
            alive = user in kept and kept[user][0] == model.lives[user]
            if alive:
                holdfast.backups.restore(backup_id, user_id=user)
                model.bring_back(user, kept)
            else:
                with pytest.raises((KeyDestroyedError, NotFoundError)):
                    holdfast.backups.restore(backup_id, user_id=user, overwrite=True)
        case "restore all" if model.backups:
            backup_id, kept = model.backups[which % len(model.backups)]
            if raw.rows(holdfast, "SELECT 1 FROM subjects WHERE subject LIKE 'default/%'"):
                holdfast.backups.restore(backup_id)
                for one in USERS:
                    model.bring_back(one, kept)


VERBS = ("add", "add", "lose", "create", "erase", "restore", "restore", "restore all")
STEPS = st.lists(st.tuples(st.sampled_from(VERBS), st.sampled_from(USERS), st.integers(0, 5)), min_size=4, max_size=14)


@pytest.fixture(scope="module")
def module_homes(engine_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Homes]:
    with Homes(engine_name, tmp_path_factory.mktemp("lives")) as made:
        yield made


@soak
def test_no_restore_brings_back_a_life_that_was_erased(module_homes: Homes, engine_name: str) -> None:
    made = 0

    @settings(max_examples=times(6, engine_name))
    @given(steps=STEPS)
    def check(steps: list[tuple[str, str, int]]) -> None:
        nonlocal made
        made += 1
        home = module_homes.new(f"example {made}")
        model = Model()
        with Holdfast.open(home=home, clock=FakeClock()) as holdfast:
            for verb, user, which in [("add", "ann", 0), ("create", "ann", 0), *steps]:
                step(holdfast, model, verb, user, which)
            for user in USERS:
                there = holdfast.manager(user, "guide", "trip").list_memories("long_term", limit=100)
                assert sorted(item["content"] for item in there) == sorted(model.texts[user])
            assert holdfast.audit.verify()
        module_homes.remove(home)

    check()


def test_a_hold_on_a_memory_of_someone_who_was_erased_does_not_come_back(homes: Homes, clock: FakeClock) -> None:
    home = homes.new()
    with Holdfast.open(home=home, clock=clock) as holdfast:
        ids = {user: holdfast.manager(user, "guide").add("likes tea")["memory_id"] for user in ("ann", "bob")}
        holds = {user: holdfast.holds.add(memory_id=ids[user], reason="a case", author="counsel") for user in ids}
        backup = holdfast.backups.create()
        holdfast.holds.release(holds["ann"].id, author="counsel")
        holdfast.erase_user("ann")
    with Holdfast.open(home=lose_machine(home, homes), clock=clock) as again:
        assert again.backups.restore(backup.id).erased == 1
        assert [hold.id for hold in again.holds.list()] == [holds["bob"].id]
