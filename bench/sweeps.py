"""Sweeps on PostgreSQL, with many users who have few memories each: ``python -m bench.sweeps [users]``.

Every user has 100 memories. In one store a sweep archives all of them. In another one a sweep sends them to the recycle
bin, and the next one deletes them for good. Commits are durable. What the moves leave behind is read from the server's
statistics after each sweep.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import psycopg
from rich.progress import track

from bench import scale
from bench.lifecycle import Clock, Figure, transactions
from bench.servers import postgres
from bench.speed import sentences
from holdfast import Holdfast
from holdfast.core.records import TYPES, Entry, MemoryType, Record, Scope

USERS: Final = scale(10_000)
EACH: Final = 100
#: For each store, by which rule, what is done, after how many days, and how many of it a second there are to be.
STORES: Final[tuple[tuple[dict[str, int | str], tuple[tuple[str, int, int], ...]], ...]] = (
    ({"archive_after_days": 30}, (("archive", 31, 5_000),)),
    ({"archive_after_days": "never", "delete_after_days": 30}, (("recycle", 31, 10_000), ("delete", 16, 10_000))),
)
#: How long one transaction may keep a user waiting, in seconds; and which part of the rows may be dead afterwards.
LONGEST, DEAD = 0.25, 0.05


def measure(users: int = USERS, folder: Path | None = None) -> Iterator[Figure]:
    """Every figure, over a new store."""
    with postgres(durable=True) as server:
        for rule, steps in STORES:
            url, clock = server.new_database(), Clock()
            with (
                tempfile.TemporaryDirectory(dir=folder) as home,
                Holdfast.open(url, home=home, clock=clock) as holdfast,
            ):
                holdfast.policies.set("long_term", **rule, confirm=True)  # type: ignore[arg-type]
                fill(holdfast, users)
                for action, days, least in steps:
                    clock.ahead += timedelta(days=days)
                    yield from _sweep(holdfast, url, action, users * EACH, least)


def fill(holdfast: Holdfast, users: int) -> None:
    """Give users their memories, all made now."""
    now, kind = holdfast.services.now(), TYPES[MemoryType.LONG_TERM]
    scope = Scope(holdfast.tenant, "", "agent", None)
    some = [Record("", kind.name, scope, text, now, now, now) for text in sentences(EACH, 1)]
    encodings = holdfast.recall.encode(some)
    for user in track(range(users), description=f"filling {users * EACH:,}", transient=True):
        whose = replace(scope, user_id=f"user {user}")
        ids = holdfast.services.new_ids(now, EACH)
        made = zip(some, ids, encodings, strict=True)
        entries = [Entry(replace(record, id=record_id, scope=whose), encoding) for record, record_id, encoding in made]
        holdfast.services.records.insert(whose.subject, kind, entries, prune=False, now=now)


def _sweep(holdfast: Holdfast, url: str, action: str, total: int, least: int) -> Iterator[Figure]:
    with transactions(holdfast) as held:
        began, own, servers = time.perf_counter(), time.process_time(), server_seconds(url)
        report: Any = holdfast.sweep(confirm=True)
        took, own, servers = time.perf_counter() - began, time.process_time() - own, server_seconds(url) - servers
    assert report.counts[action] == total, report
    each = f"{own / total * 1e6:.0f} + {servers / total * 1e6:.0f} µs"
    shown = f"{total / took:,.0f} a second; {each} of processor time each, own + server's"
    yield Figure(f"PostgreSQL: {action} {total:,}", shown, f"≥ {least:,}", total / took >= least)
    yield Figure("the longest of its transactions", f"{max(held) * 1e3:.0f} ms", "≤ 250 ms", max(held) <= LONGEST)
    time.sleep(1.5)  # the server writes its statistics down once a second
    statistics = (
        "SELECT n_live_tup, n_dead_tup, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'records'"
    )
    with psycopg.connect(url) as connection:
        live, dead, moved, hot = connection.execute(statistics).fetchone() or (0, 0, 0, 0)
    most = max(1_000, int(DEAD * live))
    shown = f"{dead:,} of {live + dead:,}; {moved:,} updates, {hot:,} HOT"
    yield Figure("dead rows after it", shown, f"≤ {most:,}", dead <= most)


def server_seconds(url: str) -> float:
    """The processor time of a server on this machine, with all of its processes, those that have ended included."""
    with psycopg.connect(url) as connection:
        fields = _read_stat(Path(f"/proc/{connection.info.backend_pid}/stat"))
    postmaster = fields[1]
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = _read_stat(path)
            is_itself = path.parent.name == postmaster
            if is_itself or fields[1] == postmaster:
                ticks += sum(map(int, fields[11 : 15 if is_itself else 13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _read_stat(path: Path) -> list[str]:
    """What the system tells of a process, from its state on: its parent is next."""
    return path.read_text().rpartition(")")[2].split()


if __name__ == "__main__":
    for figure in measure(int(sys.argv[1]) if len(sys.argv) > 1 else USERS):
        met = "" if figure.met is None else "met" if figure.met else "MISSED"
        print(f"{figure.name:45} {figure.value:75} {figure.target:12} {met}", flush=True)
