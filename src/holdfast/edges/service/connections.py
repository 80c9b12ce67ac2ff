"""Connections: how many there are at once, and how long one may take to say what it wants.

A caller who sends half of a request's head, or reads nothing of an answer, is not waited for. There are fewer
connections than the process may have files open, so that the store always gets the files that it needs. Where all
places are taken, the connection that has had no request for the longest time is closed for the new one; where all of
them are at work, the new one is refused for now.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.auto import AutoHTTPProtocol

_log = logging.getLogger("holdfast.connections")
#: How long a caller may take to read what was sent before it is given up.
STALLED_SECONDS: Final = 60.0
#: Files that are not connections: the store's, at least so many, or a quarter of what the process may open.
_OTHER_FILES: Final = 128
_LEAST: Final = 8
_TOO_SLOW: Final = (
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"  # of a head that never ended
)
_FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def most_connections(wanted: int) -> int:
    """How many connections there may be: as many as are wanted, if the process may have enough files open."""
    try:
        import resource  # noqa: PLC0415 - Windows has none, and no such limit
    except ImportError:
        return wanted
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return wanted
    return max(_LEAST, min(wanted, files - max(_OTHER_FILES, files // 4)))


class Connections:
    """The connections of one server. Used in its loop only."""

    def __init__(self, most: int, *, head_seconds: float, stalled_seconds: float = STALLED_SECONDS) -> None:
        self.most = most
        self.head_seconds = head_seconds
        self.stalled_seconds = stalled_seconds
        self.refused = 0
        self._busy: set[_Connection] = set()
        self._idle: dict[_Connection, None] = {}  # the one that has had no request for the longest time first

    def __len__(self) -> int:
        return len(self._busy) + len(self._idle)

    def admit(self, one: _Connection) -> bool:
        """Whether there is a place for a new connection; if need be, that of an idle one."""
        if len(self) >= self.most:
            self.refused += 1
            _log.warning(
                "all %d connections are taken: idle ones are closed, and new ones refused (HOLDFAST_CONNECTIONS)",
                self.most,
            )
            if not self._idle:
                return False
            oldest = next(iter(self._idle))
            self.forget(oldest)
            oldest.close()
        self._idle[one] = None
        return True

    def note(self, one: _Connection, *, busy: bool) -> None:
        """A connection has a request, or has none any more."""
        if busy and one in self._idle:
            del self._idle[one]
            self._busy.add(one)
        elif not busy and one in self._busy:
            self._busy.discard(one)
            self._idle[one] = None

    def forget(self, one: _Connection) -> None:
        """A connection is no more."""
        self._busy.discard(one)
        self._idle.pop(one, None)

    def protocol(self) -> type[asyncio.Protocol]:
        """The protocol of connections that are counted here."""
        return type("Connection", (_Connection,), {"all": self})


_Base: Any = AutoHTTPProtocol


class _Connection(_Base):  # type: ignore[misc]  # whichever parser uvicorn finds
    """A connection: as uvicorn has it, with a limit on how long a head may take to arrive and an answer to be read."""

    all: ClassVar[Connections]

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._refused = False
        self._has_data = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        if not self.all.admit(self):
            self._refused = True
            transport.write(_FULL)
            transport.close()
            return
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._has_data = True
        super().data_received(data)
        self._note()

    def on_response_complete(self) -> None:
        self._has_data = False
        super().on_response_complete()
        self._note()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._refused:
            return
        self.all.forget(self)
        self._stop_waiting()
        self._go_on()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stall_timer is None:
            self._stall_timer = self.loop.call_later(self.all.stalled_seconds, self._give_up)

    def resume_writing(self) -> None:
        self._go_on()
        super().resume_writing()

    def close(self) -> None:
        """End the connection, which has no request."""
        self._stop_waiting()
        self.transport.close()

    # --- within -------------------------------------------------------------------------------------------------------

    def _note(self) -> None:
        busy = self.cycle is not None and not self.cycle.response_complete
        if self.transport.is_closing():
            return
        self.all.note(self, busy=busy)
        if busy:
            self._stop_waiting()
        elif self._has_data and self._head_timer is None:
            self._await_head()

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self.all.head_seconds, self._end_slow)

    def _end_slow(self) -> None:
        _log.warning(
            "a connection was closed: no request came within %g s (HOLDFAST_HEAD_SECONDS)", self.all.head_seconds
        )
        self._head_timer = None
        if self._has_data:
            self.transport.write(_TOO_SLOW)
        self.transport.close()

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        _log.warning("a connection was closed: nothing of its answer was read for %g s", self.all.stalled_seconds)
        self._stall_timer = None
        self.transport.abort()

    def _go_on(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
