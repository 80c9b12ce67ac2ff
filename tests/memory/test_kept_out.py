"""A text that was deleted with ``keep_out`` does not come back, whoever feeds it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clocks import FakeClock
from holdfast import Holdfast, MemoryManager
from holdfast.core.errors import HeldError, InvalidInputError, KeptOutError, NotFoundError, StorageError
from holdfast.core.records import Subject
from holdfast.core.texts import hash_text
from holdfast.storage.relational.database import Database
from holdfast.storage.stores import stores_over
from holdfast.store import _BackupHost
from homes import Homes
from lifecycle.fuses import DeathError, Fuse

TEA = "Ann likes green tea."
AGAIN = "ann  LIKES green tea!"


@pytest.fixture
def gone(memory: MemoryManager) -> str:
    """The memory that was deleted."""
    memory_id = memory.add(TEA)["memory_id"]
    assert memory.delete(memory_id, keep_out=True)["kept_out"]
    return memory_id


def test_adding_it_says_so_and_adds_nothing(memory: MemoryManager, gone: str) -> None:
    added = memory.add(AGAIN)

    assert (added["operation"], added["memory_id"]) == ("kept_out", gone)
    assert memory.retrieve("green tea") == []
    assert memory.count_memories() == 0


def test_of_many_the_others_are_added(memory: MemoryManager, gone: str) -> None:
    added = memory.add_many(["one", AGAIN, "two"])

    assert (added["memory_ids"][1], added["kept_out"]) == (gone, 1)
    assert {one["content"] for one in memory.list_memories()} == {"one", "two"}


WRITES: dict[str, Callable[[MemoryManager], Any]] = {
    "long-term": lambda memory: memory.long_term.add(AGAIN),
    "persona": lambda memory: memory.persona.add(AGAIN),
    "a key": lambda memory: memory.add(AGAIN, key="drink"),
    "an update": lambda memory: memory.update(memory.add("Ann likes coffee")["memory_id"], AGAIN),
    "a correction": lambda memory: memory.correct(memory.add("Ann likes coffee")["memory_id"], AGAIN),
    "what supersedes": lambda memory: memory.add(AGAIN, supersedes=memory.add("Ann likes coffee")["memory_id"]),
    "an entity": lambda memory: memory.entity.add(AGAIN),
    "what an entity is related to": lambda memory: memory.entity.relate("Bob", "says", AGAIN),
    "an episode": lambda memory: memory.episodic.record_episode("a task", [], summary=AGAIN),
    "a task": lambda memory: memory.episodic.record_episode(AGAIN, ["looked"]),
    "a step": lambda memory: memory.episodic.record_episode("a task", ["looked", AGAIN]),
    "a message": lambda memory: memory.episodic.record_episode("a task", messages=[{"role": "user", "content": AGAIN}]),
    "unseen marks": lambda memory: memory.long_term.add(f"\ufeff{AGAIN}\u200b"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_every_other_way_to_write_it_is_refused(memory: MemoryManager, gone: str, write: Callable[..., Any]) -> None:
    with pytest.raises(KeptOutError, match="is kept out") as refused:
        write(memory)
    assert refused.value.code == "kept_out"
    kinds = ["long_term", "persona", "episodic"]
    assert TEA.lower() not in {one["content"].lower() for one in memory.retrieve("green tea", kinds)}


ITEMS: list[dict[str, Any]] = [
    {"key": "1", "content": AGAIN},
    {"key": "2", "content": AGAIN, "memory_type": "persona"},
    {"key": "3", "task": AGAIN, "memory_type": "episodic"},
    {"key": "4", "task": "a", "messages": [{"role": "user", "content": AGAIN}], "memory_type": "episodic"},
]
FEEDS: dict[str, Callable[[MemoryManager], Any]] = {
    "without repeats": lambda memory: memory.add(AGAIN, dedupe=True),
    "with what is close": lambda memory: memory.add(AGAIN, similar=3),
    "with room made": lambda memory: memory.add_with_auto_prune(AGAIN),
    "another kind": lambda memory: memory.add(AGAIN, "persona"),
    "an entity": lambda memory: memory.add(AGAIN, "entity"),
    "an episode": lambda memory: memory.add(AGAIN, "episodic"),
    "many": lambda memory: memory.add_many([AGAIN, TEA], dedupe=True),
    "an extractor": lambda memory: memory.remember([{"role": "user", "content": "hello"}], lambda _: [AGAIN])[0],
    "an import": lambda memory: memory.import_memories(ITEMS, source="import:crm"),
    "a trial of an import": lambda memory: memory.import_memories(ITEMS, source="import:crm", dry_run=True),
}


@pytest.mark.parametrize("feed", FEEDS.values(), ids=FEEDS)
def test_what_feeds_texts_says_that_it_is_kept_out_and_adds_nothing(
    memory: MemoryManager, gone: str, feed: Callable[..., Any]
) -> None:
    said = feed(memory)
    assert said.get("operation") == "kept_out" or said["kept_out"] == len(said.get("memory_ids", ITEMS)), said
    assert said.get("memory_id", gone) == gone
    kinds = ["long_term", "persona", "episodic", "entity"]
    assert [one for kind in kinds for one in memory.list_memories(kind)] == []


def test_a_document_and_an_entity_stay_out_too(memory: MemoryManager) -> None:
    memory.structured.put("notes", {"drink": "tea"}, key="a")
    memory.delete(memory.retrieve("tea", "structured")[0]["memory_id"], keep_out=True)
    with pytest.raises(KeptOutError):
        memory.structured.put("notes", {"drink": "tea"}, key="b")
    memory.structured.put("notes", {"drink": "milk"}, key="a")
    with pytest.raises(KeptOutError):
        memory.structured.put("notes", {"drink": "tea"}, key="a")
    assert memory.structured.get("notes", "a") == {"drink": "milk"}

    memory.delete(memory.entity.add("Bob", attributes={"city": "Rome"}), keep_out=True)
    with pytest.raises(KeptOutError):
        memory.entity.add("bob", attributes={"city": "Rome"})
    with pytest.raises(KeptOutError):
        memory.entity.relate("Bob", "knows", "Eve")
    assert memory.retrieve("Bob", "entity") == []


def test_a_setting_makes_it_an_error(home: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_REFUSE_KEPT_OUT", "yes")
    with Holdfast.open(home=home, clock=clock) as holdfast:
        memory = holdfast.manager("user_1", "agent")
        memory.delete(memory.add(TEA)["memory_id"], keep_out=True)
        with pytest.raises(KeptOutError):
            memory.add_many(["one", AGAIN])
        assert memory.count_memories() == 0, "all of them or none"


def test_all_that_have_the_text_go_whichever_agent_and_kind(holdfast: Holdfast, memory: MemoryManager) -> None:
    other = holdfast.manager(memory.user_id, "another_agent")
    ids = [memory.add(TEA)["memory_id"] for _ in range(3)] + [other.add(AGAIN, "persona")["memory_id"]]
    stranger = holdfast.manager("someone_else", "agent")
    theirs = stranger.add(TEA)["memory_id"]

    deleted = memory.delete(ids[0], keep_out=True)

    assert sorted([deleted["memory_id"], *deleted["deleted_with"]]) == sorted(ids)
    assert other.retrieve("green tea", ["long_term", "persona"]) == []
    assert stranger.get(theirs)["content"] == TEA, "another user's is their own"


def test_a_hold_on_one_of_them_keeps_all(holdfast: Holdfast, memory: MemoryManager) -> None:
    first, second = (memory.add(TEA)["memory_id"] for _ in range(2))
    holdfast.holds.add(memory_id=second, reason="a case", author="legal")

    with pytest.raises(HeldError):
        memory.delete(first, keep_out=True)

    assert memory.kept_out() == []
    assert {memory.get(one)["content"] for one in (first, second)} == {TEA}
    assert memory.add(AGAIN)["operation"] == "add"


def test_it_is_listed_and_lifted(holdfast: Holdfast, memory: MemoryManager, gone: str) -> None:
    (listed,) = memory.kept_out()
    assert (listed["memory_id"], listed["author"]) == (gone, "python")
    assert TEA not in str(listed)
    for restore in (lambda: memory.restore(gone), lambda: holdfast.recycle.restore(memory_id=gone)):
        with pytest.raises(KeptOutError, match=f"kept-out lift {gone}"):
            restore()
    with pytest.raises(KeptOutError, match="0 things were restored, 1 stay in the bin"):
        holdfast.recycle.restore(user_id=memory.user_id)

    memory.lift(gone)

    assert memory.kept_out() == []
    assert memory.restore(gone)["content"] == TEA
    assert memory.add(AGAIN)["operation"] == "add"
    for nothing in (gone, "", 7, None, ["x"]):
        with pytest.raises(NotFoundError, match="is not kept out"):
            memory.lift(nothing)  # type: ignore[arg-type]
    actions = [entry["action"] for entry in holdfast.audit.tail()]
    assert [one for one in actions if "kept_out" in one] == ["kept_out", "kept_out.lifted"]


def test_a_twin_that_is_refused_is_lifted_by_the_id_that_the_refusal_names(
    holdfast: Holdfast, memory: MemoryManager
) -> None:
    twin, first = (memory.add(text)["memory_id"] for text in (TEA, AGAIN))
    memory.delete(first, keep_out=True)
    with pytest.raises(KeptOutError, match=f"kept-out lift {twin}"):
        memory.restore(twin)

    memory.lift(twin)

    assert memory.kept_out() == []
    assert memory.restore(twin)["content"] == TEA
    lifted = [entry["item"] for entry in holdfast.audit.tail() if entry["action"] == "kept_out.lifted"]
    assert lifted == [first], "the chain names the memory that the text was kept out for"


def test_a_lift_that_was_cut_short_is_finished_by_asking_again(
    home: Path, holdfast: Holdfast, memory: MemoryManager, gone: str
) -> None:
    fuse = Fuse(holdfast, 1, everywhere=True)
    with pytest.raises(DeathError):
        memory.lift(gone)
    fuse.remove()

    memory.lift(gone)

    assert memory.kept_out() == []
    assert [path for path in (home / "keys" / "kept_out").rglob("*") if path.is_file()] == [], "nothing is left beside"


def test_what_goes_by_itself_is_not_kept_out(memory: MemoryManager) -> None:
    note = memory.add(TEA, "working")["memory_id"]
    with pytest.raises(InvalidInputError, match="without keep_out"):
        memory.delete(note, keep_out=True)


def test_another_process_keeps_it_out_at_once(home: Path, clock: FakeClock, memory: MemoryManager) -> None:
    with Holdfast.open(home=home, clock=clock) as elsewhere:
        theirs = elsewhere.manager(memory.user_id, "another_agent")
        memory_id = theirs.add(TEA)["memory_id"]
        assert [one["memory_id"] for one in memory.retrieve("green tea")] == [memory_id]
        memory.add("warm up what the next write relies on")

        theirs.delete(memory_id, keep_out=True)

        assert memory.add(AGAIN)["operation"] == "kept_out"
        assert [one["content"] for one in memory.retrieve("green tea", top_k=1)] != [AGAIN]


def test_without_its_key_such_a_write_is_refused(
    home: Path, clock: FakeClock, memory: MemoryManager, gone: str
) -> None:
    with Holdfast.open(home=home, clock=clock) as elsewhere:
        theirs, stranger = (elsewhere.manager(user, "agent") for user in (memory.user_id, "someone_else"))
        shutil.move(home / "keys", home / "away")
        with pytest.raises(StorageError):
            theirs.add("anything")
        assert stranger.add(AGAIN)["operation"] == "add", "who keeps nothing out needs no key"
        assert memory.add(AGAIN)["operation"] == "kept_out", "a key that was used before is kept in memory"
        shutil.move(home / "away", home / "keys")
        assert theirs.add(AGAIN)["operation"] == "kept_out"


def test_it_is_erased_with_the_user(home: Path, holdfast: Holdfast, memory: MemoryManager, gone: str) -> None:
    assert list((home / "keys" / "kept_out").rglob("*"))
    erasure = holdfast.erase_user(memory.user_id)

    assert not erasure.pending
    assert [path for path in (home / "keys" / "kept_out").rglob("*") if path.is_file()] == []
    assert memory.kept_out() == []
    assert memory.add(AGAIN)["operation"] == "add", "nothing is known of who was erased"


def test_what_is_kept_of_a_text_differs_from_user_to_user(
    holdfast: Holdfast, memory: MemoryManager, gone: str, database: Database
) -> None:
    """It is signed with the user's key: without that, nobody can try whether it is of a text."""
    other = holdfast.manager("someone_else", "agent")
    other.delete(other.add(TEA)["memory_id"], keep_out=True)
    store = stores_over(database).kept_out
    (mine,), (theirs,) = (store.list(Subject("default", one.user_id)) for one in (memory, other))
    assert mine.print != theirs.print
    for forms in (str(hash_text(TEA)), f"{hash_text(TEA) % 2**64:016x}"):
        assert forms not in mine.print


