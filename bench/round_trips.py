"""What round trips to PostgreSQL cost an ``add`` (with and without the statement that relies on the last write), a
``delete`` and a ``correct``.

A proxy on loopback delays every byte by half a millisecond in each direction. ``python -m bench --only round_trips``.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from urllib.parse import urlsplit, urlunsplit

import psycopg

from bench.servers import postgres
from bench.speed import PASSES, ROUNDS, Figure, least_disturbed, sentences, timed_together
from holdfast import Holdfast
from holdfast.storage.postgres.optimistic import Expectations

#: Seconds in each direction.
DELAY = 0.0005
_PR_SET_TIMERSLACK = 29


def measure() -> list[Figure]:
    """The milliseconds of an add over the slow line, in both ways, of a delete and a correction, which take turns."""
    with postgres(durable=True) as server, tempfile.TemporaryDirectory() as home:
        urls = [server.new_database(tcp=True) for _ in range(2)]
        with proxy(server.port) as port:
            slow = [_through(url, port) for url in urls]
            with (
                Holdfast.open(slow[0], home=Path(home, "relying")) as relying,
                Holdfast.open(slow[1], home=Path(home, "asking")) as asking,
                psycopg.connect(slow[0], autocommit=True) as line,
                psycopg.connect(urls[0], autocommit=True) as direct,
            ):
                asking.database._expectations = _NoExpectations()  # type: ignore[attr-defined]
                fresh = iter(sentences(6 * ROUNDS * PASSES, 7))
                ours, theirs = (one.manager("ann", "guide") for one in (relying, asking))
                known = sentences(4 * ROUNDS * PASSES, 8)
                ids = iter(
                    relying.manager("ben", "guide").add_many(known)["memory_ids"]
                )  # whose writes do not meet ann's
                other = relying.manager("ben", "guide")

                def one_pass() -> list[Figure]:
                    near, trip, one, two, gone, corrected = timed_together(
                        lambda _: direct.execute("SELECT 1"),
                        lambda _: line.execute("SELECT 1"),
                        lambda _: ours.add(next(fresh)),
                        lambda _: theirs.add(next(fresh)),
                        lambda _: other.delete(next(ids)),
                        lambda _: other.correct(next(ids), next(fresh)),
                    )
                    return [
                        Figure("floor: a round trip over loopback", *near, "", met=True),
                        Figure("floor: a round trip through the proxy", *trip, "", met=True),
                        Figure("add that asks first", *two, "", met=True),
                        Figure("add that relies on the last write", *one, "p50 ≤ 0.8 × that", one[0] <= 0.8 * two[0]),
                        Figure("delete", *gone, "", met=True),
                        Figure("correct", *corrected, "", met=True),
                    ]

                return least_disturbed(one_pass)


class _NoExpectations(Expectations):
    """Nothing is ever relied on."""

    def take(self, question: object) -> None:
        del question


@contextmanager
def proxy(port: int) -> Iterator[int]:
    """A process that forwards to a port of this machine, late; the port it listens on."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    child = multiprocessing.get_context("spawn").Process(target=_forward, args=(port, theirs), daemon=True)
    child.start()
    try:
        yield ours.recv()
    finally:
        child.terminate()
        child.join()


def _forward(port: int, told: Connection) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)  # sleep no longer than is asked for
    with socket.create_server(("127.0.0.1", 0)) as server:
        told.send(server.getsockname()[1])
        while True:
            peer, _ = server.accept()
            upstream = socket.create_connection(("127.0.0.1", port))
            for source, target in ((peer, upstream), (upstream, peer)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                pieces: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
                Thread(target=_receive, args=(source, pieces), daemon=True).start()
                Thread(target=_send, args=(target, pieces), daemon=True).start()


def _receive(source: socket.socket, pieces: SimpleQueue[tuple[float, bytes]]) -> None:
    data = b"first"
    while data:
        try:
            data = source.recv(1 << 16)
        except OSError:
            data = b""
        pieces.put((time.monotonic() + DELAY, data))


def _send(target: socket.socket, pieces: SimpleQueue[tuple[float, bytes]]) -> None:
    """Send each piece when its time has come; an empty one ends the connection."""
    with target, suppress(OSError):
        while True:
            due, data = pieces.get()
            if not data:
                return
            time.sleep(max(0.0, due - time.monotonic()))
            target.sendall(data)


def _through(url: str, port: int) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{port}"))
