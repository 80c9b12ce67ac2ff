"""Removing much at once because someone asked for it: it goes to the recycle bin, in small batches."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from holdfast.core.decisions import RecordFacts, Window
from holdfast.core.errors import HeldError
from holdfast.core.records import TYPES, Cause, MemoryType, Move, Outcome, State, Subject
from holdfast.core.rules import BIN
from holdfast.core.times import describe_duration
from holdfast.ports.conversations import History
from holdfast.ports.records import RecordStore
from holdfast.ports.rules import DueReader

_log = logging.getLogger("holdfast.clearing")
_BATCH: Final = 500


class Cleared(NamedTuple):
    """How much went, and how much a hold kept."""

    moved: int
    held: int


def counted(cleared: Cleared, user_id: str) -> int:
    """How much went; ``HeldError`` if a hold kept all there is."""
    if cleared.held and not cleared.moved:
        raise HeldError(
            f"{cleared.held:,} memories of user {user_id!r} are on hold and nothing was deleted; "
            "see the holds with: holdfast hold list"
        )
    return cleared.moved


def clear(
    records: RecordStore,
    subject: Subject,
    kind: MemoryType,
    *,
    reason: str,
    cause: Cause,
    now: int,
    whose: str,
) -> Cleared:
    """Move a subject's live records of a kind into the recycle bin; a hold keeps what it covers. The log knows the
    subject as ``whose``.
    """
    moved = held = 0
    for some in _pages(records, subject, kind):
        moves = [Move(s.id, s.version, s.state, State.RECYCLED, reason, cause, purge_at=now + BIN) for s in some]
        outcomes = records.transition(subject, moves, now=now)
        moved += outcomes.count(Outcome.DONE)
        held += outcomes.count(Outcome.HELD)
    _log.info("%d %s memories of user %s went to the recycle bin, %d were on hold", moved, kind, whose, held)
    return Cleared(moved, held)


def clear_conversations(history: History, subject: Subject, *, now: int) -> Cleared:
    """Move a subject's conversations into the recycle bin, with which their short-term windows end; how many messages.

    One that a hold keeps stays as it is, window and all.
    """
    moved = held = 0
    for session in history.sessions(subject, now=now):
        reason = "deleted by the user, with all conversations"
        move = Move(session.id, session.version, session.state, State.RECYCLED, reason, purge_at=now + BIN)
        ((outcome,),) = history.transition_all([(subject, [move])], now=now)
        moved += session.messages if outcome is Outcome.DONE else 0
        held += session.messages if outcome is Outcome.HELD else 0
    return Cleared(moved, held)


def clear_aged(
    dues: DueReader,
    records: RecordStore,
    tenant: str,
    kind: MemoryType,
    *,
    now: int,
    subject: Subject | None = None,
    agent_id: str | None = None,
) -> Cleared:
    """Move records that are past the end of their active time into the recycle bin, archived or not."""
    moved = held = 0
    for profile in dues.profiles(tenant):
        ends = [after for after in profile.life[:2] if after is not None]
        if profile.kind != kind or not ends:
            continue
        age = max(min(ends), profile.life.keep_for or 0)
        reason = f"cleaned up: older than {describe_duration(age)}"
        for state in (State.ACTIVE, State.ARCHIVED):
            after: Any = {}
            while True:
                page = dues.due(
                    profile, state, Window(State.RECYCLED, None, now - age), **after, limit=_BATCH, tags=False
                )
                wanted = [
                    s for s in page.standings if subject in (None, s.subject) and agent_id in (None, s.thing.agent_id)
                ]
                outcomes = _recycle(records, wanted, reason, now)
                moved += outcomes[Outcome.DONE]
                held += outcomes[Outcome.HELD]
                if len(page.standings) < _BATCH:
                    break
                after = {"after": page.last}
    _log.info("cleaned up %d %s memories, %d were on hold", moved, kind, held)
    return Cleared(moved, held)


def _recycle(records: RecordStore, standings: Sequence[RecordFacts], reason: str, now: int) -> Counter[Outcome]:
    batches: dict[Subject, list[Move]] = defaultdict(list)
    for s in standings:
        move = Move(s.id, s.version, s.state, State.RECYCLED, reason, Cause.CLEANUP, purge_at=now + BIN)
        batches[s.subject].append(move)
    answers = records.transition_all(list(batches.items()), now=now) if batches else []
    return Counter(outcome for some in answers for outcome in some)


def _pages(records: RecordStore, subject: Subject, kind: MemoryType) -> Iterator[list[RecordFacts]]:
    place = 0
    while True:
        some, place = records.live(subject, TYPES[kind], after=place, limit=_BATCH)
        if some:
            yield some
        if len(some) < _BATCH:
            return
