"""What was said lately, for as long as a session's window is kept: the ``ShortTermStore`` of a relational engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from holdfast.core.records import Message, Scope, Subject
from holdfast.ports.conversations import SessionWindow, ShortWindow
from holdfast.storage.relational.conversations.sessions import MessageRow, as_message, name_of, to_stored_message
from holdfast.storage.relational.database import Database, Transaction


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
            if window is None or not tx.run(
                "sessions.keep_window", (subject, now + ttl, number)
            ):  # ended by another
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
            return sum(
                tx.run("sessions.remove_short", (subject, row.no, message_id)) for message_id in message_ids
            )

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