@pytest.fixture
def backed_up(holdfast: Holdfast, memory: MemoryManager) -> tuple[str, str]:
    """A backup of before it was deleted, and the memory."""
    memory_id = memory.add(TEA)["memory_id"]
    memory.add("Ann likes coffee")
    backup = holdfast.backups.create()
    memory.delete(memory_id, keep_out=True)
    return backup.id, memory_id


def test_a_backup_brings_it_back_hidden(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock, backed_up: tuple[str, str]
) -> None:
    backup, memory_id = backed_up
    clock.advance(days=16)
    holdfast.sweep()
    with pytest.raises(NotFoundError):
        memory.get(memory_id)

    restored = holdfast.backups.restore(backup, user_id=memory.user_id)

    assert (restored.memories, restored.kept_out) == (0, 1)
    assert TEA not in {one["content"] for one in memory.retrieve("green tea")}
    with pytest.raises(KeptOutError):
        memory.restore(memory_id)
    memory.lift(memory_id)
    assert memory.restore(memory_id)["content"] == TEA


@pytest.mark.parametrize("in_use", [False, True], ids=["whole", "in use"])
def test_a_restore_that_is_cut_short_shows_nothing_that_is_kept_out(
    fresh: Path, clock: FakeClock, backed_up: tuple[str, str], monkeypatch: pytest.MonkeyPatch, *, in_use: bool
) -> None:
    backup, memory_id = backed_up
    with Holdfast.open(home=fresh, clock=clock) as again, monkeypatch.context() as patch:
        if in_use:
            again.manager("someone_else", "agent").add("Bob likes milk")
        patch.setattr(_BackupHost, "settle", lambda *_: (_ for _ in ()).throw(OSError("the power is gone")))
        with pytest.raises(OSError, match="power"):
            again.backups.restore(backup, user_id="user_123" if in_use else None)
    with Holdfast.open(home=fresh, clock=clock) as again:
        back = again.manager("user_123", "travel_agent")
        assert [one["content"] for one in back.retrieve("green tea", include_archived=True)] == ["Ann likes coffee"]
        assert [one["content"] for one in back.list_memories()] == ["Ann likes coffee"]
        assert back.count_memories() == 1
        assert back.add(AGAIN)["operation"] == "kept_out"
        with pytest.raises(KeptOutError):
            back.restore(memory_id)
        assert not again.backups.restore(backup, user_id="user_123").memories, "it is run again"
        assert back.count_memories() == 1
        assert again.audit.verify()


