"""Short-term memory: the last messages of a session, gone some time after the last one, or with the session.

All of a session's messages are kept beside that as the conversation's history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from holdfast.core.errors import HoldfastError, InvalidContentError, InvalidInputError, quote
from holdfast.core.records import TYPES, MemoryType, Message, Scope
from holdfast.core.values import SECOND, check_content, check_count, check_id, check_metadata, is_id
from holdfast.lifecycle.sessions import message_to_dict, roll
from holdfast.memory.explain import short_term_life
from holdfast.memory.services import Services
from holdfast.ports.coordination import begin_steps
from holdfast.results import MessageResult

_KIND = TYPES[MemoryType.SHORT_TERM]


class WindowChange(NamedTuple):
    """What became of messages that were added."""

    ids: list[str]
    held: int
    """How many messages the window holds now."""
    dropped: int
    """How many of the oldest left the window for them; the conversation's history keeps them."""


class ShortTerm:
    """``memory.short_term``: the session's messages."""

    def __init__(self, services: Services, scope: Scope) -> None:
        self._services, self._scope = services, scope

    def add_message(self, role: str, content: str, metadata: Mapping[str, Any] | None = None) -> str:
        """Append a message and keep the session for its time (an hour, unless a rule says otherwise); its id."""
        return self.append(role, [content], metadata).ids[0]

    def append(self, role: str, contents: Sequence[str], metadata: Mapping[str, Any] | None) -> WindowChange:
        """Append messages, all or none; their ids, how many messages the window holds now, and how many left it."""
        if isinstance(contents, str) or not isinstance(contents, Sequence):
            raise InvalidContentError(f"contents must be a list of texts, not {quote(contents)}")
        check_id(role, "role")
        self._scope.check_one()
        now = self._services.now()
        kept = check_metadata(metadata)
        checked = [check_content(content, max_bytes=self._services.max_content_bytes) for content in contents]
        if not checked:
            return WindowChange([], len(self.messages()), 0)
        ids, said_at = self._name(now, len(checked))
        messages = [Message(i, role, content, said_at, kept) for i, content in zip(ids, checked, strict=True)]
        ttl, most = short_term_life(self._services.rules.life(_KIND.name.value, self._scope)), _KIND.max_memories
        appended = self._services.history.append(self._scope, messages, now=now, summarize=roll)
        try:
            held = self._services.short_term.append(
                self._scope, messages, ttl=ttl, now=now, most=most, session=appended.session
            )
        except HoldfastError:
            with suppress(HoldfastError):  # what is away now may be the history too
                self._services.history.take_back(self._scope, appended, ids, summarize=roll)
            raise
        return WindowChange(ids, min(held, most), max(0, held - most))

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
        return [] if session is None else self._services.short_term.window(self._scope, now=now, session=session.id)

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

    def delete(self, message_id: str) -> bool:
        """Take a message out of the session for good, and send it to the recycle bin of the conversation history;
        whether it was there. ``HeldError``, changing nothing, if a hold keeps it.
        """
        self._services.check_agent(self._scope)
        if not is_id(message_id):
            return False
        kept = self._services.history.remove(self._scope, [message_id], now=self._services.now(), summarize=roll)
        self._services.recall.drop(self._scope, _KIND)
        return self._services.short_term.remove(self._scope, [message_id]) + kept > 0

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
