-- The memory engine: records and what recall needs of them, conversations, short-term messages, facts, quotas.
--
-- A subject is a tenant and a user. Everything of a subject lies together: a record's key is made of the subject's
-- number (31 bits), the kind (3 bits) and a count (29 bits), so that a scope is one run of neighbouring rows, which a
-- first recall reads in one sweep. Moments are microseconds since 1970, UTC.

CREATE TABLE subjects (
    no      INTEGER PRIMARY KEY AUTOINCREMENT,   -- never given twice, so that an erased one stays gone
    subject TEXT NOT NULL UNIQUE
) STRICT;

-- One row for each subject and kind: what it holds, and how far its changes have come.
CREATE TABLE scopes (
    scope    INTEGER PRIMARY KEY,                -- subject number << 3 | kind
    seq      INTEGER NOT NULL DEFAULT 0,         -- counts the transactions that changed it
    floor    INTEGER NOT NULL DEFAULT 0,         -- changes up to here are no longer listed
    next     INTEGER NOT NULL DEFAULT 0,         -- count for the next record's key
    memories INTEGER NOT NULL DEFAULT 0,         -- live records
    bytes    INTEGER NOT NULL DEFAULT 0          -- and their size
) STRICT;

CREATE TABLE models (
    code    INTEGER PRIMARY KEY,
    id      TEXT NOT NULL UNIQUE,
    current INTEGER NOT NULL DEFAULT 0           -- what records are to be embedded with
) STRICT;

CREATE TABLE records (
    key         INTEGER PRIMARY KEY,             -- scope << 29 | count
    subject     INTEGER NOT NULL,
    kind        INTEGER NOT NULL,
    id          TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    previous    TEXT,                            -- the state before this one, where a restore leads back to
    version     INTEGER NOT NULL,
    agent_id    TEXT    NOT NULL,
    session_id  TEXT,
    name        TEXT,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    dated_at    INTEGER NOT NULL,
    moved_at    INTEGER,                         -- when and why it came into its state
    reason      TEXT,
    hidden_from INTEGER,
    size        INTEGER NOT NULL,
    model       INTEGER,
    vectors     BLOB,
    terms       BLOB    NOT NULL,
    metadata    TEXT    NOT NULL,
    content     ANY     NOT NULL,                -- text, or zlib-compressed bytes
    body        ANY
) STRICT;

CREATE UNIQUE INDEX records_by_id ON records (id, subject);
CREATE UNIQUE INDEX records_by_name ON records (subject, kind, name)
    WHERE name IS NOT NULL AND state IN ('active', 'archived');

-- Records that changed or went (new ones are found by their key), so that an index reads again only those.
CREATE TABLE changes (
    scope INTEGER NOT NULL,
    seq   INTEGER NOT NULL,
    id    TEXT    NOT NULL,
    PRIMARY KEY (scope, seq, id)
) STRICT, WITHOUT ROWID;

-- Limits that differ from the defaults: NULL is the default, -1 is no limit, user '' is the whole tenant.
CREATE TABLE quotas (
    tenant       TEXT    NOT NULL,
    user_id      TEXT    NOT NULL,
    kind         INTEGER NOT NULL,
    max_memories INTEGER,
    max_bytes    INTEGER,
    PRIMARY KEY (tenant, user_id, kind)
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    no         INTEGER PRIMARY KEY AUTOINCREMENT,
    subject    INTEGER NOT NULL,
    agent_id   TEXT    NOT NULL,
    session_id TEXT    NOT NULL,                 -- '' is the session without a name
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    messages   INTEGER NOT NULL,
    UNIQUE (subject, agent_id, session_id)
) STRICT;

CREATE INDEX sessions_by_agent ON sessions (agent_id, session_id);

CREATE TABLE history (
    key        INTEGER PRIMARY KEY,              -- session number << 24 | count
    id         TEXT    NOT NULL,
    role       TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    metadata   TEXT    NOT NULL,
    content    ANY     NOT NULL
) STRICT;

CREATE TABLE short_windows (
    no         INTEGER PRIMARY KEY AUTOINCREMENT,
    subject    INTEGER NOT NULL,
    agent_id   TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    expires_at INTEGER NOT NULL,
    UNIQUE (subject, agent_id, session_id)
) STRICT;

CREATE INDEX short_windows_by_expiry ON short_windows (expires_at);

CREATE TABLE short_messages (
    window     INTEGER NOT NULL REFERENCES short_windows (no) ON DELETE CASCADE,
    id         TEXT    NOT NULL,
    role       TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    metadata   TEXT    NOT NULL,
    content    ANY     NOT NULL,
    PRIMARY KEY (window, id)
) STRICT;

CREATE TABLE facts (
    subject     INTEGER NOT NULL,
    id          TEXT    NOT NULL,
    source      TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    target      TEXT,
    value       TEXT,                            -- JSON
    since       INTEGER NOT NULL,
    until       INTEGER,
    recorded_at INTEGER NOT NULL,
    PRIMARY KEY (subject, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX facts_by_source ON facts (subject, source);
CREATE INDEX facts_by_target ON facts (subject, target) WHERE target IS NOT NULL;

CREATE TABLE schemas (
    tenant     TEXT NOT NULL,
    collection TEXT NOT NULL,
    schema     TEXT NOT NULL,                    -- JSON
    PRIMARY KEY (tenant, collection)
) STRICT, WITHOUT ROWID;
