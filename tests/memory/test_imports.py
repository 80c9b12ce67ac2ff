"""Memories from elsewhere keep their dates, are there once, and go again with their source."""

from __future__ import annotations

from typing import Any

import pytest

from clocks import FakeClock
from holdfast import Holdfast, InvalidInputError, MemoryManager

TEA = {
    "key": "crm:1",
    "content": "Ann likes green tea.",
    "metadata": {"topic": "drinks"},
    "created_at": "2025-10-01T08:00:00Z",
}
HOME = {"key": "crm:2", "content": "Ann lives in Leeds.", "created_at": "2025-11-01", "updated_at": "2025-12-01"}
TRIP = {
    "key": "crm:3",
    "memory_type": "episodic",
    "task": "Book a train",
    "messages": [{"role": "user", "content": "To Leeds, please."}],
    "created_at": "2025-12-24T10:00:00Z",
    "updated_at": "2025-12-24T11:00:00Z",
}
SOURCE = "import:crm"


def counts(done: Any) -> tuple[int, int, int, int, int]:
    return (done["added"], done["corrected"], done["existing"], done["kept_out"], len(done["skipped"]))


@pytest.fixture
def memory(holdfast: Holdfast) -> MemoryManager:
    return holdfast.manager("ann", "helper")


def test_dates_are_kept_and_ages_count_from_them(memory: MemoryManager, clock: FakeClock) -> None:
    assert counts(memory.import_memories([TEA, HOME, TRIP], source=SOURCE)) == (3, 0, 0, 0, 0)
    home, tea = memory.list_memories(source=SOURCE)
    assert (tea["created_at"], tea["updated_at"]) == ("2025-10-01T08:00:00+00:00",) * 2
    assert (home["created_at"], home["updated_at"]) == ("2025-11-01T00:00:00+00:00", "2025-12-01T00:00:00+00:00")
    assert [one["content"] for one in memory.list_memories()] == [home["content"], tea["content"]], "newest first"
    (episode,) = memory.episodic.query_similar_episodes("a journey by train")
    assert episode["date"] == "2025-12-24T11:00:00+00:00"
    assert memory.episodic.get_messages(episode["episode_id"])[0] == {"role": "user", "content": "To Leeds, please."}
    assert memory.retrieve("What does Ann drink?", filters={"topic": "drinks"})[0]["source"] == SOURCE
    clock.advance(days=262)  # a year after it was made there, not here
    assert memory.explain(tea["memory_id"])["next"]["action"] == "archive"  # type: ignore[index]
    assert [one["memory_id"] for one in memory.list_memories()] == [home["memory_id"]]


def test_imported_twice_they_are_there_once(memory: MemoryManager) -> None:
    items: list[Any] = [TEA, HOME, TRIP]
    memory.import_memories(items, source=SOURCE)
    assert counts(memory.import_memories(items, source="import:crm:later")) == (0, 0, 3, 0, 0)
    assert memory.count_memories() == 2
    assert memory.count_memories("episodic") == 1


def test_what_changed_there_is_corrected_and_what_changed_here_is_left(memory: MemoryManager, clock: FakeClock) -> None:
    memory.import_memories([TEA, HOME, TRIP], source=SOURCE)
    more = {**TRIP, "messages": [*TRIP["messages"], {"role": "assistant", "content": "Done."}]}
    moved = {**HOME, "content": "Ann lives in Lyon.", "updated_at": "2026-01-10"}
    done = memory.import_memories([TEA, moved, {**more, "updated_at": "2025-12-25T00:00:00Z"}], source=SOURCE)
    assert counts(done) == (0, 2, 1, 0, 0)
    home = memory.list_memories()[0]
    assert [one["content"] for one in memory.history(home["memory_id"])] == [
        "Ann lives in Leeds.",
        "Ann lives in Lyon.",
    ]
    (episode,) = memory.episodic.query_similar_episodes("a journey by train")
    assert len(memory.episodic.get_messages(episode["episode_id"])) == 2
    memory.correct(home["memory_id"], "Ann lives in Lille.")
    (skipped,) = memory.import_memories([{**moved, "content": "Ann lives in Metz."}], source=SOURCE)["skipped"]
    assert "was changed here" in skipped["reason"]
    assert memory.get(home["memory_id"])["content"] == "Ann lives in Lille."


