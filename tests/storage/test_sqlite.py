"""The embedded engine keeps what it said it kept, forgets what was deleted, and migrates all or nothing."""

from __future__ import annotations

import hashlib
import os
import random
import signal
from contextlib import ExitStack
from pathlib import Path

import apsw
import pytest

import raw
from conformance.samples import NOW, changed, message, move, new_id, there
from effort import soak, times
from holdfast import Holdfast
from holdfast.core.errors import ClosedError, StorageError
from holdfast.core.records import TYPES, MemoryType, Record, State
from holdfast.core.values import SECOND, pack
from holdfast.storage.relational.database import Migration, migrations
from holdfast.storage.relational.history import SqlHistory
from holdfast.storage.relational.records import SqlRecords
from holdfast.storage.relational.sessions import SqlShortTerm
from holdfast.storage.sqlite import database as database_module
from holdfast.storage.sqlite.database import APPLICATION_ID, SqliteDatabase
from storage.child import put as put_plainly
from storage.children import children
from storage.conftest import ME, Put
from storage.power import disk, survivors
from storage.schema import ADVICE, LISTING, listing, new_store

PACKAGE = "holdfast.storage.sqlite"
LONG_TERM = TYPES[MemoryType.LONG_TERM]


# --- what was added is there -------------------------------------------------------------------------------------


@soak
def test_every_memory_that_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    home = tmp_path / "home"
    acknowledged: list[str] = []
    chance = random.Random()

    rounds = times(4)
    for _ in range(rounds):
        with children(1, "add_forever", home) as (child,):
            acknowledged += [child.hear() for _ in range(chance.randint(1, 25))]
            child.process.kill()
            acknowledged += child.rest()
            assert child.process.returncode == -signal.SIGKILL

        ids, integrity = survivors(home / "holdfast.db")
        assert set(acknowledged) <= set(ids)
        assert len(ids) <= len(acknowledged) + rounds, "at most the one that each round was killed in comes on top"
        assert integrity == "ok"

    with Holdfast.open(home=home) as holdfast:
        memory = holdfast.manager("user_123", "agent")
        assert all(memory.get(memory_id)["content"] for memory_id in acknowledged)
        assert memory.count_memories("long_term") == len(ids), "and the count is that of what is there"
        assert raw.sqlite(holdfast).check() == []


def test_a_commit_is_synced_before_it_returns(path: Path, put: Put) -> None:
    with disk() as recorded:
        database = SqliteDatabase(path)
        log = path.with_name("holdfast.db-wal")
        try:
            for n in range(20):
                before = recorded.file(log).syncs if str(log) in recorded.files else 0
                put(database, f"memory {n}")
                assert recorded.file(log).syncs > before
                assert recorded.unsynced() == [], "nothing that was written waits for the system to write it"
        finally:
            database.close()


@pytest.mark.parametrize("seed", range(3))
def test_what_add_returned_survives_a_loss_of_power(tmp_path: Path, path: Path, put: Put, seed: int) -> None:
    chance = random.Random(seed)
    with disk() as recorded:
        database = SqliteDatabase(path)
        try:
            with database.write() as tx:
                tx.connection.wal_autocheckpoint(chance.randint(5, 20))  # power is lost around checkpoints too
            added = []
            for n in range(25):
                added.append(put(database, f"memory {n} " + "x" * chance.randint(0, 9_000)).id)
                where = tmp_path / f"after {n}"
                recorded.lose_power(where, chance if n % 2 else None)
                assert survivors(where / "holdfast.db") == (added, "ok")
        finally:
            database.close()

    again = SqliteDatabase(tmp_path / "after 24" / "holdfast.db")
    try:
        assert SqlRecords(again).usage(ME.subject, LONG_TERM).memories == 25
        put(again, "life goes on")
    finally:
        again.close()


