"""RF-003, add and retrieve memory: its ten scenarios and its metrics, one test each."""

from __future__ import annotations

import json
import logging
import random
from pathlib import Path

import pytest

import raw
from clocks import FakeClock
from retain import MemoryManager, MemoryType, QuotaExceededError, Retain
from retain.core.types import TYPES
from retain.engine import default_engine

ROOT = Path(__file__).parents[2]

RESULT_FIELDS = {"memory_id", "operation", "memory_type", "latency_ms", "quota_remaining"}


def test_rf_003_1_add_working_memory(memory: MemoryManager, retain: Retain) -> None:
    result = memory.add("current_task: book flight to Paris", "working")

    assert set(result) == RESULT_FIELDS
    assert result["operation"] == "add"
    assert result["memory_type"] == "working"
    assert result["quota_remaining"] == TYPES[MemoryType.WORKING].max_memories - 1
    assert memory.get(result["memory_id"])["content"] == "current_task: book flight to Paris"
    # kept in the process: nothing of it is in the store's files
    retain.close()
    files = b"".join(path.read_bytes() for path in retain.settings.home.rglob("*") if path.is_file())
    assert b"book flight" not in files


def test_rf_003_2_add_short_term_memory(memory: MemoryManager, clock: FakeClock) -> None:
    result = memory.add("User: How much is a flight to Paris?", "short_term")

    assert set(result) == RESULT_FIELDS
    assert memory.short_term.get_ttl() == 3600
    clock.advance(seconds=3599)
    assert memory.short_term.get_ttl() == 1
    assert [m["content"] for m in memory.short_term.get_conversation_history()] == [
        "User: How much is a flight to Paris?"
    ]


def test_rf_003_3_add_long_term_memory(memory: MemoryManager, retain: Retain) -> None:
    result = memory.add("User enjoys skiing and mountain views", "long_term")

    assert set(result) == RESULT_FIELDS
    assert result["quota_remaining"] == 9_999
    rows = raw.rows(retain, "SELECT length(vectors), models.id FROM records JOIN models ON model = code")
    assert rows == [(2 * retain.embedder.dim, retain.recall.model)], "an embedding is made from the content"


def test_rf_003_4_retrieve_by_semantic_search(memory: MemoryManager) -> None:
    for content in ("User enjoys skiing", "User avoids advanced slopes", "User likes coffee with mountain view"):
        memory.add(content, MemoryType.LONG_TERM)

    results = memory.retrieve("skiing preferences", memory_type="long_term", top_k=2)

    assert len(results) == 2
    assert "skiing" in results[0]["content"]
    assert "slopes" in results[1]["content"]
    assert 1 >= results[0]["score"] > results[1]["score"] >= 0
    assert {"memory_id", "content", "memory_type", "score", "metadata"} <= set(results[0])


def test_rf_003_5_retrieve_from_several_kinds(memory: MemoryManager) -> None:
    memory.add({"current_destination": "Paris"}, "working")
    memory.add("User likes French cuisine", "long_term")

    results = memory.retrieve("Paris trip planning", memory_types=["working", "long_term"])

    assert [result["memory_type"] for result in results] == ["working", "long_term"]
    assert "Paris" in results[0]["content"]


def test_rf_003_6_quota_exceeded(memory: MemoryManager) -> None:
    memory.add_many([f"memory number {n}" for n in range(10_000)], "long_term")

    with pytest.raises(QuotaExceededError) as refusal:
        memory.add("One more memory", "long_term")

    assert "max: 10,000" in str(refusal.value)
    assert "delete old memories or upgrade" in str(refusal.value)
    assert memory.count_memories("long_term") == 10_000


def test_rf_003_7_auto_prune(retain: Retain, clock: FakeClock) -> None:
    memory = retain.manager("user_123", "travel_agent", auto_prune=True)
    ids = []
    for start in range(0, 10_000, 1_000):
        ids += memory.add_many([f"memory number {n}" for n in range(start, start + 1_000)], "long_term")["memory_ids"]
        clock.advance(days=1)

    result = memory.add_with_auto_prune("New memory", MemoryType.LONG_TERM)

    assert result["operation"] == "add_with_prune"
    assert result["pruned"] == 1_000
    assert memory.count_memories("long_term") == 9_001, "room was made; the limit itself is never exceeded"
    assert memory.get(result["memory_id"])["content"] == "New memory"
    assert memory.get(ids[1_000])["content"] == "memory number 1000"
    assert memory.restore(ids[0])["content"] == "memory number 0", "the pruned ones are in the recycle bin"


def test_rf_003_8_compression(memory: MemoryManager, retain: Retain) -> None:
    content = "The user described the hotel at length. " * 128
    assert len(content) == 5_120

    memory_id = memory.add(content, "long_term")["memory_id"]
    small = memory.add("a short one", "long_term")["memory_id"]

    found = memory.get(memory_id)
    assert found["content"] == content
    assert found["metadata"]["is_compressed"] is True
    assert "is_compressed" not in memory.get(small)["metadata"]
    assert memory.retrieve("description of the hotel", top_k=1)[0]["content"] == content
    ((stored,),) = raw.rows(retain, "SELECT content FROM records WHERE id = ?", (memory_id,))
    assert isinstance(stored, bytes)
    assert len(stored) < len(content)


