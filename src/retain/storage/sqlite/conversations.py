"""Conversations in SQLite: the durable ``History`` and the expiring ``ShortTermStore``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

import apsw

from retain.core.chain import Event
from retain.core.content import pack, parse_json_object, to_json, unpack
from retain.core.errors import ConflictError, HeldError, StoreFullError
from retain.core.holds import standing
from retain.core.records import Message, Move, Outcome, Scope
from retain.core.rules import BIN
from retain.core.times import iso
from retain.core.types import State
from retain.ports import BinnedMessage, Lease, Session, Summarize
from retain.storage.sqlite.audit import append
from retain.storage.sqlite.database import Database, one, rows, value
from retain.storage.sqlite.jobs import check_lease
from retain.storage.sqlite.moves import Mover, held_of, standing_holds
from retain.storage.sqlite.records import refuse_removed_agents
from retain.storage.sqlite.rules import Profiles, check_rules
from retain.storage.sqlite.scopes import START, ensure_subject, subject_no
from retain.storage.sqlite.sessions import (
    SQL,
    as_session,
    find_session,
    hold_on,
    message_keys,
    move_session,
    name_of,
    open_session,
)

_ALL: Final = -1
#: A summary that has to forget a message is made anew from so many of the last ones.
_RETOLD: Final = 200


class SqliteHistory:
    """The ``History`` of the embedded engine."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._profiles = Profiles()

    # --- the conversation of a scope ---------------------------------------------------------------------------

    def append(self, scope: Scope, messages: Sequence[Message], *, now: int, summarize: Summarize) -> None:
        if not messages:
            return
        with self._database.write() as connection:
            begun = messages[0].created_at
            number, session = open_session(connection, self._profiles, scope, now=now, begun=begun)
            first, end = message_keys(number)
            first = value(connection, SQL["next_place"], (first, end))
            if first + len(messages) > end + 1:
                raise StoreFullError(f"session {scope.session_id!r} has as many messages as it can hold; begin another")
            stored = [_row(message) for message in messages]
            connection.executemany(SQL["append"], ((first + at, *row) for at, row in enumerate(stored)))
            latest = max(message.created_at for message in messages)
            size = sum(map(_size, stored))
            summary = summarize(session.summary, messages)
            connection.execute(SQL["touch_session"], (latest, len(messages), size, summary, number))

    def touch(self, scope: Scope, *, now: int) -> Session:
        with self._database.write() as connection:
            number, session = open_session(connection, self._profiles, scope, now=now, begun=now)
            connection.execute(SQL["touch_session"], (now, 0, 0, session.summary, number))
            found = find_session(connection, scope, now)
        return session if found is None else found[1]

    def find(self, scope: Scope, *, now: int) -> Session | None:
        with self._database.read() as connection:
            found = find_session(connection, scope, now)
        return None if found is None else found[1]

    def messages(self, scope: Scope, *, now: int, limit: int | None = None) -> list[Message]:
        with self._database.read() as connection:
            session = find_session(connection, scope, now)
            return [] if session is None else _last_messages(connection, session[0], _ALL if limit is None else limit)

    def owners(self, tenant: str, agent_id: str, session_id: str | None, *, now: int) -> list[str]:
        with self._database.read() as connection:
            return [row[0] for row in rows(connection, SQL["owners"], (agent_id, session_id or "", now, tenant))]

    def sessions(self, subject: str, agent_id: str | None = None, *, now: int) -> list[Session]:
        with self._database.read() as connection:
            number = subject_no(connection, subject)
            found = rows(connection, SQL["sessions"], (number, agent_id, now, subject.split("/", 1)[0]))
        return [as_session(subject, row) for row in found]

    # --- single messages -----------------------------------------------------------------------------------------

    def remove(self, scope: Scope, message_ids: Sequence[str], *, now: int, summarize: Summarize) -> int:
        with self._database.write() as connection:
            session = find_session(connection, scope, now)
            if session is None:
                return 0
            number = session[0]
            found = rows(connection, SQL["messages_to_remove"], (*message_keys(number), to_json(list(message_ids))))
            if not found:
                return 0
            holds = standing_holds(connection, scope.subject)
            whose = (scope.agent_id, scope.session_id)
            held = [
                (message_id, hold)
                for _, message_id, metadata, _ in found
                if holds and (hold := standing(held_of(scope.subject, *whose, message_id, metadata), holds))
            ]
            if held:  # all of them, or none
                events = [_event(now, "refused", message_id, hold=hold.id) for message_id, hold in held]
            else:
                events = [_event(now, "recycled", row[1], reason="deleted by the user") for row in found]
                connection.executemany(SQL["bin_message"], ((now + BIN, row[0]) for row in found))
                summary = summarize("", _last_messages(connection, number, _RETOLD))
                size = sum(row[3] for row in found)
                connection.execute(SQL["count_messages"], (-len(found), -size, summary, number))
            append(connection, ensure_subject(connection, scope.subject), events)
        if held:
            message_id, hold = held[0]
            raise HeldError(
                f"message {message_id} is kept by hold {hold.id} ({hold.reason}) and nothing was deleted; "
                f"release the hold first: retain hold release {hold.id}"
            )
        return len(found)

    def restore_message(self, subject: str, message_id: str, *, now: int) -> bool:
        with self._database.write() as connection:
            number = subject_no(connection, subject)
            row = one(connection, SQL["binned_message"], (message_id, number))
            if row is None or number is None:
                return False
            key, purge_at, size, session, agent_id, session_id, state = row
            tenant, user_id = subject.split("/", 1)
            refuse_removed_agents(connection, [Scope(tenant, user_id, agent_id)])
            if state != State.ACTIVE:
                raise ConflictError(
                    f"message {message_id} belongs to session {session_id!r}, which is {state}; restore that"
                )
            if purge_at <= now:
                raise ConflictError(
                    f"message {message_id} was in the recycle bin until {iso(purge_at)}; it can no longer be restored"
                )
            connection.execute(SQL["bin_message"], (None, key))
            connection.execute(SQL["count_messages"], (1, size, None, session))
            append(connection, number, [_event(now, "restored", message_id, reason="restored by the user")])
            return True

    def binned_messages(
        self, tenant: str, subject: str | None = None, *, now: int, after: tuple[int, int] = START, limit: int
    ) -> tuple[list[BinnedMessage], tuple[int, int]]:
        with self._database.read() as connection:
            found = rows(connection, SQL["binned_messages"], (now, *after, tenant, subject, limit))
        binned = [BinnedMessage(_message(row[:5]), *row[5:9]) for row in found]
        return binned, ((found[-1][8], found[-1][9]) if found else after)

    def purge_messages(self, tenant: str, *, now: int, limit: int, lease: Lease | None = None) -> int:
        with self._database.write() as connection:
            check_lease(connection, lease)
            purged, after = 0, START
            while purged < limit and (
                found := rows(connection, SQL["messages_to_purge"], (now, *after, tenant, limit))
            ):
                after = (found[-1][2], found[-1][0])
                found.sort(key=lambda row: row[3])
                for subject, mine in groupby(found, key=lambda row: str(row[3])):
                    purged += _purge(connection, subject, list(mine), now=now, limit=limit - purged)
            return purged

    # --- whole conversations -------------------------------------------------------------------------------------

    def get(self, subject: str, item_id: str) -> Session | None:
        with self._database.read() as connection:
            row = one(connection, SQL["session_by_id"], (item_id, subject_no(connection, subject)))
        return None if row is None else as_session(subject, row)

    def is_held(self, subject: str, item_id: str) -> bool:
        with self._database.read() as connection:
            number = subject_no(connection, subject) or 0
            row = one(connection, SQL["session_by_id"], (item_id, number))
            return row is not None and hold_on(connection, Mover(connection, subject, number, now=0), row) is not None

    def transition_all(
        self,
        batches: Sequence[tuple[str, Sequence[Move]]],
        *,
        now: int,
        lease: Lease | None = None,
        rules: int | None = None,
    ) -> list[list[Outcome]]:
        with self._database.write() as connection:
            check_lease(connection, lease)
            check_rules(connection, batches, rules)
            return [_transition(connection, self._profiles, subject, moves, now) for subject, moves in batches]

    def erase(self, subject: str, item_id: str, *, limit: int, lease: Lease | None = None) -> int:
        with self._database.write() as connection:
            check_lease(connection, lease)
            row = one(connection, SQL["session_by_id"], (item_id, subject_no(connection, subject)))
            if row is None:
                return 0
            if row[4] != State.DELETING:
                raise ConflictError(
                    f"session {item_id} is {row[4]}; only what is being deleted can be erased: claim it first"
                )
            connection.execute(SQL["erase_messages"], (*message_keys(row[0]), limit))
            return value(connection, SQL["count_rows"], message_keys(row[0]))


