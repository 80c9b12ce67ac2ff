-- name: add
INSERT INTO holds (id, tenant, reason, author, created_at, user_id, agent_id, session_id, memory_id, tag)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: list
SELECT id, tenant, reason, author, created_at, user_id, agent_id, session_id, memory_id, tag, released_at, released_by
FROM holds WHERE tenant = ? AND (?2 OR released_at IS NULL) ORDER BY created_at, id

-- name: get
SELECT id, tenant, reason, author, created_at, user_id, agent_id, session_id, memory_id, tag, released_at, released_by
FROM holds WHERE tenant = ? AND id = ?

-- name: release
UPDATE holds SET released_at = ?, released_by = ? WHERE tenant = ? AND id = ? AND released_at IS NULL
