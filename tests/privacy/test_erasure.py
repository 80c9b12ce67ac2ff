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
from effort import soak, stride
from holdfast import HeldError, Holdfast
from holdfast.core.errors import InvalidInputError, LedgerError, ObjectStoreUnavailableError
from holdfast.privacy.erasure import Erasure
from homes import ENGINES, Homes, on_sqlite
from lifecycle.fuses import DeathError, Fuse
from lifecycle.soundness import check_sound
from privacy.sentinels import MANY, Sentinel

TABLES = ("records", "sessions", "history", "facts", "scopes", "short_windows", "short_messages", "packs", "totals")


@pytest.fixture(scope="session", params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> str:
    return cast("str", request.param)


def place(erasure: Erasure, name: str) -> tuple[int, int, int]:
    """What was found, removed and left somewhere."""
    return next((found, removed, left) for known, found, removed, left in erasure.places if known == name)


def remember_others(holdfast: Holdfast) -> None:
    for user_id in ("bob", "user"):
        memory = holdfast.manager(user_id, "guide", "trip")
        memory.add_many([f"{user_id} likes tea {n}" for n in range(30)], "long_term")
        memory.add("speaks slowly", "persona")
        memory.episodic.record_episode("book a train", ["look it up"])
        memory.entity.add("Rex", attributes={"kind": "dog"})
        memory.short_term.add_message("user", f"hello from {user_id}")
        holdfast.quotas.set("long_term", max_memories=500, user_id=user_id)
        holdfast.policies.set("long_term", user_id=user_id, keep_days=3)


def others(holdfast: Holdfast) -> dict[str, Any]:
    """Everything that is kept of the other users."""
    whose = "(SELECT no FROM subjects WHERE subject IN ('default/bob', 'default/user'))"
    seen: dict[str, Any] = {}
    for table in TABLES:
        names = raw.columns(holdfast, table)
        if "subject" in names:
            statement = f"SELECT * FROM {table} WHERE subject IN {whose}"  # noqa: S608 - our own words
            seen[table] = sorted(map(repr, raw.rows(holdfast, statement)))
    for table in ("quotas", "rules"):
        statement = f"SELECT * FROM {table} WHERE user_id IN ('bob', 'user')"  # noqa: S608
        seen[table] = sorted(map(repr, raw.rows(holdfast, statement)))
    for user_id in ("bob", "user"):
        memory = holdfast.manager(user_id, "guide", "trip")
        found = memory.retrieve("tea", ["long_term", "persona", "episodic"], top_k=40)
        seen[user_id] = [(item["memory_id"], item["content"], round(item["score"], 4)) for item in found]
        seen[f"messages of {user_id}"] = memory.short_term.get_full_history()
    return seen


# --- everything goes --------------------------------------------------------------------------------------------------


def test_nothing_of_a_user_is_left_in_any_place(homes: Homes, clock: FakeClock) -> None:
    home, sentinel = homes.new(), Sentinel()
    with Holdfast.open(home=home, clock=clock) as holdfast:
        remember_others(holdfast)
        sentinel.plant(holdfast, clock)
        remember_others(holdfast)
        before = others(holdfast)
        assert sentinel.hits(homes, home), "the marker is to be found where it was planted"

        erasure = holdfast.erase_user(sentinel.user_id)

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
        assert others(holdfast) == before
        assert [holdfast.backups.verify(one.id).erased for one in holdfast.backups.list()] == [1, 1], (
            "nobody can read them"
        )
        holdfast.backups.rotate(confirm=True)
        kept = {path: path.read_bytes() for path in (home / "backups").rglob("*") if path.is_file()}
        assert kept
        assert [path for path, data in kept.items() if str(erasure.alias).encode() in data] == [], (
            "and now they are gone"
        )
        assert holdfast.audit.verify()
        check_sound(holdfast)
    assert sentinel.hits(homes, home) == []
    with Holdfast.open(home=home, clock=clock) as holdfast:
        assert others(holdfast) == before
        holdfast.sweep()
        assert holdfast.audit.verify()


def burning(holdfast: Holdfast, at: int) -> Fuse:
    """A fuse on everything that an erasure does: transactions, objects, keys and the ledger."""
    fuse = Fuse(holdfast, at)
    state: Any = vars(holdfast.ledger)["_objects"]
    for name in ("put", "delete"):
        effect = getattr(state, name)

        def guarded(*arguments: Any, doing: Callable[..., Any] = effect, what: str = name, **options: Any) -> Any:
            fuse.burn(f"a {what} of a key or the ledger")
            return doing(*arguments, **options)

        setattr(state, name, guarded)
    return fuse


@soak
def test_a_crash_at_any_effect_is_made_good_by_opening_and_by_erasing_again(
    homes: Homes, clock: FakeClock, engine_name: str
) -> None:
    before, sentinel = homes.new("before"), Sentinel()
    with Holdfast.open(home=before, clock=clock) as holdfast:
        remember_others(holdfast)
        sentinel.plant(holdfast, clock)
        seen = others(holdfast)
    effects = 0
    while True:
        home = homes.copy(before, f"crash {effects}")
        holdfast = Holdfast.open(home=home, clock=clock)
        fuse = burning(holdfast, effects)
        try:
            holdfast.erase_user(sentinel.user_id)
        except DeathError:
            pass
        finally:
            holdfast.close()
        if not fuse.is_dead:
            break
        where = f"died before {fuse.last}, effect {effects}"
        with Holdfast.open(home=home, clock=clock) as again:
            if again.ledger.last():
                assert sentinel.hits(homes, home) == [], f"{where}: opening made it good"
            erasure = again.erase_user(sentinel.user_id)
            assert not erasure.pending, where
            assert others(again) == seen, where
            assert again.audit.verify(), where
        assert sentinel.hits(homes, home) == [], where
        homes.remove(home)
        effects += stride(engine_name)
    assert effects > 6


def test_what_another_process_has_in_its_index_is_gone_at_once(home: Path, clock: FakeClock) -> None:
    with Holdfast.open(home=home, clock=clock) as one, Holdfast.open(home=home, clock=clock) as other:
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


def test_rules_and_released_holds_on_a_session_that_is_only_theirs_go_and_are_exported(holdfast: Holdfast) -> None:
    for user_id, session_id in (("ann", "ann's trip"), ("ann", "shared"), ("bob", "shared"), ("bob", "bob's")):
        holdfast.manager(user_id, "guide", session_id).add("likes tea", "long_term")
    tenant = holdfast.of_tenant("elsewhere")
    tenant.manager("eve", "guide", "ann's trip").add("likes tea", "long_term")
    for session_id in ("ann's trip", "shared", "bob's"):
        holdfast.policies.set("long_term", session_id=session_id, keep_days=3)
        hold = holdfast.holds.add(session_id=session_id, reason=f"about {session_id}", author="counsel")
        holdfast.holds.release(hold.id, author="counsel")

    exported = holdfast.export_user("ann")
    assert [rule["session_id"] for rule in exported["rules"]] == ["ann's trip"]
    assert [hold["session_id"] for hold in exported["holds"]] == ["ann's trip"]
    erasure = holdfast.erase_user("ann")

    assert place(erasure, "rules") == place(erasure, "released holds") == (1, 1, 0)
    assert {hold.session_id for hold in holdfast.holds.list(released=True)} == {"shared", "bob's"}
    assert {rule["session_id"] for rule in holdfast.policies.list() if "session_id" in rule} == {"shared", "bob's"}


def test_a_user_who_comes_back_begins_anew(holdfast: Holdfast, clock: FakeClock) -> None:
    memory = holdfast.manager("ann", "guide", "s")
    holdfast.quotas.set("long_term", max_memories=1, user_id="ann")
    memory.add("likes tea", "long_term")
    first = holdfast.erase_user("ann")

    memory.add("likes coffee", "long_term")
    memory.add("likes water", "long_term")

    assert {item["content"] for item in memory.retrieve("likes")} == {"likes coffee", "likes water"}
    second = holdfast.erase_user("ann")
    assert second.alias != first.alias
    assert second.kinds["long_term"] == 2
    assert memory.retrieve("likes") == []
    assert holdfast.ledger.last() == 2
    assert holdfast.audit.verify()


def test_erasing_twice_finds_nothing_the_second_time(holdfast: Holdfast) -> None:
    holdfast.manager("ann", "guide").add("likes tea", "long_term")
    holdfast.erase_user("ann")

    again = holdfast.erase_user("ann")

    assert (again.alias, again.pending, again.entry) == (None, False, None)
    assert {one.found for one in again.places} == {0}
    assert holdfast.ledger.last() == 1


def test_a_request_for_somebody_unknown_is_answered(holdfast: Holdfast, home: Path) -> None:
    holdfast.quotas.set("long_term", max_memories=7, user_id="nobody")

    erasure = holdfast.erase_user("nobody")

    assert (erasure.alias, erasure.pending, set(erasure.kinds.values())) == (None, False, {0})
    assert place(erasure, "quotas") == (1, 1, 0)
    assert holdfast.quotas.get("long_term", "nobody").max_memories == 10_000
    assert not (home / "ledger").exists()
    assert raw.rows(holdfast, "SELECT 1 FROM subjects WHERE subject = 'default/nobody'") == []


@pytest.mark.parametrize("user_id", ["", "*", None, "a\x01b", 7])
def test_whom_nobody_can_be_is_not_erased(holdfast: Holdfast, user_id: Any) -> None:
    with pytest.raises(InvalidInputError):
        holdfast.erase_user(user_id)


def test_other_tenants_users_of_the_same_name_stay(home: Path, clock: FakeClock) -> None:
    with (
        Holdfast.open(home=home, clock=clock, tenant="one") as one,
        Holdfast.open(home=home, clock=clock, tenant="two") as two,
    ):
        one.manager("ann", "guide").add("likes tea", "long_term")
        two.manager("ann", "guide").add("likes coffee", "long_term")

        one.erase_user("ann")

        assert one.manager("ann", "guide").retrieve("likes") == []
        assert [item["content"] for item in two.manager("ann", "guide").retrieve("likes")] == ["likes coffee"]


def test_the_counts_are_returned_by_kind_and_are_in_the_audit_chain(holdfast: Holdfast) -> None:
    memory = holdfast.manager("ann", "guide", "s")
    memory.add_many(["likes tea", "likes coffee"], "long_term")
    memory.delete(memory.add("likes water", "long_term")["memory_id"])
    memory.add("in the middle of it", "working")
    memory.entity.add("Rex")
    memory.structured.put("trips", {"city": "Rome"})
    memory.short_term.add_message("user", "hello")

    counts = memory.gdpr_delete_user_data("ann")

    expected = {"long_term": 3, "entity": 1, "structured": 1, "working": 1, "short_term": 1}
    assert counts == {"persona": 0, "episodic": 0, **expected}
    assert holdfast.gdpr_delete_user_data("ann") == dict.fromkeys(counts, 0)
    entry = next(one for one in holdfast.audit.tail() if one["action"] == "erased")
    assert entry["detail"]["kinds"] == {"long_term": 3, "entity": 1, "structured": 1}
    assert "ann" not in str(entry)


def test_what_is_measured_stays_true(holdfast: Holdfast) -> None:
    memory = holdfast.manager("ann", "guide")
    memory.add_many(["likes tea", "likes coffee"], "long_term")
    memory.delete(memory.add("likes water", "long_term")["memory_id"])
    holdfast.manager("bob", "guide").add("likes milk", "long_term")
    by_user = ("long_term", "recycled", "user")

    holdfast.erase_user("ann")

    counts = holdfast.services.dues.counts()
    assert counts.moves[by_user] == 1, "a count never falls"
    metrics = holdfast.metrics()
    assert b'memory_deleted_total{memory_type="long_term",reason="erasure"} 2.0' in metrics
    assert b'memory_purged_total{memory_type="long_term"} 3.0' in metrics
    assert {kind: count for kind, (count, _) in counts.live.items()} == {"long_term": 1}


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
def test_a_hold_on_anything_of_a_user_refuses(holdfast: Holdfast, whom: dict[str, str]) -> None:
    memory = holdfast.manager("ann", "guide", "trip")
    memory_id = memory.add("likes tea", "long_term", {"case": 7})["memory_id"]
    memory.short_term.add_message("user", "hello", {"said": "yes"})
    named = {name: memory_id if value == "memory" else value for name, value in whom.items()}
    hold = holdfast.holds.add(**named, reason="a case", author="counsel")

    with pytest.raises(HeldError, match=hold.id):
        holdfast.erase_user("ann")

    assert memory.get(memory_id)["content"] == "likes tea"
    assert holdfast.ledger.last() == 0
    (refused,) = [entry for entry in holdfast.audit.tail(user_id="ann") if entry["action"] == "refused"]
    assert (refused["detail"]["hold"], refused["detail"]["to"]) == (hold.id, "erased")
    holdfast.holds.release(hold.id, author="counsel")
    assert holdfast.erase_user("ann").kinds["long_term"] == 1
    assert holdfast.audit.verify()


def test_a_hold_on_others_does_not_refuse(holdfast: Holdfast) -> None:
    memory = holdfast.manager("ann", "guide", "trip")
    memory.add("likes tea", "long_term")
    other = holdfast.manager("bob", "other guide", "other trip").add("likes coffee", "long_term", {"case": 7})
    for whom in ({"user_id": "bob"}, {"agent_id": "other guide"}, {"tag": "case=7"}, {"memory_id": other["memory_id"]}):
        holdfast.holds.add(**whom, reason="a case", author="counsel")

    assert holdfast.erase_user("ann").kinds["long_term"] == 1
    assert len(holdfast.holds.list()) == 4


def cut_short(holdfast: Holdfast, user_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an erasure die when it is in the ledger, and nothing has been changed."""

    def dying(*_args: object, **_options: object) -> None:
        raise DeathError

    with monkeypatch.context() as patch:
        patch.setattr("holdfast.storage.relational.subjects._detach", dying)
        with pytest.raises(DeathError):
            holdfast.erase_user(user_id)
    assert holdfast.ledger.last() == 1


def test_an_entry_that_lacks_its_mark_is_marked_whoever_it_is_about(home: Path, clock: FakeClock) -> None:
    with Holdfast.open(home=home, clock=clock) as holdfast:
        holdfast.manager("bob", "guide").add("likes trains")
        holdfast.ledger.begin("0" * 32, at=1)  # of somebody whom this store has never had
        holdfast.ledger._objects.delete(list(holdfast.ledger._objects.names("erased/")))
    with Holdfast.open(home=home, clock=clock) as holdfast:
        assert holdfast.ledger.find("0" * 32) is not None, "a backup that has them is restored without them"
        assert holdfast.ledger.last() == 1


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
    with Holdfast.open(home=home, clock=clock) as holdfast:
        memory_id = holdfast.manager("ann", "guide").add("evidence", "long_term", {"case": 7})["memory_id"]
        holdfast.manager("bob", "guide").add("likes tea", "long_term")
        before = holdfast.backups.create().id
        cut_short(holdfast, "ann", monkeypatch)
        hold = holdfast.holds.add(**whom, reason="a case", author="counsel")

    for _ in range(2):
        with Holdfast.open(home=home, clock=clock) as holdfast:
            assert holdfast.manager("ann", "guide").get(memory_id)["content"] == "evidence"
            assert [one.id for one in holdfast.holds.list()] == [hold.id]
            assert holdfast.certificates.list() == []
            assert len(holdfast.ledger.list_deferred()) == 1
            assert f"the erasure of {holdfast.ledger.list_deferred()[0]} has begun" in caplog.text
            assert "'ann'" not in caplog.text
    with Holdfast.open(home=home, clock=clock) as holdfast:
        (refused,) = [entry for entry in holdfast.audit.tail(user_id="ann") if entry["action"] == "refused"]
        assert refused["detail"]["hold"] == hold.id, "once, however often it was opened"
        with pytest.raises(HeldError, match="goes on after it"):
            holdfast.erase_user("ann")
        assert holdfast.backups.rotate(confirm=True).rewritten == []
        assert holdfast.backups.verify(before, restore=True).erased == 0, "it is in backups as ever"
        assert holdfast.backups.create().users == 2
        holdfast.erase_user("bob")
        assert holdfast.manager("ann", "guide").get(memory_id)["content"] == "evidence"
        holdfast.holds.release(hold.id, author="counsel")
        if by == "a sweep":
            holdfast.sweep()
        elif by == "erasing again":
            assert holdfast.erase_user("ann").kinds["long_term"] == 1
        assert (holdfast.manager("ann", "guide").count_memories("long_term") == 0) is (by != "opening")

    with Holdfast.open(home=home, clock=clock) as holdfast:
        assert holdfast.manager("ann", "guide").retrieve("evidence") == []
        assert holdfast.holds.list(released=True) == [] or "tag" in whom
        assert (len(holdfast.certificates.list()), holdfast.ledger.list_deferred()) == (2, [])
        holdfast.backups.rotate(confirm=True)
        assert [holdfast.backups.verify(one.id).erased for one in holdfast.backups.list()] == [0, 0], (
            "taken out of them"
        )
        assert holdfast.audit.verify()


def test_what_is_archived_stays_readable_while_a_hold_keeps_an_erasure_that_was_cut_short(
    homes: Homes, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = homes.new()
    with Holdfast.open(home=home, clock=clock) as holdfast:
        memory = holdfast.manager("ann", "guide")
        memory_id = memory.add("evidence " * 300, "long_term")["memory_id"]
        clock.advance(days=366)
        holdfast.sweep()
        cut_short(holdfast, "ann", monkeypatch)
        holdfast.holds.add(user_id="ann", reason="a case", author="counsel")
        memory.add("more evidence", "long_term")
        clock.advance(days=366)
        holdfast.sweep()
    with Holdfast.open(home=home, clock=clock) as holdfast:
        memory = holdfast.manager("ann", "guide")
        memory.rehydrate(memory_id)
        assert memory.get(memory_id)["content"].startswith("evidence")


# --- what is away just now ----------------------------------------------------------------------------------------


def test_where_cold_storage_is_away_it_is_pending_and_the_next_sweep_finishes_it(
    homes: Homes, clock: FakeClock
) -> None:
    home, sentinel = homes.new(), Sentinel()
    with Holdfast.open(home=home, clock=clock) as holdfast:
        sentinel.plant(holdfast, clock)
        objects: Any = holdfast.services.objects()
        delete = objects.delete

        def away(_names: object) -> None:
            raise ObjectStoreUnavailableError("the bucket does not answer")

        objects.delete = away
        erasure = holdfast.erase_user(sentinel.user_id)

        assert (erasure.pending, erasure.waiting_for) == (True, ("the bucket does not answer",))
        assert sentinel.hits(homes, home) == [], "what is left is sealed, and the key is gone"
        assert holdfast.manager(sentinel.user_id, "guide").retrieve("new") == []
        objects.delete = delete
        holdfast.sweep()
        assert list(objects.names("archive/")) == []
        assert holdfast.eraser.finish_unfinished() == 0
        assert holdfast.erase_user(sentinel.user_id).alias is None
        assert holdfast.audit.verify()


@on_sqlite
def test_an_open_reader_keeps_it_pending_until_it_is_done(homes: Homes, clock: FakeClock) -> None:
    home, sentinel = homes.new(), Sentinel()
    with Holdfast.open(home=home, clock=clock) as holdfast, Holdfast.open(home=home, clock=clock) as other:
        sentinel.plant(holdfast, clock)
        with other.database.read() as tx:
            raw.rows(tx, "SELECT count(*) FROM records")

            erasure = holdfast.erase_user(sentinel.user_id)

            assert erasure.pending
            assert "reader" in erasure.waiting_for[0]
            assert raw.rows(holdfast, "SELECT count(*) FROM records") == [(0,)]
        assert sentinel.hits(homes, home) != [], "the log still has the pages as they were"
        again = holdfast.erase_user(sentinel.user_id)
        assert (again.pending, again.alias) == (False, erasure.alias)
        assert again.kinds["long_term"] == erasure.kinds["long_term"] > 0
        assert sentinel.hits(homes, home) == []


# --- no resurrection ----------------------------------------------------------------------------------------------


def test_a_copy_of_before_is_held_against_the_ledger_before_anyone_reads(homes: Homes, clock: FakeClock) -> None:
    home, sentinel = homes.new(), Sentinel()
    with Holdfast.open(home=home, clock=clock) as holdfast:
        remember_others(holdfast)
        sentinel.plant(holdfast, clock)
        before = others(holdfast)
    old = homes.copy(home, "old")
    with Holdfast.open(home=home, clock=clock) as holdfast:
        holdfast.erase_user(sentinel.user_id)
        holdfast.manager(sentinel.user_id, "guide").add("came back", "long_term")
    for folder in ("ledger", "erased"):
        shutil.copytree(home / folder, old / folder)

    with Holdfast.open(home=old, clock=clock) as holdfast:
        assert sentinel.hits(homes, old) == []
        assert holdfast.manager(sentinel.user_id, "guide").list_memories("long_term", include_archived=True) == []
        assert others(holdfast) == before
        assert holdfast.audit.verify()
    with Holdfast.open(home=home, clock=clock) as holdfast:
        (back,) = holdfast.manager(sentinel.user_id, "guide").list_memories("long_term")
        assert back["content"] == "came back", "what a returning user wrote later stays"


def test_a_hold_of_an_old_copy_does_not_bring_anyone_back(homes: Homes, clock: FakeClock) -> None:
    home = homes.new()
    with Holdfast.open(home=home, clock=clock) as holdfast:
        holdfast.manager("ann", "guide").add("likes tea", "long_term")
        hold = holdfast.holds.add(user_id="ann", reason="a case", author="counsel")
    old = homes.copy(home, "old")
    with Holdfast.open(home=home, clock=clock) as holdfast:
        holdfast.holds.release(hold.id, author="counsel")
        holdfast.erase_user("ann")
    for folder in ("ledger", "erased"):
        shutil.copytree(home / folder, old / folder)

    with Holdfast.open(home=old, clock=clock) as holdfast:
        assert holdfast.manager("ann", "guide").retrieve("tea") == []
        assert holdfast.holds.list() == []


def test_a_store_is_not_opened_without_the_ledger_that_it_knows(homes: Homes, clock: FakeClock) -> None:
    home = homes.new()
    with Holdfast.open(home=home, clock=clock) as holdfast:
        for user_id in ("ann", "bob"):
            holdfast.manager(user_id, "guide").add("likes tea", "long_term")
            holdfast.erase_user(user_id)
    entry = home / "ledger" / "000000000002.json"
    kept = entry.read_bytes()
    entry.unlink()
    with pytest.raises(LedgerError, match="has 1"):
        Holdfast.open(home=home, clock=clock)
    entry.write_bytes(kept.replace(b'"at":', b'"at":1'))
    with pytest.raises(LedgerError, match="changed"):
        Holdfast.open(home=home, clock=clock)
    entry.write_bytes(kept)
    Holdfast.open(home=home, clock=clock).close()


def test_opening_makes_neither_keys_nor_folders(homes: Homes, clock: FakeClock) -> None:
    home = homes.new()
    with Holdfast.open(home=home, clock=clock) as holdfast:
        holdfast.manager("ann", "guide").add("likes tea", "long_term")
    there = {path.name for path in home.iterdir()}
    assert there <= {"holdfast.db", "holdfast.db-wal", "holdfast.db-shm", "holdfast.toml", "state", ".incoming"}
    assert [path.name for path in (home / "state").iterdir()] == ["stores"], "that there is a store with data"


# --- at the same time ---------------------------------------------------------------------------------------------


def test_whoever_writes_while_a_user_is_erased_writes_for_nobody_who_is_gone(holdfast: Holdfast) -> None:
    stop = threading.Event()

    def write() -> int:
        memory, count = holdfast.manager("ann", "guide", "trip"), 0
        while not stop.is_set():
            memory.add(f"likes tea {count}", "long_term")
            memory.short_term.add_message("user", f"hello {count}")
            count += 1
        return count

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write) for _ in range(2)]
        erasures = [holdfast.erase_user("ann") for _ in range(8)]
        stop.set()
        written = sum(writer.result() for writer in writers)
    erasures.append(holdfast.erase_user("ann"))

    assert sum(erasure.kinds["long_term"] for erasure in erasures) == written, "each was erased once, and none is left"
    assert not any(erasure.pending for erasure in erasures[-1:])
    holdfast.eraser.finish_unfinished()
    for table in ("records", "sessions", "facts", "short_windows", "packs"):
        orphans = f"SELECT count(*) FROM {table} WHERE subject NOT IN (SELECT no FROM subjects)"  # noqa: S608
        assert raw.rows(holdfast, orphans) == [(0,)], table
    assert holdfast.manager("ann", "guide", "trip").retrieve("tea") == []
    assert holdfast.audit.verify()


def test_two_who_erase_the_same_user_at_once_both_find_them_gone(homes: Homes, clock: FakeClock) -> None:
    home, sentinel = homes.new(), Sentinel()
    with Holdfast.open(home=home, clock=clock) as one, Holdfast.open(home=home, clock=clock) as other:
        sentinel.plant(one, clock)
        with ThreadPoolExecutor(2) as pool:
            erasures = list(pool.map(lambda engine: engine.erase_user(sentinel.user_id), (one, other)))
        assert not any(erasure.pending for erasure in erasures)
        assert {erasure.alias for erasure in erasures} - {None}
        assert one.ledger.last() == 1
        assert one.audit.verify()
    assert sentinel.hits(homes, home) == []
