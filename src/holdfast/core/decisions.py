"""What is due and why, what a hold keeps, and whether a write fits its quota.

Sweeps, dry runs, forecasts and explanations all call these pure functions. While a hold covers something, it is not
archived, recycled, deleted, pruned or erased.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

from holdfast.core.errors import HeldError, QuotaExceededError
from holdfast.core.records import BIN, HISTORY, LIVE, PRUNE_FRACTION, TYPES, Archive, MemoryType, State, Subject, Usage
from holdfast.core.values import describe_duration, iso


class Life(NamedTuple):
    """What the rules that meet in one place come to; ``None`` is never."""

    archive_after: int | None
    delete_after: int | None
    """The later of what removes and what keeps."""
    keep_for: int | None
    archive_by: str
    """The rule that says so, in words."""
    delete_by: str
    keep_by: str | None
    versions: int | None = None
    """How many ended versions of a record are kept; ``None`` is all."""
    versions_for: int | None = None
    versions_by: str = ""

    @property
    def stored(self) -> tuple[int | None, ...]:
        """What a profile keeps of it."""
        return (*self[:3], self.versions, self.versions_for)


_ADVICE = "delete old memories or upgrade the quota"
_PRUNING_ADVICE = f"{_ADVICE}, or let Holdfast prune the oldest"
_WORKING_ADVICE = "end the task, or let Holdfast drop the oldest"


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
    needs = ("auto_prune",) if advice in (_WORKING_ADVICE, _PRUNING_ADVICE) else ()
    return QuotaExceededError(
        f"quota for {kind} memories of user {user_id!r} exceeded: {problem}; {advice}", needs=needs
    )


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

    @property
    def scope(self) -> dict[str, str]:
        """What it names."""
        parts = ("user_id", "agent_id", "session_id", "memory_id", "tag")
        return {part: getattr(self, part) for part in parts if getattr(self, part) is not None}

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


def held_error(record_id: str) -> HeldError:
    """The error for a memory that a hold keeps."""
    return HeldError(f"memory {record_id} is on hold and was not deleted; see the holds with: holdfast hold list")


#: Why something in the recycle bin is deleted for good.
BIN_REASON: Final = f"{describe_duration(BIN)} in the recycle bin"
VERSION_REASON: Final = "ended versions that their rule keeps no longer"
#: Of what no rule says anything; what is in the recycle bin has its own time.
NO_LIFE: Final = Life(None, None, None, "", "", None)


class RecordFacts(NamedTuple):
    """What a decision needs to know of a record, or of a session's conversation."""

    id: str
    kind: str
    subject: Subject
    thing: Held
    state: State
    version: int
    aged_from: int
    purge_at: int | None
    """When its time in the recycle bin is over."""
    size: int
    elsewhere: bool = False
    """Part of it lies in the object store."""


class Decision(NamedTuple):
    """The move that a record is due."""

    id: str
    kind: str
    subject: Subject
    version: int
    source: State
    target: State
    due_at: int
    rule: str
    """The rule and its version."""
    reason: str
    """In words."""
    size: int


class Window(NamedTuple):
    """Records whose age counts from a moment within ``(after, upto]`` are due the same move."""

    target: State
    after: int | None
    upto: int


@lru_cache(maxsize=1_024)
def windows(life: Life, state: State, now: int) -> tuple[Window, ...]:
    """What is due among live records of one state and life. A record is in one window at most: its last move's."""
    if state not in LIVE:
        return ()
    found = []
    deleted = None if life.delete_after is None else now - life.delete_after
    if deleted is not None:
        found.append(Window(State.RECYCLED, None, deleted))
    if state is State.ACTIVE and life.archive_after is not None:
        archived = now - life.archive_after
        if deleted is None or archived > deleted:
            found.append(Window(State.ARCHIVED, deleted, archived))
    return tuple(found)