@pytest.mark.parametrize("seed", range(3))
def test_power_lost_in_the_midst_of_a_write_leaves_all_of_it_or_nothing(
    tmp_path: Path, path: Path, put: Put, seed: int
) -> None:
    chance = random.Random(seed)
    with disk() as recorded:
        database = SqliteDatabase(path)
        try:
            kept = [put(database, f"memory {n}").id for n in range(5)]
            with database.write() as tx:
                tx.connection.execute("PRAGMA cache_size=5")
            with database.write() as tx:
                tx.connection.execute("UPDATE records SET content = content || ?", ("y" * 200_000,))
                recorded.lose_power(tmp_path / "after", chance)
        finally:
            database.close()

    assert survivors(tmp_path / "after" / "holdfast.db") == (kept, "ok")
    again = SqliteDatabase(tmp_path / "after" / "holdfast.db")
    try:
        contents = [record.content for record in SqlRecords(again).fetch(ME.subject, kept, now=NOW).values()]
        assert contents == [f"memory {n}" for n in range(5)]
    finally:
        again.close()


def test_the_settings_that_durability_and_deletion_rest_on_are_in_force_on_every_connection(
    database: SqliteDatabase, path: Path
) -> None:
    database.close()
    for opened in (SqliteDatabase(path), SqliteDatabase(path)):  # as it was made, and as it is found
        with ExitStack() as stack:
            stack.callback(opened.close)
            connections = [stack.enter_context(opened.read()).connection for _ in range(12)]
            connections.append(stack.enter_context(opened.write()).connection)
            assert len(set(map(id, connections))) == 13
            for connection in connections:
                assert connection.pragma("journal_mode") == "wal"
                assert connection.pragma("synchronous") == 2
                assert connection.pragma("secure_delete") == 1
                assert connection.pragma("foreign_keys") == 1
                assert connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1), "plans are made once"


def test_a_write_that_raises_leaves_nothing_behind(database: SqliteDatabase, put: Put) -> None:
    record = put(database)

    def delete_and_fail() -> None:
        with database.write() as tx:
            tx.connection.execute("DELETE FROM records")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        delete_and_fail()

    assert there(SqlRecords(database), ME, record.id) == record
    put(database, "and the next write is well")


def test_a_store_that_was_closed_says_so(database: SqliteDatabase, put: Put) -> None:
    record = put(database)
    database.close()
    database.close()

    assert not database.usable
    for use in (lambda: put(database), lambda: SqlRecords(database).get(ME.subject, record.id), database.check):
        with pytest.raises(ClosedError, match=r"was closed; open it again with Holdfast\.open\(\)"):
            use()


def test_a_store_that_was_closed_is_one_file(database: SqliteDatabase, path: Path, put: Put) -> None:
    put(database)
    database.close()

    assert [file.name for file in path.parent.iterdir()] == ["holdfast.db"]


# --- what was deleted is not ------------------------------------------------------------------------------------


def remains(database: SqliteDatabase) -> bytes:
    """All that the files hold once the log is emptied into the store."""
    with database.write() as tx:
        pass
    tx.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert [file.stat().st_size for file in database.path.parent.glob("*-wal")] == [0]
    return b"".join(file.read_bytes() for file in database.path.parent.iterdir())


@pytest.fixture
def secret() -> str:
    """A text that is nowhere else and gets no shorter by compression."""
    return "".join(
        random.Random(os.urandom(8)).choices(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!?#%&()=+*,.;:-_<>|^~$", k=900
        )
    )


def traces(files: bytes, *texts: str) -> list[str]:
    """Which of the texts, or of their parts, the files still hold."""
    found = []
    for text in texts:
        stored = pack(text)
        raw = stored.encode() if isinstance(stored, str) else stored
        found += [text[:20] for start in range(0, max(1, len(raw) - 24), 64) if raw[start : start + 24] in files]
    return found


