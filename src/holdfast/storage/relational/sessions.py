"""Sessions in a relational engine: which one a scope is in, and how a whole conversation moves from state to state."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Sequence
from typing import Any, Final

from holdfast.core.content import to_json
from holdfast.core.decisions import reason_for
from holdfast.core.errors import StorageError
from holdfast.core.holds import Held, Hold, standing
from holdfast.core.records import Cause, Move, Outcome, Scope, State, Subject
from holdfast.core.rules import BIN, HISTORY
from holdfast.ports.conversations import Session, SessionWindow, ShortTermStore
from holdfast.storage.relational.database import DuplicateError, Names, Transaction
from holdfast.storage.relational.moves import Mover, is_removed
from holdfast.storage.relational.records import refuse_removed_agents
from holdfast.storage.relational.rules import Profiles, scope_of

SQL: Final = Names("conversations")
_log = logging.getLogger("holdfast.sessions")
_COUNT_BITS: Final = 24
#: The moves of a conversation. Its messages are many, so that there is no way past ``DELETING``.
_NEXT: Final = {
    State.ACTIVE: {State.RECYCLED, State.DELETING},
    State.RECYCLED: {State.ACTIVE, State.DELETING},
    State.DELETING: {State.DELETED},
}


def move_session(tx: Transaction, profiles: Profiles, mover: Mover, move: Move, *, now: int) -> Outcome:
    """Carry out a move of a subject's conversation within a transaction, or say why not."""
    row = tx.one(SQL["session_by_id"], (move.id, mover.number))
    if row is None or (row[4], row[5]) != (move.source, move.version) or move.target not in _NEXT.get(move.source, ()):
        return Outcome.STALE
    if move.target is State.ACTIVE and is_removed(tx, mover.subject.tenant, row[2]):
        return mover.answer(move, HISTORY, Outcome.PARTED)
    if move.target is State.ACTIVE:  # one of the same name whose time is over is in nobody's way
        there = tx.one(SQL["session"], (mover.number, *row[2:4]))
        if there is not None and _is_over(there, now):
            _make_way(tx, profiles, mover, there, now)
    hold = hold_on(tx, mover, row)
    return mover.move_session(move, hold, lambda: _carry_out(tx, mover, row, move, now))


def _carry_out(tx: Transaction, mover: Mover, row: tuple[Any, ...], move: Move, now: int) -> Outcome:
    subject, number, item_id, agent_id, session_id = mover.number, *row[:4]
    if move.target is State.DELETED:
        ended = tx.run(SQL["end_session"], (number, *message_keys(subject, number)))
        return Outcome.DONE if ended else Outcome.STALE  # some of its messages are still there
    if move.source is State.ACTIVE:  # whatever the reason, and by whatever path: the short-term window ends with it
        tx.run(SQL["end_window_of_session"], (subject, agent_id, session_id, item_id))
        mover.ended.append(SessionWindow(scope_of(mover.subject, agent_id, session_id or None), item_id))
    if move.target is State.DELETING:
        tx.run(SQL["claim_session"], (subject, move.target, now, move.reason, move.purge_at, number))
        return Outcome.DONE
    values = (subject, move.target, now, move.reason, move.purge_at, move.bundle, move.aged_from, number)
    try:
        with tx.attempt():
            tx.run(SQL["move_session"], values)
    except DuplicateError:
        return Outcome.TAKEN
    return Outcome.DONE


def open_session(tx: Transaction, profiles: Profiles, scope: Scope, *, now: int, begun: int) -> tuple[int, Session]:
    """The scope's session, begun if there is none (its version is 1 then). One whose time is over is not revived: it
    goes to the recycle bin or, if a hold keeps it, steps aside.
    """
    subject = tx.number_for(scope.subject)
    refuse_removed_agents(tx, [scope])
    who = (subject, *name_of(scope))
    row = tx.one(SQL["session"], who)
    if row is not None and _is_over(row, now):
        mover = Mover(tx, scope.subject, subject, now=now)
        _make_way(tx, profiles, mover, row, now)
        mover.save()
        row = None
    if row is None:
        profile = profiles.find(tx, HISTORY, scope)
        tx.run(SQL["new_session"], (*who, uuid.uuid4().hex, profile, begun))
        row = tx.one(SQL["session"], who) or ()
    return row[0], as_session(scope.subject, row)


