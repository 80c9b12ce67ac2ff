-- Access: API keys, of which only a hash is kept, and replies to requests that may come again.

CREATE TABLE api_keys (
    id           text   COLLATE "C" PRIMARY KEY,
    tenant       text   COLLATE "C" NOT NULL,                    -- '*': an operator's
    name         text   COLLATE "C" NOT NULL,
    rights       text   COLLATE "C" NOT NULL,                    -- JSON: a list
    users        text   COLLATE "C",                             -- JSON: those that it is bound to; NULL: to none
    agents       text   COLLATE "C",                             -- JSON: the same
    hashed       bytea  NOT NULL,                                -- SHA-256 of the secret
    created_at   bigint NOT NULL,
    expires_at   bigint,
    revoked_at   bigint,
    last_used_at bigint
) WITH (fillfactor = 70);

CREATE INDEX api_keys_by_tenant ON api_keys (tenant, created_at);

-- A row is named by a hash; a reply is sealed under a key that is not in the store.
CREATE TABLE replies (
    id          bytea  PRIMARY KEY,
    fingerprint bytea  NOT NULL,
    claim       bytea  NOT NULL,
    claimed_at  bigint NOT NULL,
    reply       bytea                                            -- NULL while the request is at work
) WITH (fillfactor = 70);

CREATE INDEX replies_by_age ON replies (claimed_at);
