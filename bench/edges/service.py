"""The service over loopback: what it costs beside bare Starlette and beside the same calls in process; many clients.

python -m bench.edges.service               # every figure, with its limit; some three minutes on an idle machine
python -m bench.edges.service --seconds 5   # the same with shorter runs
python -m bench --only service              # the figures of docs/benchmarks.md
python -m bench.edges.service serve HOME    # the service that is measured: `holdfast serve` with one more route
python -m bench.edges.service bare          # a Starlette application of one route, as uvicorn serves it
python -m bench.edges.service calls HOME    # the same calls in process, made when somebody asks for them over a socket
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

from bench import scale
from bench.edges.clients import AGENT, Raw, adds, crowd, lost, make_request, recalls
from bench.lifecycle import Figure
from bench.speed import questions, sentences
from holdfast import Holdfast

#: So many memories does the user have whose memory is asked.
MEMORIES = 10_000
CLIENTS = 200
SECONDS = float(scale(60))
#: What clients of before got, times three.
LEAST_RATE = 660
_CROWD = 1_000
_ROUNDS = 10


def _cpu_seconds(pid: int) -> float:
    """What a process has had of the processor, with its threads that have ended: by its clock, as Linux numbers it."""
    return time.clock_gettime((~pid << 3) | 2)


# --- what is measured -------------------------------------------------------------------------------------------------


@contextmanager
def process(*arguments: str) -> Iterator[tuple[int, int]]:
    """A server that is measured, in a process of its own; its port and its id."""
    pipe, command = subprocess.PIPE, [sys.executable, "-m", *arguments]
    with tempfile.TemporaryFile() as log, subprocess.Popen(command, stdout=pipe, stderr=log, text=True) as server:
        try:
            assert server.stdout is not None
            text = ""
            while not text.rstrip().endswith("}"):
                text += server.stdout.readline()
            yield int(json.loads(text)["url"].rpartition(":")[2]), server.pid
        finally:
            server.send_signal(signal.SIGTERM)


@contextmanager
def workers(home: Path, number: int) -> Iterator[int]:
    """The service with so many workers; its port."""
    options = ("--port", "0", "--no-schedule", "--json", "--log-format", "json", "--home", str(home))
    with process("holdfast", "serve", "--workers", str(number), *options) as (port, _):
        yield port


def measure(*, clients: int = CLIENTS, seconds: float = SECONDS, memories: int = MEMORIES) -> list[Figure]:
    """Every figure."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8_192) if hard >= 0 else 8_192, hard))
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        with Holdfast.open(home=home) as holdfast:
            holdfast.quotas.set("long_term", max_memories=10**9)
            holdfast.manager("user 0", AGENT).add_many(sentences(memories, 0))
        for name in ("copy", "asked"):
            shutil.copytree(home, home / name, ignore=shutil.ignore_patterns("copy"))
        figures = _costs(home, requests=round(max(20.0, 20 * seconds)))
        figures += _two_beside_one(home, seconds=seconds / 12)
        figures += _crowd_figures(home, clients, seconds)
        figures += _crowd_figures(home, _CROWD, seconds / 6)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        shutil.rmtree(home)
    return figures


def _costs(home: Path, *, requests: int) -> list[Figure]:
    """Milliseconds of the server's CPU for each request, in turns, so that whatever disturbs the machine disturbs each
    of them; of each the best.
    """
    best: dict[str, float] = {}
    kinds: dict[str, Iterator[bytes]] = {
        "bare": cycle([make_request("/nothing")]),
        "nothing": cycle([make_request("/nothing")]),
        "add": adds(),
        "recall": recalls(),
    }
    with ExitStack() as stack:
        served = stack.enter_context(process("bench.edges.service", "serve", str(home)))
        bare = stack.enter_context(process("bench.edges.service", "bare"))
        asked_calls = stack.enter_context(process("bench.edges.service", "calls", str(home / "asked")))
        within = stack.enter_context(Holdfast.open(home=home / "copy"))
        clients = {name: Raw((bare if name == "bare" else served)[0]) for name in kinds}
        caller = Raw(asked_calls[0])
        calls = _calls(within)
        stack.enter_context(_cores(served[1], bare[1], asked_calls[1]))
        for number in range(_ROUNDS + 1):
            for name, asked in kinds.items():
                pid, many = (bare if name == "bare" else served)[1], requests
                before = _cpu_seconds(pid)
                done = clients[name].ask(asked, enough=lambda sent, many=many: sent >= many)  # type: ignore[misc]
                took = (_cpu_seconds(pid) - before) / done * 1_000
                best[name] = min(best.get(name, took), took) if number else 1e9  # the first round warms up
            for name, call in calls.items():
                took = _time_in_row(call, requests)
                best[f"{name} in a row"] = min(best.get(f"{name} in a row", took), took) if number else 1e9
                caller.ask(kinds[name], enough=lambda sent, many=requests: sent >= many)  # type: ignore[misc]
                took = caller.read(make_request(_TOOK))["seconds"] / requests * 1_000
                best[f"{name} in process"] = min(best.get(f"{name} in process", took), took) if number else 1e9
        for one in (*clients.values(), caller):
            one.close()
    return _cost_figures(best)


