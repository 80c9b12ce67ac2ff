"""The lifecycle: what a sweep costs that finds nothing, how fast one goes that finds a million, and who notices."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from rich.progress import track

from bench import scale
from bench.speed import USER_MEMORIES, questions, sentences
from holdfast import Holdfast
from holdfast.core.records import TYPES, Entry, MemoryType, Record, Scope
from holdfast.settings import sqlite_path
from holdfast.storage.relational.database import Transaction

#: Of the archives, which cost more for each record, so many are measured.
ARCHIVED = scale(100_000, USER_MEMORIES)
_READER = "reader"
_AGENTS = 10


class Figure(NamedTuple):
    """What was measured, and what it is held against."""

    name: str
    value: str
    target: str
    met: bool | None


class Clock:
    """A clock that can be moved ahead."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


def fill(holdfast: Holdfast, users: int, kind: MemoryType, *, body: bool = False) -> None:
    """Give users 10,000 memories each, all made now."""
    texts = sentences(USER_MEMORIES, 1)
    now = holdfast.services.now()
    said: dict[str, Any] | None = None
    if body:
        said = {"task": "a task", "steps": [], "tool_calls": [], "messages": [{"content": text} for text in texts[:8]]}
    scope = Scope(holdfast.tenant, "", "agent", None)
    sample = Record("", kind, scope, "", now, now, now, body=said)
    some = [replace(sample, content=text) for text in texts[: 500 if body else None]]
    encodings = holdfast.recall.encode(some)
    for user in track(range(users), description=f"filling {users * USER_MEMORIES:,} {kind}", transient=True):
        whose = replace(scope, user_id=f"user {user}", agent_id=f"agent {user % _AGENTS}")
        for start in range(0, USER_MEMORIES, 2_000):
            ids = holdfast.services.new_ids(now, 2_000)
            entries = [
                Entry(
                    replace(some[(start + n) % len(some)], id=record_id, scope=whose),
                    encodings[(start + n) % len(some)],
                )
                for n, record_id in enumerate(ids)
            ]
            holdfast.services.records.insert(whose.subject, TYPES[kind], entries, prune=False, now=now)


@contextmanager
def transactions(holdfast: Holdfast) -> Iterator[list[float]]:
    """How long each transaction that wrote meanwhile held the store, in seconds."""
    taken: list[float] = []
    write = holdfast.database.write

    @contextmanager
    def timed(*asked: Any) -> Iterator[Transaction]:
        with write(*asked) as tx:
            start = time.perf_counter()
            yield tx
            taken.append(time.perf_counter() - start)

    holdfast.database.write = timed  # type: ignore[method-assign]
    try:
        yield taken
    finally:
        del holdfast.database.write


@contextmanager
def low_priority() -> Iterator[None]:
    """The block runs at the priority that a process has while it sweeps or backs up: it lets others go first."""
    os.setpriority(os.PRIO_PROCESS, 0, 10)
    try:
        yield
    finally:
        with suppress(PermissionError):  # who may not take it back goes on like that
            os.setpriority(os.PRIO_PROCESS, 0, 0)


