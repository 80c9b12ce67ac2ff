"""Connections: callers who send half a request, or read nothing, are not waited for, and keep nobody out."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio.to_thread
import httpx
import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.edges.service.connections import Connections, most_connections
from holdfast.edges.service.logs import RepeatFilter
from holdfast.edges.service.server import Server, listen
from service.served import PATIENCE, served

HALF = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Sl"
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@contextmanager
def files_at_most(count: int) -> Iterator[None]:
    """What is started in the block may have so many files open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def running(connections: Connections, app: ASGIApp, *, sent_bytes: int = 0) -> Iterator[int]:
    """A server in this process; its port. The system takes about ``sent_bytes`` of what nobody reads, if that is said."""
    with listen("127.0.0.1", 0) as listener:
        if sent_bytes:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sent_bytes)
        server = Server(listener, stop_seconds=1, connections=connections)
        one = uvicorn.Server(server._config(app))

        async def nothing_left() -> None:
            """Nothing is still being done."""

        thread = threading.Thread(target=server._serve, args=(one, nothing_left), daemon=True)
        thread.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            one.should_exit = True
            thread.join(PATIENCE)


async def greet(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        for _ in range(2):
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
        return
    await PlainTextResponse("hello")(scope, receive, send)


def connect(port: int, said: bytes = b"") -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    one.sendall(said)
    return one


def read_all(one: socket.socket) -> bytes:
    """What comes until the other side closes; fails if it does not."""
    read = b""
    while some := one.recv(65_536):
        read += some
    return read


def greeted(one: socket.socket) -> bool:
    """Whether a whole answer comes."""
    read = b""
    while not read.endswith(b"hello") and (some := one.recv(65_536)):
        read += some
    return read.startswith(b"HTTP/1.1 200 ")


# --- the service ------------------------------------------------------------------------------------------------------


def test_300_half_sent_heads_with_256_files_keep_nobody_out_and_fill_no_log(tmp_path: Path) -> None:
    with ExitStack() as open_ones:
        with files_at_most(256):
            service = open_ones.enter_context(served(tmp_path / "home", "--no-schedule"))
        port = int(service.url.rpartition(":")[2])
        for _ in range(300):
            open_ones.enter_context(connect(port, HALF))
        with service.client() as client:
            for _ in range(3):
                assert client.get("/healthz").status_code == 200
            asked = {"user_id": "alice", "agent_id": "tests", "content": "Likes tea"}
            assert client.post("/v1/memories", json=asked).status_code == 201
        for _ in range(300):
            open_ones.enter_context(connect(port, HALF))
        assert httpx.get(f"{service.url}/readyz", timeout=PATIENCE, trust_env=False).status_code == 200
        assert service.end() == 0
    about = [entry for entry in service.log if entry["logger"] != "holdfast.requests"]
    full = [entry for entry in about if entry["message"].startswith("all 128 connections are taken")]
    assert len(full) == 1, "it is logged once"
    assert len(about) < 10


# --- one connection ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"", HALF, b"GET"], ids=["nothing", "half a head", "a word"])
def test_a_head_that_does_not_come_in_time_is_not_waited_for(said: bytes) -> None:
    with running(Connections(8, head_seconds=0.2), greet) as port, connect(port, said) as one:
        answer = read_all(one)
    assert answer.startswith(b"HTTP/1.1 408 ") if said else answer == b""


def test_a_head_that_comes_byte_by_byte_has_no_more_time_than_any_other() -> None:
    stop = threading.Event()
    with running(Connections(8, head_seconds=0.3), greet) as port, connect(port, HALF) as one:

        def drip() -> None:
            while not stop.wait(0.05):
                try:
                    one.sendall(b"x")
                except OSError:
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            assert read_all(one).startswith(b"HTTP/1.1 408 ")
        except ConnectionResetError:
            pass  # it was closed, and what was sent after that is answered so
        finally:
            stop.set()
            dripping.join()


def test_a_second_request_of_a_connection_is_held_to_the_same() -> None:
    with running(Connections(8, head_seconds=0.2), greet) as port, connect(port, WHOLE) as one:
        assert greeted(one)
        one.sendall(HALF)
        assert b"HTTP/1.1 408 " in read_all(one)


def test_a_connection_between_two_requests_stays_open_for_longer_than_a_head_may_take() -> None:
    with running(Connections(8, head_seconds=0.1), greet) as port, connect(port, WHOLE) as one:
        assert greeted(one)
        threading.Event().wait(0.4)
        one.sendall(WHOLE)
        assert greeted(one)


def test_who_reads_nothing_of_an_answer_is_given_up() -> None:
    ended = threading.Event()

    async def much(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await greet(scope, receive, send)
            return
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for _ in range(1_000):
                await send({"type": "http.response.body", "body": b"x" * 2**20, "more_body": True})
                if (await receive_now(receive)) == "http.disconnect":
                    return
        finally:
            ended.set()

    async def receive_now(receive: Receive) -> str:
        try:
            return str((await asyncio.wait_for(receive(), 0.001))["type"])
        except TimeoutError:
            return ""

    with running(Connections(8, head_seconds=5, stalled_seconds=0.2), much) as port, connect(port, WHOLE):
        assert ended.wait(PATIENCE), "the answer came to an end though nobody read it"


async def say_much(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with less than is held for whoever does not read, and more than the system takes with ``sent_bytes``."""
    if scope["type"] == "lifespan":
        await greet(scope, receive, send)
        return
    await PlainTextResponse(b"x" * 60_000)(scope, receive, send)


def connect_deaf(port: int, said: bytes) -> socket.socket:
    """A caller who reads nothing, and whose system takes little for it."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    one.connect(("127.0.0.1", port))
    one.sendall(said)
    return one


def count_files() -> int:
    """The files that this process has open."""
    return sum(1 for _ in Path("/dev/fd").iterdir())


def test_who_reads_nothing_of_the_last_answer_has_no_place_for_ever() -> None:
    connections = Connections(8, head_seconds=0.2, stalled_seconds=0.5)
    last = WHOLE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with running(connections, say_much, sent_bytes=4_096) as port, ExitStack() as open_ones:
        for _ in range(4):
            open_ones.enter_context(connect_deaf(port, last))
        for count in (4, 0):  # they come, and go
            until = time.monotonic() + 10
            while len(connections) != count and time.monotonic() < until:
                time.sleep(0.01)
            assert len(connections) == count


def test_who_makes_room_ends_though_it_reads_nothing() -> None:
    connections, before = Connections(4, head_seconds=30, stalled_seconds=30), count_files()
    with running(connections, say_much, sent_bytes=4_096) as port, ExitStack() as open_ones:
        for _ in range(40):
            open_ones.enter_context(connect_deaf(port, WHOLE))
            time.sleep(0.02)
        files = count_files() - before
    assert files <= 40 + 4 + 12, "those who were to make room are open"


@pytest.mark.parametrize("rest", [b"\r\n", b"0\r\n\r\n"], ids=["a stray line", "the end of a body"])
def test_what_comes_after_an_answer_and_is_no_request_is_not_answered(rest: bytes) -> None:
    chunked = b"POST /healthz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    first = chunked if rest.startswith(b"0") else WHOLE
    with running(Connections(8, head_seconds=0.2), greet) as port, connect(port, first) as one:
        assert greeted(one)
        one.sendall(rest)
        threading.Event().wait(0.5)
        one.sendall(WHOLE)
        assert greeted(one)


def test_what_was_answered_is_not_told_that_it_comes_too_late() -> None:
    large = b"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\nsome"
    with running(Connections(8, head_seconds=0.2), greet) as port, connect(port, large) as one:
        assert greeted(one)
        assert read_all(one) == b""


# --- too many ---------------------------------------------------------------------------------------------------------


def test_where_all_are_at_work_the_newest_is_told_to_come_back() -> None:
    release, inside = threading.Event(), threading.Semaphore(0)

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            inside.release()
            await anyio.to_thread.run_sync(release.wait, PATIENCE)
        await greet(scope, receive, send)

    with (
        running(Connections(2, head_seconds=5), slow) as port,
        connect(port, WHOLE) as one,
        connect(port, WHOLE) as two,
    ):
        for _ in range(2):
            assert inside.acquire(timeout=PATIENCE)
        with connect(port, b"") as three:
            refused = read_all(three)
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in refused
        release.set()
        for waiting in (one, two):
            assert greeted(waiting)


def test_where_some_are_idle_the_one_that_was_longest_so_makes_room() -> None:
    with (
        running(Connections(2, head_seconds=30), greet) as port,
        connect(port, HALF) as one,
        connect(port, WHOLE) as two,
    ):
        assert greeted(two)
        with connect(port, WHOLE) as three:
            assert greeted(three)
            assert read_all(one) == b"", "it had waited longest"
            two.sendall(WHOLE)
            assert greeted(two)


@pytest.mark.parametrize(
    ("files", "wanted", "most"), [(256, 1_000, 128), (1_024, 1_000, 768), (1_024, 100, 100), (64, 9, 8)]
)
def test_there_are_fewer_connections_than_files(files: int, wanted: int, most: int) -> None:
    with files_at_most(files):
        assert most_connections(wanted) == most


# --- the log ----------------------------------------------------------------------------------------------------------


def test_what_callers_can_bring_about_is_logged_once_a_minute_with_how_often_it_was() -> None:
    now = [0.0]
    seldom = RepeatFilter(60, lambda: now[0])

    def entry(name: str, said: str) -> logging.LogRecord:
        return logging.LogRecord(name, logging.WARNING, __file__, 1, said, (), None)

    passed = [seldom.filter(entry("uvicorn.error", "Invalid HTTP request received.")) for _ in range(1_000)]
    assert passed == [True] + 999 * [False]
    assert seldom.filter(entry("asyncio", "something else"))
    assert all(seldom.filter(entry("holdfast.requests", "request")) for _ in range(9)), "each request has its line"
    now[0] = 61.0
    later = entry("uvicorn.error", "Invalid HTTP request received.")
    assert seldom.filter(later)
    assert later.__dict__["fields"] == {"left_out": 999}
