"""Erasing a user: everything of them goes, from every place, and nobody else notices."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

import raw
from clocks import FakeClock
from homes import ENGINES, Homes, on_sqlite
from lifecycle.fuses import DeathError, Fuse
from lifecycle.soundness import check_sound
from privacy.sentinels import MANY, Sentinel
from retain import HeldError, Retain
from retain.core.errors import InvalidInputError, LedgerError, ObjectStoreUnavailableError
from retain.privacy.erasure import Erasure

TABLES = ("records", "sessions", "history", "facts", "scopes", "short_windows", "short_messages", "packs", "totals")


@pytest.fixture(scope="session", params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> str:
    return cast("str", request.param)


def place(erasure: Erasure, name: str) -> tuple[int, int, int]:
    """What was found, removed and left somewhere."""
    return next((found, removed, left) for known, found, removed, left in erasure.places if known == name)


def remember_others(retain: Retain) -> None:
    for user_id in ("bob", "user"):
        memory = retain.manager(user_id, "guide", "trip")
        memory.add_many([f"{user_id} likes tea {n}" for n in range(30)], "long_term")
        memory.add("speaks slowly", "persona")
        memory.episodic.record_episode("book a train", ["look it up"])
        memory.entity.add("Rex", attributes={"kind": "dog"})
        memory.short_term.add_message("user", f"hello from {user_id}")
        retain.quotas.set("long_term", max_memories=500, user_id=user_id)
        retain.policies.set("long_term", user_id=user_id, keep_days=3)


def others(retain: Retain) -> dict[str, Any]:
    """Everything that is kept of the other users."""
    whose = "(SELECT no FROM subjects WHERE subject IN ('default/bob', 'default/user'))"
    seen: dict[str, Any] = {}
    for table in TABLES:
        names = raw.columns(retain, table)
        if "subject" in names:
            statement = f"SELECT * FROM {table} WHERE subject IN {whose}"  # noqa: S608 - our own words
            seen[table] = sorted(map(repr, raw.rows(retain, statement)))
    for table in ("quotas", "rules"):
        statement = f"SELECT * FROM {table} WHERE user_id IN ('bob', 'user')"  # noqa: S608
        seen[table] = sorted(map(repr, raw.rows(retain, statement)))
    for user_id in ("bob", "user"):
        memory = retain.manager(user_id, "guide", "trip")
        found = memory.retrieve("tea", ["long_term", "persona", "episodic"], top_k=40)
        seen[user_id] = [(item["memory_id"], item["content"], round(item["score"], 4)) for item in found]
        seen[f"messages of {user_id}"] = memory.short_term.get_full_history()
    return seen


# --- everything goes --------------------------------------------------------------------------------------------------


def test_nothing_of_a_user_is_left_in_any_place(homes: Homes, clock: FakeClock) -> None:
    home, sentinel = homes.new(), Sentinel()
    with Retain.open(home=home, clock=clock) as retain:
        remember_others(retain)
        sentinel.plant(retain, clock)
        remember_others(retain)
        before = others(retain)
        assert sentinel.hits(homes, home), "the marker is to be found where it was planted"

        erasure = retain.erase_user(sentinel.user_id)

        assert (erasure.pending, erasure.waiting_for) == (False, ())
        assert erasure.kinds["long_term"] == 2 * (MANY + 1)
        assert erasure.kinds["working"] == 1
        assert erasure.kinds["episodic"] == erasure.kinds["persona"] == erasure.kinds["structured"] == 2
        assert place(erasure, "data key") == (1, 1, 0)
        assert place(erasure, "released holds") == place(erasure, "rules") == (2, 2, 0)
        assert place(erasure, "cold objects")[0] > 0
        some = ("quotas", "rules", "released holds", "api keys", "job results", "facts", "messages")
        for name in (*some, "short-term messages"):
            assert place(erasure, name)[0] > 0, name
        assert [one for one in erasure.places if one.left or one.removed != one.found] == []
        assert sentinel.hits(homes, home) == [], "while the store is open"
        assert others(retain) == before
        assert [retain.backups.verify(one.id).erased for one in retain.backups.list()] == [1, 1], "nobody can read them"
        retain.backups.rotate(confirm=True)
        kept = {path: path.read_bytes() for path in (home / "backups").rglob("*") if path.is_file()}
        assert kept
        assert [path for path, data in kept.items() if str(erasure.alias).encode() in data] == [], (
            "and now they are gone"
        )
        assert retain.audit.verify()
        check_sound(retain)
    assert sentinel.hits(homes, home) == []
    with Retain.open(home=home, clock=clock) as retain:
        assert others(retain) == before
        retain.sweep()
        assert retain.audit.verify()


def burning(retain: Retain, at: int) -> Fuse:
    """A fuse on everything that an erasure does: transactions, objects, keys and the ledger."""
    fuse = Fuse(retain, at)
    state: Any = vars(retain.ledger)["_objects"]
    for name in ("put", "delete"):
        effect = getattr(state, name)

        def guarded(*arguments: Any, doing: Callable[..., Any] = effect, what: str = name, **options: Any) -> Any:
            fuse.burn(f"a {what} of a key or the ledger")
            return doing(*arguments, **options)

        setattr(state, name, guarded)
    return fuse


def test_a_crash_at_any_effect_is_made_good_by_opening_and_by_erasing_again(homes: Homes, clock: FakeClock) -> None:
    before, sentinel = homes.new("before"), Sentinel()
    with Retain.open(home=before, clock=clock) as retain:
        remember_others(retain)
        sentinel.plant(retain, clock)
        seen = others(retain)
    effects = 0
    while True:
        home = homes.copy(before, f"crash {effects}")
        retain = Retain.open(home=home, clock=clock)
        fuse = burning(retain, effects)
        try:
            retain.erase_user(sentinel.user_id)
        except DeathError:
            pass
        finally:
            retain.close()
        if not fuse.is_dead:
            break
        where = f"died before {fuse.last}, effect {effects}"
        with Retain.open(home=home, clock=clock) as again:
            if again.ledger.last():
                assert sentinel.hits(homes, home) == [], f"{where}: opening made it good"
            erasure = again.erase_user(sentinel.user_id)
            assert not erasure.pending, where
            assert others(again) == seen, where
            assert again.audit.verify(), where
        assert sentinel.hits(homes, home) == [], where
        homes.remove(home)
        effects += 1
    assert effects > 6


def test_what_another_process_has_in_its_index_is_gone_at_once(home: Path, clock: FakeClock) -> None:
    with Retain.open(home=home, clock=clock) as one, Retain.open(home=home, clock=clock) as other:
        memory = other.manager("ann", "guide", "s")
        kept = memory.add("Ann likes the window seat", "long_term")["memory_id"]
        memory.short_term.add_message("user", "window")
        assert memory.retrieve("window seat")

        one.erase_user("ann")

        assert memory.retrieve("window seat") == []
        assert memory.list_memories("long_term") == []
        assert memory.short_term.get_full_history() == []
        with pytest.raises(LookupError):
            memory.get(kept)
        assert memory.count_memories("long_term") == 0


def test_rules_and_released_holds_on_a_session_that_is_only_theirs_go_and_are_exported(retain: Retain) -> None:
    for user_id, session_id in (("ann", "ann's trip"), ("ann", "shared"), ("bob", "shared"), ("bob", "bob's")):
        retain.manager(user_id, "guide", session_id).add("likes tea", "long_term")
    tenant = retain.of_tenant("elsewhere")
    tenant.manager("eve", "guide", "ann's trip").add("likes tea", "long_term")
    for session_id in ("ann's trip", "shared", "bob's"):
        retain.policies.set("long_term", session_id=session_id, keep_days=3)
        hold = retain.holds.add(session_id=session_id, reason=f"about {session_id}", author="counsel")
        retain.holds.release(hold.id, author="counsel")

    exported = retain.export_user("ann")
    assert [rule["session_id"] for rule in exported["rules"]] == ["ann's trip"]
    assert [hold["session_id"] for hold in exported["holds"]] == ["ann's trip"]
    erasure = retain.erase_user("ann")

    assert place(erasure, "rules") == place(erasure, "released holds") == (1, 1, 0)
    assert {hold.session_id for hold in retain.holds.list(released=True)} == {"shared", "bob's"}
    assert {rule["session_id"] for rule in retain.policies.list() if "session_id" in rule} == {"shared", "bob's"}


def test_a_user_who_comes_back_begins_anew(retain: Retain, clock: FakeClock) -> None:
    memory = retain.manager("ann", "guide", "s")
    retain.quotas.set("long_term", max_memories=1, user_id="ann")
    memory.add("likes tea", "long_term")
    first = retain.erase_user("ann")

    memory.add("likes coffee", "long_term")
    memory.add("likes water", "long_term")

    assert {item["content"] for item in memory.retrieve("likes")} == {"likes coffee", "likes water"}
    second = retain.erase_user("ann")
    assert second.alias != first.alias
    assert second.kinds["long_term"] == 2
    assert memory.retrieve("likes") == []
    assert retain.ledger.last() == 2
    assert retain.audit.verify()


def test_erasing_twice_finds_nothing_the_second_time(retain: Retain) -> None:
    retain.manager("ann", "guide").add("likes tea", "long_term")
    retain.erase_user("ann")

    again = retain.erase_user("ann")

    assert (again.alias, again.pending, again.entry) == (None, False, None)
    assert {one.found for one in again.places} == {0}
    assert retain.ledger.last() == 1


def test_a_request_for_somebody_unknown_is_answered(retain: Retain, home: Path) -> None:
    retain.quotas.set("long_term", max_memories=7, user_id="nobody")

    erasure = retain.erase_user("nobody")

    assert (erasure.alias, erasure.pending, set(erasure.kinds.values())) == (None, False, {0})
    assert place(erasure, "quotas") == (1, 1, 0)
    assert retain.quotas.get("long_term", "nobody").max_memories == 10_000
    assert not (home / "ledger").exists()
    assert raw.rows(retain, "SELECT 1 FROM subjects WHERE subject = 'default/nobody'") == []


@pytest.mark.parametrize("user_id", ["", "*", None, "a\x01b", 7])
def test_whom_nobody_can_be_is_not_erased(retain: Retain, user_id: Any) -> None:
    with pytest.raises(InvalidInputError):
        retain.erase_user(user_id)


def test_other_tenants_users_of_the_same_name_stay(home: Path, clock: FakeClock) -> None:
    with (
        Retain.open(home=home, clock=clock, tenant="one") as one,
        Retain.open(home=home, clock=clock, tenant="two") as two,
    ):
        one.manager("ann", "guide").add("likes tea", "long_term")
        two.manager("ann", "guide").add("likes coffee", "long_term")

        one.erase_user("ann")

        assert one.manager("ann", "guide").retrieve("likes") == []
        assert [item["content"] for item in two.manager("ann", "guide").retrieve("likes")] == ["likes coffee"]


def test_the_counts_are_returned_by_kind_and_are_in_the_audit_chain(retain: Retain) -> None:
    memory = retain.manager("ann", "guide", "s")
    memory.add_many(["likes tea", "likes coffee"], "long_term")
    memory.delete(memory.add("likes water", "long_term")["memory_id"])
    memory.add("in the middle of it", "working")
    memory.entity.add("Rex")
    memory.structured.put("trips", {"city": "Rome"})
    memory.short_term.add_message("user", "hello")

    counts = memory.gdpr_delete_user_data("ann")

    expected = {"long_term": 3, "entity": 1, "structured": 1, "working": 1, "short_term": 1}
    assert counts == {"persona": 0, "episodic": 0, **expected}
    assert retain.gdpr_delete_user_data("ann") == dict.fromkeys(counts, 0)
    entry = next(one for one in retain.audit.tail() if one["action"] == "erased")
    assert entry["detail"]["kinds"] == {"long_term": 3, "entity": 1, "structured": 1}
    assert "ann" not in str(entry)


def test_what_is_measured_stays_true(retain: Retain) -> None:
    memory = retain.manager("ann", "guide")
    memory.add_many(["likes tea", "likes coffee"], "long_term")
    memory.delete(memory.add("likes water", "long_term")["memory_id"])
    retain.manager("bob", "guide").add("likes milk", "long_term")
    by_user = ("long_term", "recycled", "user", 1)

    retain.erase_user("ann")

    assert by_user in retain.dues.totals(), "a count never falls"
    metrics = retain.metrics()
    assert b'memory_deleted_total{memory_type="long_term",reason="erasure"} 2.0' in metrics
    assert b'memory_purged_total{memory_type="long_term"} 3.0' in metrics
    assert {kind: count for kind, _, count in retain.dues.holdings()} == {"long_term": 1}


# --- holds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "whom",
    [
        {"user_id": "ann"},
        {"agent_id": "guide"},
        {"session_id": "trip"},
        {"tag": "case=7"},
        {"tag": "said=yes"},
        {"memory_id": "memory"},
        {"user_id": "ann", "tag": "nothing has it"},
    ],
    ids=str,
)
def test_a_hold_on_anything_of_a_user_refuses(retain: Retain, whom: dict[str, str]) -> None:
    memory = retain.manager("ann", "guide", "trip")
    memory_id = memory.add("likes tea", "long_term", {"case": 7})["memory_id"]
    memory.short_term.add_message("user", "hello", {"said": "yes"})
    named = {name: memory_id if value == "memory" else value for name, value in whom.items()}
    hold = retain.holds.add(**named, reason="a case", author="counsel")

    with pytest.raises(HeldError, match=hold.id):
        retain.erase_user("ann")

    assert memory.get(memory_id)["content"] == "likes tea"
    assert retain.ledger.last() == 0
    (refused,) = [entry for entry in retain.audit.tail(user_id="ann") if entry["action"] == "refused"]
    assert (refused["detail"]["hold"], refused["detail"]["to"]) == (hold.id, "erased")
    retain.holds.release(hold.id, author="counsel")
    assert retain.erase_user("ann").kinds["long_term"] == 1
    assert retain.audit.verify()


def test_a_hold_on_others_does_not_refuse(retain: Retain) -> None:
    memory = retain.manager("ann", "guide", "trip")
    memory.add("likes tea", "long_term")
    other = retain.manager("bob", "other guide", "other trip").add("likes coffee", "long_term", {"case": 7})
    for whom in ({"user_id": "bob"}, {"agent_id": "other guide"}, {"tag": "case=7"}, {"memory_id": other["memory_id"]}):
        retain.holds.add(**whom, reason="a case", author="counsel")

    assert retain.erase_user("ann").kinds["long_term"] == 1
    assert len(retain.holds.list()) == 4


def cut_short(retain: Retain, user_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an erasure die when it is in the ledger, and nothing has been changed."""

    def dying(*_args: object, **_options: object) -> None:
        raise DeathError

    with monkeypatch.context() as patch:
        patch.setattr("retain.storage.relational.subjects._detach", dying)
        with pytest.raises(DeathError):
            retain.erase_user(user_id)
    assert retain.ledger.last() == 1


