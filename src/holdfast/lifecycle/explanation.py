"""Explanations: what a memory is, which rules it lives under, what happens to it next; or how it went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

from holdfast.core.audit import Action, AuditEntry
from holdfast.core.clock import Belief
from holdfast.core.decisions import Decision, Hold, Life, RecordFacts, explain_decision, next_move
from holdfast.core.records import BIN, HISTORY, LIVE, TYPES, Archive, MemoryType, Message, Record, Scope, State, Version
from holdfast.core.values import DAY, describe_duration, iso, moment
from holdfast.lifecycle.holds import as_held, hold_to_dict, record_facts
from holdfast.lifecycle.policies import life_to_dict
from holdfast.lifecycle.sweeping.plan import ACTIONS
from holdfast.ports.conversations import Session, Turn
from holdfast.ports.registry import Registered


class Links(NamedTuple):
    """What is known of a memory beside itself."""

    entries: list[AuditEntry]
    """What the audit chain says of it."""
    derived: Sequence[str]
    """What was derived from it."""
    agent: Registered | None
    """The agent that it follows, if that was removed."""


def explain_record(record: Record, life: Life, holds: list[Hold], links: Links, now: int) -> dict[str, Any]:
    """All that can be said of a record that is still there, in whatever state."""
    facts = record_facts(record)
    coming = next_move(facts, life, now)
    if coming is not None and record.aged_from not in (None, record.dated_at):
        since = _describe_start(record, links.entries)
        anew = coming.reason.replace("after it was made", since).replace("after it ended", since)
        coming = coming._replace(reason=anew)
    kept = [hold for hold in holds if hold.covers(facts.thing)]
    return _explain(record, life, kept, links, now, what=f"{record.kind} memory", coming=coming)


def explain_session(session: Session, life: Life, holds: list[Hold], links: Links, now: int) -> dict[str, Any]:
    """All that can be said of a session, with what belongs to it."""
    whole = Message(session.id, "", session.summary, session.created_at, {})
    said = explain_message(Turn(whole, session, None), life, holds, links, now, what="session")
    return {**said, "memory_type": HISTORY}


def explain_message(
    turn: Turn, life: Life, holds: list[Hold], links: Links, now: int, *, what: str = "message"
) -> dict[str, Any]:
    """All that can be said of a message of the conversation history. It lives and goes with its session, unless it was
    deleted by itself; ``holds`` are those that keep it.
    """
    message, session, purge_at = turn
    tenant, user_id = session.subject.tenant, session.subject.user_id
    binned = (
        None if purge_at is None else next((e for e in reversed(links.entries) if e.action == Action.RECYCLED), None)
    )
    record = Record(
        id=message.id,
        kind=MemoryType.SHORT_TERM,
        scope=Scope(tenant, user_id, session.agent_id, session.session_id),
        content=message.content,
        created_at=message.created_at,
        updated_at=message.created_at,
        dated_at=session.aged_from,
        metadata=message.metadata,
        state=session.state if purge_at is None else State.RECYCLED,
        hidden_from=session.hidden_from,
        moved_at=session.moved_at if binned is None else binned.at,
        purge_at=session.purge_at if purge_at is None else purge_at,
        reason=session.reason if binned is None else binned.detail.get("reason"),
    )
    coming = next_move(record_facts(record)._replace(kind=HISTORY), life, now)
    if coming is not None and what == "message":
        coming = coming._replace(reason=coming.reason.replace("it was last active", "its session was last active"))
    said = _explain(record, life, holds, links, now, what=what, coming=coming)
    if session.part_state is not None:
        said["summary"] += f" What belongs to its session elsewhere ({session.part_size:,} bytes) goes with it."
    return said


def _explain(
    record: Record, life: Life, kept: list[Hold], links: Links, now: int, *, what: str, coming: Decision | None
) -> dict[str, Any]:
    entries, derived, agent = links
    if agent is not None and record.state in LIVE:
        after = _follow_agent(record_facts(record), agent)
        coming = after if coming is None else min(coming, after, key=lambda one: one.due_at)
    else:
        agent = None
    over = record.hidden_from is not None and record.hidden_from <= now
    keep_until = None if life.keep_for is None else (record.aged_from or record.dated_at) + life.keep_for
    said: dict[str, Any] = {
        "memory_id": record.id,
        "memory_type": record.kind.value,
        "state": record.state.value,
        "is_visible": record.state in LIVE and agent is None and not over,
        "is_archived": record.is_archived(now),
        "created_at": iso(record.created_at),
        "source": record.written_by,
        "derived_from": list(record.derived_from),
        "derived": list(derived),
        "age_counts_from": iso(record.aged_from or record.dated_at),
        "rules": life_to_dict(life),
        "next": None if coming is None else _describe_next(coming, now),
        "protected_by": [hold_to_dict(hold) for hold in kept],
        "kept_until": None if keep_until is None or keep_until > _FAR else iso(keep_until),
        "history": [_describe_entry(entry) for entry in entries],
    }
    if record.state is State.RECYCLED:
        said |= _describe_bin(record, now)
    sentences = [f"This {what} is {record.state}."]
    if agent is not None:
        removed = iso(agent.moved_at or now)
        sentences.append(f"Its agent {agent.id!r} was removed on {removed}: nobody sees it, and it follows the agent.")
    elif record.state in LIVE and over:
        sentences.append(f"Its time was over on {iso(record.hidden_from or now)}: nobody sees it any more.")
    said["summary"] = " ".join([*sentences, *_prospects(record, life, coming, kept)])
    return said


def list_coming(record: Record, life: Life, now: int) -> list[dict[str, Any]]:
    """All that the rules do with a record from now on, each when it is due, until it is gone; whatever holds it."""
    facts, moves = record_facts(record), list[Decision]()
    while (coming := next_move(facts, life, now)) is not None:
        moves.append(coming)
        if coming.target in (State.DELETING, State.DELETED):
            break
        until = max(coming.due_at, now) + BIN if coming.target is State.RECYCLED else None
        facts = facts._replace(state=coming.target, purge_at=until)
    return [_describe_next(one, now) for one in moves]


def list_steps(
    record: Record | None, versions: Sequence[Version], entries: Sequence[AuditEntry], holds: Sequence[Hold]
) -> list[dict[str, Any]]:
    """What happened to a record, in order: that it was added and changed, every entry of the audit chain, and the holds
    that came and went while it was there.
    """
    steps = [(entry.at, _step(entry.at, entry.action, entry.actor, **entry.detail)) for entry in entries]
    if record is not None:
        origin = versions[0].of(record).written_by if versions else record.written_by
        steps.append((record.created_at, _step(record.created_at, "added", origin)))
        changes = [(one.ended_at, one.ended_by, one.reason) for one in versions]
        steps += [(at, _step(at, "corrected", by, reason=reason)) for at, by, reason in changes]
        thing = as_held(record)
        for hold in (one for one in holds if replace(one, released_at=None).covers(thing)):
            ends = [(hold.created_at, Action.HOLD_ADDED, hold.author)]
            if hold.released_at is not None:
                ends.append((hold.released_at, Action.HOLD_RELEASED, hold.released_by or ""))
            for at, action, actor in ends:
                if at >= record.created_at:
                    steps.append((at, _step(at, action, actor, reason=hold.reason, hold=hold.id)))
    return [step for _, step in sorted(steps, key=itemgetter(0))]


def _step(at: int, action: str, actor: str, **detail: Any) -> dict[str, Any]:
    known = {name: detail.pop(name, None) for name in ("reason", "rule", "cause")}
    return {"at": iso(at), "action": str(action), "actor": actor, **known, "detail": detail}


def explain_waiting(said: dict[str, Any], believed: Callable[[int], Belief], now: int) -> dict[str, Any]:
    """An explanation, with what keeps a move from being made that is due by the clock, and could not be undone."""
    coming = said["next"]
    final = coming is not None and coming["due"] and not said["protected_by"]
    if final and (coming["action"] == ACTIONS[State.DELETED] or _clears(said["memory_type"], coming["action"])):
        belief = believed(now)
        if moment(coming["at"]) > belief.upto:
            coming["waits_for"] = belief.explain()
            said["summary"] += f" It waits: {belief.explain()}."
    return said


def _clears(kind: str, action: str) -> bool:
    """Whether a move archives in place, which clears what no one can bring back."""
    return action == ACTIONS[State.ARCHIVED] and TYPES[MemoryType(kind)].archive is Archive.SUMMARY


def explain_gone(memory_id: str, entries: list[AuditEntry]) -> dict[str, Any] | None:
    """What the audit chain knows of a record that is gone: when, why, and under which rule it went; ``None``, if it
    does not say that the record was deleted, or says that it came back since.
    """
    ends = [entry for entry in entries if entry.action in (Action.DELETED, Action.RESTORED)]
    if not ends or ends[-1].action != Action.DELETED:
        return None
    last = ends[-1]
    removed = next((entry for entry in reversed(entries) if entry.action == Action.RECYCLED), last)
    detail = removed.detail
    rule = f" ({detail['rule']})" if detail.get("rule") else ""
    return {
        "memory_id": memory_id,
        "memory_type": last.detail.get("kind"),
        "state": State.DELETED.value,
        "is_visible": False,
        "removed_at": iso(removed.at),
        "deleted_at": iso(last.at),
        "reason": detail.get("reason"),
        "cause": detail.get("cause"),
        "rule": detail.get("rule"),
        "next": None,
        "protected_by": [],
        "history": [_describe_entry(entry) for entry in entries],
        "summary": f"Removed on {iso(removed.at)}: {detail.get('reason')}{rule}. Deleted for good on {iso(last.at)}.",
    }


_FAR = 253_402_300_799_000_000


def _describe_start(record: Record, entries: list[AuditEntry]) -> str:
    """What the age of a record counts from that does not count from when it was made."""
    back = {entry.at for entry in entries if entry.action in (Action.RESTORED, Action.REHYDRATED)}
    if record.aged_from in back or (record.revision == 1 and record.ttl is None):
        return "after it was brought back"
    return "after it was corrected" if record.revision > 1 else "after it was last used"


def _describe_next(coming: Decision, now: int) -> dict[str, Any]:
    due = {"at": iso(coming.due_at), "due": coming.due_at <= now}
    return {"action": ACTIONS[coming.target], **due, "rule": coming.rule, "reason": coming.reason}


def _describe_bin(record: Record, now: int) -> dict[str, Any]:
    left = max(0, (record.purge_at or now) - now)
    return {
        "removed_at": None if record.moved_at is None else iso(record.moved_at),
        "removed_because": record.reason,
        "days_left": -(-left // DAY),
    }


def _describe_entry(entry: AuditEntry) -> dict[str, Any]:
    return {"at": iso(entry.at), "action": entry.action, "actor": entry.actor, **entry.detail}


def _follow_agent(facts: RecordFacts, agent: Registered) -> Decision:
    """The move that takes a removed agent's own after it: with the next sweep, or, if a hold kept it then, with the
    first after the agent's time in the recycle bin.
    """
    at = (agent.moved_at if agent.unfinished else agent.purge_at) or 0
    rule, reason = "the removal of its agent", f"its agent {agent.id} was removed"
    whose = (facts.id, facts.kind, facts.subject, facts.version, facts.state)
    return Decision(*whose, State.RECYCLED, at, rule, reason, facts.size)


def _prospects(record: Record, life: Life, coming: Decision | None, holds: list[Hold]) -> list[str]:
    """What is to become of it, in sentences."""
    parts = []
    if coming is None:
        parts.append(f"Nothing removes it ({life.keep_by or life.delete_by}).")
    elif record.state in LIVE or record.state is State.RECYCLED:
        parts.append(f"It is to be {explain_decision(coming)}.")
    if holds:
        parts.append(f"A hold keeps it until it is released: {holds[0].reason}.")
    elif life.keep_for is not None and coming is not None and record.state in LIVE:
        parts.append(f"It is kept for at least {describe_duration(life.keep_for)} ({life.keep_by}).")
    return parts
