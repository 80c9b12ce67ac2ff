"""Stores as earlier versions left them: what a migration did is undone, so that it can be done again."""

from __future__ import annotations

import raw
from retain import Retain
from retain.storage.relational.statements import migrations

_ONCE = "UNIQUE (tenant, kind, user_id, agent_id, session_id, memory_id)"
_OLDER_RULES = f"""
CREATE TABLE older (
    no         INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT    NOT NULL UNIQUE,
    tenant     TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    user_id    TEXT    NOT NULL,
    agent_id   TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    memory_id  TEXT    NOT NULL,
    terms      TEXT    NOT NULL,
    pending    TEXT,
    version    INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    {_ONCE}
) STRICT"""
_KEPT = """
INSERT INTO older
SELECT no, id, tenant, kind, user_id, agent_id, session_id, memory_id, terms, pending, version, updated_at FROM rules"""

#: What undoes each migration, by its number: on both engines alike, or on one of them.
_UNDO: dict[int, dict[str, tuple[str, ...]]] = {
    4: {
        "both": (
            "DROP TABLE derivations",
            "DROP INDEX records_by_source",
            "ALTER TABLE records DROP COLUMN source",
            "ALTER TABLE records DROP COLUMN derived_from",
        )
    },
    5: {"both": ("DROP TABLE api_keys", "DROP TABLE replies")},
    6: {
        "sqlite": (
            _OLDER_RULES,
            _KEPT,
            "DELETE FROM sqlite_sequence WHERE name = 'older'",
            "INSERT INTO sqlite_sequence (name, seq) SELECT 'older', seq FROM sqlite_sequence WHERE name = 'rules'",
            "DROP TABLE rules",
            "ALTER TABLE older RENAME TO rules",
        ),
        "postgres": (
            "ALTER TABLE rules DROP CONSTRAINT rules_once",
            "ALTER TABLE rules DROP COLUMN selection",
            f"ALTER TABLE rules ADD CONSTRAINT rules_tenant_kind_user_id_agent_id_session_id_memory_id_key {_ONCE}",
        ),
    },
    7: {"postgres": ("DROP FUNCTION opening", "DROP FUNCTION expect_opening", "DROP FUNCTION add_relying")},
}


def take_back(retain: Retain, engine_name: str, before: int) -> None:
    """Let a store be as it was before a migration, and all that came after it."""
    known = [number for number, _ in migrations(f"retain.storage.{engine_name}")]
    for number in sorted((number for number in known if number >= before), reverse=True):
        for statement in (*_UNDO[number].get("both", ()), *_UNDO[number].get(engine_name, ())):
            raw.run(retain, statement)
    version = max(number for number in known if number < before)
    if engine_name == "sqlite":
        raw.run(retain, f"PRAGMA user_version = {version}")
    else:
        raw.run(retain, "UPDATE schema_version SET version = ?", (version,))