def test_an_entry_that_lacks_its_mark_is_marked_whoever_it_is_about(home: Path, clock: FakeClock) -> None:
    with Retain.open(home=home, clock=clock) as retain:
        retain.manager("bob", "guide").add("likes trains")
        retain.ledger.begin("0" * 32, at=1)  # of somebody whom this store has never had
        retain.ledger._objects.delete(list(retain.ledger._objects.names("erased/")))
    with Retain.open(home=home, clock=clock) as retain:
        assert retain.ledger.find("0" * 32) is not None, "a backup that has them is restored without them"
        assert retain.ledger.last() == 1


@pytest.mark.parametrize("by", ["opening", "a sweep", "erasing again"])
@pytest.mark.parametrize("whom", [{"user_id": "ann"}, {"tag": "case=7"}], ids=str)
def test_a_hold_that_comes_after_an_erasure_was_cut_short_keeps_everything_until_it_is_released(
    *,
    homes: Homes,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    whom: dict[str, str],
    by: str,
) -> None:
    home = homes.new()
    with Retain.open(home=home, clock=clock) as retain:
        memory_id = retain.manager("ann", "guide").add("evidence", "long_term", {"case": 7})["memory_id"]
        retain.manager("bob", "guide").add("likes tea", "long_term")
        before = retain.backups.create().id
        cut_short(retain, "ann", monkeypatch)
        hold = retain.holds.add(**whom, reason="a case", author="counsel")

    for _ in range(2):
        with Retain.open(home=home, clock=clock) as retain:
            assert retain.manager("ann", "guide").get(memory_id)["content"] == "evidence"
            assert [one.id for one in retain.holds.list()] == [hold.id]
            assert retain.certificates.list() == []
            assert len(retain.ledger.deferred()) == 1
            assert f"the erasure of {retain.ledger.deferred()[0]} has begun" in caplog.text
            assert "'ann'" not in caplog.text
    with Retain.open(home=home, clock=clock) as retain:
        (refused,) = [entry for entry in retain.audit.tail(user_id="ann") if entry["action"] == "refused"]
        assert refused["detail"]["hold"] == hold.id, "once, however often it was opened"
        with pytest.raises(HeldError, match="goes on after it"):
            retain.erase_user("ann")
        assert retain.backups.rotate(confirm=True).rewritten == []
        assert retain.backups.verify(before, restore=True).erased == 0, "it is in backups as ever"
        assert retain.backups.create().users == 2
        retain.erase_user("bob")
        assert retain.manager("ann", "guide").get(memory_id)["content"] == "evidence"
        retain.holds.release(hold.id, author="counsel")
        if by == "a sweep":
            retain.sweep()
        elif by == "erasing again":
            assert retain.erase_user("ann").kinds["long_term"] == 1
        assert (retain.manager("ann", "guide").count_memories("long_term") == 0) is (by != "opening")

    with Retain.open(home=home, clock=clock) as retain:
        assert retain.manager("ann", "guide").retrieve("evidence") == []
        assert retain.holds.list(released=True) == [] or "tag" in whom
        assert (len(retain.certificates.list()), retain.ledger.deferred()) == (2, [])
        retain.backups.rotate(confirm=True)
        assert [retain.backups.verify(one.id).erased for one in retain.backups.list()] == [0, 0], "taken out of them"
        assert retain.audit.verify()


