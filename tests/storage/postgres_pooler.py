"""A pooler as PgBouncer before 1.21 is with ``pool_mode = transaction``: its clients share a few connections to the
server, each for a transaction at a time, and it knows nothing of prepared statements.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue
from select import select

from psycopg.conninfo import conninfo_to_dict

from storage.wire import listening

_IDLE = b"I"
#: What the server answers with its status: a query, and a sync.
_ENDS = (b"Q", b"S")


class Pooler:
    """Connections to a server, of which the one that was unused for longest goes to the next transaction."""

    def __init__(self, path: str, user: str, database: str, connections: int = 3) -> None:
        words = b"\0".join([b"user", user.encode(), b"database", database.encode(), b"", b""])
        self._free: Queue[socket.socket] = Queue()
        self._all = [socket.socket(socket.AF_UNIX) for _ in range(connections)]
        for server in self._all:
            server.connect(path)
            server.sendall(struct.pack("!II", len(words) + 8, 196_608) + words)
            self._greeting = b"".join(_until_ready(server))
            self._free.put(server)

    def close(self) -> None:
        for server in self._all:
            server.close()

    def serve(self, client: socket.socket) -> None:
        """Greet a client as the server greeted us, then hand on its messages, a transaction at a time."""
        (length,) = struct.unpack("!I", _exactly(client, 4))
        _exactly(client, length - 4)
        client.sendall(self._greeting)
        while (message := _message(client))[:1] != b"X":
            server = self._free.get()
            try:
                _hand_on(client, server, message)
            finally:
                self._free.put(server)


def _hand_on(client: socket.socket, server: socket.socket, message: bytes) -> None:
    """Hand on messages both ways until the transaction that the first one begins is over."""
    server.sendall(message)
    unanswered = int(message[:1] in _ENDS)
    status = b""
    while unanswered or status != _IDLE:
        ready, _, _ = select([server, client], [], [])
        if server in ready:
            message = _message(server)
            client.sendall(message)
            if message[:1] == b"Z":
                unanswered, status = unanswered - 1, message[5:6]
        else:
            message = _message(client)
            server.sendall(message)
            unanswered += message[:1] in _ENDS


def _until_ready(server: socket.socket) -> Iterator[bytes]:
    while True:
        message = _message(server)
        yield message
        if message[:1] == b"Z":
            return


def _message(source: socket.socket) -> bytes:
    head = _exactly(source, 5)
    return head + _exactly(source, struct.unpack("!I", head[1:])[0] - 4)


def _exactly(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = source.recv(count - len(data))
        if not more:
            raise ConnectionResetError
        data += more
    return data


@contextmanager
def pooled(url: str) -> Iterator[str]:
    """The URL, behind such a pooler, of a database whose own URL names its socket."""
    parts = conninfo_to_dict(url)
    user, database = str(parts["user"]), str(parts["dbname"])
    pooler = Pooler(f"{parts['host']}/.s.PGSQL.{parts['port']}", user, database)
    try:
        with listening(pooler.serve) as port:
            yield f"postgresql://{user}@127.0.0.1:{port}/{database}?sslmode=disable&gssencmode=disable"
    finally:
        pooler.close()
