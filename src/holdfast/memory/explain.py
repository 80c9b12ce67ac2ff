"""What can be said of a memory, a message or a note: where it is, what comes next, and what protects it."""

from __future__ import annotations

from typing import cast

from holdfast.core.content import is_id
from holdfast.core.errors import NotFoundError, quote
from holdfast.core.records import LIVE, TYPES, Kind, MemoryType, Message, Scope, State, Subject
from holdfast.core.rules import HISTORY, labels_of
from holdfast.core.times import iso
from holdfast.lifecycle.explanation import explain_gone, explain_message, explain_record, explain_waiting
from holdfast.lifecycle.holds import as_held_message
from holdfast.memory.services import Services
from holdfast.ports.conversations import Turn
from holdfast.results import ExplainResult


def explain(parts: Services, tenant: str, memory_id: str, subject: Subject | None) -> ExplainResult:
    """What can be said of a memory, or of one that is gone; of whomever it is, if no subject is named."""
    if not is_id(memory_id):
        raise NotFoundError(f"{quote(memory_id)} is not the id of a memory")
    now = parts.now()
    found = parts.records.find(tenant, memory_id) if subject is None else parts.records.get(subject, memory_id)
    if found is not None:
        entries = parts.audit.of_item(found.scope.subject, memory_id)
        life = parts.rules.life(found.kind.value, found.scope, found.id, labels=labels_of(found.metadata))
        derived = _live_derived(parts, found.scope.subject, memory_id)
        agent = parts.removed_agent(found.scope) if "agent" in TYPES[found.kind].scope else None
        said = explain_record(found, life, parts.holds.list(tenant), entries, now, derived=derived, agent=agent)
        return cast("ExplainResult", explain_waiting(said, parts.trust.look, now))
    if subject is None:
        raise NotFoundError(
            f"no memory {memory_id} is there; of a message, or of one that is gone, say whose it is with user_id"
        )
    turn = parts.history.find_message(subject, memory_id)
    if turn is not None:
        return explain_turn(parts, turn)
    entries = parts.audit.of_item(subject, memory_id)
    if not entries:
        raise NotFoundError(f"no memory {memory_id} is there, and none of this id was ever removed from this user")
    gone = explain_gone(memory_id, entries)
    if gone is None:
        last = entries[-1]
        raise NotFoundError(
            f"no memory {memory_id} is there; the last that the audit chain says of it is {last.action!r} on "
            f"{iso(last.at)}, and of a message that went with its whole session it says no more"
        )
    return cast("ExplainResult", gone)


def explain_turn(parts: Services, turn: Turn) -> ExplainResult:
    """What can be said of a message of the conversation history."""
    now = parts.now()
    session, message = turn.session, turn.message
    tenant, user_id = session.subject.tenant, session.subject.user_id
    scope = Scope(tenant, user_id, session.agent_id, session.session_id)
    holds = [hold for hold in parts.holds.list(tenant) if hold.covers(as_held_message(turn))]
    if not holds and turn.purge_at is None:  # a hold on another message keeps all of the session
        hold = parts.history.hold_on(session.subject, session.id)
        holds = [] if hold is None else [hold]
    said = explain_message(
        turn,
        parts.rules.life(HISTORY, scope, session.id),
        holds,
        parts.audit.of_item(session.subject, message.id),
        now,
        derived=_live_derived(parts, session.subject, message.id),
        agent=parts.removed_agent(scope),
    )
    return cast("ExplainResult", explain_waiting(said, parts.trust.look, now))


def _live_derived(parts: Services, subject: Subject, memory_id: str) -> list[str]:
    """What is live and says that it was derived from a memory or a message."""
    found = parts.provenance.derived(subject, [memory_id])
    return [written.standing.id for written in found if written.standing.state in LIVE]


def explain_item(kind: Kind, item: Message, ttl: int | None) -> ExplainResult:
    """What can be said of a working note, or of a message in the short-term window."""
    ends = "its task ends" if kind.name is MemoryType.WORKING else f"{ttl} seconds from now, unless a message comes"
    return {
        "memory_id": item.id,
        "memory_type": kind.name.value,
        "state": State.ACTIVE.value,
        "is_visible": True,
        "is_archived": False,
        "created_at": iso(item.created_at),
        "next": {"action": "delete", "at": None, "due": False, "rule": f"the rule for {kind.name}", "reason": ends},
        "protected_by": [],
        "summary": f"This {kind.name} memory is gone when {ends}." if ttl is None else f"It is gone {ends}.",
    }
