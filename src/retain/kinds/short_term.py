"""Short-term memory: the messages of a session, gone an hour after its last one, and kept beside that as history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from retain.core.content import check_content, check_count, check_id, check_metadata
from retain.core.errors import InvalidContentError, RetainError, told
from retain.core.ids import is_id
from retain.core.records import Message, Scope
from retain.core.times import SECOND, iso
from retain.core.types import SHORT_TERM_TTL_SECONDS, TYPES, MemoryType
from retain.kinds.parts import Parts

_KIND = TYPES[MemoryType.SHORT_TERM]


class ShortTerm:
    """``memory.short_term``: the session's messages."""

    def __init__(self, parts: Parts, scope: Scope) -> None:
        self._parts = parts
        self._scope = scope

    def add_message(self, role: str, content: str, metadata: Mapping[str, Any] | None = None) -> str:
        """Append a message and keep the session for another hour; the message's id."""
        return self.append(role, [content], metadata)[0][0]

    def append(self, role: str, contents: Sequence[str], metadata: Mapping[str, Any] | None) -> tuple[list[str], int]:
        """Append messages, all or none; their ids, and how many messages the session holds now."""
        if isinstance(contents, str) or not isinstance(contents, Sequence):
            raise InvalidContentError(f"contents must be a list of texts, not {told(contents)}")
        check_id(role, "role")
        now = self._parts.now()
        kept = check_metadata(metadata)
        checked = [check_content(content, max_bytes=self._parts.max_content_bytes) for content in contents]
        ids = self._parts.new_ids(now, len(checked))
        messages = [Message(i, role, content, now, kept) for i, content in zip(ids, checked, strict=True)]
        ttl = SHORT_TERM_TTL_SECONDS * SECOND
        held = self._parts.short_term.append(self._scope, messages, ttl=ttl, now=now, most=_KIND.max_memories)
        try:
            self._parts.history.append(self._scope, messages)
        except RetainError:
            self._parts.short_term.remove(self._scope, ids)
            raise
        return ids, held

    def messages(self) -> list[Message]:
        """The session's messages that have not expired."""
        return self._parts.short_term.window(self._scope, now=self._parts.now())

    def get_conversation_history(self) -> list[dict[str, Any]]:
        """The session's messages in their order; empty once an hour has passed since the last one."""
        return [shown_message(message) for message in self.messages()]

    def get_ttl(self) -> int | None:
        """Whole seconds until the session expires, rounded up; ``None`` if it holds nothing."""
        now = self._parts.now()
        expires = self._parts.short_term.expires_at(self._scope, now=now)
        return None if expires is None else -((now - expires) // SECOND)

    def delete(self, message_id: str) -> bool:
        """Take a message out of the session and out of the conversation history, for good; whether it was there."""
        if not is_id(message_id):
            return False
        self._parts.recall.drop(self._scope, _KIND)
        gone = self._parts.short_term.remove(self._scope, [message_id])
        return self._parts.history.remove(self._scope, [message_id]) + gone > 0

    def get_full_history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The whole conversation, expired messages included; with ``limit``, the last ones."""
        if limit is not None:
            check_count(limit, "limit", most=10**9)
        return [shown_message(message) for message in self._parts.history.messages(self._scope, limit=limit)]


def shown_message(message: Message) -> dict[str, Any]:
    """A message as callers see it."""
    return {
        "message_id": message.id,
        "role": message.role,
        "content": message.content,
        "timestamp": iso(message.created_at),
        "metadata": message.metadata,
    }
