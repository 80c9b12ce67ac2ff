"""The same text again: added once if asked for, and shown once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clocks import FakeClock
from holdfast import Holdfast, InvalidInputError, MemoryManager, QuotaExceededError
from holdfast.ports.feed import Vectors

TEA = "Ann likes green tea."
AGAIN = "ann  LIKES green tea!"


# --- adding --------------------------------------------------------------------------------------------------------


def test_a_text_that_is_there_is_not_added_again(memory: MemoryManager) -> None:
    first = memory.add(TEA)

    again = memory.add(AGAIN, dedupe=True)

    assert (again["operation"], again["memory_id"]) == ("exists", first["memory_id"])
    assert again["quota_remaining"] == first["quota_remaining"]
    assert memory.count_memories() == 1
    assert memory.get(first["memory_id"])["content"] == TEA, "what is there stays as it is"


@pytest.mark.parametrize("unseen", ["\u200b", "\x07", "\ufeff", "\u00ad", "\u2066", "\ufe0f", "\U000e0041"])
def test_what_cannot_be_seen_makes_no_other_text(memory: MemoryManager, unseen: str) -> None:
    first = memory.add(TEA)["memory_id"]
    for again in (unseen + TEA, TEA + unseen, TEA.replace("tea", f"t{unseen}ea")):
        assert memory.add(again, dedupe=True)["memory_id"] == first


def test_without_asking_every_text_is_added(memory: MemoryManager) -> None:
    assert [memory.add(TEA)["operation"] for _ in range(2)] == ["add", "add"]
    assert memory.count_memories() == 2


def test_the_settings_decide_where_the_call_does_not(
    home: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DEDUPE", "yes")
    with Holdfast.open(home=home, clock=clock) as holdfast:
        memory = holdfast.manager("user_1", "agent")
        memory.long_term.add(TEA)
        assert memory.add(AGAIN)["operation"] == "exists"
        assert memory.add(AGAIN, dedupe=False)["operation"] == "add"
        assert memory.add("It went well", "episodic")["operation"] == "add", "of an episode every one counts"


def test_what_a_key_says_already_is_no_correction(memory: MemoryManager) -> None:
    first = memory.add(TEA, key="drink")

    again = memory.add(AGAIN, key="drink", dedupe=True)

    assert (again["operation"], again["memory_id"], again["version"]) == ("exists", first["memory_id"], 1)
    memory.add("Ann likes coffee.", key="drink", dedupe=True)
    back = memory.add(AGAIN, key="drink", dedupe=True)
    assert (back["operation"], back["version"]) == ("corrected", 3), "to go back by a key is asked for"
    assert memory.add(TEA, key="breakfast", dedupe=True)["operation"] == "add", "another key is another memory"
    assert memory.add(AGAIN, key="drink")["operation"] == "corrected", "without dedupe every word counts"


def test_a_text_that_was_corrected_is_not_added_again_while_its_version_is_kept(
    memory: MemoryManager, clock: FakeClock
) -> None:
    first = memory.add(TEA)["memory_id"]
    memory.correct(first, "Ann likes coffee.")

    again = memory.add(AGAIN, dedupe=True)

    assert (again["operation"], again["memory_id"]) == ("exists", first)
    assert again["corrected_to"] == "Ann likes coffee."
    many = memory.add_many([AGAIN, "Ann has a dog"], dedupe=True)
    assert (many["memory_ids"][0], many["existing"], many["corrected"]) == (first, 1, 1)
    assert "corrected_to" not in memory.add("Ann likes coffee", dedupe=True), "it is what the memory says"
    memory.correct(first, TEA)
    assert "corrected_to" not in memory.add(AGAIN, dedupe=True), "it is so again"
    memory.correct(first, "Ann likes milk.")
    assert memory.add(TEA)["operation"] == "add", "nobody asked"
    assert memory.add(AGAIN, dedupe=True).get("corrected_to") is None, "another memory says so"


def test_a_text_that_was_corrected_can_be_added_where_that_is_unknown(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    corrected = memory.add(TEA)["memory_id"]
    memory.correct(corrected, "Ann likes coffee.")
    trait = memory.add("I am brief.", "persona")["memory_id"]
    memory.correct(trait, "I am thorough.")

    assert memory.add(AGAIN, "persona", dedupe=True)["operation"] == "add", "another kind"
    other = holdfast.manager(memory.user_id, "another_agent")
    assert other.add("I am brief.", "persona", dedupe=True)["operation"] == "add", "another agent's persona"
    assert other.add(AGAIN, dedupe=True)["operation"] == "exists"
    clock.advance(days=364)
    assert memory.add(AGAIN, dedupe=True)["memory_id"] == corrected
    clock.advance(days=2)
    assert memory.add(AGAIN, dedupe=True)["operation"] == "add", "the version is past its time"


def test_a_text_of_a_memory_that_was_corrected_and_deleted_can_be_added(memory: MemoryManager) -> None:
    corrected = memory.add(TEA)["memory_id"]
    memory.correct(corrected, "Ann likes coffee.")
    memory.delete(corrected)
    assert memory.add(AGAIN, dedupe=True)["operation"] == "add"


def test_what_says_the_same_is_corrected_with_it(holdfast: Holdfast, memory: MemoryManager, clock: FakeClock) -> None:
    other = holdfast.manager(memory.user_id, "another_agent")
    first = other.add(TEA, metadata={"topic": "drinks"})["memory_id"]
    keyed = memory.add(TEA, key="what she likes")["memory_id"]
    trait = memory.add(TEA, "persona")["memory_id"]
    binned = memory.add(TEA)["memory_id"]
    memory.delete(binned)
    again = memory.add(AGAIN)["memory_id"]
    holdfast.holds.add(memory_id=first, reason="a dispute", author="legal")
    clock.advance(days=1)

    memory.correct(again, "Ann likes coffee.", reason="she said so")

    both = [memory.get(one) for one in (first, again)]
    assert [(one["content"], one["version"]) for one in both] == [("Ann likes coffee.", 2)] * 2
    assert both[0]["metadata"] == {"topic": "drinks"}
    assert both[0]["source"] == f"agent:{memory.agent_id}", "who said it"
    assert again in str(memory.history(first)[0]["reason"])
    assert [memory.get(one)["content"] for one in (keyed, trait)] == [TEA, TEA], "another fact, another kind"
    (shown,) = [one for one in memory.retrieve("What does Ann like?") if "coffee" in one["content"]]
    assert shown["count"] == 2
    memory.add("Ann likes milk.", key="what she likes")
    assert memory.restore(binned)["content"] == TEA, "what was in the bin is as it was"
    assert memory.update(again, "Ann likes cocoa.")["content"] == "Ann likes cocoa."
    assert memory.get(first)["content"] == "Ann likes coffee.", "an update is of one memory"


def test_what_has_no_key_follows_what_has_one(memory: MemoryManager) -> None:
    plain = memory.add(TEA)["memory_id"]
    memory.add(AGAIN, key="what she likes")
    memory.add("Ann likes coffee.", key="what she likes")
    assert memory.get(plain)["content"] == "Ann likes coffee."
    assert [one["content"] for one in memory.list_memories()] == ["Ann likes coffee."] * 2


def test_a_correction_that_has_no_room_for_all_of_the_same_text_changes_nothing(
    holdfast: Holdfast, memory: MemoryManager
) -> None:
    both = [memory.add(text)["memory_id"] for text in (TEA, TEA)]
    holdfast.quotas.set("long_term", max_bytes=60, user_id=memory.user_id)
    with pytest.raises(QuotaExceededError):
        memory.correct(both[0], "Ann likes tea that is neither green nor black.")
    assert [memory.get(one)["content"] for one in both] == [TEA, TEA]


def test_only_the_same_scope_and_kind_are_compared(holdfast: Holdfast, memory: MemoryManager) -> None:
    memory.add(TEA)
    memory.add(TEA, "persona")
    other = holdfast.manager(memory.user_id, "another_agent")

    assert other.add(AGAIN, dedupe=True)["operation"] == "exists", "long-term memory is the user's"
    assert other.add(AGAIN, "persona", dedupe=True)["operation"] == "add", "a persona is the agent's"
    assert memory.add(AGAIN, "entity", dedupe=True)["operation"] == "add"
    assert holdfast.manager("someone_else", "agent").add(AGAIN, dedupe=True)["operation"] == "add"


def test_what_is_deleted_or_archived_is_not_there(memory: MemoryManager, clock: FakeClock) -> None:
    memory.delete(memory.add(TEA)["memory_id"])
    second = memory.add(AGAIN, dedupe=True)
    assert second["operation"] == "add"

    clock.advance(days=366)
    assert memory.add(TEA, dedupe=True)["operation"] == "add", "recall does not show what is archived"


def test_a_document_with_a_key_is_never_taken_for_another(memory: MemoryManager) -> None:
    for key in ("a", "b"):
        memory.structured.put("flags", {"on": True}, key=key)
    assert memory.add({"on": True}, "structured", {"collection": "flags"}, dedupe=True)["operation"] == "add"
    assert memory.add({"on": True}, "structured", {"collection": "flags"}, dedupe=True)["operation"] == "exists"

    found = memory.retrieve("flags on", "structured")

    assert sorted(str(one["metadata"]["key"]) for one in found) == ["None", "a", "b"]


def test_of_many_contents_each_text_is_added_once(memory: MemoryManager) -> None:
    (known,) = memory.add_many([TEA])["memory_ids"]

    added = memory.add_many(["one", AGAIN, "two", "One.", "three"], dedupe=True)

    one, tea, two, one_again, three = added["memory_ids"]
    assert (tea, one_again, added["existing"]) == (known, one, 2)
    assert {memory.get(memory_id)["content"] for memory_id in (one, two, three)} == {"one", "two", "three"}
    assert memory.count_memories() == 4


def test_a_text_that_is_there_needs_no_room(holdfast: Holdfast, memory: MemoryManager) -> None:
    holdfast.quotas.set("long_term", max_memories=1)
    memory.add(TEA)

    assert memory.add(AGAIN, dedupe=True)["operation"] == "exists"
    with pytest.raises(QuotaExceededError):
        memory.add("something else", dedupe=True)


def test_other_kinds_are_not_compared(memory: MemoryManager) -> None:
    for kind in ("working", "short_term", "episodic"):
        assert [memory.add(TEA, kind, dedupe=True)["operation"] for _ in range(2)] == ["add", "add"]


def test_of_several_processes_one_adds_a_text(home: Path, holdfast: Holdfast, memory: MemoryManager) -> None:
    texts = [f"fact number {number}" for number in range(12)]
    with Holdfast.open(home=home) as elsewhere, ThreadPoolExecutor(4) as pool:
        managers = [memory, elsewhere.manager(memory.user_id, memory.agent_id)] * 2
        added = list(pool.map(lambda one: [one.add(text, dedupe=True) for text in texts], managers))

    for results in zip(*added, strict=True):
        assert sorted(one["operation"] for one in results) == ["add", "exists", "exists", "exists"]
        assert len({one["memory_id"] for one in results}) == 1
    assert memory.count_memories() == len(texts)


# --- recall --------------------------------------------------------------------------------------------------------


def test_recall_shows_a_text_once_and_fills_its_places_with_others(memory: MemoryManager) -> None:
    for number in range(6):
        newest = memory.add(TEA if number % 2 else AGAIN)["memory_id"]
    others = [memory.add(f"Ann likes {what} tea")["memory_id"] for what in ("black", "white", "iced", "mint")]

    found = memory.retrieve("What tea does Ann like?", top_k=5)

    assert {one["memory_id"] for one in found} == {newest, *others}
    assert {one["memory_id"]: one.get("count") for one in found} == {newest: 6, **dict.fromkeys(others)}


@pytest.mark.parametrize("kind", ["long_term", "persona", "entity", "structured"])
def test_every_such_kind_is_shown_once(memory: MemoryManager, kind: str) -> None:
    content = {"tea": "green"} if kind == "structured" else TEA
    memory.add_many([content] * 3, kind, {"collection": "drinks"})

    assert [one.get("count") for one in memory.retrieve("green tea", kind)] == [3]
    assert len(memory.list_memories(kind)) == 3, "a list has all of them"


def test_episodes_are_shown_each(memory: MemoryManager) -> None:
    memory.add_many([TEA] * 3, "episodic")
    assert len(memory.retrieve("green tea", "episodic")) == 3


def test_only_what_passes_the_filters_is_counted(memory: MemoryManager, clock: FakeClock) -> None:
    ids = [memory.add(TEA, metadata={"topic": topic})["memory_id"] for topic in ("a", "b", "a", "c")]

    (found,) = memory.retrieve("green tea", filters={"topic": "a"})
    assert (found["memory_id"], found["count"]) == (ids[2], 2)

    memory.delete(ids[2])
    (found,) = memory.retrieve("green tea", filters={"topic": "a"})
    assert (found["memory_id"], found.get("count")) == (ids[0], None)

    memory.update(ids[0], "Ann likes coffee")
    assert {one["memory_id"]: one.get("count") for one in memory.retrieve("green tea")} == {ids[3]: 2, ids[0]: None}


def test_parts_of_a_score_add_up_where_a_text_is_shown_once(memory: MemoryManager) -> None:
    for number in range(4):
        memory.add_many([f"turn {number} of a long talk about tea", TEA, f"and then something else, number {number}"])

    for one in memory.retrieve("green tea", explain=True):
        parts = dict(one["explanation"])
        assert sum(parts.values()) - parts["evidence"] == pytest.approx(parts.pop("evidence"), abs=1e-3)


# --- what is close ---------------------------------------------------------------------------------------------------


def test_adding_shows_what_is_close_if_asked(memory: MemoryManager) -> None:
    paris = memory.add("The user lives in Paris.")
    memory.add_many([f"Note {number} about gardens, music and cars" for number in range(8)])
    assert "similar" not in paris

    added = memory.add("The user lives in Lyon.", similar=3)

    (close,) = added["similar"]
    assert (close["memory_id"], close["content"]) == (paris["memory_id"], "The user lives in Paris.")
    assert close["score"] >= 0.5
    assert memory.count_memories() == 10, "nothing is merged for being similar"


def test_close_memories_are_of_the_same_kind_and_no_more_than_asked(memory: MemoryManager) -> None:
    memory.add("The user lives in Paris", "persona")
    for kind in ("long_term", "persona"):
        memory.add_many([f"Note {number} about gardens, music and cars" for number in range(8)], kind)
    for city in ("Paris", "Lyon", "Rome", "Bonn"):
        memory.add(f"The user lives in {city}")

    assert len(memory.add("The user lives in Leeds", similar=2)["similar"]) == 2
    assert [one["content"] for one in memory.add("The user lives in York", "persona", similar=5)["similar"]] == [
        "The user lives in Paris"
    ]
    assert "similar" not in memory.add("The user lives in York", "short_term", similar=5)


def test_a_text_that_is_there_is_not_close_to_itself(memory: MemoryManager) -> None:
    memory.add(TEA)
    assert memory.add(AGAIN, dedupe=True, similar=3)["similar"] == []
    with pytest.raises(InvalidInputError, match="similar"):
        memory.add(TEA, similar=-1)


@pytest.mark.parametrize("engine_name", ["sqlite"])
def test_a_text_is_embedded_once_though_similar_ones_are_looked_for(
    holdfast: Holdfast, memory: MemoryManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.add("The user lives in Lyon.")
    asked: list[str] = []
    embed = holdfast.embedder.embed

    def note(texts: Sequence[str]) -> Vectors:
        asked.extend(texts)
        return embed(texts)

    monkeypatch.setattr(holdfast.embedder, "embed", note)

    (found,) = memory.add("The user lives in Leeds.", similar=3)["similar"]

    assert (found["content"], asked) == ("The user lives in Lyon.", ["The user lives in Leeds."])
    holdfast.recall.forget()
    memory.retrieve("The user lives in Leeds.")
    assert len(asked) == 2, "what was erased is kept nowhere"
