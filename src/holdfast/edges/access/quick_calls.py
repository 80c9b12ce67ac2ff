"""Calls that are carried out where they come in: in the thread of the loop, while nothing else is at work.

To hand a call to a thread and to wake the loop again takes about as much of the processor as all else that a request
costs. What is quick is worth it only where it would be in others' way.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

from holdfast.core.clock import Deadline
from holdfast.core.errors import RequestTimeoutError

#: No call may take longer here; a thread that computes keeps the interpreter from the loop for as long.
MAX_SECONDS: Final = 0.005
#: So much of the time, and at once so many seconds, may go to calls that took longer.
_SHARE: Final = 0.1
_CREDIT_SECONDS: Final = 10 * MAX_SECONDS
_T = TypeVar("_T")


class QuickCalls:
    """Carries a call out at once, if that keeps nobody waiting.

    There is one at each turn of the loop, and none while a thread is at work. One that takes too long is stopped before
    it has changed anything: it is for a thread then. A write that has begun goes on to its end, however slow the disk
    is. Where such calls have had more than a tenth of the time, there is none for a while.
    """

    def __init__(self, is_idle: Callable[[], bool], now: Callable[[], float] = time.monotonic) -> None:
        self._is_idle, self._now = is_idle, now
        self._had_turn = False
        self._credit, self._credited_at = _CREDIT_SECONDS, now()

    def attempt(self, do: Callable[..., _T], *args: object) -> _T | None:
        """What ``do`` returns, or raises. ``None``: not now; it has changed nothing, and may be begun again."""
        if self._had_turn or not self._is_idle():
            return None
        began = self._now()
        self._credit = min(_CREDIT_SECONDS, self._credit + (began - self._credited_at) * _SHARE)
        self._credited_at = began
        if self._credit <= 0:
            return None
        self._had_turn = True
        asyncio.get_running_loop().call_soon(self._next_turn)  # after all that waits already
        deadline = _ShortDeadline(began + MAX_SECONDS, self._now)
        token = deadline.begin()
        try:
            return do(*args)
        except RequestTimeoutError:
            if not deadline.expired:
                raise
            return None
        finally:
            deadline.end(token)
            took = self._now() - began
            if took > MAX_SECONDS:
                self._credit -= took

    def _next_turn(self) -> None:
        self._had_turn = False


class _ShortDeadline(Deadline):
    """A deadline that passes by itself, unless a write has begun."""

    def __init__(self, until: float, now: Callable[[], float]) -> None:
        super().__init__()
        self._until, self._now = until, now

    @property
    def expired(self) -> bool:
        return not self._ended and self._now() > self._until