def test_an_older_export_takes_nothing_back(memory: MemoryManager) -> None:
    moved = {**HOME, "content": "Ann lives in Lyon.", "updated_at": "2026-01-10"}
    memory.import_memories([moved], source=SOURCE)
    (skipped,) = memory.import_memories([HOME], source=SOURCE)["skipped"]
    assert "is newer than this" in skipped["reason"]
    assert memory.list_memories()[0]["content"] == "Ann lives in Lyon."


def test_an_export_of_this_very_store_adds_nothing(memory: MemoryManager) -> None:
    tea = memory.add("Ann likes green tea.")["memory_id"]
    home = memory.add("Ann lives in Leeds.", key="home")["memory_id"]
    exported = [{"key": tea, "content": "Ann likes green tea."}, {"key": home, "content": "Ann lives in Leeds."}]
    memory.correct(tea, "Ann likes coffee.")
    done = memory.import_memories(exported, source=SOURCE)
    assert counts(done) == (0, 0, 1, 0, 1)
    assert "was changed here" in done["skipped"][0]["reason"]
    assert memory.count_memories() == 2


def test_all_of_it_goes_with_its_source(holdfast: Holdfast, memory: MemoryManager) -> None:
    own = memory.add("Ann swims.")["memory_id"]
    memory.import_memories([TEA, HOME, TRIP], source=SOURCE)
    assert holdfast.forget_source(SOURCE, "ann")["memories"] == 3
    assert [one["memory_id"] for one in memory.list_memories()] == [own]
    assert memory.count_memories("episodic") == 0


def test_what_is_kept_out_stays_out(memory: MemoryManager) -> None:
    memory.delete(memory.add("Ann likes green tea")["memory_id"], keep_out=True)
    assert counts(memory.import_memories([TEA, HOME], source=SOURCE, dry_run=True)) == (1, 0, 0, 1, 0)
    assert counts(memory.import_memories([TEA, HOME], source=SOURCE)) == (1, 0, 0, 1, 0)


def test_one_that_cannot_be_imported_does_not_stop_the_others(holdfast: Holdfast, memory: MemoryManager) -> None:
    wrong: list[Any] = [
        "text",
        {"content": "no key"},
        {"key": "a", "content": ""},
        {"key": "b", "content": "tea", "memory_type": "working"},
        {"key": "c", "content": "tea", "memory_type": "entity"},
        {"key": "d", "content": "tea", "created_at": "2031-01-01"},
        {"key": "e", "content": "tea", "created_at": "soon"},
        {"key": "f", "content": "tea", "colour": "green"},
        {"key": "g", "content": "tea", "metadata": []},
        {**TRIP, "key": "h", "created_at": "2019-01-01", "updated_at": "2019-01-02"},
        {**TEA, "content": "the same key"},
    ]
    done = memory.import_memories([TEA, *wrong, HOME], source=SOURCE)
    assert counts(done) == (2, 0, 0, 0, len(wrong))
    assert [one["position"] for one in done["skipped"]] == list(range(1, len(wrong) + 1))
    assert "set a longer rule first" in done["skipped"][9]["reason"]
    holdfast.quotas.set("long_term", max_memories=3, user_id="ann")
    more = [{"key": f"more:{n}", "content": f"note {n}"} for n in range(3)]
    done = memory.import_memories(more, source=SOURCE)
    assert counts(done) == (1, 0, 0, 0, 2), "as many as the quota allows"
    with pytest.raises(InvalidInputError):
        memory.import_memories({"key": "a"}, source=SOURCE)  # type: ignore[arg-type]


def test_a_dry_run_writes_nothing(memory: MemoryManager) -> None:
    assert counts(memory.import_memories([TEA, HOME, TRIP, {}], source=SOURCE, dry_run=True)) == (3, 0, 0, 0, 1)
    assert memory.count_memories() == 0