def _time_in_row(call: Callable[[], object], many: int) -> float:
    """Milliseconds of CPU for each of many calls in a row."""
    began = time.process_time()
    for _ in range(many):
        call()
    return (time.process_time() - began) / many * 1_000


@contextmanager
def _cores(*servers: int) -> Iterator[None]:
    """The servers have one core, and who asks them another."""
    if not hasattr(os, "sched_setaffinity") or len(all_cores := sorted(os.sched_getaffinity(0))) < 2:
        yield
        return
    for pid in servers:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), all_cores[:1])
    os.sched_setaffinity(0, all_cores[1:2])
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_cores)


def _calls(holdfast: Holdfast) -> dict[str, Callable[[], object]]:
    memory = holdfast.manager("user 0", AGENT)
    queries = cycle(questions(1_000, -1))
    contents = (f"{text} ({number})" for number, text in enumerate(cycle(sentences(1_000, -2))))  # as in _adds
    return {"add": lambda: memory.add(next(contents)), "recall": lambda: memory.retrieve(next(queries))}


def _cost_figures(best: dict[str, float]) -> list[Figure]:
    figures = [Figure(f"{name}, the server's CPU", f"{took:.3f} ms", "", None) for name, took in best.items()]
    ratio = best["bare"] / best["nothing"]
    figures.append(
        Figure("a route that does nothing, beside bare Starlette's rate", f"{ratio:.2f}×", "≥ 0.6×", ratio >= 0.6)
    )
    for name in ("add", "recall"):
        over = (best[name] - best[f"{name} in process"]) / best["bare"]
        figures.append(
            Figure(f"REST {name} less the call in process, in bare requests", f"{over:.1f}×", "≤ 3×", over <= 3)
        )
        over = (best[name] - best[f"{name} in a row"]) / best["bare"]
        figures.append(Figure(f"REST {name} less the call in a row, in bare requests", f"{over:.1f}×", "", None))
    return figures


def _two_beside_one(home: Path, *, seconds: float) -> list[Figure]:
    """Recalls a second with one worker and with two, in turns; of each the best."""
    best = dict.fromkeys((1, 2), 0.0)
    with ExitStack() as stack:
        ports = {number: stack.enter_context(workers(home, number)) for number in best}
        clients = {number: Raw(port, 32) for number, port in ports.items()}
        for number in (*best, *best, *best):
            until = time.monotonic() + seconds
            began = time.monotonic()
            done = clients[number].ask(recalls(), enough=lambda _, until=until: time.monotonic() >= until)  # type: ignore[misc]
            best[number] = max(best[number], done / (time.monotonic() - began))
        for one in clients.values():
            one.close()
    ratio = best[2] / best[1]
    return [
        Figure("recalls per second, one worker and two", f"{best[1]:,.0f} and {best[2]:,.0f}", "", None),
        Figure("two workers beside one", f"{ratio:.2f}×", "≥ 1.6×", ratio >= 1.6),
    ]


