"""Working memory lies in the process: no verb of it waits for the store, and an erasure elsewhere reaches it in time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raw
from clocks import FakeClock, Seconds
from holdfast import Holdfast, MemoryManager, NotFoundError
from holdfast.core.errors import StoreAwayError
from holdfast.core.records import Message, Scope, Subject
from holdfast.memory.working import GRACE_SECONDS, LEASE_SECONDS, WorkingStore
from holdfast.ports.subjects import MARK_DAYS, ErasureMark, mark_erasure
from holdfast.storage.stores import stores_over

ANN = Scope("default", "ann", "guide", "s")
BOB = Scope("default", "bob", "guide", "s")


class Questions(list[str]):
    """Everything that an engine asks of its database from now on."""

    def __init__(self, holdfast: Holdfast) -> None:
        super().__init__()
        database: Any = holdfast.database
        for name in ("read", "ask", "write", "govern", "alone"):
            setattr(database, name, self._noted(name, getattr(database, name)))

    def _noted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **options: Any) -> Any:
            self.append(name)
            return call(*arguments, **options)

        return noted


def timed_by(holdfast: Holdfast, clock: Seconds) -> None:
    """Let an engine's working memory go by a clock of the test."""
    subjects = stores_over(holdfast.database).subjects
    store = WorkingStore(subjects.erased_within, holdfast.recall.forget_user, [clock])
    object.__setattr__(holdfast.services, "working", store)


def contents(memory: MemoryManager) -> list[str]:
    return [item.content for item in memory.working.items()]


def let_erasures_be_older(holdfast: Holdfast, seconds: float) -> None:
    raw.run(holdfast, f"UPDATE recent_erasures SET erased_at = erased_at - {int(seconds * 1e6)}")  # noqa: S608


# --- the hot path -----------------------------------------------------------------------------------------------------


def test_no_note_costs_a_question_to_the_store_not_even_for_the_first_note_of_a_new_user(holdfast: Holdfast) -> None:
    memory = holdfast.manager("nobody knows them yet", "guide", "s")
    asked = Questions(holdfast)

    note = memory.add("on the way to Paris", "working")["memory_id"]
    memory.add_many(["a window seat", "no luggage"], "working")
    assert [found["memory_id"] for found in memory.retrieve("Paris", ["working"], top_k=1)] == [note]
    assert memory.get(note)["content"] == "on the way to Paris"
    memory.update(note, content="on the way to Lyon")
    assert memory.working.delete(note)  # memory.delete also looks for durable memories that were derived from it
    assert memory.count_memories("working") == 2
    assert memory.end_task() == 2

    assert asked == []


def test_notes_leave_no_trace_of_their_user_in_the_store(holdfast: Holdfast) -> None:
    holdfast.manager("ann", "guide", "s").add("on the way to Paris", "working")
    assert raw.rows(holdfast, "SELECT subject FROM subjects WHERE subject = 'default/ann'") == []


def test_one_question_in_ten_seconds_serves_the_notes_of_all_users(holdfast: Holdfast) -> None:
    clock = Seconds()
    timed_by(holdfast, clock)
    memories = [holdfast.manager(f"user {number}", "guide", "s") for number in range(20)]
    for memory in memories:
        memory.working.add("a note")
    asked = Questions(holdfast)
    for _ in range(3):
        clock.advance(LEASE_SECONDS)
        assert all(contents(memory) == ["a note"] for memory in memories)
        clock.advance(0.1)
        assert all(contents(memory) == ["a note"] for memory in memories)
    assert asked in (["ask"] * 3, ["ask", "read"] * 3)  # on SQLite, to ask is to read


# --- erasures elsewhere -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_known", [True, False], ids=["with memories", "with notes alone"])
def test_notes_of_a_user_who_was_erased_elsewhere_cannot_be_read_ten_seconds_later(
    home: Path, clock: FakeClock, *, is_known: bool
) -> None:
    with Holdfast.open(home=home, clock=clock) as one, Holdfast.open(home=home, clock=clock) as other:
        seconds = Seconds()
        timed_by(other, seconds)
        memory, bobs = other.manager("ann", "guide", "s"), other.manager("bob", "guide", "s")
        note = memory.add("Ann is on her way to Paris", "working")["memory_id"]
        bobs.add("Bob stays in Paris", "working")
        if is_known:
            memory.add("likes the window seat", "long_term")
        assert len(memory.retrieve("Paris", ["working"])) == 1

        erasure = one.erase_user("ann")
        seconds.advance(LEASE_SECONDS + 0.1)

        assert (erasure.certificate is not None) == is_known, "who is not in the store is not in the ledger"
        if erasure.certificate is not None:
            assert any(f"{LEASE_SECONDS:g} seconds" in remark for remark in erasure.certificate["remarks"])
            assert any(f"{GRACE_SECONDS:g} seconds" in remark for remark in erasure.certificate["remarks"])
        assert memory.retrieve("Paris", ["working"]) == []
        with pytest.raises(NotFoundError):
            other.export_user("ann")
        assert (contents(memory), memory.count_memories("working")) == ([], 0)
        with pytest.raises(NotFoundError):
            memory.get(note)
        assert len(bobs.retrieve("Paris", ["working"])) == 1, "nobody else's"


