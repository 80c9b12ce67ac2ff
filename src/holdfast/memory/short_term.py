"""Short-term memory: the last messages of a session, gone some time after the last one, or with the session.

All of a session's messages are kept beside that as the conversation's history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.core.decisions import Life
from holdfast.core.errors import ExpiredError, HoldfastError, InvalidContentError, InvalidInputError, quote
from holdfast.core.records import HISTORY, TYPES, MemoryType, Message, Scope
from holdfast.core.rules import DEFAULTS
from holdfast.core.values import (
    SECOND,
    check_content,
    check_count,
    check_id,
    check_metadata,
    describe_duration,
    is_id,
    iso,
    past_moment,
)
from holdfast.lifecycle.sessions import message_to_dict, roll
from holdfast.ports.coordination import begin_steps

if TYPE_CHECKING:
    from holdfast.memory.services import Services
    from holdfast.results.memory import MessageResult

_KIND = TYPES[MemoryType.SHORT_TERM]
_FIELDS: Final = frozenset({"role", "content", "metadata", "external_id", "timestamp"})
_MOST_AT_ONCE: Final = 100_000


class _Draft(NamedTuple):
    """A message that has no id yet."""

    role: str
    content: str
    metadata: dict[str, Any]
    external_id: str | None = None
    said_at: int | None = None


class WindowChange(NamedTuple):
    """What became of messages that were added."""

    ids: list[str]
    held: int
    """How many messages the window holds now, if any were added to it."""
    dropped: int
    """How many of the oldest left the window for them; the conversation's history keeps them."""


def short_term_life(life: Life) -> int:
    """How long the messages of a session stay after its last one. Short-term memory always ends: a rule for every kind
    that keeps things for ever leaves it its default.
    """
    return life.delete_after or DEFAULTS[_KIND.name.value].delete_after or 3_600 * SECOND


