"""Conversations in SQLite: the durable ``History`` and the expiring ``ShortTermStore``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import apsw

from retain.core.content import pack, parse_json_object, to_json, unpack
from retain.core.records import Message, Scope
from retain.core.times import iso
from retain.storage.sql import statements
from retain.storage.sqlite.database import Database, one, rows, value
from retain.storage.sqlite.scopes import ensure_subject, subject_no

SQL: Final = statements("retain.storage.sqlite", "conversations.sql")
_COUNT_BITS: Final = 24
_ALL: Final = -1


class SqliteHistory:
    """The ``History`` of the embedded engine."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(self, scope: Scope, messages: Sequence[Message]) -> None:
        if not messages:
            return
        with self._database.write() as connection:
            who = (ensure_subject(connection, scope.subject), *_session(scope))
            row = one(connection, SQL["session"], who)
            if row is None:
                begun = messages[0].created_at
                row = one(connection, SQL["new_session"], (*who, begun, begun))
            number, count = row or (0, 0)
            first = value(connection, SQL["next_place"], _range(number))
            for key, message in enumerate(messages, first):
                connection.execute(SQL["append"], (key, *_row(message)))
            connection.execute(SQL["touch_session"], (messages[-1].created_at, count + len(messages), number))

    def messages(self, scope: Scope, *, limit: int | None = None) -> list[Message]:
        with self._database.read() as connection:
            who = (subject_no(connection, scope.subject), *_session(scope))
            row = one(connection, SQL["session"], who)
            if row is None:
                return []
            found = rows(connection, SQL["last_messages"], (*_range(row[0]), _ALL if limit is None else limit))
        return [_message(row) for row in reversed(found)]

    def remove(self, scope: Scope, message_ids: Sequence[str]) -> int:
        with self._database.write() as connection:
            row = one(connection, SQL["session"], (subject_no(connection, scope.subject), *_session(scope)))
            if row is None:
                return 0
            connection.execute(SQL["remove"], (*_range(row[0]), to_json(message_ids)))
            removed = connection.changes()
            connection.execute(SQL["count_down"], (removed, row[0]))
            return removed

    def owners(self, tenant: str, agent_id: str, session_id: str | None) -> list[str]:
        with self._database.read() as connection:
            found = rows(connection, SQL["owners"], (agent_id, session_id or ""))
        mine = [row[0].split("/", 1) for row in found]
        return [user_id for owner, user_id in mine if owner == tenant]

    def sessions(self, tenant: str, user_id: str, agent_id: str | None = None) -> list[dict[str, Any]]:
        with self._database.read() as connection:
            number = subject_no(connection, f"{tenant}/{user_id}")
            found = rows(connection, SQL["sessions"], (number, agent_id))
        return [
            {
                "agent_id": agent,
                "session_id": session or None,
                "created_at": iso(created),
                "updated_on": iso(updated),
                "messages": messages,
            }
            for agent, session, created, updated, messages in found
        ]


class SqliteShortTerm:
    """The ``ShortTermStore`` of the embedded engine."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(self, scope: Scope, messages: Sequence[Message], *, ttl: int, now: int, most: int) -> int:
        with self._database.write() as connection:
            connection.execute(SQL["end_expired"], (now,))
            who = (ensure_subject(connection, scope.subject), *_session(scope))
            window = _current(connection, who, now)
            if window is None:
                connection.execute(SQL["end_window"], who)
                number = value(connection, SQL["new_window"], (*who, now + ttl))
            else:
                number = window[0]
                connection.execute(SQL["keep_window"], (now + ttl, number))
            connection.executemany(SQL["append_short"], ((number, *_row(message)) for message in messages))
            held = value(connection, SQL["count_short"], (number,))
            if held > most:
                connection.execute(SQL["trim_short"], (number, number, held - most))
            return min(held, most)

    def window(self, scope: Scope, *, now: int) -> list[Message]:
        with self._database.read() as connection:
            window = _current(connection, (subject_no(connection, scope.subject), *_session(scope)), now)
            found = [] if window is None else rows(connection, SQL["short_messages"], window[:1])
        return [_message(row) for row in found]

    def expires_at(self, scope: Scope, *, now: int) -> int | None:
        with self._database.read() as connection:
            window = _current(connection, (subject_no(connection, scope.subject), *_session(scope)), now)
            held = 0 if window is None else value(connection, SQL["count_short"], window[:1])
        return window[1] if window is not None and held else None

    def remove(self, scope: Scope, message_ids: Sequence[str]) -> int:
        with self._database.write() as connection:
            row = connection.execute(
                SQL["window"], (subject_no(connection, scope.subject), *_session(scope))
            ).fetchone()
            removed = 0
            for message_id in message_ids:
                connection.execute(SQL["remove_short"], (row and row[0], message_id))
                removed += connection.changes()
            return removed


def _current(connection: apsw.Connection, who: tuple[object, ...], now: int) -> tuple[Any, ...] | None:
    """The number and the expiry of a session's window, if it has not expired."""
    row = one(connection, SQL["window"], who)
    return row if row is not None and row[1] > now else None


def _range(session: int) -> tuple[int, int]:
    """The first and the last key that messages of a session can have."""
    return session << _COUNT_BITS, (session + 1 << _COUNT_BITS) - 1


def _session(scope: Scope) -> tuple[str, str]:
    return scope.agent_id, scope.session_id or ""


def _row(message: Message) -> tuple[object, ...]:
    metadata = to_json(message.metadata)
    return message.id, message.role, message.created_at, metadata, pack(message.content)


def _message(row: Sequence[Any]) -> Message:
    return Message(row[0], row[1], unpack(row[2]), row[3], parse_json_object(row[4]))