class Reader:
    """Another process that recalls, again and again, and says how long it took."""

    def __init__(self, home: Path) -> None:
        command = [sys.executable, "-m", "bench.lifecycle", str(home)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._ask("ready?")

    def _ask(self, what: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def during(self, work: Callable[[], object]) -> tuple[float, float]:
        """p50 and p99 of recalls while something is done, in milliseconds."""
        self._ask("start")
        work()
        p50, p99 = self._ask("stop")
        return float(p50), float(p99)

    def close(self) -> None:
        """End it."""
        self._process.communicate("end\n", timeout=30)


def read(home: Path) -> None:
    """The other process: recalls between ``start`` and ``stop``, which are lines of its input."""
    import selectors

    asked = questions(500, 3)
    with Holdfast.open(home=home) as holdfast:
        memory = holdfast.manager(_READER, "agent")
        memory.retrieve(asked[0])
        lines = selectors.DefaultSelector()
        lines.register(sys.stdin, selectors.EVENT_READ)
        taken: list[float] | None = None
        turn = 0
        while True:
            if taken is None or lines.select(0):
                match sys.stdin.readline().strip():
                    case "ready?":
                        print("true", flush=True)
                    case "start":
                        taken = []
                        print("true", flush=True)
                    case "stop":
                        kept = sorted(taken or [0.0])
                        print(json.dumps([kept[len(kept) // 2], kept[len(kept) * 99 // 100]]), flush=True)
                        taken = None
                    case _:
                        return
                continue
            start = time.perf_counter()
            memory.retrieve(asked[turn % len(asked)])
            taken.append((time.perf_counter() - start) * 1_000)
            turn += 1
            time.sleep(0.002)  # an agent has other things to do, too


def _ms(call: Callable[[], object], rounds: int) -> list[float]:
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        taken.append((time.perf_counter() - start) * 1_000)
    return sorted(taken)


def measure(users: int, folder: Path | None = None) -> list[Figure]:
    """Every figure, over a store of so many users with 10,000 episodes each."""
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=folder))
    clock = Clock()
    try:
        with Holdfast.open(home=home, clock=clock) as holdfast:
            return [*_removals(holdfast, clock, users), *_archives(holdfast, clock)]
    finally:
        shutil.rmtree(home)


def _file_size(holdfast: Holdfast) -> int:
    return sqlite_path(holdfast.settings.url).stat().st_size


def _removals(holdfast: Holdfast, clock: Clock, users: int) -> Iterator[Figure]:
    total = users * USER_MEMORIES
    fill(holdfast, users, MemoryType.EPISODIC)
    holdfast.policies.set("long_term", user_id=_READER, archive_after_days="never")
    holdfast.manager(_READER, "agent").add_many(sentences(USER_MEMORIES, 2))
    nothing = _ms(holdfast.sweep, 20)
    yield Figure(f"sweep with nothing due among {total:,}", f"{nothing[10]:.1f} ms", "≤ 50 ms", nothing[10] <= 50)
    at = clock() + timedelta(days=366)
    start = time.perf_counter()
    plan = holdfast.sweep(dry_run=True, at=at, confirm=True)
    took = time.perf_counter() - start
    assert plan.counts["recycle"] == total
    yield Figure(f"dry run of {total:,} due", f"{took:.2f} s", "≤ 5 s", took <= 5)
    start = time.perf_counter()
    plan = holdfast.sweep(dry_run=True, at=at)
    took = time.perf_counter() - start
    assert len(plan.set_aside) == users
    yield Figure("the same, with all of them set aside", f"{took:.2f} s", "≤ 5 s", took <= 5)
    ids = [row["memory_id"] for row in holdfast.manager("user 0", "agent 0").list_memories("episodic", limit=1_000)]
    explained = iter(ids)
    said = _ms(lambda: holdfast.manager("user 0", "agent 0").explain(next(explained)), len(ids))
    p99 = said[len(said) * 99 // 100]
    yield Figure("explain, p99", f"{p99:.2f} ms", "≤ 5 ms", p99 <= 5)

    reader = Reader(holdfast.settings.home)
    clock.ahead = timedelta(days=366)
    done: list[Any] = []
    idle = min(reader.during(lambda: time.sleep(8)) for _ in range(2))
    with transactions(holdfast) as held, low_priority():
        began = time.perf_counter()
        busy = reader.during(lambda: done.append(holdfast.sweep(confirm=True)))
        took = time.perf_counter() - began
    assert done[0].counts["recycle"] == total, done[0]
    yield Figure(f"{total:,} into the recycle bin", f"{total / took:,.0f} a second", "≥ 20,000", total / took >= 20_000)
    yield Figure("the longest of its transactions", f"{max(held) * 1e3:.0f} ms", "≤ 250 ms", max(held) <= 0.25)
    yield Figure("recall in another process, idle, p50 / p99", f"{idle[0]:.2f} / {idle[1]:.2f} ms", "", None)
    times = busy[1] / idle[1]
    shown = f"{busy[0]:.2f} / {busy[1]:.2f} ms, {times:.2f} ×"
    yield Figure("the same while the sweep goes on", shown, "p99 ≤ 1.25 × idle", times <= 1.25)
    reader.close()

    clock.ahead += timedelta(days=15)
    before = _file_size(holdfast)
    with transactions(holdfast) as held:
        start = time.perf_counter()
        report = holdfast.sweep()
        took = time.perf_counter() - start
    assert report.counts["delete"] == total
    yield Figure(f"{total:,} deleted for good", f"{total / took:,.0f} a second", "≥ 20,000", total / took >= 20_000)
    yield Figure("the longest of its transactions", f"{max(held) * 1e3:.0f} ms", "≤ 250 ms", max(held) <= 0.25)
    after = _file_size(holdfast)
    shown = f"{before / 2**20:,.0f} → {after / 2**20:,.0f} MiB"
    yield Figure("the file, which gave back what was freed", shown, "smaller", after < before)


def _archives(holdfast: Holdfast, clock: Clock) -> Iterator[Figure]:
    users = ARCHIVED // USER_MEMORIES
    for kind, days, where in (
        (MemoryType.EPISODIC, 90, "archived in place, 8 messages each"),
        (MemoryType.LONG_TERM, 365, "archived to cold storage"),
    ):
        fill(holdfast, users, kind, body=kind is MemoryType.EPISODIC)
        clock.ahead += timedelta(days=days)
        start = time.perf_counter()
        report = holdfast.sweep(confirm=True)
        took = time.perf_counter() - start
        assert report.counts["archive"] == ARCHIVED, report
        yield Figure(f"{ARCHIVED:,} {where}", f"{ARCHIVED / took:,.0f} a second", "", None)
    objects = list((holdfast.settings.home / "archive").rglob("*.pack"))
    size = sum(path.stat().st_size for path in objects)
    shown = f"{len(objects):,} objects, {size / 2**20:.1f} MiB"
    yield Figure(f"what {ARCHIVED:,} cold memories take", shown, "", None)


if __name__ == "__main__":
    read(Path(sys.argv[1]))
