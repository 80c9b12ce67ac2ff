"""Sessions in a relational engine: which one a scope is in, how a conversation moves, and its short-term window."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from holdfast.core.clock import check_deadline
from holdfast.core.decisions import Held, Hold, find_hold, reason_for
from holdfast.core.errors import StorageError
from holdfast.core.records import BIN, HISTORY, Cause, Message, Move, Outcome, Scope, State, Subject
from holdfast.core.values import pack, parse_json_object, to_json, unpack
from holdfast.ports.conversations import Session, SessionWindow, ShortTermStore, ShortWindow
from holdfast.storage.catalog import MESSAGE_BITS
from holdfast.storage.relational.database import NOBODY, Database, DuplicateError, Transaction
from holdfast.storage.relational.moves import MoveBatch, is_removed
from holdfast.storage.relational.records import refuse_removed_agents
from holdfast.storage.relational.rules import Profiles, scope_of


class WindowRow(NamedTuple):
    """A short-term window, and the id of the session that it is of."""

    no: int
    expires_at: int
    session: str


class UserWindow(NamedTuple):
    """A short-term window of a user."""

    no: int
    agent_id: str
    session_id: str
    expires_at: int


class SqlShortTerm:
    """The ``ShortTermStore`` of the relational engines."""

    is_outside = False

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(
        self, scope: Scope, messages: Sequence[Message], *, ttl: int, now: int, most: int, session: str = ""
    ) -> int:
        with self._database.write(scope.subject) as tx:
            if tx.is_alone:  # elsewhere, nobody waits for what is another's
                tx.run("sessions.end_expired", (now, 16))
            subject = tx.number_for(scope.subject)
            who = (subject, *name_of(scope))
            window = _current(tx, who, now, session)
            number = 0 if window is None else window.no
            if window is None or not tx.run("sessions.keep_window", (subject, now + ttl, number)):  # ended by another
                tx.run("sessions.end_window", who)
                number = tx.number("sessions.new_window", (*who, now + ttl, session))
            tx.run_many(
                "sessions.append_short", ((subject, number, *to_stored_message(message)) for message in messages)
            )
            held = tx.number("sessions.count_short", (subject, number))
            if held > most:
                tx.run("sessions.trim_short", (subject, number, held - most))
            return held

    def window(self, scope: Scope, *, now: int, session: str | None = None) -> list[Message]:
        with self._database.read() as tx:
            subject = tx.number_of(scope.subject)
            window = _current(tx, (subject, *name_of(scope)), now, session)
            found = [] if window is None else tx.all(MessageRow, "sessions.short_messages", (subject, window.no))
        return [as_message(row) for row in found]

    def expires_at(self, scope: Scope, *, now: int, session: str | None = None) -> int | None:
        with self._database.read() as tx:
            subject = tx.number_of(scope.subject)
            window = _current(tx, (subject, *name_of(scope)), now, session)
            held = 0 if window is None else tx.number("sessions.count_short", (subject, window.no))
        return window.expires_at if window is not None and held else None

    def remove(self, scope: Scope, message_ids: Sequence[str]) -> int:
        with self._database.write() as tx:
            subject = tx.number_of(scope.subject)
            row = tx.find(WindowRow, "sessions.window", (subject, *name_of(scope)))
            if row is None:
                return 0
            return sum(tx.run("sessions.remove_short", (subject, row.no, message_id)) for message_id in message_ids)

    def end(self, windows: Sequence[SessionWindow]) -> int:
        ended = 0
        for scope, session in windows:
            with self._database.write() as tx:
                who = (tx.number_of(scope.subject), *name_of(scope))
                if session is None:
                    ended += tx.run("sessions.end_window", who)
                else:
                    ended += tx.run("sessions.end_window_of_session", (*who, session))
        return ended

    def end_agent(self, tenant: str, agent_id: str) -> int:
        with self._database.write() as tx:
            return tx.run("sessions.end_windows_of_agent", (agent_id, tenant))

    def end_user(self, tenant: str, user_id: str) -> int:
        with self._database.write() as tx:
            return tx.run("sessions.end_windows_of_user", (tx.number_of(Subject(tenant, user_id)),))

    def end_expired(self, now: int, limit: int) -> int:
        with self._database.write() as tx:
            return tx.run("sessions.end_expired", (now, limit))

    def windows(self, tenant: str, user_id: str, *, known: Iterable[tuple[str, str | None]]) -> Iterator[ShortWindow]:
        del known  # ids are kept as they are
        with self._database.read() as tx:
            subject = tx.number_of(Subject(tenant, user_id))
            found = tx.all(UserWindow, "sessions.windows_of_user", (subject,))
        for window in found:
            with self._database.read() as tx:
                rows = tx.all(MessageRow, "sessions.short_messages", (subject, window.no))
            if rows:
                messages = [as_message(row) for row in rows]
                yield ShortWindow(window.agent_id, window.session_id or None, window.expires_at, messages)


def _current(tx: Transaction, who: tuple[object, ...], now: int, session: str | None) -> WindowRow | None:
    """A session's window, if it has not expired and is of that session."""
    row = tx.find(WindowRow, "sessions.window", who)
    return row if row is not None and row.expires_at > now and session in (None, row.session) else None


