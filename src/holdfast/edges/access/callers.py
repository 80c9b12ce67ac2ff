"""Callers of a service: who they are, and how many of its workers each may have at once.

A request is answered by a worker thread, of which there are a few dozen. No API key and no tenant gets all of them:
what is more than its share waits in line, and what would make its line too long is refused. Who calls is looked up by
threads that do nothing else, so that whoever keeps the workers busy keeps nobody from being known.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import lru_cache, partial
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol, TypeVar

import anyio
from anyio import to_thread

from holdfast.access.keys import Access
from holdfast.core.access import LOCAL, ApiKey, Principal
from holdfast.core.clock import check_deadline, without_deadline
from holdfast.core.errors import InvalidScopeError, RateLimitedError, UnauthenticatedError
from holdfast.edges.access.gate import Gate
from holdfast.edges.access.quick_calls import Lines, QuickCalls, TookLongError
from holdfast.engine import Holdfast

TENANT_HEADER: Final = "X-Holdfast-Tenant"
_MAX_SECRET_CHARS: Final = 256

#: How many threads answer requests.
WORKERS: Final = 40
#: How many requests wait and work for one key or one tenant, where nobody says otherwise.
MAX_QUEUED: Final = 250
#: What the threads are called that requests are answered in.
THREADS: Final = "holdfast worker"
_LOOKUPS: Final = 4
_IDLE_SECONDS: Final = 10.0
#: More threads than this at work in an embedded store are in each other's way.
_MAX_EMBEDDED: Final = 16
#: Of what is quick, so many are at work in an embedded store: one waits for the disk while others compute.
_FEW: Final = 4
#: What has been at work for longer than this is not quick.
_QUICK_SECONDS: Final = 0.05
#: So many gates and so many memories are kept for who asks again.
_KEPT: Final = 1_024
_HEADER: Final = TENANT_HEADER.lower()
_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class _Job:
    """Something to be done, and who waits for it."""

    context: Context
    do: Callable[..., Any]
    args: tuple[Any, ...]
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[Any]
    is_quick: bool
    since: float = 0.0
    """When it was begun."""


class Workers:
    """Threads that do what blocks: at most ``most``, and of what is quick ``few`` at a time; the rest waits in line.

    Threads that work at the same time take the interpreter from each other, some of them while they keep others from
    writing. So few are let in at once; what has been at work for more than ``_QUICK_SECONDS`` does not count among
    them, so that nobody waits for what is slow. Tenants take turns. A thread that has had nothing to do for a while
    ends. It does what ``anyio.to_thread`` does with fewer steps.
    """

    def __init__(self, most: int, few: int | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._most, self._few, self._now = most, few or most, now
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._free = self._threads = 0
        #: At work and not long yet, in the order in which they were begun.
        self._quick: dict[_Job, None] = {}
        self._lines: Lines[_Job] = Lines()
        self._slow = 0
        """How many are at work or in line that were not said to be quick."""
        self._look: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None

    def run(self, tenant: str, do: Callable[..., _T], *args: Any, is_quick: bool = False) -> asyncio.Future[_T]:
        """What ``do`` will return, or raise. It goes on to its end even if nobody waits for it any more."""
        loop = asyncio.get_running_loop()
        job = _Job(copy_context(), do, args, loop, loop.create_future(), is_quick)
        with self._lock:
            self._slow += not is_quick
            if not self._lines and self._has_room():
                self._begin(job)
            else:
                self._lines.add(tenant, job)
                self._begin_next(loop)
        return job.done

    def is_idle(self) -> bool:
        """Whether nothing is at work, and nothing waits, but what is quick."""
        return not self._slow

    def close(self) -> None:
        """Let every thread end when it is done."""
        for _ in range(self._threads):
            self._jobs.put(None)

    # --- with the lock ------------------------------------------------------------------------------------------------

    def _has_room(self) -> bool:
        """Whether one more may begin."""
        latest = self._now() - _QUICK_SECONDS
        while self._quick and (oldest := next(iter(self._quick))).since <= latest:
            del self._quick[oldest]
        return len(self._quick) < self._few and (self._free > 0 or self._threads < self._most)

    def _begin(self, job: _Job) -> None:
        job.since = self._now()
        self._quick[job] = None
        self._free -= 1
        if self._free < 0:
            self._free = 0
            self._threads += 1
            threading.Thread(target=self._work, name=f"{THREADS} of requests", daemon=True).start()
        self._jobs.put(job)

    def _begin_next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin those in line for whom there is room, and look again when there may be more."""
        while self._lines and self._has_room():
            self._begin(self._lines.take())
        if self._lines and (self._look is None or self._look[0] is not loop):
            self._look = loop, loop.call_later(_QUICK_SECONDS, self._look_again, loop)

    def _take_after(self, job: _Job) -> _Job | None:
        """What a thread does next that has done a job, if there is room for it."""
        self._quick.pop(job, None)
        self._slow -= not job.is_quick
        self._free += 1
        if not self._lines or not self._has_room():
            return None
        self._free -= 1
        following = self._lines.take()
        following.since = self._now()
        self._quick[following] = None
        return following

    # --- in threads ---------------------------------------------------------------------------------------------------

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            self._look = None
            self._begin_next(loop)

    def _next(self) -> _Job | None:
        """What is to be done next; ``None`` once the thread may end."""
        with suppress(Empty):
            return self._jobs.get(timeout=_IDLE_SECONDS)
        with self._lock:
            if not self._jobs.empty():
                return self._jobs.get()
            self._threads -= 1
            self._free -= 1
        return None

    def _work(self) -> None:
        job: _Job | None = None
        while job is not None or (job := self._next()) is not None:
            try:
                tell, result = _give, job.context.run(job.do, *job.args)
            except BaseException as problem:  # noqa: BLE001 - whoever waits gets it
                tell, result = _fail, problem
            with self._lock:
                following = self._take_after(job)
            with suppress(RuntimeError):  # the loop has ended, and nobody waits
                job.loop.call_soon_threadsafe(tell, job.done, result)
            del result
            job = following


