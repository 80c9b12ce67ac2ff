"""The deadline of the work at hand: loops over a user's data look at it, and stop once it has passed.

Whoever waits for the work makes a ``Deadline``, runs the work within ``deadline.applied()`` and calls ``expire`` when
nobody waits any more. The work says ``check_deadline()`` now and then, or goes through ``watch(items)``. Engines stop
a statement that is running: they register what stops it with ``stopped_by``. A write that has begun is finished:
``keep_on`` takes the deadline away from there on. Without a deadline all of this costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

from holdfast.core.errors import RequestTimeoutError

T = TypeVar("T")


class Deadline:
    """Whether the time for some work is over. Many threads may look at it."""

    def __init__(self) -> None:
        self._expired = False
        self._ended = False
        self._stops: list[Callable[[], None]] = []

    @property
    def expired(self) -> bool:
        """Whether the work is to stop."""
        return self._expired

    def expire(self) -> None:
        """End the work: at its next look, and what is running in an engine at once."""
        if self._ended:
            return
        self._expired = True
        for stop in tuple(self._stops):
            stop()

    def keep_on(self) -> None:
        """Stop nothing from here on: a write has begun, or an answer. What has expired stays so."""
        self.check()
        self._ended = True

    def check(self) -> None:
        """Raise ``RequestTimeoutError`` once it has expired."""
        if self.expired:
            raise RequestTimeoutError("the time for the request is over; it was stopped before it changed anything")

    @contextmanager
    def stopped_by(self, stop: Callable[[], None]) -> Iterator[None]:
        """While the block runs, ``stop`` is called when the deadline passes, by another thread: it must not wait."""
        self._stops.append(stop)
        try:
            self.check()
            yield
        finally:
            self._stops.remove(stop)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The block, and the threads and tasks that it starts, work under this deadline."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)


_CURRENT: Final[ContextVar[Deadline | None]] = ContextVar("deadline", default=None)


def current_deadline() -> Deadline | None:
    """The deadline of the work at hand, if it has one."""
    return _CURRENT.get()


def check_deadline() -> None:
    """Raise ``RequestTimeoutError`` if the time for the work at hand is over."""
    deadline = _CURRENT.get()
    if deadline is not None:
        deadline.check()


def watch(items: Iterable[T]) -> Iterable[T]:
    """The items, as long as there is time for them; without a deadline, just the items."""
    deadline = _CURRENT.get()
    return items if deadline is None else _watch(items, deadline)


def _watch(items: Iterable[T], deadline: Deadline) -> Iterator[T]:
    for item in items:
        deadline.check()
        yield item


@contextmanager
def without_deadline() -> Iterator[None]:
    """The block works under no deadline: for what takes a bounded time by itself and is worth finishing."""
    token = _CURRENT.set(None)
    try:
        yield
    finally:
        _CURRENT.reset(token)
