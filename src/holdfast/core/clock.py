"""Deadlines of work, how far the clock of a process is believed, and ids that sort by the moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Final, NamedTuple, Protocol, TypeVar

from holdfast.core.errors import RequestTimeoutError
from holdfast.core.values import DAY, SECOND, describe_duration, iso

_TAIL_BITS = 62
_TAIL_LIMIT = 1 << _TAIL_BITS
#: How long one who waits for a lock waits between two looks at the deadline: first, and at most.
_FIRST_LOOK_SECONDS: Final = 0.001
_LOOK_SECONDS: Final = 0.05
#: So many things take no longer than may pass between two looks at the deadline.
_FEW: Final = 8


class IdSource:
    """Makes ids that sort by the moment given, and by order of making within one moment.

    A moment is a count of microseconds since 1970. Milliseconds fill the standard's timestamp field; the
    rest of the moment goes into the twelve bits after it, so that ids made within a millisecond keep their order.
    Calls must not overlap; the caller holds a lock where threads share a source.
    """

    def __init__(self, random_bits: Callable[[int], int]) -> None:
        self._random_bits = random_bits
        self._moment = -1
        self._tail = 0

    def next(self, moment: int) -> str:
        """The next id for ``moment``."""
        if moment == self._moment and self._tail + (1 << 40) < _TAIL_LIMIT:
            self._tail += 1 + self._random_bits(32)
        else:
            self._tail = self._random_bits(_TAIL_BITS - 1)
        self._moment = moment
        millis, micros = divmod(moment, 1_000)
        time, tail = f"{millis & 0xFFFF_FFFF_FFFF:012x}", f"{1 << 63 | self._tail:016x}"
        return f"{time[:8]}-{time[8:]}-{0x7000 | micros * 4_096 // 1_000:04x}-{tail[:4]}-{tail[4:]}"


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
        if self.expired:
            self.check()
        self._ended = True

    def check(self) -> None:
        """Raise ``RequestTimeoutError`` once it has expired."""
        if self.expired:
            raise RequestTimeoutError("the time for the request is over; it was stopped before it changed anything")

    @contextmanager
    def on_expiry(self, stop: Callable[[], None]) -> Iterator[None]:
        """While the block runs, ``stop`` is called when the deadline passes, by another thread: it must not wait."""
        self._stops.append(stop)
        try:
            self.check()
            yield
        finally:
            self._stops.remove(stop)

    def begin(self) -> Token[Deadline | None]:
        """From here on this task works under this deadline, until its ``end`` is given what this returns."""
        return _CURRENT.set(self)

    @staticmethod
    def end(begun: Token[Deadline | None]) -> None:
        """The task works on as it did before."""
        _CURRENT.reset(begun)

    def apply(self) -> AbstractContextManager[None]:
        """The block, and the threads and tasks that it starts, work under this deadline."""
        return _under(self)


class Lock(Protocol):
    """A lock of threads, as ``threading`` has it."""

    def acquire(self, *, timeout: float) -> bool: ...

    def release(self) -> None: ...

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class _LockInTime:
    """A lock, for which whoever has a deadline waits no longer than that."""

    __slots__ = ("_deadline", "_lock")

    def __init__(self, lock: Lock, deadline: Deadline) -> None:
        self._lock, self._deadline = lock, deadline

    def __enter__(self) -> None:
        seconds = 0.0
        while not self._lock.acquire(timeout=seconds):
            self._deadline.check()
            seconds = min(2 * seconds, _LOOK_SECONDS) or _FIRST_LOOK_SECONDS

    def __exit__(self, *_problem: object) -> None:
        self._lock.release()


def hold(lock: Lock) -> AbstractContextManager[object]:
    """A lock for a block. Where the work at hand has a deadline, ``RequestTimeoutError`` once that is over."""
    deadline = _CURRENT.get()
    return lock if deadline is None else _LockInTime(lock, deadline)


_CURRENT: Final[ContextVar[Deadline | None]] = ContextVar("deadline", default=None)


def current_deadline() -> Deadline | None:
    """The deadline of the work at hand, if it has one."""
    return _CURRENT.get()


def check_deadline() -> None:
    """Raise ``RequestTimeoutError`` if the time for the work at hand is over."""
    deadline = _CURRENT.get()
    if deadline is not None and deadline.expired:
        deadline.check()


def watch(items: Iterable[T]) -> Iterable[T]:
    """The items, as long as there is time for them; without a deadline, just the items. At a few it looks once."""
    deadline = _CURRENT.get()
    if deadline is None:
        return items
    if isinstance(items, list | tuple) and len(items) <= _FEW:
        if deadline.expired:
            deadline.check()
        return items
    return _watch(items, deadline)


def _watch(items: Iterable[T], deadline: Deadline) -> Iterator[T]:
    for item in items:
        if deadline.expired:
            deadline.check()
        yield item


def without_deadline() -> AbstractContextManager[None]:
    """The block works under no deadline: for what takes a bounded time by itself and is worth finishing."""
    return _under(None)


@contextmanager
def _under(deadline: Deadline | None) -> Iterator[None]:
    token = _CURRENT.set(deadline)
    try:
        yield
    finally:
        _CURRENT.reset(token)


#: So far two clocks may differ before one of them is distrusted: time servers correct them by less.
SKEW: Final = 300 * SECOND
#: How long a time that is ahead has to go on before its first sighting is believed.
BORNE_OUT: Final = DAY
_MINUTE: Final = 60 * SECOND


class Seen(NamedTuple):
    """What a store knows of the time."""

    at: int
    """The latest time that it believes: of a committed write, a sweep or a job's slot."""
    sighted: int | None = None
    """The earliest time ahead of that which a process has come with, while it is not believed."""