def _give(done: asyncio.Future[Any], result: Any) -> None:
    if not done.done():
        done.set_result(result)


def _fail(done: asyncio.Future[Any], result: Any) -> None:
    if not done.done():
        done.set_exception(result)


class Shares:
    """Slots for requests at work, of which one key has at most half and one tenant at most three quarters."""

    def __init__(self, workers: int, *, max_queued: int = MAX_QUEUED) -> None:
        self.of_key = max(1, workers // 2)
        self.of_tenant = max(1, workers * 3 // 4)
        self._max_queued = max(1, max_queued)
        self._queues: dict[str, _Queue] = {}

    def slot(self, principal: Principal | None) -> _Slot:
        """A slot for the block, when it is the caller's turn; ``RateLimitedError`` where too many wait."""
        if principal is None or principal.key_id is None:  # who sits at the machine shares it with nobody
            return _Slot(self, ())
        key = (f"key {principal.key_id}", self.of_key, "this API key")
        return _Slot(self, (key, (f"tenant {principal.tenant}", self.of_tenant, "this tenant")))

    async def enter(self, name: str, share: int, whose: str) -> None:
        """Wait in a queue for one's turn."""
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = _Queue(asyncio.Semaphore(share))
        if queue.length >= self._max_queued:
            raise RateLimitedError(
                f"{queue.length:,} requests of {whose} are at work or wait already; send fewer at once, and try again "
                "in a moment"
            )
        queue.length += 1
        try:
            await queue.turns.acquire()
        except BaseException:
            self._forget(name, queue)
            raise

    def leave(self, name: str) -> None:
        """Let the next one have its turn."""
        queue = self._queues[name]
        queue.turns.release()
        self._forget(name, queue)

    def _forget(self, name: str, queue: _Queue) -> None:
        queue.length -= 1
        if not queue.length:
            del self._queues[name]


@dataclass(slots=True)
class _Queue:
    """Those of one key or tenant who work or wait."""

    turns: asyncio.Semaphore
    length: int = 0


class _Slot:
    """A place in each of some queues, while a block runs."""

    def __init__(self, shares: Shares, queues: Sequence[tuple[str, int, str]]) -> None:
        self._shares = shares
        self._queues = queues
        self._entered: list[str] = []

    async def __aenter__(self) -> None:
        try:
            for queue in self._queues:
                await self._shares.enter(*queue)
                self._entered.append(queue[0])
                check_deadline()  # it may have passed in the queue
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        while self._entered:
            self._shares.leave(self._entered.pop())


class Callers:
    """Who calls, and their shares of one process.

    Without ``keys_required``, a caller without a key is the local one, who may do everything.
    """

    def __init__(self, holdfast: Holdfast, *, keys_required: bool = True) -> None:
        self._holdfast = holdfast
        self.keys_required = keys_required
        settings = holdfast.settings
        # More than there are connections to a server cannot be at work there.
        useful = _MAX_EMBEDDED if settings.url.startswith("sqlite") else settings.pool_size
        self._access: Access = holdfast.access
        # Most requests are about a memory that was asked for a moment ago.
        self._gate = lru_cache(_KEPT)(partial(Gate, holdfast, memories=lru_cache(_KEPT)(Gate.make_memory)))
        self._lookups, self._notes = anyio.CapacityLimiter(_LOOKUPS), anyio.CapacityLimiter(1)
        self._uses: set[asyncio.Future[None]] = set()
        self.shares = Shares(min(WORKERS, useful), max_queued=settings.requests_at_once // 2)
        """Of the workers that answer requests."""
        self.workers = Workers(WORKERS, _FEW if settings.url.startswith("sqlite") else None)
        self._quick = QuickCalls(self.workers.is_idle) if _is_local(holdfast) else None
        self.attempt: _Attempt = _attempt_nothing if self._quick is None else self._quick.attempt
        """What a call returns, if it can be done here and now; ``None`` if not: then it has changed nothing."""

    async def principal(self, headers: Mapping[str, str]) -> Principal:
        """Who sends a request with these headers; ``UnauthenticatedError`` if nobody does."""
        secret = read_secret(headers)
        if secret is not None:
            return await self.identify(secret)
        if self.keys_required:
            raise UnauthenticatedError("an API key is needed; send it as: Authorization: Bearer <key>")
        return LOCAL

    def find_principal(self, headers: Mapping[str, str]) -> Principal | None:
        """The same, as far as it is known without the store."""
        secret = read_secret(headers)
        if secret is None:
            return None if self.keys_required else LOCAL
        key = self._access.find_cached(secret)
        return None if key is None else self._note(key)

    def gate(self, principal: Principal, headers: Mapping[str, str]) -> Gate:
        """What a caller may reach in the tenant that the headers name; in its own, if they name none."""
        return self._gate(principal, read_tenant(headers))

    async def run(self, tenant: str, do: Callable[..., _T], *args: object, is_quick: bool = False) -> _T:
        """What ``do`` returns: in a thread, or, where ``is_quick`` says that it mostly takes no time, perhaps here."""
        if is_quick and self._quick is not None:
            try:
                found = await self._quick.attempt_in_line(tenant, do, *args)
            except TookLongError:
                found, is_quick = None, False
            if found is not None:
                return found
        return await self.workers.run(tenant, do, *args, is_quick=is_quick)

    async def identify(self, secret: str) -> Principal:
        """Who calls with a secret; ``UnauthenticatedError`` if nobody does. Needs no worker."""
        key = self._access.find_cached(secret)
        if key is None:
            with without_deadline():
                key = await to_thread.run_sync(self._access.look_up, secret, limiter=self._lookups)
        return self._note(key)

    def _note(self, key: ApiKey) -> Principal:
        """Who has a key, which was just used."""
        if self._access.is_use_due(key):
            self._note_later(key)
        return key.principal

    def _note_later(self, key: ApiKey) -> None:
        """Have the use of a key written down, which nobody waits for: a store may be busy for long."""
        note = to_thread.run_sync(self._access.note_use, key, limiter=self._notes)
        with without_deadline():
            task = asyncio.ensure_future(note)
        self._uses.add(task)
        task.add_done_callback(self._uses.discard)


class _Attempt(Protocol):
    def __call__(self, do: Callable[..., _T], /, *args: object) -> _T | None: ...


def _attempt_nothing(_do: Callable[..., _T], *_args: object) -> None:
    return None


def _is_local(holdfast: Holdfast) -> bool:
    """Whether the store and all that a memory needs lies in this process and on its disk, and nobody traces calls."""
    settings = holdfast.settings
    is_near = settings.url.startswith("sqlite") and settings.embedder == "static" and not settings.short_term_url
    urls = (settings.cold_url(), settings.keeping_url())
    return is_near and all(url.startswith("file:") for url in urls) and holdfast.telemetry is None


def read_secret(headers: Mapping[str, str]) -> str | None:
    """The API key in the headers of a request. Two that differ are refused: one of them is a mistake."""
    given, own = headers.get("authorization"), headers.get("x-api-key")
    secret = own
    if given is not None:
        scheme, _, secret = given.partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer":
            raise UnauthenticatedError("Authorization must be: Bearer <key>")
        if own is not None and own != secret:
            raise UnauthenticatedError("Authorization and X-API-Key name two keys; send one of them")
    if secret is not None and len(secret) > _MAX_SECRET_CHARS:
        raise UnauthenticatedError("this is no API key: it is too long")
    return secret


def read_tenant(headers: Mapping[str, str]) -> str | None:
    """The tenant that the headers of a request name. They come as Latin-1; a name in them is UTF-8."""
    named = headers.get(_HEADER)
    try:
        return None if named is None else named.encode("latin-1").decode()
    except UnicodeDecodeError:
        raise InvalidScopeError(f"{TENANT_HEADER} is not UTF-8; send the tenant's name as UTF-8") from None
