"""``holdfast.sources``: every name that the source documents use, called as they call it. Where Holdfast decided to do
something else than a document says, the test says what was decided.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from clocks import FakeClock
from holdfast import Holdfast, MemoryManager, MemoryType, QuotaExceededError, sources
from holdfast.core.errors import NotFoundError
from holdfast.core.records import TYPES
from holdfast.engine import default_engine
from holdfast.sources import (
    LATENCY_TARGETS,
    RETENTION_METRICS,
    RETENTION_POLICIES,
    USER_QUOTAS,
    EpisodeSnippet,
    EpisodicMemory,
    LongTermMemory,
    ShortTermMemory,
    apply_retention_rules,
    configure_retention_policy,
    gdpr_delete_user_data,
    gdpr_export_user_data,
    get_retention_policy,
    resolve_gc_params_with_policy,
)

OLD = {"id": 1, "source_type": "context", "created_at": "2001-01-01T00:00:00Z"}


# --- the tables ---------------------------------------------------------------------------------------------------------


def test_the_policies_are_those_of_rt_005() -> None:
    expected: dict[str, dict[str, Any]] = {
        "working": {"duration": "task", "cleanup": "automatic", "backup": False},
        "short_term": {"duration": "session", "ttl_seconds": 3_600, "cleanup": "ttl", "backup": False},
        "long_term": {
            "duration": "persistent",
            "ttl_seconds": None,
            "cleanup": "manual",
            "backup": True,
            "archive_after_days": 365,
        },
        "persona": {"duration": "permanent", "ttl_seconds": None, "cleanup": "never", "backup": True},
        "episodic": {
            "duration": "configurable",
            "ttl_seconds": 7_776_000,
            "cleanup": "ttl",
            "backup": True,
            "archive_after_days": 90,
        },
        "entity": {"duration": "persistent", "ttl_seconds": None, "cleanup": "manual", "backup": True},
        "structured": {
            "duration": "persistent",
            "ttl_seconds": None,
            "cleanup": "manual",
            "backup": True,
            "archive_after_days": 180,
        },
    }
    assert {kind: dict(policy) for kind, policy in RETENTION_POLICIES.items()} == expected


def test_quotas_and_latency_targets_are_those_that_the_engine_goes_by(holdfast: Holdfast) -> None:
    assert USER_QUOTAS["long_term"]["max_memories"] == 10_000
    assert holdfast.quotas.get("long_term", "ann").max_memories == USER_QUOTAS["long_term"]["max_memories"]
    assert (LATENCY_TARGETS["working"], LATENCY_TARGETS["short_term"], LATENCY_TARGETS["long_term"]) == (1, 10, 100)
    assert set(RETENTION_POLICIES) == set(USER_QUOTAS) == set(LATENCY_TARGETS) == {kind.value for kind in MemoryType}
    assert all(LATENCY_TARGETS[kind.value] == row.latency_ms for kind, row in TYPES.items())


def test_the_tables_cannot_be_changed_since_they_are_not_what_decides() -> None:
    for table in (RETENTION_POLICIES, USER_QUOTAS, RETENTION_POLICIES["episodic"], LATENCY_TARGETS, RETENTION_METRICS):
        with pytest.raises(TypeError):
            table["episodic"] = None  # type: ignore[index]


def test_the_metrics_are_exposed_under_their_names_with_their_labels(holdfast: Holdfast, clock: FakeClock) -> None:
    shapes = {name: (metric.type, list(metric.labels)) for name, metric in RETENTION_METRICS.items()}
    assert shapes == {
        "memory_archived_total": ("counter", ["memory_type"]),
        "memory_deleted_total": ("counter", ["memory_type", "reason"]),
        "memory_storage_bytes": ("gauge", ["memory_type"]),
        "memory_age_days": ("histogram", ["memory_type"]),
    }
    memory = holdfast.manager("ann", "guide")
    memory.delete(memory.add("Likes tea")["memory_id"])
    memory.add("Likes trains")
    clock.advance(days=366)
    holdfast.sweep()
    text = holdfast.metrics().decode()
    for name, (sort, labels) in shapes.items():
        assert f"# TYPE {name} {sort}" in text
        shown = next(line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name}_bucket{{")))
        assert all(f"{label}=" in shown for label in labels)


# --- the kinds ----------------------------------------------------------------------------------------------------------


def test_short_term_memory_expires_after_an_hour(holdfast: Holdfast, clock: FakeClock) -> None:
    memory = ShortTermMemory(session_id="test", engine=holdfast)
    memory.add_message("user", "test message")
    (message,) = memory.get_conversation_history()
    assert (message["role"], message["content"], memory.get_ttl()) == ("user", "test message", 3_600)
    assert datetime.fromisoformat(message["timestamp"]) == clock()
    assert ShortTermMemory(session_id="other", engine=holdfast).get_conversation_history() == []

    clock.advance(seconds=RETENTION_POLICIES["short_term"]["ttl_seconds"] + 1)

    assert memory.get_conversation_history() == []


def test_old_episodes_are_cleaned_up_into_the_bin(holdfast: Holdfast, clock: FakeClock) -> None:
    episodic = EpisodicMemory(agent_id="test", engine=holdfast)
    old = (clock() - timedelta(days=91)).timestamp()
    kept = episodic.record_episode("new_task", steps=["looked"], timestamp=clock().timestamp())
    gone = episodic.record_episode("old_task", steps=["looked", "found"], timestamp=old)
    EpisodicMemory(agent_id="test", user_id="ann", engine=holdfast).record_episode("old_task", ["x"], timestamp=old)
    EpisodicMemory(agent_id="other", engine=holdfast).record_episode("old_task", ["x"], timestamp=old)
    before = {one["episode_id"] for one in episodic.query_similar_episodes("old_task")}
    assert before == {kept, gone}, "the sweep would archive it; recall goes on until the clean-up"

    assert episodic.cleanup_old_episodes() == 2, "those of the agent, with every user"

    assert [one["episode_id"] for one in episodic.query_similar_episodes("old_task")] == [kept]
    assert EpisodicMemory(agent_id="*", engine=holdfast).cleanup_old_episodes() == 1, "of every agent"
    # Decided: what is cleaned up can be restored for 15 days; only then it is deleted for good.
    assert holdfast.recycle.restore(memory_id=gone) == 1
    clock.advance(days=16)
    assert holdfast.sweep().counts["delete"] == 2


def test_old_memories_of_everyone_are_archived(holdfast: Holdfast, clock: FakeClock) -> None:
    for user in ("ann", "bob"):
        LongTermMemory(user_id=user, engine=holdfast).add(f"{user} likes tea")
    clock.advance(days=RETENTION_POLICIES["long_term"]["archive_after_days"] + 1)
    holdfast.manager("ann", "guide").add("Likes trains")

    assert LongTermMemory(user_id="ann", engine=holdfast).archive_old_memories() == 1
    assert LongTermMemory(user_id="*", engine=holdfast).archive_old_memories() == 1

    ann = LongTermMemory(user_id="ann", engine=holdfast)
    assert [one["content"] for one in ann.retrieve("what do they like?")] == ["Likes trains"]
    assert {one["content"] for one in ann.export_all("ann")} == {"ann likes tea", "Likes trains"}
    assert ann.delete_all("ann") == 2
    assert ann.count() == 0
    # Decided: deleted by the user means 15 days in the bin.
    assert holdfast.recycle.restore(user_id="ann") == 2


def test_a_recalled_episode_is_a_snippet(holdfast: Holdfast, clock: FakeClock) -> None:
    episodic = EpisodicMemory(agent_id="test", user_id="ann", engine=holdfast)
    episode_id = episodic.record_episode(
        "Annual leave", ["Looked at the balance"], summary="Twelve days of leave are left"
    )
    clock.advance(days=100)
    holdfast.sweep()

    (snippet,) = map(EpisodeSnippet.of, episodic.query_similar_episodes("leave balance"))

    assert (snippet.episode_id, snippet.summary) == (episode_id, "Twelve days of leave are left")
    assert snippet.date == clock() - timedelta(days=100)
    assert 0 < snippet.relevance_score <= 1
    assert snippet.is_archived
    assert episodic.get_messages(episode_id) == "archived"
    assert EpisodeSnippet(episode_id="x", summary="y", date=datetime(2025, 3, 14, tzinfo=UTC), relevance_score=0.87, is_archived=True)  # fmt: skip


# --- the manager --------------------------------------------------------------------------------------------------------


def test_the_manager_is_called_as_rf_003_calls_it_and_keeps_9_001_after_a_prune(holdfast: Holdfast) -> None:
    manager = MemoryManager(user_id="test", agent_id="test_agent", auto_prune=False, engine=holdfast)
    most = USER_QUOTAS["long_term"]["max_memories"]
    manager.add_many([f"Memory {number}" for number in range(most)], MemoryType.LONG_TERM)
    with pytest.raises(QuotaExceededError, match="max: 10,000"):
        manager.add("Exceeds quota", MemoryType.LONG_TERM)

    result = MemoryManager("test", "test_agent", True, engine=holdfast).add_with_auto_prune(
        "New memory", MemoryType.LONG_TERM
    )

    assert (result["operation"], result["pruned"]) == ("add_with_prune", most // 10)
    # Decided: the oldest tenth goes and one comes, so that 9,001 are there; 10,000 stays the limit.
    assert manager.count_memories(MemoryType.LONG_TERM) == 9_001


def test_a_user_s_memories_are_deleted_into_the_bin(holdfast: Holdfast) -> None:
    manager = MemoryManager(user_id="ann", agent_id="*", engine=holdfast)
    writer = holdfast.manager("ann", "guide")
    writer.add("Likes tea")
    writer.add("Alice", "entity", {"type": "person"})
    assert manager.delete_user_memories("ann", MemoryType.LONG_TERM) == 1
    assert manager.delete_user_memories("ann") == 1
    assert len(holdfast.recycle.list()) == 2, "decided: the bin, where RT-005 deletes at once"


# --- privacy and domains ------------------------------------------------------------------------------------------------


def test_a_user_is_exported_and_erased(holdfast: Holdfast) -> None:
    memory = holdfast.manager("ann", "guide")
    memory.add("Likes tea")
    memory.entity.add("Alice", "person")
    memory.structured.put("orders", {"total": 3})

    export = gdpr_export_user_data("ann", engine=holdfast)
    assert export["user_id"] == "ann"
    assert datetime.fromisoformat(export["export_date"]).tzinfo is not None
    assert {kind: len(export["memories"][kind]) for kind in ("long_term", "entity", "structured")} == {
        "long_term": 1,
        "entity": 1,
        "structured": 1,
    }

    counts = gdpr_delete_user_data("ann", engine=holdfast)
    assert (counts["long_term"], counts["entity"], counts["structured"]) == (1, 1, 1)
    # Decided: every kind is counted and erased, not those three alone; and this one skips the bin.
    assert set(counts) == {kind.value for kind in MemoryType}
    assert holdfast.recycle.list() == []
    with pytest.raises(NotFoundError):
        gdpr_export_user_data("ann", engine=holdfast)


def test_the_functions_of_the_domains(holdfast: Holdfast, clock: FakeClock) -> None:
    done = configure_retention_policy("rag", {"older_than_days": 0, "limit": 7}, engine=holdfast)
    assert done.keys() == {"success", "domain", "policy", "updated_at"}
    assert (done["success"], done["domain"], done["updated_at"]) == (True, "rag", clock().isoformat())
    policy = get_retention_policy("rag", engine=holdfast)
    assert policy == done["policy"]
    assert policy.keys() == {"older_than_days", "source_types", "keep_session_ids", "keep_context_ids", "limit", "vacuum", "auto_gc"}  # fmt: skip
    assert (policy["older_than_days"], policy["limit"]) == (1, 7)

    found = apply_retention_rules("rag", [OLD, {**OLD, "source_type": "rumour"}], {"limit": 1}, engine=holdfast)
    assert found.keys() == {"success", "domain", "cutoff_date", "policy_applied", "eligible", "protected", "counts"}
    assert found["counts"] == {"eligible": 1, "protected": 1, "total": 2}
    assert found["eligible"] == [OLD]

    params = resolve_gc_params_with_policy("rag", {"limit": 3}, {"limit": 3, "dry_run": True}, engine=holdfast)
    assert params == {
        **{name: value for name, value in policy.items() if name != "auto_gc"},
        "limit": 3,
        "dry_run": True,
    }


# --- without an engine --------------------------------------------------------------------------------------------------


@pytest.fixture
def settings_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    yield home
    default_engine().close()


def test_without_an_engine_each_works_on_the_one_that_the_settings_name(settings_home: Path) -> None:
    ShortTermMemory(session_id="s1").add_message("user", "hello")
    LongTermMemory(user_id="ann").add("Likes tea")
    EpisodicMemory(agent_id="guide").record_episode("Booked a train", steps=["searched"])
    assert configure_retention_policy("rag", {"limit": 7})["policy"]["limit"] == 7
    assert get_retention_policy("rag")["limit"] == resolve_gc_params_with_policy("rag")["limit"] == 7
    assert apply_retention_rules("rag", [OLD])["counts"]["eligible"] == 1
    assert len(gdpr_export_user_data("ann")["memories"]["long_term"]) == 1
    assert gdpr_delete_user_data("ann")["long_term"] == 1
    holdfast = default_engine()
    assert holdfast.manager("default", "default", "s1").short_term.get_ttl() is not None
    assert len(holdfast.manager("default", "guide").episodic.query_similar_episodes("train")) == 1
    assert holdfast.settings.home == settings_home


def test_every_name_is_there_and_none_is_an_implementation_of_its_own() -> None:
    named = {name for name in sources.__all__ if not name.startswith("_")}
    assert named == {
        "RETENTION_POLICIES",
        "USER_QUOTAS",
        "LATENCY_TARGETS",
        "RETENTION_METRICS",
        "gdpr_delete_user_data",
        "gdpr_export_user_data",
        "configure_retention_policy",
        "get_retention_policy",
        "apply_retention_rules",
        "resolve_gc_params_with_policy",
        "ShortTermMemory",
        "LongTermMemory",
        "EpisodicMemory",
        "EpisodeSnippet",
    }
    for name in named:
        assert not inspect.iscoroutinefunction(getattr(sources, name)), "the documents' own are synchronous"
    assert next(iter(inspect.signature(ShortTermMemory).parameters)) == "session_id"
    assert next(iter(inspect.signature(LongTermMemory).parameters)) == "user_id"
    assert next(iter(inspect.signature(EpisodicMemory).parameters)) == "agent_id"
