-- name: add
INSERT INTO holds (id, tenant, reason, author, created_at, user_id, agent_id, session_id, memory_id, tag)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: list
SELECT id, tenant, reason, author, created_at, user_id, agent_id, session_id, memory_id, tag, released_at, released_by
FROM holds WHERE tenant = $1 AND ($2::boolean OR released_at IS NULL) ORDER BY created_at, id

-- name: get
SELECT id, tenant, reason, author, created_at, user_id, agent_id, session_id, memory_id, tag, released_at, released_by
FROM holds WHERE tenant = $1 AND id = $2

-- name: release
UPDATE holds SET released_at = $1, released_by = $2 WHERE tenant = $3 AND id = $4 AND released_at IS NULL