@pytest.fixture
def fresh(home: Path, homes: Homes, holdfast: Holdfast, backed_up: tuple[str, str]) -> Path:
    """An empty store, with the keys and the backups of the one that is lost."""
    holdfast.close()
    fresh = homes.new("fresh")
    for folder in ("keys", "backups", "ledger", "state", "audit"):
        if (home / folder).exists():
            shutil.copytree(home / folder, fresh / folder, dirs_exist_ok=True)
    return fresh


def test_a_store_that_is_restored_whole_keeps_it_out(fresh: Path, clock: FakeClock, backed_up: tuple[str, str]) -> None:
    backup, memory_id = backed_up
    with Holdfast.open(home=fresh, clock=clock) as again:
        restored = again.backups.restore(backup)
        back = again.manager("user_123", "travel_agent")
        assert restored.whole
        assert [one["content"] for one in back.retrieve("green tea")] == ["Ann likes coffee"]
        assert back.add(AGAIN)["operation"] == "kept_out"
        assert [one["memory_id"] for one in back.kept_out()] == [memory_id]


def test_what_a_memory_said_before_stays_out_too(memory: MemoryManager, clock: FakeClock) -> None:
    first = memory.add(TEA)["memory_id"]
    then = clock()
    clock.advance(days=1)
    memory.correct(first, "Ann likes coffee")
    memory.delete(memory.add(AGAIN)["memory_id"], keep_out=True)

    assert TEA not in {one["content"] for one in memory.retrieve("green tea", as_of=then)}
    assert [one["content"] for one in memory.history(first)] == ["Ann likes coffee"]
    with pytest.raises(NotFoundError):
        memory.revert(first, to=1)
    with pytest.raises(NotFoundError):
        memory.get(first, as_of=then)
    with pytest.raises(KeptOutError):
        memory.correct(first, AGAIN)
    with pytest.raises(KeptOutError):
        memory.add(AGAIN, key="drink")
