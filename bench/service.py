"""The service over loopback: REST ``add`` and ``recall`` beside a route that does nothing; 200 clients for a minute.

python -m bench --only service              # the figures of docs/benchmarks.md
python -m bench.service serve HOME          # the service that is measured: as `holdfast serve`, with one more route
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.lifecycle import Figure
from bench.speed import questions, sentences
from holdfast import Holdfast
from holdfast.core.errors import NotFoundError

#: So many memories does the user have whose memory is asked.
MEMORIES = 10_000
CLIENTS = 200
SECONDS = 60.0
_RATE_CLIENTS = 8
_ROUNDS = 3
_AGENT = "bench"
_HEAD = "{} {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


class Connection:
    """One client: a connection that is kept, one request at a time. It costs little, since that is measured as well."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The status and the document that a request is answered with."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        sent = b"" if body is None else json.dumps(body).encode()
        writer.write(_HEAD.format(method, path, len(sent)).encode() + sent)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0])
        return int(head[9:12]), json.loads(await reader.readexactly(length))

    async def add(self, user_id: str, content: str) -> str:
        """A memory's id; ``RuntimeError`` if it was not taken."""
        body = {"user_id": user_id, "agent_id": _AGENT, "content": content}
        said = await self._fine("POST", "/v1/memories", body)
        return str(said["memory_id"])

    async def recall(self, user_id: str, query: str) -> Any:
        """What is found."""
        return await self._fine("POST", "/v1/recall", {"user_id": user_id, "agent_id": _AGENT, "query": query})

    async def nothing(self) -> None:
        """The route that does nothing."""
        await self._fine("GET", "/nothing")

    async def _fine(self, method: str, path: str, body: Any = None) -> Any:
        status, said = await self.ask(method, path, body)
        if not 200 <= status < 300:
            raise RuntimeError(f"{method} {path}: {status} {said}")
        return said

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


class Crowd(NamedTuple):
    """What many clients at once came to."""

    requests: int
    errors: list[str]
    written: list[tuple[str, str]]
    """The user and the id of every memory that was taken."""
    latencies_ms: list[float]
    seconds: float


async def crowd(port: int, *, clients: int, seconds: float) -> Crowd:
    """So many clients at once, each with a user of its own: adds, recalls, and so on until the time is over."""
    written: list[tuple[str, str]] = []
    errors: list[str] = []
    latencies: list[float] = []
    began = time.monotonic()

    async def timed(asked: Awaitable[Any]) -> Any:
        start = time.perf_counter()
        said = await asked
        latencies.append((time.perf_counter() - start) * 1_000)
        return said

    async def live(number: int) -> None:
        connection, user = Connection(port), f"client {number}"
        contents = sentences(50, number)
        try:
            turn = 0
            while time.monotonic() - began < seconds:
                content = f"{contents[turn % len(contents)]} ({turn})"
                written.append((user, await timed(connection.add(user, content))))
                found = await timed(connection.recall(user, content))
                if not found["items"]:
                    errors.append(f"{user} found nothing right after a write")
                turn += 1
        except (RuntimeError, OSError, EOFError, KeyError, ValueError) as problem:
            errors.append(f"{user}: {type(problem).__name__}: {problem}")
        finally:
            connection.close()

    await asyncio.gather(*map(live, range(clients)))
    return Crowd(len(latencies), errors, written, sorted(latencies), time.monotonic() - began)


def lost(holdfast: Holdfast, written: Sequence[tuple[str, str]]) -> list[str]:
    """The memories that were taken and are not there."""
    missing = []
    for user, memory_id in written:
        try:
            holdfast.manager(user, _AGENT).get(memory_id)
        except NotFoundError:
            missing.append(memory_id)
    return missing


async def rate(port: int, ask: Callable[[Connection, int], Awaitable[Any]], *, seconds: float) -> float:
    """Requests per second, by eight clients."""
    done = 0
    began = time.monotonic()

    async def live(number: int) -> None:
        nonlocal done
        connection, turn = Connection(port), 0
        while time.monotonic() - began < seconds:
            await ask(connection, number * 10_000 + turn)
            done, turn = done + 1, turn + 1
        connection.close()

    await asyncio.gather(*map(live, range(_RATE_CLIENTS)))
    return done / (time.monotonic() - began)


