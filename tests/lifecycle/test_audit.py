"""The audit chain: what happened is there in order, and whatever is done to it from outside is found."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import raw
from clocks import FakeClock
from effort import soak, times
from holdfast.core.audit import Action, Event
from holdfast.core.clock import Belief
from holdfast.core.errors import ConflictError, InvalidInputError, NotFoundError, ObjectStoreError, StorageError
from holdfast.core.records import Subject
from holdfast.core.values import moment
from holdfast.lifecycle.audit import Audit
from holdfast.storage.objects.local import LocalObjects
from holdfast.storage.relational.audit import SqlAudit, append
from holdfast.storage.relational.database import Database, Transaction
from holdfast.storage.sqlite.database import SqliteDatabase
from holdfast.storage.sqlite.transactions import SqliteTransaction
from homes import Homes, database_of, tenant_of

ME, YOU, ALL = Subject("t", "me"), Subject("t", "you"), Subject("t")
#: The tables of the chain, and what tells their rows apart.
KEYS = {"audit": "no", "chains": "subject", "sealed": "subject", "audit_checkpoints": "no"}
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)


class World(NamedTuple):
    """A store, its audit chain, and the note beside it."""

    database: Database
    store: SqlAudit
    audit: Audit
    clock: FakeClock
    note: Path

    def happen(self, subject: Subject, count: int = 1, **detail: Any) -> None:
        """Put some events on a chain."""
        at = moment(self.clock())
        self.store.append(
            subject, [Event(at + n, Action.RECYCLED, f"item {n}", {"n": n, **detail}) for n in range(count)]
        )

    def happen_together(self, subject: Subject, items: Iterable[str], **detail: Any) -> None:
        """Put on a chain what happened to several items at once."""
        at = moment(self.clock())
        self.store.append(subject, [Event(at, Action.ARCHIVED, item, detail) for item in items])

    def tamper(self, statement: str, *bindings: object) -> None:
        """Change the store behind its back."""
        raw.run(self.database, statement, bindings)


@contextmanager
def opened(home: Path, state: Path) -> Iterator[World]:
    """The store of a home, with the note in some state store."""
    clock = FakeClock()
    database = database_of(home)
    store = SqlAudit(database)
    try:
        tenant = tenant_of(database, "t", lambda: moment(clock()), audit=store)
        note = state / "state" / "audit-checkpoint.json"
        yield World(database, store, Audit(tenant, LocalObjects(state), lambda now: Belief(now, now)), clock, note)
    finally:
        database.close()


@pytest.fixture
def world(home: Path) -> Iterator[World]:
    with opened(home, home) as made:
        yield made


# --- writing and reading --------------------------------------------------------------------------------------------


def test_what_happened_is_told_in_order_with_the_newest_last(world: World) -> None:
    world.happen(ME, 2)
    world.happen(YOU)
    world.happen(ALL)
    world.store.append(Subject("t2", "me"), [Event(1, Action.ARCHIVED, None, {})])
    world.store.append(Subject("tt", "me"), [Event(1, Action.ARCHIVED, None, {})])

    told = world.audit.tail()
    mine = world.audit.tail(user_id="me")

    assert [(entry["item"], entry["seq"]) for entry in told] == [
        ("item 0", 1),
        ("item 1", 2),
        ("item 0", 1),
        ("item 0", 1),
    ]
    assert told[0] == {
        "at": "2026-01-15T12:00:00+00:00",
        "action": "recycled",
        "actor": "python",
        "item": "item 0",
        "detail": {"n": 0},
        "chain": mine[0]["chain"],
        "seq": 1,
    }
    assert mine == told[:2]
    assert world.audit.tail(1) == told[-1:]
    assert len({entry["chain"] for entry in told}) == 3
    assert world.audit.tail(user_id="nobody") == []


def test_an_item_has_its_own_history(world: World) -> None:
    world.happen(ME, 3)
    world.happen(ME, 2, again=True)
    world.happen(YOU, 2)

    assert [entry.seq for entry in world.store.of_item(ME, "item 1")] == [2, 5]
    assert world.store.of_item(ME, "item 9") == []
    assert world.store.of_item(Subject("t", "nobody"), "item 1") == []


def test_what_happened_to_several_items_at_once_is_one_entry_and_the_history_of_each(world: World) -> None:
    world.happen_together(ME, ["b", "d", "a"], reason="old")
    world.store.append(ME, [Event(moment(world.clock()), Action.RESTORED, "d", {})])
    world.happen_together(ME, ["e", "d"], reason="older")

    ((entries,),) = raw.rows(world.database, "SELECT count(*) FROM audit")
    assert entries == world.store.sizes().entries == 3
    told = world.audit.tail(user_id="me")
    assert [(entry["item"], entry["action"], entry["seq"]) for entry in told] == [
        ("b", "archived", 1),
        ("d", "archived", 1),
        ("a", "archived", 1),
        ("d", "restored", 2),
        ("e", "archived", 3),
        ("d", "archived", 3),
    ]
    assert {json.dumps(entry["detail"]) for entry in told[:3]} == {'{"reason": "old"}'}
    assert world.audit.tail(4, user_id="me") == world.audit.tail(4) == told[-4:]
    assert [(entry.seq, entry.detail) for entry in world.store.of_item(ME, "d")] == [
        (1, {"reason": "old"}),
        (2, {}),
        (3, {"reason": "older"}),
    ]
    assert [entry.seq for entry in world.store.of_item(ME, "a")] == [1]
    assert world.store.of_item(ME, "c") == [], "an item between the others is not one of them"
    assert world.audit.verify()


@pytest.mark.parametrize(
    "change",
    [
        """entry = replace(entry, '"b"', '"c"')""",
        """entry = replace(entry, '"b",', '')""",
        "item = 'b'",
        "last_item = 'e'",
        "last_item = NULL",
        "item = NULL",
    ],
)
def test_one_item_of_several_that_was_changed_is_found(world: World, change: str) -> None:
    world.happen(ME)
    world.happen_together(ME, ["b", "d", "a"])
    world.happen(ME)
    assert world.audit.verify()

    world.tamper(f"UPDATE audit SET {change} WHERE seq = 2")  # noqa: S608 - a statement of this test

    (finding,) = world.audit.verify().findings
    assert finding.seq == 2


def test_an_entry_about_several_items_is_sealed_and_cut_as_one(world: World) -> None:
    world.happen_together(ME, ["a", "b", "c"])
    world.clock.advance(days=1)
    world.happen(ME)
    world.audit.seal()

    assert world.audit.cut(world.clock() - timedelta(hours=1)) == 1
    assert world.store.of_item(ME, "b") == []
    assert world.audit.verify()


def test_no_entry_names_the_user(world: World) -> None:
    world.happen(Subject("t", "alice@example.com"), 2)
    world.happen_together(Subject("t", "alice@example.com"), ["a", "b"])

    for row in raw.rows(world.database, "SELECT * FROM audit"):
        assert "alice" not in repr(row)


def test_entries_are_written_with_what_they_tell_of_or_not_at_all(world: World) -> None:
    world.happen(ME)

    def fail_halfway() -> None:
        with world.database.write() as tx:
            append(tx, tx.number_for(ME), [Event(1, Action.RECYCLED, None, {})])
            append(tx, tx.number_for(YOU), [Event(1, Action.RECYCLED, None, {})])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()

    assert len(world.audit.tail()) == 1
    world.happen(ME)
    assert world.audit.verify()


def test_a_subject_that_is_not_known_has_no_chain(world: World) -> None:
    with pytest.raises(NotFoundError, match="77"), world.database.write() as tx:
        append(tx, 77, [Event(1, Action.RECYCLED, None, {})])


def test_no_events_are_no_entry(world: World) -> None:
    world.store.append(Subject("t", "new"), [])

    assert world.store.sizes() == (0, 0, 0)


def test_the_chain_of_an_erased_subject_stays_whole_and_can_go_on(world: World) -> None:
    world.happen(ME, 3)
    world.happen(YOU, 3)
    (me,), (you,) = (raw.rows(world.database, "SELECT no FROM subjects WHERE subject = ?", (who,)) for who in (ME, YOU))
    world.audit.seal()
    world.tamper("DELETE FROM subjects WHERE no = ?", *you)
    with world.database.write() as tx:
        append(tx, you[0], [Event(1, Action.ERASED, None, {})])
    assert world.audit.verify()
    world.audit.seal()
    world.tamper("DELETE FROM subjects WHERE no = ?", *me)

    verdict = world.audit.verify()

    assert (verdict.ok, verdict.chains, verdict.entries) == (True, 2, 7)


def test_two_connections_write_to_their_own_subjects_at_once(world: World, home: Path) -> None:
    other = database_of(home)
    try:
        stores = {ME: world.store, YOU: SqlAudit(other)}

        def work(subject: Subject) -> None:
            for n in range(40):
                stores[subject].append(subject, [Event(n, Action.RECYCLED, str(n), {})])
                stores[subject].append(ALL, [Event(n, Action.RULE_CHANGED, str(n), {})])

        threads = [threading.Thread(target=work, args=(subject,)) for subject in stores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        other.close()

    assert [entry.item for entry in world.store.tail("t", limit=99, subject=YOU)] == [str(n) for n in range(40)]
    assert len(world.store.tail("t", limit=999, subject=ALL)) == 80
    assert world.audit.verify().entries == 160
    assert world.audit.verify()


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "3"])
def test_a_limit_that_makes_no_sense_is_refused(world: World, limit: Any) -> None:
    with pytest.raises(InvalidInputError, match="limit"):
        world.audit.tail(limit)


# --- checkpoints ------------------------------------------------------------------------------------------------------


def test_a_checkpoint_seals_all_chains_and_is_noted_outside_the_store(world: World) -> None:
    world.happen(ME, 2)
    world.happen(YOU)

    first = world.audit.seal()
    again = world.audit.seal()
    world.happen(YOU)
    second = world.audit.seal()

    assert (first["checkpoint"], first["chains"], first["entries"]) == (1, 2, 3)
    assert again == first, "nothing had happened"
    assert (second["checkpoint"], second["entries"]) == (2, 4)
    assert json.loads(world.note.read_text()) == {"no": 2, "hash": second["hash"]}
    assert [file.name for file in world.note.parent.iterdir()] == [world.note.name]
    assert world.audit.verify()
    assert world.audit.verify().checkpoints == 2


def test_an_empty_store_is_whole_and_can_be_sealed(world: World) -> None:
    assert world.audit.verify()
    assert world.audit.seal()["checkpoint"] == 1
    assert world.audit.verify()


def test_a_crash_before_a_checkpoint_is_noted_is_no_tampering(world: World) -> None:
    for checkpoint in (1, 2, 3):
        world.happen(ME)
        world.audit.seal()
        world.happen(ME)
        world.store.seal(1)  # and here the power went
        assert world.audit.verify(), checkpoint

    assert world.audit.seal()["checkpoint"] == 6
    assert json.loads(world.note.read_text())["no"] == 6


def test_a_crash_before_the_first_checkpoint_is_noted_is_no_tampering(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def power_cut(_self: object, _at: int) -> Any:
        seal(world.store, 1)
        raise KeyboardInterrupt

    seal = SqlAudit.seal
    world.happen(ME)
    monkeypatch.setattr(SqlAudit, "seal", power_cut)
    with pytest.raises(KeyboardInterrupt):
        world.audit.seal()
    monkeypatch.undo()

    assert world.audit.verify().checkpoints == 1
    assert world.audit.verify()


def test_checkpoints_that_nobody_noted_are_found(world: World) -> None:
    world.audit.seal()
    for _ in range(2):
        world.happen(ME)
        world.store.seal(1)

    assert not world.audit.verify()
    with pytest.raises(ConflictError, match="last checkpoint is 3"):
        world.audit.seal()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"no": "1", "hash": "ab"}', '{"no": 1}', '{"no": 1, "hash": "ab"}'])
def test_a_note_that_was_changed_is_found(world: World, text: str) -> None:
    world.happen(ME)
    world.audit.seal()
    world.note.write_text(text)

    assert not world.audit.verify()
    with pytest.raises(ConflictError):
        world.audit.seal()


def test_a_note_that_was_removed_is_found(world: World) -> None:
    world.happen(ME)
    world.audit.seal()
    world.note.unlink()

    verdict = world.audit.verify()

    assert not verdict
    assert "no note" in verdict.findings[0].problem


def test_a_note_that_cannot_be_written_says_so_and_the_next_seal_writes_it(world: World) -> None:
    world.happen(ME)
    world.note.parent.write_text("in the way")
    with pytest.raises(ObjectStoreError, match="audit-checkpoint"):
        world.audit.seal()
    world.note.parent.unlink()

    assert world.audit.seal()["checkpoint"] == 1
    assert world.audit.verify()


def test_a_store_that_was_set_back_is_found_until_someone_says_why(homes: Homes) -> None:
    home = homes.new()
    state = home
    with opened(home, state) as world:
        world.happen(ME, 3)
        world.audit.seal()
    backup = homes.copy(home, "backup")
    with opened(home, state) as world:
        world.happen(ME, 3)
        world.audit.seal()

    with opened(backup, state) as world:
        assert not world.audit.verify()
        with pytest.raises(ConflictError, match="accept="):
            world.audit.seal()
        with pytest.raises(InvalidInputError, match="accept"):
            world.audit.seal(accept=" ")
        world.audit.seal(accept="restored the backup of Tuesday")

        assert world.audit.verify()
        (told,) = world.audit.tail(1)
        assert (told["action"], told["detail"]["reason"]) == ("audit.accepted", "restored the backup of Tuesday")


def test_sealing_does_not_cover_up_what_was_done_before(world: World) -> None:
    world.happen(ME, 5)
    world.happen(YOU, 5)
    world.audit.seal()
    with world.database.write() as tx:  # the end goes, and the chain is made to look as if it had never been
        ((number,),) = raw.rows(tx, "SELECT no FROM subjects WHERE subject = ?", (ME,))
        raw.run(tx, "DELETE FROM audit WHERE subject = ? AND seq > 3", (number,))
        raw.run(
            tx,
            "UPDATE chains SET seq = 3, hash = (SELECT hash FROM audit a WHERE a.subject = chains.subject AND seq = 3) "
            "WHERE subject = ?",
            (number,),
        )
    world.happen(ME, 4)
    world.happen(YOU, 4)
    world.audit.seal()

    findings = world.audit.verify().findings

    chain = world.audit.tail(user_id="me")[0]["chain"]
    assert (chain, 5, "is not the entry that was sealed by a checkpoint") in findings


def test_nothing_is_sealed_over_heads_that_were_changed(world: World) -> None:
    world.happen(ME)
    world.happen(YOU)
    world.audit.seal()
    world.tamper("DELETE FROM sealed WHERE subject = (SELECT max(subject) FROM sealed)")

    with pytest.raises(StorageError, match="audit verify"):
        world.audit.seal()
    assert not world.audit.verify()


# --- cutting --------------------------------------------------------------------------------------------------------


def test_old_entries_are_cut_as_far_as_they_are_sealed(world: World) -> None:
    world.happen(ME, 3)
    world.happen(YOU, 2)
    world.audit.seal()
    world.happen(YOU, 2)
    world.clock.advance(days=10)
    world.happen(ME)

    assert world.audit.cut(world.clock()) == 5

    assert [(entry["action"], entry["seq"]) for entry in world.audit.tail(user_id="me")] == [
        ("recycled", 4),
        ("audit.cut", 5),
    ]
    assert [entry["seq"] for entry in world.audit.tail(user_id="you")] == [3, 4, 5]
    assert world.audit.tail(1, user_id="me")[0]["detail"]["count"] == 3
    assert world.audit.verify()
    assert world.audit.cut(world.clock()) == 0
    world.audit.seal()
    world.clock.advance(days=1)
    world.audit.cut(world.clock())
    world.audit.seal()
    assert world.audit.verify()
    assert [entry["action"] for entry in world.audit.tail()] == ["audit.cut", "audit.cut"]


def test_only_the_beginning_of_a_chain_is_cut(world: World) -> None:
    for at in (1, 2, 9, 3):  # a clock went back
        world.store.append(ME, [Event(at, Action.RECYCLED, None, {})])
    world.audit.seal()

    assert world.store.cut(5, at=9) == 2
    assert world.audit.verify()


def test_a_long_chain_is_cut_in_several_transactions(world: World) -> None:
    world.happen(ME, 12_000)
    world.happen(YOU, 3)
    world.audit.seal()
    world.clock.advance(days=1)

    assert world.audit.cut(world.clock() - timedelta(hours=1)) == 12_003
    assert world.audit.verify()
    assert world.audit.cut(world.clock() - timedelta(hours=1)) == 0


def test_what_was_tampered_with_is_not_cut(world: World) -> None:
    world.happen(ME, 3)
    world.happen(YOU, 3)
    world.audit.seal()
    world.tamper("UPDATE audit SET entry = replace(entry, 'recycle', 'restore') WHERE no = 2")
    world.clock.advance(days=1)

    assert world.audit.cut(world.clock()) == 3
    assert [finding.seq for finding in world.audit.verify().findings] == [2]


def test_nothing_is_cut_that_is_yet_to_come(world: World) -> None:
    with pytest.raises(InvalidInputError, match="future"):
        world.audit.cut(world.clock() + timedelta(seconds=1))


# --- verifying ------------------------------------------------------------------------------------------------------


def test_a_verdict_counts_all_problems_and_names_the_first_hundred(world: World) -> None:
    world.happen(ME, 150)
    heard: list[int] = []
    world.tamper("UPDATE audit SET at = at + 1")

    verdict = world.audit.verify(heard.append)

    assert not verdict
    assert not verdict.ok
    assert (verdict.problems, len(verdict.findings), verdict.entries) == (150, 100, 150)
    assert sum(heard) == 150


def test_an_entry_that_is_no_longer_readable_is_found_and_told(world: World) -> None:
    world.happen(ME)
    if isinstance(world.database, SqliteDatabase):
        world.tamper("UPDATE audit SET entry = CAST(x'ff' AS TEXT), item = CAST(x'fe' AS TEXT)")
    else:  # text that is none cannot be stored there
        world.tamper("UPDATE audit SET entry = '{', item = NULL")

    assert not world.audit.verify()
    with pytest.raises(StorageError, match="audit verify"):
        world.audit.tail()


STEPS = st.lists(
    st.tuples(st.sampled_from([ME, YOU, ALL]), st.integers(1, 3))
    | st.tuples(st.sampled_from([ME, YOU]), st.lists(TEXTS, min_size=2, max_size=3))
    | st.sampled_from(["seal", "cut"]),
    min_size=1,
    max_size=10,
)


def live(world: World, steps: list[Any]) -> None:
    """Some history: events on several chains, checkpoints and cuts, of which the last may not be sealed."""
    for step in [(ME, 3), (YOU, 2), "seal", (ME, ["b", "a"]), *steps]:
        world.clock.advance(hours=1)
        if step == "seal":
            world.audit.seal()
        elif step == "cut":
            world.audit.cut(world.clock() - timedelta(hours=3))
        elif isinstance(step[1], list):
            world.happen_together(*step)
        else:
            world.happen(*step)


def rewrite(tx: Transaction, table: str, row: dict[str, Any], changes: dict[str, object]) -> None:
    sets = ", ".join(f"{column} = ?" for column in changes)
    key = KEYS[table]
    raw.run(tx, f"UPDATE {table} SET {sets} WHERE {key} = ?", (*changes.values(), row[key]))  # noqa: S608


def alter(tx: Transaction, draw: Any, table: str, found: list[dict[str, Any]]) -> None:
    """Change one column of one row."""
    row = draw(st.sampled_from(found))
    column = draw(st.sampled_from(list(row)))
    old = row[column]
    new = {
        int: st.integers(-3, 20) | st.integers(-(2**63), 2**63 - 1),
        bytes: st.binary(max_size=33),
        str: TEXTS | (st.none() if column in ("item", "last_item") else st.nothing()),
        type(None): TEXTS,
    }[type(old)]
    rewrite(tx, table, row, {column: draw(new.filter(lambda value: value != old))})


def remove(tx: Transaction, draw: Any, table: str, found: list[dict[str, Any]]) -> None:
    """Delete one row."""
    key = KEYS[table]
    raw.run(tx, f"DELETE FROM {table} WHERE {key} = ?", (draw(st.sampled_from(found))[key],))  # noqa: S608


def swap(tx: Transaction, draw: Any, table: str, found: list[dict[str, Any]]) -> None:
    """Exchange what two rows say, but for their keys."""
    keys = {"no", "subject", "seq"} if table == "audit" else {KEYS[table]}
    assume(len(found) > 1)
    a, b = draw(st.permutations(found))[:2]
    rewrite(tx, table, a, {name: b[name] for name in b if name not in keys})
    rewrite(tx, table, b, {name: a[name] for name in a if name not in keys})


def add(tx: Transaction, draw: Any, table: str, found: list[dict[str, Any]]) -> None:
    """Add a row that looks like another."""
    row = dict(draw(st.sampled_from(found)))
    place = draw(st.integers(0, 50))
    row |= {"no": draw(st.integers(90, 99)), "seq": place} if table == "audit" else {KEYS[table]: place}
    columns, marks = ", ".join(row), ", ".join("?" * len(row))
    raw.run(tx, f"INSERT INTO {table} ({columns}) VALUES ({marks})", tuple(row.values()))  # noqa: S608


def shorten(tx: Transaction, draw: Any, table: str, found: list[dict[str, Any]]) -> None:
    """Take away the last entries of a chain, and make its head agree."""
    subject = draw(st.sampled_from([row["subject"] for row in found if "subject" in row] or [1]))
    kept = raw.rows(tx, "SELECT seq, hash FROM audit WHERE subject = ? ORDER BY seq", (subject,))
    assume(len(kept) > 1)
    seq, hashed = draw(st.sampled_from(kept[:-1]))
    raw.run(tx, "DELETE FROM audit WHERE subject = ? AND seq > ?", (subject, seq))
    raw.run(tx, "UPDATE chains SET seq = ?, hash = ? WHERE subject = ?", (seq, hashed, subject))


def behead(tx: Transaction, draw: Any, table: str, found: list[dict[str, Any]]) -> None:
    """Take away the first entries of a chain, and make it look as if they had been cut."""
    subject = draw(st.sampled_from([row["subject"] for row in found if "subject" in row] or [1]))
    kept = raw.rows(tx, "SELECT seq, hash FROM audit WHERE subject = ? ORDER BY seq", (subject,))
    assume(len(kept) > 1)
    seq, hashed = draw(st.sampled_from(kept[:-1]))
    raw.run(tx, "DELETE FROM audit WHERE subject = ? AND seq <= ?", (subject, seq))
    raw.run(tx, "UPDATE chains SET floor = ?, floor_hash = ? WHERE subject = ?", (seq, hashed, subject))


def vanish(tx: Transaction, draw: Any, table: str, found: list[dict[str, Any]]) -> None:
    """Take away a whole chain, with or without what was sealed of it."""
    subject = draw(st.sampled_from([row["subject"] for row in found if "subject" in row] or [1]))
    for place in ("audit", "chains", *(["sealed"] if draw(st.booleans()) else [])):
        raw.run(tx, f"DELETE FROM {place} WHERE subject = ?", (subject,))  # noqa: S608


def unseal(tx: Transaction, draw: Any, table: str, found: list[dict[str, Any]]) -> None:
    """Take away the last checkpoint, or all that were ever made."""
    assume(raw.rows(tx, "SELECT 1 FROM audit_checkpoints LIMIT 1"))
    if draw(st.booleans()):
        raw.run(tx, "DELETE FROM audit_checkpoints WHERE no = (SELECT max(no) FROM audit_checkpoints)")
    else:
        raw.run(tx, "DELETE FROM audit_checkpoints")
        raw.run(tx, "DELETE FROM sealed")
        if isinstance(tx, SqliteTransaction):
            raw.run(tx, "DELETE FROM sqlite_sequence WHERE name = 'audit_checkpoints'")


TAMPERINGS = [alter, alter, remove, swap, add, shorten, behead, vanish, unseal]


@soak
def test_a_chain_is_whole_until_it_is_tampered_with_and_then_never(engine_name: str) -> None:
    @settings(max_examples=times(30, engine_name))
    @given(STEPS, st.sampled_from(list(KEYS)), st.sampled_from(TAMPERINGS), st.data())
    def check(steps: list[Any], table: str, tampering: Any, data: st.DataObject) -> None:
        with tempfile.TemporaryDirectory() as folder, Homes(engine_name, Path(folder)) as homes:
            home = homes.new()
            with opened(home, home) as world:
                live(world, steps)
                if engine_name == "postgres" and tampering in (shorten, behead, vanish):
                    world.audit.seal()  # only SQLite counts what was ever written; elsewhere an end is known once sealed
                assert world.audit.verify().findings == ()
                with world.database.read() as tx:
                    names = raw.columns(tx, table)
                    stored = raw.rows(tx, f"SELECT {', '.join(names)} FROM {table} ORDER BY 1")  # noqa: S608
                found = [dict(zip(names, row, strict=True)) for row in stored]
                try:
                    with world.database.write() as tx:
                        tampering(tx, data.draw, table, found)
                except StorageError:
                    assume(False)  # a constraint of the database was in the way

                assert not world.audit.verify()

    check()
