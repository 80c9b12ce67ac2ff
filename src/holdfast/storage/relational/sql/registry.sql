-- A tenant's subjects are a range, here written as what is not outside of it: so no plan begins with all of them.
-- name: get
SELECT tenant, sort, id, state, version, description, metadata, created_at, updated_at, moved_at, reason, purge_at, bundle,
       unfinished
FROM registry WHERE tenant = $1 AND sort = $2 AND id = $3

-- name: list
SELECT tenant, sort, id, state, version, description, metadata, created_at, updated_at, moved_at, reason, purge_at, bundle,
       unfinished
FROM registry WHERE tenant = $1 AND sort = $2 AND ($3::boolean OR state = 'active') ORDER BY id

-- name: unfinished
SELECT tenant, sort, id, state, version, description, metadata, created_at, updated_at, moved_at, reason, purge_at, bundle,
       unfinished
FROM registry WHERE tenant = $1 AND unfinished IS NOT NULL ORDER BY sort, id

-- name: due
SELECT tenant, sort, id, state, version, description, metadata, created_at, updated_at, moved_at, reason, purge_at, bundle,
       unfinished
FROM registry WHERE tenant = $1 AND purge_at <= $2 ORDER BY purge_at, sort, id

-- name: put
INSERT INTO registry (tenant, sort, id, state, version, description, metadata, created_at, updated_at)
VALUES ($1, $2, $3, 'active', 1, $4, $5, $6, $6)
ON CONFLICT (tenant, sort, id) DO UPDATE
SET description = excluded.description, metadata = excluded.metadata, updated_at = excluded.updated_at,
    version = registry.version + 1

-- name: remove
UPDATE registry SET state = 'recycled', version = version + 1, moved_at = $1, reason = $2, purge_at = $3, bundle = $4,
                    unfinished = 'remove'
WHERE tenant = $5 AND sort = $6 AND id = $7

-- name: restore
UPDATE registry SET state = 'active', version = version + 1, moved_at = $1, reason = NULL, purge_at = NULL,
                    unfinished = 'restore'
WHERE tenant = $2 AND sort = $3 AND id = $4

-- Something of its own has come to light since.
-- name: go_on_removing
UPDATE registry SET unfinished = 'remove' WHERE tenant = $1 AND sort = 'agent' AND id = $2 AND state = 'recycled'

-- The bundle of what was restored is done with.
-- name: finish
UPDATE registry SET unfinished = NULL, bundle = CASE WHEN state = 'active' THEN NULL ELSE bundle END
WHERE tenant = $1 AND sort = $2 AND id = $3 AND version = $4

-- name: erase
DELETE FROM registry WHERE tenant = $1 AND sort = $2 AND id = $3

-- name: own_records
SELECT :OWN_RECORD
FROM records INDEXED BY records_by_agent JOIN subjects ON subjects.no = records.subject
WHERE agent_id = $1 AND kind IN (:OWN_KINDS) AND key > $4 AND state IN ('active', 'archived')
  AND (subjects.subject < $2::text || '/' OR subjects.subject >= $2::text || '0') IS NOT TRUE AND $3::text = ''
ORDER BY key LIMIT $5

-- name: own_sessions
SELECT session_id AS place, :OWN_SESSION
FROM sessions INDEXED BY sessions_by_agent JOIN subjects ON subjects.no = sessions.subject
WHERE agent_id = $1 AND (session_id, sessions.no) > ($3, $4) AND state = 'active'
  AND (subjects.subject < $2::text || '/' OR subjects.subject >= $2::text || '0') IS NOT TRUE
ORDER BY session_id, sessions.no LIMIT $5

-- name: bundled_records
SELECT :OWN_RECORD, aged_from + delete_after AS hidden_from
FROM records INDEXED BY records_by_bundle JOIN subjects ON subjects.no = records.subject
JOIN profiles ON profiles.no = records.profile
WHERE bundle = $1 AND key > $4 AND state = 'recycled'
  AND (subjects.subject < $2::text || '/' OR subjects.subject >= $2::text || '0') IS NOT TRUE AND $3::text = ''
ORDER BY key LIMIT $5

-- name: bundled_sessions
SELECT '' AS place, :OWN_SESSION, aged_from + delete_after AS hidden_from
FROM sessions INDEXED BY sessions_by_bundle JOIN subjects ON subjects.no = sessions.subject
JOIN profiles ON profiles.no = sessions.profile
WHERE bundle = $1 AND sessions.no > $4 AND state = 'recycled'
  AND (subjects.subject < $2::text || '/' OR subjects.subject >= $2::text || '0') IS NOT TRUE AND $3::text = ''
ORDER BY sessions.no LIMIT $5

-- What of a bundle is in the bin for longer; or, if there are holds, all that may be kept by one.
-- name: staying_records
SELECT :OWN_RECORD
FROM records INDEXED BY records_by_bundle JOIN subjects ON subjects.no = records.subject
WHERE bundle = $1 AND key > $4 AND (purge_at > $6 OR ($7::boolean AND state = 'recycled'))
  AND (subjects.subject < $2::text || '/' OR subjects.subject >= $2::text || '0') IS NOT TRUE AND $3::text = ''
ORDER BY key LIMIT $5

-- name: staying_sessions
SELECT session_id AS place, :OWN_SESSION
FROM sessions INDEXED BY sessions_by_bundle JOIN subjects ON subjects.no = sessions.subject
WHERE bundle = $1 AND (session_id, sessions.no) > ($3, $4) AND (purge_at > $6 OR ($7::boolean AND state = 'recycled'))
  AND (subjects.subject < $2::text || '/' OR subjects.subject >= $2::text || '0') IS NOT TRUE
ORDER BY session_id, sessions.no LIMIT $5

-- name: bundle_left
SELECT EXISTS (SELECT 1 FROM records WHERE bundle = $1) OR EXISTS (SELECT 1 FROM sessions WHERE bundle = $1)
