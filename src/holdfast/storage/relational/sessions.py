"""Sessions in a relational engine: which one a scope is in, how a conversation moves, and its short-term window."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from holdfast.core.clock import check_deadline
from holdfast.core.decisions import Hold, reason_for
from holdfast.core.errors import StorageError
from holdfast.core.records import BIN, HISTORY, MESSAGE_BITS, Cause, Message, Move, Outcome, Scope, State, Subject
from holdfast.core.values import pack, parse_json_object, to_json, unpack
from holdfast.ports.conversations import Session, SessionWindow, ShortTermStore, ShortWindow
from holdfast.ports.feed import SEPARATOR
from holdfast.storage.relational.database import NOBODY, DuplicateError, SqlStore, Transaction
from holdfast.storage.relational.moves import MoveBatch, refuse_removed_agents, removed_until
from holdfast.storage.relational.rules import Holds, Profiles, scope_of


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


class SqlShortTerm(SqlStore):
    """The ``ShortTermStore`` of the relational engines."""

    is_outside = False

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

    def window(
        self, scope: Scope, *, now: int, session: str | None = None, held: Mapping[str, Message] | None = None
    ) -> list[Message]:
        with self._database.read() as tx:
            subject = tx.number_of(scope.subject)
            window = _current(tx, (subject, *name_of(scope)), now, session)
            if window is None:
                return []
            place = (subject, window.no)
            if held and set((tx.find(str, "sessions.short_ids", place) or "").split(SEPARATOR)) == held.keys():
                return list(held.values())
            found = tx.all(MessageRow, "sessions.short_messages", place)
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
        return self._change("sessions.end_windows_of_agent", agent_id, tenant)

    def end_user(self, tenant: str, user_id: str) -> int:
        with self._database.write() as tx:
            return tx.run("sessions.end_windows_of_user", (tx.number_of(Subject(tenant, user_id)),))

    def end_expired(self, now: int, limit: int) -> int:
        return self._change("sessions.end_expired", now, limit)

    def windows(self, tenant: str, user_id: str, *, known: Iterable[tuple[str, str | None]]) -> Iterator[ShortWindow]:
        del known  # ids are kept as they are
        subject = Subject(tenant, user_id)
        for window in self._ask_about(subject, UserWindow, "sessions.windows_of_user"):
            rows = self._ask_about(subject, MessageRow, "sessions.short_messages", window.no)
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


class OpenSession(NamedTuple):
    """What is to be known of a session to add messages to it."""

    number: int
    id: str
    version: int
    summary: str
    hidden_from: int | None
    next_key: int


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
    external_id: str | None = None
    purge_at: int | None = None
    key: int = 0
    subject: Subject = NOBODY
    agent_id: str = ""
    session_id: str | None = None
    session: str = ""


def as_message(row: MessageRow) -> Message:
    """A stored message as callers know it; whoever reads many stops at the deadline."""
    check_deadline()
    metadata = parse_json_object(row.metadata)
    return Message(row.id, row.role, unpack(row.content), row.created_at, metadata, row.external_id)


class StoredMessage(NamedTuple):
    """What a message becomes in its row, in the order in which it is written."""

    id: str
    role: str
    created_at: int
    metadata: str
    external_id: str | None
    content: str | bytes

    @property
    def size(self) -> int:
        """How many bytes its content takes."""
        return len(self.content.encode()) if isinstance(self.content, str) else len(self.content)


def to_stored_message(message: Message) -> StoredMessage:
    """The stored form of a message."""
    metadata, content = to_json(message.metadata), pack(message.content)
    return StoredMessage(message.id, message.role, message.created_at, metadata, message.external_id, content)


def move_session(profiles: Profiles, batch: MoveBatch, move: Move) -> Outcome:
    """Carry out a move of a subject's conversation within a transaction, or say why not."""
    session = find_by_id(batch.tx, batch.number, move.id)
    if session is None or (session.state, session.version) != (move.source, move.version):
        return Outcome.STALE
    if move.target not in _NEXT.get(move.source, ()):
        return Outcome.STALE
    if move.target is State.ACTIVE:
        if removed_until(batch.tx, batch.subject.tenant, session.agent_id) is not None:
            return batch.answer(move, HISTORY, Outcome.PARTED)
        there = find_active(batch.tx, batch.number, session.agent_id, session.session_id)
        if there is not None and is_over(there.hidden_from, batch.now):  # then it is in nobody's way
            _free_name(profiles, batch, there)
    hold = hold_on_session(batch.tx, batch.holds, batch.number, session)
    return batch.move_session(move, hold, lambda: _carry_out(batch, session, move))


def _carry_out(batch: MoveBatch, session: Session, move: Move) -> Outcome:
    tx, subject, number = batch.tx, batch.number, session.number
    if move.target is State.DELETED:
        ended = tx.run("sessions.end_session", (number, *message_keys(subject, number)))
        return Outcome.DONE if ended else Outcome.STALE  # some of its messages are still there
    if move.source is State.ACTIVE:  # whatever the reason, and by whatever path: the short-term window ends with it
        window = (subject, session.agent_id, session.session_id or "", session.id)
        tx.later("sessions.end_window_of_session", window)
        batch.ended.append(SessionWindow(scope_of(batch.subject, session.agent_id, session.session_id), session.id))
    if move.target is State.DELETING:
        tx.run("sessions.claim_session", (subject, move.target, batch.now, move.reason, move.purge_at, number))
        return Outcome.DONE
    values = (subject, move.target, batch.now, move.reason, move.purge_at, move.bundle, move.aged_from, number)
    if move.target is not State.ACTIVE:  # nobody can be in its way
        tx.later("sessions.move_session", values)
        return Outcome.DONE
    try:
        with tx.attempt():
            tx.run("sessions.move_session", values)
    except DuplicateError:
        return Outcome.TAKEN
    return Outcome.DONE


