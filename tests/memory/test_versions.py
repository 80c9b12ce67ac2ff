"""Corrections that hold: a memory has versions, one of them is current, and what ended is never recalled as it is now."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from clocks import FakeClock
from holdfast import Holdfast, MemoryManager
from holdfast.core.audit import acting_as
from holdfast.core.errors import (
    ConfirmationNeededError,
    ConflictError,
    HeldError,
    InvalidContentError,
    InvalidInputError,
    InvalidKindError,
    InvalidRuleError,
    NotFoundError,
)

WHERE = "Where does Ann live?"


def contents(found: list[Any]) -> list[str]:
    return [one["content"] for one in found]


def said(memory: MemoryManager, memory_id: str) -> list[str]:
    return contents(memory.history(memory_id))


# --- adding versions --------------------------------------------------------------------------------------------------


def test_what_is_added_under_a_key_again_corrects_the_memory_that_has_it(memory: MemoryManager) -> None:
    first = memory.add("Ann lives in Paris.", key="home_city")
    again = memory.add("Ann lives in Lyon.", metadata={"sure": True}, key="home_city")

    assert (first["operation"], again["operation"], again["version"]) == ("add", "corrected", 2)
    assert again["memory_id"] == first["memory_id"]
    assert again["quota_remaining"] == first["quota_remaining"], "an ended version counts towards no quota"
    assert contents(memory.retrieve(WHERE)) == ["Ann lives in Lyon."]
    found = memory.get(first["memory_id"])
    assert (found["version"], found["key"], found["metadata"]) == (2, "home_city", {"sure": True})
    assert memory.count_memories() == 1


def test_a_memory_is_superseded_and_corrected_by_its_id(memory: MemoryManager) -> None:
    memory_id = memory.add("Ann lives in Paris.", metadata={"topic": "home"})["memory_id"]

    assert memory.add("Ann lives in Lyon.", supersedes=memory_id)["version"] == 2
    assert memory.correct(memory_id, "Ann lives in Nice.", reason="she said so")["operation"] == "corrected"
    assert memory.update(memory_id, "Ann lives in Lille.")["version"] == 4

    assert said(memory, memory_id) == [f"Ann lives in {city}." for city in ("Paris", "Lyon", "Nice", "Lille")]
    assert contents(memory.retrieve(WHERE)) == ["Ann lives in Lille."]


def test_what_is_close_is_shown_with_a_key_and_with_an_id_too(memory: MemoryManager) -> None:
    memory.add_many(["She has two cats", "The car is red", "Skiing was great"])
    close = memory.add("Ann lives in Paris.")["memory_id"]
    by_key = memory.add("Ann lives in Lyon.", key="city", similar=3)
    assert [one["memory_id"] for one in by_key["similar"]] == [close]
    by_id = memory.add("Ann lives in Nice.", supersedes=by_key["memory_id"], similar=3)
    assert (by_id["version"], [one["memory_id"] for one in by_id["similar"]]) == (2, [close])
    for wrong in (-1, 1.5, "3"):
        with pytest.raises(InvalidInputError, match="similar"):
            memory.add("Ann lives in Lille.", key="city", similar=wrong)  # type: ignore[arg-type]
    assert memory.get(by_id["memory_id"])["content"] == "Ann lives in Nice."


def test_an_agent_has_its_own_keys_where_it_has_its_own_memories(holdfast: Holdfast) -> None:
    guide, cook = holdfast.manager("ann", "guide"), holdfast.manager("ann", "cook")
    shared = guide.add("Ann lives in Paris.", key="fact")["memory_id"]
    own = guide.add("I am a guide.", "persona", key="fact")["memory_id"]

    assert cook.add("Ann lives in Lyon.", key="fact")["memory_id"] == shared
    assert cook.add("I am a cook.", "persona", key="fact")["operation"] == "add"
    assert guide.get(own)["key"] == "fact"
    assert contents(guide.history(key="fact", memory_type="persona")) == ["I am a guide."]


def test_a_version_of_documents_and_entities_ends_where_they_are_changed(memory: MemoryManager) -> None:
    document = memory.structured.put("prices", {"tea": 1}, key="cafe")
    memory.structured.put("prices", {"tea": 2}, key="cafe")
    ann = memory.entity.add("Ann", attributes={"city": "Paris"})
    memory.entity.set("Ann", {"city": "Lyon"})

    assert said(memory, document) == ['{"tea":1}', '{"tea":2}']
    assert [one.splitlines()[-1] for one in said(memory, ann)[-2:]] == ["city: Paris", "city: Lyon"]
    assert memory.correct(document, {"tea": 3})["version"] == 3
    assert memory.structured.get("prices", "cafe") == {"tea": 3}
    memory.revert(document, to=1)
    assert memory.structured.get("prices", "cafe") == {"tea": 1}


def test_what_cannot_be_corrected_is_refused_with_a_reason(memory: MemoryManager) -> None:
    gone = memory.add("Ann lives in Paris.")["memory_id"]
    memory.delete(gone)
    trait = memory.add("I am a guide.", "persona")["memory_id"]
    ann = memory.entity.add("Ann")

    with pytest.raises(NotFoundError, match="recycle bin"):
        memory.add("Ann lives in Lyon.", supersedes=gone)
    with pytest.raises(InvalidInputError, match="persona memory"):
        memory.add("Ann lives in Lyon.", supersedes=trait)
    for kind in ("working", "short_term", "entity", "structured"):
        with pytest.raises(InvalidKindError):
            memory.add({"a": 1} if kind == "structured" else "note", kind, key="note")
    with pytest.raises(InvalidKindError, match=r"entity\.add"):
        memory.correct(ann, "Ann")
    with pytest.raises(InvalidKindError, match=r"entity\.add"):
        memory.revert(ann, to=1)
    with pytest.raises(NotFoundError, match="goes by the key"):
        memory.history(key="nothing")
    with pytest.raises(InvalidInputError, match="id of a memory or its key"):
        memory.history()
    with pytest.raises(NotFoundError, match="no ended version 7"):
        memory.revert(trait, to=7)
    with pytest.raises(InvalidInputError):
        memory.add("note", key="")
    for nothing in (None, "", " ", 7):
        with pytest.raises(InvalidContentError):
            memory.correct(trait, nothing)  # type: ignore[arg-type]
    assert len(memory.history(trait)) == 1
    for number in (0, True, "1"):
        with pytest.raises(InvalidInputError):
            memory.revert(trait, to=number)  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match="no ended version 1200"):
        memory.revert(trait, to=1_200)  # what is corrected every day has so many one day


def test_a_key_is_one_memorys_until_that_is_in_the_bin(memory: MemoryManager) -> None:
    first = memory.add("Ann lives in Paris.", key="city")["memory_id"]
    other = memory.add("Ann likes tea.")["memory_id"]
    with pytest.raises(ConflictError):
        memory.add("Ann lives in Lyon.", supersedes=other, key="city")
    memory.delete(first)
    second = memory.add("Ann lives in Lyon.", key="city")["memory_id"]
    assert second != first
    with pytest.raises(ConflictError):
        memory.restore(first)


def test_corrections_at_once_give_a_version_each(holdfast: Holdfast) -> None:
    memory_id = holdfast.manager("ann", "guide").add("Ann lives in 0.", key="city")["memory_id"]

    def correct(number: int) -> int:
        memory = holdfast.manager("ann", f"agent {number}")
        by_key = memory.add(f"Ann lives in {number}.", key="city")
        return by_key["version"] if number % 2 else memory.correct(memory_id, f"Ann lives in {number}.")["version"]

    with ThreadPoolExecutor(4) as pool:
        versions = list(pool.map(correct, range(1, 7)))
    memory = holdfast.manager("ann", "guide")
    assert len(set(versions)) == 6
    assert [one["version"] for one in memory.history(memory_id)] == list(range(1, 11))
    assert memory.count_memories() == 1


# --- how long -----------------------------------------------------------------------------------------------------


def test_age_counts_from_a_correction_and_not_from_an_update(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    keyed = memory.add("Ann lives in Paris.", key="city")["memory_id"]
    updated = memory.add("Ann likes tea.")["memory_id"]
    clock.advance(days=300)
    memory.add("Ann lives in Lyon.", key="city")
    memory.update(updated, "Ann likes green tea.")
    clock.advance(days=100)
    assert "365 days after it was corrected" in memory.explain(keyed)["summary"]
    holdfast.sweep(confirm=True)
    assert not memory.get(keyed)["is_archived"]
    assert memory.get(updated)["is_archived"]


CORRECTIONS: dict[str, Callable[[MemoryManager, str], Any]] = {
    "correct": lambda memory, one: memory.correct(one, "Ann lives in Lyon."),
    "supersedes": lambda memory, one: memory.add("Ann lives in Lyon.", supersedes=one),
    "key": lambda memory, _: memory.add("Ann lives in Lyon.", key="city"),
    "revert": lambda memory, one: memory.revert(one, to=1),
}


@pytest.mark.parametrize("correct", CORRECTIONS.values(), ids=CORRECTIONS)
def test_every_correction_lets_the_age_count_anew_and_takes_no_room(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock, correct: Callable[[MemoryManager, str], Any]
) -> None:
    memory_id = memory.add("Ann lives in Nice.", key="city")["memory_id"]
    memory.update(memory_id, "Ann lives in Metz.")
    holdfast.quotas.set("long_term", max_memories=1, max_bytes=40, user_id=memory.user_id)
    clock.advance(days=300)
    correct(memory, memory_id)
    clock.advance(days=364)
    holdfast.sweep(confirm=True)
    assert not memory.get(memory_id)["is_archived"]
    clock.advance(days=1)
    assert memory.get(memory_id)["is_archived"]


def test_a_correction_reaches_an_archived_copy_too(holdfast: Holdfast, memory: MemoryManager, clock: FakeClock) -> None:
    copy = memory.add("Ann lives in Paris.", metadata={"said": "in May"})["memory_id"]
    clock.advance(days=366)
    holdfast.sweep(confirm=True)
    assert memory.get(copy)["is_archived"]
    known = memory.add("Ann lives in Paris.")["memory_id"]

    memory.correct(known, "Ann lives in Lyon.")

    found = memory.retrieve("Where does Ann live?", include_archived=True)
    assert [one["content"] for one in found] == ["Ann lives in Lyon."]
    back = memory.get(copy)
    assert (back["content"], back["is_archived"], back["metadata"]) == ("Ann lives in Lyon.", False, {"said": "in May"})
    assert said(memory, copy) == ["Ann lives in Paris.", "Ann lives in Lyon."]


def test_rules_say_how_many_versions_are_kept_and_for_how_long(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory_id = memory.add("0", "persona")["memory_id"]
    for number in range(1, 13):
        clock.advance(days=1)
        memory.correct(memory_id, str(number))
    assert said(memory, memory_id) == [str(number) for number in range(2, 13)], "ten that ended, and the current one"

    with pytest.raises(ConfirmationNeededError):
        holdfast.policies.set("persona", versions=3)
    holdfast.policies.set("persona", versions=3, confirm=True)
    assert said(memory, memory_id) == ["9", "10", "11", "12"], "at once, whether or not a sweep has run"
    assert holdfast.policies.get("persona")["versions"] == 3
    nine = holdfast.sweep(dry_run=True).counts["delete"]
    assert nine == holdfast.sweep().counts["delete"] == 9, "two of them nobody saw before either"
    holdfast.policies.set("persona", versions_days=2, confirm=True)
    assert said(memory, memory_id) == ["10", "11", "12"]
    clock.advance(days=2)
    assert said(memory, memory_id) == ["12"]
    with pytest.raises(InvalidRuleError):
        holdfast.policies.set("history", versions=3)
    with pytest.raises(InvalidRuleError):
        holdfast.policies.set("persona", versions=-1)


@pytest.mark.parametrize("begins_now", [False, True])
def test_what_a_rule_does_not_keep_is_not_recalled_as_of_its_time(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock, *, begins_now: bool
) -> None:
    began = clock.now
    memory_id = memory.add("Ann lives at number 0", "persona")["memory_id"]
    for number in range(1, 13):
        clock.advance(days=1)
        memory.correct(memory_id, f"Ann lives at number {number}")

    def recalled() -> list[int]:
        """The days as of which something is recalled, which is what was said then."""
        if begins_now:
            holdfast.recall.forget()
        told = [contents(memory.retrieve(WHERE, "persona", as_of=began + timedelta(days=day))) for day in range(13)]
        assert all(one == [f"Ann lives at number {day}"] for day, one in enumerate(told) if one)
        return [day for day, one in enumerate(told) if one]

    assert recalled() == list(range(2, 13))
    holdfast.policies.set("persona", versions=5, confirm=True)
    assert recalled() == list(range(7, 13))
    holdfast.policies.set("persona", versions=5, versions_days=3, confirm=True)
    assert recalled() == list(range(9, 13))
    clock.advance(days=2)
    assert recalled() == list(range(11, 13))


def test_a_preview_counts_the_versions_that_a_sweep_would_delete(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    other = holdfast.manager("bob", "guide")
    one, two = (memory.add(f"0 {name}", "persona")["memory_id"] for name in ("a", "b"))
    bobs = other.add("0 c", "persona")["memory_id"]
    for number in range(1, 6):
        clock.advance(days=1)
        for whose, memory_id in ((memory, one), (memory, two), (other, bobs)):
            whose.correct(memory_id, f"{number} {memory_id}")
    holdfast.holds.add(memory_id=two, reason="a dispute", author="legal")

    def preview(**wanted: Any) -> tuple[bool, int, int, int]:
        found = holdfast.policies.preview("persona", **wanted)
        assert found.newly_due["delete"] == 0
        return found.shortens, found.versions_due["versions"], found.versions_due["memories"], found.held

    assert preview(versions=20) == (False, 0, 0, 0)
    assert preview(versions=3) == (True, 4, 2, 2), "two of each, and two are on hold"
    assert preview(versions=3, user_id="bob") == (True, 2, 1, 0)
    assert preview(versions_days=2) == (True, 6, 2, 3)
    assert preview(versions=3, versions_days=3) == (True, 4, 2, 2), "what is too many and too old counts once"
    assert "4 old versions of 2 memories" in holdfast.policies.preview("persona", versions=3).describe()
    done = holdfast.policies.set("persona", versions=3, confirm=True)
    assert done["versions_due"] == {"versions": 4, "memories": 2}
    report = holdfast.sweep(dry_run=True)
    assert (report.counts["delete"], report.bytes) == (4, done["bytes"])
    assert holdfast.sweep().counts["delete"] == 4
    assert preview(versions=2) == (True, 2, 2, 1)
    holdfast.policies.set("persona", versions=20)
    assert holdfast.sweep(dry_run=True).counts["delete"] == 0


def test_a_correction_that_pushes_a_version_out_says_so_on_the_chain(holdfast: Holdfast, memory: MemoryManager) -> None:
    holdfast.policies.set("persona", versions=2, confirm=True)
    memory_id = memory.add("0", "persona")["memory_id"]
    with acting_as(memory.user_id):  # the chain names no user
        for number in range(1, 5):
            memory.correct(memory_id, str(number), reason="she said so")
    memory.add("again", "persona", key="k")
    for number in range(3):
        memory.add(f"again {number}", "persona", key="k")
    entries = [one for one in holdfast.audit.tail() if one["action"] == "versions.deleted"]
    assert [one["detail"]["versions"] for one in entries] == [[1], [2], [1]]
    assert {one["item"] for one in entries[:2]} == {memory_id}
    assert [one["version"] for one in memory.history(memory_id)] == [3, 4, 5]
    assert holdfast.audit.verify()


def test_what_a_hold_kept_of_too_many_versions_goes_when_it_is_released(
    holdfast: Holdfast, memory: MemoryManager
) -> None:
    memory_id = memory.add("0", "persona")["memory_id"]
    hold = holdfast.holds.add(memory_id=memory_id, reason="a dispute", author="legal")
    for number in range(1, 14):
        memory.correct(memory_id, str(number))
    assert holdfast.sweep(dry_run=True).counts["delete"] == 0
    holdfast.holds.release(hold.id)
    assert holdfast.sweep().counts["delete"] == 3
    assert len(said(memory, memory_id)) == 11


def test_a_sweep_deletes_versions_that_are_past_their_time_but_none_on_hold(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    held = memory.add("0", "persona")["memory_id"]
    free = memory.add("zero", "persona")["memory_id"]
    memory.correct(held, "1")
    memory.correct(free, "one")
    holdfast.holds.add(memory_id=held, reason="a dispute", author="legal")
    clock.advance(days=366)
    memory.correct(held, "2")
    plan = holdfast.sweep(dry_run=True)
    assert [(line.memory_type, line.records) for line in plan.lines] == [("version", 1)]
    assert holdfast.sweep(digest=plan.digest).counts["delete"] == 1
    exported = {one["memory_id"]: one["versions"] for one in memory.export_kind(memory.user_id, "persona")}
    assert contents(exported[held]) == ["0", "1"], "a hold keeps them, though nobody sees what is past its time"
    assert exported[free] == []
    (entry,) = [one for one in holdfast.audit.tail() if one["action"] == "versions.deleted"]
    assert (entry["item"], entry["detail"]["versions"]) == (free, [1])
    assert said(memory, held) == ["1", "2"]
    with pytest.raises(HeldError):
        memory.delete(held)


# --- looking back ---------------------------------------------------------------------------------------------------


def test_history_names_who_ended_a_version_and_why(memory: MemoryManager, clock: FakeClock) -> None:
    memory_id = memory.add("Ann lives in Paris.", source="import:crm")["memory_id"]
    began = clock.now
    clock.advance(days=1)
    with acting_as("support"):
        memory.correct(memory_id, "Ann lives in Lyon.", reason="she moved")
    first, current = memory.history(memory_id)
    assert (first["version"], first["source"], first["ended_by"], first["reason"]) == (
        1, "import:crm", "support", "she moved",
    )  # fmt: skip
    assert (first["started_at"], first["ended_at"]) == (began.isoformat(), clock.now.isoformat())
    assert (current["version"], current["started_at"], current["ended_at"]) == (2, clock.now.isoformat(), None)
    assert current["source"] == f"agent:{memory.agent_id}"


def test_a_version_is_brought_back_as_a_new_one(memory: MemoryManager) -> None:
    memory_id = memory.add("Ann lives in Paris.", metadata={"sure": True}, source="import:crm")["memory_id"]
    memory.add("Ann lives in Lyon.", supersedes=memory_id)
    assert memory.revert(memory_id, to=1)["version"] == 3
    found = memory.get(memory_id)
    assert (found["content"], found["metadata"], found["source"]) == (
        "Ann lives in Paris.",
        {"sure": True},
        "import:crm",
    )
    assert memory.history(memory_id)[1]["reason"] == "reverted to version 1"


def test_a_memory_is_recalled_and_read_as_it_was_at_a_moment(memory: MemoryManager, clock: FakeClock) -> None:
    memory_id = memory.add("Ann lives in Paris.", metadata={"sure": False}, key="city")["memory_id"]
    then = clock.now
    assert contents(memory.retrieve(WHERE, as_of=then)) == ["Ann lives in Paris."]
    clock.advance(days=1)
    memory.add("Ann lives in Lyon.", metadata={"sure": True}, key="city")
    memory.add("Ann lives alone.")

    assert contents(memory.retrieve(WHERE, as_of=then)) == ["Ann lives in Paris."]
    assert contents(memory.retrieve(WHERE, as_of=then.isoformat())) == ["Ann lives in Paris."]
    assert memory.retrieve(WHERE, as_of=then)[0]["version"] == 1
    assert sorted(contents(memory.retrieve(WHERE, as_of=clock.now))) == ["Ann lives alone.", "Ann lives in Lyon."]
    assert memory.retrieve(WHERE, filters={"sure": True}, as_of=then) == []
    assert memory.retrieve(WHERE, as_of=then - timedelta(days=1)) == []
    assert memory.get(memory_id, as_of=then)["content"] == "Ann lives in Paris."
    assert contents(memory.retrieve(WHERE, "all", as_of=then)) == ["Ann lives in Paris."]
    with pytest.raises(NotFoundError, match="no version of"):
        memory.get(memory_id, as_of=then - timedelta(days=1))
    for kind in ("working", "short_term"):
        with pytest.raises(InvalidKindError, match="as of a moment"):
            memory.retrieve(WHERE, kind, as_of=then)


def test_as_of_never_brings_back_what_may_not_be_read_now(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    then = clock.now
    binned, old = (memory.add(f"Ann lives in {city}.")["memory_id"] for city in ("Paris", "Lyon"))
    clock.advance(days=1)
    for memory_id in (binned, old):
        memory.correct(memory_id, "Ann lives elsewhere.")
    assert len(memory.retrieve(WHERE, as_of=then)) == 2
    memory.delete(binned)
    assert contents(memory.retrieve(WHERE, as_of=then)) == ["Ann lives in Lyon."]
    holdfast.recall.forget()  # as another process reads it, which begins now
    assert contents(memory.retrieve(WHERE, as_of=then)) == ["Ann lives in Lyon."]
    memory.restore(binned)
    assert sorted(contents(memory.retrieve(WHERE, as_of=then))) == ["Ann lives in Lyon.", "Ann lives in Paris."]
    holdfast.policies.set("long_term", memory_id=old, user_id=memory.user_id, delete_after_days=3, confirm=True)
    clock.advance(days=4)
    for _ in range(2):
        assert contents(memory.retrieve(WHERE, as_of=then)) == ["Ann lives in Paris."]
        holdfast.recall.forget()
    holdfast.erase_user(memory.user_id)
    assert memory.retrieve(WHERE, as_of=then) == []


def test_a_cold_memory_is_recalled_as_of_a_moment_where_archived_ones_are_asked_for(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory_id = memory.add("Ann lives in Paris. " * 20)["memory_id"]
    then = clock.now
    clock.advance(days=366)
    holdfast.sweep(confirm=True)
    assert memory.retrieve(WHERE, as_of=then) == []
    (found,) = memory.retrieve(WHERE, as_of=then, include_archived=True)
    assert found["is_archived"]
    assert len(found["content"]) < 200
    memory.correct(memory_id, "Ann lives in Lyon.")
    assert said(memory, memory_id) == ["Ann lives in Paris. " * 20, "Ann lives in Lyon."], "what ended is whole again"
    assert contents(memory.retrieve(WHERE)) == ["Ann lives in Lyon."]


def test_a_correction_by_a_clock_that_is_ahead_destroys_no_version(memory: MemoryManager, clock: FakeClock) -> None:
    memory_id = memory.add("Ann lives in Paris.", "persona")["memory_id"]
    memory.correct(memory_id, "Ann lives in Lyon.")
    clock.advance(days=500)
    memory.correct(memory_id, "Ann lives in Nice.")
    memory.correct(memory_id, "Ann lives in Lille.")
    assert "Ann lives in Paris." not in said(memory, memory_id), "it is past its time, by this clock"

    clock.advance(days=-499)

    assert "Ann lives in Paris." in said(memory, memory_id), (
        "only a sweep, which believes the time, removes what cannot be undone"
    )
