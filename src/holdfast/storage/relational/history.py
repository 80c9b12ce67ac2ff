"""What was said, kept durably: the ``History`` of a relational engine."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple

from holdfast.core.audit import Action, Event
from holdfast.core.decisions import Hold
from holdfast.core.errors import AgentRemovedError, ConflictError, ExpiredError, HeldError, StoreFullError
from holdfast.core.records import BIN, HISTORY, Message, Move, Outcome, Scope, State, Subject
from holdfast.core.values import iso, to_json
from holdfast.ports import conversations as ports
from holdfast.ports.conversations import Session
from holdfast.ports.coordination import Lease
from holdfast.ports.session_parts import PartSession
from holdfast.storage.relational import sessions
from holdfast.storage.relational.access import write_together
from holdfast.storage.relational.audit import append
from holdfast.storage.relational.coordination import check_lease
from holdfast.storage.relational.database import SqlStore, Transaction, Transactions
from holdfast.storage.relational.moves import REFUSALS, MovesOf, removed_until, transition_all
from holdfast.storage.relational.rows import START
from holdfast.storage.relational.rules import Holds, Profiles, scope_of

_ALL: Final = -1
#: A summary that has to forget a message is made anew from so many of the last ones.
_SUMMARIZED: Final = 200


class RemovedMessage(NamedTuple):
    """A message that is to be removed."""

    key: int
    id: str
    metadata: str
    size: int


class NamedMessage(NamedTuple):
    """A message that the caller has an id for, and its own."""

    external_id: str
    id: str


class BinnedRow(NamedTuple):
    """A message in the recycle bin, and the session that it was said in."""

    key: int
    purge_at: int
    size: int
    session: int
    agent_id: str
    session_id: str
    state: str


class PurgedRow(NamedTuple):
    """A message whose time in the recycle bin is over, and the session that it was said in."""

    key: int
    id: str
    purge_at: int
    subject: Subject
    agent_id: str
    session_id: str | None
    metadata: str
    number: int
    size: int
    no: int
    item_id: str
    is_over: bool

    @property
    def place(self) -> tuple[int, int]:
        """Where it is in their order."""
        return self.purge_at, self.key


class SqlHistory(SqlStore):
    """The ``History`` of the relational engines."""

    def __init__(self, database: Transactions, elsewhere: ports.ShortTermStore | None = None) -> None:
        """``elsewhere`` keeps the short-term windows, if this database does not."""
        super().__init__(database)
        self._elsewhere = elsewhere
        self._profiles = Profiles()

    # --- the conversation of a scope ---------------------------------------------------------------------------

    def together(self, subject: Subject) -> AbstractContextManager[None]:
        return write_together(self._database, subject)

    def append(
        self, scope: Scope, messages: Sequence[Message], *, now: int, summarize: ports.Summarize
    ) -> ports.Appended:
        if not messages:
            return ports.Appended("", begun=False)
        with self._database.write(scope.subject) as tx:
            subject = tx.number_for(scope.subject)
            begun = min(message.created_at for message in messages)
            session = sessions.continue_session(tx, self._profiles, subject, scope, now=now, begun=begun)
            keys = sessions.message_keys(subject, session.number)
            ids, messages = _choose_new(tx, keys, messages)
            if not messages:
                return ports.Appended(session.id, begun=False, ids=ids)
            if session.next_key + len(messages) > keys[2] + 1:
                raise StoreFullError(f"session {scope.session_id!r} has as many messages as it can hold; begin another")
            stored = [sessions.to_stored_message(message) for message in messages]
            if len(stored) == 1:
                tx.later("sessions.append", (subject, session.next_key, *stored[0]))
            else:
                rows = ((subject, key, *row) for key, row in enumerate(stored, session.next_key))
                tx.run_many("sessions.append", rows)
            latest = max(message.created_at for message in messages)
            size = sum(row.size for row in stored)
            summary = summarize(session.summary, messages)
            tx.later("sessions.touch_session", (subject, latest, len(messages), size, summary, session.number))
        return ports.Appended(session.id, session.version == 1, ids)

    def take_back(
        self, scope: Scope, appended: ports.Appended, message_ids: Sequence[str], *, summarize: ports.Summarize
    ) -> None:
        with self._database.write(scope.subject) as tx:
            subject = tx.number_for(scope.subject)
            session = sessions.find_by_id(tx, subject, appended.session)
            if session is None:
                return
            keys = sessions.message_keys(subject, session.number)
            found = tx.all(RemovedMessage, "sessions.messages_to_remove", (*keys, to_json(list(message_ids))))
            tx.run_many("sessions.take_back_message", ((subject, one.key) for one in found))
            if not (appended.begun and tx.run("sessions.end_session", (session.number, *keys))):
                summary = summarize("", _last_messages(tx, subject, session.number, _SUMMARIZED))
                _count_messages(tx, subject, session.number, found, summary)

    def touch(self, scope: Scope, *, now: int) -> Session:
        with self._database.write() as tx:
            session = sessions.open_session(tx, self._profiles, scope, now=now, begun=now)
            values = (now, 0, 0, session.summary, session.number)
            tx.run("sessions.touch_session", (tx.number_for(scope.subject), *values))
            return sessions.find_session(tx, scope, now) or session

    def find(self, scope: Scope, *, now: int) -> Session | None:
        found = self._ask_known(scope.subject, Session, "sessions.visible_session", *sessions.visible(scope, now))
        return next(iter(found), None)

    def messages(self, scope: Scope, *, now: int, limit: int | None = None, before: str | None = None) -> list[Message]:
        with self._database.read() as tx:
            session = sessions.find_session(tx, scope, now)
            if session is None:
                return []
            subject = tx.number_of(scope.subject) or 0
            return _last_messages(tx, subject, session.number, _ALL if limit is None else limit, before)

    def owners(self, tenant: str, agent_id: str, session_id: str | None, *, now: int) -> list[str]:
        return self._database.ask(str, "sessions.owners", (agent_id, session_id or "", now, tenant))

    def sessions(self, subject: Subject, agent_id: str | None = None, *, now: int) -> list[Session]:
        return self._ask_about(subject, Session, "sessions.sessions", agent_id, now, subject.tenant)

    def to_summarize(
        self, tenant: str, *, idle_since: int, now: int, after: int = 0, limit: int
    ) -> tuple[list[Session], int]:
        found = self._database.ask(Session, "sessions.sessions_to_summarize", (after, idle_since, now, tenant, limit))
        return found, (found[-1].number if found else after)

    def save_summary(self, session: Session, summary: str) -> bool:
        with self._database.write() as tx:
            number = tx.number_of(session.subject)
            return tx.run("sessions.save_summary", (number, session.id, session.version, summary)) > 0

    # --- single messages -----------------------------------------------------------------------------------------

    def remove(self, scope: Scope, message_ids: Sequence[str], *, now: int, summarize: ports.Summarize) -> int:
        with self._database.write(scope.subject) as tx:
            subject = tx.number_of(scope.subject)
            session = sessions.find_session(tx, scope, now)
            if session is None or subject is None:
                return 0
            keys = sessions.message_keys(subject, session.number)
            found = tx.all(RemovedMessage, "sessions.messages_to_remove", (*keys, to_json(list(message_ids))))
            holds = Holds(tx, scope.subject)
            of = (scope.agent_id, scope.session_id)
            held = [(row.id, hold) for row in found if (hold := holds.find(*of, row.id, row.metadata))]
            if held:  # all of them, or none
                events = [_event(now, Action.REFUSED, message_id, hold=hold.id) for message_id, hold in held]
            elif found:
                events = [_event(now, Action.RECYCLED, row.id, reason="deleted by the user") for row in found]
                tx.run_many("sessions.bin_message", ((subject, now + BIN, row.key) for row in found))
                summary = summarize("", _last_messages(tx, subject, session.number, _SUMMARIZED))
                _count_messages(tx, subject, session.number, found, summary)
            else:
                return 0
            append(tx, subject, events)
        if held:
            message_id, hold = held[0]
            raise HeldError(
                f"message {message_id} is kept by hold {hold.id} ({hold.reason}) and nothing was deleted; "
                f"release the hold first: holdfast hold release {hold.id}"
            )
        return len(found)

    def find_message(self, subject: Subject, message_id: str) -> ports.Turn | None:
        with self._database.read(subject) as tx:
            number = tx.number_of(subject)
            row = tx.find(sessions.MessageRow, "sessions.said", (number, message_id))
            session = None if row is None else sessions.find_by_id(tx, number, row.session)
        return None if row is None or session is None else ports.Turn(sessions.as_message(row), session, row.purge_at)

    def restore_message(self, subject: Subject, message_id: str, *, now: int) -> bool:
        refused: ConflictError | None = None
        with self._database.write() as tx:
            number = tx.number_of(subject)
            row = tx.find(BinnedRow, "sessions.binned_message", (message_id, number))
            if row is None or number is None:
                return False
            if row.purge_at <= now:
                until = iso(row.purge_at)
                raise ExpiredError(
                    f"message {message_id} was in the recycle bin until {until}; it can no longer be restored"
                )
            if removed_until(tx, subject.tenant, row.agent_id) is not None:
                refused = AgentRemovedError(
                    f"message {message_id} belongs to agent {row.agent_id!r}, which is in the recycle bin; restore the "
                    f"agent first (holdfast agent restore {row.agent_id}), then the message"
                )
                append(tx, number, [_event(now, Action.REFUSED, message_id, reason=REFUSALS[Outcome.PARTED])])
            elif row.state != State.ACTIVE:
                refused = ConflictError(
                    f"message {message_id} belongs to session {row.session_id!r}, which is {row.state}; restore that"
                )
                append(tx, number, [_event(now, Action.REFUSED, message_id, reason=f"its session is {row.state}")])
            else:
                tx.run("sessions.bin_message", (number, None, row.key))
                tx.run("sessions.count_messages", (number, 1, row.size, None, row.session))
                append(tx, number, [_event(now, Action.RESTORED, message_id, reason="restored by the user")])
        if refused is not None:
            raise refused
        return True

    def binned_messages(
        self, tenant: str, subject: Subject | None = None, *, now: int, after: tuple[int, int] = START, limit: int
    ) -> tuple[list[ports.BinnedMessage], tuple[int, int]]:
        found = self._database.ask(
            sessions.MessageRow, "sessions.binned_messages", (now, *after, tenant, subject, limit)
        )
        binned = [
            ports.BinnedMessage(sessions.as_message(row), row.subject, row.agent_id, row.session_id, row.purge_at or 0)
            for row in found
        ]
        return binned, (found[-1].purge_at or 0, found[-1].key) if found else after

    def purge_messages(
        self, tenant: str, *, at: int | None = None, now: int, limit: int, lease: Lease | None = None
    ) -> tuple[int, int]:
        purged, size, after = 0, 0, START
        with self._database.write() as tx:
            check_lease(tx, lease)  # even if there is nothing to purge
        while purged < limit:
            asked = (now if at is None else at, *after, tenant, limit)
            found = self._database.ask(PurgedRow, "sessions.messages_to_purge", asked)
            if not found:
                break
            after = found[-1].place
            found.sort(key=lambda row: row.number)
            theirs = [(subject, list(mine)) for subject, mine in groupby(found, key=lambda row: row.subject)]
            for group in self._database.groups(theirs):
                with self._database.write() as tx:
                    check_lease(tx, lease)
                    for subject, mine in group:
                        gone = _purge(tx, subject, mine, now=now, limit=limit - purged)
                        purged += len(gone)
                        size += sum(gone)
        return purged, size

    # --- what parts hold for conversations -------------------------------------------------------------------------

    def has_any(self) -> bool:
        return bool(self._database.ask(int, "sessions.some"))

    def unnoted(self, tenant: str, found: Sequence[PartSession], *, now: int, begin: bool) -> list[int]:
        if not found:
            return []
        named = to_json(found)
        places = set(self._database.ask(int, "sessions.unnoted", (named, tenant, now)))
        if begin:
            places |= set(range(len(found))).difference(
                self._database.ask(int, "sessions.known_to_parts", (named, tenant))
            )
        return sorted(places)

    def note_parts(self, found: Sequence[ports.PartActivity], *, begin: bool) -> None:
        if not found:
            return
        theirs: dict[Subject, list[ports.PartActivity]] = defaultdict(list)
        for one in found:
            theirs[one.scope.subject].append(one)
        agents = {(one.scope.tenant, one.scope.agent_id) for one in found} if begin else set()
        with self._database.read() as tx:
            removed = [agent for agent in sorted(agents) if removed_until(tx, *agent) is not None]
        for group in self._database.groups(list(theirs.items())):
            with self._database.write() as tx:
                for subject, mine in group:
                    number = tx.number_for(subject) if begin else tx.number_of(subject)
                    book = self._profiles.book(tx, subject.tenant) if begin else None
                    for one in mine if number is not None else ():
                        name = sessions.name_of(one.scope)
                        if begin:
                            profile = self._profiles.find(tx, HISTORY, one.scope, book=book)
                            tx.later("sessions.new_session", (number, *name, uuid.uuid4().hex, profile, one.active_at))
                        tx.later("sessions.note_parts", (number, *name, one.active_at, one.size))
        for agent in removed:  # what has come to light of its own is to follow it
            self._change("registry.go_on_removing", *agent)

    def behind(self, tenant: str, *, after: int = 0, limit: int) -> list[Session]:
        return self._database.ask(Session, "sessions.behind", (after, tenant, limit))

    def count_behind(self) -> int:
        return self._database.ask(int, "sessions.count_behind")[0]

    def note_followed(self, followed: Sequence[Session], state: State | None) -> None:
        ordered = sorted(followed, key=lambda session: session.subject)
        theirs = [(subject, list(mine)) for subject, mine in groupby(ordered, key=lambda session: session.subject)]
        for group in self._database.groups(theirs):
            with self._database.write() as tx:
                for subject, mine in group:
                    number = tx.number_of(subject) or 0
                    for session in mine:
                        tx.later("sessions.note_followed", (number, session.number, state, session.state))

    def unknown(self, item_ids: Sequence[str]) -> set[str]:
        known = self._database.ask(str, "sessions.known", (to_json(list(item_ids)),)) if item_ids else []
        return set(item_ids).difference(known)

    def follow_anew(self) -> None:
        self._change("sessions.follow_anew")

    # --- whole conversations -------------------------------------------------------------------------------------

    def get(self, subject: Subject, item_id: str) -> Session | None:
        with self._database.read(subject) as tx:
            return sessions.find_by_id(tx, tx.number_of(subject), item_id)

    def hold_on(self, subject: Subject, item_id: str) -> Hold | None:
        with self._database.read(subject) as tx:
            number = tx.number_of(subject) or 0
            session = sessions.find_by_id(tx, number, item_id)
            return None if session is None else sessions.hold_on_session(tx, Holds(tx, subject), number, session)

    def transition_all(
        self,
        batches: Sequence[tuple[Subject, Sequence[Move]]],
        *,
        now: int,
        lease: Lease | None = None,
        rules: int | None = None,
    ) -> list[list[Outcome]]:
        return transition_all(self._database, batches, self._move_all, now=now, lease=lease, rules=rules)

    def _move_all(self, batches: Sequence[MovesOf]) -> list[list[Outcome]]:
        for batch, _ in batches:
            batch.tx.then(partial(sessions.end_windows, self._elsewhere, batch.ended))
        return [[sessions.move_session(self._profiles, batch, move) for move in moves] for batch, moves in batches]

    def erase(self, subject: Subject, item_id: str, *, limit: int, lease: Lease | None = None) -> int:
        session = self.get(subject, item_id)
        if session is not None and self._elsewhere is not None:  # a crash may have left it there when the session went
            scope = scope_of(subject, session.agent_id, session.session_id)
            self._elsewhere.end([ports.SessionWindow(scope, item_id)])
        with self._database.write() as tx:
            check_lease(tx, lease)
            number = tx.number_of(subject) or 0
            session = sessions.find_by_id(tx, number, item_id)
            if session is None:
                return 0
            if session.state is not State.DELETING:
                raise ConflictError(
                    f"session {item_id} is {session.state}; only what is being deleted can be erased: claim it first"
                )
            keys = sessions.message_keys(number, session.number)
            tx.run("sessions.erase_messages", (*keys, limit))
            return tx.number("sessions.count_rows", keys)


def _choose_new(
    tx: Transaction, keys: tuple[int, int, int], messages: Sequence[Message]
) -> tuple[list[str], Sequence[Message]]:
    """The id that each message has or gets in its session, and those messages that are not there yet."""
    given = [message.external_id for message in messages if message.external_id is not None]
    if not given:
        return [message.id for message in messages], messages
    rows = tx.all(NamedMessage, "sessions.named_messages", (*keys, to_json(given)))
    there = {row.external_id: row.id for row in rows}
    ids = [there.setdefault(message.external_id or message.id, message.id) for message in messages]
    return ids, [message for message, message_id in zip(messages, ids, strict=True) if message.id == message_id]


def _count_messages(
    tx: Transaction, subject: int, session: int, gone: Sequence[RemovedMessage], summary: str | None
) -> None:
    """Let a session count its messages without those that have gone, and say what the others come to."""
    values = (subject, -len(gone), -sum(row.size for row in gone), summary, session)
    tx.run("sessions.count_messages", values)


def _last_messages(tx: Transaction, subject: int, session: int, limit: int, before: str | None = None) -> list[Message]:
    found = tx.all(
        sessions.MessageRow, "sessions.last_messages", (*sessions.message_keys(subject, session), limit, before)
    )
    return [sessions.as_message(row) for row in reversed(found)]


def _purge(tx: Transaction, subject: Subject, found: list[PurgedRow], *, now: int, limit: int) -> list[int]:
    """Delete messages of one subject for good, but for those that a hold keeps; the sizes of those that went."""
    number = tx.number_of(subject)
    if number is None:  # erased meanwhile
        return []
    holds = Holds(tx, subject)
    free = [row for row in found if holds.find(row.agent_id, row.session_id, row.id, row.metadata) is None][:limit]
    gone = [row for row in free if tx.run("sessions.erase_message", (number, row.key, now))]
    reason = "its time in the recycle bin was over"
    append(tx, number, [_event(now, Action.DELETED, row.id, reason=reason) for row in gone])
    return [row.size for row in gone]


def _event(now: int, action: Action, message_id: str, **detail: str) -> Event:
    return Event(now, action, message_id, {"kind": "message", **detail})
