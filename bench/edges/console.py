"""How long the pages of the console take in a store of many memories: over HTTP, to the first byte, and their weight.

``python -m bench.edges.console`` makes a store of 1,000,000 memories of 1,000 users on each engine, and one user
who has 100,000; ``python -m bench.edges.console 100 sqlite`` one of 100 users on one engine. One user is made by the
verbs; the others are copies of their rows. Beside each figure stands its limit; the service is a process of its own.
"""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import apsw
import psycopg

from bench.servers import postgres
from bench.speed import questions, sentences
from holdfast import Holdfast
from holdfast.core.records import COUNT_BITS, KIND_BITS
from holdfast.storage.catalog import table_of

USERS: Final = 1_000
#: Of each user; and of the one who has many.
MEMORIES: Final = 1_000
LARGE: Final = int(os.environ.get("BENCH_LARGE_USER", "100000"))
ROUNDS: Final = 40
#: Recalls that are timed without and with two views of pages in a second.
RECALLS: Final = 2_000
#: Milliseconds at the median and at the 95th percentile; PostgreSQL may take twice as long.
LIMITS: Final = {"list": (50.0, 150.0), "overview": (150.0, 150.0)}
MOST_KILOBYTES: Final = 100.0
MOST_ADDED_MS: Final = 15.0
#: Users whose rows are copied by one statement.
_TOGETHER: Final = 100
_KEY_BITS: Final = KIND_BITS + COUNT_BITS
_TEMPLATE: Final = "user"
_LARGE: Final = "large"
#: How a copied row's columns follow from the template's.
_SHIFTED: Final[dict[str, dict[str, str]]] = {
    "subjects": {"no": "no + d", "subject": "subject || '-' || d"},
    "scopes": {"scope": f"scope + (d << {KIND_BITS})"},
    "records": {"key": f"key + (CAST(d AS bigint) << {_KEY_BITS})"},
    "totals": {},
    "chains": {},
    "audit": {"no": "no + d * 100000"},
}
_INDEXES: Final = {
    "sqlite": "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL "
    "AND tbl_name IN ('records', 'audit')",
    "postgres": "SELECT indexname, indexdef FROM pg_indexes WHERE tablename IN ('records', 'audit') "
    "AND indexname NOT IN (SELECT conname FROM pg_constraint)",
}


class Store(NamedTuple):
    """A store that was made to be measured."""

    engine: str
    home: str
    url: str
    memory_id: str
    users: int

    def user(self, number: int) -> str:
        """One of the users; they take turns."""
        return _TEMPLATE if number % self.users == 0 else f"{_TEMPLATE}-{number % self.users}"


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


def fill_large(holdfast: Holdfast) -> None:
    """One user with many memories, made by the verbs; they have the numbers after those of the copies."""
    holdfast.quotas.set("long_term", max_memories="unlimited", max_bytes="unlimited", user_id=_LARGE)
    memory, texts = holdfast.manager(_LARGE, "guide", "s1"), sentences(LARGE, 8)
    for start in range(0, LARGE, 5_000):
        memory.add_many(texts[start : start + 5_000], metadata={"topic": "travel"})


def copy_rows(engine: str, users: int) -> Iterator[str]:
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


def copy_all(engine: str, users: int, run: Callable[[str], Sequence[Any]]) -> None:
    """Copy the rows without the indexes, and make these anew after it: that is faster than to keep them up."""
    indexes = [(str(name), str(made)) for name, made in run(_INDEXES[engine])]
    run("BEGIN")
    for name, _ in indexes:
        run(f"DROP INDEX {name}")
    for statement in copy_rows(engine, users):
        run(statement)
    for _, made in indexes:
        run(made)
    run("COMMIT")


@contextmanager
def store(engine: str, users: int) -> Iterator[Store]:
    """A store of so many users, and of one who has many memories."""
    with tempfile.TemporaryDirectory() as home:
        if engine == "sqlite":
            url = f"sqlite:///{home}/holdfast.db"
            with Holdfast.open(url, home=home) as holdfast:
                memory_id = fill(holdfast)
            connection = apsw.Connection(str(Path(home, "holdfast.db")))
            connection.execute("PRAGMA synchronous = OFF")
            copy_all(engine, users, lambda sql: connection.execute(sql).fetchall())
            connection.close()
            with Holdfast.open(url, home=home) as holdfast:
                fill_large(holdfast)
            yield Store(engine, home, url, memory_id, users)
            return
        with postgres(settings={"max_wal_size": "8GB", "maintenance_work_mem": "256MB"}) as server:
            url = server.new_database(tcp=True)
            with Holdfast.open(url, home=home) as holdfast:
                memory_id = fill(holdfast)
            with psycopg.connect(url, autocommit=True) as line:
                copy_all(engine, users, lambda sql: _run(line, sql))
                line.execute("SELECT setval(pg_get_serial_sequence('subjects', 'no'), (SELECT max(no) FROM subjects))")
            with Holdfast.open(url, home=home) as holdfast:
                fill_large(holdfast)
            with psycopg.connect(url, autocommit=True) as line:
                line.execute("VACUUM ANALYZE")
            yield Store(engine, home, url, memory_id, users)


