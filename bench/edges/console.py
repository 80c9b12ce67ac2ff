"""How long the pages of the console take in a store of many memories: over HTTP, to the first byte, and their weight.

``python -m bench --only console`` makes a store of 1,000,000 memories of 1,000 users on each engine, and one user who
has 100,000, and writes what it finds to ``docs/benchmarks.md``; ``python -m bench.edges.console 100 sqlite`` prints it,
for 100 users on one engine. One user is made by the verbs; the others are copies of their rows. Beside each figure
stands its limit; the service is a process of its own.
"""

from __future__ import annotations

import hashlib
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
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import apsw
import psycopg

from bench import scale
from bench.servers import postgres
from bench.speed import questions, sentences
from holdfast import Holdfast
from holdfast.core import chain
from holdfast.core.records import COUNT_BITS, KIND_BITS
from holdfast.storage.catalog import table_of

USERS: Final = 1_000
#: Of each user; and of the one who has many.
MEMORIES: Final = 1_000
LARGE: Final = scale(100_000)
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


def write_chains(
    users: int, run: Callable[[str], Sequence[Any]], write: Callable[[str, Sequence[Any]], object]
) -> None:
    """The audit chains of the other users: the template's entries, under numbers and hashes of their own."""
    ((number, alias),) = run("SELECT no, alias FROM subjects WHERE subject = 'default/user'")
    ((first,),) = run(f"SELECT floor_hash FROM chains WHERE subject = {number}")  # noqa: S608 - a number of our own
    said = run(f"SELECT no, seq, at, item, last_item, entry FROM audit WHERE subject = {number} ORDER BY seq")  # noqa: S608
    entries, heads, aliases = [], [], []
    for other in range(1, users):
        own, last, seq = hashlib.sha256(str(other).encode()).digest()[:16], bytes(first), 0
        for no, seq, *about, entry in said:
            place = no + other * len(said)
            text = entry.replace(f'"{bytes(alias).hex()}","no":{no},', f'"{own.hex()}","no":{place},')
            last = chain.link(last, text)
            entries.append((place, number + other, seq, *about, text, last))
        heads.append((number + other, seq, last, 0, first))
        aliases.append((own, number + other))
    write(
        "INSERT INTO audit (no, subject, seq, at, item, last_item, entry, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        entries,
    )
    write("INSERT INTO chains (subject, seq, hash, floor, floor_hash) VALUES (?, ?, ?, ?, ?)", heads)
    write("UPDATE subjects SET alias = ? WHERE no = ?", aliases)


def copy_all(
    engine: str, users: int, run: Callable[[str], Sequence[Any]], write: Callable[[str, Sequence[Any]], object]
) -> None:
    """Copy the rows without the indexes, and make these anew after it: that is faster than to keep them up."""
    indexes = [(str(name), str(made)) for name, made in run(_INDEXES[engine])]
    run("BEGIN")
    for name, _ in indexes:
        run(f"DROP INDEX {name}")
    for statement in copy_rows(engine, users):
        run(statement)
    write_chains(users, run, write)
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
            copy_all(engine, users, lambda sql: connection.execute(sql).fetchall(), connection.executemany)
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
                copy_all(engine, users, partial(_run, line), partial(_write, line))
                line.execute("SELECT setval(pg_get_serial_sequence('subjects', 'no'), (SELECT max(no) FROM subjects))")
            with Holdfast.open(url, home=home) as holdfast:
                fill_large(holdfast)
            with psycopg.connect(url, autocommit=True) as line:
                line.execute("VACUUM ANALYZE")
            yield Store(engine, home, url, memory_id, users)


def _run(line: psycopg.Connection[Any], sql: str) -> Sequence[Any]:
    asked = line.execute(sql.encode())
    return asked.fetchall() if asked.description else ()


def _write(line: psycopg.Connection[Any], sql: str, rows: Sequence[Any]) -> None:
    line.cursor().executemany(sql.replace("?", "%s").encode(), rows)


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
    }


