"""Whatever happens to a memory, and whatever decides over it, is in the audit chain."""

from __future__ import annotations

import pytest

from clocks import FakeClock
from holdfast import HeldError, Holdfast, MemoryManager


def test_every_move_refusal_rule_change_and_hold_is_in_the_chain(
    holdfast: Holdfast, memory: MemoryManager, clock: FakeClock
) -> None:
    memory_id = memory.add("Enjoys skiing", "long_term")["memory_id"]
    memory.delete(memory_id)
    memory.restore(memory_id)
    hold = holdfast.holds.add(user_id=memory.user_id, reason="court case", author="legal")
    with pytest.raises(HeldError):
        memory.delete(memory_id)
    holdfast.holds.release(hold.id, author="legal")
    clock.advance(days=365)
    holdfast.sweep()
    memory.rehydrate(memory_id)
    holdfast.policies.set("long_term", delete_after_days=400, confirm=True)
    clock.advance(days=400)
    holdfast.sweep()
    clock.advance(days=15)
    holdfast.sweep()

    entries = [
        (entry["action"], entry["item"] if entry["item"] in (memory_id, hold.id) else None)
        for entry in holdfast.audit.tail(100)
    ]
    assert entries == [
        ("recycled", memory_id),
        ("restored", memory_id),
        ("hold.added", hold.id),
        ("refused", memory_id),
        ("hold.released", hold.id),
        ("archived", memory_id),
        ("rehydrated", memory_id),
        ("rule.changed", None),
        ("recycled", memory_id),
        ("deleted", memory_id),
    ]
    assert memory.user_id not in str(holdfast.audit.tail(100))
    assert holdfast.audit.verify()
