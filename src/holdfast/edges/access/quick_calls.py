"""Calls that are carried out where they come in: in the thread of the loop, while nothing else is at work.

To hand a call to a thread and to wake the loop again takes about as much of the processor as all else that a request
costs, and threads that compute at the same time take the interpreter from each other. What is quick is worth a thread
only where it would be in others' way.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, TypeVar

from holdfast.core.clock import Deadline, check_deadline
from holdfast.core.errors import RequestTimeoutError

#: No call may take longer here; a thread that computes keeps the interpreter from the loop for as long.
MAX_SECONDS: Final = 0.005
#: So much of the time, and at once so many seconds, may go to calls that took longer.
_SHARE: Final = 0.1
_CREDIT_SECONDS: Final = 10 * MAX_SECONDS
_T = TypeVar("_T")


class Lines(Generic[_T]):
    """Those who wait, in a line for each tenant. Tenants take turns."""

    def __init__(self) -> None:
        self._by_tenant: dict[str, deque[_T]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_tenant)

    def add(self, tenant: str, one: _T) -> None:
        """The last one of its tenant."""
        self._by_tenant.setdefault(tenant, deque()).append(one)

    def take(self) -> _T:
        """Whose turn it is."""
        tenant, line = next(iter(self._by_tenant.items()))
        del self._by_tenant[tenant]
        one = line.popleft()
        if line:
            self._by_tenant[tenant] = line
        return one


class TookLongError(Exception):
    """A call was stopped before it had changed anything: it is for a thread."""


class QuickCalls:
    """Carries calls out in the thread of the loop, if that keeps nobody waiting.

    There is one at each turn of the loop, and none while a thread is at work for long. One that takes too long is
    stopped before it has changed anything: it is for a thread then. A write that has begun goes on to its end, however
    slow the disk is. Where such calls have had more than a tenth of the time, there is none for a while.
    """

    def __init__(self, is_idle: Callable[[], bool], now: Callable[[], float] = time.monotonic) -> None:
        self._is_idle, self._now = is_idle, now
        self._is_taken = self._was_direct = False
        """Whether somebody of the line has this turn; whether there was a call beside the line in it."""
        self._lines: Lines[asyncio.Future[None]] = Lines()
        self._credit, self._credited_at = _CREDIT_SECONDS, now()

    def attempt(self, do: Callable[..., _T], *args: object) -> _T | None:
        """What ``do`` returns, or raises. ``None``: not now; it has changed nothing, and may be begun again.

        Who waits in line comes first. Beside the line there is one at each turn: else a caller who asks again quickly
        would always come between two turns.
        """
        if self._was_direct or self._lines or not self._is_open():
            return None
        self._was_direct = True
        asyncio.get_running_loop().call_soon(self._end_direct)
        with suppress(TookLongError):
            return self._carry_out(do, *args)
        return None

    async def attempt_in_line(self, tenant: str, do: Callable[..., _T], *args: object) -> _T | None:
        """The same after those who came before, one at each turn of the loop; ``TookLongError`` if it was stopped."""
        if not self._is_open():
            return None
        if self._is_taken:
            await self._wait(tenant)
        self._is_taken = True
        asyncio.get_running_loop().call_soon(self._next_turn)  # after all that waits already
        return self._carry_out(do, *args) if self._is_open() else None

    # --- within -------------------------------------------------------------------------------------------------------

    def _is_open(self) -> bool:
        """Whether there are such calls now."""
        now = self._now()
        self._credit = min(_CREDIT_SECONDS, self._credit + (now - self._credited_at) * _SHARE)
        self._credited_at = now
        return self._credit > 0 and self._is_idle()

    def _carry_out(self, do: Callable[..., _T], *args: object) -> _T:
        began = self._now()
        deadline = _ShortDeadline(began + MAX_SECONDS, self._now)
        token = deadline.begin()
        try:
            return do(*args)
        except RequestTimeoutError:
            if not deadline.expired:
                raise
            raise TookLongError from None
        finally:
            deadline.end(token)
            took = self._now() - began
            if took > MAX_SECONDS:
                self._credit -= took

    def _end_direct(self) -> None:
        self._was_direct = False

    async def _wait(self, tenant: str) -> None:
        """Wait until the turn is one's own, or there are none any more."""
        turn = asyncio.get_running_loop().create_future()
        self._lines.add(tenant, turn)
        try:
            await turn
            check_deadline()  # it may have passed in the line
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._next_turn()
            raise

    def _next_turn(self) -> None:
        """Give the turn to the next one in line; where there are no turns now, all of them are told."""
        self._is_taken = False
        while self._lines:
            turn = self._lines.take()
            if not turn.done():
                turn.set_result(None)
                if self._is_open():
                    self._is_taken = True
                    return


class _ShortDeadline(Deadline):
    """A deadline that passes by itself, unless a write has begun."""

    def __init__(self, until: float, now: Callable[[], float]) -> None:
        super().__init__()
        self._until, self._now = until, now

    @property
    def expired(self) -> bool:
        return not self._ended and self._now() > self._until