def _run(line: psycopg.Connection[Any], sql: str) -> Sequence[Any]:
    asked = line.execute(sql.encode())
    return asked.fetchall() if asked.description else ()


# --- the service ------------------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """What a page came to."""

    milliseconds: float
    """Until the first byte."""
    text: str


class Service:
    """``holdfast serve`` over a store, and one browser."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self._process = process
        self._port = port

    def connect(self) -> http.client.HTTPConnection:
        """A connection that is kept."""
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)

    def busy_ms(self) -> float:
        """Processor time of the service so far."""
        spent = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(spent[11]) + int(spent[12])) * 1_000 / os.sysconf("SC_CLK_TCK")


def ask(line: http.client.HTTPConnection, path: str, body: bytes | None = None) -> Answer:
    """Ask for a page; ``RuntimeError`` if it is none."""
    began = time.perf_counter()
    line.request("GET" if body is None else "POST", path, body, {"Content-Type": "application/json"} if body else {})
    answer = line.getresponse()
    took = (time.perf_counter() - began) * 1_000
    text = answer.read().decode()
    if answer.status != 200:
        raise RuntimeError(f"{path}: {answer.status} {text[:500]}")
    return Answer(took, text)


@contextmanager
def serve(made: Store) -> Iterator[Service]:
    """The service, without its schedule."""
    port = 18_000 + os.getpid() % 10_000
    environment = {**os.environ, "HOLDFAST_HOME": made.home, "HOLDFAST_URL": made.url, "HOLDFAST_RATE_PER_SECOND": "0"}
    command = [sys.executable, "-m", "holdfast", "serve", "--port", str(port), "--no-schedule"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        service = Service(process, port)
        try:
            for _ in range(600):
                try:
                    ask(service.connect(), "/healthz")
                    break
                except OSError:
                    time.sleep(0.1)
            yield service
        finally:
            process.terminate()


# --- what is asked ----------------------------------------------------------------------------------------------------


def link(path: str, **query: object) -> str:
    """An address of the console."""
    return f"/console{path}" + (f"?{urlencode(query)}" if query else "")


def pages(made: Store, line: http.client.HTTPConnection) -> dict[str, tuple[str, Callable[[int], str]]]:
    """What is asked, by its name, with the limit that it has."""

    def go_deep(user: str) -> str:
        path = link("/memories", user_id=user)
        for _ in range(3):
            found = re.search(r'rel="next" href="([^"]*)"', ask(line, path).text)
            path = unescape(found[1]) if found else path
        return path

    deep = {number * 7 % made.users: go_deep(made.user(number * 7)) for number in range(ROUNDS + 1)}
    large_deep = go_deep(_LARGE)
    large_id = re.findall(r"memory_id=([0-9a-f-]+)", ask(line, large_deep).text)[0]
    return {
        "overview": ("overview", lambda _: link("")),
        "users": ("list", lambda _: link("/memories")),
        "memories, first page": ("list", lambda n: link("/memories", user_id=made.user(n))),
        "memories, deep page": ("list", lambda n: deep[n % made.users]),
        "memories, one agent in the bin": (
            "list",
            lambda n: link("/memories", user_id=made.user(n), agent_id="guide", state="recycled"),
        ),
        "a memory": (
            "list",
            lambda n: link("/record", user_id=made.user(n), agent_id="guide", memory_id=made.memory_id),
        ),
        "recycle bin": ("list", lambda _: link("/recycle-bin")),
        "recycle bin of a user": ("list", lambda n: link("/recycle-bin", user_id=made.user(n))),
        "sessions": ("list", lambda n: link("/sessions", user_id=made.user(n))),
        "policies": ("list", lambda _: link("/policies")),
        "holds": ("list", lambda _: link("/holds")),
        "agents": ("list", lambda _: link("/agents")),
        "backups": ("list", lambda _: link("/backups")),
        "schedule": ("list", lambda _: link("/schedule")),
        "audit": ("list", lambda _: link("/audit")),
        "audit, of a user and an action": ("list", lambda n: link("/audit", user_id=made.user(n), action="restored")),
        "erasure": ("list", lambda _: link("/erasure")),
        f"{LARGE:,} memories, first page": ("list", lambda _: link("/memories", user_id=_LARGE)),
        f"{LARGE:,} memories, deep page": ("list", lambda _: large_deep),
        f"{LARGE:,} memories, one in the bin": ("list", lambda _: link("/memories", user_id=_LARGE, state="recycled")),
        f"{LARGE:,} memories, one of them": (
            "list",
            lambda _: link("/record", user_id=_LARGE, agent_id="guide", memory_id=large_id),
        ),
        f"{LARGE:,} memories, erasure preview": ("overview", lambda _: link("/do/erase_user", user_id=_LARGE)),
    }


def rank(values: Sequence[float], percent: float) -> float:
    """The value that so many of a hundred do not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]