def test_rf_003_9_retrieve_with_filters(memory: MemoryManager) -> None:
    memory.add("User likes skiing", "long_term", {"category": "sports"})
    memory.add("User likes coffee", "long_term", {"category": "food"})

    results = memory.retrieve("preferences", memory_type="long_term", filters={"category": "sports"})

    assert [result["content"] for result in results] == ["User likes skiing"]


def test_rf_003_10_empty_results(retain: Retain) -> None:
    memory = retain.manager("new_user", "travel_agent")

    assert memory.retrieve("anything", memory_type="long_term") == []
    assert memory.retrieve("anything", memory_types=list(MemoryType)) == []


def test_rf_003_latencies_are_recorded_and_a_missed_target_is_said_aloud(
    memory: MemoryManager, retain: Retain, caplog: pytest.LogCaptureFixture
) -> None:
    memory.add("User enjoys skiing", "long_term")
    memory.retrieve("skiing")
    rows = {(row["operation"], row["memory_type"]): row for row in retain.latencies.summary()}
    assert rows["add", "long_term"]["count"] == 1
    assert rows["retrieve", "long_term"]["p95_ms"] > 0

    with caplog.at_level(logging.WARNING, "retain.latency"):
        retain.latencies.record("add", "working", 2.5, TYPES[MemoryType.WORKING].latency_ms)
    assert "add of working memory took 2.50 ms (target: 1 ms)" in caplog.text


def test_rf_003_results_are_ordered_by_score(memory: MemoryManager) -> None:
    words = ["ski", "snow", "coffee", "train", "hotel", "museum", "river", "garden", "piano", "soup"]
    shuffle = random.Random(3)
    memory.add_many([" ".join(shuffle.sample(words, 4)) for _ in range(200)], "long_term")

    scores = [result["score"] for result in memory.retrieve("train to the museum hotel", top_k=50)]

    assert len(scores) == 50
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)


def test_rf_003_the_manager_keeps_its_arguments_and_names_its_kinds(retain: Retain) -> None:
    memory = retain.manager("test", "test_agent", auto_prune=True)
    assert (memory.user_id, memory.agent_id, memory.auto_prune) == ("test", "test_agent", True)
    assert retain.manager("test", "test_agent").auto_prune is False
    memory.long_term.add("User enjoys skiing")
    memory.persona.add("I am a ski instructor")
    memory.short_term.add_message("user", "hello")
    assert [memory.long_term.count(), memory.persona.count(), len(memory.working.items())] == [1, 1, 0]
    assert memory.persona.retrieve("who am I?")[0]["content"] == "I am a ski instructor"
    assert [found["content"] for found in memory.long_term.list()] == ["User enjoys skiing"]


def test_rf_003_a_memory_without_an_engine_opens_the_one_that_the_settings_name(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETAIN_HOME", str(home))
    MemoryManager(user_id="test", agent_id="test_agent").add("User enjoys skiing", MemoryType.LONG_TERM)
    assert MemoryManager(user_id="test", agent_id="test_agent").count_memories(MemoryType.LONG_TERM) == 1
    default_engine().close()
    with Retain.open(home=home) as retain:
        assert retain.manager("test", "other").retrieve("skiing")


def test_rf_003_empty_content_is_a_value_error(memory: MemoryManager) -> None:
    with pytest.raises(ValueError, match="cannot be empty"):
        memory.add("", "long_term")


@pytest.mark.parametrize("kind", list(MemoryType))
def test_rf_003_every_kind_has_a_quota_that_is_checked_before_every_add(
    memory: MemoryManager, kind: MemoryType
) -> None:
    content = {"n": 1} if kind is MemoryType.STRUCTURED else "content"
    assert memory.add(content, kind)["quota_remaining"] == TYPES[kind].max_memories - 1


def test_rf_003_retrieve_means_long_term_unless_kinds_are_named(memory: MemoryManager) -> None:
    memory.add("skiing as a task", "working")
    memory.add("skiing as a fact", "long_term")
    assert [r["memory_type"] for r in memory.retrieve("skiing")] == ["long_term"]
    for named in (
        {"memory_type": "working"},
        {"memory_type": MemoryType.WORKING},
        {"memory_types": ["working"]},
        {"memory_types": "working"},
    ):
        assert [r["memory_type"] for r in memory.retrieve("skiing", **named)] == ["working"]


def test_rf_003_auto_prune_is_an_ordinary_add_below_the_quota(memory: MemoryManager) -> None:
    result = memory.add_with_auto_prune("a memory", "long_term")
    assert set(result) == RESULT_FIELDS
    assert result["operation"] == "add"


def test_rf_003_precision_among_the_first_five_is_above_four_fifths(retain: Retain) -> None:
    labelled = json.loads((ROOT / "bench/data/preferences.json").read_text(encoding="utf-8"))
    memory = retain.manager("user", "agent")
    texts = [entry["text"] for entry in labelled["memories"]]
    ids = memory.add_many(texts)["memory_ids"]
    label = {memory_id: entry["id"] for memory_id, entry in zip(ids, labelled["memories"], strict=True)}
    right = [
        label[found["memory_id"]] in query["relevant"]
        for query in labelled["queries"]
        for found in memory.retrieve(query["text"], top_k=5)
    ]
    assert (len(texts), len(right)) == (200, 5 * 40)
    assert sum(right) / len(right) > 0.8
