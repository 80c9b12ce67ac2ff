"""LangGraph's threads: 100,000 of ten checkpoints each, a twentieth of them due, governed on SQLite and PostgreSQL.

The rows are made without running a graph.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver

from bench import scale
from bench.lifecycle import Figure
from bench.servers import postgres
from holdfast import Holdfast
from holdfast.core.values import DAY, SECOND
from holdfast.integrations.langgraph.checkpoints import make_id
from holdfast.integrations.langgraph.parts import ThreadPart, open_part
from holdfast.integrations.langgraph.threads import Threads
from holdfast.ports.session_parts import PartMove, PartRegistration, PartSession

THREADS = scale(100_000)
CHECKPOINTS = 10
_USERS = 5_000
_DUE_EVERY = 20
#: So many threads are moved by us, and as many beside them by bare statements, this many at a time.
_COMPARED, _TOGETHER = 2_000, 100
_CHECKPOINT_COLUMNS = ("thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "checkpoint", "metadata")
_WRITE_COLUMNS = ("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "task_path", "idx", "channel", "type")
_BLOB_COLUMNS = ("thread_id", "checkpoint_ns", "channel", "version", "type", "blob")


def measure(threads: int = THREADS) -> Iterator[Figure]:
    """Every figure, on both engines."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        place, now = Path(folder), time.time_ns() // 1_000
        file = place / "threads.db"
        _fill_sqlite(file, threads, now)
        yield from _measure(f"sqlite:///{file}", place / "beside-sqlite", now, "SQLite")
        file.unlink()
        with postgres(settings={"max_wal_size": "4GB"}) as server:
            url = server.new_database()
            _fill_postgres(url, threads, now)
            yield from _measure(url, place / "beside-postgres", now, "PostgreSQL")


# --- threads ----------------------------------------------------------------------------------------------------------


def _threads(threads: int, now: int) -> Iterator[tuple[str, int, list[str]]]:
    """Their names, numbers and the ids of their checkpoints."""
    for number in range(threads):
        spread = number % 997 / 997 * 29 * DAY
        active = now - round(31 * DAY + spread if number % _DUE_EVERY == 0 else spread)
        ids = [
            f"{make_id(active - (CHECKPOINTS - step) * SECOND)}-8000-{number * CHECKPOINTS + step:012x}"
            for step in range(CHECKPOINTS)
        ]
        yield f"thread-{number}", number, ids


def _checkpoints(threads: int, now: int, body: str) -> Iterator[tuple[Any, ...]]:
    for name, number, ids in _threads(threads, now):
        said = f'{{"source":"loop","user_id":"user-{number % _USERS}","assistant_id":"agent","step":1}}'
        for before, one in zip([None, *ids], ids, strict=False):
            yield name, "", one, before, body.replace("ID", one), said


def _writes(threads: int, now: int) -> Iterator[tuple[Any, ...]]:
    for name, _, ids in _threads(threads, now):
        yield from ((name, "", one, "task", "~", 0, "messages", "msgpack", b"w" * 200) for one in ids)


def _blobs(threads: int, now: int) -> Iterator[tuple[Any, ...]]:
    for name, _, ids in _threads(threads, now):
        yield from ((name, "", "messages", one, "msgpack", b"b" * 200) for one in ids)


def _fill_sqlite(file: Path, threads: int, now: int) -> None:
    connection = sqlite3.connect(file)
    SqliteSaver(connection).setup()
    connection.execute("PRAGMA synchronous = OFF")
    rows = ((*row[:4], b"c" * 400, row[5].encode()) for row in _checkpoints(threads, now, ""))
    for table, columns, found in (
        ("checkpoints", _CHECKPOINT_COLUMNS, rows),
        ("writes", (*_WRITE_COLUMNS, "value"), _writes(threads, now)),
    ):
        places = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})"  # noqa: S608 - names of columns
        while some := list(islice(found, 50_000)):
            connection.executemany(statement, some)
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    with file.open("rb+") as made:
        os.fsync(made.fileno())  # or the disk would be busy with it while others write


def _fill_postgres(url: str, threads: int, now: int) -> None:
    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
    body = f'{{"v":4,"id":"ID","channel_versions":{{"messages":"ID"}},"channel_values":{{"text":"{"x" * 200}"}}}}'
    with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        for table, columns, rows in (
            ("checkpoints", _CHECKPOINT_COLUMNS, _checkpoints(threads, now, body)),
            ("checkpoint_writes", (*_WRITE_COLUMNS, "blob"), _writes(threads, now)),
            ("checkpoint_blobs", _BLOB_COLUMNS, _blobs(threads, now)),
        ):
            with cursor.copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN".encode()) as copy:
                for row in rows:
                    copy.write_row(row)
        connection.execute("VACUUM ANALYZE")


