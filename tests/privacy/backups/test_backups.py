"""Backups hold all that a store holds, as it was at one moment, and become the same store again, on either engine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clocks import FakeClock
from holdfast import Holdfast, MemoryType
from holdfast.backups import contents, create
from holdfast.backups.layout import SEGMENTS
from holdfast.backups.service import DAILY, WEEKLY
from holdfast.core.errors import InvalidKindError, LeaseLostError, NotFoundError
from holdfast.storage.catalog import table_of
from homes import ENGINES, Homes
from privacy.backups.stores import check_all, digests, docs, lose_machine, objects, read_digests, rows_of, said
from storage.full_store import LONG

# --- what is in it ----------------------------------------------------------------------------------------------------


def test_a_backup_is_of_one_moment_whatever_is_written_meanwhile(full: Holdfast) -> None:
    before = rows_of(full)
    written = threading.Event()

    def write() -> None:
        for user in ("ann", "bob", "zoë", "someone new"):
            memory = full.manager(user, "travel", "s2")
            memory.add("added meanwhile", "long_term")
            memory.short_term.add_message("user", "said meanwhile")
        full.quotas.set("long_term", max_memories=7, user_id="bob")
        full.agents.add("meanwhile", "an agent")
        written.set()

    def while_it_reads(_count: int) -> None:
        if not written.is_set():
            writer = threading.Thread(target=write)
            writer.start()
            writer.join(60)

    made = full.backups.create(progress=while_it_reads)

    assert written.is_set()
    assert "meanwhile" not in said(full, made.id)
    assert full.backups.verify(made.id, restore=True)
    assert made.memories == len(before["records"])
    after = full.backups.create()
    assert said(full, after.id).count("added meanwhile") == 4
    assert full.backups.verify(after.id, restore=True)


CHANGES: dict[str, Callable[[Holdfast, Any], object]] = {
    "add": lambda _, ann: ann.add("another", "long_term"),
    "update": lambda _, ann: ann.update(ann.list_memories("long_term")[0]["memory_id"], "in other words"),
    "metadata": lambda _, ann: ann.update(ann.list_memories("persona")[0]["memory_id"], None, {"now": "this"}),
    "delete": lambda _, ann: ann.delete(ann.list_memories("long_term")[1]["memory_id"]),
    "restore": lambda holdfast, _: holdfast.recycle.restore(user_id="ann"),
    "keep out": lambda _, ann: ann.delete(ann.add("kept out", "long_term")["memory_id"], keep_out=True),
    "lift": lambda _, ann: ann.lift(ann.kept_out()[0]["memory_id"]),
    "message": lambda _, ann: ann.short_term.add_message("user", "hello again"),
    "unsay": lambda _, ann: ann.short_term.delete(ann.short_term.get_full_history()[0]["message_id"]),
    "fact": lambda _, ann: ann.entity.set("Rex", {"age": 5}),
    "document": lambda _, ann: ann.structured.put("orders", {"n": 3}, key="two"),
    "schema": lambda _, ann: ann.structured.define("trips", {"type": "object"}),
    "rule": lambda holdfast, _: holdfast.policies.set("long_term", user_id="ann", keep_days=9_000, author="me"),
    "rule of all": lambda holdfast, _: holdfast.policies.set("long_term", keep_days=40, author="me"),
    "quota": lambda holdfast, _: holdfast.quotas.set("long_term", max_memories=400, user_id="ann"),
    "forget a source": lambda holdfast, _: holdfast.forget_source("import:crm"),
    "hold": lambda holdfast, _: holdfast.holds.add(user_id="ann", reason="Case 2", author="dpo"),
    "rehydrate": lambda _, ann: ann.rehydrate(
        next(m["memory_id"] for m in ann.list_memories("long_term", include_archived=True) if m["is_archived"])
    ),
    "agent": lambda holdfast, _: holdfast.agents.remove("travel"),
    "sweep": lambda holdfast, _: holdfast.sweep(confirm=True),
    "erase": lambda holdfast, _: (holdfast.holds.release(holdfast.holds.list()[-1].id), holdfast.erase_user("ann")),
    "nothing": lambda *_: None,
}


def test_what_has_not_changed_is_referred_to_and_whatever_changes_is_copied(full: Holdfast, clock: FakeClock) -> None:
    first = full.backups.create()
    for name, change in CHANGES.items():
        change(full, full.manager("ann", "travel", "s2"))
        clock.advance(seconds=1)
        made = full.backups.create()
        assert digests(full, made.id) == read_digests(full), name
    assert made.written < first.written / 3
    assert check_all(full)


def test_users_who_did_nothing_are_not_copied_again(full: Holdfast) -> None:
    first = full.backups.create()
    full.manager("bob", "travel", "s2").add("news of bob", "long_term")

    second = full.backups.create()

    own = [doc for doc in docs(full, second.id) if second.id in doc.segment]
    assert [doc.sort for doc in own if doc.sort == "user"] == ["user"], "bob alone"
    assert {doc.sort for doc in own} <= {"user", "common"}
    assert second.written < first.written / 2
    assert second.memories == first.memories + 1
    assert (first.problem, first.good) == (None, None)


def test_a_backup_of_some_kinds_has_those_and_what_goes_with_them(full: Holdfast) -> None:
    persona, daily = full.backups.create(WEEKLY), full.backups.create(DAILY)
    by_name = full.backups.create(["entity", MemoryType.STRUCTURED])

    assert persona.kinds == ("persona",)
    assert daily.kinds == ("entity", "episodic", "long_term", "structured")
    weekly, often = ({table for doc in docs(full, one.id) for table in doc.rows} for one in (persona, daily))
    assert {"history", "facts", "audit", "registry"} & weekly == set()
    assert daily.memories + persona.memories == full.backups.create().memories
    assert {"history", "facts", "audit", "registry", "sessions", "jobs"} <= often
    assert "Formal, and brief." not in said(full, daily.id)
    assert "Formal, and brief." in said(full, persona.id)
    assert "enjoys skiing" not in said(full, persona.id)
    assert by_name.kinds == ("entity", "structured")
    assert "hello" not in said(full, by_name.id)
    check_all(full, restore=True)


@pytest.mark.parametrize("kinds", [["working"], ["long_term", "short_term"], ["nonsense"], []])
def test_kinds_that_do_not_last_are_not_backed_up(holdfast: Holdfast, kinds: list[str]) -> None:
    with pytest.raises(InvalidKindError):
        holdfast.backups.create(kinds)
    assert holdfast.backups.list() == []


def test_nothing_in_it_can_be_read_without_the_keys(full: Holdfast) -> None:
    made = full.backups.create()

    held = objects(full)

    assert "enjoys skiing" in said(full, made.id)
    for text in (b"skiing", b"ann", b"bob", b"default", b"travel", "zoë".encode(), b"Case 4711"):
        assert [name for name, data in held.items() if text in data or text.decode() in name] == []


def test_a_user_larger_than_a_segment_is_kept_in_several(full: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "ROWS", 8)
    monkeypatch.setattr(create, "SEGMENT", 10_000)
    full.manager("large", "travel").add_many([f"note {n}" for n in range(80)], "long_term")

    made = full.backups.create()

    assert made.users == full.backups.verify(made.id, restore=True).users
    assert len([name for name in objects(full) if name.startswith(SEGMENTS)]) > 3
    assert full.backups.verify(made.id, restore=True).memories == made.memories
    again = full.backups.create()
    assert [doc.sort for doc in docs(full, again.id) if again.id in doc.segment] == ["common"]
    assert full.backups.verify(again.id, restore=True)


def test_what_a_tenant_has_for_itself_is_kept_and_is_no_user(homes: Homes, clock: FakeClock) -> None:
    home = homes.new()
    with Holdfast.open(home=home, clock=clock) as holdfast:
        holdfast.access.create("laptop", rights=["read"], tenant="default")  # noted in the tenant's own chain
        for user in ("ann", "bob/"):
            holdfast.manager(user, "travel").add("likes tea", "long_term")
        subjects = ["default/", "default/ann", "default/bob/"]
        made, again = holdfast.backups.create(), holdfast.backups.create()
        assert sorted(row[1] for row in rows_of(holdfast)["subjects"]) == subjects
        assert [one.users for one in (made, again, *holdfast.backups.list())] == [2, 2, 2, 2]
        for restore in (False, True):
            assert holdfast.backups.verify(again.id, restore=restore).users == 2
    with Holdfast.open(home=lose_machine(home, homes), clock=clock) as holdfast:
        assert holdfast.backups.restore(again.id).users == 2
        assert sorted(row[1] for row in rows_of(holdfast)["subjects"]) == subjects
        assert holdfast.audit.verify()


def test_a_store_with_nothing_in_it_is_backed_up_too(holdfast: Holdfast) -> None:
    made = holdfast.backups.create()
    assert (made.users, made.memories) == (0, 0)
    assert holdfast.backups.verify(made.id, restore=True)
    assert holdfast.backups.verify(holdfast.backups.create().id, restore=True)


# --- one at a time ----------------------------------------------------------------------------------------------------


def test_of_two_that_make_a_backup_at_once_one_is_told_to_wait(home: Path, clock: FakeClock) -> None:
    with Holdfast.open(home=home, clock=clock) as one, Holdfast.open(home=home, clock=clock) as other:
        one.manager("ann", "guide").add("likes tea", "long_term")
        refused: list[LeaseLostError] = []

        def meanwhile(_count: int) -> None:
            for verb in (other.backups.create, other.backups.rotate):
                with pytest.raises(LeaseLostError, match="is making or restoring a backup; try again") as caught:
                    verb()
                refused.append(caught.value)

        made = one.backups.create(progress=meanwhile)

        assert [problem.retryable for problem in refused] == [True, True]
        assert [found.id for found in other.backups.list()] == [made.id]
        assert other.backups.create().memories == 1
        other.backups.rotate()
        check_all(one)


def test_who_stood_still_while_another_took_over_makes_no_backup(home: Path, clock: FakeClock) -> None:
    with Holdfast.open(home=home, clock=clock) as one, Holdfast.open(home=home, clock=clock) as other:
        one.manager("ann", "guide").add("likes tea", "long_term")
        leadership: Any = vars(one.backups)["_leadership"]

        def stand_still(_count: int) -> None:
            lease = leadership.lease
            leadership.leases.release(lease)  # as if it had run out
            other.backups.create()
            other.backups.rotate()

        with pytest.raises(LeaseLostError, match="broken off"):
            one.backups.create(progress=stand_still)

        assert len(check_all(one, restore=True)) == 1


# --- a whole restore --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ENGINES)
def test_a_lost_machine_becomes_the_same_store_again_on_either_engine(
    full: Holdfast, tmp_path: Path, clock: FakeClock, target: str
) -> None:
    full.backups.create()
    full.manager("bob", "travel", "s2").add("news of bob", "long_term")
    clock.advance(minutes=1)
    made = full.backups.create()  # what it holds is in the segments of two
    before, found = rows_of(full), full.manager("bob", "travel", "s2").retrieve("news", top_k=3)
    with Homes(target, tmp_path) as homes:
        home = lose_machine(full.settings.home, homes)
        with Holdfast.open(home=home, clock=clock) as again:
            restored = again.backups.restore(made.id)

            after = rows_of(again)
            told = [row for row in after["audit"] if row not in before["audit"]]
            assert len(told) == 1, "that it was restored is on the audit chain"
            after["audit"].remove(told[0])
            users = list(table_of("api_keys").columns).index("users")
            before["api_keys"] = [
                row for row in before["api_keys"] if row[users] is None
            ]  # those for users are made anew
            owner = list(table_of("parts").columns).index("unowned_as")
            assert [row[owner] for row in before["parts"]] == ["zoë"]
            before["parts"] = [
                (*row[:owner], None, *row[owner + 1 :]) for row in before["parts"]
            ]  # in what belongs to everybody no user is named, so whose the rest is has to be said again
            for rows in (before, after):  # where that chain ends
                rows["chains"] = [row for row in rows["chains"] if row[0] != told[0][0]]
            assert {name for name in before if before[name] != after[name]} == set()
            assert (restored.whole, restored.erased, restored.memories) == (True, 0, made.memories)
            assert restored.objects > 0, "cold objects are back"
            assert again.audit.verify(), "the audit chain is whole"
            bob = again.manager("bob", "travel", "s2")
            assert [one["memory_id"] for one in bob.retrieve("news", top_k=3)] == [one["memory_id"] for one in found]
            ann = again.manager("ann", "travel", "s2")
            archived = [m for m in ann.list_memories("long_term", include_archived=True) if m["is_archived"]]
            assert ann.rehydrate(archived[0]["memory_id"])["content"] == LONG
            assert again.schedule.list()
            bob.add("life goes on", "long_term")
            assert again.backups.verify(again.backups.create().id, restore=True)
            assert again.audit.verify()


def test_who_was_erased_since_does_not_come_back(full: Holdfast, homes: Homes, clock: FakeClock) -> None:
    made = full.backups.create()
    full.erase_user("ann")
    with Holdfast.open(home=lose_machine(full.settings.home, homes), clock=clock) as again:
        restored = again.backups.restore(made.id)

        assert restored.erased == 1
        assert [row for row in rows_of(again)["subjects"] if "ann" in row[1]] == []
        assert again.manager("ann", "travel", "s2").list_memories("long_term", include_archived=True) == []
        assert again.manager("bob", "travel", "s2").list_memories("long_term")
        assert again.audit.verify()


def test_a_backup_that_is_not_there_is_said_plainly(holdfast: Holdfast) -> None:
    holdfast.backups.create()
    for backup_id in ("nonsense", "../../etc", "01a4061f-5120-7000-95e0-e72d9005207f"):
        for verb in (holdfast.backups.get, holdfast.backups.restore, holdfast.backups.verify):
            with pytest.raises(NotFoundError, match="holdfast backup list"):
                verb(backup_id)
