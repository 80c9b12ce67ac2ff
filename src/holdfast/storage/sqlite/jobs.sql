-- name: jobs
SELECT name, cron, timezone, enabled, since, slot, started_at, finished_at, result, error FROM jobs ORDER BY name

-- name: enrol
INSERT INTO jobs (name, since) VALUES (?, ?) ON CONFLICT DO NOTHING

-- name: configure
UPDATE jobs
SET cron = ?2, timezone = ?3, enabled = ?4, since = iif(?5, ?6, since)
WHERE name = ?1

-- name: job
SELECT name, cron, timezone, enabled, since, slot, started_at, finished_at, result, error FROM jobs WHERE name = ?

-- name: claim
INSERT INTO jobs (name, since, slot, started_at) VALUES (?1, ?2, ?3, ?2)
ON CONFLICT DO UPDATE
SET slot = ?3, started_at = ?2, finished_at = NULL, result = NULL, error = NULL
WHERE slot IS NULL OR slot < ?3
RETURNING slot

-- name: reclaim
UPDATE jobs SET started_at = ?1, error = ?2
WHERE name = ?3 AND slot = ?4 AND finished_at IS NULL AND error IS NULL
RETURNING slot

-- name: finish
UPDATE jobs SET finished_at = ?1, result = ?2, error = ?3
WHERE name = ?4 AND slot = ?5 AND finished_at IS NULL
RETURNING slot

-- A slot that is to run again, or that runs, stays as it is.
-- name: note
INSERT INTO jobs (name, since, started_at, finished_at, result, error) VALUES (?1, ?2, ?2, ?3, ?4, ?5)
ON CONFLICT DO UPDATE
SET started_at = ?2, finished_at = ?3, result = ?4, error = ?5
WHERE slot IS NULL OR finished_at IS NOT NULL
RETURNING name

-- name: take_back
UPDATE jobs
SET since = min(since, ?1), slot = min(slot, ?1), started_at = min(started_at, ?1), finished_at = min(finished_at, ?1)
WHERE (since > ?2 OR slot > ?2) AND (?3 IS NULL OR name = ?3)
RETURNING name

-- name: lease
SELECT name, holder, epoch, expires_at FROM leases WHERE name = ?

-- Where a lock can be had on it, until the end of the transaction that relies on it.
-- name: lease_checked
SELECT name, holder, epoch, expires_at FROM leases WHERE name = ?

-- name: take
INSERT INTO leases (name, holder, epoch, expires_at) VALUES (?1, ?2, 1, ?3)
ON CONFLICT DO UPDATE SET holder = ?2, epoch = epoch + 1, expires_at = ?3
RETURNING name, holder, epoch, expires_at

-- name: extend
UPDATE leases SET expires_at = ?1 WHERE name = ?2 AND holder = ?3 AND epoch = ?4
RETURNING name, holder, epoch, expires_at

-- name: release
UPDATE leases SET holder = '', expires_at = 0 WHERE name = ?1 AND holder = ?2 AND epoch = ?3