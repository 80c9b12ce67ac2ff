"""Whether a write fits a quota, and what is said when it does not."""

from __future__ import annotations

import math

from holdfast.core.errors import QuotaExceededError
from holdfast.core.holds import Hold
from holdfast.core.records import Usage
from holdfast.core.types import PRUNE_FRACTION, MemoryType

_ADVICE = "delete old memories or upgrade the quota"
_PRUNING_ADVICE = f"{_ADVICE}, or let Holdfast prune the oldest (auto_prune)"
_WORKING_ADVICE = "end the task, or let Holdfast drop the oldest (auto_prune)"


def excess(usage: Usage, memories: int, size: int) -> str | None:
    """What of a quota ``memories`` more records of ``size`` bytes would exceed; ``None`` if they fit."""
    if memories and usage.max_memories is not None and usage.memories + memories > usage.max_memories:
        return f"{usage.memories:,} of them, {memories:,} more asked for (max: {usage.max_memories:,})"
    if size and usage.max_bytes is not None and usage.bytes + size > usage.max_bytes:
        return f"{usage.bytes:,} bytes of them, {size:,} more asked for (max: {usage.max_bytes:,} bytes)"
    return None


def refuse(
    kind: MemoryType, user_id: str, problem: str, *, pruned: bool = False, hold: Hold | None = None
) -> QuotaExceededError:
    """The error for a write that does not fit; ``pruned``, if pruning did not help; ``hold``, if that is why."""
    if hold is not None:
        advice = (
            f"nothing more can be pruned, since hold {hold.id} ({hold.reason}) keeps the oldest; release it first "
            f"(holdfast hold release {hold.id}), or upgrade the quota"
        )
    elif kind is MemoryType.WORKING:
        advice = _WORKING_ADVICE
    else:
        advice = _ADVICE if pruned else _PRUNING_ADVICE
    return QuotaExceededError(f"quota for {kind} memories of user {user_id!r} exceeded: {problem}; {advice}")


def prune_count(memories: int) -> int:
    """How many of a user's memories one prune recycles."""
    return max(1, math.floor(memories * PRUNE_FRACTION))
