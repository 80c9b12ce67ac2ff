-- Rules that select records by what their metadata say: what the policy of the memory domain becomes.

ALTER TABLE rules RENAME TO old_rules;

CREATE TABLE rules (
    no         INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT    NOT NULL UNIQUE,
    tenant     TEXT    NOT NULL,
    kind       TEXT    NOT NULL,                     -- or 'history', 'audit', '*'
    user_id    TEXT    NOT NULL,                     -- '' is any, in all four
    agent_id   TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    memory_id  TEXT    NOT NULL,
    selection  TEXT    NOT NULL DEFAULT '',          -- JSON: source types, sessions and contexts that are kept; '' is none
    terms      TEXT    NOT NULL,                     -- JSON: archive_after, delete_after, keep_for in microseconds
    pending    TEXT,                                 -- the terms to come, while records are being given their profiles
    version    INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (tenant, kind, user_id, agent_id, session_id, memory_id, selection)
) STRICT;

INSERT INTO rules (no, id, tenant, kind, user_id, agent_id, session_id, memory_id, terms, pending, version, updated_at)
SELECT no, id, tenant, kind, user_id, agent_id, session_id, memory_id, terms, pending, version, updated_at FROM old_rules;

-- Numbers are never given twice, not even those of rules that are gone.
UPDATE sqlite_sequence SET seq = (SELECT old.seq FROM sqlite_sequence AS old WHERE old.name = 'old_rules')
WHERE name = 'rules' AND EXISTS (SELECT 1 FROM sqlite_sequence AS old WHERE old.name = 'old_rules');
INSERT INTO sqlite_sequence (name, seq)
SELECT 'rules', seq FROM sqlite_sequence
WHERE name = 'old_rules' AND NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'rules');

DROP TABLE old_rules;
