"""What was deleted in the ordinary way is gone from every byte, too, once its time in the recycle bin is over."""

from __future__ import annotations

import pytest

import raw
from clocks import FakeClock
from holdfast import Holdfast
from homes import ENGINES, Homes
from privacy.sentinels import Sentinel


@pytest.mark.parametrize("engine_name", ENGINES)
def test_after_the_bin_nothing_of_what_was_deleted_is_left_in_any_place(homes: Homes, clock: FakeClock) -> None:
    home, sentinel = homes.new(), Sentinel()
    sentinel.user_id = "ann"  # whose name stays known: it is what she said that goes
    with Holdfast.open(home=home, clock=clock) as holdfast:
        sentinel.plant(holdfast, clock)
        holdfast.manager("bob", "guide").add("Likes tea", "long_term")
        memory = holdfast.manager("ann", "guide", f"session-{sentinel.mark}")
        assert memory.delete_user_memories("ann") > 0
        memory.end_task()
        assert sentinel.hits(homes, home), "in the bin it is still there"
        clock.advance(days=16)
        holdfast.sweep(confirm=True)
        clock.advance(days=16)
        holdfast.sweep(confirm=True)
        assert sentinel.hits(homes, home) == [], "while the store is open"
        assert holdfast.manager("bob", "guide").count_memories("long_term") == 1
        assert holdfast.audit.verify()
    assert sentinel.hits(homes, home) == []


def test_a_sweep_that_a_reader_keeps_from_emptying_the_log_leaves_it_to_the_next(
    homes: Homes, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    home, sentinel = homes.new(), Sentinel()
    with Holdfast.open(home=home, clock=clock) as holdfast:
        memory = holdfast.manager("ann", "guide")
        memory.delete(memory.add(sentinel.text("a note"))["memory_id"])
        clock.advance(days=16)
        with raw.sqlite(holdfast).read() as tx:
            tx.connection.execute("SELECT count(*) FROM records").fetchall()
            holdfast.sweep(confirm=True)
        assert "a reader is in its way" in caplog.text
        assert sentinel.hits(homes, home), "it is in the log"
        holdfast.sweep()
        assert sentinel.hits(homes, home) == []
