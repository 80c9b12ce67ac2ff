"""Conversations in a relational engine: the durable ``History`` and the expiring ``ShortTermStore``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final

from holdfast.core.audit import Action
from holdfast.core.chain import Event
from holdfast.core.content import pack, parse_json_object, to_json, unpack
from holdfast.core.errors import AgentRemovedError, ConflictError, HeldError, StoreFullError
from holdfast.core.holds import Hold, standing
from holdfast.core.records import Message, Move, Outcome, Scope, State, Subject
from holdfast.core.rules import BIN
from holdfast.core.times import check_deadline, iso
from holdfast.ports.conversations import (
    Appended,
    BinnedMessage,
    Session,
    SessionWindow,
    ShortTermStore,
    ShortWindow,
    Summarize,
    Turn,
)
from holdfast.ports.work import Lease
from holdfast.storage.relational.audit import append
from holdfast.storage.relational.database import Database, Transaction
from holdfast.storage.relational.jobs import check_lease
from holdfast.storage.relational.moves import REFUSALS, Mover, held_of, is_removed, standing_holds
from holdfast.storage.relational.rules import Profiles, check_rules, scope_of
from holdfast.storage.relational.scopes import START
from holdfast.storage.relational.sessions import (
    SQL,
    as_session,
    end_windows,
    find_session,
    go_on,
    hold_on,
    message_keys,
    move_session,
    name_of,
    open_session,
    visible,
)

_ALL: Final = -1
#: A summary that has to forget a message is made anew from so many of the last ones.
_RETOLD: Final = 200


class SqlHistory:
    """The ``History`` of the relational engines."""

    def __init__(self, database: Database, elsewhere: ShortTermStore | None = None) -> None:
        """``elsewhere`` keeps the short-term windows, if this database does not."""
        self._database = database
        self._elsewhere = elsewhere
        self._profiles = Profiles()

    # --- the conversation of a scope ---------------------------------------------------------------------------

    def append(self, scope: Scope, messages: Sequence[Message], *, now: int, summarize: Summarize) -> Appended:
        if not messages:
            return Appended("", begun=False)
        with self._database.write(scope.subject) as tx:
            begun = messages[0].created_at
            number, session, first = go_on(tx, self._profiles, scope, now=now, begun=begun)
            subject, _, end = message_keys(tx.number_for(scope.subject), number)
            if first + len(messages) > end + 1:
                raise StoreFullError(f"session {scope.session_id!r} has as many messages as it can hold; begin another")
            stored = [_row(message) for message in messages]
            if len(stored) == 1:
                tx.later(SQL["append"], (subject, first, *stored[0]))
            else:
                tx.run_many(SQL["append"], ((subject, first + at, *row) for at, row in enumerate(stored)))
            latest = max(message.created_at for message in messages)
            size = sum(map(_size, stored))
            summary = summarize(session.summary, messages)
            tx.later(SQL["touch_session"], (subject, latest, len(messages), size, summary, number))
        return Appended(session.id, session.version == 1)

    def take_back(self, scope: Scope, appended: Appended, message_ids: Sequence[str], *, summarize: Summarize) -> None:
        with self._database.write(scope.subject) as tx:
            subject = tx.number_for(scope.subject)
            row = tx.one(SQL["session_by_id"], (appended.session, subject))
            if row is None:
                return
            keys = message_keys(subject, row[0])
            found = tx.rows(SQL["messages_to_remove"], (*keys, to_json(list(message_ids))))
            tx.run_many(SQL["take_back_message"], ((subject, one[0]) for one in found))
            if not (appended.begun and tx.run(SQL["end_session"], (row[0], *keys))):
                summary = summarize("", _last_messages(tx, subject, row[0], _RETOLD))
                tx.run(SQL["count_messages"], (subject, -len(found), -sum(one[3] for one in found), summary, row[0]))

    def touch(self, scope: Scope, *, now: int) -> Session:
        with self._database.write() as tx:
            number, session = open_session(tx, self._profiles, scope, now=now, begun=now)
            tx.run(SQL["touch_session"], (tx.number_for(scope.subject), now, 0, 0, session.summary, number))
            found = find_session(tx, scope, now)
        return session if found is None else found[1]

    def find(self, scope: Scope, *, now: int) -> Session | None:
        found = self._database.ask(SQL["visible_session"], visible(scope, now))
        return as_session(scope.subject, found[0]) if found else None

    def messages(self, scope: Scope, *, now: int, limit: int | None = None, before: str | None = None) -> list[Message]:
        with self._database.read() as tx:
            session = find_session(tx, scope, now)
            subject = tx.number_of(scope.subject) or 0
            most = _ALL if limit is None else limit
            return [] if session is None else _last_messages(tx, subject, session[0], most, before)

    def owners(self, tenant: str, agent_id: str, session_id: str | None, *, now: int) -> list[str]:
        with self._database.read() as tx:
            return [row[0] for row in tx.rows(SQL["owners"], (agent_id, session_id or "", now, tenant))]

    def sessions(self, subject: Subject, agent_id: str | None = None, *, now: int) -> list[Session]:
        with self._database.read() as tx:
            number = tx.number_of(subject)
            found = tx.rows(SQL["sessions"], (number, agent_id, now, subject.tenant))
        return [as_session(subject, row) for row in found]

    def to_summarize(
        self, tenant: str, *, idle_since: int, now: int, after: int = 0, limit: int
    ) -> tuple[list[Session], int]:
        with self._database.read() as tx:
            found = tx.rows(SQL["sessions_to_summarize"], (after, idle_since, now, tenant, limit))
        return [as_session(Subject.parse(row[-1]), row[:-1]) for row in found], (found[-1][0] if found else after)

    def save_summary(self, session: Session, summary: str) -> bool:
        with self._database.write() as tx:
            number = tx.number_of(session.subject)
            return tx.run(SQL["save_summary"], (number, session.id, session.version, summary)) > 0

    # --- single messages -----------------------------------------------------------------------------------------

    def remove(self, scope: Scope, message_ids: Sequence[str], *, now: int, summarize: Summarize) -> int:
        with self._database.write(scope.subject) as tx:
            subject = tx.number_of(scope.subject)
            session = find_session(tx, scope, now)
            if session is None or subject is None:
                return 0
            number = session[0]
            found = tx.rows(SQL["messages_to_remove"], (*message_keys(subject, number), to_json(list(message_ids))))
            if not found:
                return 0
            holds = standing_holds(tx, scope.subject)
            whose = (scope.agent_id, scope.session_id)
            held = [
                (message_id, hold)
                for _, message_id, metadata, _ in found
                if holds and (hold := standing(held_of(scope.subject, *whose, message_id, metadata), holds))
            ]
            if held:  # all of them, or none
                events = [_event(now, Action.REFUSED, message_id, hold=hold.id) for message_id, hold in held]
            else:
                events = [_event(now, Action.RECYCLED, row[1], reason="deleted by the user") for row in found]
                tx.run_many(SQL["bin_message"], ((subject, now + BIN, row[0]) for row in found))
                summary = summarize("", _last_messages(tx, subject, number, _RETOLD))
                size = sum(row[3] for row in found)
                tx.run(SQL["count_messages"], (subject, -len(found), -size, summary, number))
            append(tx, subject, events)
        if held:
            message_id, hold = held[0]
            raise HeldError(
                f"message {message_id} is kept by hold {hold.id} ({hold.reason}) and nothing was deleted; "
                f"release the hold first: holdfast hold release {hold.id}"
            )
        return len(found)

    def find_message(self, subject: Subject, message_id: str) -> Turn | None:
        with self._database.read() as tx:
            row = tx.one(SQL["said"], (tx.number_of(subject), message_id))
        return None if row is None else Turn(as_message(row[:5]), as_session(subject, row[6:]), row[5])

    def restore_message(self, subject: Subject, message_id: str, *, now: int) -> bool:
        refused: ConflictError | None = None
        with self._database.write() as tx:
            number = tx.number_of(subject)
            row = tx.one(SQL["binned_message"], (message_id, number))
            if row is None or number is None:
                return False
            key, purge_at, size, session, agent_id, session_id, state, _ = row
            if purge_at <= now:
                raise ConflictError(
                    f"message {message_id} was in the recycle bin until {iso(purge_at)}; it can no longer be restored"
                )
            if is_removed(tx, subject.tenant, agent_id):
                refused = AgentRemovedError(
                    f"message {message_id} belongs to agent {agent_id!r}, which is in the recycle bin; restore the "
                    f"agent first (holdfast agent restore {agent_id}), then the message"
                )
                append(tx, number, [_event(now, Action.REFUSED, message_id, reason=REFUSALS[Outcome.PARTED])])
            elif state != State.ACTIVE:
                refused = ConflictError(
                    f"message {message_id} belongs to session {session_id!r}, which is {state}; restore that"
                )
                append(tx, number, [_event(now, Action.REFUSED, message_id, reason=f"its session is {state}")])
            else:
                tx.run(SQL["bin_message"], (number, None, key))
                tx.run(SQL["count_messages"], (number, 1, size, None, session))
                append(tx, number, [_event(now, Action.RESTORED, message_id, reason="restored by the user")])
        if refused is not None:
            raise refused
        return True

    def binned_messages(
        self, tenant: str, subject: Subject | None = None, *, now: int, after: tuple[int, int] = START, limit: int
    ) -> tuple[list[BinnedMessage], tuple[int, int]]:
        with self._database.read() as tx:
            found = tx.rows(SQL["binned_messages"], (now, *after, tenant, subject, limit))
        binned = [BinnedMessage(as_message(row[:5]), Subject.parse(row[5]), *row[6:9]) for row in found]
        return binned, ((found[-1][8], found[-1][9]) if found else after)

    def purge_messages(
        self, tenant: str, *, at: int | None = None, now: int, limit: int, lease: Lease | None = None
    ) -> tuple[int, int]:
        purged, size, after = 0, 0, START
        with self._database.write() as tx:
            check_lease(tx, lease)  # even if there is nothing to purge
        while purged < limit:
            with self._database.read() as tx:
                found = tx.rows(SQL["messages_to_purge"], (now if at is None else at, *after, tenant, limit))
            if not found:
                break
            after = (found[-1][2], found[-1][0])
            found.sort(key=lambda row: row[7])
            theirs = [(subject, list(mine)) for subject, mine in groupby(found, key=lambda row: Subject.parse(row[3]))]
            for group in self._database.groups(theirs):
                with self._database.write() as tx:
                    check_lease(tx, lease)
                    for subject, mine in group:
                        gone = _purge(tx, subject, mine, now=now, limit=limit - purged)
                        purged += len(gone)
                        size += sum(gone)
        return purged, size

    # --- whole conversations -------------------------------------------------------------------------------------

    def get(self, subject: Subject, item_id: str) -> Session | None:
        with self._database.read() as tx:
            row = tx.one(SQL["session_by_id"], (item_id, tx.number_of(subject)))
        return None if row is None else as_session(subject, row)

    def hold_on(self, subject: Subject, item_id: str) -> Hold | None:
        with self._database.read() as tx:
            number = tx.number_of(subject) or 0
            row = tx.one(SQL["session_by_id"], (item_id, number))
            return None if row is None else hold_on(tx, Mover(tx, subject, number, now=0), row)

    def transition_all(
        self,
        batches: Sequence[tuple[Subject, Sequence[Move]]],
        *,
        now: int,
        lease: Lease | None = None,
        rules: int | None = None,
    ) -> list[list[Outcome]]:
        outcomes: list[list[Outcome]] = []
        for group in self._database.groups(batches):
            ended: list[SessionWindow] = []
            with self._database.write() as tx:
                check_lease(tx, lease)
                outcomes += [
                    _transition(tx, self._profiles, *batch, now=now, rules=rules, ended=ended) for batch in group
                ]
                tx.then(partial(end_windows, self._elsewhere, ended))
        return outcomes

    def erase(self, subject: Subject, item_id: str, *, limit: int, lease: Lease | None = None) -> int:
        session = self.get(subject, item_id)
        if session is not None and self._elsewhere is not None:  # a crash may have left it there when the session went
            scope = scope_of(subject, session.agent_id, session.session_id)
            self._elsewhere.end([SessionWindow(scope, item_id)])
        with self._database.write() as tx:
            check_lease(tx, lease)
            number = tx.number_of(subject) or 0
            row = tx.one(SQL["session_by_id"], (item_id, number))
            if row is None:
                return 0
            if row[4] != State.DELETING:
                raise ConflictError(
                    f"session {item_id} is {row[4]}; only what is being deleted can be erased: claim it first"
                )
            keys = message_keys(number, row[0])
            tx.run(SQL["erase_messages"], (*keys, limit))
            return tx.value(SQL["count_rows"], keys)


def _transition(
    tx: Transaction,
    profiles: Profiles,
    subject: Subject,
    moves: Sequence[Move],
    *,
    now: int,
    rules: int | None,
    ended: list[SessionWindow],
) -> list[Outcome]:
    number = tx.number_of(subject)
    check_rules(tx, subject, rules)
    if number is None:
        return [Outcome.STALE for _ in moves]
    mover = Mover(tx, subject, number, now=now)
    outcomes = [move_session(tx, profiles, mover, move, now=now) for move in moves]
    mover.save()
    ended += mover.ended
    return outcomes


def _last_messages(tx: Transaction, subject: int, session: int, limit: int, before: str | None = None) -> list[Message]:
    found = tx.rows(SQL["last_messages"], (*message_keys(subject, session), limit, before))
    return [as_message(row) for row in reversed(found)]


def _purge(tx: Transaction, subject: Subject, found: list[tuple[Any, ...]], *, now: int, limit: int) -> list[int]:
    """Delete messages of one subject for good, but for those that a hold keeps; the sizes of those that went."""
    number = tx.number_of(subject)
    if number is None:  # erased meanwhile
        return []
    holds = standing_holds(tx, subject)
    free = [
        (key, message_id, size)
        for key, message_id, _, _, agent_id, session_id, metadata, _, size, *_ in found
        if not holds or standing(held_of(subject, agent_id, session_id, message_id, metadata), holds) is None
    ][:limit]
    gone = [(message_id, size) for key, message_id, size in free if tx.run(SQL["erase_message"], (number, key, now))]
    reason = "its time in the recycle bin was over"
    append(tx, number, [_event(now, Action.DELETED, message_id, reason=reason) for message_id, _ in gone])
    return [size for _, size in gone]


def _event(now: int, action: Action, message_id: str, **detail: str) -> Event:
    return Event(now, action, message_id, {"kind": "message", **detail})


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
                tx.run(SQL["end_expired"], (now, 16))
            subject = tx.number_for(scope.subject)
            who = (subject, *name_of(scope))
            window = _current(tx, who, now, session)
            number = 0 if window is None else window[0]
            if window is None or not tx.run(SQL["keep_window"], (subject, now + ttl, number)):  # ended by another
                tx.run(SQL["end_window"], who)
                number = tx.value(SQL["new_window"], (*who, now + ttl, session))
            tx.run_many(SQL["append_short"], ((subject, number, *_row(message)) for message in messages))
            held = tx.value(SQL["count_short"], (subject, number))
            if held > most:
                tx.run(SQL["trim_short"], (subject, number, held - most))
            return held

    def window(self, scope: Scope, *, now: int, session: str | None = None) -> list[Message]:
        with self._database.read() as tx:
            subject = tx.number_of(scope.subject)
            window = _current(tx, (subject, *name_of(scope)), now, session)
            found = [] if window is None else tx.rows(SQL["short_messages"], (subject, window[0]))
        return [as_message(row) for row in found]

    def expires_at(self, scope: Scope, *, now: int, session: str | None = None) -> int | None:
        with self._database.read() as tx:
            subject = tx.number_of(scope.subject)
            window = _current(tx, (subject, *name_of(scope)), now, session)
            held = 0 if window is None else tx.value(SQL["count_short"], (subject, window[0]))
        return window[1] if window is not None and held else None

    def remove(self, scope: Scope, message_ids: Sequence[str]) -> int:
        with self._database.write() as tx:
            subject = tx.number_of(scope.subject)
            row = tx.one(SQL["window"], (subject, *name_of(scope)))
            if row is None:
                return 0
            return sum(tx.run(SQL["remove_short"], (subject, row[0], message_id)) for message_id in message_ids)

    def end(self, windows: Sequence[SessionWindow]) -> int:
        ended = 0
        for scope, session in windows:
            with self._database.write() as tx:
                who = (tx.number_of(scope.subject), *name_of(scope))
                if session is None:
                    ended += tx.run(SQL["end_window"], who)
                else:
                    ended += tx.run(SQL["end_window_of_session"], (*who, session))
        return ended

    def end_agent(self, tenant: str, agent_id: str) -> int:
        with self._database.write() as tx:
            return tx.run(SQL["end_windows_of_agent"], (agent_id, tenant))

    def end_user(self, tenant: str, user_id: str) -> int:
        with self._database.write() as tx:
            return tx.run(SQL["end_windows_of_user"], (tx.number_of(Subject(tenant, user_id)),))

    def end_expired(self, now: int, limit: int) -> int:
        with self._database.write() as tx:
            return tx.run(SQL["end_expired"], (now, limit))

    def windows(self, tenant: str, user_id: str, *, known: Iterable[tuple[str, str | None]]) -> Iterator[ShortWindow]:
        del known  # ids are kept as they are
        with self._database.read() as tx:
            subject = tx.number_of(Subject(tenant, user_id))
            found = tx.rows(SQL["windows_of_user"], (subject,))
        for number, agent_id, session_id, expires_at in found:
            with self._database.read() as tx:
                messages = [as_message(row) for row in tx.rows(SQL["short_messages"], (subject, number))]
            if messages:
                yield ShortWindow(agent_id, session_id or None, expires_at, messages)


def _current(tx: Transaction, who: tuple[object, ...], now: int, session: str | None) -> tuple[Any, ...] | None:
    """The number and the expiry of a session's window, if it has not expired and is of that session."""
    row = tx.one(SQL["window"], who)
    return row if row is not None and row[1] > now and session in (None, row[2]) else None


def _row(message: Message) -> tuple[Any, ...]:
    metadata = to_json(message.metadata)
    return message.id, message.role, message.created_at, metadata, pack(message.content)


def _size(row: tuple[Any, ...]) -> int:
    """How many bytes a message's content takes as it is stored."""
    content = row[4]
    return len(content.encode()) if isinstance(content, str) else len(content)


def as_message(row: Sequence[Any]) -> Message:
    """A stored message as callers know it; whoever reads many stops at the deadline."""
    check_deadline()
    return Message(row[0], row[1], unpack(row[2]), row[3], parse_json_object(row[4]))