class Belief(NamedTuple):
    """How far the time is believed that a process has on its clock."""

    now: int
    upto: int
    """What cannot be undone is done up to this time."""
    since: int | None = None
    """When the time that is not believed was first sighted, by its own clock; ``None`` if the time is believed."""

    def until(self, at: int) -> int:
        """Up to when a sweep for a moment does what cannot be undone. A forecast takes the time to be believed then."""
        return at if self.is_whole or at > self.now else min(at, self.upto)

    @property
    def is_whole(self) -> bool:
        """Whether the time is believed as it is."""
        return self.since is None

    def explain(self) -> str:
        """Why something waits, and what to do about it, in words."""
        ahead = self.now - self.upto
        distance = describe_duration(ahead // DAY * DAY if ahead >= DAY else ahead // _MINUTE * _MINUTE)
        return (
            f"the clock says {iso(self.now)}, which is {distance} later than the latest time that the store has seen "
            f"({iso(self.upto)}); what cannot be undone waits: check the clock, then confirm (holdfast sweep "
            "--confirm), or let it go on for a day"
        )


def sight(seen: Seen | None, now: int, tolerance: int, *, trusted: bool = False, doubted: bool = False) -> Seen:
    """What a store knows of the time after a process has come with the time ``now``.

    A time within the tolerance is believed, and one that is ``trusted`` always is; a sighting that was ahead of it is
    forgotten then. One that is further ahead, or ``doubted``, is noted. A later one that is at least a day after it
    bears it out: the earlier one is believed then. A new store believes the first time that it sees.
    """
    if seen is None:
        return Seen(now)
    if now < seen.at:
        return seen
    if trusted or (not doubted and now <= seen.at + tolerance):
        return Seen(now)
    if seen.sighted is None or now < seen.sighted:
        return Seen(seen.at, now)
    if now < seen.sighted + BORNE_OUT:
        return seen
    return Seen(now) if now <= seen.sighted + tolerance else Seen(seen.sighted, now)


def believe(seen: Seen, now: int) -> Belief:
    """How far the time ``now`` is believed by a store that has just been told of it."""
    if now <= seen.at:
        return Belief(now, now)
    return Belief(now, seen.at, now if seen.sighted is None else seen.sighted)