def _transition(
    connection: apsw.Connection, profiles: Profiles, subject: str, moves: Sequence[Move], now: int
) -> list[Outcome]:
    number = subject_no(connection, subject)
    if number is None:
        return [Outcome.STALE for _ in moves]
    mover = Mover(connection, subject, number, now=now)
    outcomes = [move_session(connection, profiles, mover, move, subject=number, now=now) for move in moves]
    mover.save()
    return outcomes


def _last_messages(connection: apsw.Connection, session: int, limit: int) -> list[Message]:
    found = rows(connection, SQL["last_messages"], (*message_keys(session), limit))
    return [_message(row) for row in reversed(found)]


def _purge(connection: apsw.Connection, subject: str, found: list[tuple[Any, ...]], *, now: int, limit: int) -> int:
    """Delete messages of one subject for good, but for those that a hold keeps; how many went."""
    holds = standing_holds(connection, subject)
    free = [
        (key, message_id)
        for key, message_id, _, _, agent_id, session_id, metadata in found
        if not holds or standing(held_of(subject, agent_id, session_id, message_id, metadata), holds) is None
    ][:limit]
    connection.executemany(SQL["erase_message"], ((key,) for key, _ in free))
    reason = "its time in the recycle bin was over"
    append(
        connection,
        ensure_subject(connection, subject),
        [_event(now, "deleted", message_id, reason=reason) for _, message_id in free],
    )
    return len(free)