def test_what_is_archived_stays_readable_while_a_hold_keeps_an_erasure_that_was_cut_short(
    homes: Homes, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = homes.new()
    with Retain.open(home=home, clock=clock) as retain:
        memory = retain.manager("ann", "guide")
        memory_id = memory.add("evidence " * 300, "long_term")["memory_id"]
        clock.advance(days=366)
        retain.sweep()
        cut_short(retain, "ann", monkeypatch)
        retain.holds.add(user_id="ann", reason="a case", author="counsel")
        memory.add("more evidence", "long_term")
        clock.advance(days=366)
        retain.sweep()
    with Retain.open(home=home, clock=clock) as retain:
        memory = retain.manager("ann", "guide")
        memory.rehydrate(memory_id)
        assert memory.get(memory_id)["content"].startswith("evidence")


# --- what is away just now ----------------------------------------------------------------------------------------


def test_where_cold_storage_is_away_it_is_pending_and_the_next_sweep_finishes_it(
    homes: Homes, clock: FakeClock
) -> None:
    home, sentinel = homes.new(), Sentinel()
    with Retain.open(home=home, clock=clock) as retain:
        sentinel.plant(retain, clock)
        objects: Any = retain.parts.objects()
        delete = objects.delete

        def away(_names: object) -> None:
            raise ObjectStoreUnavailableError("the bucket does not answer")

        objects.delete = away
        erasure = retain.erase_user(sentinel.user_id)

        assert (erasure.pending, erasure.waiting_for) == (True, ("the bucket does not answer",))
        assert sentinel.hits(homes, home) == [], "what is left is sealed, and the key is gone"
        assert retain.manager(sentinel.user_id, "guide").retrieve("new") == []
        objects.delete = delete
        retain.sweep()
        assert list(objects.names("archive/")) == []
        assert retain.eraser.finish_unfinished() == 0
        assert retain.erase_user(sentinel.user_id).alias is None
        assert retain.audit.verify()


@on_sqlite
def test_an_open_reader_keeps_it_pending_until_it_is_done(homes: Homes, clock: FakeClock) -> None:
    home, sentinel = homes.new(), Sentinel()
    with Retain.open(home=home, clock=clock) as retain, Retain.open(home=home, clock=clock) as other:
        sentinel.plant(retain, clock)
        with other.database.read() as tx:
            raw.rows(tx, "SELECT count(*) FROM records")

            erasure = retain.erase_user(sentinel.user_id)

            assert erasure.pending
            assert "reader" in erasure.waiting_for[0]
            assert raw.rows(retain, "SELECT count(*) FROM records") == [(0,)]
        assert sentinel.hits(homes, home) != [], "the log still has the pages as they were"
        again = retain.erase_user(sentinel.user_id)
        assert (again.pending, again.alias) == (False, erasure.alias)
        assert again.kinds["long_term"] == erasure.kinds["long_term"] > 0
        assert sentinel.hits(homes, home) == []


# --- no resurrection ----------------------------------------------------------------------------------------------


def test_a_copy_of_before_is_held_against_the_ledger_before_anyone_reads(homes: Homes, clock: FakeClock) -> None:
    home, sentinel = homes.new(), Sentinel()
    with Retain.open(home=home, clock=clock) as retain:
        remember_others(retain)
        sentinel.plant(retain, clock)
        before = others(retain)
    old = homes.copy(home, "old")
    with Retain.open(home=home, clock=clock) as retain:
        retain.erase_user(sentinel.user_id)
        retain.manager(sentinel.user_id, "guide").add("came back", "long_term")
    for folder in ("ledger", "erased"):
        shutil.copytree(home / folder, old / folder)

    with Retain.open(home=old, clock=clock) as retain:
        assert sentinel.hits(homes, old) == []
        assert retain.manager(sentinel.user_id, "guide").list_memories("long_term", include_archived=True) == []
        assert others(retain) == before
        assert retain.audit.verify()
    with Retain.open(home=home, clock=clock) as retain:
        (back,) = retain.manager(sentinel.user_id, "guide").list_memories("long_term")
        assert back["content"] == "came back", "what a returning user wrote later stays"


def test_a_hold_of_an_old_copy_does_not_bring_anyone_back(homes: Homes, clock: FakeClock) -> None:
    home = homes.new()
    with Retain.open(home=home, clock=clock) as retain:
        retain.manager("ann", "guide").add("likes tea", "long_term")
        hold = retain.holds.add(user_id="ann", reason="a case", author="counsel")
    old = homes.copy(home, "old")
    with Retain.open(home=home, clock=clock) as retain:
        retain.holds.release(hold.id, author="counsel")
        retain.erase_user("ann")
    for folder in ("ledger", "erased"):
        shutil.copytree(home / folder, old / folder)

    with Retain.open(home=old, clock=clock) as retain:
        assert retain.manager("ann", "guide").retrieve("tea") == []
        assert retain.holds.list() == []


def test_a_store_is_not_opened_without_the_ledger_that_it_knows(homes: Homes, clock: FakeClock) -> None:
    home = homes.new()
    with Retain.open(home=home, clock=clock) as retain:
        for user_id in ("ann", "bob"):
            retain.manager(user_id, "guide").add("likes tea", "long_term")
            retain.erase_user(user_id)
    entry = home / "ledger" / "000000000002.json"
    kept = entry.read_bytes()
    entry.unlink()
    with pytest.raises(LedgerError, match="has 1"):
        Retain.open(home=home, clock=clock)
    entry.write_bytes(kept.replace(b'"at":', b'"at":1'))
    with pytest.raises(LedgerError, match="changed"):
        Retain.open(home=home, clock=clock)
    entry.write_bytes(kept)
    Retain.open(home=home, clock=clock).close()


def test_opening_makes_neither_keys_nor_folders(homes: Homes, clock: FakeClock) -> None:
    home = homes.new()
    with Retain.open(home=home, clock=clock) as retain:
        retain.manager("ann", "guide").add("likes tea", "long_term")
    there = {path.name for path in home.iterdir()}
    assert there <= {"retain.db", "retain.db-wal", "retain.db-shm", "retain.toml", "state", ".incoming"}
    assert [path.name for path in (home / "state").iterdir()] == ["stores"], "that there is a store with data"


# --- at the same time ---------------------------------------------------------------------------------------------


def test_whoever_writes_while_a_user_is_erased_writes_for_nobody_who_is_gone(retain: Retain) -> None:
    stop = threading.Event()

    def write() -> int:
        memory, count = retain.manager("ann", "guide", "trip"), 0
        while not stop.is_set():
            memory.add(f"likes tea {count}", "long_term")
            memory.short_term.add_message("user", f"hello {count}")
            count += 1
        return count

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write) for _ in range(2)]
        erasures = [retain.erase_user("ann") for _ in range(8)]
        stop.set()
        written = sum(writer.result() for writer in writers)
    erasures.append(retain.erase_user("ann"))

    assert sum(erasure.kinds["long_term"] for erasure in erasures) == written, "each was erased once, and none is left"
    assert not any(erasure.pending for erasure in erasures[-1:])
    retain.eraser.finish_unfinished()
    for table in ("records", "sessions", "facts", "short_windows", "packs"):
        orphans = f"SELECT count(*) FROM {table} WHERE subject NOT IN (SELECT no FROM subjects)"  # noqa: S608
        assert raw.rows(retain, orphans) == [(0,)], table
    assert retain.manager("ann", "guide", "trip").retrieve("tea") == []
    assert retain.audit.verify()


def test_two_who_erase_the_same_user_at_once_both_find_them_gone(homes: Homes, clock: FakeClock) -> None:
    home, sentinel = homes.new(), Sentinel()
    with Retain.open(home=home, clock=clock) as one, Retain.open(home=home, clock=clock) as other:
        sentinel.plant(one, clock)
        with ThreadPoolExecutor(2) as pool:
            erasures = list(pool.map(lambda engine: engine.erase_user(sentinel.user_id), (one, other)))
        assert not any(erasure.pending for erasure in erasures)
        assert {erasure.alias for erasure in erasures} - {None}
        assert one.ledger.last() == 1
        assert one.audit.verify()
    assert sentinel.hits(homes, home) == []
