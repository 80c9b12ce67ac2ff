"""Entity memory: what is known of people, places and things, and since when."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clocks import FakeClock
from holdfast import ConflictError, InvalidInputError, MemoryManager, NotFoundError


def test_an_entity_is_looked_up_by_name_whatever_the_case(memory: MemoryManager) -> None:
    entity_id = memory.entity.add("Ada Lovelace", "person", {"born": 1815, "languages": ["en", "fr"]})
    found = memory.entity.get("ada  lovelace")
    assert found["entity_id"] == entity_id
    assert found["entity_type"] == "person"
    assert found["attributes"] == {"born": 1815, "languages": ["en", "fr"]}
    assert memory.entity.add("ADA LOVELACE", attributes={"died": 1852}) == entity_id, "one entity goes by a name"
    assert memory.entity.get(entity_id)["attributes"]["died"] == 1852


def test_a_fact_that_is_replaced_ends_and_is_not_overwritten(memory: MemoryManager, clock: FakeClock) -> None:
    memory.entity.add("Alice", attributes={"city": "Paris"})
    in_paris = clock()
    clock.advance(days=100)
    memory.entity.set("Alice", {"city": "Lyon"})
    assert memory.entity.get("Alice")["attributes"] == {"city": "Lyon"}
    assert memory.entity.get("Alice", at=in_paris)["attributes"] == {"city": "Paris"}
    history = memory.entity.history("Alice", "city")
    assert [(f["value"], f["until"]) for f in history] == [("Paris", clock().isoformat()), ("Lyon", None)]


def test_relations_are_dated_and_can_be_replaced_or_ended(memory: MemoryManager, clock: FakeClock) -> None:
    memory.entity.relate("Alice", "works_at", "Acme", since="2020-01-01T00:00:00+00:00", replace=True)
    memory.entity.relate("Alice", "works_at", "Globex", since="2023-06-01T00:00:00+00:00", replace=True)
    memory.entity.relate("Alice", "friend_of", "Bob")
    memory.entity.relate("Alice", "friend_of", "Carol")
    assert [n["name"] for n in memory.entity.neighbours("Alice", "works_at")] == ["Globex"]
    assert [n["name"] for n in memory.entity.neighbours("Alice", "works_at", at=datetime(2021, 1, 1, tzinfo=UTC))] == [
        "Acme"
    ]
    assert {n["name"] for n in memory.entity.neighbours("Alice", "friend_of")} == {"Bob", "Carol"}
    clock.advance(days=1)
    assert memory.entity.end("Alice", "friend_of", "Bob") == 1
    assert [n["name"] for n in memory.entity.neighbours("Alice", "friend_of")] == ["Carol"]
    assert len(memory.entity.history("Alice", "works_at")) == 2


def test_saying_the_same_twice_changes_nothing(memory: MemoryManager) -> None:
    first = memory.entity.relate("Alice", "friend_of", "Bob")
    assert memory.entity.relate("alice", "friend_of", "bob") == first
    memory.entity.set("Alice", {"city": "Paris"})
    memory.entity.set("Alice", {"city": "Paris"})
    assert len(memory.entity.history("Alice")) == 2


def test_the_end_of_a_relation_can_be_told_later(memory: MemoryManager) -> None:
    fact = memory.entity.relate("Alice", "works_at", "Acme", since="2020-01-01T00:00:00+00:00")
    for _ in range(2):
        told = memory.entity.relate(
            "Alice", "works_at", "Acme", since="2020-01-01T00:00:00+00:00", until="2023-01-01T00:00:00+00:00"
        )
        assert told == fact
    assert [f["until"] for f in memory.entity.history("Alice", "works_at")] == ["2023-01-01T00:00:00+00:00"]
    assert memory.entity.neighbours("Alice") == []


def test_a_fact_learnt_late_takes_its_place_in_the_past(memory: MemoryManager, clock: FakeClock) -> None:
    memory.entity.add("Alice", attributes={"city": "Lyon"}, since="2024-01-01")
    memory.entity.set("Alice", {"city": "Paris"}, since="2020-01-01T00:00:00+00:00")
    assert memory.entity.get("Alice")["attributes"] == {"city": "Lyon"}
    assert memory.entity.get("Alice", at="2022-01-01T00:00:00+00:00")["attributes"] == {"city": "Paris"}


def test_neighbours_are_found_at_a_distance_and_by_direction(memory: MemoryManager) -> None:
    memory.entity.relate("Alice", "knows", "Bob")
    memory.entity.relate("Bob", "knows", "Carol")
    memory.entity.relate("Dan", "knows", "Alice")
    assert {n["name"]: n["distance"] for n in memory.entity.neighbours("Alice", depth=2)} == {
        "Bob": 1,
        "Dan": 1,
        "Carol": 2,
    }
    assert [n["name"] for n in memory.entity.neighbours("Alice", direction="out")] == ["Bob"]
    assert [n["name"] for n in memory.entity.neighbours("Alice", direction="in")] == ["Dan"]


def test_entities_are_recalled_by_what_is_known_of_them(memory: MemoryManager) -> None:
    memory.entity.add("Alice", "person", {"job": "marine biologist"})
    memory.entity.add("Bob", "person", {"job": "carpenter"})
    memory.entity.relate("Bob", "lives_in", "Bergen")
    assert (
        memory.retrieve("who studies the ocean, a biologist?", memory_type="entity", top_k=1)[0]["metadata"]["name"]
        == "Alice"
    )
    (found,) = memory.retrieve("jobs", memory_type="entity", filters={"attributes.job": "carpenter"})
    assert found["metadata"]["name"] == "Bob"


def test_a_deleted_entity_is_no_longer_a_neighbour_and_comes_back_with_its_relations(memory: MemoryManager) -> None:
    memory.entity.relate("Alice", "knows", "Bob")
    bob = memory.entity.get("Bob")["entity_id"]
    memory.delete(bob)
    assert memory.entity.neighbours("Alice") == []
    assert memory.entity.get("Alice")["relations"] == []
    with pytest.raises(NotFoundError, match="no entity 'Bob'"):
        memory.entity.get("Bob")
    memory.restore(bob)
    assert [n["name"] for n in memory.entity.neighbours("Alice")] == ["Bob"]


def test_recall_tells_no_relation_that_has_ended_or_whose_end_is_gone(memory: MemoryManager) -> None:
    memory.entity.relate("Alice", "works_at", "Acme", replace=True)
    memory.entity.relate("Alice", "works_at", "Globex", replace=True)
    memory.entity.relate("Bob", "manages", "Alice")
    memory.entity.set("Alice", {"city": "Lyon"})  # she tells her own facts anew, not his

    def told() -> str:
        return "\n".join(found["content"] for found in memory.retrieve("who works where?", "entity", top_k=20))

    assert "works at Acme" not in told()
    assert "works at Globex" in told()
    memory.entity.end("Bob", "manages", "Alice")
    assert "manages" not in told()
    globex = memory.entity.delete("Globex")
    assert "Globex" not in told()
    memory.restore(globex)
    assert "Alice works at Globex" in told()


def test_an_entity_whose_name_was_taken_cannot_be_restored(memory: MemoryManager) -> None:
    old = memory.entity.add("Alice")
    memory.entity.delete("alice")
    memory.entity.add("Alice", attributes={"new": True})
    with pytest.raises(
        ConflictError, match=r"another one goes by its name \('Alice'\) now; delete or rename that first"
    ):
        memory.restore(old)


def test_writers_at_the_same_time_make_one_entity_and_lose_nothing(memory: MemoryManager) -> None:
    def tell(number: int) -> str:
        return memory.entity.add("Alice", attributes={f"fact_{number}": number})

    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(tell, range(24)))
    assert len(ids) == 1
    assert memory.entity.get("Alice")["attributes"] == {f"fact_{n}": n for n in range(24)}
    assert memory.get(ids.pop())["metadata"]["attributes"] == {f"fact_{n}": n for n in range(24)}


def test_what_makes_no_sense_is_refused(memory: MemoryManager) -> None:
    memory.entity.add("Alice")
    with pytest.raises(InvalidInputError, match="before it begins"):
        memory.entity.relate("Alice", "knows", "Bob", since=100.0, until=50.0)
    with pytest.raises(InvalidInputError, match="direction"):
        memory.entity.neighbours("Alice", direction="sideways")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="not JSON"):
        memory.entity.set("Alice", {"when": datetime(2025, 1, 1, tzinfo=UTC)})
    with pytest.raises(NotFoundError, match="add it first"):
        memory.entity.get("Nobody")


def test_a_relation_is_not_told_after_its_end_nor_before_its_beginning(memory: MemoryManager, clock: FakeClock) -> None:
    begun = clock.now
    memory.entity.relate("Ann", "works_for", "Acme", until=begun + timedelta(days=10))
    memory.entity.relate("Ann", "works_for", "Globex", since=begun + timedelta(days=20))
    memory.entity.set("Ann", {"city": "Lyon"})
    memory.entity.end("Ann", "city", at=begun + timedelta(days=30))
    ann = memory.entity.get("Ann")["entity_id"]

    def told(**when: Any) -> tuple[set[str], Any]:
        (found,) = [one for one in memory.retrieve("Ann works for", "entity", **when) if one["memory_id"] == ann]
        if not when:
            (listed,) = [one for one in memory.list_memories("entity") if one["memory_id"] == ann]
            assert listed["content"] == found["content"]
        assert memory.get(ann, **when)["content"] == found["content"]
        return {word for word in ("Acme", "Globex", "Lyon") if word in found["content"]}, found["metadata"][
            "attributes"
        ]

    assert told() == ({"Acme", "Lyon"}, {"city": "Lyon"})
    clock.advance(days=15)
    assert told() == ({"Lyon"}, {"city": "Lyon"})
    clock.advance(days=10)
    assert told() == ({"Globex", "Lyon"}, {"city": "Lyon"})
    clock.advance(days=10)
    assert told() == ({"Globex"}, {})
    assert told(as_of=begun + timedelta(days=1)) == ({"Acme", "Lyon"}, {"city": "Lyon"})
    assert told(as_of=begun + timedelta(days=15)) == ({"Lyon"}, {"city": "Lyon"})
    context = memory.context("Ann works for", kinds="entity").text
    assert "Globex" in context
    assert "Acme" not in context
