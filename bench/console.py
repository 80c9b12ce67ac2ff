"""What the pages of the console read, in a store of many memories: milliseconds, processor time and statements.

``python -m bench.console`` makes a store of 1,000,000 memories of 1,000 users on each engine; ``python -m bench.console
100 sqlite`` one of 100 users on one engine. One user is made by the verbs; the others are copies of their rows.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import apsw
import psycopg

from bench.servers import postgres
from bench.speed import sentences
from holdfast import Holdfast
from holdfast.core.records import COUNT_BITS, KIND_BITS
from holdfast.storage.catalog import table_of

USERS: Final = 1_000
#: Of each user.
MEMORIES: Final = 1_000
ROUNDS: Final = 40
#: Users whose rows are copied by one statement.
_TOGETHER: Final = 100
_KEY_BITS: Final = KIND_BITS + COUNT_BITS
_TEMPLATE: Final = "user"
#: How a copied row's columns follow from the template's.
_SHIFTED: Final[dict[str, dict[str, str]]] = {
    "subjects": {"no": "no + d", "subject": "subject || '-' || d"},
    "scopes": {"scope": f"scope + (d << {KIND_BITS})"},
    "records": {"key": f"key + (CAST(d AS bigint) << {_KEY_BITS})"},
    "totals": {},
    "chains": {},
    "audit": {"no": "no + d * 100000"},
}


def fill(holdfast: Holdfast) -> str:
    """One user with memories in every state, some of them moved several times; the id of one that was."""
    memory, texts = holdfast.manager(_TEMPLATE, "guide", "s1"), sentences(MEMORIES, 7)
    ids = memory.add_many(texts[: MEMORIES * 8 // 10])["memory_ids"]
    memory.add_many(texts[MEMORIES * 8 // 10 : MEMORIES * 9 // 10], "persona")
    others = holdfast.manager(_TEMPLATE, "planner", "s2")
    for text in texts[MEMORIES * 9 // 10 :]:
        others.episodic.record_episode(text, [text])
    for one in ids[:20]:
        memory.delete(one)
    for one in ids[:10]:
        memory.restore(one)
    memory.correct(ids[0], "What was said before was wrong.", reason="The user said so.")
    return ids[0]


def copies(engine: str, users: int) -> Iterator[str]:
    """Statements that copy the template's rows for each of the other users, some users at a time."""
    is_sqlite = engine == "sqlite"
    number = "(SELECT no FROM subjects WHERE subject = 'default/user')"
    for table, shifted in _SHIFTED.items():
        names = [*table_of(table).columns]
        if is_sqlite and table == "scopes":
            names.remove("subject")
        values = [shifted.get(name, "subject + d" if name == "subject" else name) for name in names]
        where = "no" if table == "subjects" else "subject"
        if is_sqlite and table == "scopes":
            where = f"scope >> {KIND_BITS}"
        for first in range(1, users, _TOGETHER):
            numbers = f"(SELECT generate_series({first}::bigint, {min(users, first + _TOGETHER) - 1}) AS d)"
            if is_sqlite:
                several = range(first, min(users, first + _TOGETHER))
                numbers = f"({' UNION ALL '.join(f'SELECT {d} AS d' for d in several)})"
            yield (
                f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)} "  # noqa: S608 - names of our own
                f"FROM {numbers} AS others CROSS JOIN {table} WHERE {where} = {number}"
            )


@contextmanager
def store(engine: str, users: int) -> Iterator[tuple[Holdfast, str]]:
    """An open store of so many users, and the id of a memory of the first."""
    with tempfile.TemporaryDirectory() as home:
        if engine == "sqlite":
            with Holdfast.open(home=home) as holdfast:
                memory_id = fill(holdfast)
            connection = apsw.Connection(str(Path(home, "holdfast.db")))
            connection.execute("PRAGMA synchronous = OFF")
            with connection:
                for statement in copies(engine, users):
                    connection.execute(statement)
            connection.close()
            with Holdfast.open(home=home) as holdfast:
                yield holdfast, memory_id
            return
        with postgres(settings={"max_wal_size": "4GB"}) as server:
            url = server.new_database(tcp=True)
            with Holdfast.open(url, home=home) as holdfast:
                memory_id = fill(holdfast)
            with psycopg.connect(url, autocommit=True) as line:
                for statement in copies(engine, users):
                    line.execute(statement)
                line.execute("VACUUM ANALYZE")
            with Holdfast.open(url, home=home) as holdfast:
                yield holdfast, memory_id


def questions(holdfast: Holdfast, users: int, memory_id: str) -> dict[str, Callable[[int], Any]]:
    """What is asked, by its name; each is given a number, so that users take turns."""

    def user(number: int) -> str:
        return _TEMPLATE if number % users == 0 else f"{_TEMPLATE}-{number % users}"

    def deep(number: int) -> Any:
        after = None
        for _ in range(3):
            _, after = holdfast.memories.page(user(number), limit=100, after=after)
        return after

    places = {number * 7 % users: deep(number * 7) for number in range(ROUNDS + 1)}
    return {
        "browse, first page": lambda n: holdfast.memories.page(user(n), limit=50),
        "browse, deep page": lambda n: holdfast.memories.page(user(n), limit=50, after=places[n % users]),
        "browse, one agent in the bin": lambda n: holdfast.memories.page(
            user(n), limit=50, agent_id="guide", state="recycled"
        ),
        "facets": lambda n: holdfast.memories.facets(user(n)),
        "a memory's life": lambda n: holdfast.life(user(n), memory_id),
        "overview": lambda _: holdfast.overview(),
        "audit, of the tenant": lambda _: holdfast.audit.page(limit=50),
        "audit, of a user and an action": lambda n: holdfast.audit.page(user_id=user(n), action="restored", limit=50),
        "erasure preview": lambda n: holdfast.preview_erasure(user(n)),
    }


def measure(engine: str, users: int) -> None:
    """Print what each question takes."""
    began = time.monotonic()
    with store(engine, users) as (holdfast, memory_id):
        print(f"{engine}: {users * MEMORIES:,} memories of {users:,} users, made in {time.monotonic() - began:.0f} s")
        for name, ask in questions(holdfast, users, memory_id).items():
            ask(0)
            took, busy = [], time.process_time()
            for number in range(1, ROUNDS + 1):
                start = time.perf_counter()
                ask(number * 7)
                took.append((time.perf_counter() - start) * 1_000)
            busy = (time.process_time() - busy) * 1_000 / ROUNDS
            took.sort()
            p50, p95 = took[len(took) // 2], took[len(took) * 95 // 100]
            print(f"  {name:<32} p50 {p50:8.2f} ms   p95 {p95:8.2f} ms   processor {busy:8.2f} ms")
        start = time.perf_counter()
        holdfast.forecast(120)
        print(f"  {'forecast, 120 days':<32} {time.perf_counter() - start:8.2f} s")


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else USERS
    for which in sys.argv[2:] or ["sqlite", "postgres"]:
        measure(which, count)
