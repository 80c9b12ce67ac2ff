"""RF-003, add and retrieve memory: its ten scenarios and its metrics, one test each."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import raw
from clocks import FakeClock
from holdfast import Holdfast, MemoryManager, MemoryType, QuotaExceededError, aio
from holdfast.core.records import TYPES
from holdfast.engine import default_engine
from holdfast.memory import services
from homes import Homes

RESULT_FIELDS = {"memory_id", "operation", "memory_type", "latency_ms", "quota_remaining"}


def test_rf_003_1_add_working_memory(memory: MemoryManager, holdfast: Holdfast, homes: Homes) -> None:
    result = memory.add("current_task: book flight to Paris", "working")

    assert set(result) == RESULT_FIELDS
    assert result["operation"] == "add"
    assert result["memory_type"] == "working"
    assert result["quota_remaining"] == TYPES[MemoryType.WORKING].max_memories - 1
    assert memory.get(result["memory_id"])["content"] == "current_task: book flight to Paris"
    # kept in the process: nothing of it is in the store, in its files or on its server
    holdfast.close()
    files = [path.read_bytes() for path in holdfast.settings.home.rglob("*") if path.is_file()]
    assert not any(b"book flight" in data for data in [*files, *homes.tables(holdfast.settings.home).values()])


def test_rf_003_2_add_short_term_memory(memory: MemoryManager, clock: FakeClock) -> None:
    result = memory.add("User: How much is a flight to Paris?", "short_term")

    assert set(result) == RESULT_FIELDS
    assert memory.short_term.get_ttl() == 3600
    clock.advance(seconds=3599)
    assert memory.short_term.get_ttl() == 1
    assert [m["content"] for m in memory.short_term.get_conversation_history()] == [
        "User: How much is a flight to Paris?"
    ]


def test_rf_003_3_add_long_term_memory(memory: MemoryManager, holdfast: Holdfast) -> None:
    result = memory.add("User enjoys skiing and mountain views", "long_term")

    assert set(result) == RESULT_FIELDS
    assert result["quota_remaining"] == 9_999
    rows = raw.rows(holdfast, "SELECT length(vectors), models.id FROM records JOIN models ON model = code")
    assert rows == [(holdfast.embedder.dim, holdfast.recall.model)], "an embedding is made from the content"


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


def test_rf_003_7_auto_prune(holdfast: Holdfast, clock: FakeClock) -> None:
    memory = holdfast.manager("user_123", "travel_agent", auto_prune=True)
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


def test_rf_003_8_compression(memory: MemoryManager, holdfast: Holdfast) -> None:
    content = "The user described the hotel at length. " * 128
    assert len(content) == 5_120

    memory_id = memory.add(content, "long_term")["memory_id"]
    small = memory.add("a short one", "long_term")["memory_id"]

    found = memory.get(memory_id)
    assert found["content"] == content
    assert found["metadata"]["is_compressed"] is True
    assert "is_compressed" not in memory.get(small)["metadata"]
    assert memory.retrieve("description of the hotel", top_k=1)[0]["content"] == content
    ((stored,),) = raw.rows(holdfast, "SELECT content FROM records WHERE id = ?", (memory_id,))
    assert isinstance(stored, bytes)
    assert len(stored) < len(content)
    edge = {size: memory.add("x" * size, "long_term")["memory_id"] for size in (1_024, 1_025)}
    compressed = {size: "is_compressed" in memory.get(memory_id)["metadata"] for size, memory_id in edge.items()}
    assert compressed == {1_024: False, 1_025: True}, "more than a kilobyte"


def test_rf_003_9_retrieve_with_filters(memory: MemoryManager) -> None:
    memory.add("User likes skiing", "long_term", {"category": "sports"})
    memory.add("User likes coffee", "long_term", {"category": "food"})

    results = memory.retrieve("preferences", memory_type="long_term", filters={"category": "sports"})

    assert [result["content"] for result in results] == ["User likes skiing"]


def test_rf_003_10_empty_results(holdfast: Holdfast) -> None:
    memory = holdfast.manager("new_user", "travel_agent")

    assert memory.retrieve("anything", memory_type="long_term") == []
    assert memory.retrieve("anything", memory_types=list(MemoryType)) == []


class Ticks:
    """Time, as whoever measures durations sees it: each look at it is so much later than the one before."""

    def __init__(self, milliseconds: float) -> None:
        self._step = milliseconds / 1_000
        self._now = 0.0

    def perf_counter(self) -> float:
        self._now += self._step
        return self._now


@pytest.mark.parametrize(
    ("kind", "target"), [("working", 1), ("short_term", 10), ("long_term", 100), ("persona", 100), ("entity", 100)]
)
def test_rf_003_an_add_that_takes_longer_than_its_target_is_a_warning(
    memory: MemoryManager, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, kind: str, target: int
) -> None:
    monkeypatch.setattr(services, "time", Ticks(target))
    assert memory.add("just in time", kind)["latency_ms"] == pytest.approx(target)
    monkeypatch.setattr(services, "time", Ticks(target + 0.25))
    assert memory.add("a little late", kind)["latency_ms"] == pytest.approx(target + 0.25)
    monkeypatch.undo()

    (warning,) = [record for record in caplog.records if record.name == "holdfast.latency"]
    assert warning.levelno == logging.WARNING
    assert warning.getMessage() == f"add of {kind} memory took {target + 0.25:.2f} ms (target: {target} ms)"


def test_rf_003_results_of_all_kinds_are_ordered_by_falling_score_and_cut_to_top_k(memory: MemoryManager) -> None:
    words = ["ski", "snow", "coffee", "train", "hotel", "museum", "river", "garden", "piano", "soup"]
    shuffle = random.Random(3)
    durable = ["long_term", "persona", "episodic", "entity"]
    for kind in ["working", *durable]:
        memory.add_many([" ".join(shuffle.sample(words, 4)) for _ in range(20)], kind)

    query = "train to the museum hotel"
    alone = {
        kind: {found["memory_id"]: found["score"] for found in memory.retrieve(query, [kind], top_k=100)}
        for kind in ["working", *durable]
    }
    results = memory.retrieve(query, durable, top_k=30)

    scores = [result["score"] for result in results]
    assert len(results) == 30
    assert scores == sorted(scores, reverse=True), "whatever kind they are of"
    assert all(0 <= score <= 1 for score in scores)
    kinds = [result["memory_type"] for result in results]
    assert set(kinds) == set(durable)
    assert kinds != sorted(kinds, key=kinds.index), "kinds come in turn, not one after the other"
    assert all(alone[result["memory_type"]][result["memory_id"]] == result["score"] for result in results)
    everything = sorted((score for kind in durable for score in alone[kind].values()), reverse=True)
    assert scores == everything[:30], "the best of all of them"

    explained = memory.retrieve(query, durable, top_k=30, explain=True)
    assert [result["score"] for result in explained] == scores
    assert all(result["explanation"] for result in explained)
    assert "explanation" not in results[0], "only on request"

    with_notes = memory.retrieve(query, ["long_term", "working"], top_k=10)
    assert len(with_notes) == 10
    kinds = [result["memory_type"] for result in with_notes]
    assert kinds == sorted(kinds, reverse=True), "working memory first"
    for kind in ("working", "long_term"):
        own = [result["score"] for result in with_notes if result["memory_type"] == kind]
        assert own == sorted(own, reverse=True)


def test_rf_003_the_manager_keeps_its_arguments_and_names_its_kinds(holdfast: Holdfast) -> None:
    memory = holdfast.manager("test", "test_agent", auto_prune=True)
    assert (memory.user_id, memory.agent_id, memory.auto_prune) == ("test", "test_agent", True)
    assert holdfast.manager("test", "test_agent").auto_prune is False
    with pytest.raises(AttributeError):  # another user's memory is another manager
        memory.user_id = "another"  # type: ignore[misc]
    memory.long_term.add("User enjoys skiing")
    memory.persona.add("I am a ski instructor")
    memory.short_term.add_message("user", "hello")
    assert [memory.long_term.count(), memory.persona.count(), len(memory.working.items())] == [1, 1, 0]
    assert memory.persona.retrieve("who am I?")[0]["content"] == "I am a ski instructor"
    assert [found["content"] for found in memory.long_term.list()] == ["User enjoys skiing"]


def test_rf_003_a_memory_without_an_engine_opens_the_one_that_the_settings_name(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    MemoryManager(user_id="test", agent_id="test_agent").add("User enjoys skiing", MemoryType.LONG_TERM)
    assert MemoryManager(user_id="test", agent_id="test_agent").count_memories(MemoryType.LONG_TERM) == 1
    default_engine().close()
    with Holdfast.open(home=home) as holdfast:
        assert holdfast.manager("test", "other").retrieve("skiing")


def test_rf_003_empty_content_is_a_value_error(memory: MemoryManager) -> None:
    with pytest.raises(ValueError, match="cannot be empty"):
        memory.add("", "long_term")


BOUNDED = [kind for kind in MemoryType if kind is not MemoryType.SHORT_TERM]


def content(kind: MemoryType, number: int) -> str | dict[str, int]:
    return {"n": number} if kind is MemoryType.STRUCTURED else f"content {number}"


def fill_to_quota(holdfast: Holdfast, memory: MemoryManager, kind: MemoryType) -> int:
    """Add as many memories of a kind as a user may have: a few, where that can be set."""
    most = TYPES[kind].max_memories if kind is MemoryType.WORKING else 3
    if kind is not MemoryType.WORKING:
        holdfast.quotas.set(kind, max_memories=most)
    for number in range(most):
        assert memory.add(content(kind, number), kind)["quota_remaining"] == most - number - 1
    return most


@pytest.mark.parametrize("kind", BOUNDED)
def test_rf_003_the_add_after_the_last_that_the_quota_allows_is_refused(
    holdfast: Holdfast, memory: MemoryManager, kind: MemoryType
) -> None:
    most = fill_to_quota(holdfast, memory, kind)

    with pytest.raises(QuotaExceededError, match=f"max: {most:,}"):
        memory.add(content(kind, most), kind)

    assert memory.count_memories(kind) == most
    others = holdfast.manager("another user", memory.agent_id, memory.session_id)
    assert others.add(content(kind, 0), kind)["quota_remaining"] == most - 1, "a quota is a user's own"


@pytest.mark.parametrize("kind", BOUNDED)
def test_rf_003_no_way_of_writing_gets_past_the_quota(
    holdfast: Holdfast, memory: MemoryManager, kind: MemoryType
) -> None:
    deleted = None
    if kind is not MemoryType.WORKING:  # which has no recycle bin
        deleted = memory.add(content(kind, -1), kind)["memory_id"]
        memory.delete(deleted)
    most = fill_to_quota(holdfast, memory, kind)
    other_agent = holdfast.manager(memory.user_id, "another agent", memory.session_id)
    ways: dict[str, Callable[[], object]] = {
        "many": lambda: memory.add_many([content(kind, n) for n in range(2)], kind),
        "one of many": lambda: memory.add_many([content(kind, most)], kind),
    }
    own: dict[MemoryType, Callable[[], object]] = {
        MemoryType.WORKING: lambda: memory.working.add("one more"),
        MemoryType.LONG_TERM: lambda: other_agent.long_term.add("one more"),
        MemoryType.PERSONA: lambda: memory.persona.add("one more"),
        MemoryType.EPISODIC: lambda: memory.episodic.record_episode("one more", ["a step"]),
        MemoryType.ENTITY: lambda: other_agent.entity.add("One More", "person"),
        MemoryType.STRUCTURED: lambda: other_agent.structured.put("trips", {"n": 1}, key="one more"),
    }
    ways["its own verb"] = own[kind]
    if deleted is not None:
        ways["the recycle bin"] = lambda: memory.restore(deleted)
    for way in ways.values():
        with pytest.raises(QuotaExceededError):
            way()
        assert memory.count_memories(kind) == most
    if kind is MemoryType.PERSONA:  # of which nothing is ever pruned
        with pytest.raises(QuotaExceededError):
            memory.add_with_auto_prune(content(kind, most), kind)
    else:
        assert memory.add_with_auto_prune(content(kind, most), kind)["operation"] == "add_with_prune"
    assert memory.count_memories(kind) <= most


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


def test_rf_003_the_manager_takes_auto_prune_in_its_place_and_a_session_by_name(holdfast: Holdfast) -> None:
    memory = MemoryManager("test", "test_agent", True, session_id="s1", engine=holdfast)
    assert (memory.user_id, memory.agent_id, memory.auto_prune, memory.session_id) == ("test", "test_agent", True, "s1")
    assert MemoryManager("test", "test_agent", engine=holdfast).auto_prune is False
    for wrong in ("s1", "", None, 1):
        with pytest.raises(TypeError, match="session_id="):
            MemoryManager("test", "test_agent", wrong, engine=holdfast)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="session_id="):
            aio.MemoryManager("test", "test_agent", wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        holdfast.manager("test", "test_agent", "s1", True)  # type: ignore[call-arg]
    assert holdfast.manager("test", "test_agent", "s1", auto_prune=True).session_id == "s1"
