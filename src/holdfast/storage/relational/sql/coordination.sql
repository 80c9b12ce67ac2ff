-- What the store has seen of the time.
-- name: seen
SELECT at, sighted FROM seen

-- name: see
INSERT INTO seen (one, at, sighted) VALUES (1, $1, $2)
ON CONFLICT (one) DO UPDATE SET at = excluded.at, sighted = excluded.sighted

-- Which store this is, and which keyring it belongs to.
-- name: identity
SELECT store, keyring FROM identity

-- name: make
INSERT INTO identity (one, store) VALUES (1, $1) ON CONFLICT (one) DO NOTHING

-- name: bind
UPDATE identity SET keyring = $1

-- name: jobs
SELECT name, cron, timezone, enabled, since, slot, started_at, finished_at, result, error FROM jobs ORDER BY name

-- name: enrol
INSERT INTO jobs (name, since) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING

-- name: configure
UPDATE jobs
SET cron = $2, timezone = $3, enabled = $4, since = CASE WHEN $5::boolean THEN $6 ELSE since END
WHERE name = $1

-- name: job
SELECT name, cron, timezone, enabled, since, slot, started_at, finished_at, result, error FROM jobs WHERE name = $1

-- name: claim
INSERT INTO jobs (name, since, slot, started_at) VALUES ($1, $2, $3, $2)
ON CONFLICT (name) DO UPDATE
SET slot = excluded.slot, started_at = excluded.started_at, finished_at = NULL, result = NULL, error = NULL
WHERE jobs.slot IS NULL OR jobs.slot < excluded.slot
RETURNING 1

-- name: reclaim
UPDATE jobs SET started_at = $1, error = $2
WHERE name = $3 AND slot = $4 AND finished_at IS NULL AND error IS NULL
RETURNING 1

-- name: finish
UPDATE jobs SET finished_at = $1, result = $2, error = $3
WHERE name = $4 AND slot = $5 AND finished_at IS NULL
RETURNING 1

-- A slot that is to run again, or that runs, stays as it is.
-- name: note
INSERT INTO jobs (name, since, started_at, finished_at, result, error) VALUES ($1, $2, $2, $3, $4, $5)
ON CONFLICT (name) DO UPDATE
SET started_at = excluded.started_at, finished_at = excluded.finished_at, result = excluded.result, error = excluded.error
WHERE jobs.slot IS NULL OR jobs.finished_at IS NOT NULL
RETURNING 1

-- What is unknown stays so.
-- name: take_back
UPDATE jobs
SET since = least(since, $1), slot = CASE WHEN slot > $1 THEN $1 ELSE slot END,
    started_at = CASE WHEN started_at > $1 THEN $1 ELSE started_at END,
    finished_at = CASE WHEN finished_at > $1 THEN $1 ELSE finished_at END
WHERE (since > $2 OR slot > $2) AND ($3::text IS NULL OR name = $3)
RETURNING name

-- name: lease
SELECT name, holder, epoch, expires_at FROM leases WHERE name = $1

-- name: take
INSERT INTO leases (name, holder, epoch, expires_at) VALUES ($1, $2, 1, $3)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, epoch = leases.epoch + 1, expires_at = excluded.expires_at
RETURNING name, holder, epoch, expires_at

-- name: extend
UPDATE leases SET expires_at = $1 WHERE name = $2 AND holder = $3 AND epoch = $4
RETURNING name, holder, epoch, expires_at

-- name: release
UPDATE leases SET holder = '', expires_at = 0 WHERE name = $1 AND holder = $2 AND epoch = $3

-- name: keep_run
INSERT INTO job_runs (name, started_at, finished_at, slot, result, error) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (name, started_at) DO UPDATE
SET finished_at = excluded.finished_at, slot = excluded.slot, result = excluded.result, error = excluded.error

-- name: forget_runs
DELETE FROM job_runs
WHERE name = $1 AND started_at < (SELECT min(started_at)
                                  FROM (SELECT started_at FROM job_runs WHERE name = $1
                                        ORDER BY started_at DESC LIMIT $2) AS latest)

-- name: runs
SELECT name, started_at, finished_at, slot, result, error FROM job_runs
WHERE ($1::text IS NULL OR name = $1) ORDER BY started_at DESC, name DESC
