"""The embedded engine with many processes, many threads and forks on one file."""

from __future__ import annotations

import threading
from pathlib import Path

import apsw
import pytest

import raw
from conformance.samples import NOW, there
from holdfast import Holdfast
from holdfast.core.errors import StoreBusyError
from holdfast.core.records import TYPES, MemoryType, Subject
from holdfast.storage.relational.records import SqlRecords
from holdfast.storage.sqlite.database import SqliteDatabase
from storage.children import answers, children
from storage.conftest import ME, Put

LONG_TERM = TYPES[MemoryType.LONG_TERM]


def work_together(home: Path, processes: int, threads: int, each: int) -> list[dict[str, object]]:
    """Let several processes add at once; what each of them says."""
    with children(processes, "add_many", home, threads, each) as workers:
        assert [worker.hear() for worker in workers] == ["ready"] * processes
        for worker in workers:
            worker.tell("go")
        said = [worker.hear() for worker in workers]
        for worker in workers:
            assert worker.rest() == []
            assert worker.process.returncode == 0, "no one gave up because the store was busy"
        return said


def test_no_write_is_lost_when_processes_and_threads_add_at_once(tmp_path: Path) -> None:
    said = work_together(tmp_path, processes=3, threads=4, each=10)

    ids = [memory_id for answer in said for memory_id in answer["ids"]]  # type: ignore[attr-defined]
    assert len(set(ids)) == len(ids) == 120
    with Holdfast.open(home=tmp_path) as holdfast:
        memory = holdfast.manager("user_123", "agent")
        assert memory.count_memories("long_term") == 120
        assert all(memory.get(memory_id) for memory_id in ids)
        assert raw.sqlite(holdfast).check() == []


def test_the_quota_is_exact_when_several_processes_reach_it_at_once(tmp_path: Path) -> None:
    with Holdfast.open(home=tmp_path) as holdfast:
        holdfast.quotas.set("long_term", max_memories=50, user_id="user_123")

    said = work_together(tmp_path, processes=3, threads=2, each=12)

    added = sum(len(answer["ids"]) for answer in said)  # type: ignore[arg-type, misc]
    refused = sum(answer["refused"] for answer in said)  # type: ignore[misc]
    assert (added, refused) == (50, 3 * 2 * 12 - 50)
    with Holdfast.open(home=tmp_path) as holdfast:
        assert holdfast.manager("user_123", "agent").count_memories("long_term") == 50


def test_a_new_file_can_be_opened_by_many_processes_at_once(tmp_path: Path) -> None:
    with children(5, "open_new") as openers:
        for round_ in range(5):
            path = tmp_path / f"new {round_}" / "holdfast.db"
            assert [opener.hear() for opener in openers] == ["ready"] * 5
            for opener in openers:
                opener.tell(path)
            assert [opener.hear() for opener in openers] == ["written"] * 5

            database = SqliteDatabase(path)
            assert SqlRecords(database).usage(Subject("t", "u"), LONG_TERM).memories == 5
            assert database.check() == []
            database.close()


def test_a_file_that_becomes_a_store_while_it_is_looked_at_is_not_taken_for_someone_elses(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.parent.mkdir()
    empty = apsw.Connection(str(path))
    empty.pragma("journal_mode", "wal")
    met: list[bool] = []
    faster: list[SqliteDatabase] = []

    def look(_cursor: apsw.Cursor, statement: str, _bindings: object) -> bool:
        if "sqlite_schema" in statement and not met:
            met.append(True)
            faster.append(SqliteDatabase(path))  # in the midst of the other's look, all is made and committed
        return True

    def hook(connection: apsw.Connection) -> None:
        connection.exec_trace = look

    monkeypatch.setattr(apsw, "connection_hooks", [hook])

    slower = SqliteDatabase(path)

    assert len(faster) == 1
    for opened in (slower, *faster):
        assert opened.check() == []
        opened.close()
    empty.close()


def test_threads_read_what_others_write(database: SqliteDatabase, put: Put) -> None:
    records = SqlRecords(database)
    first = put(database)
    failures: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            seen = 0
            while not done.is_set():
                now = records.usage(ME.subject, LONG_TERM).memories
                assert now >= seen, "what was there once is there"
                seen = now
                assert records.fetch(ME.subject, [first.id], now=NOW) == {first.id: first}
        except BaseException as problem:  # noqa: BLE001 - carried to the test
            failures.append(problem)

    def write() -> None:
        try:
            for n in range(40):
                put(database, f"memory {n}")
        except BaseException as problem:  # noqa: BLE001 - carried to the test
            failures.append(problem)

    readers = [threading.Thread(target=read) for _ in range(4)]
    writers = [threading.Thread(target=write) for _ in range(3)]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()

    assert failures == []
    assert records.usage(ME.subject, LONG_TERM).memories == 121


def test_a_reader_sees_one_moment_of_the_store(database: SqliteDatabase, put: Put) -> None:
    put(database)
    count = "SELECT count(*) FROM records"
    with database.read() as tx:
        before = tx.connection.execute(count).fetchall()
        put(database, "written meanwhile")
        assert tx.connection.execute(count).fetchall() == before == [(1,)]
    with database.read() as tx:
        assert tx.connection.execute(count).fetchall() == [(2,)]


def test_a_writer_that_waited_too_long_says_so_and_can_try_again(path: Path, put: Put) -> None:
    patient, hasty = SqliteDatabase(path), SqliteDatabase(path, busy_seconds=0.05)
    try:
        with (
            patient.write(),
            pytest.raises(StoreBusyError, match=r"was kept busy by other writers .*; try again") as busy,
        ):
            put(hasty)
        assert str(path) in str(busy.value)
        assert busy.value.retryable

        record = put(hasty, "now it is my turn")
        assert there(SqlRecords(patient), ME, record.id) == record
    finally:
        patient.close()
        hasty.close()


def test_a_forked_child_is_told_to_open_its_own_and_the_parent_goes_on(tmp_path: Path) -> None:
    said = answers("fork", tmp_path)

    add, retrieve, count, close, count_again, ended, parent = said
    for answer in (add, retrieve, count, count_again):
        assert answer["code"] == "closed"
    assert "opened by process" in add["message"]
    assert "open Holdfast in each process" in add["message"]
    assert close == "done"
    assert ended == {"child": 0}
    assert parent == [2, []], "both writes of the parent are there, and the file is sound"
