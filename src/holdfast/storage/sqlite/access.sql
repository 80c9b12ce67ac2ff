-- name: bound_to
SELECT id, users FROM api_keys
WHERE tenant = ?1 AND users IS NOT NULL AND EXISTS (SELECT 1 FROM json_each(users) WHERE value = ?2)

-- name: forget
DELETE FROM replies WHERE rowid IN (
    SELECT rowid FROM replies WHERE claimed_at <= ? ORDER BY claimed_at LIMIT ?
)
