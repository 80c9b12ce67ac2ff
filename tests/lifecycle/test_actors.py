"""Each audit entry names who did it: a key, an edge, the schedule, or the author that the caller gives; never a user."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from clocks import FakeClock
from holdfast import Holdfast, InvalidInputError, NotFoundError
from holdfast.core.audit import acting_as, check_author, names_user


def remember_and_delete(holdfast: Holdfast, user_id: str = "ann") -> str:
    memory = holdfast.manager(user_id, "guide")
    memory_id: str = memory.add("Likes tea", "long_term")["memory_id"]
    memory.delete(memory_id)
    return memory_id


def actors(holdfast: Holdfast) -> list[str]:
    return [entry["actor"] for entry in holdfast.audit.tail(100)]


def test_a_program_is_python_unless_it_gives_an_author(holdfast: Holdfast) -> None:
    remember_and_delete(holdfast)
    with holdfast.acting_as("importer"):
        remember_and_delete(holdfast)
    remember_and_delete(holdfast)
    assert actors(holdfast) == ["python", "importer", "python"]
    assert holdfast.audit.verify()


def test_a_store_can_be_opened_with_an_author_who_is_named_in_every_thread(home: Path, clock: FakeClock) -> None:
    with Holdfast.open(home=home, clock=clock, author="billing") as holdfast:
        remember_and_delete(holdfast)
        worker = threading.Thread(target=remember_and_delete, args=(holdfast, "bob"))
        worker.start()
        worker.join()
        hold = holdfast.holds.add(tag="case=1", reason="a case")
        assert hold.author == "billing"
        assert holdfast.holds.release(hold.id).released_by == "billing"
        with holdfast.acting_as("importer"):
            remember_and_delete(holdfast)
        assert actors(holdfast) == ["billing"] * 4 + ["importer"]


def test_an_author_holds_for_tasks_that_work_in_threads(holdfast: Holdfast) -> None:
    async def work(author: str) -> None:
        with holdfast.acting_as(author):
            await asyncio.to_thread(remember_and_delete, holdfast, f"user of {author}")

    async def both() -> None:
        await asyncio.gather(work("first desk"), work("second desk"))

    asyncio.run(both())
    assert sorted(actors(holdfast)) == ["first desk", "second desk"]


def test_an_author_of_a_rule_or_a_hold_is_the_actor_of_its_entry(holdfast: Holdfast) -> None:
    holdfast.policies.set("long_term", keep_days=30, author="dpo")
    hold = holdfast.holds.add(tag="case=1", reason="a case", author="legal")
    holdfast.holds.release(hold.id, author="counsel")
    assert actors(holdfast) == ["dpo", "legal", "counsel"]
    assert (hold.author, holdfast.holds.list(released=True)[0].released_by) == ("legal", "counsel")


def test_what_a_job_of_the_schedule_does_is_the_schedules(holdfast: Holdfast, clock: FakeClock) -> None:
    remember_and_delete(holdfast)
    clock.advance(days=16)
    with holdfast.acting_as("importer"):
        holdfast.schedule.run("daily")
    entries = {entry["action"]: entry["actor"] for entry in holdfast.audit.tail(100)}
    assert (entries["recycled"], entries["deleted"]) == ("python", "schedule")


def test_whoever_erases_a_user_is_named_on_both_chains(holdfast: Holdfast) -> None:
    remember_and_delete(holdfast)
    with holdfast.acting_as("privacy desk"):
        holdfast.erase_user("ann")
    erased = [entry for entry in holdfast.audit.tail(100) if entry["action"] == "erased"]
    assert {entry["actor"] for entry in erased} == {"privacy desk"}
    assert holdfast.audit.verify()


@pytest.mark.parametrize("author", ["ann", "ANN", "ann (admin)", "by ann", "bob"])
def test_an_author_that_names_a_user_is_refused_and_nothing_is_done(holdfast: Holdfast, author: str) -> None:
    memory = holdfast.manager("ann", "guide")
    holdfast.manager("bob", "guide").add("Likes coffee", "long_term")
    memory_id = memory.add("Likes tea", "long_term")["memory_id"]
    with holdfast.acting_as(author), pytest.raises(InvalidInputError, match="names a user"):
        memory.delete(memory_id)
    assert memory.get(memory_id)["content"] == "Likes tea"
    with holdfast.acting_as("annex desk"):
        memory.delete(memory_id)
    with pytest.raises(NotFoundError):
        memory.get(memory_id)
    assert "bob" not in str(actors(holdfast))


@pytest.mark.parametrize("author", ["cli", "python", "schedule", "mcp", "rest", "key:4711"])
def test_an_author_cannot_pose_as_holdfast_itself_or_as_a_key(holdfast: Holdfast, author: str) -> None:
    with pytest.raises(InvalidInputError, match="Holdfast itself uses"):
        holdfast.acting_as(author)


@pytest.mark.parametrize("author", ["", " ", "*", "a" * 1_000, "line\nbreak"])
def test_an_author_is_a_short_printable_text(author: str) -> None:
    with pytest.raises(InvalidInputError, match="author"):
        check_author(author)


def test_the_actor_of_an_entry_cannot_be_changed_without_notice(holdfast: Holdfast) -> None:
    with acting_as("key:one"):
        remember_and_delete(holdfast)
    (entry,) = holdfast.audit.tail(1)
    assert entry["actor"] == "key:one"
    with holdfast.database.write() as tx:
        connection: Any = tx.connection  # type: ignore[attr-defined]
        connection.execute("UPDATE audit SET entry = replace(entry, 'key:one', 'key:two')")
    assert not holdfast.audit.verify()


def test_what_is_said_of_a_memory_names_the_actors(holdfast: Holdfast) -> None:
    with holdfast.acting_as("importer"):
        memory_id = remember_and_delete(holdfast)
    assert [one["actor"] for one in holdfast.explain(memory_id)["history"]] == ["importer"]
    (exported,) = holdfast.export_user("ann")["audit"]
    assert exported["actor"] == "importer"


@pytest.mark.parametrize(
    ("actor", "user_id", "named"),
    [("ann", "ann", True), ("team of ann", "ann", True), ("annex", "ann", False), ("x a@b.c", "a@b.c", True)],
)
def test_a_user_is_named_by_the_whole_id(actor: str, user_id: str, *, named: bool) -> None:
    assert names_user(actor, user_id) is named
