"""``retain.holds``: what nothing may remove, however old it is and whoever asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from retain.core.chain import Event
from retain.core.content import check_content, check_id
from retain.core.errors import InvalidInputError, NotFoundError, told
from retain.core.holds import Hold
from retain.core.ids import is_id
from retain.core.times import iso
from retain.ports import HoldStore

_MOST_TEXT = 2_000


class Holds:
    """Holds of one tenant. A hold keeps things from being removed; it does not keep them from being changed."""

    def __init__(self, store: HoldStore, tenant: str, now: Callable[[], int], new_id: Callable[[int], str]) -> None:
        self._store = store
        self._tenant = tenant
        self._now = now
        self._new_id = new_id

    def add(
        self,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        memory_id: str | None = None,
        tag: str | None = None,
        reason: str,
        author: str,
    ) -> Hold:
        """Let nothing of a user, an agent, a session, a tag, or one memory be removed until the hold is released.

        What several parts name is what all of them name. A tag is ``key=value`` (a field of the metadata) or one of the
        texts in ``metadata["tags"]``.
        """
        given = {"user_id": user_id, "agent_id": agent_id, "session_id": session_id, "memory_id": memory_id, "tag": tag}
        whom = {name: None if value is None else check_id(value, name) for name, value in given.items()}
        if not any(whom.values()):
            raise InvalidInputError("say what to hold: give user_id, agent_id, session_id, memory_id or tag")
        now = self._now()
        hold = Hold(
            self._new_id(now),
            self._tenant,
            check_content(reason, "reason", max_bytes=_MOST_TEXT),
            check_id(author, "author"),
            now,
            user_id=whom["user_id"],
            agent_id=whom["agent_id"],
            session_id=whom["session_id"],
            memory_id=whom["memory_id"],
            tag=whom["tag"],
        )
        self._store.add(hold, Event(now, "hold.added", hold.id, {**_public(hold), "reason": hold.reason}))
        return hold

    def list(self, *, released: bool = False) -> list[Hold]:
        """The holds that stand, oldest first; with ``released``, those that were lifted too."""
        return self._store.list(self._tenant, released=released)

    def release(self, hold_id: str, *, author: str = "unknown") -> Hold:
        """Lift a hold: what is past its time goes with the next sweep."""
        now = self._now()
        event = Event(now, "hold.released", str(hold_id), {"author": check_id(author, "author")})
        found = is_id(hold_id)
        hold = self._store.release(self._tenant, hold_id, now=now, author=author, event=event) if found else None
        if hold is None:
            raise NotFoundError(f"no hold {told(hold_id)} stands; those that do: retain hold list")
        return hold


def _public(hold: Hold) -> dict[str, Any]:
    """What the audit chain says of a hold: not whose memory it is about, which is the chain's own secret."""
    named = ("agent_id", "session_id", "memory_id", "tag")
    parts = {name: getattr(hold, name) for name in named if getattr(hold, name) is not None}
    return {"on": [*(["user"] if hold.user_id else []), *parts], **parts, "author": hold.author}


def shown_hold(hold: Hold) -> dict[str, Any]:
    """A hold as callers of a service see it."""
    parts = ("user_id", "agent_id", "session_id", "memory_id", "tag")
    return {
        "hold_id": hold.id,
        **{part: getattr(hold, part) for part in parts if getattr(hold, part) is not None},
        "reason": hold.reason,
        "author": hold.author,
        "created_at": iso(hold.created_at),
        "released_at": None if hold.released_at is None else iso(hold.released_at),
        "released_by": hold.released_by,
    }
