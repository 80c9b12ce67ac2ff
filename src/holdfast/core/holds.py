"""Holds: while one stands, nothing that it covers is archived, recycled, deleted, pruned or erased. And quotas:
whether a write fits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.core.errors import QuotaExceededError
from holdfast.core.records import PRUNE_FRACTION, MemoryType, Usage

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


class Held(NamedTuple):
    """What a hold can look at: whose something is, and what it is."""

    user_id: str
    agent_id: str
    session_id: str | None
    item_id: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Hold:
    """A hold on all that one user, agent, session or tag has in a tenant, or on one memory."""

    id: str
    tenant: str
    reason: str
    author: str
    created_at: int
    user_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    memory_id: str | None = None
    tag: str | None = None
    released_at: int | None = None
    released_by: str | None = None

    def covers(self, thing: Held) -> bool:
        """Whether something is under this hold. Every part that the hold names must be the thing's, whole."""
        return (
            self.released_at is None
            and self.user_id in (None, thing.user_id)
            and self.agent_id in (None, thing.agent_id)
            and self.session_id in (None, thing.session_id)
            and self.memory_id in (None, thing.item_id)
            and (self.tag is None or is_tagged(thing.metadata, self.tag))
        )


def is_tagged(metadata: Mapping[str, Any], tag: str) -> bool:
    """Whether metadata carry a tag: ``key=value`` is a field with that value, any other text is one of ``tags``."""
    key, equals, wanted = tag.partition("=")
    if equals:
        value = metadata.get(key)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return value is not None and text == wanted
    tags = metadata.get("tags")
    return tag == tags or (isinstance(tags, list) and tag in tags)


def find_hold(thing: Held, holds: Iterable[Hold]) -> Hold | None:
    """The first hold that covers something."""
    return next((hold for hold in holds if hold.covers(thing)), None)
