"""Structured memory: documents, their schema, and queries by field."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast import InvalidContentError, InvalidFilterError, InvalidInputError, MemoryManager, SchemaViolationError

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


@pytest.mark.parametrize("content", ["plain text", "[1, 2]", "{}", [1], 7])
def test_what_is_not_an_object_is_refused(memory: MemoryManager, content: object) -> None:
    with pytest.raises(InvalidContentError, match="takes a JSON object"):
        memory.add(content, "structured")  # type: ignore[arg-type]
