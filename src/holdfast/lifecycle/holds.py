"""``holdfast.holds``: what nothing may remove, however old it is and whoever asks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.core.audit import Action, Event, acting_as, check_author
from holdfast.core.decisions import Held, Hold, RecordFacts
from holdfast.core.errors import InvalidInputError, NotFoundError, quote
from holdfast.core.records import Record, Subject
from holdfast.core.values import check_content, check_id, is_id, iso, to_json
from holdfast.ports.registry import TOOL

if TYPE_CHECKING:
    from holdfast.ports.conversations import Turn
    from holdfast.ports.stores import Tenant
    from holdfast.results.lifecycle import HoldCoverResult

_MOST_TEXT = 2_000
_EVERYTHING = 2**62


@dataclass(eq=False, repr=False)
class Holds:
    """Holds of one tenant. A hold keeps things from being removed; it does not keep them from being changed."""

    tenant: Tenant

    def add(
        self,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        memory_id: str | None = None,
        tag: str | None = None,
        reason: str,
        author: str | None = None,
    ) -> Hold:
        """Let nothing of a user, an agent, a session, a tag, or one memory be removed until the hold is released.

        What several parts name is what all of them name. A tag is ``key=value`` (a field of the metadata) or one of the
        texts in ``metadata["tags"]``. ``memory_id`` is the id of a memory, of a tool (alone), or, with its ``user_id``,
        of a message or of a memory that is gone and may come back. ``NotFoundError`` if there is no such thing.
        """
        given = {"user_id": user_id, "agent_id": agent_id, "session_id": session_id, "memory_id": memory_id, "tag": tag}
        whom: dict[str, Any] = {name: check_id(value, name) for name, value in given.items() if value is not None}
        self._check_names_something(whom)
        now, words = self.tenant.now(), check_content(reason, "reason", max_bytes=_MOST_TEXT)
        hold = Hold(self.tenant.new_id(now), self.tenant.name, words, "", now, **whom)
        with acting_as(check_author(author)):
            return self.tenant.holds.add(hold, Event(now, Action.HOLD_ADDED, hold.id, _public(hold)))

    def _check_names_something(self, whom: dict[str, Any]) -> None:
        """Refuse what nothing can ever go by: a hold on it would keep nothing, and nobody would know."""
        if not whom:
            raise InvalidInputError("say what to hold: give user_id, agent_id, session_id, memory_id or tag")
        one, tag, user_id = whom.get("memory_id"), whom.get("tag"), whom.get("user_id")
        if one is not None and not ([*whom] == ["memory_id"] and self._is_tool(one)):
            if not is_id(one):
                raise InvalidInputError(
                    f"memory_id {quote(one)} is not the id of a memory or a message, nor of a tool that is known; "
                    "see ids with holdfast search or holdfast tool list"
                )
            if user_id is not None:
                self.tenant.check_known(user_id, one)
            elif self.tenant.records.find(self.tenant.name, one) is None:
                raise NotFoundError(
                    f"there is no memory {quote(one)}, and nothing was changed; if it is the id of a message, or of a "
                    "memory that is gone, name its user too"
                )
        if tag is not None and not all(tag.partition("=")[::2] if "=" in tag else (tag,)):
            raise InvalidInputError(
                f"tag {quote(tag)} lacks its key or its value; write key=value, or one of the texts in metadata['tags']"
            )

    def _is_tool(self, name: str) -> bool:
        return self.tenant.registry.get(self.tenant.name, TOOL, name) is not None

    def covered(self, hold: Hold) -> dict[str, int] | None:
        """How much a hold covers now, where that is cheap to say: the live memories and the sessions of a user, or the
        one memory, message or tool. ``None`` where it would have to be counted.
        """
        if [*hold.scope] == ["user_id"]:
            subject = Subject(self.tenant.name, hold.user_id or "")
            sessions = self.tenant.history.sessions(subject, now=self.tenant.now())
            return {"memories": self.tenant.dues.live(subject), "sessions": len(sessions)}
        if hold.memory_id is None:
            return None
        if not is_id(hold.memory_id):
            return {"tools": int(self._is_tool(hold.memory_id))}
        record = self.tenant.records.find(self.tenant.name, hold.memory_id)
        if record is not None or hold.user_id is None:
            return {"memories": 0 if record is None else int(hold.covers(as_held(record)))}
        turn = self.tenant.history.find_message(Subject(self.tenant.name, hold.user_id), hold.memory_id)
        return {"memories": 0} if turn is None else {"messages": int(hold.covers(as_held_message(turn)))}

    def get(self, hold_id: str) -> Hold:
        """A hold, be it in force or released; ``NotFoundError`` if there is none."""
        found = (hold for hold in self.tenant.holds.list(self.tenant.name, released=True) if hold.id == hold_id)
        if (hold := next(found, None)) is None:
            raise NotFoundError(f"there is no hold {quote(hold_id)}; those that there are: holdfast hold list")
        return hold

    def count(self, hold_id: str) -> dict[str, int]:
        """How much a hold covers now, whatever it is on: what is not known from counters is counted."""
        hold = self.get(hold_id)
        known = {"memories": 0} if hold.released_at is not None else self.covered(hold)
        return self.tenant.figures.covered(hold, most=_EVERYTHING)[0] if known is None else known

    def count_some(self, holds: Sequence[Hold], *, most: int = 20_000) -> Sequence[HoldCoverResult]:
        """How much each of several holds covers now. It reads ``most`` things, whatever there is: after that, and where
        a hold is on more than that, a count is not whole.
        """
        counted: list[HoldCoverResult] = []
        for hold in holds:
            known = {} if hold.released_at is not None else self.covered(hold)
            is_whole = known is not None
            if known is None and most > 0:
                known, is_whole = self.tenant.figures.covered(hold, most=most)
                most = most - max(known.values()) if is_whole else 0
            counted.append({"counts": known or {}, "is_whole": is_whole})
        return counted

    def preview(
        self,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        memory_id: str | None = None,
        tag: str | None = None,
    ) -> HoldCoverResult:
        """How much a hold on something would cover now; it takes what ``add`` takes. Nothing is changed."""
        hold = Hold("", self.tenant.name, "", "", 0, user_id, agent_id, session_id, memory_id, tag)
        self._check_names_something(dict(hold.scope))
        return self.count_some([hold])[0]

    def list(self, *, released: bool = False) -> list[Hold]:
        """The holds that stand, oldest first; with ``released``, those that were lifted too."""
        return self.tenant.holds.list(self.tenant.name, released=released)

    def release(self, hold_id: str, *, author: str | None = None) -> Hold:
        """Lift a hold: what is past its time goes with the next sweep."""
        now = self.tenant.now()
        event = Event(now, Action.HOLD_RELEASED, str(hold_id), {})
        with acting_as(check_author(author)):
            known, tenant = is_id(hold_id), self.tenant
            hold = tenant.holds.release(tenant.name, hold_id, now=now, event=event) if known else None
        if hold is None:
            raise NotFoundError(f"no hold {quote(hold_id)} stands; those that do: holdfast hold list")
        return hold


def _public(hold: Hold) -> dict[str, Any]:
    """What the audit chain says of a hold: not whose memory it is about, which is the chain's own secret.

    Nothing of the words that people wrote, either, since they may speak of a person and the chain stays: the hold has
    them as long as it is kept, and the chain a digest of them, by which they can be told to be what they were.
    """
    parts = {name: value for name, value in hold.scope.items() if name not in ("user_id", "tag")}
    on = ["user" if name == "user_id" else name for name in hold.scope]
    return {"on": on, **parts, "words": digest_of(hold)}


def digest_of(hold: Hold) -> str:
    """The digest of a hold's reason and tag that is on the audit chain."""
    return hashlib.sha256(to_json(["holdfast-hold 1", hold.id, hold.reason, hold.tag]).encode()).hexdigest()


def as_held(record: Record) -> Held:
    """A record as a hold looks at it."""
    scope = record.scope
    return Held(scope.user_id, scope.agent_id, scope.session_id, record.id, record.metadata)


def record_facts(record: Record) -> RecordFacts:
    """What a decision needs to know of a record."""
    aged_from = record.dated_at if record.aged_from is None else record.aged_from
    whose = (record.id, record.kind.value, record.scope.subject, as_held(record), record.state, record.version)
    return RecordFacts(*whose, aged_from, record.purge_at, 0, record.pack is not None)


def as_held_message(turn: Turn) -> Held:
    """A message as a hold looks at it."""
    session, message = turn.session, turn.message
    user_id = session.subject.user_id
    return Held(user_id, session.agent_id, session.session_id, message.id, message.metadata)


def hold_to_dict(hold: Hold) -> dict[str, Any]:
    """A hold as callers of a service see it."""
    return {
        "hold_id": hold.id,
        **hold.scope,
        "reason": hold.reason,
        "author": hold.author,
        "created_at": iso(hold.created_at),
        "released_at": None if hold.released_at is None else iso(hold.released_at),
        "released_by": hold.released_by,
    }
