-- name: add
INSERT INTO api_keys (id, tenant, name, rights, users, agents, created_at, expires_at, hashed)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: get
SELECT id, tenant, name, rights, users, agents, created_at, expires_at, revoked_at, last_used_at, hashed
FROM api_keys WHERE id = $1

-- name: list
SELECT id, tenant, name, rights, users, agents, created_at, expires_at, revoked_at, last_used_at, hashed
FROM api_keys WHERE $1::text IS NULL OR tenant = $1 ORDER BY created_at, id

-- name: revoke
UPDATE api_keys SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL

-- name: note_use
UPDATE api_keys SET last_used_at = $2 WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2)

-- name: valid
SELECT count(*) FROM (
    SELECT 1 FROM api_keys WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1) LIMIT 1
) AS found

-- name: bind
UPDATE api_keys SET users = $2 WHERE id = $1

-- name: remove
DELETE FROM api_keys WHERE id = $1

-- name: sign_in
INSERT INTO sign_ins (hashed, key_id, expires_at) VALUES ($1, $2, $3)

-- name: signed_in
SELECT k.id, k.tenant, k.name, k.rights, k.users, k.agents, k.created_at, k.expires_at, k.revoked_at, k.last_used_at,
       k.hashed
FROM sign_ins AS s JOIN api_keys AS k ON k.id = s.key_id WHERE s.hashed = $1 AND s.expires_at > $2

-- name: sign_out
DELETE FROM sign_ins WHERE hashed = $1 OR expires_at <= $2

-- What came of it is not kept where somebody was erased meanwhile, unless it names nobody ($6).
-- name: keep_console_job
INSERT INTO console_jobs (id, owner, said, content, seen_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (id) DO UPDATE
SET said = excluded.said, seen_at = excluded.seen_at,
    content = CASE WHEN console_jobs.is_cleared = 1 AND $6 = 0 THEN NULL ELSE excluded.content END

-- name: console_job
SELECT said, content, is_cleared, seen_at FROM console_jobs WHERE id = $1 AND owner = $2

-- name: forget_console_jobs
DELETE FROM console_jobs WHERE seen_at < $1

-- A row without a reply is at work for as long as its lease runs, by the server's clock. A lease that goes on for longer
-- than leases do was written before that clock was set back.
-- name: claim
INSERT INTO replies (id, fingerprint, claim, claimed_at, leased_until)
VALUES ($1, $2, $3, $4, :NOW + $6)
ON CONFLICT (id) DO UPDATE
SET fingerprint = excluded.fingerprint,
    claim = excluded.claim,
    claimed_at = CASE WHEN replies.claimed_at <= $5 THEN excluded.claimed_at ELSE replies.claimed_at END,
    leased_until = excluded.leased_until,
    reply = NULL
WHERE replies.claimed_at <= $5
   OR (replies.reply IS NULL AND replies.fingerprint = excluded.fingerprint
       AND replies.leased_until NOT BETWEEN :NOW AND :NOW + $6)
RETURNING fingerprint, claimed_at, claim, reply AS body, TRUE AS is_leased

-- name: claimed
SELECT fingerprint, claimed_at, claim, reply AS body,
       reply IS NULL AND leased_until BETWEEN :NOW AND :NOW + $2 AS is_leased
FROM replies WHERE id = $1 AND claimed_at > $3

-- name: renew
UPDATE replies SET leased_until = :NOW + $3
WHERE id = $1 AND claim = $2 AND reply IS NULL

-- name: keep
UPDATE replies SET reply = $3 WHERE id = $1 AND claim = $2 AND reply IS NULL

-- name: release
DELETE FROM replies WHERE id = $1 AND claim = $2 AND reply IS NULL
