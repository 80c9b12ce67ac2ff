-- The lifecycle: rules, due times, the recycle bin, holds, the audit chain, cold archives, agents and tools, the schedule.
--
-- A record carries what its age counts from and which profile it has. A profile is what the rules come to for all the
-- records that the same rules select, so that a change of a rule is a change of its profiles, at once for all records,
-- and what is due is one range of an index for each profile and state.

ALTER TABLE subjects ADD COLUMN alias BLOB;          -- the subject's pseudonym
UPDATE subjects SET alias = randomblob(16);

-- Changed and removed records, listed by transaction: one row for all that one of them changed.
DROP TABLE changes;
CREATE TABLE changes (
    scope INTEGER NOT NULL,
    seq   INTEGER NOT NULL,
    ids   TEXT    NOT NULL,                          -- JSON
    PRIMARY KEY (scope, seq)
) STRICT, WITHOUT ROWID;
UPDATE scopes SET floor = seq;

-- Counts the changes of a tenant's rules that took effect, so that whoever read them knows when to read them again.
CREATE TABLE books (
    tenant  TEXT    PRIMARY KEY,
    version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE rules (
    no         INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT    NOT NULL UNIQUE,
    tenant     TEXT    NOT NULL,
    kind       TEXT    NOT NULL,                     -- or 'history', 'audit', '*'
    user_id    TEXT    NOT NULL,                     -- '' is any, in all four
    agent_id   TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    memory_id  TEXT    NOT NULL,
    terms      TEXT    NOT NULL,                     -- JSON: archive_after, delete_after, keep_for in microseconds
    pending    TEXT,                                 -- the terms to come, while records are being given their profiles
    version    INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (tenant, kind, user_id, agent_id, session_id, memory_id)
) STRICT;

CREATE TABLE profiles (
    no            INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant        TEXT    NOT NULL,
    kind          TEXT    NOT NULL,
    rules         TEXT    NOT NULL,                  -- JSON: numbers of the rules below the tenant's that select it
    archive_after INTEGER,                           -- NULL is never
    delete_after  INTEGER,
    keep_for      INTEGER,
    UNIQUE (tenant, kind, rules)
) STRICT;

INSERT INTO profiles (tenant, kind, rules, archive_after, delete_after, keep_for)
SELECT DISTINCT substr(subject, 1, instr(subject, '/') - 1), column1, '[]', column2, column3, column4
FROM subjects, (VALUES
    ('long_term', 31536000000000, NULL, NULL),
    ('persona', NULL, NULL, 4611686018427387904),
    ('episodic', 7776000000000, 31536000000000, NULL),
    ('entity', NULL, NULL, NULL),
    ('structured', 15552000000000, NULL, NULL),
    ('history', NULL, 2592000000000, NULL));

DROP INDEX records_by_id;
DROP INDEX records_by_name;
ALTER TABLE records RENAME TO old_records;

CREATE TABLE records (
    key         INTEGER PRIMARY KEY,                 -- scope << 29 | count
    subject     INTEGER NOT NULL,
    kind        INTEGER NOT NULL,
    id          TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    previous    TEXT,                                -- the state before this one, where a restore leads back to
    version     INTEGER NOT NULL,
    profile     INTEGER NOT NULL,
    aged_from   INTEGER NOT NULL,                    -- what the profile's times count from
    agent_id    TEXT    NOT NULL,
    session_id  TEXT,
    name        TEXT,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    dated_at    INTEGER NOT NULL,
    moved_at    INTEGER,                             -- when and why it came into its state
    reason      TEXT,
    purge_at    INTEGER,                             -- in the recycle bin until then
    bundle      TEXT,                                -- what it went together with
    pack        INTEGER,                             -- the cold object that holds the rest of it
    size        INTEGER NOT NULL,
    model       INTEGER,
    vectors     BLOB,
    terms       BLOB    NOT NULL,
    metadata    TEXT    NOT NULL,
    content     ANY     NOT NULL,                    -- text, or zlib-compressed bytes
    body        ANY
) STRICT;

INSERT INTO records (key, subject, kind, id, state, previous, version, profile, aged_from, agent_id, session_id, name,
                     created_at, updated_at, dated_at, moved_at, reason, purge_at, size, model, vectors, terms, metadata,
                     content, body)
SELECT old.key, old.subject, old.kind, old.id, old.state, old.previous, old.version, profiles.no, old.dated_at,
       old.agent_id, old.session_id, old.name, old.created_at, old.updated_at, old.dated_at, old.moved_at, old.reason,
       CASE old.state WHEN 'recycled' THEN old.moved_at + 1296000000000 WHEN 'deleting' THEN old.moved_at END,
       old.size, old.model, old.vectors, old.terms, old.metadata, old.content, old.body
FROM old_records AS old
JOIN subjects ON subjects.no = old.subject
JOIN (VALUES (3, 'long_term'), (4, 'persona'), (5, 'episodic'), (6, 'entity'), (7, 'structured')) AS kinds
  ON kinds.column1 = old.kind
JOIN profiles ON profiles.tenant = substr(subjects.subject, 1, instr(subjects.subject, '/') - 1)
             AND profiles.kind = kinds.column2
WHERE old.state != 'deleted'
ORDER BY old.key;

DROP TABLE old_records;
CREATE UNIQUE INDEX records_by_id ON records (id, subject);
CREATE UNIQUE INDEX records_by_name ON records (subject, kind, name)
    WHERE name IS NOT NULL AND state IN ('active', 'archived');
CREATE INDEX records_due ON records (profile, state, aged_from) WHERE state IN ('active', 'archived');
CREATE INDEX records_binned ON records (purge_at) WHERE state IN ('recycled', 'deleting');
CREATE INDEX records_by_agent ON records (agent_id) WHERE kind IN (4, 5);
CREATE INDEX records_by_bundle ON records (bundle) WHERE bundle IS NOT NULL;
CREATE INDEX records_by_pack ON records (pack) WHERE pack IS NOT NULL;

-- Conversations. One session of a name is active; those of the same name before it may be in the recycle bin.
ALTER TABLE sessions RENAME TO old_sessions;
DROP INDEX sessions_by_agent;

CREATE TABLE sessions (
    no         INTEGER PRIMARY KEY AUTOINCREMENT,
    subject    INTEGER NOT NULL,
    id         TEXT    NOT NULL,
    agent_id   TEXT    NOT NULL,
    session_id TEXT    NOT NULL,                     -- '' is the session without a name
    state      TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    profile    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,                     -- last active
    aged_from  INTEGER NOT NULL,                     -- that, or when it was restored with its time already over
    moved_at   INTEGER,
    reason     TEXT,
    purge_at   INTEGER,
    bundle     TEXT,
    messages   INTEGER NOT NULL,
    size       INTEGER NOT NULL,                     -- bytes of the messages
    summary    TEXT    NOT NULL,
    aside      INTEGER NOT NULL DEFAULT 0            -- its own number, if it is over, held, and another has its name
) STRICT;

INSERT INTO sessions (no, subject, id, agent_id, session_id, state, version, profile, created_at, updated_at, aged_from,
                      messages, size, summary)
SELECT old.no, old.subject, lower(hex(randomblob(16))), old.agent_id, old.session_id, 'active', 1, profiles.no,
       old.created_at, old.updated_at, old.updated_at, old.messages,
       (SELECT ifnull(sum(length(CAST(content AS BLOB))), 0) FROM history WHERE key >> 24 = old.no), ''
FROM old_sessions AS old
JOIN subjects ON subjects.no = old.subject
JOIN profiles ON profiles.tenant = substr(subjects.subject, 1, instr(subjects.subject, '/') - 1)
             AND profiles.kind = 'history';

DROP TABLE old_sessions;
CREATE UNIQUE INDEX sessions_by_id ON sessions (id, subject);
CREATE UNIQUE INDEX sessions_active ON sessions (subject, agent_id, session_id, aside) WHERE state = 'active';
CREATE INDEX sessions_by_agent ON sessions (agent_id, session_id);
CREATE INDEX sessions_due ON sessions (profile, aged_from) WHERE state = 'active';
CREATE INDEX sessions_binned ON sessions (purge_at) WHERE state IN ('recycled', 'deleting');
CREATE INDEX sessions_by_bundle ON sessions (bundle) WHERE bundle IS NOT NULL;

-- A message that was deleted by itself is in the recycle bin until then.
ALTER TABLE history ADD COLUMN purge_at INTEGER;
CREATE INDEX history_binned ON history (purge_at) WHERE purge_at IS NOT NULL;

-- Agents and tools that were made known.
CREATE TABLE registry (
    tenant      TEXT    NOT NULL,
    sort        TEXT    NOT NULL,                    -- 'agent' or 'tool'
    id          TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    version     INTEGER NOT NULL,
    description TEXT    NOT NULL,
    metadata    TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    moved_at    INTEGER,
    reason      TEXT,
    purge_at    INTEGER,
    bundle      TEXT,
    unfinished  TEXT,                                -- 'remove' or 'restore', until all that is its own has followed
    PRIMARY KEY (tenant, sort, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX registry_binned ON registry (purge_at) WHERE purge_at IS NOT NULL;

CREATE TABLE holds (
    id          TEXT    PRIMARY KEY,
    tenant      TEXT    NOT NULL,
    user_id     TEXT,
    agent_id    TEXT,
    session_id  TEXT,
    memory_id   TEXT,
    tag         TEXT,
    reason      TEXT    NOT NULL,
    author      TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    released_at INTEGER,
    released_by TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX holds_standing ON holds (tenant) WHERE released_at IS NULL;

-- Cold objects: 'writing' until it is verified and its records have moved, 'leaving' until the object is gone.
CREATE TABLE packs (
    no      INTEGER PRIMARY KEY AUTOINCREMENT,
    subject INTEGER NOT NULL,
    name    TEXT    NOT NULL UNIQUE,
    state   TEXT    NOT NULL,
    records INTEGER NOT NULL,                        -- how many it was written with
    bytes   INTEGER NOT NULL,
    digest  BLOB    NOT NULL,
    made_at INTEGER NOT NULL
) STRICT;

CREATE INDEX packs_unsettled ON packs (state) WHERE state != 'kept';
CREATE INDEX packs_of_subject ON packs (subject);

-- The audit chain: one chain of hashes per subject, so that no writer waits for a lock that all users share.
CREATE TABLE chains (
    subject    INTEGER PRIMARY KEY,              -- the subject's number
    seq        INTEGER NOT NULL,                 -- the last entry's place, from 1
    hash       BLOB    NOT NULL,                 -- and its hash
    floor      INTEGER NOT NULL DEFAULT 0,       -- entries up to here were cut, at a sealed checkpoint
    floor_hash BLOB    NOT NULL                  -- the hash that the first one left goes on from
) STRICT;

CREATE TABLE audit (
    no      INTEGER PRIMARY KEY AUTOINCREMENT,   -- the order in which entries were written, over all chains
    subject INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    item    TEXT,                                -- the record, session, rule, hold, agent or tool it is about
    entry   TEXT    NOT NULL,                    -- JSON
    hash    BLOB    NOT NULL
) STRICT;

CREATE UNIQUE INDEX audit_by_place ON audit (subject, seq);
CREATE INDEX audit_by_item ON audit (subject, item) WHERE item IS NOT NULL;

CREATE TABLE sealed (
    subject INTEGER PRIMARY KEY,
    alias   BLOB    NOT NULL,
    seq     INTEGER NOT NULL,
    hash    BLOB    NOT NULL
) STRICT;

CREATE TABLE checkpoints (
    no      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    chains  INTEGER NOT NULL,
    entries INTEGER NOT NULL,
    root    BLOB    NOT NULL,                    -- over all of sealed, as it was then
    hash    BLOB    NOT NULL                     -- over the checkpoint before, and this one
) STRICT;

-- Who may sweep: the epoch counts the takeovers and is checked inside every batch.
CREATE TABLE leases (
    name       TEXT    PRIMARY KEY,
    holder     TEXT    NOT NULL,
    epoch      INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Scheduled jobs: what was changed about them (NULL: the default), and how the last slot went.
CREATE TABLE jobs (
    name        TEXT    PRIMARY KEY,
    cron        TEXT,
    timezone    TEXT,
    enabled     INTEGER NOT NULL DEFAULT 1,
    since       INTEGER NOT NULL,                -- slots before this moment are not missed ones
    slot        INTEGER,                         -- the last slot that was claimed
    started_at  INTEGER,
    finished_at INTEGER,                         -- NULL while it runs, or if it was cut short
    result      TEXT,                            -- JSON
    error       TEXT
) STRICT, WITHOUT ROWID;

-- How many records moved, and why: counted where they move, so that every process's are in it.
CREATE TABLE totals (
    subject INTEGER NOT NULL,
    kind    TEXT    NOT NULL,
    state   TEXT    NOT NULL,
    cause   TEXT    NOT NULL,
    count   INTEGER NOT NULL,
    PRIMARY KEY (subject, kind, state, cause)
) STRICT, WITHOUT ROWID;

-- The latest time that a sweep has seen.
CREATE TABLE seen (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    at  INTEGER NOT NULL
) STRICT;
