"""The rows of an export: one object for each thing that is held on a user, and the JSON Schema that they follow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from holdfast.core.chain import Entry
from holdfast.core.content import to_json
from holdfast.core.holds import Hold
from holdfast.core.records import DURABLE, TYPES, Fact, Message, Record, Scope, State
from holdfast.core.rules import Rule, shown_terms
from holdfast.core.times import iso
from holdfast.lifecycle.holds import shown_hold
from holdfast.lifecycle.previews import shown_rule
from holdfast.ports.conversations import Session, ShortWindow
from holdfast.ports.subjects import KeptMessage, SetQuota

Line = dict[str, Any]
_SCOPE: Final = ("user_id", "agent_id", "session_id", "memory_id")
_TERMS: Final = ("archive_after_days", "delete_after_days", "keep_days")


def encode(line: Line) -> bytes:
    """A line as JSON, without its end."""
    try:
        return to_json(line).encode()
    except UnicodeEncodeError:  # half of a surrogate pair is JSON as an escape, but not UTF-8
        return json.dumps(line, allow_nan=False, separators=(",", ":"), default=dict).encode()


def describe_memory(record: Record, note: str | None = None) -> Line:
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


def describe_working(scope: Scope, item: Message) -> Line:
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


def describe_short_term(window: ShortWindow, message: Message) -> Line:
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


def describe_conversation(session: Session) -> Line:
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


def describe_message(kept: KeptMessage) -> Line:
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


def describe_fact(said: Fact, names: dict[str, str]) -> Line:
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


def describe_collection(name: str, schema: str | None) -> Line:
    """A collection that the person has documents in."""
    return {"type": "collection", "collection": name, "schema": None if schema is None else json.loads(schema)}


def describe_quota(limit: SetQuota) -> Line:
    """A limit that was set for the person; -1 is none."""
    return {
        "type": "quota",
        "memory_type": limit.kind.name.value,
        "max_memories": limit.max_memories,
        "max_bytes": limit.max_bytes,
    }


def describe_rule(one: Rule) -> Line:
    """A retention rule."""
    fields = {**dict.fromkeys((*_SCOPE, *_TERMS, "updated_at")), **shown_rule(one)}
    return {"type": "rule", **fields, "pending": None if one.pending is None else shown_terms(one.pending)}


def describe_hold(one: Hold) -> Line:
    """A hold."""
    return {"type": "hold", **dict.fromkeys((*_SCOPE, "tag")), **shown_hold(one)}


def describe_audit_entry(entry: Entry) -> Line:
    """An entry of the person's audit chain."""
    return {
        "type": "audit",
        "seq": entry.seq,
        "at": iso(entry.at),
        "action": entry.action,
        "actor": entry.actor,
        "item": entry.item,
        "detail": entry.detail,
        "hash": entry.hash,
    }


def _iso(micros: int | None) -> str | None:
    return None if micros is None else iso(micros)


# --- the schema -------------------------------------------------------------------------------------------------------

_TYPES: Final[Mapping[str, Mapping[str, Any]]] = {
    "text": {"type": "string"},
    "text?": {"type": ["string", "null"]},
    "texts": {"type": "array", "items": {"type": "string"}},
    "count": {"type": "integer"},
    "count?": {"type": ["integer", "null"]},
    "days": {"type": ["number", "string", "null"], "description": "days, 'never' or 'forever'"},
    "when": {"type": "string", "format": "date-time"},
    "when?": {"type": ["string", "null"], "format": "date-time"},
    "object": {"type": "object"},
    "object?": {"type": ["object", "null"]},
    "schema": {"type": ["object", "boolean", "null"]},
    "any": {},
    "state": {"enum": [state.value for state in State if state is not State.DELETED]},
    "durable": {"enum": [kind.value for kind in DURABLE]},
    "kind": {"enum": [kind.value for kind in TYPES]},
}
_CONTENT: Final = "content:text metadata:object created_at:when"
_AGENT: Final = "agent_id:text session_id:text?"
_STATE: Final = "state:state moved_at:when? reason:text? in_bin_until:when?"
_SELECTION: Final = " ".join(f"{name}:text?" for name in _SCOPE)
_TERMS_FIELDS: Final = " ".join(f"{name}:days" for name in _TERMS)


def _fields(text: str, **more: str | Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Fields by their names. What ``more`` says of one is its description, or what it may be."""
    found = {name: _TYPES[sort] for name, sort in (field.split(":") for field in text.split())}
    described = {name: {**found[name], "description": said} for name, said in more.items() if isinstance(said, str)}
    return found | described | {name: said for name, said in more.items() if not isinstance(said, str)}


#: The fields of each type of line. All of them are always there; what does not apply is ``null``.
FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "memory": _fields(
        f"memory_id:text memory_type:durable {_CONTENT} {_AGENT} {_STATE} details:object? name:text? source:text "
        "derived_from:texts updated_at:when dated_at:when note:text?",
        details="of an episode: its task, steps, messages and tool calls",
        source="who or what wrote it",
        dated_at="what its age counts from",
        note="why it is not all there",
    ),
    "working": _fields(f"memory_id:text {_CONTENT} {_AGENT}", memory_type={"const": "working"}),
    "short_term": _fields(
        f"memory_id:text role:text {_CONTENT} agent_id:text? session_id:text? expires_at:when note:text?",
        memory_type={"const": "short_term"},
    ),
    "conversation": _fields(
        f"conversation_id:text {_AGENT} {_STATE} summary:text created_at:when updated_at:when", updated_at="last active"
    ),
    "message": _fields(f"message_id:text role:text {_CONTENT} in_bin_until:when?"),
    "fact": _fields(
        "fact_id:text entity_id:text entity:text? name:text value:any target_id:text? target:text? since:when "
        "until:when? recorded_at:when"
    ),
    "collection": _fields("collection:text schema:schema"),
    "quota": _fields(
        "memory_type:kind max_memories:count? max_bytes:count?", max_memories="-1 is no limit, null is the usual one"
    ),
    "rule": _fields(
        f"rule_id:text memory_type:text level:text {_SELECTION} {_TERMS_FIELDS} version:count updated_at:when?",
        pending={**_TYPES["object?"], "properties": _fields(_TERMS_FIELDS), "additionalProperties": False},
    ),
    "hold": _fields(
        f"hold_id:text {_SELECTION} tag:text? reason:text author:text created_at:when released_at:when? "
        "released_by:text?"
    ),
    "audit": _fields("seq:count at:when action:text actor:text item:text? detail:object hash:text"),
}


def line_schema() -> dict[str, Any]:
    """A JSON Schema for the lines of an export."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of an export",
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in FIELDS],
        "$defs": {
            name: {
                "type": "object",
                "properties": {"type": {"const": name}, **fields},
                "required": ["type", *fields],
                "additionalProperties": False,
            }
            for name, fields in FIELDS.items()
        },
    }
