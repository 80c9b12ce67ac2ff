"""What is due, and why: pure functions that sweeps, dry runs, forecasts and explanations all call."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from holdfast.core.holds import Held, Hold, find_hold
from holdfast.core.records import LIVE, TYPES, Archive, MemoryType, State, Subject
from holdfast.core.rules import BIN, HISTORY, Life
from holdfast.core.times import describe_duration, iso

#: Why something in the recycle bin is deleted for good.
BIN_REASON: Final = f"{describe_duration(BIN)} in the recycle bin"
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
        for after, target in ((life.archive_after, State.ARCHIVED), (life.delete_after, State.RECYCLED))
        if after is not None and (target is State.RECYCLED or record.state is State.ACTIVE)
    ]
    if record.state not in LIVE or not coming:
        return None
    return _decide_by_rule(record, life, min(coming)[1])


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
