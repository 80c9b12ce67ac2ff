"""Explanations: what a memory is, which rules it lives under, what happens to it next; or how it went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retain.core.chain import Entry as AuditEntry
from retain.core.decisions import Standing, decide, next_move, told_decision
from retain.core.holds import Held, Hold
from retain.core.records import Record
from retain.core.rules import Life, spoken
from retain.core.times import DAY, iso
from retain.core.types import LIVE, State
from retain.lifecycle.holds import shown_hold
from retain.lifecycle.plan import ACTIONS
from retain.lifecycle.policies import shown_life


def explain_record(
    record: Record,
    life: Life,
    holds: list[Hold],
    entries: list[AuditEntry],
    now: int,
    *,
    derived: Sequence[str] = (),
) -> dict[str, Any]:
    """All that can be said of a record that is still there, in whatever state, and what was derived from it."""
    standing = as_standing(record)
    coming = next_move(standing, life, now)
    if coming is not None and record.aged_from not in (None, record.dated_at):
        anew = coming.reason.replace("after it was made", _BACK).replace("after it ended", _BACK)
        coming = coming._replace(reason=anew)
    kept = [hold for hold in holds if hold.covers(standing.thing)]
    keep_until = None if life.keep_for is None else (record.aged_from or record.dated_at) + life.keep_for
    said: dict[str, Any] = {
        "memory_id": record.id,
        "memory_type": record.kind.value,
        "state": record.state.value,
        "is_visible": record.state in LIVE and (record.hidden_from is None or record.hidden_from > now),
        "is_archived": record.is_archived(now),
        "created_at": iso(record.created_at),
        "source": record.written_by,
        "derived_from": list(record.derived_from),
        "derived": list(derived),
        "age_counts_from": iso(record.aged_from or record.dated_at),
        "rules": shown_life(life),
        "next": None,
        "protected_by": [shown_hold(hold) for hold in kept],
        "kept_until": None if keep_until is None or keep_until > _FAR else iso(keep_until),
        "history": [_shown_entry(entry) for entry in entries],
    }
    if coming is not None:
        said["next"] = {
            "action": ACTIONS[coming.target],
            "at": iso(coming.due_at),
            "due": decide(standing, life, (), now) is not None,
            "rule": coming.rule,
            "reason": coming.reason,
        }
    if record.state is State.RECYCLED:
        said |= _binned(record, now)
    said["summary"] = _sentence(record, life, coming and told_decision(coming), kept, now)
    return said


def explain_gone(memory_id: str, entries: list[AuditEntry]) -> dict[str, Any]:
    """What the audit chain knows of a record that is gone: when, why, and under which rule it went."""
    last = next((entry for entry in reversed(entries) if entry.action == "deleted"), entries[-1])
    removed = next((entry for entry in reversed(entries) if entry.action == "recycled"), last)
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
        "history": [_shown_entry(entry) for entry in entries],
        "summary": f"Removed on {iso(removed.at)}: {detail.get('reason')}{rule}. Deleted for good on {iso(last.at)}.",
    }


_BACK = "after it was brought back"
_FAR = 253_402_300_799_000_000


def as_standing(record: Record) -> Standing:
    """What a decision needs to know of a record."""
    scope = record.scope
    return Standing(
        record.id,
        record.kind.value,
        scope.subject,
        Held(scope.user_id, scope.agent_id, scope.session_id, record.id, record.metadata),
        record.state,
        record.version,
        record.dated_at if record.aged_from is None else record.aged_from,
        record.purge_at,
        0,
        record.pack is not None,
    )


def _binned(record: Record, now: int) -> dict[str, Any]:
    left = max(0, (record.purge_at or now) - now)
    return {
        "removed_at": None if record.moved_at is None else iso(record.moved_at),
        "removed_because": record.reason,
        "days_left": -(-left // DAY),
    }


def _shown_entry(entry: AuditEntry) -> dict[str, Any]:
    return {"at": iso(entry.at), "action": entry.action, **entry.detail}


def _sentence(record: Record, life: Life, coming: str | None, holds: list[Hold], now: int) -> str:
    parts = [f"This {record.kind} memory is {record.state}."]
    if record.state in LIVE and record.hidden_from is not None and record.hidden_from <= now:
        parts.append(f"Its time was over on {iso(record.hidden_from)}: nobody sees it any more.")
    if coming is None:
        parts.append(f"Nothing removes it ({life.keep_by or life.delete_by}).")
    elif record.state in LIVE or record.state is State.RECYCLED:
        parts.append(f"It is to be {coming}.")
    if holds:
        parts.append(f"A hold keeps it until it is released: {holds[0].reason}.")
    elif life.keep_for is not None and coming is not None and record.state in LIVE:
        parts.append(f"It is kept for at least {spoken(life.keep_for)} ({life.keep_by}).")
    return " ".join(parts)
