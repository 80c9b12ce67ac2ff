"""``python -m bench --check``: are the targets met? Percentiles and ratios of one run; exit code 1 where one is missed.

Each target says which rows of ``docs/requirements.md`` it proves. A test holds the two lists against each other, so
that a row that names ``make bench-check`` is measured here. Both deployments are measured: the embedded engine, and
PostgreSQL with Valkey. Of several passes the least disturbed counts: what the machine does meanwhile is not ours.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from bench import corrections
from bench.edges import start
from bench.servers import postgres, valkey
from bench.speed import ask_cold, questions, recall_floor, sentences, timed, timed_together
from holdfast import Holdfast, MemoryManager
from holdfast.settings import read_settings

MEMORIES: Final = 10_000
ROUNDS: Final = 200
PASSES: Final = 3
EMBEDDED: Final = "embedded"
SERVERS: Final = "PostgreSQL and Valkey"


class Target(NamedTuple):
    """What a measured value has to stay below, and the requirements that this proves."""

    name: str
    most: float
    unit: str = "ms, p95"
    rows: tuple[str, ...] = ()
    deployments: tuple[str, ...] = (EMBEDDED, SERVERS)


TARGETS: Final = (
    Target("add working, the first note of a new user", 1, rows=("RF-003-1", "RF-003-p95-working")),
    Target("add working", 1, rows=("RF-003-p95-working",)),
    Target("retrieve working", 1, rows=("RF-003-p95-working",)),
    Target("add short_term", 10, rows=("RF-003-2", "RF-003-p95-short-term")),
    Target("read a short_term window", 10, rows=("RF-003-p95-short-term",)),
    Target("add long_term", 100, rows=("RF-003-3", "RF-003-p95-long-term")),
    Target("retrieve long_term", 100, rows=("RF-003-4", "RF-003-p95-long-term")),
    Target("retrieve working and long_term", 150, rows=("RF-003-5",)),
    Target("retrieve nothing", 50, rows=("RF-003-10",)),
    Target("retrieve long_term beside embedding and scoring alone", 5, "times, p50", deployments=(EMBEDDED,)),
    Target("retrieve long_term at the median", 1, "ms, p50", deployments=(EMBEDDED,)),
    Target("retrieve every kind", 5, "ms, p50", deployments=(EMBEDDED,)),
    Target("first query of a cold scope", 20, "ms, p50", deployments=(EMBEDDED,)),
    Target("context beside a retrieve of every kind", 2, "times, p50"),
    *(Target(name, most, "times, p50") for name, most in corrections.LIMITS.items() if "context" not in name),
    Target("add working beside the embedded engine", 3, "times, p50", deployments=(SERVERS,)),
    Target("first add of a process, after import and open", 100, "ms of CPU, p50", deployments=(EMBEDDED,)),
    Target("holdfast add from a shell, all of it", 400, "ms of CPU, p50", deployments=(EMBEDDED,)),
    Target(
        "holdfast add from a shell, beside Python with numpy and apsw", 2.5, "times the CPU", deployments=(EMBEDDED,)
    ),
    Target("add a text of 7 MB, the dearest of five shapes", 1_000, "ms of CPU, p50", deployments=(EMBEDDED,)),
)
#: The requirements that the check proves.
ROWS: Final = frozenset(row for target in TARGETS for row in target.rows)

Values = Mapping[tuple[str, str], float]
"""What was measured, by target and deployment."""


class Result(NamedTuple):
    """A target, and whether it was met."""

    target: Target
    deployment: str
    value: float

    @property
    def is_met(self) -> bool:
        return self.value < self.target.most


def judge(values: Values) -> list[Result]:
    """Hold what was measured against every target; ``LookupError`` where something was not measured."""
    return [
        Result(target, deployment, values[target.name, deployment])
        for target in TARGETS
        for deployment in target.deployments
    ]


def run(measure: Callable[[], Values] | None = None) -> int:
    """Measure, print, and give the exit code: 1 if any target is missed."""
    results = judge((measure or measure_all)())
    missed = [result for result in results if not result.is_met]
    table = Table("target", "deployment", "measured", "below", "", "proves")
    for result in results:
        target = result.target
        table.add_row(
            target.name,
            result.deployment,
            f"{result.value:.3f}",
            f"{target.most:g} {target.unit}",
            "met" if result.is_met else "[bold red]MISSED[/]",
            " ".join(target.rows),
        )
    console = Console(width=160)
    console.print(table)
    for result in missed:
        console.print(
            f"[bold red]MISSED[/]: {result.target.name} ({result.deployment}) is {result.value:.3f}, and should be "
            f"below {result.target.most:g} {result.target.unit}"
        )
    console.print(f"{len(results) - len(missed)} of {len(results)} targets are met.")
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if missed and load > cores:
        console.print(f"The machine is busy (load {load:.1f} on {cores} cores). Measure again when it is not.")
    return 1 if missed else 0


def measure_all() -> Values:
    """Everything that a target is about."""
    values: dict[tuple[str, str], float] = {}
    medians: dict[str, float] = {}
    for deployment, opened in ((EMBEDDED, _embedded), (SERVERS, _on_servers)):
        with opened() as holdfast:
            memory = holdfast.manager("user", "agent", "session")
            for part in range(10):
                memory.add_many(sentences(MEMORIES // 10, part))
            holdfast.quotas.set("long_term", max_memories=10**9)
            passes = [_one_pass(holdfast, memory) for _ in range(PASSES)]
            for name in passes[0]:
                values[name, deployment] = min(one[name][1] for one in passes)
            medians[deployment] = min(one["add working"][0] for one in passes)
            if deployment == EMBEDDED:
                values["retrieve long_term beside embedding and scoring alone", EMBEDDED] = _beside(
                    lambda asked: recall_floor(holdfast, asked),
                    lambda asked: lambda n: memory.retrieve(asked[n], top_k=10),  # noqa: B023
                )
                values |= _recall_medians(holdfast, memory)
                values["retrieve long_term at the median", EMBEDDED] = min(
                    one["retrieve long_term"][0] for one in passes
                )
            values["context beside a retrieve of every kind", deployment] = _beside(
                lambda asked: lambda n: memory.retrieve(asked[n], "all"),  # noqa: B023
                lambda asked: lambda n: memory.context(asked[n]),  # noqa: B023
            )
    for deployment, engine in ((EMBEDDED, "SQLite"), (SERVERS, "PostgreSQL")):
        values |= {(ratio.name, deployment): ratio.value for ratio in corrections.measure_engine(engine)}
    values["add working beside the embedded engine", SERVERS] = medians[SERVERS] / medians[EMBEDDED]
    taken = start.measure()
    values["first add of a process, after import and open", EMBEDDED] = taken["add"]
    values["holdfast add from a shell, all of it", EMBEDDED] = taken["command"]
    beside = "holdfast add from a shell, beside Python with numpy and apsw"
    values[beside, EMBEDDED] = taken["command"] / taken["floor"]
    values["add a text of 7 MB, the dearest of five shapes", EMBEDDED] = taken["largest"]
    return values


def _recall_medians(holdfast: Holdfast, memory: MemoryManager) -> dict[tuple[str, str], float]:
    """What recall takes at the median: of every kind, and where no index is in memory."""
    asked = questions(ROUNDS + 20, -5)
    for kind in ("episodic", "entity", "persona"):
        memory.add_many(sentences(400, -6), kind)
    every = (timed(lambda n: memory.retrieve(asked[n], "all"), ROUNDS)[0] for _ in range(PASSES))
    cold = (ask_cold(holdfast, [memory] * 20, asked)[0] for _ in range(PASSES))
    return {("retrieve every kind", EMBEDDED): min(every), ("first query of a cold scope", EMBEDDED): min(cold)}


_users = itertools.count()


def _one_pass(holdfast: Holdfast, memory: MemoryManager) -> dict[str, tuple[float, float]]:
    """Milliseconds at p50 and p95 of each operation."""
    texts = itertools.cycle(sentences(2_000, -1))
    asked = questions(ROUNDS + 20, -2)
    stranger = holdfast.manager("nobody", "agent")
    task = holdfast.manager("user", "agent", "task")
    for text in sentences(20, -3):
        task.add(text, "working")
    new = iter([holdfast.manager(f"new {next(_users)}", "agent", "session") for _ in range(ROUNDS + 20)])
    calls: dict[str, Callable[[int], object]] = {
        "add working, the first note of a new user": lambda _: next(new).add(next(texts), "working"),
        "add working": lambda _: memory.add_with_auto_prune(next(texts), "working"),
        "retrieve working": lambda n: task.retrieve(asked[n], ["working"]),
        "add short_term": lambda _: memory.add(next(texts), "short_term"),
        "read a short_term window": lambda _: memory.short_term.get_conversation_history(),
        "add long_term": lambda _: memory.add(next(texts), "long_term"),
        "retrieve long_term": lambda n: memory.retrieve(asked[n], ["long_term"]),
        "retrieve working and long_term": lambda n: task.retrieve(asked[n], ["working", "long_term"]),
        "retrieve nothing": lambda n: stranger.retrieve(asked[n]),
    }
    return {name: timed(call, ROUNDS) for name, call in calls.items()}


_Calls = Callable[[list[str]], Callable[[int], object]]
"""Makes a call of the number of a question, of questions."""


def _beside(floor: _Calls, whole: _Calls) -> float:
    """How many times as long as another something takes, in turn with it."""
    asked = questions(ROUNDS + 20, -4)
    passes = [timed_together(floor(asked), whole(asked), rounds=ROUNDS) for _ in range(PASSES)]
    return min(one[1][0] / one[0][0] for one in passes)


@contextmanager
def _embedded() -> Iterator[Holdfast]:
    with _folder() as home, Holdfast.open(home=home) as holdfast:
        yield holdfast


@contextmanager
def _on_servers() -> Iterator[Holdfast]:
    with _folder() as home, postgres(durable=True) as server, valkey() as short:
        settings = replace(read_settings({}, url=server.new_database(), home=home), short_term_url=short.url)
        with Holdfast(settings) as holdfast:
            yield holdfast


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
