"""What was deleted in the ordinary way is gone from every byte, too, once its time in the recycle bin is over."""

from __future__ import annotations

import pytest

from clocks import FakeClock
from homes import ENGINES, Homes
from privacy.sentinels import Sentinel
from retain import Retain


@pytest.mark.parametrize("engine_name", ENGINES)
def test_after_the_bin_nothing_of_what_was_deleted_is_left_in_any_place(homes: Homes, clock: FakeClock) -> None:
    home, sentinel = homes.new(), Sentinel()
    sentinel.user_id = "ann"  # whose name stays known: it is what she said that goes
    with Retain.open(home=home, clock=clock) as retain:
        sentinel.plant(retain, clock)
        retain.manager("bob", "guide").add("Likes tea", "long_term")
        memory = retain.manager("ann", "guide", f"session-{sentinel.mark}")
        assert memory.delete_user_memories("ann") > 0
        memory.end_task()
        assert sentinel.hits(homes, home), "in the bin it is still there"
        clock.advance(days=16)
        retain.sweep(confirm=True)
        clock.advance(days=16)
        retain.sweep(confirm=True)
        assert retain.manager("bob", "guide").count_memories("long_term") == 1
        assert retain.audit.verify()
    assert sentinel.hits(homes, home) == []