def open_session(tx: Transaction, profiles: Profiles, scope: Scope, *, now: int, begun: int) -> Session:
    """The scope's session, begun if there is none (its version is 1 then). One whose time is over is not revived: it
    goes to the recycle bin or, if a hold keeps it, gives up its name.
    """
    subject = tx.number_for(scope.subject)
    refuse_removed_agents(tx, [scope])
    session = find_active(tx, subject, scope.agent_id, scope.session_id)
    if session is not None and is_over(session.hidden_from, now):
        batch = MoveBatch(tx, scope.subject, subject, now=now)
        _free_name(profiles, batch, session)
        batch.save()
        session = None
    if session is None:
        profile = profiles.find(tx, HISTORY, scope)
        tx.run("sessions.new_session", (subject, *name_of(scope), uuid.uuid4().hex, profile, begun))
        (session,) = tx.all(Session, "sessions.session", (subject, *name_of(scope)))
    return session


def continue_session(
    tx: Transaction, profiles: Profiles, subject: int, scope: Scope, *, now: int, begun: int
) -> OpenSession:
    """The same, with the key that its next message has: at one look, where there is a session that goes on."""
    opened = tx.find(OpenSession, "sessions.opened", (subject, *name_of(scope), scope.tenant))
    if opened is not None and not is_over(opened.hidden_from, now):
        return opened
    session = open_session(tx, profiles, scope, now=now, begun=begun)
    next_key = tx.number("sessions.next_place", message_keys(subject, session.number))
    return OpenSession(session.number, session.id, session.version, session.summary, None, next_key)


def is_over(hidden_from: int | None, now: int) -> bool:
    """Whether the time of a session is over, swept or not."""
    return hidden_from is not None and hidden_from <= now


def _free_name(profiles: Profiles, batch: MoveBatch, session: Session) -> None:
    """Recycle a session whose time is over and whose name is wanted; one that a hold keeps gives up its name alone."""
    if hold_on_session(batch.tx, batch.holds, batch.number, session) is not None:
        batch.tx.run("sessions.give_up_name", (batch.number, session.number))
        return
    scope = scope_of(batch.subject, session.agent_id, session.session_id)
    life = profiles.life(batch.tx, HISTORY, scope, session.id)
    reason = reason_for(HISTORY, life, State.RECYCLED)
    move = Move(session.id, session.version, State.ACTIVE, State.RECYCLED, reason, Cause.RULE, rule=life.delete_by)
    move = move._replace(purge_at=batch.now + BIN)
    batch.move_session(move, None, lambda: _carry_out(batch, session, move))


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


def hold_on_session(tx: Transaction, holds: Holds, subject: int, session: Session) -> Hold | None:
    """The hold that covers a session, or any message of it."""
    keys = message_keys(subject, session.number)
    return find_session_hold(tx, holds, keys, session.id, (session.agent_id, session.session_id))


def find_session_hold(
    tx: Transaction, holds: Holds, keys: tuple[int, int, int], item_id: str, name: tuple[str, str | None]
) -> Hold | None:
    """The same for a session by its id, agent and name: what takes the whole takes each of its messages."""
    found = holds.find(*name, item_id)
    ids = [hold.memory_id for hold in holds.active if hold.memory_id is not None]
    tagged = any(hold.tag is not None for hold in holds.active)
    if found is not None or not (ids or tagged):
        return found
    messages = tx.all(HeldMessage, "sessions.messages_to_hold", (*keys, tagged, to_json(ids)))
    held = (holds.find(*name, message.id, message.metadata) for message in messages)
    return next(filter(None, held), None)


def find_session(tx: Transaction, scope: Scope, now: int) -> Session | None:
    """The scope's session, if it can be seen now."""
    return tx.find(
        Session, "sessions.visible_session", (tx.number_of(scope.subject), scope.subject, *visible(scope, now))
    )


def visible(scope: Scope, now: int) -> tuple[object, ...]:
    """What ``visible_session`` is asked with, beside the subject."""
    return (*name_of(scope), now, scope.tenant)


def find_active(tx: Transaction, subject: int, agent_id: str, session_id: str | None) -> Session | None:
    """The active session of a name, be its time over or not."""
    return tx.find(Session, "sessions.session", (subject, agent_id, session_id or ""))


def find_by_id(tx: Transaction, subject: int | None, item_id: str) -> Session | None:
    """A subject's session, by its id."""
    return tx.find(Session, "sessions.session_by_id", (item_id, subject))


def message_keys(subject: int, session: int) -> tuple[int, int, int]:
    """Whose they are, and the first and the last key that messages of a session can have."""
    return subject, session << MESSAGE_BITS, (session + 1 << MESSAGE_BITS) - 1


def name_of(scope: Scope) -> tuple[str, str]:
    """The agent and the session of a scope as they are stored."""
    return scope.agent_id, scope.session_id or ""
