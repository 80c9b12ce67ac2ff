"""The archive: exact on the way back, few objects, and clear about what is damaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest

import raw
from clocks import FakeClock
from effort import soak, times
from holdfast import Holdfast, MemoryManager
from holdfast.core.errors import (
    ConflictError,
    LeaseLostError,
    NotFoundError,
    ObjectDamagedError,
    ObjectMissingError,
    ObjectStoreError,
    QuotaExceededError,
)
from holdfast.core.records import Subject
from holdfast.core.values import unpack
from lifecycle.soundness import check_sound, object_path, objects_of

LONG = "Ann takes the window seat. She likes tea with milk. The dog is called Rex. " * 30


def contents(found: Sequence[Mapping[str, Any]]) -> list[str]:
    return [one["content"] for one in found]


def pack_count(holdfast: Holdfast) -> int:
    return len(objects_of(holdfast))


# --- exactly as it was -------------------------------------------------------------------------------------------------


def test_a_memory_comes_back_from_cold_storage_exactly(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    metadata = {"tags": ["a", "ü"], "n": 1.5, "deep": {"list": [1, None, True]}}
    memory_id = memory.add(LONG, "long_term", metadata)["memory_id"]
    subject = Subject("default", "user_123")
    (before,) = holdfast.services.records.entries(subject, [memory_id]).values()
    seen = memory.get(memory_id)
    clock.advance(days=365)
    holdfast.sweep()
    (cold,) = holdfast.services.records.entries(subject, [memory_id]).values()
    assert cold.record.pack is not None
    assert len(cold.record.content) < len(LONG) / 2, "only a summary is left in the store"
    back = memory.rehydrate(memory_id)
    (after,) = holdfast.services.records.entries(subject, [memory_id]).values()
    assert after.encoding == before.encoding
    kept = ("id", "content", "metadata", "body", "name", "created_at", "updated_at", "dated_at", "scope", "kind")
    assert all(getattr(after.record, name) == getattr(before.record, name) for name in kept)
    assert back == seen
    assert contents(memory.retrieve("what is the dog called?")) == [LONG]
    holdfast.sweep()
    check_sound(holdfast)
    assert objects_of(holdfast) == set(), "an object that nothing lies in is gone"


def test_the_age_of_what_came_back_counts_anew(holdfast: Holdfast, memory: MemoryManager, clock: FakeClock) -> None:
    memory_id = memory.add(LONG, "long_term")["memory_id"]
    clock.advance(days=365)
    holdfast.sweep()
    memory.rehydrate(memory_id)
    clock.advance(days=364)
    assert holdfast.sweep().total == 0
    assert memory.retrieve("dog")
    clock.advance(days=1)
    assert holdfast.sweep().counts["archive"] == 1


def test_a_document_is_read_through_cold_storage_and_stays_there(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    document = {"city": "Rome", "nights": 3, "notes": LONG, "nested": {"a": [1, 2]}}
    memory_id = memory.structured.put("trips", document, key="rome")
    clock.advance(days=180)
    holdfast.sweep()
    assert memory.structured.get("trips", "rome") == document
    assert memory.structured.find("trips") == []
    assert memory.get(memory_id)["is_archived"]
    assert pack_count(holdfast) == 1
    memory.rehydrate(memory_id)
    assert memory.structured.find("trips")[0]["document"] == document


def test_a_document_in_cold_storage_can_be_replaced_by_its_key(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory.structured.put("trips", {"city": "Rome", "notes": LONG}, key="trip")
    clock.advance(days=180)
    holdfast.sweep()
    memory.structured.put("trips", {"city": "Oslo"}, key="trip")
    assert memory.structured.get("trips", "trip") == {"city": "Oslo"}


def test_what_is_in_cold_storage_is_brought_back_before_it_is_changed(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    text = memory.add(LONG, "long_term")["memory_id"]
    document = memory.structured.put("trips", {"city": "Rome", "notes": LONG}, key="rome")
    clock.advance(days=365)
    holdfast.sweep()
    for memory_id in (text, document):
        with pytest.raises(ConflictError, match="rehydrate"):
            memory.update(memory_id, metadata={"n": 1})
    memory.rehydrate(document)
    memory.update(document, metadata={"n": 1})
    assert memory.structured.get("trips", "rome") == {"city": "Rome", "notes": LONG}


def test_an_archived_memory_is_recalled_when_it_is_asked_for(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory_id = memory.add(LONG, "long_term")["memory_id"]
    clock.advance(days=365)
    holdfast.sweep()
    assert memory.retrieve("dog called Rex") == []
    (found,) = memory.retrieve("dog called Rex", include_archived=True)
    assert (found["memory_id"], found["is_archived"]) == (memory_id, True)
    assert found["content"]
    assert contents(memory.list_memories()) == []
    assert len(memory.list_memories(include_archived=True)) == 1
    assert memory.count_memories() == 1, "it counts: it can be recalled"


def test_an_archived_episode_keeps_its_summary_and_nothing_else(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    episode_id = memory.episodic.record_episode(
        "book a night train", ["looked for trains"], messages=["The secret word is xylophone"], summary="Went to Rome."
    )
    clock.advance(days=90)
    report = holdfast.sweep()
    assert report.counts["archive"] == 1
    assert objects_of(holdfast) == set()
    ((body, content),) = raw.rows(holdfast, "SELECT body, content FROM records WHERE id = ?", (episode_id,))
    assert (body, unpack(content)) == (None, "Went to Rome.")
    (found,) = memory.episodic.query_similar_episodes("a trip to Rome")
    assert (found["summary"], found["is_archived"]) == ("Went to Rome.", True)
    with pytest.raises(ConflictError, match="only its summary was kept"):
        memory.rehydrate(episode_id)


def test_only_what_is_in_cold_storage_can_be_brought_back(memory: MemoryManager) -> None:
    memory_id = memory.add("young", "long_term")["memory_id"]
    with pytest.raises(ConflictError, match="not in cold storage"):
        memory.rehydrate(memory_id)
    with pytest.raises(NotFoundError):
        memory.rehydrate("0" * 32)


def test_a_full_quota_keeps_a_memory_in_cold_storage(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory_id = memory.add(LONG, "long_term")["memory_id"]
    clock.advance(days=365)
    holdfast.sweep()
    holdfast.quotas.set("long_term", max_bytes=len(LONG) - 1)
    with pytest.raises(QuotaExceededError, match="cannot be brought back"):
        memory.rehydrate(memory_id)
    check_sound(holdfast)
    holdfast.quotas.set("long_term", max_bytes=len(LONG))
    assert memory.rehydrate(memory_id)["content"] == LONG


# --- packing -----------------------------------------------------------------------------------------------------------


@soak
def test_many_small_memories_go_into_few_objects(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock, engine_name: str
) -> None:
    many = times(1_000, engine_name)
    memory.add_many([f"fact {n}: {LONG[:500]}" for n in range(many)], "long_term")
    clock.advance(days=365)
    assert holdfast.sweep().counts["archive"] == many
    assert pack_count(holdfast) <= 4 + many // 1_000
    check_sound(holdfast)


def test_a_weekly_trickle_leaves_no_crumbs(holdfast: Holdfast, memory: MemoryManager, clock: FakeClock) -> None:
    ids = []
    for week in range(8):
        ids.append(memory.add(f"week {week}: {LONG}", "long_term")["memory_id"])
        clock.advance(days=7)
    clock.advance(days=365 - 8 * 7)
    for _ in range(8):
        holdfast.sweep()
        assert pack_count(holdfast) == 1
        check_sound(holdfast)
        clock.advance(days=7)
    assert memory.rehydrate(ids[0])["content"] == f"week 0: {LONG}"
    holdfast.sweep()
    check_sound(holdfast)


def test_users_do_not_share_objects(holdfast: Holdfast, clock: FakeClock) -> None:
    for user_id in ("ann", "bob", "cy"):
        holdfast.manager(user_id, "agent").add(LONG, "long_term")
    clock.advance(days=365)
    holdfast.sweep()
    assert pack_count(holdfast) == 3
    assert len({name.split("/")[2] for name in objects_of(holdfast)}) == 3
    assert not any(user_id in name for name in objects_of(holdfast) for user_id in ("ann", "bob"))


def test_what_is_deleted_for_good_is_gone_from_cold_storage_and_its_neighbours_stay(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    ids = [memory.add(f"{n}: {LONG}", "long_term")["memory_id"] for n in range(3)]
    clock.advance(days=365)
    holdfast.sweep()
    (before,) = objects_of(holdfast)
    memory.delete(ids[1])
    assert objects_of(holdfast) == {before}, "while it is in the bin it can be restored"
    memory.restore(ids[1])
    memory.delete(ids[1])
    clock.advance(days=15)
    assert holdfast.sweep().counts["delete"] == 1
    (after,) = objects_of(holdfast)
    assert after != before
    check_sound(holdfast)
    for place in (0, 2):
        assert memory.rehydrate(ids[place])["content"] == f"{place}: {LONG}"
    holdfast.sweep()
    assert objects_of(holdfast) == set()


def test_two_that_tidy_cold_storage_at_once_leave_no_object_behind(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    """One has noted an object and is slow to write it; the other takes it for what a crash left, and gives it up."""
    holdfast.manager("ann", "guide").add(LONG, "long_term")
    clock.advance(days=1)
    memory.add(LONG, "long_term")
    clock.advance(days=364)
    holdfast.sweep()
    clock.advance(days=1)
    objects: Any = holdfast.services.objects()
    put = objects.put

    def put_late(name: str, data: bytes) -> None:
        objects.put = put
        with Holdfast.open(home=holdfast.settings.home, clock=clock) as other:
            with suppress(LeaseLostError):
                other.sweep()
            raw.run(other, "UPDATE leases SET expires_at = 0")  # the slow one was silent for longer than its lease
            other.sweep()
        put(name, data)

    objects.put = put_late
    with suppress(LeaseLostError):
        memory.long_term.archive_old_memories()
    holdfast.sweep()
    check_sound(holdfast)


# --- damage ------------------------------------------------------------------------------------------------------------


def test_a_damaged_object_is_told_and_nothing_is_lost(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory_id = memory.add(LONG, "long_term")["memory_id"]
    document_id = memory.structured.put("trips", {"city": "Rome", "notes": LONG}, key="rome")
    clock.advance(days=365)
    holdfast.sweep()
    whole = {name: object_path(holdfast, name).read_bytes() for name in objects_of(holdfast)}
    for name, data in whole.items():
        object_path(holdfast, name).write_bytes(data[:-40] + b"x" * 40)
    for memory_id_ in (memory_id, document_id):
        with pytest.raises(ObjectDamagedError, match="restore it from a backup"):
            memory.rehydrate(memory_id_)
    with pytest.raises(ObjectDamagedError):
        memory.structured.get("trips", "rome")
    assert memory.get(memory_id)["is_archived"], "what is in the store is still told"
    for name, data in whole.items():
        object_path(holdfast, name).write_bytes(data)
    assert memory.rehydrate(memory_id)["content"] == LONG
    holdfast.sweep()
    check_sound(holdfast)


def test_a_missing_object_is_told_and_nothing_is_lost(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory_id = memory.add(LONG, "long_term")["memory_id"]
    clock.advance(days=365)
    holdfast.sweep()
    (name,) = objects_of(holdfast)
    data = object_path(holdfast, name).read_bytes()
    object_path(holdfast, name).unlink()
    with pytest.raises(ObjectMissingError, match="deleted by hand"):
        memory.rehydrate(memory_id)
    assert memory.get(memory_id)["is_archived"]
    object_path(holdfast, name).write_bytes(data)
    assert memory.rehydrate(memory_id)["content"] == LONG


def test_a_damaged_object_of_one_user_does_not_stop_the_sweep_of_the_others(
    holdfast: Holdfast, clock: FakeClock
) -> None:
    ann, bob = holdfast.manager("ann", "guide"), holdfast.manager("bob", "guide")
    ids = [ann.add(f"{n} {LONG}", "long_term")["memory_id"] for n in range(2)]
    clock.advance(days=365)
    holdfast.sweep()
    (name,) = objects_of(holdfast)
    object_path(holdfast, name).write_bytes(b"damaged")
    ann.delete(ids[0])
    ann.add(f"later {LONG}", "long_term")
    lost = bob.add("short-lived", "long_term")["memory_id"]
    bob.delete(lost)
    clock.advance(days=365)
    with pytest.raises(ObjectStoreError, match="damaged"):  # told, once everything else is done
        holdfast.sweep()
    assert lost not in {item.get("memory_id") for item in holdfast.recycle.list()}
    assert raw.rows(holdfast, "SELECT 1 FROM records WHERE id = ?", (lost,)) == []


def test_an_object_that_is_not_kept_as_written_moves_nothing(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory_id = memory.add(LONG, "long_term")["memory_id"]
    clock.advance(days=365)
    objects: Any = holdfast.services.objects()
    put = objects.put
    objects.put = lambda name, data: put(name, data[:-1])
    with pytest.raises(ObjectDamagedError, match="nothing was moved"):
        holdfast.sweep()
    assert memory.get(memory_id)["content"] == LONG
    objects.put = put
    holdfast.sweep()
    assert memory.rehydrate(memory_id)["content"] == LONG
    holdfast.sweep()
    check_sound(holdfast)


def test_a_removed_object_folder_is_not_taken_for_an_empty_one(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory_id = memory.add(LONG, "long_term")["memory_id"]
    clock.advance(days=365)
    holdfast.sweep()
    folder = holdfast.settings.home / "archive"
    folder.rename(folder.with_name("unmounted"))
    with pytest.raises(Exception, match="mount its disk"):
        memory.rehydrate(memory_id)
    folder.with_name("unmounted").rename(folder)
    assert memory.rehydrate(memory_id)["content"] == LONG