@pytest.mark.parametrize("times", [1, 40], ids=["short", "long"])
def test_deleted_text_is_not_left_in_the_files(database: SqliteDatabase, put: Put, secret: str, times: int) -> None:
    chance = random.Random(5)
    content = secret * times if times == 1 else "".join(chance.choices(secret, k=60_000))
    put(database, "a neighbour")
    gone = put(database, content, metadata={"m": secret[:300]}, name=secret[300:500], session_id=secret[500:700])
    put(database, "another neighbour")
    texts = (content, secret[:300], secret[300:500], secret[500:700])
    assert len(set(traces(remains(database), *texts))) == len({text[:20] for text in texts}), "the search can find it"

    with database.write() as tx:
        tx.connection.execute("DELETE FROM records WHERE id = ?", (gone.id,))

    assert traces(remains(database), *texts, gone.id) == []


def test_text_of_a_version_that_is_kept_no_longer_is_not_left_in_the_files(
    database: SqliteDatabase, put: Put, secret: str
) -> None:
    records = SqlRecords(database)
    record = put(database, secret)
    for number in range(10):
        assert records.replace(changed(there(records, ME, record.id), content=f"something else, {number}"))
    assert traces(remains(database), secret) != [], "ten versions that have ended are kept"

    for number in range(5):  # those too many are deleted at every fifth correction; nobody can read them before
        assert records.replace(changed(there(records, ME, record.id), content=f"one more, {number}"))

    assert traces(remains(database), secret) == []


def test_short_term_messages_that_expired_or_were_removed_are_not_left_in_the_files(
    database: SqliteDatabase, secret: str
) -> None:
    store = SqlShortTerm(database)
    expiring, removed = message(secret[:400]), message(secret[400:])
    store.append(ME.scope("agent", "one"), [expiring], ttl=SECOND, now=NOW, most=9)
    store.append(ME.scope("agent", "two"), [removed, message("stays")], ttl=99 * SECOND, now=NOW, most=9)
    assert traces(remains(database), expiring.content, removed.content) != []

    store.remove(ME.scope("agent", "two"), [removed.id])
    store.append(ME.scope("agent", "two"), [message("later")], ttl=99 * SECOND, now=NOW + SECOND, most=9)

    assert traces(remains(database), expiring.content, removed.content, expiring.id) == []
    assert [turn.content for turn in store.window(ME.scope("agent", "two"), now=NOW + SECOND)] == ["stays", "later"]


# --- the list of changes ------------------------------------------------------------------------------------------


def test_the_list_of_changes_stays_short_whatever_the_rhythm_of_writes(database: SqliteDatabase, put: Put) -> None:
    records = SqlRecords(database)
    record = put(database)
    put(database, "one more, so that they alternate as said")
    for n in range(700):  # each change falls on an odd transaction, each insert on an even one
        there_now = there(records, ME, record.id)
        assert records.replace(changed(there_now, content=f"version {n}"))
        put(database, f"memory {n}")

    with database.read() as tx:
        listed = tx.connection.execute("SELECT value FROM changes, json_each(ids)").fetchall()
    assert 0 < len(listed) <= 512


# --- migrations --------------------------------------------------------------------------------------------------


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def filled(path: Path, put: Put) -> Record:
    """A store that has one record, closed."""
    database = SqliteDatabase(path)
    record = put(database)
    SqlHistory(database).append(ME.scope(), [message("hello")], now=NOW, summarize=lambda summary, new: summary)
    database.close()
    return record


def test_a_new_store_has_the_schema_that_was_agreed_on(tmp_path: Path) -> None:
    assert new_store(tmp_path) == LISTING.read_text(encoding="utf-8"), ADVICE


