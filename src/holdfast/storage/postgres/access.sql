-- name: bound_to
SELECT id, users FROM api_keys WHERE tenant = $1 AND users IS NOT NULL AND users::jsonb ? $2

-- Of several processes that do this at once, each takes others.
-- name: forget
DELETE FROM replies WHERE id IN (
    SELECT id FROM replies WHERE claimed_at <= $1 ORDER BY claimed_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
