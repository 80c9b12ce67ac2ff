"""What each verb does, in numbers that no clock and no neighbour changes: calls of Python functions, SQL statements,
commits and pages written, on SQLite. ``python -m bench.counts``.

A commit is one sync of the disk; a page is 4 KiB of the log, written by two calls of the system.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import apsw

from holdfast import Holdfast, MemoryManager

MEMORIES: Final = 500
TIMES: Final = 20


class Counts(NamedTuple):
    """What one call of a verb does, on average."""

    calls: float
    statements: float
    commits: float
    pages: float


def measure() -> dict[str, Counts]:
    """The counts of each verb, of a user with some memories."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home, Holdfast.open(home=home) as holdfast:
        memory = holdfast.manager("user", "agent", "session")
        memory.add_many([f"User enjoys mountain number {number}" for number in range(MEMORIES)])
        return {name: count(holdfast, call) for name, call in _verbs(memory).items()}


def _verbs(memory: MemoryManager) -> dict[str, Callable[[int], object]]:
    known = memory.add("User likes tea")["memory_id"]
    return {
        "add": lambda n: memory.add(f"User likes tea number {n}"),
        "add with a new key": lambda n: memory.add(f"User drinks tea number {n}", key=f"tea {n}"),
        "add with a key that is there": lambda n: memory.add(f"User wants tea number {n}", key="tea"),
        "add with dedupe": lambda n: memory.add(f"User prefers tea number {n}", dedupe=True),
        "add_message": lambda n: memory.short_term.add_message("user", f"hello {n}"),
        "get": lambda _: memory.get(known),
        "retrieve": lambda n: memory.retrieve(f"which mountain is number {n}?"),
    }


def count(holdfast: Holdfast, call: Callable[[int], object]) -> Counts:
    """What a call does, once it is warm."""
    for number in range(5):
        call(-1 - number)
    found: Counter[str] = Counter()
    database: Any = holdfast.database
    connections = [database._writer, *database._readers]
    before = _pages(connections)
    with _watching(connections, found):
        for number in range(TIMES):
            call(number)
    found["pages"] = _pages(connections) - before
    return Counts(*(found[name] / TIMES for name in ("calls", "statements", "commits", "pages")))


def _pages(connections: list[apsw.Connection]) -> int:
    return sum(one.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0] for one in connections)


@contextmanager
def _watching(connections: list[apsw.Connection], found: Counter[str]) -> Iterator[None]:
    def note_call(_frame: object, event: str, _argument: object) -> None:
        found["calls"] += event == "call"

    def note_statement(_cursor: object, sql: str, _bindings: object) -> bool:
        found["statements"] += 1
        found["commits"] += sql == "BEGIN IMMEDIATE"  # others only read
        return True

    for one in connections:
        one.exec_trace = note_statement
    sys.setprofile(note_call)
    try:
        yield
    finally:
        sys.setprofile(None)
        for one in connections:
            one.exec_trace = None


if __name__ == "__main__":
    for verb, counts in measure().items():
        parts = ", ".join(f"{value:.1f} {name}" for name, value in counts._asdict().items())
        print(f"{verb}: {parts}")
