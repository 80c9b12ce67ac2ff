"""Calls that a service carries out in the thread of its loop: quick ones, and never so that others wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.core.clock import Deadline, check_deadline, current_deadline, hold
from holdfast.core.errors import RequestTimeoutError
from holdfast.edges.access.callers import Callers
from holdfast.edges.access.quick_calls import MAX_SECONDS, QuickCalls


class Time:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def read(self) -> str:
        """Something that only looks, and takes too long."""
        self.now += 2 * MAX_SECONDS
        check_deadline()
        return "read"

    def write(self) -> str:
        """The same, of something that has begun to write."""
        deadline = current_deadline()
        assert deadline is not None
        deadline.keep_on()
        return self.read()


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(story())  # type: ignore[arg-type]


def test_one_call_is_carried_out_at_each_turn_of_the_loop() -> None:
    async def story() -> None:
        calls = QuickCalls(lambda: True)
        assert [calls.attempt(threading.get_ident) for _ in range(3)] == [threading.get_ident(), None, None]
        await asyncio.sleep(0)
        assert calls.attempt(threading.get_ident) == threading.get_ident()

    run(story)


def test_none_is_while_a_thread_is_at_work() -> None:
    async def story() -> None:
        assert QuickCalls(lambda: False).attempt(threading.get_ident) is None

    run(story)


@pytest.mark.parametrize(("call", "said"), [(Time.read, None), (Time.write, "read")])
def test_what_takes_too_long_is_stopped_unless_it_writes(call: Callable[[Time], str], said: str | None) -> None:
    async def story() -> None:
        time = Time()
        calls = QuickCalls(lambda: True, time)
        for _ in range(6):
            assert calls.attempt(call, time) == said
            assert current_deadline() is None
            await asyncio.sleep(0)
        assert calls.attempt(lambda: "too early") is None, "it has had its share of the time"
        time.now += 60 * MAX_SECONDS
        assert calls.attempt(lambda: "again") == "again"

    run(story)


def test_a_deadline_of_the_call_itself_is_an_error() -> None:
    async def story() -> None:
        def refuse() -> None:
            raise RequestTimeoutError("of something else")

        with pytest.raises(RequestTimeoutError):
            QuickCalls(lambda: True).attempt(refuse)

    run(story)


def test_nobody_waits_here_for_a_lock_that_another_has() -> None:
    async def story() -> None:
        lock = threading.Lock()

        def look() -> str:
            with hold(lock):
                return "found"

        with lock:
            assert QuickCalls(lambda: True).attempt(look) is None
        assert QuickCalls(lambda: True).attempt(look) == "found"

    run(story)


def test_what_takes_too_long_is_carried_out_by_a_thread(tmp_path: Path) -> None:
    async def story() -> None:
        callers = Callers(opened)
        here: list[Any] = []

        def work() -> int:
            here.append(threading.get_ident())
            if len(here) == 1:
                raise_when_over()
            return len(here)

        def raise_when_over() -> None:
            deadline = current_deadline()
            while deadline is not None and not deadline.expired:
                pass
            check_deadline()

        assert await callers.run("acme", work, is_quick=True) == 2
        assert here[0] == threading.get_ident() != here[1]
        callers.workers.close()

    with Holdfast.open(home=tmp_path / "home") as opened:
        run(story)


def test_nothing_is_done_in_the_loop_where_a_memory_is_behind_a_network(holdfast: Holdfast) -> None:
    """So is what is not said to be quick."""

    async def story() -> None:
        me, near = threading.get_ident(), holdfast.settings.url.startswith("sqlite")
        callers = Callers(holdfast)
        assert (await callers.run("acme", threading.get_ident, is_quick=True) == me) is near
        await asyncio.sleep(0)
        assert await callers.run("acme", threading.get_ident) != me
        callers.workers.close()

    run(story)


# --- several at once --------------------------------------------------------------------------------------------------


def test_those_who_come_together_have_a_turn_each_and_tenants_take_turns() -> None:
    async def story() -> None:
        calls, done = QuickCalls(lambda: True), list[str]()

        def note(name: str) -> str:
            done.append(name)
            return name

        async def ask(tenant: str, name: str) -> None:
            assert await calls.attempt_in_line(tenant, note, name) == name

        names = [("acme", "a1"), ("acme", "a2"), ("acme", "a3"), ("other", "o1"), ("acme", "a4"), ("other", "o2")]
        asked = [asyncio.ensure_future(ask(*one)) for one in names]
        for count in range(1, len(names) + 1):
            while len(done) < count:
                await asyncio.sleep(0)
            assert len(done) == count, "one at each turn"
        await asyncio.gather(*asked)
        assert done == ["a1", "a2", "o1", "a3", "o2", "a4"]

    run(story)


def test_who_comes_later_comes_after_those_who_wait() -> None:
    async def story() -> None:
        calls = QuickCalls(lambda: True)
        asked = [asyncio.ensure_future(calls.attempt_in_line("acme", lambda: "done")) for _ in range(3)]
        await asyncio.sleep(0)
        assert calls.attempt(lambda: "not yet") is None
        assert await asyncio.gather(*asked) == ["done"] * 3
        assert calls.attempt(lambda: "now") == "now"

    run(story)


@pytest.mark.parametrize("how", ["left", "late"])
def test_who_leaves_the_line_keeps_nobody_in_it(how: str) -> None:
    async def story() -> None:
        calls, deadline = QuickCalls(lambda: True), Deadline()

        async def ask(*, is_late: bool = False) -> str | None:
            with deadline.apply() if is_late else nullcontext():
                return await calls.attempt_in_line("acme", lambda: "done")

        first, second, third = (asyncio.ensure_future(ask(is_late=one == 1 and how == "late")) for one in range(3))
        await asyncio.sleep(0)
        if how == "late":
            deadline.expire()
            with pytest.raises(RequestTimeoutError):
                await second
        else:
            second.cancel()
        assert [await first, await third] == ["done", "done"]

    run(story)


def test_who_leaves_when_it_is_their_turn_gives_it_to_the_next() -> None:
    async def story() -> None:
        calls = QuickCalls(lambda: True)
        first, second, third = (asyncio.ensure_future(calls.attempt_in_line("acme", lambda: "done")) for _ in range(3))
        while not calls._is_taken:
            await asyncio.sleep(0)
        calls._next_turn()  # the second one has it, and does not know yet
        second.cancel()
        assert [await first, await third] == ["done", "done"]

    run(story)


def test_where_there_are_no_turns_any_more_those_who_wait_are_told() -> None:
    async def story() -> None:
        idle = [True]
        calls = QuickCalls(lambda: idle[0])
        asked = [asyncio.ensure_future(calls.attempt_in_line("acme", lambda: "done")) for _ in range(4)]
        await asyncio.sleep(0)
        idle[0] = False
        assert await asyncio.gather(*asked) == ["done", None, None, None]
        idle[0] = True
        assert await calls.attempt_in_line("acme", lambda: "again") == "again"

    run(story)


@pytest.mark.parametrize("is_quick", [True, False])
def test_a_thread_that_does_what_is_quick_keeps_nobody_from_the_loop(tmp_path: Path, is_quick: bool) -> None:
    async def story() -> None:
        callers, me = Callers(opened), threading.get_ident()
        begun, release = threading.Event(), threading.Event()

        def work() -> None:
            begun.set()
            release.wait(60)

        working = asyncio.ensure_future(callers.workers.run("acme", work, is_quick=is_quick))
        await asyncio.to_thread(begun.wait, 60)
        assert (await callers.run("acme", threading.get_ident, is_quick=True) == me) is is_quick
        release.set()
        await working
        assert await callers.run("acme", threading.get_ident, is_quick=True) == me
        callers.workers.close()

    with Holdfast.open(home=tmp_path / "home") as opened:
        run(story)
