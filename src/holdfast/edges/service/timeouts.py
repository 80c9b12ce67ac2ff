"""Limits on how long something may take, which cost next to nothing where they are held."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Timeouts(Generic[_T]):
    """What may take the same time each, in the order in which it began: one timer does for all. Used in a loop only."""

    def __init__(self, seconds: float, expire: Callable[[_T], None]) -> None:
        self.seconds = seconds
        self._expire = expire
        self._until: dict[_T, float] = {}
        self._timer: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None

    def __len__(self) -> int:
        return len(self._until)

    def __contains__(self, one: _T) -> bool:
        return one in self._until

    @property
    def oldest(self) -> tuple[float, _T] | None:
        """When the one began that has taken the longest, by the clock of the loop, and which it is."""
        for one, until in self._until.items():
            return until - self.seconds, one
        return None

    def add(self, one: _T) -> None:
        """Its time begins now, unless it has begun already. It is over when ``expire`` is called with it."""
        if one in self._until:
            return
        loop = asyncio.get_running_loop()
        self._until[one] = until = loop.time() + self.seconds
        if self._timer is None or self._timer[0] is not loop:
            self._timer = loop, loop.call_at(until, self._look, loop)

    def discard(self, one: _T) -> None:
        """It has ended, or never began."""
        self._until.pop(one, None)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """End those whose time is over, and come back when that of the next one is."""
        now = loop.time()
        self._timer = None
        for one, until in tuple(self._until.items()):
            if until > now:
                self._timer = loop, loop.call_at(until, self._look, loop)
                return
            if self._until.pop(one, None) is not None:  # another's end may have been the end of this one
                self._expire(one)