def test_documents_go_under_their_keys(memory: MemoryManager) -> None:
    item = {
        "key": "emma",
        "memory_type": "structured",
        "content": {"title": "Emma"},
        "metadata": {"collection": "books"},
    }
    memory.import_memories([item], source=SOURCE)
    assert counts(memory.import_memories([item], source=SOURCE)) == (0, 0, 1, 0, 0)
    assert memory.structured.get("books", "emma") == {"title": "Emma"}


ANN: dict[str, Any] = {
    "key": "crm:ann",
    "memory_type": "entity",
    "name": "Ann",
    "entity_type": "person",
    "description": "A friend of Bob's",
    "attributes": {"job": "baker"},
    "relations": [{"relation": "works_at", "target": "ACME", "since": "2025-12-01T00:00:00Z"}],
    "metadata": {"vip": True},
    "created_at": "2025-11-01T00:00:00Z",
}


def test_entities_keep_what_is_known_of_them_since_when(memory: MemoryManager) -> None:
    assert counts(memory.import_memories([ANN], source=SOURCE)) == (1, 0, 0, 0, 0)
    ann = memory.entity.get("ann")
    assert (ann["entity_type"], ann["description"], ann["attributes"]) == (
        "person",
        "A friend of Bob's",
        {"job": "baker"},
    )
    assert [(one["name"], one["target"], one["since"][:10]) for one in ann["relations"]] == [
        ("works_at", "ACME", "2025-12-01")
    ]
    (job,) = memory.entity.history("Ann", "job")
    assert job["since"] == "2025-11-01T00:00:00+00:00"
    found = memory.get(ann["entity_id"])
    assert (found["created_at"], found["source"], found["metadata"]["vip"]) == (
        "2025-11-01T00:00:00+00:00",
        SOURCE,
        True,
    )
    assert counts(memory.import_memories([ANN], source=SOURCE)) == (0, 0, 1, 0, 0)


def test_an_entity_that_is_there_gets_what_was_not_known_and_keeps_the_rest(memory: MemoryManager) -> None:
    own = memory.entity.add("Ann", attributes={"job": "cook"})
    memory.entity.relate("Ann", "works_at", "ACME")
    memory.entity.end("Ann", "works_at")
    items = [{**ANN, "attributes": {"job": "baker", "age": 30}}, {**ANN, "key": "crm:2", "attributes": {"height": 2}}]
    assert counts(memory.import_memories(items, source=SOURCE, dry_run=True)) == (0, 2, 0, 0, 0)
    assert memory.entity.get("Ann")["attributes"] == {"job": "cook"}
    assert counts(memory.import_memories(items, source=SOURCE)) == (0, 2, 0, 0, 0)
    ann = memory.entity.get("Ann")
    assert (ann["entity_id"], ann["attributes"]) == (own, {"job": "cook", "age": 30, "height": 2})
    assert ann["relations"] == [], "what has ended here does not begin again"
    assert memory.get(own)["source"] == "agent:helper"
    assert counts(memory.import_memories(items, source=SOURCE)) == (0, 0, 2, 0, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": None},
        {"name": 7},
        {"attributes": []},
        {"attributes": {"x": float("nan")}},
        {"relations": {}},
        {"relations": [{"relation": "knows"}]},
        {"relations": [{"relation": "knows", "target": "Bob", "how": "well"}]},
        {"entity_type": 5},
        {"content": "Ann"},
    ],
)
def test_an_entity_of_another_form_is_skipped(memory: MemoryManager, wrong: dict[str, Any]) -> None:
    done = memory.import_memories([{**ANN, **wrong}, {**ANN, "name": "Bea"}], source=SOURCE)
    assert counts(done) == (1, 0, 0, 0, 1)
    assert done["skipped"][0]["position"] == 0
    assert [one["metadata"]["name"] for one in memory.list_memories("entity")] == ["ACME", "Bea"]