def go_on(tx: Transaction, profiles: Profiles, scope: Scope, *, now: int, begun: int) -> tuple[int, Session, int]:
    """The same, and the key that its next message has: at one look, where there is a session that goes on."""
    subject = tx.number_for(scope.subject)
    row = tx.one(SQL["opened"], (subject, *name_of(scope), scope.tenant))
    if row is not None and not _is_over(row, now):
        return row[0], as_session(scope.subject, row[:-1]), row[-1]
    number, session = open_session(tx, profiles, scope, now=now, begun=begun)
    return number, session, tx.value(SQL["next_place"], message_keys(subject, number))


def _make_way(tx: Transaction, profiles: Profiles, mover: Mover, row: tuple[Any, ...], now: int) -> None:
    """Recycle a session whose time is over and whose name is wanted; one that a hold keeps gives up its name alone."""
    number, item_id, agent_id, session_id, _, version, *_ = row
    life = profiles.life(tx, HISTORY, scope_of(mover.subject, agent_id, session_id or None), item_id)
    reason = reason_for(HISTORY, life, State.RECYCLED)
    move = Move(
        item_id, version, State.ACTIVE, State.RECYCLED, reason, Cause.RULE, rule=life.delete_by, purge_at=now + BIN
    )
    if hold_on(tx, mover, row) is None:
        mover.move_session(move, None, lambda: _carry_out(tx, mover, row, move, now))
    else:
        tx.run(SQL["step_aside"], (mover.number, number))


def end_windows(elsewhere: ShortTermStore | None, ended: Sequence[SessionWindow]) -> None:
    """End windows that another server keeps, once their sessions have gone.

    A window that is left behind here shows nothing (its session is not to be seen), and is ended again when its
    session is deleted for good.
    """
    if elsewhere is None or not ended:
        return
    try:
        elsewhere.end(ended)
    except StorageError as problem:
        _log.warning("%d short-term windows are not removed yet: %s", len(ended), problem)


def hold_on(tx: Transaction, mover: Mover, row: tuple[Any, ...]) -> Hold | None:
    """The hold that covers a session, or any message of it: what takes the whole takes each of them."""
    if not mover.holds:
        return None
    number, item_id, agent_id, session_id = row[:4]
    thing = Held(mover.subject.user_id, agent_id, session_id or None, item_id, {})
    found = standing(thing, mover.holds)
    ids = [hold.memory_id for hold in mover.holds if hold.memory_id is not None]
    tagged = any(hold.tag is not None for hold in mover.holds)
    if found is None and (ids or tagged):
        where = (*message_keys(mover.number, number), tagged, to_json(ids))
        for message_id, metadata in tx.rows(SQL["messages_to_hold"], where):
            message = thing._replace(item_id=message_id, metadata=json.loads(metadata))
            found = found or standing(message, mover.holds)
    return found


def find_session(tx: Transaction, scope: Scope, now: int) -> tuple[int, Session] | None:
    """The scope's session, if it can be seen now."""
    row = tx.one(SQL["visible_session"], visible(scope, now))
    return None if row is None else (row[0], as_session(scope.subject, row))


def visible(scope: Scope, now: int) -> tuple[object, ...]:
    """What ``visible_session`` is asked with."""
    return (scope.subject, *name_of(scope), now, scope.tenant)


def _is_over(row: tuple[Any, ...], now: int) -> bool:
    """Whether a session's time is over, swept or not."""
    return row[9] is not None and row[9] <= now


def as_session(subject: Subject, row: tuple[Any, ...]) -> Session:
    """A stored session as callers know it."""
    _, item_id, agent_id, session_id, state, *rest = row
    return Session(item_id, subject, agent_id, session_id or None, State(state), *rest)


def message_keys(subject: int, session: int) -> tuple[int, int, int]:
    """Whose they are, and the first and the last key that messages of a session can have."""
    return subject, session << _COUNT_BITS, (session + 1 << _COUNT_BITS) - 1


def name_of(scope: Scope) -> tuple[str, str]:
    """The agent and the session of a scope as they are stored."""
    return scope.agent_id, scope.session_id or ""
