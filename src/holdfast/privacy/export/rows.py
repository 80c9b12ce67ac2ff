"""The lines of an export: one object for each thing that is held on a user, and the JSON Schema that they follow.

A field is listed once, as ``name:type`` or ``name:type=attribute``: its name in the line, its type in the schema, and
the attribute that it is read from, where that has another name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final, NamedTuple

from holdfast.core.decisions import Hold
from holdfast.core.records import DURABLE, TYPES, Fact, Message, Record, Scope, State
from holdfast.core.rules import Rule, terms_to_dict
from holdfast.core.values import iso, to_json
from holdfast.lifecycle.holds import hold_to_dict
from holdfast.lifecycle.previews import rule_to_dict
from holdfast.ports.conversations import ShortWindow

Line = dict[str, Any]
_SCOPE: Final = ("user_id", "agent_id", "session_id", "memory_id")
_TERMS: Final = ("archive_after_days", "delete_after_days", "keep_days")
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
    "working": {"const": "working"},
    "short_term": {"const": "short_term"},
    "terms?": {
        "type": ["object", "null"],
        "properties": {name: {"type": ["number", "string", "null"]} for name in _TERMS},
        "additionalProperties": False,
    },
}
#: How a value becomes JSON, where it is not JSON already.
_CONVERT: Final[Mapping[str, Callable[[Any], Any]]] = {
    "when": iso,
    "when?": lambda moment: None if moment is None else iso(moment),
    "texts": list,
    "state": lambda state: state.value,
    "durable": lambda kind: kind.value,
    "kind": lambda kind: kind.value,
}
_DESCRIPTIONS: Final = {
    ("memory", "details"): "of an episode: its task, steps, messages and tool calls",
    ("memory", "source"): "who or what wrote it",
    ("memory", "dated_at"): "what its age counts from",
    ("memory", "note"): "why it is not all there",
    ("conversation", "updated_at"): "last active",
    ("quota", "max_memories"): "-1 is no limit, null is the usual one",
}
_STATE: Final = "state:state moved_at:when? reason:text? in_bin_until:when?=purge_at"
_LINES: Final = {
    "memory": "memory_id:text=id memory_type:durable=kind content:text metadata:object created_at:when "
    f"agent_id:text=scope.agent_id session_id:text?=scope.session_id {_STATE} details:object?=body name:text? "
    "source:text=written_by derived_from:texts updated_at:when dated_at:when note:text?",
    "working": "memory_id:text=id memory_type:working content:text metadata:object created_at:when agent_id:text "
    "session_id:text?",
    "short_term": "memory_id:text=id memory_type:short_term role:text content:text metadata:object created_at:when "
    "agent_id:text? session_id:text? expires_at:when note:text?",
    "conversation": f"conversation_id:text=id agent_id:text session_id:text? {_STATE} summary:text created_at:when "
    "updated_at:when",
    "message": "message_id:text=message.id role:text=message.role content:text=message.content "
    "metadata:object=message.metadata created_at:when=message.created_at in_bin_until:when?=purge_at",
    "fact": "fact_id:text=id entity_id:text=source entity:text? name:text value:any target_id:text?=target "
    "target:text? since:when until:when? recorded_at:when",
    "collection": "collection:text schema:schema",
    "quota": "memory_type:kind=kind.name max_memories:count? max_bytes:count?",
    "rule": f"rule_id:text memory_type:text level:text {' '.join(f'{name}:text?' for name in _SCOPE)} "
    f"{' '.join(f'{name}:days' for name in _TERMS)} version:count updated_at:when? pending:terms?",
    "hold": f"hold_id:text {' '.join(f'{name}:text?' for name in _SCOPE)} tag:text? reason:text author:text "
    "created_at:when released_at:when? released_by:text?",
    "audit": "seq:count at:when action:text actor:text item:text? detail:object hash:text",
}


class _Field(NamedTuple):
    name: str
    type: str
    read: Callable[[Any], Any]
    convert: Callable[[Any], Any] | None


def _parse(field: str) -> _Field:
    name, _, rest = field.partition(":")
    sort, _, attribute = rest.partition("=")
    return _Field(name, sort, attrgetter(attribute or name), _CONVERT.get(sort))


_FIELDS: Final = {kind: [_parse(field) for field in text.split()] for kind, text in _LINES.items()}


def describe(kind: str, thing: object = None, **given: Any) -> Line:
    """The line of a thing. What is ``given`` is taken as it is; the other fields are read from the thing."""
    line: Line = {"type": kind}
    for name, _, read, convert in _FIELDS[kind]:
        if name in given:
            line[name] = given[name]
        else:
            line[name] = read(thing) if convert is None else convert(read(thing))
    return line


def describe_memory(record: Record, note: str | None = None) -> Line:
    """A durable memory; ``note`` says why it is not all there."""
    return describe("memory", record, note=note)


def describe_working(scope: Scope, item: Message) -> Line:
    """A note of working memory."""
    return describe("working", item, memory_type="working", agent_id=scope.agent_id, session_id=scope.session_id)


def describe_short_term(window: ShortWindow, message: Message) -> Line:
    """A message of short-term memory."""
    note = "the store keeps only a digest of the agent and the session" if window.agent_id is None else None
    expires_at, owner = iso(window.expires_at), {"agent_id": window.agent_id, "session_id": window.session_id}
    return describe("short_term", message, memory_type="short_term", expires_at=expires_at, note=note, **owner)


def describe_fact(fact: Fact, names: Mapping[str, str]) -> Line:
    """What is, or was, true of an entity; ``names`` are those of entities."""
    target = None if fact.target is None else names.get(fact.target)
    return describe("fact", fact, entity=names.get(fact.source), target=target)


def describe_collection(name: str, schema: str | None) -> Line:
    """A collection that the user has documents in."""
    return describe("collection", collection=name, schema=None if schema is None else json.loads(schema))


def describe_rule(rule: Rule) -> Line:
    """A retention rule."""
    absent = dict.fromkeys((*_SCOPE, *_TERMS, "updated_at"))
    pending = None if rule.pending is None else terms_to_dict(rule.pending)
    return describe("rule", **{**absent, **rule_to_dict(rule), "pending": pending})


def describe_hold(hold: Hold) -> Line:
    """A hold."""
    return describe("hold", **{**dict.fromkeys((*_SCOPE, "tag")), **hold_to_dict(hold)})


def encode(line: Line) -> bytes:
    """A line as JSON, without its end."""
    try:
        return to_json(line).encode()
    except UnicodeEncodeError:  # half of a surrogate pair is JSON as an escape, but not UTF-8
        return json.dumps(line, allow_nan=False, separators=(",", ":"), default=dict).encode()


def _schema_of(kind: str) -> dict[str, Any]:
    fields = {name: dict(_TYPES[sort]) for name, sort, *_ in _FIELDS[kind]}
    for (of, name), words in _DESCRIPTIONS.items():
        if of == kind:
            fields[name]["description"] = words
    return {
        "type": "object",
        "properties": {"type": {"const": kind}, **fields},
        "required": ["type", *fields],
        "additionalProperties": False,
    }


def line_schema() -> dict[str, Any]:
    """A JSON Schema for the lines of an export. All fields are always there; what does not apply is ``null``."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of an export",
        "oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in _LINES],
        "$defs": {kind: _schema_of(kind) for kind in _LINES},
    }
