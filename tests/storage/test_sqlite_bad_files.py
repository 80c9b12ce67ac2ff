"""Files that are not stores, damaged stores, places where nothing can be written, full disks."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from conformance.samples import MODEL, there
from holdfast.core.errors import NotAStoreError, StorageError, StoreFullError, StoreTooNewError, StoreUnavailableError
from holdfast.core.records import TYPES, MemoryType
from holdfast.storage.relational.feed import SqlFeed
from holdfast.storage.relational.records import SqlRecords
from holdfast.storage.sqlite.database import SqliteDatabase
from storage.children import answers
from storage.conftest import ME, Put

LONG_TERM = TYPES[MemoryType.LONG_TERM]
ADVICE = "HOLDFAST_URL or HOLDFAST_HOME"


def digests(folder: Path) -> dict[str, str]:
    """What a folder holds; SQLite's own shared memory aside."""
    files = [file for file in folder.iterdir() if not file.name.endswith("-shm")]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture
def store(path: Path, put: Put) -> Path:
    """A store of ours with a few hundred records, closed."""
    database = SqliteDatabase(path)
    for _ in range(40):
        put(database, "User enjoys skiing and mountain views " * 20)
    database.close()
    return path


# --- files of other people ---------------------------------------------------------------------------------------


def text_file(path: Path) -> None:
    path.write_text("Dear diary, today I went skiing. " * 100, encoding="utf-8")


def short_file(path: Path) -> None:
    path.write_text("hello", encoding="utf-8")


def random_bytes(path: Path) -> None:
    path.write_bytes(os.urandom(20_000))


def picture(path: Path) -> None:
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(8_192))


