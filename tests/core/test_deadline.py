"""Deadlines: work that nobody waits for stops at its next look, unless it has begun to write."""

from __future__ import annotations

import threading
from contextvars import copy_context

import pytest

from holdfast.core.clock import Deadline, check_deadline, current_deadline, hold, watch, without_deadline
from holdfast.core.errors import RequestTimeoutError


def test_without_a_deadline_the_items_are_gone_through_as_they_are() -> None:
    items = [1, 2, 3]
    assert watch(items) is items
    check_deadline()


def test_a_loop_stops_at_the_item_at_which_the_deadline_passes() -> None:
    deadline, done = Deadline(), []

    def work() -> None:
        for item in watch(range(1_000)):
            done.append(item)
            if item == 7:
                deadline.expire()

    with deadline.apply(), pytest.raises(RequestTimeoutError, match="stopped before it changed anything"):
        work()
    assert done == list(range(8))


def test_a_thread_that_takes_the_context_over_has_the_deadline_too() -> None:
    deadline, seen = Deadline(), []
    with deadline.apply():
        context = copy_context()
    thread = threading.Thread(target=context.run, args=(lambda: seen.append(current_deadline()),))
    thread.start()
    thread.join()
    assert seen == [deadline]
    assert current_deadline() is None


def test_what_has_begun_to_write_goes_on_and_what_has_expired_does_not_begin() -> None:
    begun, late = Deadline(), Deadline()
    begun.keep_on()
    begun.expire()
    begun.check()
    late.expire()
    with pytest.raises(RequestTimeoutError):
        late.keep_on()


def test_what_an_engine_runs_is_stopped_while_it_runs_and_not_after() -> None:
    deadline, stopped = Deadline(), []
    with deadline.on_expiry(lambda: stopped.append("first")):
        pass
    with deadline.on_expiry(lambda: stopped.append("second")):
        deadline.expire()
    assert stopped == ["second"]
    with pytest.raises(RequestTimeoutError), deadline.on_expiry(lambda: None):
        pytest.fail("nothing is begun once it has passed")


def test_a_part_that_is_worth_finishing_has_no_deadline() -> None:
    deadline = Deadline()
    deadline.expire()
    with deadline.apply():
        with without_deadline():
            check_deadline()
        with pytest.raises(RequestTimeoutError):
            check_deadline()


@pytest.mark.parametrize("items", [[1, 2, 3], (1, 2, 3)])
def test_at_a_few_things_the_deadline_is_looked_at_once_before_the_first(items: list[int]) -> None:
    deadline = Deadline()
    with deadline.apply():
        assert watch(items) is items
        deadline.expire()
        with pytest.raises(RequestTimeoutError):
            watch(items)


def test_a_lock_that_nobody_holds_is_taken_and_one_that_somebody_holds_is_waited_for_no_longer() -> None:
    deadline, lock = Deadline(), threading.Lock()
    with deadline.apply():
        with hold(lock):
            assert lock.locked()
        with lock:
            threading.Timer(0.02, deadline.expire).start()
            with pytest.raises(RequestTimeoutError), hold(lock):
                pytest.fail("somebody holds it")
    assert not lock.locked()