def test_the_process_that_erases_lets_go_of_notes_at_once_and_keeps_those_that_come_after(holdfast: Holdfast) -> None:
    seconds = Seconds()
    timed_by(holdfast, seconds)
    memory = holdfast.manager("ann", "guide", "s")
    memory.working.add("before")
    assert holdfast.erase_user("ann").kinds["working"] == 1
    assert contents(memory) == []
    let_erasures_be_older(holdfast, LEASE_SECONDS + 5)
    memory.working.add("after")
    seconds.advance(LEASE_SECONDS + 1)
    assert contents(memory) == ["after"]


def test_a_user_who_comes_back_keeps_what_was_noted_after_the_erasure(home: Path, clock: FakeClock) -> None:
    with Holdfast.open(home=home, clock=clock) as one, Holdfast.open(home=home, clock=clock) as other:
        seconds = Seconds()
        timed_by(other, seconds)
        memory = other.manager("ann", "guide", "s")
        memory.working.add("before")
        one.erase_user("ann")
        let_erasures_be_older(one, 20)
        seconds.advance(100)
        memory.working.add("after")
        seconds.advance(LEASE_SECONDS + 1)
        assert contents(memory) == ["after"]


def test_a_mark_of_an_erasure_is_kept_for_a_week_and_names_nobody(holdfast: Holdfast) -> None:
    holdfast.erase_user("ann")
    holdfast.erase_user("bob")
    ((salt, digest),) = raw.rows(holdfast, "SELECT salt, digest FROM recent_erasures LIMIT 1")
    assert ErasureMark(bytes(salt), bytes(digest)).is_of(Subject("default", "ann")) != ErasureMark(
        bytes(salt), bytes(digest)
    ).is_of(Subject("default", "bob"))
    let_erasures_be_older(holdfast, MARK_DAYS * 86_400 - 600)
    holdfast.sweep()
    assert len(raw.rows(holdfast, "SELECT salt FROM recent_erasures")) == 2
    let_erasures_be_older(holdfast, 601)
    holdfast.sweep()
    assert raw.rows(holdfast, "SELECT salt FROM recent_erasures") == []


# --- the lease --------------------------------------------------------------------------------------------------------


class Erasures:
    """A store of which one asks who was erased."""

    def __init__(self) -> None:
        self.is_away = False
        self.marks: list[ErasureMark] = []
        self.asked: list[float] = []

    def __call__(self, seconds: float) -> list[ErasureMark]:
        self.asked.append(seconds)
        if self.is_away:
            raise StoreAwayError("the store does not answer")
        return [mark for mark in self.marks if mark.age_seconds <= seconds]

    def erase(self, subject: Subject, seconds_ago: float) -> None:
        self.marks.append(mark_erasure(subject, b"salt")._replace(age_seconds=seconds_ago))


def note(content: str) -> Message:
    return Message(content, "note", content, 0, {})


def test_while_the_store_is_away_notes_can_be_read_for_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock, erasures = Seconds(), Erasures()
    store = WorkingStore(erasures, clocks=[clock])
    store.put(ANN, [note("one")], prune=False)
    erasures.is_away = True
    clock.advance(LEASE_SECONDS)
    assert store.items(ANN)
    assert not erasures.asked
    clock.advance(GRACE_SECONDS - LEASE_SECONDS)
    for _ in range(5):
        assert store.items(ANN), "in grace"
    assert len(erasures.asked) == 1, "a store that is away is not asked by everyone"
    assert "cannot be asked" in caplog.text
    clock.advance(0.1)
    with pytest.raises(StoreAwayError):
        store.items(ANN)
    assert store.put(BOB, [note("two")], prune=False)[0].memories == 1, "a new note needs nobody"
    assert store.items(BOB)
    erasures.is_away = False
    assert store.items(ANN), "the store is back"


def test_what_was_erased_while_the_store_was_away_is_gone_when_it_is_back() -> None:
    clock, erasures = Seconds(), Erasures()
    store = WorkingStore(erasures, clocks=[clock])
    store.put(ANN, [note("one")], prune=False)
    erasures.is_away = True
    clock.advance(50)
    assert store.items(ANN)
    erasures.is_away = False
    erasures.erase(ANN.subject, seconds_ago=30)
    clock.advance(6)
    assert store.items(ANN) == []


@pytest.mark.parametrize("faulty", [0, 1], ids=["the first stands still", "the second is set back"])
def test_a_clock_that_stands_still_or_is_set_back_does_not_keep_notes_of_an_erased_user(faulty: int) -> None:
    clocks, erasures = [Seconds(), Seconds()], Erasures()
    store = WorkingStore(erasures, clocks=clocks)
    store.put(ANN, [note("one")], prune=False)
    clocks[1 - faulty].advance(3_600)
    clocks[faulty].advance(-3_600 * faulty)
    erasures.erase(ANN.subject, seconds_ago=1_800)
    assert store.items(ANN) == []


def test_a_process_that_did_not_look_for_a_week_lets_go_of_notes_that_are_older() -> None:
    clock, erasures = Seconds(), Erasures()
    store = WorkingStore(erasures, clocks=[clock])
    store.put(ANN, [note("old")], prune=False)
    clock.advance(MARK_DAYS * 86_400)
    store.put(ANN, [note("new")], prune=False)
    clock.advance(LEASE_SECONDS + 1)
    assert [item.content for item in store.items(ANN)] == ["new"]
