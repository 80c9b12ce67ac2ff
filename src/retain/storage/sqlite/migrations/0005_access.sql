-- Access: API keys, of which only a hash is kept, and replies to requests that may come again.

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

-- A row is named by a hash; a reply is sealed under a key that is not in the store.
CREATE TABLE replies (
    id          BLOB    PRIMARY KEY,
    fingerprint BLOB    NOT NULL,
    claim       BLOB    NOT NULL,
    claimed_at  INTEGER NOT NULL,
    reply       BLOB                                     -- NULL while the request is at work
) STRICT;

CREATE INDEX replies_by_age ON replies (claimed_at);
