"""What each verb does, in numbers that no clock and no neighbour changes: calls of Python functions, SQL statements,
transactions, syncs of the disk and bytes written, on SQLite.

python -m bench.counts            # print the counts, and what differs from the table
python -m bench.counts --write    # make them the table: bench/data/counts.json

The counts are taken in a process of its own that has clocks that stand still, no garbage collector, ids that repeat and
no settings from the environment. Its SQLite opens files through a layer that counts what is synced and written. Syncs
by Python are counted as well, what Python writes is not. Calls are those of functions of Holdfast. Generators and
functions of libraries are left out, since versions of Python and of libraries differ in them. Each verb begins with an
empty log, so that none pays for the pages of another.
"""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

import apsw

if TYPE_CHECKING:
    from holdfast import Holdfast, MemoryManager

TABLE: Final = Path(__file__).parent / "data" / "counts.json"
MEMORIES: Final = 500
TIMES: Final = 20
#: Which part of a count may differ from the table. A rule of the house (functions are short) adds or removes a call
#: now and then, and a few bytes more in each row split a page earlier; neither costs anybody anything. Statements,
#: transactions and syncs are what a user waits for: one more is one too many.
TOLERANCES: Final = {"calls": 0.05, "statements": 0.0, "transactions": 0.0, "syncs": 0.0, "bytes": 0.05}
_SOURCE: Final = str(Path(__file__).parents[1] / "src" / "holdfast")
#: Python 3.12 has no frames for them any more.
_COMPREHENSIONS: Final = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
_GENERATOR: Final = 0x20
_BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)

Counts = dict[str, int]


# --- in the process that counts ---------------------------------------------------------------------------------------

_found: Counter[str] = Counter()


class _CountedFile(apsw.VFSFile):
    def xSync(self, _flags: int) -> None:  # noqa: N802 - SQLite's name
        _found["syncs"] += 1  # and that is all: no store that is counted outlives its process

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        _found["bytes"] += len(data)
        super().xWrite(data, offset)


