"""Retention holds on read: at the instant of its end a record is gone, a microsecond before it is there.

No sweep runs in any of these tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from clocks import FakeClock
from holdfast import Holdfast, MemoryManager
from holdfast.core.errors import HoldfastError, NotFoundError

MICROSECOND = timedelta(microseconds=1)
LIFE = timedelta(days=10)
Seen = Callable[[], bool]


def is_found(read: Callable[[], object]) -> bool:
    """Whether a read that raises where there is nothing finds something."""
    try:
        return bool(read())
    except NotFoundError:
        return False


def plain(memory: MemoryManager, kind: str) -> dict[str, Seen]:
    """Every way to read a memory of a kind that is a plain text."""
    memory_id = memory.add("Ann prefers trains to planes", kind)["memory_id"]

    def is_among(found: Sequence[Mapping[str, object]]) -> bool:
        return any(one["memory_id"] == memory_id for one in found)

    return {
        "retrieve": lambda: is_among(memory.retrieve("trains or planes?", [kind])),
        "retrieve of several kinds": lambda: is_among(memory.retrieve("trains?", [kind, "persona", "entity"])),
        "retrieve with archived": lambda: is_among(memory.retrieve("trains?", [kind], include_archived=True)),
        "list_memories": lambda: is_among(memory.list_memories(kind)),
        "list_memories with archived": lambda: is_among(memory.list_memories(kind, include_archived=True)),
        "get": lambda: is_found(lambda: memory.get(memory_id)),
        "update": lambda: can_be_changed(memory, memory_id),
    }


def can_be_changed(memory: MemoryManager, memory_id: str) -> bool:
    """Whether a memory can be written: one that nobody sees cannot."""
    try:
        memory.update(memory_id, metadata={"seen": True})
    except NotFoundError:
        return False
    except HoldfastError as refusal:
        return "updated as text" in str(refusal)  # an entity is not changed in this way, but it is there
    return True


def episodic(memory: MemoryManager, kind: str) -> dict[str, Seen]:
    episode = memory.episodic
    episode_id = episode.record_episode(
        "book a night train",
        ["looked for trains"],
        messages=[{"role": "user", "content": "A night train to Rome, please"}],
        tool_calls=[{"name": "search"}],
    )
    return {
        "query_similar_episodes": lambda: bool(episode.query_similar_episodes("night train")),
        "query_messages": lambda: bool(episode.query_messages("night train to Rome")),
        "get_messages": lambda: is_found(lambda: episode.get_messages(episode_id)),
        "get_steps": lambda: is_found(lambda: episode.get_steps(episode_id)),
        "get_tool_calls": lambda: is_found(lambda: episode.get_tool_calls(episode_id)),
        "get": lambda: is_found(lambda: memory.get(episode_id)),
        "list_memories": lambda: bool(memory.list_memories("episodic", include_archived=True)),
        "retrieve": lambda: bool(memory.retrieve("night train", ["episodic"])),
    }


def structured(memory: MemoryManager, kind: str) -> dict[str, Seen]:
    documents = memory.structured
    document_id = documents.put("trips", {"city": "Rome"}, key="rome")
    return {
        "structured.get": lambda: documents.get("trips", "rome") is not None,
        "structured.find": lambda: bool(documents.find("trips", {"city": "Rome"})),
        "structured.find in order": lambda: bool(documents.find("trips", order_by="city")),
        "get": lambda: is_found(lambda: memory.get(document_id)),
        "retrieve": lambda: bool(memory.retrieve("Rome", ["structured"])),
        "list_memories": lambda: bool(memory.list_memories("structured")),
    }


def entity(memory: MemoryManager, kind: str) -> dict[str, Seen]:
    known = memory.entity
    entity_id = known.add("Ann", "person", {"city": "Rome"})
    return {
        "entity.get": lambda: is_found(lambda: known.get("Ann")),
        "entity.get by id": lambda: is_found(lambda: known.get(entity_id)),
        "entity.history": lambda: is_found(lambda: known.history("Ann")),
        "entity.neighbours": lambda: is_found(lambda: [known.neighbours("Ann")]),
        "get": lambda: is_found(lambda: memory.get(entity_id)),
        "retrieve": lambda: bool(memory.retrieve("Ann", ["entity"])),
        "list_memories": lambda: bool(memory.list_memories("entity")),
    }


def history(holdfast: Holdfast, memory: MemoryManager) -> dict[str, Seen]:
    memory.short_term.add_message("user", "hello")
    return {
        "sessions.history": lambda: bool(holdfast.sessions.history("travel_agent", "sess_abc123", user_id="user_123")),
        "sessions.history of anyone": lambda: bool(holdfast.sessions.history("travel_agent", "sess_abc123")),
        "sessions.list": lambda: bool(holdfast.sessions.list("user_123")),
        "get_full_history": lambda: bool(memory.short_term.get_full_history()),
    }


READERS: dict[str, Callable[[MemoryManager, str], dict[str, Seen]]] = {
    "long_term": plain,
    "persona": plain,
    "episodic": episodic,
    "structured": structured,
    "entity": entity,
}


def check_boundary(clock: FakeClock, ends: timedelta, ways: dict[str, Seen]) -> None:
    began = clock.now
    for how, sees in ways.items():  # an index that is warm by then must let go of it too
        assert sees(), f"{how} does not see it at once"
    clock.now = began + ends - MICROSECOND
    for how, sees in ways.items():
        assert sees(), f"{how} does not see it a microsecond before its end"
    clock.now = began + ends
    for how, sees in ways.items():
        assert not sees(), f"{how} sees it at its end"
    clock.advance(days=400)
    for how, sees in ways.items():
        assert not sees(), f"{how} sees it long after its end"


@pytest.mark.parametrize("kind", READERS)
def test_a_memory_is_gone_at_the_instant_of_its_end_however_it_is_read(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock, kind: str
) -> None:
    holdfast.policies.set(kind, delete_after_days=10, confirm=True)
    check_boundary(clock, LIFE, READERS[kind](memory, kind))


@pytest.mark.parametrize("kind", READERS)
def test_a_cold_index_sees_the_same_boundary(holdfast: Holdfast, clock: FakeClock, kind: str) -> None:
    holdfast.policies.set(kind, delete_after_days=10, confirm=True)
    ways = READERS[kind](holdfast.manager("user_123", "travel_agent"), kind)
    clock.advance(days=10)
    for how, sees in ways.items():
        assert not sees(), how


@pytest.mark.parametrize("level", ["tenant", "user", "agent", "session", "memory"])
def test_a_rule_at_every_level_holds_to_the_microsecond(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock, level: str
) -> None:
    memory_id = memory.add("Ann prefers trains", "long_term")["memory_id"]
    scope: dict[str, Any] = {
        "tenant": {},
        "user": {"user_id": "user_123"},
        "agent": {"agent_id": "travel_agent"},
        "session": {"session_id": "sess_abc123"},
        "memory": {"user_id": "user_123", "memory_id": memory_id},
    }[level]
    holdfast.policies.set("long_term", delete_after_days=10, confirm=True, **scope)
    ways: dict[str, Seen] = {
        "retrieve": lambda: bool(memory.retrieve("trains")),
        "get": lambda: is_found(lambda: memory.get(memory_id)),
    }
    check_boundary(clock, LIFE, ways)


def test_a_conversation_is_gone_30_days_after_its_last_message(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory.short_term.add_message("user", "good morning")
    clock.advance(days=29)
    check_boundary(clock, timedelta(days=30), history(holdfast, memory))


def test_a_conversation_whose_time_is_over_is_not_revived_by_a_new_message(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory.short_term.add_message("user", "an old secret")
    clock.advance(days=30)
    memory.short_term.add_message("user", "hello again")
    contents = [message["content"] for message in holdfast.sessions.history("travel_agent", "sess_abc123")]
    assert contents == ["hello again"]
    (binned,) = [item for item in holdfast.recycle.list() if item["type"] == "session"]
    assert binned["messages"] == 1


def test_short_term_messages_are_gone_an_hour_after_the_last_write(memory: MemoryManager, clock: FakeClock) -> None:
    message_id = memory.short_term.add_message("user", "where is the station?")
    ways: dict[str, Seen] = {
        "get_conversation_history": lambda: bool(memory.short_term.get_conversation_history()),
        "retrieve": lambda: bool(memory.retrieve("station", ["short_term"])),
        "count": lambda: memory.count_memories("short_term") > 0,
        "ttl": lambda: memory.short_term.get_ttl() is not None,
        "get": lambda: is_found(lambda: memory.get(message_id)),
    }
    check_boundary(clock, timedelta(hours=1), ways)


def test_reading_never_revives(holdfast: Holdfast, memory: MemoryManager, clock: FakeClock) -> None:
    holdfast.policies.set("long_term", delete_after_days=10, confirm=True)
    memory_id = memory.add("Ann prefers trains", "long_term")["memory_id"]
    for _ in range(9):
        clock.advance(days=1)
        assert memory.retrieve("trains")
        assert memory.get(memory_id)
        memory.update(memory_id, metadata={"read": True})
    clock.advance(days=1)
    assert not memory.retrieve("trains")
    with pytest.raises(NotFoundError, match="the end of its time"):
        memory.get(memory_id)


def test_a_clock_that_is_set_back_shows_again_what_no_sweep_has_taken(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    """Visibility is a matter of the moment that is asked about, not of what was asked before."""
    holdfast.policies.set("long_term", delete_after_days=10, confirm=True)
    memory.add("Ann prefers trains", "long_term")
    clock.advance(days=10)
    assert not memory.retrieve("trains")
    clock.advance(days=-1)
    assert memory.retrieve("trains")


# --- the archive -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "days"), [("long_term", 365), ("structured", 180)])
def test_a_cold_kind_is_out_of_recall_at_the_instant_of_its_archiving(
    memory: MemoryManager, clock: FakeClock, kind: str, days: int
) -> None:
    content = {"city": "Rome"} if kind == "structured" else "Ann lives in Rome"
    memory_id = memory.add(content, kind, {"key": "rome", "collection": "trips"})["memory_id"]

    def shown() -> tuple[bool, ...]:
        return (
            bool(memory.retrieve("Rome", [kind])),
            bool(memory.list_memories(kind)),
            not memory.get(memory_id)["is_archived"],
            not memory.retrieve("Rome", [kind], include_archived=True)[0]["is_archived"],
            not memory.list_memories(kind, include_archived=True)[0]["is_archived"],
        )

    began = clock.now
    assert all(shown())
    clock.now = began + timedelta(days=days) - MICROSECOND
    assert all(shown())
    clock.now = began + timedelta(days=days)
    assert not any(shown())


def test_an_episode_is_its_summary_from_the_instant_of_its_archiving(memory: MemoryManager, clock: FakeClock) -> None:
    episode = memory.episodic
    episode_id = episode.record_episode(
        "book a night train", ["looked"], messages=["A night train to Rome"], tool_calls=[{"name": "search"}]
    )
    began = clock.now
    clock.now = began + timedelta(days=90) - MICROSECOND
    assert episode.get_messages(episode_id) == [{"content": "A night train to Rome"}]
    assert episode.query_messages("night train")
    assert "messages" in memory.get(episode_id)
    clock.now = began + timedelta(days=90)
    assert episode.get_messages(episode_id) == "archived"
    assert episode.get_steps(episode_id) == "archived"
    assert episode.get_tool_calls(episode_id) == "archived"
    assert episode.query_messages("night train") == []
    assert "messages" not in memory.get(episode_id)
    (found,) = episode.query_similar_episodes("night train")
    assert found["is_archived"]
    assert memory.retrieve("night train", ["episodic"])[0]["is_archived"]


def test_an_episode_ages_from_its_end_not_from_when_it_was_recorded(memory: MemoryManager, clock: FakeClock) -> None:
    ended = clock.now - timedelta(days=80)
    episode_id = memory.episodic.record_episode("an old trip", ["went"], timestamp=ended)
    clock.now = ended + timedelta(days=90) - MICROSECOND
    assert memory.episodic.get_steps(episode_id) != "archived"
    clock.now = ended + timedelta(days=90)
    assert memory.episodic.get_steps(episode_id) == "archived"
    clock.now = ended + timedelta(days=365)
    with pytest.raises(NotFoundError):
        memory.episodic.get_steps(episode_id)


# --- the recycle bin ---------------------------------------------------------------------------------------------------------


def test_what_is_in_the_bin_can_be_restored_until_the_instant_its_time_is_over(
    memory: MemoryManager, clock: FakeClock
) -> None:
    kept, lost = (memory.add(text, "long_term")["memory_id"] for text in ("one", "two"))
    memory.delete(kept)
    memory.delete(lost)
    began = clock.now
    clock.now = began + timedelta(days=15) - MICROSECOND
    assert memory.restore(kept)["content"] == "one"
    clock.now = began + timedelta(days=15)
    with pytest.raises(HoldfastError, match="no longer be restored"):
        memory.restore(lost)


def test_a_related_entity_whose_time_is_over_is_not_told_of_any_more(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory.entity.relate("Ann", "works_for", "Acme Airways")
    acme = memory.entity.get("Acme Airways")["entity_id"]
    holdfast.policies.set("entity", user_id="user_123", memory_id=acme, delete_after_days=10, confirm=True)
    clock.advance(days=10)
    assert memory.entity.get("Ann")["relations"] == []
    assert memory.entity.neighbours("Ann") == []
    assert memory.retrieve("Acme Airways", ["entity"], filters={"entity_type": "company"}) == []


def test_what_is_past_its_time_is_no_longer_counted(
    memory: MemoryManager, holdfast: Holdfast, clock: FakeClock
) -> None:
    memory.episodic.record_episode("Book a flight", ["booked"])
    clock.advance(days=365, microseconds=-1)
    assert memory.count_memories("episodic") == 1
    clock.advance(microseconds=1)
    assert memory.count_memories("episodic") == 0
    assert holdfast.quotas.get("episodic", "user_123").memories == 1, "its place is taken until a sweep has come"