_log = logging.getLogger("holdfast.sessions")
#: The moves of a conversation. Its messages are many, so that there is no way past ``DELETING``.
_NEXT: Final = {
    State.ACTIVE: {State.RECYCLED, State.DELETING},
    State.RECYCLED: {State.ACTIVE, State.DELETING},
    State.DELETING: {State.DELETED},
}


class SessionPlace(NamedTuple):
    """Where a session is: its number and id, and whose it is. An empty text is the session without a name."""

    no: int
    id: str
    agent_id: str
    session_id: str


class SessionRow(NamedTuple):
    """A session, as it is stored."""

    no: int
    id: str
    agent_id: str
    session_id: str
    state: str
    version: int
    created_at: int
    updated_at: int
    aged_from: int
    hidden_from: int | None
    moved_at: int | None
    reason: str | None
    purge_at: int | None
    bundle: str | None
    messages: int
    size: int
    summary: str
    subject: Subject = NOBODY
    next_key: int = 0

    @property
    def place(self) -> SessionPlace:
        """Where it is."""
        return SessionPlace(self.no, self.id, self.agent_id, self.session_id)

    def is_over(self, now: int) -> bool:
        """Whether its time is over, swept or not."""
        return self.hidden_from is not None and self.hidden_from <= now

    def session(self, subject: Subject) -> Session:
        """The session as callers know it."""
        return Session(
            id=self.id,
            subject=subject,
            agent_id=self.agent_id,
            session_id=self.session_id or None,
            state=State(self.state),
            version=self.version,
            created_at=self.created_at,
            updated_at=self.updated_at,
            aged_from=self.aged_from,
            hidden_from=self.hidden_from,
            moved_at=self.moved_at,
            reason=self.reason,
            purge_at=self.purge_at,
            bundle=self.bundle,
            messages=self.messages,
            size=self.size,
            summary=self.summary,
        )


class HeldMessage(NamedTuple):
    """A message, as a hold looks at it."""

    id: str
    metadata: str


class MessageRow(NamedTuple):
    """A message, as it is stored; who it is of, where that is asked."""

    id: str
    role: str
    content: str | bytes
    created_at: int
    metadata: str
    purge_at: int | None = None
    key: int = 0
    subject: Subject = NOBODY
    agent_id: str = ""
    session_id: str | None = None
    session: str = ""


def as_message(row: MessageRow) -> Message:
    """A stored message as callers know it; whoever reads many stops at the deadline."""
    check_deadline()
    return Message(row.id, row.role, unpack(row.content), row.created_at, parse_json_object(row.metadata))


class StoredMessage(NamedTuple):
    """What a message becomes in its row, in the order in which it is written."""

    id: str
    role: str
    created_at: int
    metadata: str
    content: str | bytes

    @property
    def size(self) -> int:
        """How many bytes its content takes."""
        return len(self.content.encode()) if isinstance(self.content, str) else len(self.content)


def to_stored_message(message: Message) -> StoredMessage:
    """The stored form of a message."""
    return StoredMessage(message.id, message.role, message.created_at, to_json(message.metadata), pack(message.content))


def move_session(tx: Transaction, profiles: Profiles, batch: MoveBatch, move: Move, *, now: int) -> Outcome:
    """Carry out a move of a subject's conversation within a transaction, or say why not."""
    row = find_by_id(tx, batch.number, move.id)
    if row is None or (row.state, row.version) != (move.source, move.version):
        return Outcome.STALE
    if move.target not in _NEXT.get(move.source, ()):
        return Outcome.STALE
    if move.target is State.ACTIVE and is_removed(tx, batch.subject.tenant, row.agent_id):
        return batch.answer(move, HISTORY, Outcome.PARTED)
    if move.target is State.ACTIVE:  # one of the same name whose time is over is in nobody's way
        there = tx.find(SessionRow, "sessions.session", (batch.number, row.agent_id, row.session_id))
        if there is not None and there.is_over(now):
            _free_name(tx, profiles, batch, there, now)
    hold = hold_on(tx, batch, row.place)
    return batch.move_session(move, hold, lambda: _carry_out(tx, batch, row, move, now))


