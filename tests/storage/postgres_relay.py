"""A relay between Holdfast and PostgreSQL: it hands everything on, and can break off at any statement."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from bench.servers import PostgresServer
from psycopg.conninfo import conninfo_to_dict

from storage.wire import listening

#: What ends a statement on its way to the server: a simple query, or the Sync after an extended one.
_ENDS = frozenset(b"QS")
#: The end of a transaction that may have written.
COMMIT = b"COMMIT"
#: A transaction that is one statement.
_WHOLE = b"SELECT is_done, "
#: The end of every answer, but for one byte.
_READY = b"Z\x00\x00\x00\x05"


@dataclass
class Fuse:
    """Burns through at the n-th statement: before the server has it, or after the server has answered and nobody heard."""

    at: int
    after: bool = False
    act: Callable[[], object] = lambda: None
    """What happens to the server in that moment."""
    wanted: Callable[[bytes], bool] = lambda _statement: True
    """Which statements are counted."""
    burnt: threading.Event = field(default_factory=threading.Event)


class Relay:
    """Counts statements. A connection whose statement finds the fuse burning is broken off; others go on."""

    def __init__(self, server: PostgresServer, *, version: str | None = None) -> None:
        self.statements: list[bytes] = []
        self.fuse: Fuse | None = None
        self.open = threading.Event()
        """While it is not set, nobody gets through who is not connected yet."""
        self.open.set()
        self._path = f"{server.folder}/.s.PGSQL.{server.port}"
        self._version = version
        self._lock = threading.Lock()

    @contextmanager
    def burning(self, fuse: Fuse) -> Iterator[Fuse]:
        """With a fuse, counted from here on."""
        self.statements, self.fuse = [], fuse
        try:
            yield fuse
        finally:
            self.fuse = None

    def answer(self, peer: socket.socket) -> None:
        """One connection, to its end."""
        with socket.socket(socket.AF_UNIX) as upstream:
            self.open.wait()
            with suppress(OSError):
                upstream.connect(self._path)
                _Line(self, peer, upstream).run(self._version)

    def burns(self, statement: bytes) -> Fuse | None:
        """The fuse, if this is the statement that it burns at."""
        with self._lock:
            fuse = self.fuse
            if fuse is None or not fuse.wanted(statement):
                return None
            self.statements.append(statement)
            if len(self.statements) != fuse.at:
                return None
            fuse.burnt.set()
            return fuse


class _Line:
    """One connection."""

    def __init__(self, relay: Relay, peer: socket.socket, upstream: socket.socket) -> None:
        self._relay, self._peer, self._upstream = relay, peer, upstream
        self._swallowing: Fuse | None = None
        self._prepared: dict[bytes, bytes] = {}
        self._looks = False

    def run(self, version: str | None) -> None:
        first = self._read(4)
        (length,) = struct.unpack("!I", first)
        self._upstream.sendall(first + self._read(length - 4))
        back = threading.Thread(target=self._back, args=(version,), daemon=True)
        back.start()
        try:
            self._forth()
        finally:
            self._hang_up()
            back.join()

    def _forth(self) -> None:
        waiting = text = b""
        while True:
            head = self._read(5)
            body = self._read(struct.unpack("!I", head[1:])[0] - 4)
            waiting += head + body
            text = self._text(head[:1], body) or text
            if head[0] not in _ENDS and head[0] not in b"pX":
                continue
            fuse = self._relay.burns(text) if head[0] in _ENDS else None
            if fuse is not None and not fuse.after:
                fuse.act()
                return
            self._swallowing = fuse
            self._upstream.sendall(waiting)
            waiting = text = b""

    def _text(self, sort: bytes, body: bytes) -> bytes:
        """The statement that a message is about, if it is to be carried out; one that is prepared is remembered."""
        text = b""
        if sort == b"Q":
            text = body[:-1]
        elif sort == b"P":
            name, query, _ = body.split(b"\0", 2)
            self._prepared[name] = query
        elif sort == b"B":
            text = self._prepared.get(body.split(b"\0", 2)[1], b"")
        if text.startswith(b"BEGIN"):
            self._looks = b"READ ONLY" in text
        if text.endswith(COMMIT) or text.startswith(_WHOLE):
            return b"COMMIT of what only looked" if self._looks else COMMIT
        return text

    def _back(self, version: str | None) -> None:
        swallowed = b""
        with suppress(OSError):
            while data := self._upstream.recv(65_536):
                if version is not None:
                    data = _as_of(data, version)
                if self._swallowing is None:
                    self._peer.sendall(data)
                    continue
                swallowed += data
                if swallowed[-6:-1] == _READY:
                    self._swallowing.act()
                    break
        self._hang_up()

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._peer.recv(count - len(data))
            if not more:
                raise ConnectionError("the client is gone")
            data += more
        return data

    def _hang_up(self) -> None:
        for end in (self._peer, self._upstream):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def _as_of(data: bytes, version: str) -> bytes:
    """What a server says of itself when a connection begins, as one of another version says it."""
    start = data.find(b"server_version\0")
    if start < 5:
        return data
    end = data.index(b"\0", start + len(b"server_version\0"))
    said = b"server_version\0" + version.encode() + b"\0"
    return data[: start - 5] + b"S" + struct.pack("!I", len(said) + 4) + said + data[end + 1 :]


@contextmanager
def relayed(server: PostgresServer, url: str, *, version: str | None = None) -> Iterator[tuple[Relay, str]]:
    """A relay to a server, and the URL that leads through it to the same database."""
    relay = Relay(server, version=version)
    with listening(relay.answer) as port:
        name = conninfo_to_dict(url)["dbname"]
        yield relay, f"postgresql://{server.user}@127.0.0.1:{port}/{name}?sslmode=disable"
