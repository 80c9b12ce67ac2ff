"""What other processes do in the tests of the embedded engine: ``python child.py VERB ARGUMENT…``, answers as lines."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast import Holdfast, QuotaExceededError
from holdfast.core.errors import HoldfastError
from holdfast.core.records import TYPES, Encoding, Entry, MemoryType, Record, Scope, Subject
from holdfast.storage.relational.records import SqlRecords
from holdfast.storage.sqlite.database import SqliteDatabase

LONG_TERM = TYPES[MemoryType.LONG_TERM]
NOBODY = 65_534


def say(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def wait_for_go() -> str:
    """Say that all is ready, and wait until the test says a word."""
    say("ready")
    return sys.stdin.readline().strip()


def put(database: SqliteDatabase, record_id: str, content: str = "a memory") -> None:
    """One long-term record, without what embeds it."""
    record = Record(record_id, MemoryType.LONG_TERM, Scope("t", "u", "a"), content, 1, 1, 1)
    entry = Entry(record, Encoding(None, None, b""))
    SqlRecords(database).insert(Subject("t", "u"), LONG_TERM, [entry], prune=False, now=1)


def file_of(holdfast: Holdfast) -> SqliteDatabase:
    """An engine's database, which is a file here."""
    assert isinstance(holdfast.database, SqliteDatabase)
    return holdfast.database


def add_forever(home: str) -> None:
    """Add memories and print each id, until killed."""
    with Holdfast.open(home=home) as holdfast:
        memory = holdfast.manager("user_123", "agent")
        with file_of(holdfast).write() as tx:
            tx.connection.wal_autocheckpoint(8)  # so that some kills hit the moving of pages from the log to the file
        while True:
            say(memory.add("a memory that must not be lost", "long_term")["memory_id"])


def add_many(home: str, threads: str, each: str) -> None:
    """Add memories from several threads at once; the ids, and how many were refused."""
    with Holdfast.open(home=home) as holdfast:
        memory = holdfast.manager("user_123", f"agent_{os.getpid()}")
        ids: list[str] = []
        refused: list[str] = []

        def work() -> None:
            for n in range(int(each)):
                try:
                    ids.append(memory.add(f"memory {n}", "long_term")["memory_id"])
                except QuotaExceededError as refusal:
                    refused.append(str(refusal))

        workers = [threading.Thread(target=work) for _ in range(int(threads))]
        wait_for_go()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        say({"ids": ids, "refused": len(refused)})


def open_new() -> None:
    """Open each file that is named, write to it, close it."""
    while path := wait_for_go():
        database = SqliteDatabase(Path(path))
        put(database, f"by {os.getpid()}")
        database.close()
        say("written")


def write_as_nobody(path: str) -> None:
    """Write as a user whom the file's permissions bind."""
    if os.geteuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    attempt(lambda: put(SqliteDatabase(Path(path)), "by nobody"))


def write_small_files(path: str, limit: str) -> None:
    """Write until files may not grow any more; then, with the limit gone, once more."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), hard))
    opened: list[SqliteDatabase] = []

    def fill() -> None:
        opened.append(SqliteDatabase(Path(path)))
        for n in range(10_000):
            put(opened[0], f"before {n}", os.urandom(400).hex())

    attempt(fill)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    database = opened[0] if opened else SqliteDatabase(Path(path))
    put(database, "afterwards")
    say({"problems": database.check(), "held": SqlRecords(database).usage(Subject("t", "u"), LONG_TERM).memories})
    database.close()


def fork(home: str) -> None:
    """Use the parent's engine in a forked child, while the parent writes; then go on in the parent."""
    signal.alarm(60)  # a child that hangs is killed, and the test fails
    with Holdfast.open(home=home) as holdfast:
        memory = holdfast.manager("user_123", "agent")
        memory.add("before the fork", "long_term")
        with holdfast.database.write():  # the lock is held in the moment of the fork
            child = os.fork()
            if child == 0:
                signal.alarm(30)
                for use in (
                    lambda: memory.add("in the child", "long_term"),
                    lambda: memory.retrieve("fork"),
                    lambda: memory.count_memories("long_term"),
                    holdfast.close,
                    lambda: memory.count_memories("long_term"),
                ):
                    attempt(use)
                sys.exit(0)  # with all that an interpreter does at its end
            _, status = os.waitpid(child, 0)
        say({"child": os.waitstatus_to_exitcode(status)})
        memory.add("after the fork", "long_term")
        say([memory.count_memories("long_term"), file_of(holdfast).check()])


def attempt(use: Callable[[], object]) -> None:
    """Say how it ended: the code and the words of the error, if it was one of ours."""
    try:
        use()
    except HoldfastError as problem:
        say({"code": problem.code, "message": str(problem)})
    else:
        say("done")


VERBS = {verb.__name__: verb for verb in (add_forever, add_many, open_new, write_as_nobody, write_small_files, fork)}

if __name__ == "__main__":
    VERBS[sys.argv[1]](*sys.argv[2:])
