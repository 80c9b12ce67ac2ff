"""The verbs every kind has: get, update, delete, restore, count, add_many, list."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from clocks import FakeClock
from holdfast import (
    ConflictError,
    Holdfast,
    InvalidContentError,
    InvalidInputError,
    InvalidKindError,
    MemoryManager,
    MemoryType,
    NotFoundError,
    QuotaExceededError,
)
from holdfast.core.records import TYPES


def test_what_was_added_comes_back_as_it_was(memory: MemoryManager, clock: FakeClock) -> None:
    metadata = {"category": "sports", "nested": {"levels": [1, 2.5, None, True, "é"]}}
    memory_id = memory.add("User enjoys skiing ⛷ in Chamonix", "long_term", metadata)["memory_id"]
    found = memory.get(memory_id)
    assert found == {
        "memory_id": memory_id,
        "content": "User enjoys skiing ⛷ in Chamonix",
        "memory_type": "long_term",
        "metadata": metadata,
        "agent_id": "travel_agent",
        "session_id": "sess_abc123",
        "created_at": clock().isoformat(),
        "updated_at": clock().isoformat(),
        "is_archived": False,
        "source": "agent:travel_agent",
        "derived_from": [],
        "version": 1,
    }


@pytest.mark.parametrize("kind", ["long_term", "persona", "episodic", "entity", "structured"])
def test_a_deleted_memory_is_out_of_recall_at_once_and_can_be_restored(memory: MemoryManager, kind: str) -> None:
    content = {"city": "Lisbon"} if kind == "structured" else "User once lived in Lisbon"
    memory_id = memory.add(content, kind, {"tag": "past"})["memory_id"]
    before = memory.get(memory_id)
    assert memory.retrieve("Lisbon", memory_type=kind)

    assert memory.delete(memory_id)["operation"] == "recycle"
    assert memory.retrieve("Lisbon", memory_type=kind) == []
    assert memory.count_memories(kind) == 0
    with pytest.raises(NotFoundError, match="recycle bin; restore it"):
        memory.get(memory_id)
    with pytest.raises(NotFoundError):
        memory.delete(memory_id)

    memory.restore(memory_id)
    assert memory.get(memory_id) == before
    assert [result["memory_id"] for result in memory.retrieve("Lisbon", memory_type=kind)] == [memory_id]
    with pytest.raises(ConflictError, match="nothing to restore"):
        memory.restore(memory_id)


def test_an_update_changes_what_is_recalled_and_not_the_age(memory: MemoryManager, clock: FakeClock) -> None:
    memory_id = memory.add("User lives in Berlin", "long_term", {"sure": False})["memory_id"]
    clock.advance(days=3)
    changed = memory.update(memory_id, "User lives in Madrid")
    assert changed["metadata"] == {"sure": False}
    assert changed["created_at"] < changed["updated_at"] == clock().isoformat()
    memory.update(memory_id, metadata={"sure": True})
    (found,) = memory.retrieve("Madrid")
    assert (found["content"], found["metadata"]) == ("User lives in Madrid", {"sure": True})
    assert memory.count_memories() == 1


def test_a_working_note_can_be_changed_and_dropped(memory: MemoryManager) -> None:
    note = memory.add("destination: Rome", "working")["memory_id"]
    memory.update(note, "destination: Oslo")
    (found,) = memory.retrieve("Oslo", memory_type="working")
    assert found["content"] == "destination: Oslo"
    assert memory.delete(note)["operation"] == "delete"
    assert memory.retrieve("Oslo", memory_type="working") == []


def test_a_short_term_message_can_be_deleted_but_not_changed(memory: MemoryManager, holdfast: Holdfast) -> None:
    message = memory.add("my number is 12345", "short_term", {"role": "user"})["memory_id"]
    with pytest.raises(InvalidKindError, match="add a new message instead"):
        memory.update(message, "something else")
    assert memory.get(message)["metadata"]["role"] == "user"
    kept = memory.short_term.add_message("user", "hello")
    memory.delete(message)
    assert [m["message_id"] for m in memory.short_term.get_conversation_history()] == [kept]
    assert [m["message_id"] for m in memory.short_term.get_full_history()] == [kept], "and out of the conversation"
    last = memory.short_term.add_message("user", "still there?")
    assert [m["message_id"] for m in holdfast.sessions.history("travel_agent", "sess_abc123")] == [kept, last]


def test_many_memories_are_added_all_or_none(memory: MemoryManager, holdfast: Holdfast) -> None:
    holdfast.quotas.set("long_term", max_memories=3)
    result = memory.add_many(["one", "two"], "long_term", [{"n": 1}, {"n": 2}])
    assert [memory.get(i)["metadata"]["n"] for i in result["memory_ids"]] == [1, 2]
    assert result["quota_remaining"] == 1
    with pytest.raises(QuotaExceededError, match=r"max: 3\)"):
        memory.add_many(["three", "four"], "long_term")
    with pytest.raises(InvalidContentError):
        memory.add_many(["three", ""], "long_term")
    with pytest.raises(InvalidInputError, match="2 metadata objects were given for 1 contents"):
        memory.add_many(["three"], "long_term", [{}, {}])
    assert memory.count_memories() == 2
    assert memory.add_many([], "long_term")["memory_ids"] == []


@pytest.mark.parametrize("kind", [kind for kind in MemoryType if kind is not MemoryType.STRUCTURED])
def test_every_kind_takes_many_at_once(memory: MemoryManager, kind: MemoryType) -> None:
    ids = memory.add_many(["first note", "second note"], kind)["memory_ids"]
    assert [memory.get(memory_id)["content"] for memory_id in ids] == ["first note", "second note"]
    assert memory.count_memories(kind) == 2


@pytest.mark.parametrize("kind", [kind.name for kind in TYPES.values() if kind.durable])
def test_every_durable_kind_takes_metadata_for_each_of_many(memory: MemoryManager, kind: MemoryType) -> None:
    contents: list[Any] = [{"n": 1}, {"n": 2}] if kind is MemoryType.STRUCTURED else ["first note", "second note"]
    ids = memory.add_many(contents, kind, [{"n": 1}, {"n": 2}])["memory_ids"]
    assert [memory.get(memory_id)["metadata"]["n"] for memory_id in ids] == [1, 2]


def test_notes_and_messages_take_one_metadata_object(memory: MemoryManager) -> None:
    for kind in ("working", "short_term"):
        with pytest.raises(InvalidKindError, match="give one metadata object"):
            memory.add_many(["first", "second"], kind, [{}, {}])
        assert memory.count_memories(kind) == 0


def test_a_quota_can_be_set_for_one_user_and_taken_away(holdfast: Holdfast) -> None:
    holdfast.quotas.set("long_term", max_memories=1)
    holdfast.quotas.set("long_term", max_memories=2, user_id="special")
    ordinary, special = holdfast.manager("ordinary", "a"), holdfast.manager("special", "a")
    assert ordinary.add("one")["quota_remaining"] == 0
    assert special.add("one")["quota_remaining"] == 1
    with pytest.raises(QuotaExceededError):
        ordinary.add("two")
    holdfast.quotas.set("long_term", max_memories=math.inf, user_id="special")
    assert special.add("two")["quota_remaining"] is None
    holdfast.quotas.set("long_term", max_bytes=3, user_id="special")
    with pytest.raises(QuotaExceededError, match="bytes"):
        special.add("three")


def test_restoring_needs_room_in_the_quota(memory: MemoryManager, holdfast: Holdfast) -> None:
    holdfast.quotas.set("long_term", max_memories=1)
    first = memory.add("one")["memory_id"]
    memory.delete(first)
    memory.add("two")
    with pytest.raises(QuotaExceededError):
        memory.restore(first)
    assert [result["content"] for result in memory.list_memories()] == ["two"]


def test_a_memory_that_prunes_by_itself_makes_room(holdfast: Holdfast, clock: FakeClock) -> None:
    holdfast.quotas.set("long_term", max_memories=20)
    memory = holdfast.manager("user", "agent", auto_prune=True)
    for number in range(20):
        memory.add(f"memory {number}")
        clock.advance(minutes=1)
    result = memory.add("memory 20")
    assert (result["operation"], result["pruned"]) == ("add_with_prune", 2)
    assert sorted(int(r["content"].split()[1]) for r in memory.list_memories()) == list(range(2, 21))


def test_memories_can_be_listed_by_filter_newest_first(memory: MemoryManager, clock: FakeClock) -> None:
    for number in range(5):
        memory.add(f"memory {number}", "long_term", {"n": number})
        clock.advance(hours=1)
    assert [r["metadata"]["n"] for r in memory.list_memories(filters={"n": {"gte": 1}}, limit=3)] == [4, 3, 2]


def test_results_of_several_kinds_keep_each_kinds_best_match(memory: MemoryManager) -> None:
    memory.add_many([f"Paris trip planning note {n}" for n in range(10)], "long_term")
    memory.add("I speak French", "persona")
    memory.add("nothing to do with it", "working")
    results = memory.retrieve("Paris trip planning", memory_types=["long_term", "persona", "working"], top_k=4)
    assert results[0]["memory_type"] == "working"
    assert {r["memory_type"] for r in results} == {"working", "long_term", "persona"}
    assert len(results) == 4
    scores = [r["score"] for r in results[1:]]
    assert scores == sorted(scores, reverse=True)


def test_what_is_unrelated_can_be_left_out_by_its_score(memory: MemoryManager) -> None:
    memory.add("User enjoys skiing in the Alps every winter")
    memory.add("User's dentist is Dr. Novak, on Tuesdays only")
    assert [found["content"][:17] for found in memory.retrieve("skiing in the Alps", min_score=0.5)] == [
        "User enjoys skiin"
    ]
    assert len(memory.retrieve("skiing in the Alps", min_score=0)) == 2
    assert memory.retrieve("kernel panic in the network driver", "all", min_score=0.5) == []
    for wrong in (-0.1, 1.5, "high", True):
        with pytest.raises(InvalidInputError, match="min_score must be a number from 0 to 1, not"):
            memory.retrieve("skiing", min_score=wrong)  # type: ignore[arg-type]


def test_what_is_neither_true_nor_false_is_not_taken_for_either(memory: MemoryManager) -> None:
    """``"no"`` is true to Python, and would keep a text out; ``0`` is false, and would remove what was only asked about."""
    memory_id = memory.add("User enjoys skiing", source="import:crm")["memory_id"]
    item = {"key": "1", "content": "User likes tea"}
    calls: dict[str, Callable[[Any], object]] = {
        "keep_out": lambda value: memory.delete(memory_id, keep_out=value),
        "with_derived": lambda value: memory.delete(memory_id, with_derived=value),
        "dedupe": lambda value: memory.add("User enjoys skiing", dedupe=value),
        "dry_run": lambda value: memory.import_memories([item], source="import:crm", dry_run=value),
    }
    for name, call in calls.items():
        for wrong in ("no", "", 0, 1):
            with pytest.raises(InvalidInputError, match=f"{name} must be True or False, not "):
                call(wrong)
    with pytest.raises(InvalidInputError, match="dedupe must be True or False, not 'yes'"):
        memory.add_many(["User enjoys skiing"], dedupe="yes")  # type: ignore[arg-type]
    assert memory.count_memories() == 1


def test_a_score_is_explained_on_request(memory: MemoryManager) -> None:
    memory.add("User enjoys skiing")
    (plain,) = memory.retrieve("skiing")
    (told,) = memory.retrieve("skiing", explain=True)
    assert "explanation" not in plain
    assert told["score"] == plain["score"]
    assert {"vector", "lexical"} <= set(told["explanation"])