class ShortTerm:
    """``memory.short_term``: the session's messages."""

    def __init__(self, services: Services, scope: Scope) -> None:
        self._services, self._scope = services, scope

    def add_message(
        self,
        role: str,
        content: str,
        metadata: Mapping[str, Any] | None = None,
        *,
        external_id: str | None = None,
        timestamp: datetime | float | str | None = None,
    ) -> str:
        """Append a message and keep the session for its time (an hour, unless a rule says otherwise); its id.

        ``content`` may be empty. ``external_id`` and ``timestamp`` are explained at ``add_messages``.
        """
        fields = {"role": role, "content": content, "metadata": metadata}
        return self.add_messages([{**fields, "external_id": external_id, "timestamp": timestamp}])[0]

    def add_messages(self, messages: Sequence[Mapping[str, Any]]) -> list[str]:
        """Append messages of any roles in one transaction, all or none; their ids.

        Each has a ``role`` and a ``content``, which may be empty. It may have ``metadata``, and: an ``external_id``,
        which is your own id for it. If the session has a message with that id, nothing is added, and the answer has
        the id of that message: to append again does no harm. A ``timestamp`` (a datetime, seconds since 1970, or ISO
        8601): when it was said, for imports. It must not be in the future. Messages stay in the order in which they
        were added. One that is older than the session's time is not in the short-term window. ``ExpiredError``,
        adding nothing, if a session that begins with these messages would be past its time.
        """
        if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence):
            raise InvalidContentError(f"messages must be a list of objects, not {quote(messages)}")
        if len(messages) > _MOST_AT_ONCE:
            raise InvalidContentError(f"{len(messages):,} messages at once are too many (max: {_MOST_AT_ONCE:,})")
        now = self._services.now()
        return self._append([self._check(message, now) for message in messages], now).ids

    def _check(self, given: Mapping[str, Any], now: int) -> _Draft:
        """A message as it was given, if it can be stored."""
        if not isinstance(given, Mapping):
            raise InvalidContentError(f"a message must be an object with role and content, not {quote(given)}")
        if unknown := sorted(map(str, set(given) - _FIELDS)):
            raise InvalidInputError(f"a message has no field {unknown[0]!r}; it has {', '.join(sorted(_FIELDS))}")
        role, content, most = given.get("role"), given.get("content"), self._services.max_content_bytes
        external_id, when = given.get("external_id"), given.get("timestamp")
        return _Draft(
            check_id(role, "role"),
            check_content(content, max_bytes=most, may_be_empty=True),
            check_metadata(given.get("metadata")),
            None if external_id is None else check_id(external_id, "external_id"),
            None if when is None else min(now, past_moment(when, now=now, advice="give the time when it was said")),
        )

    def append(self, role: str, contents: Sequence[str], metadata: Mapping[str, Any] | None) -> WindowChange:
        """Append messages, all or none; their ids, how many messages the window holds now, and how many left it."""
        if isinstance(contents, str) or not isinstance(contents, Sequence):
            raise InvalidContentError(f"contents must be a list of texts, not {quote(contents)}")
        check_id(role, "role")
        kept, most = check_metadata(metadata), self._services.max_content_bytes
        drafts = [_Draft(role, check_content(content, max_bytes=most), kept) for content in contents]
        return self._append(drafts, self._services.now())

    def _append(self, drafts: Sequence[_Draft], now: int) -> WindowChange:
        """Write messages to the history, and those of them that are new there to the window."""
        self._scope.check_one()
        if not drafts:
            return WindowChange([], len(self.messages()), 0)
        self._refuse_expired(drafts, now)
        ids, said_at = self._name(now, len(drafts))
        messages = [
            Message(i, one.role, one.content, said_at if one.said_at is None else one.said_at, *one[2:4])
            for i, one in zip(ids, drafts, strict=True)
        ]
        ttl, most = short_term_life(self._services.rules.life(_KIND.name.value, self._scope)), _KIND.max_memories
        if self._services.short_term.is_outside:
            return self._write(messages, ttl, most, now)
        with self._services.history.together(self._scope.subject):
            return self._write(messages, ttl, most, now)

    def _write(self, messages: Sequence[Message], ttl: int, most: int, now: int) -> WindowChange:
        appended = self._services.history.append(self._scope, messages, now=now, summarize=roll)
        new = [one for one, stored in zip(messages, appended.ids, strict=True) if one.id == stored]
        recent = [one for one in new if one.created_at + ttl > now]
        if not recent:
            return WindowChange(list(appended.ids), 0, 0)
        try:
            held = self._services.short_term.append(
                self._scope, recent, ttl=ttl, now=now, most=most, session=appended.session
            )
        except HoldfastError:
            if not self._services.short_term.is_outside:
                raise
            with suppress(HoldfastError):  # what is away now may be the history too
                self._services.history.take_back(self._scope, appended, [one.id for one in new], summarize=roll)
            raise
        return WindowChange(list(appended.ids), min(held, most), max(0, held - most))

    def _refuse_expired(self, drafts: Sequence[_Draft], now: int) -> None:
        """A session that is past its time as soon as it begins would be seen by nobody."""
        latest = max(now if one.said_at is None else one.said_at for one in drafts)
        life = self._services.rules.life(HISTORY, self._scope) if latest < now else None
        if life is None or life.delete_after is None or latest + life.delete_after > now:
            return
        if self._services.history.find(self._scope, now=now) is None:
            raise ExpiredError(
                f"session {self._scope.session_id!r} would begin past its time and was not added: its last message is "
                f"of {iso(latest)}, and conversations are kept for {describe_duration(life.delete_after)} after that; "
                "to keep it, set a longer rule first: holdfast policy set history --delete-after …"
            )

    def _name(self, now: int, count: int) -> tuple[list[str], int]:
        """Ids for new messages, and when they were said. Where the window is outside of the database, and the request
        must be done once, they are the same whenever it is carried out: so the window holds each message once.
        """
        request = begin_steps() if self._services.short_term.is_outside else None
        if request is None:
            return self._services.new_ids(now, count), now
        request.join_rest()  # the history's part is committed last, with the reply
        return request.new_ids(count), request.began_at

    def messages(self) -> list[Message]:
        """The last messages of the session (at most 1,000); none once they have expired, or the session has gone."""
        now = self._services.now()
        session = self._services.history.find(self._scope, now=now)
        if session is None:
            return []
        held = self._services.recall.held_items(self._scope, _KIND)
        return self._services.short_term.window(self._scope, now=now, session=session.id, held=held)

    def get_conversation_history(self) -> list[MessageResult]:
        """The last 1,000 messages of the session in their order; empty once its time has passed since the last one, and
        once the session has gone. ``get_full_history`` has all of them.
        """
        return [message_to_dict(message) for message in self.messages()]

    def get_ttl(self) -> int | None:
        """Whole seconds until the session expires, rounded up; ``None`` if it holds nothing."""
        now = self._services.now()
        session = self._services.history.find(self._scope, now=now)
        if session is None:
            return None
        expires = self._services.short_term.expires_at(self._scope, now=now, session=session.id)
        if expires is None:
            return None
        return -((now - min(expires, session.hidden_from or expires)) // SECOND)

    def delete(self, message_id: str | Sequence[str]) -> bool:
        """Take a message, or several, all or none, out of the session for good, and send it to the recycle bin of the
        conversation history; whether any was there. ``HeldError``, changing nothing, if a hold keeps one.
        """
        given: Sequence[Any] = message_id if isinstance(message_id, list | tuple) else [message_id]
        return any(self._remove([one for one in given if is_id(one)]))

    def _remove(self, ids: Sequence[str]) -> tuple[int, int]:
        """Remove messages from history and window; how many were in each."""
        self._services.check_agent(self._scope)
        if not ids:
            return 0, 0
        kept = self._services.history.remove(self._scope, ids, now=self._services.now(), summarize=roll)
        self._services.recall.drop(self._scope, _KIND)
        return kept, self._services.short_term.remove(self._scope, ids)

    def pop_message(self) -> MessageResult | None:
        """Send the last message of the conversation to the recycle bin, and return it; ``None`` if there is none.
        Two who do this at once get two messages. ``HeldError``, changing nothing, if a hold keeps it.
        """
        self._services.check_agent(self._scope)  # the conversation of one that was removed looks empty
        while last := self.get_full_history(1):
            kept, _ = self._remove([last[0]["message_id"]])
            if kept:  # else another has taken it meanwhile
                return last[0]
        return None

    def get_full_history(self, limit: int | None = None, *, before: str | None = None) -> list[MessageResult]:
        """The whole conversation, expired messages included; with ``limit``, the last ones; with ``before`` (the id of
        a message), those said before that.
        """
        if limit is not None:
            check_count(limit, "limit", most=10**9)
        if before is not None and not is_id(before):
            raise InvalidInputError(f"before must be the id of a message, not {quote(before)}")
        found = self._services.history.messages(self._scope, now=self._services.now(), limit=limit, before=before)
        return [message_to_dict(message) for message in found]
