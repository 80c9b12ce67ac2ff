"""The JSON Schema of an export: every line of a ``.jsonl`` file, and every item of a list, is valid against it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.core.types import DURABLE, TYPES, State

_TEXT: Final = {"type": "string"}
_TEXT_OR_NONE: Final = {"type": ["string", "null"]}
_COUNT: Final = {"type": "integer"}
_COUNT_OR_NONE: Final = {"type": ["integer", "null"]}
_DAYS: Final = {"type": ["number", "string", "null"], "description": "days, 'never' or 'forever'"}
_WHEN: Final = {"type": "string", "format": "date-time"}
_WHEN_OR_NONE: Final = {"type": ["string", "null"], "format": "date-time"}
_OBJECT: Final = {"type": "object"}
_OBJECT_OR_NONE: Final = {"type": ["object", "null"]}
_ANY: Final[Mapping[str, Any]] = {}
_STATES: Final = {"enum": [state.value for state in State if state is not State.DELETED]}
_SAID: Final = {"content": _TEXT, "metadata": _OBJECT, "created_at": _WHEN}
_WITH: Final = {"agent_id": _TEXT, "session_id": _TEXT_OR_NONE}
_STANDING: Final = {"state": _STATES, "moved_at": _WHEN_OR_NONE, "reason": _TEXT_OR_NONE, "in_bin_until": _WHEN_OR_NONE}
_PARTS: Final = dict.fromkeys(("user_id", "agent_id", "session_id", "memory_id"), _TEXT_OR_NONE)
_TERMS: Final = {"archive_after_days": _DAYS, "delete_after_days": _DAYS, "keep_days": _DAYS}

#: The fields of each type of line. All of them are always there; what does not apply is ``null``.
FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "memory": {
        "memory_id": _TEXT,
        "memory_type": {"enum": [kind.value for kind in DURABLE]},
        **_SAID,
        **_WITH,
        **_STANDING,
        "details": {**_OBJECT_OR_NONE, "description": "of an episode: its task, steps, messages and tool calls"},
        "name": _TEXT_OR_NONE,
        "source": {**_TEXT, "description": "who or what wrote it"},
        "derived_from": {"type": "array", "items": _TEXT},
        "updated_at": _WHEN,
        "dated_at": {**_WHEN, "description": "what its age counts from"},
        "note": {**_TEXT_OR_NONE, "description": "why it is not all there"},
    },
    "working": {"memory_id": _TEXT, "memory_type": {"const": "working"}, **_SAID, **_WITH},
    "short_term": {
        "memory_id": _TEXT,
        "memory_type": {"const": "short_term"},
        "role": _TEXT,
        **_SAID,
        "agent_id": _TEXT_OR_NONE,
        "session_id": _TEXT_OR_NONE,
        "expires_at": _WHEN,
        "note": _TEXT_OR_NONE,
    },
    "conversation": {
        "conversation_id": _TEXT,
        **_WITH,
        **_STANDING,
        "summary": _TEXT,
        "created_at": _WHEN,
        "updated_at": {**_WHEN, "description": "last active"},
    },
    "message": {"message_id": _TEXT, "role": _TEXT, **_SAID, "in_bin_until": _WHEN_OR_NONE},
    "fact": {
        "fact_id": _TEXT,
        "entity_id": _TEXT,
        "entity": _TEXT_OR_NONE,
        "name": _TEXT,
        "value": _ANY,
        "target_id": _TEXT_OR_NONE,
        "target": _TEXT_OR_NONE,
        "since": _WHEN,
        "until": _WHEN_OR_NONE,
        "recorded_at": _WHEN,
    },
    "collection": {"collection": _TEXT, "schema": {"type": ["object", "boolean", "null"]}},
    "quota": {
        "memory_type": {"enum": [kind.value for kind in TYPES]},
        "max_memories": {**_COUNT_OR_NONE, "description": "-1 is no limit, null is the usual one"},
        "max_bytes": _COUNT_OR_NONE,
    },
    "rule": {
        "rule_id": _TEXT,
        "memory_type": _TEXT,
        "level": _TEXT,
        **_PARTS,
        **_TERMS,
        "version": _COUNT,
        "updated_at": _WHEN_OR_NONE,
        "pending": {"type": ["object", "null"], "properties": _TERMS, "additionalProperties": False},
    },
    "hold": {
        "hold_id": _TEXT,
        **_PARTS,
        "tag": _TEXT_OR_NONE,
        "reason": _TEXT,
        "author": _TEXT,
        "created_at": _WHEN,
        "released_at": _WHEN_OR_NONE,
        "released_by": _TEXT_OR_NONE,
    },
    "audit": {
        "seq": _COUNT,
        "at": _WHEN,
        "action": _TEXT,
        "item": _TEXT_OR_NONE,
        "detail": _OBJECT,
        "hash": _TEXT,
    },
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
