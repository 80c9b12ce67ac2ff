"""Statements that nobody waits for any more are cancelled, where they run: on the server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg

from holdfast.core.clock import current_deadline

#: How long it may take to reach the server with the wish to cancel.
_SECONDS: Final = 5.0


@contextmanager
def cancelled_in_time(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """What the block asks the server is cancelled when the deadline of the work at hand passes."""
    deadline = current_deadline()
    if deadline is None:
        yield
        return
    cancel = _Cancel(connection)
    try:
        with deadline.stopped_by(cancel):
            yield
    finally:
        cancel.end()
    deadline.check()


class _Cancel:
    """Cancels what one connection is at. A connection that was told to cancel is not used again: the wish may reach the
    server late, and would meet another's statement.
    """

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._ended = False
        self._sent = False

    def __call__(self) -> None:
        """Send the wish, from a thread of its own."""
        threading.Thread(target=self._send, name="holdfast-cancel", daemon=True).start()

    def _send(self) -> None:
        with self._lock:
            if self._ended:
                return
            self._sent = True
            with suppress(psycopg.Error):  # a server that is not reached ends the statement with its connection
                self._connection.cancel_safe(timeout=_SECONDS)

    def end(self) -> None:
        """From here on nothing is cancelled."""
        with self._lock:
            self._ended = True
            if self._sent:
                self._connection.close()