def someone_elses_database(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE contacts (name TEXT); INSERT INTO contacts VALUES ('Ann'); PRAGMA user_version=3")
    connection.close()


def someone_elses_database_with_a_log(path: Path) -> None:
    """As its owner left it when it was killed: part of it is in the log."""
    connection = apsw.Connection(str(path.with_name("elsewhere")))
    connection.pragma("journal_mode", "wal")
    connection.execute("CREATE TABLE contacts (name TEXT); INSERT INTO contacts VALUES ('Ann')")
    for suffix in ("", "-wal"):
        shutil.copyfile(path.with_name(f"elsewhere{suffix}"), path.with_name(path.name + suffix))
    connection.close()
    path.with_name("elsewhere").unlink()


@pytest.mark.parametrize(
    "make", [text_file, short_file, random_bytes, picture, someone_elses_database, someone_elses_database_with_a_log]
)
def test_a_file_that_is_not_ours_is_refused_and_left_as_it_is(path: Path, make: Callable[[Path], None]) -> None:
    path.parent.mkdir()
    make(path)
    before = digests(path.parent)

    for _ in range(2):
        with pytest.raises(NotAStoreError, match=ADVICE) as refusal:
            SqliteDatabase(path)
        assert str(path) in str(refusal.value)

    assert digests(path.parent) == before


def test_an_empty_file_becomes_a_store(path: Path, put: Put) -> None:
    path.parent.mkdir()
    path.touch()

    database = SqliteDatabase(path)
    put(database)
    database.close()


# --- stores of ours that cannot be used --------------------------------------------------------------------------


def test_a_store_of_a_newer_version_is_refused_and_left_as_it_is(store: Path) -> None:
    connection = apsw.Connection(str(store))
    connection.pragma("user_version", 999)
    connection.close()
    before = digests(store.parent)

    with pytest.raises(StoreTooNewError, match=r"has schema version 999, .*; upgrade with: ") as refusal:
        SqliteDatabase(store)

    assert str(store) in str(refusal.value)
    assert digests(store.parent) == before


def test_a_store_that_lacks_what_this_version_keeps_says_so_and_what_to_do(store: Path) -> None:
    connection = apsw.Connection(str(store))
    connection.execute("ALTER TABLE records RENAME COLUMN text_hash TO hashed")
    connection.close()

    with pytest.raises(StorageError, match=f"lacks what this version.*no such column.*{ADVICE}"):
        read_everything(store)


def read_everything(path: Path) -> int:
    database = SqliteDatabase(path)
    try:
        (rows,) = SqlFeed(database).changes(ME.scope(), LONG_TERM, None, model=MODEL, read=list).pages
        found = SqlRecords(database).fetch(ME.subject, [row.id for row in rows], now=0)
        return len(found) - len(database.check())
    finally:
        database.close()


def cut(size: float) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        os.truncate(path, int(size if size > 1 else path.stat().st_size * size))

    return damage


def overwrite(start: int, length: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(start)
            file.write(b"\xff" * min(length, path.stat().st_size - start))

    return damage


@pytest.mark.parametrize(
    "damage",
    [cut(0.5), cut(0.9), cut(5_000), cut(100), overwrite(0, 16), overwrite(100, 3_996), overwrite(8_192, 10**9)],
    ids=["half", "end", "two pages", "header", "magic", "first page", "the rest"],
)
def test_a_damaged_store_says_so(store: Path, damage: Callable[[Path], None]) -> None:
    assert read_everything(store) == 40
    damage(store)

    with pytest.raises(NotAStoreError, match=r"is damaged .* restore a backup") as refusal:
        read_everything(store)

    assert str(store) in str(refusal.value)


def test_damage_that_no_read_has_met_yet_is_found_by_the_check(store: Path) -> None:
    database = SqliteDatabase(store)
    assert database.check() == []
    with database.write() as tx:
        tx.connection.execute("PRAGMA writable_schema=ON")
        tx.connection.execute("UPDATE sqlite_schema SET rootpage = 1 WHERE name = 'facts_by_source'")
    database.close()

    again = SqliteDatabase(store)
    try:
        assert again.check() != []
    except NotAStoreError as problem:
        assert "restore a backup" in str(problem)  # noqa: PT017 - either way of saying it will do
    finally:
        again.close()


# --- places ------------------------------------------------------------------------------------------------------


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match=f"cannot open {tmp_path}"):
        SqliteDatabase(tmp_path)


def test_a_place_below_a_file_is_refused_and_the_file_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("hello", encoding="utf-8")

    for place in (file / "holdfast.db", file / "deeper" / "still" / "holdfast.db"):
        with pytest.raises(StoreUnavailableError, match=f"cannot create the folder of {place}: .*{ADVICE}"):
            SqliteDatabase(place)

    assert file.read_text(encoding="utf-8") == "hello"


def test_a_place_where_no_file_can_be_made_is_refused() -> None:
    with pytest.raises(StoreUnavailableError, match=r"folder of /proc/holdfast\.db"):
        SqliteDatabase(Path("/proc/holdfast.db"))
    with pytest.raises(StoreUnavailableError, match=ADVICE):
        SqliteDatabase(Path("/proc/no/such/holdfast.db"))


def test_a_store_whose_file_went_away_says_so(database: SqliteDatabase, put: Put) -> None:
    put(database)
    shutil.rmtree(database.path.parent)

    with pytest.raises(StoreUnavailableError, match=f"cannot open {database.path}"), database.read():
        pass


# --- permissions -------------------------------------------------------------------------------------------------


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user of the machine can reach."""
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as folder:
        Path(folder).chmod(0o755)
        place = Path(folder) / "store"
        place.mkdir()
        yield place
        place.chmod(0o755)


@pytest.mark.parametrize(
    ("folder_mode", "file_mode"),
    [(0o555, 0o444), (0o555, 0o666), (0o777, 0o444)],
    ids=["nothing can be written", "only the file can be written", "only the folder can be written"],
)
def test_a_store_that_may_not_be_written_says_so(shared: Path, put: Put, folder_mode: int, file_mode: int) -> None:
    path = shared / "holdfast.db"
    database = SqliteDatabase(path)
    record = put(database)
    database.close()
    path.chmod(file_mode)
    shared.chmod(folder_mode)
    before = digests(shared)

    (answer,) = answers("write_as_nobody", path)

    assert answer["code"] == "store_read_only"
    assert str(path) in answer["message"]
    assert "check the permissions" in answer["message"]
    assert digests(shared)[path.name] == before[path.name]
    shared.chmod(0o755)
    again = SqliteDatabase(path)
    assert there(SqlRecords(again), ME, record.id) == record
    again.close()


def test_a_store_in_a_folder_that_may_not_be_written_cannot_be_made(shared: Path) -> None:
    shared.chmod(0o555)

    answered = [answers("write_as_nobody", shared / place) for place in ("holdfast.db", "deeper/holdfast.db")]

    for (answer,) in answered:
        assert answer["code"] == "store_unavailable"
        assert str(shared) in answer["message"]


# --- full disks --------------------------------------------------------------------------------------------------


def test_a_full_disk_is_said_and_once_there_is_room_all_goes_on(database: SqliteDatabase, put: Put) -> None:
    kept = put(database)
    with database.write() as tx:
        tx.connection.pragma("max_page_count", int(tx.connection.pragma("page_count")) + 20)
    written = 1

    def fill() -> None:
        nonlocal written
        for _ in range(1_000):
            put(database, os.urandom(1_500).hex())
            written += 1

    with pytest.raises(StoreFullError, match="the disk is full; free some space and try again") as full:
        fill()
    assert str(database.path) in str(full.value)
    assert full.value.retryable
    records = SqlRecords(database)
    assert there(records, ME, kept.id) == kept
    assert records.usage(ME.subject, LONG_TERM).memories == written > 1, "the one that did not fit left no trace"
    assert database.check() == []

    with database.write() as tx:
        tx.connection.pragma("max_page_count", 1_000_000)
    put(database, os.urandom(1_500).hex())
    assert records.usage(ME.subject, LONG_TERM).memories == written + 1


def test_a_limit_on_the_size_of_files_is_a_full_disk_too(path: Path) -> None:
    full, afterwards = answers("write_small_files", path, 700_000)

    assert full["code"] == "store_full"
    assert str(path) in full["message"]
    assert afterwards["problems"] == []
    assert afterwards["held"] > 10


@pytest.mark.parametrize("limit", [0, 100, 5_000, 20_000, 60_000, 120_000, 240_000])
def test_a_store_that_cannot_be_made_for_want_of_room_can_be_made_later(path: Path, limit: int) -> None:
    full, afterwards = answers("write_small_files", path, limit)

    assert full["code"] == "store_full"
    assert str(path) in full["message"]
    assert afterwards["problems"] == []
    assert afterwards["held"] >= 1
