-- name: add
INSERT INTO api_keys (id, tenant, name, rights, users, agents, created_at, expires_at, hashed)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: get
SELECT id, tenant, name, rights, users, agents, created_at, expires_at, revoked_at, last_used_at, hashed
FROM api_keys WHERE id = ?

-- name: list
SELECT id, tenant, name, rights, users, agents, created_at, expires_at, revoked_at, last_used_at
FROM api_keys ORDER BY created_at, id

-- name: list_of_tenant
SELECT id, tenant, name, rights, users, agents, created_at, expires_at, revoked_at, last_used_at
FROM api_keys WHERE tenant = ? ORDER BY created_at, id

-- name: revoke
UPDATE api_keys SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL

-- name: note_use
UPDATE api_keys SET last_used_at = ?2 WHERE id = ?1 AND (last_used_at IS NULL OR last_used_at < ?2)

-- name: valid
SELECT count(*) FROM (
    SELECT 1 FROM api_keys WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?) LIMIT 1
)

-- name: bound_to
SELECT id, users FROM api_keys
WHERE tenant = ?1 AND users IS NOT NULL AND EXISTS (SELECT 1 FROM json_each(users) WHERE value = ?2)

-- name: bind
UPDATE api_keys SET users = ?2 WHERE id = ?1

-- name: remove
DELETE FROM api_keys WHERE id = ?

-- A row without a reply is at work for as long as its lease runs, by the database's clock. A lease that goes on for longer
-- than leases do was written before that clock was set back.
-- name: claim
INSERT INTO replies (id, fingerprint, claim, claimed_at, leased_until)
VALUES (?1, ?2, ?3, ?4, CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?6)
ON CONFLICT (id) DO UPDATE
SET fingerprint = excluded.fingerprint,
    claim = excluded.claim,
    claimed_at = CASE WHEN claimed_at <= ?5 THEN excluded.claimed_at ELSE claimed_at END,
    leased_until = excluded.leased_until,
    reply = NULL
WHERE claimed_at <= ?5
   OR (reply IS NULL AND fingerprint = excluded.fingerprint
       AND leased_until NOT BETWEEN excluded.leased_until - ?6 AND excluded.leased_until)
RETURNING fingerprint, claimed_at, claim, reply, TRUE

-- name: claimed
SELECT fingerprint, claimed_at, claim, reply,
       reply IS NULL AND leased_until BETWEEN CAST(unixepoch('subsec') * 1000000 AS INTEGER)
                                          AND CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?2
FROM replies WHERE id = ?1 AND claimed_at > ?3

-- name: renew
UPDATE replies SET leased_until = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?3
WHERE id = ?1 AND claim = ?2 AND reply IS NULL

-- name: keep
UPDATE replies SET reply = ?3 WHERE id = ?1 AND claim = ?2 AND reply IS NULL

-- name: release
DELETE FROM replies WHERE id = ? AND claim = ? AND reply IS NULL

-- name: forget
DELETE FROM replies WHERE rowid IN (
    SELECT rowid FROM replies WHERE claimed_at <= ? ORDER BY claimed_at LIMIT ?
)
