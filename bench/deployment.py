"""Real deployments: PostgreSQL over its socket and Valkey, beside LangGraph's store on the same server."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import psycopg
import valkey as valkey_client

from bench.lifecycle import Clock, fill
from bench.servers import postgres, valkey
from bench.speed import (
    AT_A_TIME,
    PASSES,
    ROUNDS,
    USER_MEMORIES,
    Figure,
    least_disturbed,
    questions,
    sentences,
    timed,
    timed_together,
)
from holdfast import Holdfast
from holdfast.core.records import MemoryType, Message, Scope
from holdfast.settings import read_settings

#: LangGraph's store is filled with so many users: a million of its rows take hours.
THEIR_USERS = 2


def measure(users: int) -> list[Figure]:
    """Every figure, over a store of so many users with 10,000 memories each."""
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        with postgres(durable=True, settings={"max_wal_size": "8GB"}) as server, valkey() as short:
            url, clock = server.new_database(), Clock()
            with Holdfast.open(url, home=home, clock=clock) as holdfast:
                holdfast.quotas.set("long_term", max_memories=10**9)
                began = time.perf_counter()
                fill(holdfast, users, MemoryType.LONG_TERM)
                rate = users * USER_MEMORIES / (time.perf_counter() - began)
                with psycopg.connect(url, autocommit=True) as connection:
                    connection.execute("VACUUM ANALYZE")
                    connection.execute("CHECKPOINT")
                with on_one_core():
                    figures = [
                        *_against_langgraph(holdfast, server.new_database()),
                        _cold(holdfast, users),
                        _filled(rate),
                    ]
            with on_one_core():
                figures += least_disturbed(lambda: _short_term(url, home, short.url))
            url = server.new_database()
            with Holdfast.open(url, home=home, clock=clock) as holdfast:
                figures += _sweeps(holdfast, url, clock, users)
            return figures
    finally:
        shutil.rmtree(home)


@contextmanager
def on_one_core() -> Iterator[None]:
    """This process and its servers on one core: they take turns anyway, and what it costs to wake a second core of a
    virtual machine, up to many times a round trip, is not measured instead.
    """
    us = psutil.Process()
    before = us.cpu_affinity()

    def spread(cores: list[int]) -> None:
        for one in [us, *us.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):  # some come and go
                one.cpu_affinity(cores)

    spread(before[:1])
    try:
        yield
    finally:
        spread(before)


def _against_langgraph(holdfast: Holdfast, url: str) -> list[Figure]:
    from langgraph.store.postgres import PostgresStore

    embed = holdfast.embedder.embed
    index: Any = {"dims": holdfast.embedder.dim, "embed": lambda texts: embed(texts).tolist(), "fields": ["text"]}
    queries = questions(ROUNDS + 20, -1)
    fresh = iter(sentences(4 * ROUNDS * PASSES, -2))
    memory = holdfast.manager("user 0", "agent 0", "session")
    numbers = itertools.count()
    with PostgresStore.from_conn_string(url, index=index) as theirs:
        theirs.setup()
        _fill_theirs(theirs)

        def put(_: int) -> None:
            theirs.put(("user 0",), f"new {next(numbers)}", {"text": next(fresh)})

        def one_pass() -> list[Figure]:
            with psycopg.connect(url, autocommit=True) as bare:
                floor, add, their_add = timed_together(
                    lambda _: bare.execute("SELECT 1"), lambda _: memory.add(next(fresh)), put
                )
            retrieve, search = timed_together(
                lambda n: memory.retrieve(queries[n], top_k=10),
                lambda n: theirs.search(("user 0",), query=queries[n], limit=10),
            )
            return [
                Figure("floor: one round trip over the socket", *floor, "", met=True),
                Figure("add long_term, durable", *add, "p50 ≤ 1.2 ms", add[0] <= 1.2),
                Figure("LangGraph PostgresStore: put", *their_add, "", met=True),
                Figure("retrieve, hybrid, warm", *retrieve, "p50 ≤ 3 ms", retrieve[0] <= 3),
                Figure("LangGraph PostgresStore: search", *search, "", met=True),
            ]

        return least_disturbed(one_pass)


def _fill_theirs(theirs: Any) -> None:
    from langgraph.store.base import PutOp

    for user, start in itertools.product(range(THEIR_USERS), range(0, USER_MEMORIES, 500)):
        texts = sentences(500, user * 100 + start)
        theirs.batch([PutOp((f"user {user}",), f"{start + n}", {"text": text}) for n, text in enumerate(texts)])


def _cold(holdfast: Holdfast, users: int) -> Figure:
    taken = []
    for user in range(1, min(users, 30)):
        holdfast.recall.forget()
        start = time.perf_counter()
        holdfast.manager(f"user {user}", "agent").retrieve("who likes Lisbon?")
        taken.append((time.perf_counter() - start) * 1_000)
    taken.sort()
    return Figure("first query of a cold scope", taken[len(taken) // 2], taken[len(taken) * 95 // 100], "", met=True)


def _filled(rate: float) -> Figure:
    return Figure("records written in batches, per record", 1_000 / rate, 1_000 / rate, "", met=True)


def _short_term(url: str, home: Path, short: str) -> list[Figure]:
    settings = replace(read_settings({}, url=url, home=home), short_term_url=short)
    holdfast = Holdfast(settings)
    client = valkey_client.Valkey.from_url(short)
    with holdfast, client:
        store, scope = holdfast.services.short_term, Scope(holdfast.tenant, "chatty", "agent", "session")
        memory = holdfast.manager("chatty", "agent", "session")
        messages, now = list(itertools.islice(_messages(holdfast), ROUNDS + AT_A_TIME)), holdfast.services.now()
        raw, part = timed_together(
            lambda _: client.ping(), lambda n: store.append(scope, [messages[n]], ttl=3_600_000_000, now=now, most=100)
        )
        whole = timed(lambda n: memory.short_term.add_message("user", f"message {n} of a conversation"))
    return [
        Figure("floor: one raw round trip to Valkey", *raw, "", met=True),
        Figure("add_message: its Valkey part", *part, "p50 ≤ 2.5 × that", part[0] <= 2.5 * raw[0]),
        Figure("add_message, history written durably", *whole, "p50 ≤ 2 ms", whole[0] <= 2),
    ]


def _messages(holdfast: Holdfast) -> Iterator[Any]:
    for number in itertools.count():
        now = holdfast.services.now()
        yield Message(holdfast.services.new_id(now), "user", f"message {number} of a conversation", now, {})


def _analyze(url: str) -> None:
    """What autovacuum does within a minute."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ANALYZE")


def _sweeps(holdfast: Holdfast, url: str, clock: Clock, users: int) -> list[Figure]:
    rows = min(users, 20) * USER_MEMORIES
    fill(holdfast, min(users, 20), MemoryType.EPISODIC)

    def rate(work: Callable[[], object], days: int) -> float:
        clock.ahead = timedelta(days=days)
        start = time.perf_counter()
        work()
        return rows / (time.perf_counter() - start)

    def sweep() -> None:
        holdfast.sweep(confirm=True)

    _analyze(url)
    into = rate(sweep, 366)
    _analyze(url)
    out = rate(sweep, 382)
    return [
        Figure("sweep into the bin, per record", 1_000 / into, 1_000 / into, "≥ 10,000 a second", into >= 10_000),
        Figure("deleted for good, per record", 1_000 / out, 1_000 / out, "≥ 10,000 a second", out >= 10_000),
    ]
