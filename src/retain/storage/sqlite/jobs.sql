-- name: jobs
SELECT name, cron, timezone, enabled, since, slot, started_at, finished_at, result, error FROM jobs ORDER BY name

-- name: enrol
INSERT INTO jobs (name, since) VALUES (?, ?) ON CONFLICT DO NOTHING

-- name: configure
UPDATE jobs
SET cron = :cron, timezone = :timezone, enabled = :enabled, since = iif(:anew, :now, since)
WHERE name = :name

-- name: job
SELECT name, cron, timezone, enabled, since, slot, started_at, finished_at, result, error FROM jobs WHERE name = ?

-- name: claim
INSERT INTO jobs (name, since, slot, started_at) VALUES (:name, :now, :slot, :now)
ON CONFLICT DO UPDATE
SET slot = :slot, started_at = :now, finished_at = NULL, result = NULL, error = NULL
WHERE slot IS NULL OR slot < :slot
RETURNING slot

-- name: reclaim
UPDATE jobs SET started_at = :now, error = :error
WHERE name = :name AND slot = :slot AND finished_at IS NULL AND error IS NULL
RETURNING slot

-- name: finish
UPDATE jobs SET finished_at = :now, result = :result, error = :error
WHERE name = :name AND slot = :slot AND finished_at IS NULL
RETURNING slot

-- name: lease
SELECT name, holder, epoch, expires_at FROM leases WHERE name = ?

-- name: take
INSERT INTO leases (name, holder, epoch, expires_at) VALUES (:name, :holder, 1, :expires_at)
ON CONFLICT DO UPDATE SET holder = :holder, epoch = epoch + 1, expires_at = :expires_at
RETURNING name, holder, epoch, expires_at

-- name: extend
UPDATE leases SET expires_at = :expires_at WHERE name = :name AND holder = :holder AND epoch = :epoch
RETURNING name, holder, epoch, expires_at

-- name: release
UPDATE leases SET holder = '', expires_at = 0 WHERE name = :name AND holder = :holder AND epoch = :epoch