def rank(values: Sequence[float], percent: float) -> float:
    """The value that so many of a hundred do not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]


class Figure(NamedTuple):
    """What a page took on an engine, beside what it may take."""

    name: str
    p50: float
    p95: float
    limits: tuple[float, float]
    processor: float
    """Milliseconds of the service's processor time."""
    kilobytes: float

    @property
    def met(self) -> bool:
        """Whether it is within its limits."""
        return self.p50 <= self.limits[0] and self.p95 <= self.limits[1] and self.kilobytes <= MOST_KILOBYTES


class Measured(NamedTuple):
    """What was measured on an engine."""

    engine: str
    pages: list[Figure]
    recall: tuple[float, float]
    """The 99th percentile of recall in the same process, in milliseconds: idle, and at two page views a second."""
    jobs: dict[str, float]
    """How many seconds jobs took."""

    @property
    def is_recall_met(self) -> bool:
        """Whether page views slow recall down by no more than they may."""
        return self.recall[1] <= self.recall[0] + MOST_ADDED_MS


def measure_pages(made: Store, service: Service) -> Iterator[Figure]:
    """What each page takes, and weighs."""
    line, factor = service.connect(), 2 if made.engine == "postgres" else 1
    ask(line, link("/memories"))
    assets = {
        one: len(ask(line, unescape(one)).text)
        for one in re.findall(r'"(/console/static/[^"]*)"', ask(line, link("")).text)
    }
    for name, (kind, where) in pages(made, line).items():
        ask(line, where(0))
        busy = service.busy_ms()
        answers = [ask(line, where(number * 7)) for number in range(1, ROUNDS + 1)]
        busy = (service.busy_ms() - busy) / ROUNDS
        took = [one.milliseconds for one in answers]
        weight = (max(len(one.text.encode()) for one in answers) + sum(assets.values())) / 1_000
        p50, p95 = LIMITS[kind]
        yield Figure(name, rank(took, 50), rank(took, 95), (p50 * factor, p95 * factor), busy, weight)


def measure_recall(made: Store, service: Service) -> tuple[float, float]:
    """The 99th percentile of recall, in milliseconds: while nobody looks at pages, and while somebody does."""
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
    return idle, watched


def measure_jobs(made: Store) -> dict[str, float]:
    """How many seconds those jobs take that only look."""
    taken = {}
    with Holdfast.open(made.url, home=made.home) as holdfast:
        jobs: dict[str, Callable[[], object]] = {
            "forecast of 120 days": lambda: holdfast.forecast(120),
            f"what erasing {LARGE:,} memories would remove": lambda: holdfast.preview_erasure(_LARGE),
        }
        for name, run in jobs.items():
            start = time.perf_counter()
            run()
            taken[name] = time.perf_counter() - start
    return taken


def measure(users: int = USERS, engines: Sequence[str] = ("sqlite", "postgres")) -> Iterator[Measured]:
    """All of it on each engine, printed as it comes."""
    for engine in engines:
        began = time.monotonic()
        with store(engine, users) as made:
            print(
                f"{engine}: {users * MEMORIES:,} memories of {users:,} users, made in {time.monotonic() - began:.0f} s"
            )
            with serve(made) as service:
                found = []
                print(f"  {'page':<36} {'p50':>9} {'p95':>9}  {'limits':>14} {'processor':>10} {'weight':>9}")
                for one in measure_pages(made, service):
                    found.append(one)
                    print(
                        f"  {one.name:<36} {one.p50:6.1f} ms {one.p95:6.1f} ms  {one.limits[0]:4.0f}, "
                        f"{one.limits[1]:4.0f} ms {one.processor:7.1f} ms {one.kilobytes:6.1f} kB"
                        + ("" if one.met else "  TOO MUCH")
                    )
                measured = Measured(engine, found, measure_recall(made, service), measure_jobs(made))
            late = "" if measured.is_recall_met else "  TOO MUCH"
            idle, watched = measured.recall
            said = f"idle {idle:.1f} ms, at two page views a second {watched:.1f} ms"
            print(f"  recall p99: {said}; limit + {MOST_ADDED_MS:.0f} ms{late}")
            for name, seconds in measured.jobs.items():
                print(f"  {name} (a job): {seconds:.2f} s")
        yield measured


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    count = int(sys.argv[1]) if len(sys.argv) > 1 else USERS
    for _ in measure(count, sys.argv[2:] or ("sqlite", "postgres")):
        pass