def test_opening_a_store_again_changes_nothing(path: Path, filled: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest(path)
    ran: list[str] = []
    steps = migrations(PACKAGE)
    monkeypatch.setattr(
        database_module, "migrations", lambda package: [Migration(n, _Noted(sql, ran)) for n, sql in steps]
    )

    for _ in range(3):
        SqliteDatabase(path).close()

    assert ran == []
    assert digest(path) == before


class _Noted(str):
    """A script that tells when it is run; SQLite asks for its bytes."""

    __slots__ = ("_ran",)
    _ran: list[str]

    def __new__(cls, sql: str, ran: list[str]) -> _Noted:
        noted = super().__new__(cls, sql)
        noted._ran = ran
        return noted

    def encode(self, *arguments: str) -> bytes:
        self._ran.append(str(self))
        return super().encode(*arguments)


@pytest.fixture
def next_steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Migrations that come after those that there are."""
    steps: list[str] = []
    real = migrations(PACKAGE)
    monkeypatch.setattr(
        database_module,
        "migrations",
        lambda package: [*real, *(Migration(len(real) + n, script) for n, script in enumerate(steps, 1))],
    )
    return steps


def test_migrating_equals_creating(path: Path, filled: Record, tmp_path: Path, next_steps: list[str]) -> None:
    next_steps += ["CREATE TABLE tools (id TEXT PRIMARY KEY) STRICT", "ALTER TABLE tools ADD COLUMN name TEXT"]

    database = SqliteDatabase(path)
    with database.read() as tx:
        migrated = listing(tx.connection)
    database.close()

    assert "CREATE TABLE tools" in migrated
    assert migrated == new_store(tmp_path / "new")


def test_a_migration_keeps_what_is_there(path: Path, filled: Record, next_steps: list[str]) -> None:
    next_steps += ["CREATE TABLE tools (id TEXT PRIMARY KEY) STRICT", "ALTER TABLE tools ADD COLUMN name TEXT"]

    database = SqliteDatabase(path)

    assert there(SqlRecords(database), ME, filled.id) == filled
    with database.read() as tx:
        assert tx.connection.pragma("user_version") == len(migrations(PACKAGE)) + 2
        assert tx.connection.pragma("application_id") == APPLICATION_ID
        assert tx.connection.execute("SELECT id, name FROM tools").fetchall() == []
    database.close()


def test_a_migration_that_fails_leaves_the_store_as_it_was(path: Path, filled: Record, next_steps: list[str]) -> None:
    before = digest(path)
    next_steps += ["CREATE TABLE tools (id TEXT)", "DELETE FROM records; UPDATE records SET no_such_column = 1"]

    with pytest.raises(StorageError, match=f"{path} lacks .*no_such_column"):
        SqliteDatabase(path)

    assert digest(path) == before
    next_steps.clear()
    database = SqliteDatabase(path)
    assert there(SqlRecords(database), ME, filled.id) == filled
    with database.read() as tx:
        assert listing(tx.connection) == LISTING.read_text(encoding="utf-8")
    database.close()


def test_a_new_store_whose_migration_failed_can_be_opened_later(path: Path, next_steps: list[str], put: Put) -> None:
    next_steps += ["CREATE TABLE broken ("]
    with pytest.raises(StorageError):
        SqliteDatabase(path)

    next_steps.clear()
    database = SqliteDatabase(path)
    put(database)
    with database.read() as tx:
        assert listing(tx.connection) == LISTING.read_text(encoding="utf-8")
    database.close()


def test_a_record_that_was_recycled_by_one_process_is_so_for_the_next(path: Path, put: Put) -> None:
    database = SqliteDatabase(path)
    record = put(database)
    SqlRecords(database).transition(ME.subject, [move(record, State.RECYCLED)], now=NOW)
    put_plainly(database, new_id())
    database.close()

    again = SqliteDatabase(path)
    assert there(SqlRecords(again), ME, record.id).state is State.RECYCLED
    assert SqlRecords(again).usage(ME.subject, LONG_TERM).memories == 1
    again.close()


def test_the_file_says_whose_it_is(path: Path, filled: Record) -> None:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    assert int(connection.pragma("application_id")).to_bytes(4, "big") == b"Hold"
    connection.close()