class _CountedFiles(apsw.VFS):
    def __init__(self) -> None:
        self._base = apsw.vfs_names()[0]
        super().__init__("counted", self._base, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _CountedFile(self._base, name, flags)


def _note_sync(_file: object) -> None:
    _found["syncs"] += 1


def _note_statement(_cursor: object, sql: str, _bindings: object) -> bool:
    _found["statements"] += 1
    _found["transactions"] += sql.startswith("BEGIN")
    return True


def _note_call(frame: FrameType, event: str, _argument: object) -> None:
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(_SOURCE) and not code.co_flags & _GENERATOR:
        _found["calls"] += code.co_name not in _COMPREHENSIONS


def measure() -> dict[str, Counts]:
    """The counts of each verb, of a user with some memories. It changes this process: run it in a new one."""
    _stand_still()
    from holdfast import Holdfast  # only now: some of it takes a clock as it is imported

    files = _CountedFiles()
    apsw.connection_hooks.append(lambda connection: setattr(connection, "exec_trace", _note_statement))
    clock = _Clock()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home, Holdfast.open(home=home, clock=clock) as store:
        store.policies.set("long_term", archive_after_days=30, confirm=True)
        memory = store.manager("user", "agent", "session")
        memory.add_many([f"User enjoys mountain number {number}" for number in range(MEMORIES)])
        counts = {name: _count(store, call, 5, TIMES) for name, call in _verbs(memory).items()}
        counts["sweep of nothing"] = _count(store, lambda _: store.sweep(), 1, 1)
        clock.moment += timedelta(days=31)
        counts["sweep that archives everything"] = _count(store, lambda _: store.sweep(confirm=True), 0, 1)
    files.unregister()
    return counts


def _stand_still() -> None:
    """Take away what differs from run to run: chance, collections, and time. (What is slow is noted: that is work.)"""
    gc.disable()
    time.perf_counter = time.monotonic = lambda: 0.0
    time.time = _BEGIN.timestamp
    os.urandom = random._urandom = random.Random(7).randbytes  # type: ignore[attr-defined]
    os.fsync = _note_sync  # type: ignore[assignment]


class _Clock:
    def __init__(self) -> None:
        self.moment = _BEGIN

    def __call__(self) -> datetime:
        return self.moment


def _verbs(memory: MemoryManager) -> dict[str, Callable[[int], object]]:
    known = memory.add("User likes tea")["memory_id"]
    gone = memory.add_many([f"User drops mountain number {number}" for number in range(5 + TIMES)])["memory_ids"]
    return {
        "add": lambda n: memory.add(f"User likes tea number {n}"),
        "add with a new key": lambda n: memory.add(f"User drinks tea number {n}", key=f"tea {n}"),
        "add with a key that is there": lambda n: memory.add(f"User wants tea number {n}", key="tea"),
        "add with dedupe": lambda n: memory.add(f"User prefers tea number {n}", dedupe=True),
        "correct": lambda n: memory.correct(known, f"User likes tea number {n}, or coffee"),
        "delete": lambda n: memory.delete(gone[n]),
        "add_message": lambda n: memory.short_term.add_message("user", f"hello {n}"),
        "get": lambda _: memory.get(known),
        "retrieve": lambda n: memory.retrieve(f"which mountain is number {n}?"),
        "retrieve with a filter": lambda n: memory.retrieve(f"which is number {n}?", filters={"place": "Alps"}),
        "context": lambda n: memory.context(f"which mountain is number {n}?"),
    }


def _count(store: Holdfast, call: Callable[[int], object], warm_up: int, times: int) -> Counts:
    """What so many calls do, once they are warm."""
    for number in range(warm_up):
        call(-1 - number)
    store.database.scrub()
    with _watch():
        for number in range(times):
            call(number)
    return {name: _found[name] for name in TOLERANCES}


@contextmanager
def _watch() -> Iterator[None]:
    _found.clear()
    sys.setprofile(_note_call)
    try:
        yield
    finally:
        sys.setprofile(None)


# --- against the table ------------------------------------------------------------------------------------------------


def measure_apart() -> dict[str, Counts]:
    """The counts, taken in a process of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    done = subprocess.run(
        [sys.executable, "-m", "bench.counts", "--json"],
        cwd=Path(__file__).parents[1],
        env={**kept, "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        check=True,
    )
    counts: dict[str, Counts] = json.loads(done.stdout)
    return counts


def compare(found: Mapping[str, Counts], table: Mapping[str, Counts]) -> list[str]:
    """What differs from the table by more than is tolerated, as sentences."""
    if missing := found.keys() ^ table.keys():
        return [f"The table and the verbs differ in {', '.join(sorted(missing))}. Run: python -m bench.counts --write"]
    problems = []
    for verb, counts in found.items():
        for name, count in counts.items():
            known = table[verb][name]
            if abs(count - known) > TOLERANCES[name] * known:
                does = "more: make it do less, or accept it" if count > known else "less: keep that"
                problems.append(
                    f"{verb}: {count:,} {name}, the table says {known:,}. It does {does} with: "
                    "python -m bench.counts --write"
                )
    return problems


def _print(counts: Mapping[str, Counts]) -> None:
    for verb, row in counts.items():
        times = 1 if verb.startswith("sweep") else TIMES
        print(f"{verb}: " + ", ".join(f"{value / times:,.1f} {name}" for name, value in row.items()))


def main() -> None:
    """Print the counts of one call, and compare or write the table."""
    if "--json" in sys.argv:
        print(json.dumps(measure()))
        return
    counts = measure_apart()
    _print(counts)
    if "--write" in sys.argv:
        rows = ",\n".join(f"  {json.dumps(verb)}: {json.dumps(row)}" for verb, row in counts.items())
        TABLE.write_text(f"{{\n{rows}\n}}\n", encoding="utf-8")
    else:
        print(*compare(counts, json.loads(TABLE.read_text(encoding="utf-8"))), sep="\n")


if __name__ == "__main__":
    main()