def _carry_out(tx: Transaction, batch: MoveBatch, row: SessionRow, move: Move, now: int) -> Outcome:
    subject, number = batch.number, row.no
    if move.target is State.DELETED:
        ended = tx.run("sessions.end_session", (number, *message_keys(subject, number)))
        return Outcome.DONE if ended else Outcome.STALE  # some of its messages are still there
    if move.source is State.ACTIVE:  # whatever the reason, and by whatever path: the short-term window ends with it
        tx.run("sessions.end_window_of_session", (subject, row.agent_id, row.session_id, row.id))
        batch.ended.append(SessionWindow(scope_of(batch.subject, row.agent_id, row.session_id or None), row.id))
    if move.target is State.DELETING:
        tx.run("sessions.claim_session", (subject, move.target, now, move.reason, move.purge_at, number))
        return Outcome.DONE
    values = (subject, move.target, now, move.reason, move.purge_at, move.bundle, move.aged_from, number)
    try:
        with tx.attempt():
            tx.run("sessions.move_session", values)
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
    row = tx.find(SessionRow, "sessions.session", who)
    if row is not None and row.is_over(now):
        batch = MoveBatch(tx, scope.subject, subject, now=now)
        _free_name(tx, profiles, batch, row, now)
        batch.save()
        row = None
    if row is None:
        profile = profiles.find(tx, HISTORY, scope)
        tx.run("sessions.new_session", (*who, uuid.uuid4().hex, profile, begun))
        (row,) = tx.all(SessionRow, "sessions.session", who)
    return row.no, row.session(scope.subject)


def continue_session(
    tx: Transaction, profiles: Profiles, scope: Scope, *, now: int, begun: int
) -> tuple[int, Session, int]:
    """The same, and the key that its next message has: at one look, where there is a session that goes on."""
    subject = tx.number_for(scope.subject)
    row = tx.find(SessionRow, "sessions.opened", (subject, *name_of(scope), scope.tenant))
    if row is not None and not row.is_over(now):
        return row.no, row.session(scope.subject), row.next_key
    number, session = open_session(tx, profiles, scope, now=now, begun=begun)
    return number, session, tx.number("sessions.next_place", message_keys(subject, number))


def _free_name(tx: Transaction, profiles: Profiles, batch: MoveBatch, row: SessionRow, now: int) -> None:
    """Recycle a session whose time is over and whose name is wanted; one that a hold keeps gives up its name alone."""
    life = profiles.life(tx, HISTORY, scope_of(batch.subject, row.agent_id, row.session_id or None), row.id)
    reason = reason_for(HISTORY, life, State.RECYCLED)
    move = Move(row.id, row.version, State.ACTIVE, State.RECYCLED, reason, Cause.RULE, rule=life.delete_by)
    move = move._replace(purge_at=now + BIN)
    if hold_on(tx, batch, row.place) is None:
        batch.move_session(move, None, lambda: _carry_out(tx, batch, row, move, now))
    else:
        tx.run("sessions.give_up_name", (batch.number, row.no))


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


def hold_on(tx: Transaction, batch: MoveBatch, place: SessionPlace) -> Hold | None:
    """The hold that covers a session, or any message of it: what takes the whole takes each of them."""
    if not batch.holds:
        return None
    thing = Held(batch.subject.user_id, place.agent_id, place.session_id or None, place.id, {})
    found = find_hold(thing, batch.holds)
    ids = [hold.memory_id for hold in batch.holds if hold.memory_id is not None]
    tagged = any(hold.tag is not None for hold in batch.holds)
    if found is None and (ids or tagged):
        where = (*message_keys(batch.number, place.no), tagged, to_json(ids))
        for row in tx.all(HeldMessage, "sessions.messages_to_hold", where):
            message = thing._replace(item_id=row.id, metadata=json.loads(row.metadata))
            found = found or find_hold(message, batch.holds)
    return found


def find_session(tx: Transaction, scope: Scope, now: int) -> tuple[int, Session] | None:
    """The scope's session, if it can be seen now."""
    row = tx.find(SessionRow, "sessions.visible_session", visible(scope, now))
    return None if row is None else (row.no, row.session(scope.subject))


def visible(scope: Scope, now: int) -> tuple[object, ...]:
    """What ``visible_session`` is asked with."""
    return (scope.subject, *name_of(scope), now, scope.tenant)


def find_by_id(tx: Transaction, subject: int | None, item_id: str) -> SessionRow | None:
    """A subject's session, by its id."""
    return tx.find(SessionRow, "sessions.session_by_id", (item_id, subject))


def message_keys(subject: int, session: int) -> tuple[int, int, int]:
    """Whose they are, and the first and the last key that messages of a session can have."""
    return subject, session << MESSAGE_BITS, (session + 1 << MESSAGE_BITS) - 1


def name_of(scope: Scope) -> tuple[str, str]:
    """The agent and the session of a scope as they are stored."""
    return scope.agent_id, scope.session_id or ""
