"""``HoldfastStore`` beside LangGraph's own stores, with 10,000 items: ``python -m bench --only langgraph_store``.

All embed with the same static vectors. PostgreSQL waits for the disk at each commit, as SQLite does; all calls take
turns.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from langgraph.store.base import BaseStore, PutOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore

from bench.servers import postgres
from bench.speed import AT_A_TIME, PASSES, sentences, timed, timed_together
from holdfast import Holdfast
from holdfast.integrations.langgraph.store import HoldfastStore
from holdfast.recall.embedders import open_embedder

ITEMS = 10_000
NAMESPACES = 100
BATCH = 50
_LOADED = 500
_USER = ("bench", "ann")
OURS = ("Holdfast, SQLite", "Holdfast, PostgreSQL")
NAMES = (*OURS, "PostgresStore", "InMemoryStore")


class Row(NamedTuple):
    """The median milliseconds of an operation on each store, in the order of ``NAMES``."""

    operation: str
    medians: list[float]
    target: str
    met: bool


def measure() -> list[Row]:
    """Each operation on each store."""
    with _stores() as stores:
        numbers, texts = count(), sentences(2 * ITEMS, 11)
        for store in stores:
            for start in range(0, ITEMS, _LOADED):
                store.batch([_put(number, texts) for number in range(start, start + _LOADED)])

        def fresh(store: BaseStore, size: int) -> Callable[[int], object]:
            return lambda _: store.batch([_put(ITEMS + next(numbers), texts) for _ in range(size)])

        kinds: dict[str, Any] = {"filter": {"kind": "k3", "rank": {"$lt": 900}}}
        calls: dict[str, Callable[[BaseStore], Callable[[int], object]]] = {
            "put": lambda store: fresh(store, 1),
            "get": lambda store: lambda number: store.get(_namespace(number), f"key {number}"),
            "search": lambda store: lambda number: store.search(_USER, query=texts[abs(number)]),
            "filtered search": lambda store: lambda _: store.search(_USER, **kinds),
            "filtered search with a query": lambda store: (
                lambda number: store.search(_USER, query=texts[abs(number)], **kinds)
            ),
            "list_namespaces": lambda store: lambda _: store.list_namespaces(prefix=_USER, limit=1_000),
            f"batch of {BATCH} puts": lambda store: fresh(store, BATCH),
        }
        medians = {name: _measure(*map(make, stores)) for name, make in calls.items()}
    return [_judge(name, found, medians["put"]) for name, found in medians.items()]


def _measure(*calls: Callable[[int], object]) -> list[float]:
    """The median milliseconds of calls that take turns, the least disturbed of several passes; of the last one, which
    is in memory, by itself.
    """
    passes = [timed_together(*calls[:-1], rounds=AT_A_TIME) for _ in range(PASSES)]
    least = [min(p50 for p50, _ in same) for same in zip(*passes, strict=True)]
    calls[-1](0)
    return [*least, timed(calls[-1], rounds=AT_A_TIME)[0]]


def _judge(name: str, medians: list[float], put: Sequence[float]) -> Row:
    """An operation, and whether both engines are where they are to be."""
    theirs = medians[NAMES.index("PostgresStore")]
    most = 20.0 if name == "list_namespaces" else math.inf
    met = all(one <= min(theirs, most) for one in medians[: len(OURS)])
    target = "≤ PostgresStore" + (", ≤ 20 ms" if most < math.inf else "")
    if name.startswith("batch"):
        met = met and all(one <= 10 * single for one, single in zip(medians, put[: len(OURS)], strict=False))
        target += ", ≤ 10 puts"
    return Row(name, medians, target, met)


def _namespace(number: int) -> tuple[str, ...]:
    return (*_USER, f"n{abs(number) % NAMESPACES}")


def _put(number: int, texts: Sequence[str]) -> PutOp:
    value = {"text": texts[number % len(texts)], "kind": f"k{number % 7}", "rank": number % 1_000}
    return PutOp(_namespace(number), f"key {number}", value, index=["text"])


@contextmanager
def _stores() -> Iterator[list[BaseStore]]:
    static = open_embedder("static")
    index: Any = {"dims": static.dim, "embed": lambda texts: static.embed(texts).tolist(), "fields": ["text"]}
    with ExitStack() as open_:
        server = open_.enter_context(postgres(durable=True))
        home = Path(open_.enter_context(tempfile.TemporaryDirectory()))
        ours: list[BaseStore] = []
        for url in (None, server.new_database()):
            holdfast = open_.enter_context(Holdfast.open(url, home=home / str(len(ours))))
            holdfast.quotas.set("structured", math.inf, math.inf)
            ours.append(HoldfastStore(holdfast, user_of=1))
        theirs = open_.enter_context(PostgresStore.from_conn_string(server.new_database(), index=index))
        theirs.setup()
        yield [*ours, theirs, InMemoryStore(index=index)]
