"""What being right costs: adding with a key, without repeats and with what is close to it, looking back, and a block
for a prompt, each beside the plain verb that it is made of. ``python -m bench --only corrections``.

The calls of one engine take turns, so that what the machine does meanwhile weighs on all of them alike; of several
passes the least disturbed ratio counts. With ``HOLDFAST_BEFORE=path/to/another/src``, ``add``, ``retrieve`` and the
memory of an index are also compared with that source, by two processes that take turns and count their CPU time.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.servers import postgres
from bench.speed import questions, sentences, timed_together
from holdfast import Holdfast, MemoryManager

ENGINES: Final = ("SQLite", "PostgreSQL")
MEMORIES: Final = 5_000
ROUNDS: Final = 100
PASSES: Final = 3
#: What each call may cost, as a multiple of the plain ones.
LIMITS: Final = {
    "add under a new key": 1.3,
    "add under a key that is there: a correction": 1.3,
    "add without repeats, a new text": 1.3,
    "add without repeats, a text that is there": 1.3,
    "add with what is close to it, beside add and retrieve": 1.0,
    "retrieve as of a moment ago": 3.0,
    "context, beside a retrieve of every kind": 2.0,
}
#: The same, of what another source does.
BEFORE: Final = {"add": 1.05, "retrieve": 1.1, "index bytes per memory": 1.3}


class Ratio(NamedTuple):
    """How many times as much something costs as what it is made of, or as before."""

    name: str
    engine: str
    value: float
    most: float

    @property
    def is_met(self) -> bool:
        return self.value <= self.most


def measure() -> list[Ratio]:
    """Every ratio on every engine."""
    found = [ratio for engine in ENGINES for ratio in measure_engine(engine)]
    before = os.environ.get("HOLDFAST_BEFORE")
    return found + ([ratio for engine in ENGINES for ratio in compare(engine, before)] if before else [])


def measure_engine(engine: str) -> Iterator[Ratio]:
    """The ratios of one engine."""
    with opened(engine) as (url, home), Holdfast.open(url, home=home) as holdfast:
        holdfast.quotas.set("long_term", max_memories=10**9)
        memory = holdfast.manager("user", "agent", "session")
        memory.add_many(sentences(MEMORIES, 1))
        then = datetime.now(UTC)
        passes = [_one_pass(memory, then) for _ in range(PASSES)]
        for name, most in LIMITS.items():
            yield Ratio(name, engine, min(one[name] for one in passes), most)


def _one_pass(memory: MemoryManager, then: datetime) -> dict[str, float]:
    asked, texts = questions(ROUNDS, -1), iter(sentences(10 * (ROUNDS + 20), datetime.now(UTC).microsecond))
    known, keys = sentences(MEMORIES, 1), itertools.count()
    stamp = f"{datetime.now(UTC):%H%M%S%f}"
    for number in range(20):
        memory.add(next(texts), key=f"key {number}")
    calls: dict[str, Callable[[int], object]] = {
        "add": lambda _: memory.add(f"{next(texts)} {stamp}"),
        "key": lambda _: memory.add(f"{next(texts)} {stamp}", key=f"{stamp} {next(keys)}"),
        "correct": lambda n: memory.add(f"{next(texts)} {stamp}", key=f"key {n % 20}"),
        "dedupe": lambda _: memory.add(f"{next(texts)} {stamp}", dedupe=True),
        "repeat": lambda n: memory.add(known[n], dedupe=True),
        "similar": lambda _: memory.add(f"{next(texts)} {stamp}", similar=3),
        "written": lambda n: _add_and_retrieve(memory, f"{next(texts)} {stamp}", asked[n]),
        "retrieve": lambda n: memory.retrieve(asked[n]),
        "as_of": lambda n: memory.retrieve(asked[n], as_of=then),
        "all": lambda n: memory.retrieve(asked[n], "all"),
        "context": lambda n: memory.context(asked[n]),
    }
    medians = dict(zip(calls, (p50 for p50, _ in timed_together(*calls.values(), rounds=ROUNDS)), strict=True))
    pairs = (("key", "add"), ("correct", "add"), ("dedupe", "add"), ("repeat", "add"))
    more = (("similar", "written"), ("as_of", "retrieve"), ("context", "all"))
    ratios = [medians[whole] / medians[part] for whole, part in (*pairs, *more)]
    return dict(zip(LIMITS, ratios, strict=True))


def _add_and_retrieve(memory: MemoryManager, text: str, query: str) -> None:
    memory.add(text)
    memory.retrieve(query)


@contextmanager
def opened(engine: str) -> Iterator[tuple[str | None, Path]]:
    """The address of an empty store of an engine, and a home for it."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
        url = None if engine == "SQLite" else stack.enter_context(postgres(durable=True)).new_database()
        yield url, home


# --- beside another source ---------------------------------------------------------------------------------------

_CHILD: Final = """
import json, random, sys, time
from holdfast import Holdfast
with Holdfast.open(sys.argv[1] or None, home=sys.argv[2]) as holdfast:
    memory = holdfast.manager("user", "agent", "session")
    words = "tea coffee trains windows skiing mountains chess piano gardens night paris lyon seats nuts".split()
    chance = random.Random(1)
    memory.add_many([" ".join(chance.choices(words, k=12)) + f" {number}" for number in range(3_000)])
    memory.retrieve("a night train")
    taken = {"index bytes per memory": holdfast.recall.nbytes / 3_000}
    calls = {
        "add": lambda number: memory.add(f"User enjoys {words[number % 14]}, as note {number} says"),
        "retrieve": lambda number: memory.retrieve(f"a night train to {words[number % 14]}"),
    }
    print(json.dumps(taken), flush=True)
    for line in sys.stdin:
        for name, call in calls.items():
            start = time.process_time()
            for number in range(50):
                call(number + 50 * int(line))
            taken[name] = (time.process_time() - start) / 50
        print(json.dumps(taken), flush=True)
"""


def compare(engine: str, before: str) -> Iterator[Ratio]:
    """What this source takes beside another, in turns: the least of each, in CPU time of the process."""
    with ExitStack() as stack:
        children = []
        for source in (str(Path(__file__).resolve().parents[1] / "src"), before):
            url, home = stack.enter_context(opened(engine))
            command = [sys.executable, "-c", _CHILD, url or "", str(home)]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            child = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": source}, **pipes)
            children.append(stack.enter_context(child))
            _hear(child)
        turns = [[_ask(child, turn) for child in children] for turn in range(4 * PASSES)]
        for child in children:
            child.stdin.close() if child.stdin else None
        ours, theirs = ([turn[place] for turn in turns] for place in (0, 1))
        for name, most in BEFORE.items():
            value = min(one[name] for one in ours) / min(one[name] for one in theirs)
            yield Ratio(f"{name}, beside {Path(before).resolve().parent.name}", engine, value, most)


def _ask(child: subprocess.Popen[str], turn: int) -> Mapping[str, float]:
    assert child.stdin is not None
    child.stdin.write(f"{turn}\n")
    child.stdin.flush()
    return _hear(child)


def _hear(child: subprocess.Popen[str]) -> Mapping[str, float]:
    assert child.stdout is not None
    found: dict[str, float] = json.loads(child.stdout.readline())
    return found


if __name__ == "__main__":
    for ratio in measure():
        print(f"{ratio.value:6.2f} (≤ {ratio.most:g}) {ratio.engine}: {ratio.name}")