@contextmanager
def service(home: Path) -> Iterator[int]:
    """The service that is measured, in a process of its own; its port."""
    command = [sys.executable, "-m", "bench.service", "serve", str(home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.send_signal(signal.SIGTERM)


def measure(*, clients: int = CLIENTS, seconds: float = SECONDS, memories: int = MEMORIES) -> list[Figure]:
    """Every figure."""
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        with Holdfast.open(home=home) as holdfast:
            holdfast.quotas.set("long_term", max_memories=10**9)
            holdfast.manager("user 0", _AGENT).add_many(sentences(memories, 0))
        with service(home) as port:
            figures = _rates(port, seconds=seconds / 12)
            found = asyncio.run(crowd(port, clients=clients, seconds=seconds))
        with Holdfast.open(home=home) as holdfast:
            missing = lost(holdfast, found.written)
    finally:
        shutil.rmtree(home)
    return [*figures, *_crowd_figures(found, missing, clients)]


def _rates(port: int, *, seconds: float) -> list[Figure]:
    """In turns, so that whatever disturbs the machine disturbs each of them; of each the best."""
    queries, contents = questions(1_000, -1), sentences(1_000, -2)
    asks: dict[str, Callable[[Connection, int], Awaitable[Any]]] = {
        "nothing": lambda connection, _: connection.nothing(),
        "add": lambda connection, n: connection.add("user 0", f"{contents[n % 1_000]} ({n})"),
        "recall": lambda connection, n: connection.recall("user 0", queries[n % 1_000]),
    }
    best = dict.fromkeys(asks, 0.0)
    for _ in range(_ROUNDS):
        for name, ask in asks.items():
            best[name] = max(best[name], asyncio.run(rate(port, ask, seconds=seconds)))
    nothing = best["nothing"]
    return [
        Figure("floor: a route that does nothing, per second", f"{nothing:,.0f}", "", None),
        Figure("REST add long_term, durable, per second", f"{best['add']:,.0f}", "", None),
        Figure("REST recall, hybrid, warm, per second", f"{best['recall']:,.0f}", "", None),
        Figure("REST add, multiple of the floor's time", f"{nothing / best['add']:.2f}×", "", None),
        Figure("REST recall, multiple of the floor's time", f"{nothing / best['recall']:.2f}×", "", None),
    ]


def _crowd_figures(found: Crowd, missing: Sequence[str], clients: int) -> list[Figure]:
    print(*found.errors[:10], sep="\n", file=sys.stderr)
    at = found.latencies_ms
    p50, p99 = (at[len(at) // 2], at[len(at) * 99 // 100]) if at else (0.0, 0.0)
    return [
        Figure(f"{clients} clients at once, requests per second", f"{found.requests / found.seconds:,.0f}", "", None),
        Figure(f"{clients} clients at once, p50 and p99", f"{p50:,.0f} ms, {p99:,.0f} ms", "", None),
        Figure(f"{clients} clients, errors in {found.requests:,} requests", f"{len(found.errors)}", "none",
               not found.errors),
        Figure(f"{clients} clients, writes lost of {len(found.written):,}", f"{len(missing)}", "none", not missing),
    ]  # fmt: skip


def serve(home: Path) -> None:
    """What is measured: the service, with one more route, which does nothing."""
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response

    from holdfast.edges.service.limits import Limits
    from holdfast.edges.service.logs import LogFormat, install_logs
    from holdfast.edges.service.run import build_api, build_service
    from holdfast.edges.service.server import Server, listen

    def nothing(_request: Request) -> Response:
        return JSONResponse({})

    with Holdfast.open(home=home) as holdfast, listen("127.0.0.1", 0) as listener, (home / "log").open("w") as log:
        api = build_api(holdfast, keys_required=False)
        api.add_route("/nothing", nothing)
        install_logs(LogFormat.JSON, log)
        one = build_service(api, holdfast, limits=Limits.of(holdfast.settings), keys_required=False)
        port = listener.getsockname()[1]
        Server(listener, stop_seconds=20).run(
            one.app, started=lambda: print(port, flush=True), stop=lambda: None, finish=one.limit.finish
        )


if __name__ == "__main__":
    serve(Path(sys.argv[2]))