def first_wait(life: Life, state: State) -> int | None:
    """How old a live record of a state is when its next move is due; ``None`` if none ever is."""
    archived = life.archive_after if state is State.ACTIVE else None
    return min((after for after in (life.delete_after, archived) if after is not None), default=None)


def split_window(kind: str, life: Life, window: Window, upto: int) -> tuple[Window | None, Window | None]:
    """The part of a window whose move may be made while the time is believed up to a moment, and the part that waits:
    to archive in place clears what no one can bring back, every other move of live records can be undone.
    """
    if window.target is not State.ARCHIVED or TYPES[MemoryType(kind)].archive is not Archive.SUMMARY:
        return window, None
    bound = upto - (life.archive_after or 0)
    if bound >= window.upto:
        return window, None
    if window.after is not None and bound <= window.after:
        return None, window
    return window._replace(upto=bound), window._replace(after=bound)


def decide(record: RecordFacts, life: Life, holds: Iterable[Hold], now: int) -> Decision | None:
    """The last move that a record is due, if there is one and no hold keeps it.

    What had begun to be deleted before a hold stood is finished.
    """
    due = next_move(record, life, now)
    if due is None or due.due_at > now:
        return None
    if record.state is not State.DELETING and find_hold(record.thing, holds) is not None:
        return None
    return due


def next_move(record: RecordFacts, life: Life, now: int) -> Decision | None:
    """What happens to a record next, whenever that is, and whether or not something holds it."""
    if record.state is State.RECYCLED and record.purge_at is not None:
        target = State.DELETING if record.elsewhere else State.DELETED
        return _decision(record, target, record.purge_at, "the recycle bin", BIN_REASON)
    if record.state is State.DELETING:
        return _decision(record, State.DELETED, now, "the recycle bin", "its deletion had begun")
    for window in windows(life, record.state, now):
        if record.aged_from <= window.upto and (window.after is None or record.aged_from > window.after):
            return _decide_by_rule(record, life, window.target)
    coming = [
        (after, target)
        # where both come at once, it is removed: the first of equals is taken
        for after, target in ((life.delete_after, State.RECYCLED), (life.archive_after, State.ARCHIVED))
        if after is not None and (target is State.RECYCLED or record.state is State.ACTIVE)
    ]
    if record.state not in LIVE or not coming:
        return None
    return _decide_by_rule(record, life, min(coming, key=itemgetter(0))[1])


def removal_reason(agent_id: str) -> str:
    """Why something followed an agent into the bin, in words."""
    return f"agent {agent_id} was removed"


@lru_cache(maxsize=1_024)
def reason_for(kind: str, life: Life, target: State) -> str:
    """Why a live record is due a move, in words."""
    after, rule = _find_term(life, target)
    since = {MemoryType.EPISODIC.value: "it ended", HISTORY: "it was last active"}.get(kind, "it was made")
    return f"{describe_duration(after)} after {since}, by {rule}"


def _find_term(life: Life, target: State) -> tuple[int, str]:
    """After how long a live record is due a move, and the rule that says so."""
    if target is State.ARCHIVED:
        return life.archive_after or 0, life.archive_by
    return life.delete_after or 0, life.delete_by


def _decide_by_rule(record: RecordFacts, life: Life, target: State) -> Decision:
    after, rule = _find_term(life, target)
    return _decision(record, target, record.aged_from + after, rule, reason_for(record.kind, life, target))


def _decision(record: RecordFacts, target: State, due_at: int, rule: str, reason: str) -> Decision:
    return Decision(
        record.id, record.kind, record.subject, record.version, record.state, target, due_at, rule, reason, record.size
    )


def explain_decision(decision: Decision) -> str:
    """A decision in a sentence."""
    verb = {State.ARCHIVED: "archived", State.RECYCLED: "moved to the recycle bin"}.get(decision.target, "deleted")
    return f"{verb} on {iso(decision.due_at)}: {decision.reason}"
