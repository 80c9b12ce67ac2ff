"""Callers of a service: each has a share of its workers, and is known without one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import anyio.to_thread
import pytest

from clocks import FakeClock
from holdfast import Holdfast
from holdfast.core.access import LOCAL, Principal, Right
from holdfast.core.clock import Deadline
from holdfast.core.errors import RateLimitedError, RequestTimeoutError, UnauthenticatedError
from holdfast.edges.access.callers import WORKERS, Callers, Shares, Workers

READ = frozenset({Right.READ})


def principal(key_id: str, tenant: str) -> Principal:
    return Principal(key_id, tenant, READ)


async def crowd(shares: Shares, callers: list[Principal]) -> dict[str, int]:
    """How many of each key get a place, when all of them come at once and nobody leaves."""
    placed: dict[str, int] = {}

    async def work(caller: Principal) -> None:
        async with shares.slot(caller):
            placed[str(caller.key_id)] = placed.get(str(caller.key_id), 0) + 1
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        for caller in callers:
            tasks.start_soon(work, caller)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    return placed


def test_no_key_and_no_tenant_gets_all_workers() -> None:
    keys = [principal("a", "acme"), principal("b", "acme"), principal("c", "other")]
    placed = asyncio.run(crowd(Shares(16), [key for key in keys for _ in range(30)]))
    assert placed == {"a": 8, "b": 4, "c": 8}
    for workers in range(2, WORKERS + 1):
        shares = Shares(workers)
        assert 1 <= shares.of_key <= shares.of_tenant < workers


def test_who_waits_comes_in_when_another_leaves() -> None:
    order = []

    async def story() -> None:
        shares, first = Shares(2), anyio.Event()

        async def work(number: int) -> None:
            async with shares.slot(principal("a", "acme")):
                order.append(number)
                await first.wait()

        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(work, number)
            await anyio.wait_all_tasks_blocked()
            assert order == [0]
            first.set()
        assert not shares._queues, "of those who are gone nothing is kept"

    asyncio.run(story())
    assert order == [0, 1, 2]


def test_a_line_that_is_too_long_is_refused() -> None:
    async def story() -> None:
        shares = Shares(4, max_queued=3)
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(stay, shares)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(RateLimitedError, match="3 requests of this API key are at work or wait already"):
                async with shares.slot(principal("a", "acme")):
                    pytest.fail("it had no place")
            async with shares.slot(principal("b", "other")):
                tasks.cancel_scope.cancel()

    async def stay(shares: Shares) -> None:
        async with shares.slot(principal("a", "acme")):
            await anyio.sleep_forever()

    asyncio.run(story())


def test_whose_time_is_over_in_the_line_gets_no_place() -> None:
    async def story() -> None:
        deadline = Deadline()
        deadline.expire()
        with deadline.apply():
            async with Shares(4).slot(principal("a", "acme")):
                pytest.fail("nobody waits for it any more")

    with pytest.raises(RequestTimeoutError):
        asyncio.run(story())


def test_who_sits_at_the_machine_shares_it_with_nobody() -> None:
    assert asyncio.run(crowd(Shares(4), [LOCAL] * 9)) == {"None": 9}


def test_a_key_is_looked_up_while_every_worker_is_busy(holdfast: Holdfast) -> None:
    key, secret = holdfast.access.create("reader", rights=["read"], tenant="acme")

    async def story() -> None:
        limiter = anyio.to_thread.current_default_thread_limiter()
        for number in range(int(limiter.total_tokens)):
            limiter.acquire_on_behalf_of_nowait(number)
        callers = Callers(holdfast)
        for _ in range(2):  # read from the store, and remembered
            assert (await callers.identify(secret)).key_id == key.id
        with pytest.raises(UnauthenticatedError):
            await callers.identify(secret[:-1] + ("a" if secret[-1] != "a" else "b"))
        while callers._uses:
            await asyncio.wait(callers._uses)

    asyncio.run(story())
    assert holdfast.access.get(key.id).last_used_at is not None


def test_a_key_that_was_revoked_here_is_known_no_longer(holdfast: Holdfast, clock: FakeClock) -> None:
    key, secret = holdfast.access.create(
        "reader", rights=["read"], tenant="acme", expires_at=clock.now.timestamp() + 60
    )
    assert holdfast.access.find_cached(secret) is None, "nobody has looked it up yet"
    assert holdfast.access.find_cached("no key at all") is None
    holdfast.access.look_up(secret)
    assert holdfast.access.find_cached(secret) == holdfast.access.get(key.id)
    clock.advance(seconds=61)
    assert holdfast.access.find_cached(secret) is None, "its time is over"
    clock.advance(seconds=-61)
    holdfast.access.revoke(key.id)
    assert holdfast.access.find_cached(secret) is None


class Work:
    """Jobs that block until they are let go, and the order in which they were begun."""

    def __init__(self, workers: Workers) -> None:
        self.begun: list[str] = []
        self._workers = workers
        self._go = {name: threading.Event() for name in "abcdef"}
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def submit(self, tenant: str, name: str) -> asyncio.Task[str]:
        return asyncio.ensure_future(self._workers.run(tenant, self._do, name))

    def _do(self, name: str) -> str:
        self.begun.append(name)
        self._loop.call_soon_threadsafe(self._changed.set)
        self._go[name].wait()
        return name

    def let_go(self, *names: str) -> None:
        for name in names:
            self._go[name].set()

    async def until(self, count: int) -> str:
        """The names of those that were begun, once there are so many."""
        while len(self.begun) < count:
            await self._changed.wait()
            self._changed.clear()
        return "".join(self.begun)


def run_story(story: Callable[[Workers, list[float]], Coroutine[Any, Any, None]], few: int) -> None:
    now = [0.0]
    workers = Workers(6, few, now=lambda: now[0])
    asyncio.run(story(workers, now))
    workers.close()


def test_few_of_what_is_quick_are_at_work_and_tenants_take_turns() -> None:
    async def story(workers: Workers, _now: list[float]) -> None:
        work = Work(workers)
        tasks = [work.submit(tenant, name) for tenant, name in zip(["acme"] * 4 + ["other"], "abcde", strict=True)]
        await work.until(1)
        for name, begun in (("a", "ab"), ("b", "abe"), ("e", "abec"), ("c", "abecd")):
            work.let_go(name)
            assert await work.until(len(begun)) == begun, "one after the other, the other tenant's before the third"
        work.let_go("d")
        assert await asyncio.gather(*tasks) == [*"abcde"]

    run_story(story, few=1)


def test_nobody_waits_for_what_is_slow() -> None:
    async def story(workers: Workers, now: list[float]) -> None:
        work = Work(workers)
        slow = [work.submit("acme", name) for name in "ab"]
        await work.until(2)
        waits = work.submit("other", "c")  # there is no room yet: it looks again by itself
        await asyncio.sleep(0)
        assert work.begun == ["a", "b"]
        now[0] = 1.0
        await work.until(3)
        work.let_go("c", "d")
        assert await waits == "c"
        assert await work.submit("other", "d") == "d", "and who comes later begins at once"
        assert not any(one.done() for one in slow)
        work.let_go("a", "b")
        assert await asyncio.gather(*slow) == ["a", "b"]

    run_story(story, few=2)


def test_there_are_never_more_threads_than_the_most() -> None:
    async def story(workers: Workers, now: list[float]) -> None:
        work = Work(workers)
        tasks = []
        for name in "abcde":
            tasks.append(work.submit("acme", name))
            await work.until(len(tasks))
            now[0] += 1.0
        tasks.append(work.submit("acme", "f"))
        await work.until(6)
        now[0] += 1.0
        assert not workers._has_room()
        waits = asyncio.ensure_future(workers.run("acme", lambda: "g"))
        await asyncio.sleep(0)
        work.let_go("c")
        assert await waits == "g", "by the thread that came free"
        work.let_go(*"abdef")
        assert await asyncio.gather(*tasks) == [*"abcdef"]

    run_story(story, few=1)
