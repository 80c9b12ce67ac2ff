"""What is held on a person as an export tells it: one object for each thing, of the fields that ``schema.py`` names."""

from __future__ import annotations

import json
from typing import Any, Final

from holdfast.core.chain import Entry
from holdfast.core.content import to_json
from holdfast.core.holds import Hold
from holdfast.core.records import Fact, Message, Record, Scope
from holdfast.core.rules import Rule, shown_terms
from holdfast.core.times import iso
from holdfast.lifecycle.holds import shown_hold
from holdfast.lifecycle.previews import shown_rule
from holdfast.ports.conversations import Session, ShortWindow
from holdfast.ports.subjects import KeptMessage, SetQuota

Line = dict[str, Any]
_SCOPE: Final = ("user_id", "agent_id", "session_id", "memory_id")
_TERMS: Final = ("archive_after_days", "delete_after_days", "keep_days")


def encoded(line: Line) -> bytes:
    """A line as JSON, without its end."""
    try:
        return to_json(line).encode()
    except UnicodeEncodeError:  # half of a surrogate pair is JSON as an escape, but not UTF-8
        return json.dumps(line, allow_nan=False, separators=(",", ":"), default=dict).encode()


def memory(record: Record, note: str | None = None) -> Line:
    """A durable memory; ``note`` says why it is not all there."""
    return {
        "type": "memory",
        "memory_id": record.id,
        "memory_type": record.kind.value,
        "state": record.state.value,
        "content": record.content,
        "details": record.body,
        "metadata": record.metadata,
        "name": record.name,
        "source": record.written_by,
        "derived_from": list(record.derived_from),
        "agent_id": record.scope.agent_id,
        "session_id": record.scope.session_id,
        "created_at": iso(record.created_at),
        "updated_at": iso(record.updated_at),
        "dated_at": iso(record.dated_at),
        "moved_at": _iso(record.moved_at),
        "reason": record.reason,
        "in_bin_until": _iso(record.purge_at),
        "note": note,
    }


def working(scope: Scope, item: Message) -> Line:
    """A note of working memory."""
    return {
        "type": "working",
        "memory_id": item.id,
        "memory_type": "working",
        "content": item.content,
        "metadata": item.metadata,
        "agent_id": scope.agent_id,
        "session_id": scope.session_id,
        "created_at": iso(item.created_at),
    }


def short_term(window: ShortWindow, message: Message) -> Line:
    """A message of short-term memory."""
    return {
        "type": "short_term",
        "memory_id": message.id,
        "memory_type": "short_term",
        "role": message.role,
        "content": message.content,
        "metadata": message.metadata,
        "agent_id": window.agent_id,
        "session_id": window.session_id,
        "created_at": iso(message.created_at),
        "expires_at": iso(window.expires_at),
        "note": "the store keeps only a digest of the agent and the session" if window.agent_id is None else None,
    }


def conversation(session: Session) -> Line:
    """A conversation, without its messages."""
    return {
        "type": "conversation",
        "conversation_id": session.id,
        "agent_id": session.agent_id,
        "session_id": session.session_id,
        "state": session.state.value,
        "summary": session.summary,
        "created_at": iso(session.created_at),
        "updated_at": iso(session.updated_at),
        "moved_at": _iso(session.moved_at),
        "reason": session.reason,
        "in_bin_until": _iso(session.purge_at),
    }


def message(kept: KeptMessage) -> Line:
    """A message of a conversation."""
    return {
        "type": "message",
        "message_id": kept.message.id,
        "role": kept.message.role,
        "content": kept.message.content,
        "metadata": kept.message.metadata,
        "created_at": iso(kept.message.created_at),
        "in_bin_until": _iso(kept.purge_at),
    }


def fact(said: Fact, names: dict[str, str]) -> Line:
    """What is, or was, true of an entity; ``names`` are those of entities."""
    return {
        "type": "fact",
        "fact_id": said.id,
        "entity_id": said.source,
        "entity": names.get(said.source),
        "name": said.name,
        "value": said.value,
        "target_id": said.target,
        "target": None if said.target is None else names.get(said.target),
        "since": iso(said.since),
        "until": _iso(said.until),
        "recorded_at": iso(said.recorded_at),
    }


def collection(name: str, schema: str | None) -> Line:
    """A collection that the person has documents in."""
    return {"type": "collection", "collection": name, "schema": None if schema is None else json.loads(schema)}


def quota(limit: SetQuota) -> Line:
    """A limit that was set for the person; -1 is none."""
    return {
        "type": "quota",
        "memory_type": limit.kind.name.value,
        "max_memories": limit.max_memories,
        "max_bytes": limit.max_bytes,
    }


def rule(one: Rule) -> Line:
    """A retention rule."""
    told = {**dict.fromkeys((*_SCOPE, *_TERMS, "updated_at")), **shown_rule(one)}
    return {"type": "rule", **told, "pending": None if one.pending is None else shown_terms(one.pending)}


def hold(one: Hold) -> Line:
    """A hold."""
    return {"type": "hold", **dict.fromkeys((*_SCOPE, "tag")), **shown_hold(one)}


def audit_entry(entry: Entry) -> Line:
    """An entry of the person's audit chain."""
    return {
        "type": "audit",
        "seq": entry.seq,
        "at": iso(entry.at),
        "action": entry.action,
        "item": entry.item,
        "detail": entry.detail,
        "hash": entry.hash,
    }


def _iso(micros: int | None) -> str | None:
    return None if micros is None else iso(micros)
