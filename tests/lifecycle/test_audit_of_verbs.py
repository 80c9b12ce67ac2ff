"""Whatever happens to a memory, and whatever decides over it, is in the audit chain."""

from __future__ import annotations

import pytest

from clocks import FakeClock
from retain import HeldError, MemoryManager, Retain


def test_every_move_refusal_rule_change_and_hold_is_in_the_chain(
    retain: Retain, memory: MemoryManager, clock: FakeClock
) -> None:
    memory_id = memory.add("Enjoys skiing", "long_term")["memory_id"]
    memory.delete(memory_id)
    memory.restore(memory_id)
    hold = retain.holds.add(user_id=memory.user_id, reason="court case", author="legal")
    with pytest.raises(HeldError):
        memory.delete(memory_id)
    retain.holds.release(hold.id, author="legal")
    clock.advance(days=365)
    retain.sweep()
    memory.rehydrate(memory_id)
    retain.policies.set("long_term", delete_after_days=400, confirm=True)
    clock.advance(days=400)
    retain.sweep()
    clock.advance(days=15)
    retain.sweep()

    entries = [
        (entry["action"], entry["item"] if entry["item"] in (memory_id, hold.id) else None)
        for entry in retain.audit.tail(100)
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
    assert memory.user_id not in str(retain.audit.tail(100))
    assert retain.audit.verify()