def measure_pages(made: Store, service: Service) -> None:
    """Print what each page takes, and weighs."""
    line, factor = service.connect(), 2 if made.engine == "postgres" else 1
    ask(line, link("/memories"))
    assets = {
        one: len(ask(line, unescape(one)).text)
        for one in re.findall(r'"(/console/static/[^"]*)"', ask(line, link("")).text)
    }
    print(f"  {'page':<36} {'p50':>9} {'p95':>9}  {'limits':>14} {'processor':>10} {'weight':>9}")
    for name, (kind, where) in pages(made, line).items():
        ask(line, where(0))
        busy = service.busy_ms()
        answers = [ask(line, where(number * 7)) for number in range(1, ROUNDS + 1)]
        busy = (service.busy_ms() - busy) / ROUNDS
        took = [one.milliseconds for one in answers]
        p50, p95 = rank(took, 50), rank(took, 95)
        most = [limit * factor for limit in LIMITS[kind]]
        weight = (max(len(one.text.encode()) for one in answers) + sum(assets.values())) / 1_000
        late = "" if p50 <= most[0] and p95 <= most[1] and weight <= MOST_KILOBYTES else "  TOO MUCH"
        print(
            f"  {name:<36} {p50:6.1f} ms {p95:6.1f} ms  {most[0]:4.0f}, {most[1]:4.0f} ms {busy:7.1f} ms "
            f"{weight:6.1f} kB{late}"
        )


def measure_recall(made: Store, service: Service) -> None:
    """Print how much slower recall is while somebody looks at pages."""
    line, asked = service.connect(), questions(RECALLS, 3)

    def recall(count: int) -> float:
        took = []
        for number in range(count):
            body = f'{{"user_id": "{made.user(number % 5)}", "agent_id": "guide", "query": "{asked[number]}"}}'
            took.append(ask(line, "/v1/recall", body.encode()).milliseconds)
        return rank(took, 99)

    over, viewer = threading.Event(), service.connect()
    shown = [where for name, (_, where) in pages(made, viewer).items()][:6]

    def look() -> None:
        number = 0
        while not over.wait(0.5):
            ask(viewer, shown[number % len(shown)](number * 7))
            number = (number + 1) % ROUNDS

    recall(200)
    idle = recall(RECALLS)
    looking = threading.Thread(target=look)
    looking.start()
    watched = recall(RECALLS)
    over.set()
    looking.join()
    late = "" if watched <= idle + MOST_ADDED_MS else "  TOO MUCH"
    said = f"idle {idle:.1f} ms, at two page views a second {watched:.1f} ms"
    print(f"  recall p99: {said}; limit + {MOST_ADDED_MS:.0f} ms{late}")


def measure(engine: str, users: int) -> None:
    """Print all of it for one engine."""
    began = time.monotonic()
    with store(engine, users) as made:
        print(f"{engine}: {users * MEMORIES:,} memories of {users:,} users, made in {time.monotonic() - began:.0f} s")
        with serve(made) as service:
            measure_pages(made, service)
            measure_recall(made, service)
        with Holdfast.open(made.url, home=made.home) as holdfast:
            start = time.perf_counter()
            holdfast.forecast(120)
            print(f"  forecast of 120 days (a job): {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else USERS
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    for which in sys.argv[2:] or ["sqlite", "postgres"]:
        measure(which, count)
