"""One user with 100,000 memories of a kind on PostgreSQL: the first recall in a new process, the next, the memory.

A memory has 20 to 60 words, drawn from the docstrings of the standard library. ``python -m bench --only large_scope``.
``python -m bench.recall.large_scope parts`` prints what parts of a warm recall take of a processor, without a store.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import psutil
import psycopg

from bench import scale
from bench.servers import postgres
from bench.speed import PASSES, Figure, timed
from holdfast import Holdfast
from holdfast.core.records import TYPES, Entry, MemoryType, Record, Scope
from holdfast.recall.embedders.static import StaticEmbedder
from holdfast.recall.vectors import products, to_steps

MEMORIES = scale(100_000)
ROUNDS = 200
_BATCH = 2_000
_WORDS = 300_000
_USER = "user"


def measure() -> list[Figure]:
    """The least disturbed of several processes, each of which opens the store and recalls."""
    with tempfile.TemporaryDirectory() as home, postgres(durable=True, settings={"max_wal_size": "4GB"}) as server:
        url, words = server.new_database(tcp=True), _words()
        with Holdfast.open(url, home=home) as holdfast:
            _fill(holdfast, words)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
            connection.execute("CHECKPOINT")
        command = [sys.executable, "-m", "bench.recall.large_scope", url, home]
        runs = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(PASSES)]
    cold, warm, late, grown = (min(column) for column in zip(*runs, strict=True))
    return [
        Figure("first recall in a new process", cold, cold, "≤ 1,000 ms", cold <= 1_000),
        Figure("retrieve, hybrid, warm", warm, late, "p50 ≤ 10 ms", warm <= 10),
        Figure("memory of the index, in MB", grown, grown, "≤ 300 MB", grown <= 300),
    ]


def _words() -> list[str]:
    """Words as often as they occur in the documentation of the standard library."""
    found: list[str] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        for text in re.findall(r'"""(.*?)"""', path.read_text(errors="replace"), re.DOTALL):
            found += re.findall("[a-z]{2,14}", text.lower())
        if len(found) > _WORDS:
            break
    return found


def _texts(words: list[str], count: int, seed: int) -> list[str]:
    rnd = random.Random(seed)
    return [" ".join(rnd.choices(words, k=rnd.randint(20, 60))) for _ in range(count)]


def _fill(holdfast: Holdfast, words: list[str]) -> None:
    holdfast.quotas.set("long_term", max_memories=2 * MEMORIES)
    kind, now = TYPES[MemoryType.LONG_TERM], holdfast.services.now()
    scope = Scope(holdfast.tenant, _USER, "agent", None)
    for start in range(0, MEMORIES, _BATCH):
        ids = holdfast.services.new_ids(now, _BATCH)
        records = [
            Record(
                record_id,
                kind.name,
                replace(scope, session_id=f"session {(start + number) // 50}"),
                text,
                now,
                now,
                now,
                metadata={"part": number % 10, "topic": f"topic {number % 100}"},
            )
            for number, (record_id, text) in enumerate(zip(ids, _texts(words, _BATCH, start), strict=True))
        ]
        entries = [Entry(*pair) for pair in zip(records, holdfast.recall.encode(records), strict=True)]
        holdfast.services.records.insert(scope.subject, kind, entries, prune=False, now=now)


def _recall(url: str, home: str) -> tuple[float, float, float, float]:
    """Milliseconds of the first recall, and of later ones at p50 and p95; megabytes that the process has grown by."""
    queries = [" ".join(islice(text.split(), 8)) for text in _texts(_words(), ROUNDS + 10, -1)]
    with Holdfast.open(url, home=home) as holdfast:
        holdfast.manager("nobody", "agent").retrieve(queries[0])  # loads the embedder, and connects
        memory, process = holdfast.manager(_USER, "agent"), psutil.Process()
        before, start = process.memory_info().rss, time.perf_counter()
        memory.retrieve(queries[0], top_k=10)
        cold, grown = (time.perf_counter() - start) * 1_000, (process.memory_info().rss - before) / 1e6
        return cold, *timed(lambda number: memory.retrieve(queries[number], top_k=10), ROUNDS), grown


def measure_parts() -> dict[str, float]:
    """Milliseconds of processor time, which neighbours disturb less, of parts of a warm recall: the least of many."""
    vectors = to_steps(np.random.default_rng(1).standard_normal((MEMORIES, 256), np.float32))
    embedder, query = StaticEmbedder(), " ".join(_texts(_words(), 1, -1)[0].split()[:8])
    embedder.embed([query])
    parts: dict[str, Callable[[], object]] = {
        "the product of all vectors with a query": lambda: products(vectors, vectors[0]),
        "to read these vectors and nothing else": partial(np.max, vectors),
        "the vector of a query": lambda: embedder.embed([query]),
    }
    return {name: min(_processor_time(part) for _ in range(30)) for name, part in parts.items()}


def _processor_time(part: Callable[[], object]) -> float:
    start = time.process_time()
    part()
    return (time.process_time() - start) * 1_000


if __name__ == "__main__":
    if sys.argv[1:] == ["parts"]:
        for name, taken in measure_parts().items():
            print(f"{name}: {taken:.2f} ms")
    else:  # one of the processes
        json.dump(_recall(*sys.argv[1:]), sys.stdout)
