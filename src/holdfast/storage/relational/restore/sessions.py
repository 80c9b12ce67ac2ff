"""Conversations that come from a backup into a store that is in use, within a transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from holdfast.core.errors import StoreFullError
from holdfast.core.records import BIN, HISTORY, State, Subject
from holdfast.ports.backups import ConversationRows
from holdfast.storage.relational.conversations.sessions import SessionRow, find_by_id, message_keys
from holdfast.storage.relational.database import MESSAGE_BITS, Transaction
from holdfast.storage.relational.profiles import Profiles
from holdfast.storage.relational.restore.records import Agents, ProfilesOf, as_stored, staying_in_bin

_PLACES: Final = (1 << MESSAGE_BITS) - 1
#: No session has this number: it steps aside before it has one.
_ASIDE: Final = -1
_AS_IT_WAS: Final = (
    *("version", "created_at", "updated_at", "aged_from", "moved_at", "purge_at", "id", "agent_id", "session_id"),
    *("state", "reason", "bundle", "summary"),
)


class PlacedMessage(NamedTuple):
    """A message that is there, and its key."""

    id: str
    key: int


class SessionBatch:
    """Some conversations of one subject."""

    def __init__(self, tx: Transaction, subject: Subject, number: int, profiles: Profiles, *, now: int) -> None:
        self._tx = tx
        self._number = number
        self._profiles = ProfilesOf(tx, profiles, subject)
        self._now = now
        self._agents = Agents(tx, subject, now)
        self.counts: Counter[str] = Counter()

    def add(self, conversation: ConversationRows) -> None:
        """Add a conversation, or what is missing of it. One that is being deleted is left to that."""
        session, messages = conversation
        there = find_by_id(self._tx, self._number, session["id"])
        if session["state"] == State.DELETING or (there is not None and there.state == State.DELETING):
            return
        if there is None:
            number = self._make(session, messages)
            self._write(message_keys(self._number, number), messages)
            self.counts["sessions"] += 1
        else:
            keys = message_keys(self._number, there.no)
            known = dict(self._tx.all(PlacedMessage, "restore.messages_there", keys))
            messages = [message for message in messages if message["id"] not in known]
            if not messages:
                return
            self._write(keys, messages, frozenset(known.values()))
            live, size = _counted(messages)
            self._tx.run("sessions.count_messages", (self._number, live, size, None, there.no))
        self.counts["messages"] += len(messages)

    def _make(self, session: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> int:
        """Make a session that is missing; its number."""
        session = self._as_it_can_be(session)
        profile = self._profiles.find(HISTORY, session)
        steps_aside = bool(session["aside"]) and session["state"] == State.ACTIVE
        own = (self._number, profile, *_counted(messages), _ASIDE if steps_aside else 0)
        number = self._tx.number("restore.insert_session", (*own, *(session[column] for column in _AS_IT_WAS)))
        if steps_aside:
            self._tx.run("sessions.step_aside", (self._number, number))
        return number

    def _as_it_can_be(self, session: Mapping[str, Any]) -> Mapping[str, Any]:
        """A session as it was; but where its agent is, and in the recycle bin if another goes by its name."""
        if session["state"] != State.ACTIVE:
            return staying_in_bin(session, self._now)
        if self._agents.has_gone(session):
            return self._agents.followed(session)
        who = (self._number, session["agent_id"], session["session_id"])
        if session["aside"] or self._tx.find(SessionRow, "sessions.session", who) is None:
            return session
        return {
            **session,
            "state": State.RECYCLED.value,
            "moved_at": self._now,
            "purge_at": self._now + BIN,
            "reason": "it came back from a backup, and another session goes by its name",
        }

    def _write(
        self,
        keys: tuple[int, int, int],
        messages: Sequence[Mapping[str, Any]],
        taken: frozenset[int] = frozenset(),
    ) -> None:
        """Write messages, each at its old place if that is free, else at the end."""
        subject, first, last = keys
        rows = list(_placed(messages, first, last, taken))
        self._tx.run_many("restore.insert_message", [(subject, *row) for row in rows])


def _placed(
    messages: Sequence[Mapping[str, Any]], first: int, last: int, taken: frozenset[int]
) -> Iterator[tuple[Any, ...]]:
    old = [first | message["key"] & _PLACES for message in messages]
    after = max((*taken, *old), default=first - 1) + 1
    for key, message in zip(old, messages, strict=True):
        place = key
        if key in taken:
            place, after = after, after + 1
        if place > last:
            raise StoreFullError("a session has as many messages as it can hold; not all of it can be restored")
        content = as_stored(message["content"])
        columns = ("created_at", "purge_at", "id", "role", "metadata")
        yield (place, *(message[column] for column in columns), content)


def _counted(messages: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """How many messages are not in the recycle bin, and how many bytes their content takes as it is stored."""
    sizes = [len(message["content"]) for message in messages if message["purge_at"] is None]
    plain = sum(message["purge_at"] is None and message["content"][:1] == b"\0" for message in messages)
    return len(sizes), sum(sizes) - plain
