"""Structured memory: documents, their schema, and queries by field."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from clocks import FakeClock
from holdfast import (
    HeldError,
    Holdfast,
    InvalidContentError,
    InvalidFilterError,
    InvalidInputError,
    MemoryManager,
    QuotaExceededError,
    SchemaViolationError,
    StaleError,
)

ORDER = {"type": "object", "required": ["total"], "properties": {"total": {"type": "number", "minimum": 0}}}


def test_documents_are_found_by_their_fields(memory: MemoryManager) -> None:
    memory.structured.put("orders", {"total": 30, "status": "paid", "items": ["pen"], "to": {"city": "Rome"}}, key="o1")
    memory.structured.put("orders", {"total": 12.5, "status": "open", "items": ["ink", "pen"], "to": {"city": "Oslo"}})
    memory.structured.put("orders", {"total": 99, "status": "paid", "items": []}, key="o3")
    memory.structured.put("invoices", {"total": 99}, key="i1")

    def totals(where: dict[str, object]) -> list[float]:
        return [found["document"]["total"] for found in memory.structured.find("orders", where, order_by="total")]  # type: ignore[index]

    assert totals({"status": "paid"}) == [30, 99]
    assert totals({"total": {"gte": 12.5, "lt": 99}}) == [12.5, 30]
    assert totals({"items": "pen"}) == [12.5, 30]
    assert totals({"items": {"all": ["ink", "pen"]}}) == [12.5]
    assert totals({"to.city": ["Oslo", "Rome"]}) == [12.5, 30]
    assert totals({"to": {"exists": False}}) == [99]
    assert totals({"any": [{"status": "open"}, {"total": 99}]}) == [12.5, 99]
    assert [f["key"] for f in memory.structured.find("orders", order_by="total", descending=True, limit=1)] == ["o3"]
    assert len(memory.structured.find()) == 4
    with pytest.raises(InvalidFilterError):
        memory.structured.find("orders", {"total": {"above": 3}})


def test_a_key_names_one_document_that_later_ones_replace(memory: MemoryManager) -> None:
    first = memory.structured.put("profile", {"theme": "dark"}, key="ui")
    assert memory.structured.put("profile", {"theme": "light"}, key="ui") == first
    assert memory.structured.get("profile", "ui") == {"theme": "light"}
    assert memory.structured.get("profile", "nothing") is None
    assert memory.structured.delete("profile", "ui") is True
    assert memory.structured.delete("profile", "ui") is False
    assert memory.structured.get("profile", "ui") is None
    memory.restore(first)
    assert memory.structured.get("profile", "ui") == {"theme": "light"}


def test_writers_of_one_key_make_one_document(memory: MemoryManager) -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(lambda n: memory.structured.put("c", {"n": n}, key="k"), range(16)))
    assert len(ids) == 1
    assert memory.count_memories("structured") == 1


def test_a_schema_is_enforced_from_then_on(memory: MemoryManager) -> None:
    memory.structured.define("orders", ORDER)
    memory.structured.put("orders", {"total": 3})
    with pytest.raises(SchemaViolationError, match="total: -3 is less than the minimum"):
        memory.structured.put("orders", {"total": -3})
    with pytest.raises(SchemaViolationError, match="'total' is a required property"):
        memory.add({"sum": 3}, "structured", {"collection": "orders"})
    memory.structured.put("other", {"sum": 3})
    assert memory.count_memories("structured") == 2
    memory.structured.define("orders", None)
    memory.structured.put("orders", {"total": -3})
    with pytest.raises(InvalidInputError, match="not valid"):
        memory.structured.define("orders", {"type": "nonsense"})


def test_documents_are_added_and_recalled_like_any_memory(memory: MemoryManager) -> None:
    memory.add('{"city": "Lisbon", "hotel": "Mundial"}', "structured", {"collection": "trips"})
    memory.add({"city": "Porto", "hotel": "Infante"}, "structured", {"collection": "trips"})
    found = memory.retrieve("hotel in Lisbon", memory_type="structured", top_k=1)[0]
    assert found["metadata"]["document"] == {"city": "Lisbon", "hotel": "Mundial"}
    (found,) = memory.retrieve("hotel", memory_type="structured", filters={"document.city": "Porto"})
    changed = memory.update(found["memory_id"], {"city": "Porto", "hotel": "Carris"})
    assert changed["metadata"]["document"]["hotel"] == "Carris"
    assert memory.structured.find("trips", {"hotel": "Carris"})


@pytest.mark.parametrize("content", ["plain text", "[1, 2]", [1], 7])
def test_what_is_not_an_object_is_refused(memory: MemoryManager, content: object) -> None:
    with pytest.raises(InvalidContentError, match="takes a JSON object"):
        memory.add(content, "structured")  # type: ignore[arg-type]


def test_several_documents_are_put_together_or_not_at_all(memory: MemoryManager) -> None:
    old = memory.structured.put("prices", {"pen": 1}, key="a")
    gone = memory.structured.put("prices", {"ink": 9}, key="z")
    ids = memory.structured.put_many(
        [
            {"collection": "prices", "key": "a", "document": {"pen": 2}},
            {"collection": "prices", "key": "b", "document": {"pen": 3}},
            {"collection": "prices", "key": "b", "document": {"pen": 4}},
            {"collection": "prices", "key": "z", "document": None},
            {"collection": "prices", "key": "nothing", "document": None},
            {"collection": "notes", "document": {}},
        ]
    )
    assert (ids[0], ids[1], ids[3], ids[4]) == (old, ids[2], gone, None)
    assert [memory.structured.get("prices", key) for key in "abz"] == [{"pen": 2}, {"pen": 4}, None]
    assert [found["document"] for found in memory.structured.find("notes")] == [{}]
    memory.structured.define("orders", ORDER)
    with pytest.raises(SchemaViolationError):
        memory.structured.put_many(
            [
                {"collection": "prices", "key": "a", "document": {"pen": 7}},
                {"collection": "orders", "key": "o", "document": {}},
            ]
        )
    with pytest.raises(StaleError):
        memory.structured.put_many(
            [
                {"collection": "prices", "key": "a", "document": {"pen": 7}},
                {"collection": "prices", "key": "c", "document": {"pen": 7}, "if_version": 3},
            ]
        )
    assert memory.structured.get("prices", "a") == {"pen": 2}
    assert memory.count_memories("structured") == 3


def test_a_batch_that_does_not_fit_the_quota_changes_nothing(holdfast: Holdfast, memory: MemoryManager) -> None:
    memory.structured.put("c", {"n": 0}, key="0")
    holdfast.quotas.set("structured", 3, user_id=memory.user_id)
    puts = [{"collection": "c", "key": str(n), "document": {"n": 7}} for n in range(4)]
    with pytest.raises(QuotaExceededError):
        memory.structured.put_many(puts)  # type: ignore[arg-type]
    assert memory.structured.get("c", "0") == {"n": 0}
    memory.structured.put_many(puts[:3])  # type: ignore[arg-type]
    assert memory.structured.collections() == [{"collection": "c", "documents": 3}]


def test_a_batch_that_would_remove_what_is_held_changes_nothing(holdfast: Holdfast, memory: MemoryManager) -> None:
    held = memory.structured.put("c", {"n": 1}, key="held")
    holdfast.holds.add(reason="a lawsuit", memory_id=held, user_id=memory.user_id)
    with pytest.raises(HeldError, match=held):
        memory.structured.put_many(
            [
                {"collection": "c", "key": "new", "document": {"n": 2}},
                {"collection": "c", "key": "held", "document": None},
            ]
        )
    assert (memory.structured.get("c", "new"), memory.structured.get("c", "held")) == (None, {"n": 1})
    assert memory.explain(held)["history"][-1]["action"] == "refused"


def test_a_document_is_read_with_its_dates_and_its_version(memory: MemoryManager, clock: FakeClock) -> None:
    memory.structured.put("c", {"n": 1}, key="k")
    made = clock.now
    clock.advance(days=1)
    memory.structured.put("c", {"n": 2}, key="k")
    found = memory.structured.read("c", "k")
    assert found is not None
    assert (found["created_at"], found["updated_at"]) == (made.isoformat(), clock.now.isoformat())
    assert (found["document"], found["version"], found["expires_at"]) == ({"n": 2}, 2, None)
    assert memory.structured.read("c", "nothing") is None


def test_a_put_can_rely_on_what_was_read(memory: MemoryManager) -> None:
    memory.structured.put("c", {"n": 1}, key="k", if_version=0)
    with pytest.raises(StaleError, match=r"'c/k' is there already, at version 1"):
        memory.structured.put("c", {"n": 9}, key="k", if_version=0)
    memory.structured.put("c", {"n": 2}, key="k", if_version=1)
    with pytest.raises(StaleError, match="is at version 2, not at version 1"):
        memory.structured.put("c", {"n": 9}, key="k", if_version=1)
    memory.structured.delete("c", "k")
    with pytest.raises(StaleError, match="is not there any more"):
        memory.structured.put("c", {"n": 9}, key="k", if_version=2)
    with pytest.raises(InvalidInputError, match="key"):
        memory.structured.put("c", {"n": 9}, if_version=0)

    def count_up(_number: int) -> None:
        while True:
            there = memory.structured.read("c", "counter")
            count, version = (0, 0) if there is None else ((there["document"] or {})["n"], there["version"])
            try:
                memory.structured.put("c", {"n": count + 1}, key="counter", if_version=version)
            except StaleError:
                continue
            return

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count_up, range(12)))
    assert memory.structured.get("c", "counter") == {"n": 12}


def test_a_document_with_a_time_to_live_is_gone_when_it_is_over(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    session = memory.structured.put("sessions", {"step": 1}, key="s", ttl=60)
    memory.structured.put("sessions", {"step": 1}, key="kept")
    clock.advance(seconds=59)
    assert memory.structured.get("sessions", "s") == {"step": 1}
    memory.structured.put("sessions", {"step": 2}, key="s", ttl=60)
    clock.advance(seconds=59)
    found = memory.structured.read("sessions", "s")
    assert found is not None
    assert found["expires_at"] == clock.now.replace(second=clock.now.second + 1).isoformat()
    assert "its own time to live" in str(memory.explain(session))
    clock.advance(seconds=1)
    assert memory.structured.get("sessions", "s") is None
    assert [found["key"] for found in memory.structured.find("sessions")] == ["kept"]
    assert memory.structured.collections() == [{"collection": "sessions", "documents": 1}]
    assert memory.structured.refresh("sessions", ["s"]) == 0
    assert memory.structured.get("sessions", "s") is None
    holdfast.sweep()
    assert [entry["memory_id"] for entry in holdfast.recycle.list()] == [session]
    memory.structured.put("sessions", {"step": 3}, key="s", ttl=60)
    memory.structured.put("sessions", {"step": 4}, key="s")
    clock.advance(days=30)
    assert memory.structured.get("sessions", "s") == {"step": 4}


def test_a_refresh_begins_a_time_to_live_anew(memory: MemoryManager, clock: FakeClock) -> None:
    memory.structured.put("c", {"n": 1}, key="k", ttl=60)
    memory.structured.put("c", {"n": 1}, key="lasting")
    assert len(memory.structured.find("c")) == 2
    clock.advance(seconds=50)
    assert memory.structured.refresh("c", ["k", "lasting", "nothing"]) == 1
    clock.advance(seconds=50)
    assert memory.structured.get("c", "k") == {"n": 1}
    assert len(memory.structured.find("c")) == 2
    clock.advance(seconds=10)
    assert len(memory.structured.find("c")) == 1


def test_a_time_to_live_stays_through_rules_and_backups(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    ends = clock.now + timedelta(days=30)
    for key in ("stays", "comes back"):
        memory.structured.put("c", {"n": 1}, key=key, ttl=30 * 86_400)
    backup = holdfast.backups.create()
    holdfast.policies.set("structured", user_id=memory.user_id, archive_after_days=29, confirm=True)
    memory.structured.delete("c", "comes back")
    clock.advance(days=16)
    holdfast.sweep()
    holdfast.backups.restore(backup.id)
    found = [memory.structured.read("c", key) for key in ("stays", "comes back")]
    assert [one and one["expires_at"] for one in found] == [ends.isoformat()] * 2
    holdfast.policies.set("structured", user_id=memory.user_id, keep_days=40)
    clock.advance(days=20)
    assert memory.structured.get("c", "stays") == {"n": 1}
    clock.advance(days=5)
    assert memory.structured.get("c", "stays") is None


@pytest.mark.parametrize("ttl", [0, -1, True, "60", float("nan"), float("inf")])
def test_a_time_to_live_is_a_number_of_seconds(memory: MemoryManager, ttl: float) -> None:
    with pytest.raises(InvalidInputError, match="number of seconds"):
        memory.structured.put("c", {"n": 1}, key="k", ttl=ttl)


def test_a_search_finds_a_document_by_the_text_that_was_chosen(memory: MemoryManager) -> None:
    memory.structured.put("c", {"title": "harbour", "body": "violin lessons"}, key="all")
    memory.structured.put("c", {"title": "harbour", "body": "violin lessons"}, key="some", search_text=["tax returns"])
    memory.structured.put("c", {"title": "harbour", "body": "violin lessons"}, key="none", search_text=False)

    def best(query: str) -> str:
        return str(memory.retrieve(query, memory_type="structured", top_k=1)[0]["metadata"]["key"])

    assert (best("violin lessons"), best("tax returns")) == ("all", "some")
    hidden = memory.structured.read("c", "none")
    assert hidden is not None
    assert hidden["document"] == {"title": "harbour", "body": "violin lessons"}
    memory.update(hidden["memory_id"], {"title": "tax returns", "body": "tax returns"})
    assert best("tax returns") == "some"
    with pytest.raises(InvalidInputError, match="search_text"):
        memory.structured.put("c", {"n": 1}, search_text=[1])  # type: ignore[list-item]


def test_collections_are_listed_and_found_by_how_they_begin(memory: MemoryManager) -> None:
    for collection in ("users.ann.notes", "users.ann.notes", "users.anna", "users.bob"):
        memory.structured.put(collection, {"n": 1})
    assert [tuple(one.values()) for one in memory.structured.collections("users.ann")] == [
        ("users.ann.notes", 2),
        ("users.anna", 1),
    ]
    assert len(memory.structured.collections()) == 3
    assert {found["collection"] for found in memory.structured.find(prefix="users.ann.")} == {"users.ann.notes"}
    memory.structured.put("cities", {"name": "San Jose"})
    assert len(memory.structured.find("cities", {"name": {"prefix": "San "}})) == 1
    assert memory.structured.find("cities", {"name": {"prefix": "Jose"}}) == []


def test_names_may_be_long(memory: MemoryManager) -> None:
    long, other = "k" * 4_000, "k" * 3_999 + "l"
    for key in (long, other):
        memory.structured.put(long, {"key": key[-1]}, key=key)
    assert memory.structured.put(long, {"key": "new"}, key=long)
    assert [memory.structured.get(long, key) for key in (long, other)] == [{"key": "new"}, {"key": "l"}]
    assert memory.structured.collections() == [{"collection": long, "documents": 2}]
    assert memory.structured.delete(long, long)
    with pytest.raises(InvalidInputError, match="too long"):
        memory.structured.put("c", {}, key="k" * 5_000)


def test_a_put_brings_a_document_back_from_cold_storage(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    first = memory.structured.put("c", {"n": 1}, key="k")
    clock.advance(days=181)
    holdfast.sweep()
    assert memory.structured.get("c", "k") == {"n": 1}
    cold = memory.structured.read("c", "k")
    assert cold is not None
    assert cold["is_archived"]
    assert memory.structured.put("c", {"n": 2}, key="k") == first
    assert memory.structured.find("c")[0]["document"] == {"n": 2}
