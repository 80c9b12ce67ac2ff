"""What is archived, deleted, exported and erased is in the log, with numbers, and without a name of any person."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator

import pytest

from clocks import FakeClock
from holdfast import HeldError, Holdfast, MemoryManager
from holdfast.core.records import Subject
from homes import ENGINES

USER = "ann.lee@example.org"


@pytest.fixture(scope="module", params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """What the library logged; nothing of it names the user."""
    caplog.set_level(logging.INFO, logger="holdfast")

    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.get_records("call") if record.name != "holdfast.latency"]

    yield lines
    assert lines(), "something was logged"
    assert [line for line in lines() if USER in line] == []


@pytest.fixture
def memory(holdfast: Holdfast) -> MemoryManager:
    made = holdfast.manager(USER, "guide", "trip")
    made.add_many(["likes tea", "likes walks"], "long_term")
    made.entity.add("Rome")
    made.structured.put("trips", {"city": "Rome"})
    made.episodic.record_episode("a trip", ["went"])
    made.short_term.add_message("user", "hello")
    return made


def whose(holdfast: Holdfast) -> str:
    """The user's pseudonym, as the audit chain has it."""
    alias = holdfast.services.reader.alias(Subject("default", USER))
    assert alias is not None
    return alias


def test_archive_old_memories_logs_each_memory_that_it_archived(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock, logged: Callable[[], list[str]]
) -> None:
    ids = {one["memory_id"] for one in memory.list_memories("long_term")}
    clock.advance(days=366)
    memory.add("is young", "long_term")

    assert memory.long_term.archive_old_memories() == 2

    *each, total = logged()
    assert set(each) == {f"archived memory {one} (long_term) to cold storage" for one in ids}
    assert total == "archived 2 long_term memories that were old enough"
    memory.long_term.archive_old_memories()
    assert logged()[-1] == "archived 0 long_term memories that were old enough"


def test_cleanup_old_episodes_logs_how_many_went(
    memory: MemoryManager, clock: FakeClock, logged: Callable[[], list[str]]
) -> None:
    clock.advance(days=91)
    assert memory.episodic.cleanup_old_episodes() == 1
    assert logged() == ["cleaned up 1 episodic memories, 0 were on hold"]


def test_delete_user_memories_logs_how_many_went_and_of_whom(
    holdfast: Holdfast, memory: MemoryManager, logged: Callable[[], list[str]]
) -> None:
    assert memory.delete_user_memories(USER) == 6
    assert f"2 long_term memories of user {whose(holdfast)} went to the recycle bin, 0 were on hold" in logged()
    assert logged()[-1] == f"deleted 6 memories of user {whose(holdfast)} (all kinds); holds kept 0"


def test_deleting_one_kind_logs_how_many_went_and_what_holds_kept(
    holdfast: Holdfast, memory: MemoryManager, logged: Callable[[], list[str]]
) -> None:
    assert memory.entity.delete_user_entities(USER) == 1
    assert logged() == [f"1 entity memories of user {whose(holdfast)} went to the recycle bin, 0 were on hold"]
    assert memory.structured.delete_user_data(USER) == 1
    assert logged()[-1] == f"1 structured memories of user {whose(holdfast)} went to the recycle bin, 0 were on hold"
    holdfast.holds.add(user_id=USER, reason="case 7", author="legal")
    with pytest.raises(HeldError):
        memory.long_term.delete_all(USER)
    assert logged()[-1] == f"deleted 0 memories of user {whose(holdfast)} (long_term); holds kept 2"


def test_gdpr_export_user_data_logs_how_much_was_given(
    holdfast: Holdfast, memory: MemoryManager, logged: Callable[[], list[str]]
) -> None:
    memory.gdpr_export_user_data(USER)
    holdfast.export_user(USER, io.BytesIO())

    first, second = logged()
    for line in (first, second):
        assert line.startswith(f"exported what is held on user {whose(holdfast)}: {{")
        assert "'long_term': 2" in line
    holdfast.manager("noted", "guide").add("a note", "working")
    holdfast.gdpr_export_user_data("noted")
    assert logged()[-1].startswith("exported what is held on user unknown (nothing is kept): ")


@pytest.mark.parametrize("verb", ["memory", "holdfast"])
def test_gdpr_delete_user_data_logs_what_was_erased(
    holdfast: Holdfast, memory: MemoryManager, logged: Callable[[], list[str]], verb: str
) -> None:
    alias = whose(holdfast)

    (memory if verb == "memory" else holdfast).gdpr_delete_user_data(USER)

    line = logged()[-1]
    assert line.startswith(f"erased user {alias} for good: {{")
    assert "'long_term': 2" in line
    assert "pending" not in line
