"""Clients of a service that is measured: many at once, and one that costs next to nothing."""

from __future__ import annotations

import asyncio
import json
import selectors
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import count, cycle
from typing import Any, NamedTuple

from bench.speed import questions, sentences
from holdfast import Holdfast
from holdfast.core.errors import NotFoundError

AGENT = "bench"
_HEAD = "{} {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


class Connection:
    """One client: a connection that is kept, one request at a time. It costs little, since that is measured as well."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.refused = 0
        """How often it was told to come back later."""

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The status and the document that a request is answered with."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        sent = b"" if body is None else json.dumps(body).encode()
        writer.write(_HEAD.format(method, path, len(sent)).encode() + sent)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0])
        said = json.loads(await reader.readexactly(length))
        if b"connection: close" in head:
            self.close()
        return int(head[9:12]), said

    async def add(self, user_id: str, content: str) -> str:
        """A memory's id; ``RuntimeError`` if it was not taken."""
        body = {"user_id": user_id, "agent_id": AGENT, "content": content}
        said = await self._fine("POST", "/v1/memories", body)
        return str(said["memory_id"])

    async def recall(self, user_id: str, query: str) -> Any:
        """What is found."""
        return await self._fine("POST", "/v1/recall", {"user_id": user_id, "agent_id": AGENT, "query": query})

    async def _fine(self, method: str, path: str, body: Any = None) -> Any:
        while True:
            status, said = await self.ask(method, path, body)
            if 200 <= status < 300:
                return said
            if said.get("code") != "rate_limited":
                raise RuntimeError(f"{method} {path}: {status} {said}")
            self.refused += 1  # a limit that is stated; it says to come back
            await asyncio.sleep(0.2)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Crowd(NamedTuple):
    """What many clients at once came to."""

    requests: int
    errors: list[str]
    written: list[tuple[str, str]]
    """The user and the id of every memory that was taken."""
    latencies_ms: list[float]
    seconds: float
    refused: int
    """How often a client was told to come back later."""


async def crowd(port: int, *, clients: int, seconds: float) -> Crowd:
    """So many clients at once, each with a user of its own: adds, recalls, and so on until the time is over."""
    written: list[tuple[str, str]] = []
    errors: list[str] = []
    latencies: list[float] = []
    connections = [Connection(port) for _ in range(clients)]
    began = time.monotonic()

    async def timed(asked: Awaitable[Any]) -> Any:
        start = time.perf_counter()
        said = await asked
        latencies.append((time.perf_counter() - start) * 1_000)
        return said

    async def live(number: int, connection: Connection) -> None:
        user, contents = f"client {number}", sentences(50, number)
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

    await asyncio.gather(*(live(*one) for one in enumerate(connections)))
    refused = sum(one.refused for one in connections)
    return Crowd(len(latencies), errors, written, sorted(latencies), time.monotonic() - began, refused)


def lost(holdfast: Holdfast, written: Sequence[tuple[str, str]]) -> list[str]:
    """The memories that were taken and are not there."""
    missing = []
    for user, memory_id in written:
        try:
            holdfast.manager(user, AGENT).get(memory_id)
        except NotFoundError:
            missing.append(memory_id)
    return missing


# --- a client that costs next to nothing ------------------------------------------------------------------------------


class Raw:
    """Some connections to a service, as sockets; each sends its next request when it has its answer."""

    def __init__(self, port: int, connections: int = 1) -> None:
        self._sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]

    def ask(self, requests: Iterator[bytes], *, enough: Callable[[int], bool]) -> int:
        """Send requests until there were enough; how many were answered."""
        done = sent = 0
        with selectors.DefaultSelector() as selector:
            for one in self._sockets:
                selector.register(one, selectors.EVENT_READ, one)
                one.sendall(next(requests))
                sent += 1
            while done < sent:
                for key, _ in selector.select():
                    asked: socket.socket = key.data
                    _read_answer(asked)
                    done += 1
                    if not enough(sent):
                        asked.sendall(next(requests))
                        sent += 1
        return done

    def read(self, request: bytes) -> Any:
        """The document that one request is answered with."""
        self._sockets[0].sendall(request)
        return json.loads(_read_answer(self._sockets[0]))

    def close(self) -> None:
        for one in self._sockets:
            one.close()


def _read_answer(one: socket.socket) -> bytes:
    got = _receive(one)
    while b"\r\n\r\n" not in got:
        got += _receive(one)
    head, _, body = got.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 2"):
        raise RuntimeError(got.decode(errors="replace"))
    length = int(head.lower().split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0])
    while len(body) < length:
        body += _receive(one)
    return body


def _receive(one: socket.socket) -> bytes:
    if not (some := one.recv(65_536)):
        raise RuntimeError("the service ended the connection")
    return some


def make_request(path: str, body: Any = None) -> bytes:
    """A request as it is sent."""
    sent = b"" if body is None else json.dumps(body).encode()
    return _HEAD.format("GET" if body is None else "POST", path, len(sent)).encode() + sent


def adds() -> Iterator[bytes]:
    """Requests that add, without end."""
    texts = cycle(sentences(1_000, -2))
    for number in count():
        body = {"user_id": "user 0", "agent_id": AGENT, "content": f"{next(texts)} ({number})"}
        yield make_request("/v1/memories", body)


def recalls() -> Iterator[bytes]:
    """Requests that recall, without end."""
    for query in cycle(questions(1_000, -1)):
        yield make_request("/v1/recall", {"user_id": "user 0", "agent_id": AGENT, "query": query})