def _event(now: int, action: str, message_id: str, **detail: str) -> Event:
    return Event(now, action, message_id, {"kind": "message", **detail})


class SqliteShortTerm:
    """The ``ShortTermStore`` of the embedded engine."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(self, scope: Scope, messages: Sequence[Message], *, ttl: int, now: int, most: int) -> int:
        with self._database.write() as connection:
            connection.execute(SQL["end_expired"], (now, 16))
            who = (ensure_subject(connection, scope.subject), *name_of(scope))
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
            window = _current(connection, (subject_no(connection, scope.subject), *name_of(scope)), now)
            found = [] if window is None else rows(connection, SQL["short_messages"], window[:1])
        return [_message(row) for row in found]

    def expires_at(self, scope: Scope, *, now: int) -> int | None:
        with self._database.read() as connection:
            window = _current(connection, (subject_no(connection, scope.subject), *name_of(scope)), now)
            held = 0 if window is None else value(connection, SQL["count_short"], window[:1])
        return window[1] if window is not None and held else None

    def remove(self, scope: Scope, message_ids: Sequence[str]) -> int:
        with self._database.write() as connection:
            row = connection.execute(SQL["window"], (subject_no(connection, scope.subject), *name_of(scope))).fetchone()
            removed = 0
            for message_id in message_ids:
                connection.execute(SQL["remove_short"], (row and row[0], message_id))
                removed += connection.changes()
            return removed

    def end(self, scope: Scope) -> bool:
        with self._database.write() as connection:
            connection.execute(SQL["end_window"], (subject_no(connection, scope.subject), *name_of(scope)))
            return connection.changes() > 0

    def end_agent(self, tenant: str, agent_id: str) -> int:
        with self._database.write() as connection:
            connection.execute(SQL["end_windows_of_agent"], (agent_id, tenant))
            return connection.changes()

    def end_expired(self, now: int, limit: int) -> int:
        with self._database.write() as connection:
            connection.execute(SQL["end_expired"], (now, limit))
            return connection.changes()


def _current(connection: apsw.Connection, who: tuple[object, ...], now: int) -> tuple[Any, ...] | None:
    """The number and the expiry of a session's window, if it has not expired."""
    row = one(connection, SQL["window"], who)
    return row if row is not None and row[1] > now else None


def _row(message: Message) -> tuple[Any, ...]:
    metadata = to_json(message.metadata)
    return message.id, message.role, message.created_at, metadata, pack(message.content)


def _size(row: tuple[Any, ...]) -> int:
    """How many bytes a message's content takes as it is stored."""
    content = row[4]
    return len(content.encode()) if isinstance(content, str) else len(content)


def _message(row: Sequence[Any]) -> Message:
    return Message(row[0], row[1], unpack(row[2]), row[3], parse_json_object(row[4]))