# --- figures ----------------------------------------------------------------------------------------------------------


def _measure(url: str, home: Path, now: int, engine: str) -> Iterator[Figure]:
    name = partial("{}: {}".format, engine)
    with Holdfast.open(home=home) as holdfast:
        Threads(url, engine=holdfast)
        part = open_part(PartRegistration("default", "bench", "langgraph", url, {}), url)
        took, said, plan = _time_plan(holdfast)
        yield Figure(name(f"first survey and plan, {plan.total:,} due"), said, "≤ 3 s", took <= 3)
        took, said, _ = _time_plan(holdfast)
        yield Figure(name("a later one"), said, "≤ 1 s", took <= 1)
        ratio, rate = _compare(part, now, has_log=engine == "SQLite")
        yield Figure(
            name("rows recycled, beside bare INSERT … SELECT + DELETE"), f"{ratio:.2f} ×", "≥ 0.6", ratio >= 0.6
        )
        yield Figure(name("rows recycled a second"), f"{rate:,.0f}", "", None)
        opened: Any = holdfast.services.open_part(holdfast.services.parts.list("default")[0], url)
        with _durations(opened) as durations:
            start = time.perf_counter()
            report: Any = holdfast.sweep()
            took = time.perf_counter() - start
        yield Figure(name(f"the sweep of {report.counts['recycle']:,} threads"), f"{took:.1f} s", "", None)
        longest = max(durations) * 1_000
        yield Figure(name("the longest transaction in it"), f"{longest:.0f} ms", "≤ 250 ms", longest <= 250)
        part.close()


def _time_plan(holdfast: Holdfast) -> tuple[float, str, Any]:
    """How long it takes, also of this process' own processor time: others may use the machine, too."""
    start, used = time.perf_counter(), time.process_time()
    plan = holdfast.sweep(dry_run=True)
    took, used = time.perf_counter() - start, time.process_time() - used
    return took, f"{took:.2f} s ({used:.2f} s of a processor)", plan


def _compare(part: ThreadPart, now: int, *, has_log: bool) -> tuple[float, float]:
    """How fast rows are recycled, as a share of bare statements and by the second; both are moved back."""
    due = list(islice((one for page in part.sessions(idle_since=now - 30 * DAY) for one in page), 2 * _COMPARED))
    ours, theirs = due[::2], due[1::2]
    for table in part.database.tables:
        part.database.run(f"CREATE TABLE @bare_{table} AS SELECT {part.names(table)} FROM @{table} LIMIT 0")  # noqa: S608
    took: dict[str, float] = defaultdict(float)
    rows = 0
    for start in range(0, len(theirs), _TOGETHER):
        moves = [PartMove(f"bench-{one.session_id}", one, one.active_at) for one in ours[start : start + _TOGETHER]]
        ways: list[tuple[str, Callable[[], Any]]] = [
            ("ours", partial(part.recycle, moves, now=now)),
            ("bare", partial(_move_bare, part, theirs[start : start + _TOGETHER])),
        ]
        for name, move in ways if start // _TOGETHER % 2 else reversed(ways):
            began = time.perf_counter()
            moved = move()
            if has_log:  # what either wrote into it is brought into SQLite's file at its own cost
                part.database.scrub()
            took[name] += time.perf_counter() - began
            rows += moved if name == "bare" else 0
    part.restore([f"bench-{one.session_id}" for one in ours])
    for table in part.database.tables:
        names = part.names(table)
        part.database.run(f"INSERT INTO @{table} ({names}) SELECT {names} FROM @bare_{table}")  # noqa: S608 - our names
        part.database.run(f"DROP TABLE @bare_{table}")
    return took["bare"] / took["ours"], rows / took["ours"]


def _move_bare(part: ThreadPart, sessions: list[PartSession]) -> int:
    ids, rows = [one.session_id for one in sessions], 0
    with part.database.transaction():
        for table in part.database.tables:
            names = part.names(table)
            where = f"FROM @{table} WHERE thread_id IN LIST(:ids)"
            part.database.run(f"INSERT INTO @bare_{table} ({names}) SELECT {names} {where}", ids=ids)
            rows += part.database.run(f"DELETE {where}", ids=ids)
    return rows


@contextmanager
def _durations(part: ThreadPart) -> Iterator[list[float]]:
    """How long each transaction takes."""
    durations, transaction = [0.0], part.database.transaction

    @contextmanager
    def timed() -> Iterator[None]:
        start = time.perf_counter()
        with transaction():
            yield
        durations.append(time.perf_counter() - start)

    cast("Any", part.database).transaction = timed
    yield durations
    del part.database.transaction