def _crowd_figures(home: Path, clients: int, seconds: float) -> list[Figure]:
    with workers(home, 2) as port:
        found = asyncio.run(crowd(port, clients=clients, seconds=seconds))
    with Holdfast.open(home=home) as holdfast:
        missing = lost(holdfast, found.written)
    print(*found.errors[:10], sep="\n", file=sys.stderr)
    at = found.latencies_ms
    p50, p99 = (at[len(at) // 2], at[len(at) * 99 // 100]) if at else (0.0, 0.0)
    rate, what = found.requests / found.seconds, f"{clients:,} clients, 2 workers"
    is_held = clients == CLIENTS
    return [
        Figure(f"{what}: requests per second", f"{rate:,.0f}", f"≥ {LEAST_RATE}" if is_held else "",
               rate >= LEAST_RATE if is_held else None),
        Figure(f"{what}: p50 and p99", f"{p50:,.0f} ms, {p99:,.0f} ms", "", None),
        Figure(f"{what}: errors in {found.requests:,} requests", f"{len(found.errors)}", "none", not found.errors),
        Figure(f"{what}: told to come back (HOLDFAST_REQUESTS_AT_ONCE)", f"{found.refused:,}", "", None),
        Figure(f"{what}: writes lost of {len(found.written):,}", f"{len(missing)}", "none", not missing),
    ]  # fmt: skip


# --- what serves ------------------------------------------------------------------------------------------------------


def serve(home: Path) -> None:
    """What is measured: the service, with one more route, which does nothing."""
    from holdfast.edges.service.limits import Limits
    from holdfast.edges.service.logs import LogFormat, install_logs
    from holdfast.edges.service.run import build_api, build_service

    with Holdfast.open(home=home) as holdfast, (home / "log").open("w") as log:
        api = build_api(holdfast, keys_required=False)
        api.add_route("/nothing", _nothing)
        install_logs(LogFormat.JSON, log)
        gc.freeze()  # as `holdfast serve` does
        one = build_service(api, holdfast, limits=Limits.of(holdfast.settings), keys_required=False)
        _run(one, one.limit.finish)


def serve_bare() -> None:
    """What it is held against: Starlette as uvicorn serves it by its fastest means (uvloop, httptools, no log)."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.routing import Route

    from holdfast.edges.service.server import listen

    with listen("127.0.0.1", 0) as listener:
        app = Starlette(routes=[Route("/nothing", _nothing)])
        # As long as ours keeps a connection that nobody uses: it is asked in turns with others.
        fast = uvicorn.Config(
            app, loop="uvloop", http="httptools", access_log=False, log_config=None, timeout_keep_alive=75
        )
        _announce(listener)  # who connects before it has begun waits
        uvicorn.Server(fast).run(sockets=[listener])


_TOOK = "/took"


def serve_calls(home: Path) -> None:
    """The same calls in process, as a server makes them: when a client asks, on a core that has waited for it while the
    client is at work on another. Only the calls are timed; asked for what they took, it says so and begins anew.
    """
    from holdfast.edges.service.server import listen

    with Holdfast.open(home=home) as holdfast, listen("127.0.0.1", 0) as listener:
        memory = holdfast.manager("user 0", AGENT)
        gc.freeze()  # as the service does
        _announce(listener)
        one, _ = listener.accept()
        took = 0.0
        while head := one.recv(65_536):
            path, body = head.split(b" ", 2)[1], head.partition(b"\r\n\r\n")[2]
            said = b"{}"
            if path == _TOOK.encode():
                said, took = json.dumps({"seconds": took}).encode(), 0.0
            else:
                asked = json.loads(body)
                began = time.process_time()
                memory.add(asked["content"]) if "content" in asked else memory.retrieve(asked["query"])
                took += time.process_time() - began
            one.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(said) + said)


async def _nothing(_request: Any) -> Any:
    from starlette.responses import JSONResponse

    return JSONResponse({})


def _run(app: Any, finish: Callable[[], Awaitable[None]]) -> None:
    from holdfast.edges.service.server import Server, listen

    with listen("127.0.0.1", 0) as listener:
        server = Server(listener, stop_seconds=20)
        server.run(app, started=lambda: _announce(listener), stop=lambda: None, finish=finish)


def _announce(listener: socket.socket) -> None:
    print(json.dumps({"url": f"http://127.0.0.1:{listener.getsockname()[1]}"}), flush=True)


def main() -> None:
    """Measure and print; exit code 1 where a limit is not held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help="serve HOME, calls HOME, or bare: a server that is measured")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long the 200 clients ask")
    parser.add_argument("--memories", type=int, default=MEMORIES, help="of the user who is asked")
    asked = parser.parse_args()
    if asked.what[:1] == ["serve"]:
        serve(Path(asked.what[1]))
    elif asked.what[:1] == ["calls"]:
        serve_calls(Path(asked.what[1]))
    elif asked.what == ["bare"]:
        serve_bare()
    else:
        figures = measure(seconds=asked.seconds, memories=asked.memories)
        for name, value, target, met in figures:
            print(f"{name:70} {value:>20}  {target:8} {'' if met is None else 'met' if met else 'MISSED'}")
        sys.exit(any(figure.met is False for figure in figures))


if __name__ == "__main__":
    main()
