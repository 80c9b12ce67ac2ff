"""Metrics of how long deletions take, and of what a process holds of the store."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from threading import Event, Thread
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from clocks import FakeClock
from holdfast import Holdfast
from holdfast.lifecycle.metrics import ERASURE_BUCKETS, CachedReading, measure_process
from holdfast.ports.subjects import ErasureTimes
from holdfast.recall.service import IndexMemory


def read(holdfast: Holdfast) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels."""
    found = {}
    for family in text_string_to_metric_families(holdfast.metrics().decode()):
        for sample in family.samples:
            found[sample.name, *sample.labels.values()] = sample.value
    return found


@pytest.fixture
def erased(holdfast: Holdfast, clock: FakeClock) -> Holdfast:
    holdfast.manager("ann", "helper").add("Ann likes tea.")
    holdfast.erase_user("ann")
    return holdfast


def test_an_erasure_is_counted_in_every_stage(erased: Holdfast, clock: FakeClock) -> None:
    found = read(erased)
    for stage in ("hidden", "gone", "certified"):
        assert found["holdfast_erasure_seconds_bucket", "60", stage] == 1
        assert found["holdfast_erasure_seconds_count", stage] == 1
        assert found["holdfast_erasure_seconds_sum", stage] == 0
    assert (found["holdfast_erasures_total", "in_time"], found["holdfast_erasures_total", "late"]) == (1, 0)
    assert found["holdfast_erasure_pending_seconds",] == 0
    assert found["holdfast_erasure_objective_seconds",] == 24 * 3_600


def test_one_that_takes_too_long_is_late_also_while_it_is_pending(erased: Holdfast, clock: FakeClock) -> None:
    figures, subjects = erased.services.tenant("default").figures, erased.services.subjects
    start = erased.services.now()
    alias = "0" * 32
    with erased.database.write() as tx:
        tx.run("subjects.note_request", (alias, "default", start))
    objective = int(timedelta(hours=24) / timedelta(microseconds=1))
    assert figures.judge_erasures(objective, now=start + objective)[:2] == (1, 0)
    late = figures.judge_erasures(objective, now=start + objective + 1)
    assert (late.in_time, late.late, late.oldest) == (1, 1, start)
    clock.advance(hours=30)
    assert read(erased)["holdfast_erasure_pending_seconds",] == 30 * 3_600
    subjects.note_times(alias, ErasureTimes(start, start, start + 7_200_000_000, start + 100_000_000_000))
    assert figures.judge_erasures(objective, now=erased.services.now()) == (1, 1, None)
    bounds = [seconds * 1_000_000 for seconds in ERASURE_BUCKETS]
    counted = {(one.stage, one.bound): one.erasures for one in figures.count_erasures(bounds)}
    assert counted == {("hidden", 0): 2, ("gone", 0): 1, ("gone", 3): 1, ("certified", 0): 1, ("certified", 5): 1}


def test_indexes_count_what_they_take_and_what_made_way(holdfast: Holdfast) -> None:
    for user in ("ann", "bea"):
        memory = holdfast.manager(user, "helper")
        memory.add_many([f"note {n}" for n in range(50)])
        memory.retrieve("note")
    full = holdfast.recall.measure()
    assert (full.scopes, full.evictions) == (2, 0)
    assert 0 < full.used < full.limit
    holdfast.recall._max_bytes = full.used - 1
    holdfast.manager("ann", "helper").add("one more note that takes some room")
    holdfast.manager("ann", "helper").retrieve("note")
    assert holdfast.recall.measure().evictions == 1
    found = read(holdfast)
    assert found["holdfast_index_evictions_total",] == 1
    assert found["holdfast_index_bytes",] == holdfast.recall.measure().used


def test_connections_and_replies_are_counted(holdfast: Holdfast) -> None:
    found = read(holdfast)
    assert found["holdfast_replies_total", "done"] == 0
    counts = holdfast.database.count_connections()
    assert not counts or counts["limit"] >= counts["idle"] + counts["in_use"] > 0
    samples: dict[Any, float] = {
        (name, labels): value
        for name, labels, value in measure_process(
            IndexMemory(1, 2, 3, 4), {"in_use": 5, "waiting": 6, "refused": 7}, {"done": 8}
        )
    }
    assert samples["holdfast_pool_connections", ("in_use",)] == 5
    assert (samples["holdfast_pool_waiting", ()], samples["holdfast_pool_refused", ()]) == (6, 7)


def test_what_took_long_rests_before_it_is_read_again() -> None:
    now, took, read = 0.0, 0.0, 0

    def look() -> int:
        nonlocal now, read
        now, read = now + took, read + 1
        return read

    quick, slow = CachedReading(look, clock=lambda: now), CachedReading(look, 30, clock=lambda: now)
    assert (quick.get(), quick.get()) == (1, 2), "what is quick is read each time"
    assert (slow.get(), slow.get()) == (3, 3)
    now += 30
    took = 2.0
    assert (slow.get(), quick.get()) == (4, 5)
    now += 37
    assert (slow.get(), quick.get()) == (4, 5), "a twentieth of the time, at most"
    now += 3
    assert (slow.get(), quick.get()) == (6, 7)


def test_what_is_read_by_one_is_not_waited_for_by_another() -> None:
    begun, goes_on, reads = Event(), Event(), count(1)

    def look() -> int:
        number = next(reads)
        begun.set()
        goes_on.wait(10)
        return number

    kept = CachedReading(look, clock=lambda: 0.0)
    goes_on.set()
    assert kept.get() == 1
    goes_on.clear()
    begun.clear()
    reader = Thread(target=kept.get)
    reader.start()
    assert begun.wait(10)
    assert kept.get() == 1, "as it was before"
    goes_on.set()
    reader.join()
    assert kept.get() == 3
