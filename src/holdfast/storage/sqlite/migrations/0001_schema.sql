-- Everything that Holdfast keeps: records and what recall needs of them, conversations, facts, the lifecycle, the schedule.
--
-- A subject is a tenant and a user. Everything of a subject lies together: a record's key is made of the subject's
-- number (31 bits), the kind (3 bits) and a count (29 bits), so that a scope is one run of neighbouring rows, which a
-- first recall reads in one sweep. Moments are microseconds since 1970, UTC.

CREATE TABLE subjects (
    no      INTEGER PRIMARY KEY AUTOINCREMENT,   -- never given twice, so that an erased one stays gone
    subject TEXT NOT NULL UNIQUE,
    alias   BLOB                                 -- the subject's pseudonym
) STRICT;

CREATE INDEX subjects_by_alias ON subjects (alias);

-- One row for each subject and kind: what it holds, and how far its changes have come.
CREATE TABLE scopes (
    scope    INTEGER PRIMARY KEY,                -- subject number and kind
    seq      INTEGER NOT NULL DEFAULT 0,         -- counts the transactions that changed it
    floor    INTEGER NOT NULL DEFAULT 0,         -- changes up to here are no longer listed
    next     INTEGER NOT NULL DEFAULT 0,         -- count for the next record's key
    memories INTEGER NOT NULL DEFAULT 0,         -- live records
    bytes    INTEGER NOT NULL DEFAULT 0,         -- and their size
    archived       INTEGER NOT NULL DEFAULT 0,   -- those of them that are archived
    archived_bytes INTEGER NOT NULL DEFAULT 0,
    binned         INTEGER NOT NULL DEFAULT 0,   -- records in the recycle bin
    binned_bytes   INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Changed and removed records, one row a transaction (new ones are found by their key), so that an index reads again only those.
CREATE TABLE changes (
    scope INTEGER NOT NULL,
    seq   INTEGER NOT NULL,
    ids   TEXT    NOT NULL,                          -- JSON
    PRIMARY KEY (scope, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE models (
    code    INTEGER PRIMARY KEY,
    id      TEXT NOT NULL UNIQUE,
    current INTEGER NOT NULL DEFAULT 0           -- what records are to be embedded with
) STRICT;

-- Counts the changes of a tenant's rules that took effect, so that whoever read them knows when to read them again; and
-- the defaults beside them, so that all processes go by the same ones.
CREATE TABLE books (
    tenant   TEXT    PRIMARY KEY,
    version  INTEGER NOT NULL,
    defaults TEXT    NOT NULL,                       -- JSON: for each kind, terms as in rules
    software TEXT    NOT NULL                        -- the version of Holdfast that they are of
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
    selection  TEXT    NOT NULL DEFAULT '',          -- JSON: source types, sessions and contexts that are kept; '' is none
    terms      TEXT    NOT NULL,                     -- JSON: archive_after, delete_after, keep_for in microseconds, versions, versions_for
    pending    TEXT,                                 -- the terms to come, while records are being given their profiles
    version    INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (tenant, kind, user_id, agent_id, session_id, memory_id, selection)
) STRICT;

-- A profile is what the rules come to for all the records that the same rules select, so that a change of a rule is a
-- change of its profiles, at once for all records, and what is due is one range of an index for each profile and state.
CREATE TABLE profiles (
    no            INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant        TEXT    NOT NULL,
    kind          TEXT    NOT NULL,
    rules         TEXT    NOT NULL,                  -- JSON: numbers of the rules below the tenant's that select it
    archive_after INTEGER,                           -- NULL is never
    delete_after  INTEGER,
    keep_for      INTEGER,
    versions      INTEGER,                           -- how many ended versions are kept; NULL is all
    versions_for  INTEGER,                           -- and for how long
    ttl           INTEGER NOT NULL DEFAULT 0,        -- how long its records live by their own wish; 0: they have none
    UNIQUE (tenant, kind, rules, ttl)
) STRICT;

CREATE TABLE records (
    key         INTEGER PRIMARY KEY,                 -- scope and count
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
    text_hash   INTEGER NOT NULL,                    -- equal texts have the same
    model       INTEGER,
    vectors     BLOB,
    terms       BLOB    NOT NULL,
    metadata    TEXT    NOT NULL,
    content     ANY     NOT NULL,                    -- text, or zlib-compressed bytes
    body        ANY,
    source      TEXT,                                -- who or what wrote it; NULL: its agent
    derived_from TEXT,                               -- JSON: ids of memories and messages; NULL: none
    ttl         INTEGER,                             -- how long it lives by its own wish; NULL: it has none
    revision    INTEGER NOT NULL DEFAULT 1           -- the version that is current; it began at updated_at
) STRICT;

CREATE UNIQUE INDEX records_by_id ON records (id, subject);
CREATE UNIQUE INDEX records_by_name ON records (subject, kind, name)
    WHERE name IS NOT NULL AND state IN ('active', 'archived');
CREATE INDEX records_due ON records (profile, state, aged_from) WHERE state IN ('active', 'archived');
CREATE INDEX records_binned ON records (purge_at) WHERE state IN ('recycled', 'deleting');
CREATE INDEX records_by_agent ON records (agent_id) WHERE kind IN (:OWN_KINDS);
CREATE INDEX records_by_bundle ON records (bundle) WHERE bundle IS NOT NULL;
CREATE INDEX records_by_pack ON records (pack) WHERE pack IS NOT NULL;
CREATE INDEX records_by_revision ON records (profile, revision) WHERE revision > 1;
CREATE INDEX records_by_source ON records (source) WHERE source IS NOT NULL;
-- As an expression, so that it is for looking up a text alone: what reads a scope goes by the keys.
CREATE INDEX records_by_text ON records (subject + 0, text_hash) WHERE state IN ('active', 'archived');

-- What records say they were derived from, to be looked up the other way round. A row goes with its record.
CREATE TABLE derivations (
    subject   INTEGER NOT NULL,
    source_id TEXT    NOT NULL,                          -- a memory or a message, there or not
    key       INTEGER NOT NULL REFERENCES records (key) ON DELETE CASCADE,
    PRIMARY KEY (subject, source_id, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX derivations_by_key ON derivations (key);

-- Versions of records that have ended. They are in no index, quota or count, and go with their record.
CREATE TABLE versions (
    subject      INTEGER NOT NULL,
    key          INTEGER NOT NULL REFERENCES records (key) ON DELETE CASCADE,
    version      INTEGER NOT NULL,
    started_at   INTEGER NOT NULL,
    ended_at     INTEGER NOT NULL,
    actor        TEXT    NOT NULL,                   -- who ended it, and why
    reason       TEXT,
    size         INTEGER NOT NULL,
    text_hash    INTEGER NOT NULL,
    model        INTEGER,
    vectors      BLOB,
    terms        BLOB    NOT NULL,
    metadata     TEXT    NOT NULL,
    content      ANY     NOT NULL,                   -- text, or zlib-compressed bytes
    source       TEXT,
    derived_from TEXT,
    PRIMARY KEY (key, version)
) STRICT;

CREATE INDEX versions_by_end ON versions (ended_at);
CREATE INDEX versions_by_text ON versions (text_hash, subject);

-- Texts that are not to come back, as keyed fingerprints: without the user's data key nothing can be told from them.
CREATE TABLE kept_out (
    subject   INTEGER NOT NULL,
    print     TEXT    NOT NULL,
    memory_id TEXT    NOT NULL,                          -- the memory that was deleted for it
    kept_at   INTEGER NOT NULL,
    author    TEXT    NOT NULL,
    PRIMARY KEY (subject, print)
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

-- Conversations. One session of a name is active; those of the same name before it may be in the recycle bin.
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
    size       INTEGER NOT NULL,                     -- bytes of the messages, and of what parts hold for it
    summary    TEXT    NOT NULL,
    summarized INTEGER NOT NULL DEFAULT 0,           -- the version that the summarizer of the settings was asked about
    aside      INTEGER NOT NULL DEFAULT 0,           -- its own number, if it is over, held, and another has its name
    part_state TEXT,                                 -- the state that parts have followed it to; NULL: they hold nothing
    part_size  INTEGER NOT NULL DEFAULT 0            -- how much of its size is theirs
) STRICT;

CREATE UNIQUE INDEX sessions_by_id ON sessions (id, subject);
CREATE UNIQUE INDEX sessions_active ON sessions (subject, agent_id, session_id, aside) WHERE state = 'active';
CREATE INDEX sessions_by_agent ON sessions (agent_id, session_id);
CREATE INDEX sessions_due ON sessions (profile, aged_from) WHERE state = 'active';
CREATE INDEX sessions_binned ON sessions (purge_at) WHERE state IN ('recycled', 'deleting');
CREATE INDEX sessions_by_bundle ON sessions (bundle) WHERE bundle IS NOT NULL;
CREATE INDEX sessions_of_subject ON sessions (subject);
CREATE INDEX sessions_behind ON sessions (no) WHERE part_state <> state;

CREATE TABLE history (
    key        INTEGER PRIMARY KEY,              -- session number and count
    id         TEXT    NOT NULL,
    role       TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    metadata   TEXT    NOT NULL,
    content    ANY     NOT NULL,
    purge_at   INTEGER,                          -- one that was deleted by itself is in the recycle bin until then
    external_id TEXT                             -- the caller's own id of it: given again, it is not added again
) STRICT;

CREATE INDEX history_binned ON history (purge_at) WHERE purge_at IS NOT NULL;
CREATE INDEX history_by_external_id ON history (external_id, key) WHERE external_id IS NOT NULL;

CREATE TABLE short_windows (
    no         INTEGER PRIMARY KEY AUTOINCREMENT,
    subject    INTEGER NOT NULL,
    agent_id   TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    expires_at INTEGER NOT NULL,
    session    TEXT    NOT NULL,                     -- the id of the session that its messages belong to
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
    external_id TEXT,
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

-- What belongs to sessions and lies elsewhere.
CREATE TABLE parts (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    kind       TEXT NOT NULL,
    url        TEXT NOT NULL,                        -- without a password
    options    TEXT NOT NULL,                        -- JSON
    unowned_as TEXT,                                 -- the user whose is what has no owner
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

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
    no        INTEGER PRIMARY KEY AUTOINCREMENT, -- the order in which entries were written, over all chains
    subject   INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    item      TEXT,                              -- the record, session, rule, hold, agent or tool it is about
    last_item TEXT,                              -- of several items, the last in order; then item is the first
    entry     TEXT    NOT NULL,                  -- JSON
    hash      BLOB    NOT NULL
) STRICT;

CREATE UNIQUE INDEX audit_by_place ON audit (subject, seq);
CREATE INDEX audit_by_item ON audit (subject, item) WHERE item IS NOT NULL AND last_item IS NULL;
CREATE INDEX audit_of_several ON audit (subject, item, last_item) WHERE last_item IS NOT NULL;

CREATE TABLE sealed (
    subject INTEGER PRIMARY KEY,
    alias   BLOB    NOT NULL,
    seq     INTEGER NOT NULL,
    hash    BLOB    NOT NULL
) STRICT;

CREATE TABLE audit_checkpoints (
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

-- The last runs of each job that did something, or failed.
CREATE TABLE job_runs (
    name        TEXT    NOT NULL,
    started_at  INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    slot        INTEGER,                         -- NULL: it was run by hand
    result      TEXT   ,                            -- JSON
    error       TEXT   ,
    PRIMARY KEY (name, started_at)
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

-- What was counted of a tenant by the beginning of a day, as it was first looked at on that day: the difference of two days
-- is what happened between them.
CREATE TABLE daily_counts (
    tenant TEXT    NOT NULL,
    day    INTEGER NOT NULL,                     -- days since 1970, UTC
    kind   TEXT    NOT NULL,
    action TEXT    NOT NULL,                     -- 'added', 'archived', 'recycled', 'restored', 'deleted'
    count  INTEGER NOT NULL,
    PRIMARY KEY (tenant, day, kind, action)
) STRICT, WITHOUT ROWID;

-- How long each erasure took. It knows the user by the pseudonym only.
CREATE TABLE erasure_times (
    alias        TEXT    PRIMARY KEY,
    tenant       TEXT    NOT NULL,
    requested_at INTEGER NOT NULL,
    hidden_at    INTEGER,                        -- nobody found anything of the user from then on
    gone_at      INTEGER,                        -- the last look found nothing in any place
    certified_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX erasure_times_by_tenant ON erasure_times (tenant, requested_at);

-- The latest time that the store believes, and the earliest sighting of one that is too far ahead of it.
CREATE TABLE seen (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    at      INTEGER NOT NULL,
    sighted INTEGER
) STRICT;

-- The last entry of the ledger of erasures that this store has been held against.
CREATE TABLE ledger_seen (
    one  INTEGER PRIMARY KEY CHECK (one = 1),
    no   INTEGER NOT NULL,
    hash TEXT    NOT NULL
) STRICT;

-- That a user was erased, for the processes that have notes of theirs in memory: they know the name, nobody else does.
CREATE TABLE recent_erasures (
    salt      BLOB    PRIMARY KEY,
    digest    BLOB    NOT NULL,
    erased_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Which store this is, and the keyring that it belongs to once something was sealed or erased.
CREATE TABLE identity (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    store   TEXT    NOT NULL,
    keyring TEXT
) STRICT;

-- API keys, of which only a hash is kept.
CREATE TABLE api_keys (
    id           TEXT    PRIMARY KEY,
    tenant       TEXT    NOT NULL,                       -- '*': an operator's
    name         TEXT    NOT NULL,
    rights       TEXT    NOT NULL,                       -- JSON: a list
    users        TEXT,                                   -- JSON: those that it is bound to; NULL: to none
    agents       TEXT,                                   -- JSON: the same
    hashed       BLOB    NOT NULL,                       -- SHA-256 of the secret
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    revoked_at   INTEGER,
    last_used_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX api_keys_by_tenant ON api_keys (tenant, created_at);

-- Browsers that signed in to the console with a key. Who has the token is the key's caller until then.
CREATE TABLE sign_ins (
    hashed     BLOB    PRIMARY KEY,                          -- SHA-256 of the token
    key_id     TEXT    NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What takes long and was begun in the console: any process shows how far it is. Gone in an hour.
CREATE TABLE console_jobs (
    id         TEXT    PRIMARY KEY,
    owner      BLOB    NOT NULL,                             -- a hash of the token of the browser that began it
    said       TEXT    NOT NULL,                             -- JSON: what it is and how far it is; it names nobody
    content    TEXT,                                         -- JSON: what it was given and what came of it
    is_cleared INTEGER NOT NULL DEFAULT 0,                   -- somebody was erased who may be in what comes of it
    seen_at    INTEGER NOT NULL                              -- when the process that runs it last said so
) STRICT, WITHOUT ROWID;

-- Replies to requests that may come again. A row is named by a hash; a reply is sealed under a key that is not in the store.
CREATE TABLE replies (
    id           BLOB    PRIMARY KEY,
    fingerprint  BLOB    NOT NULL,
    claim        BLOB    NOT NULL,
    claimed_at   INTEGER NOT NULL,                       -- when the request was first begun
    leased_until INTEGER NOT NULL,                       -- by SQLite's clock; without a reply, at work until then
    reply        BLOB
) STRICT;

CREATE INDEX replies_by_age ON replies (claimed_at);
