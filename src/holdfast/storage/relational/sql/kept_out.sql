-- name: any
SELECT 1 FROM kept_out WHERE subject = $1 LIMIT 1

-- name: matching
SELECT print, memory_id FROM kept_out WHERE subject = $1 AND print IN LIST($2)

-- name: add
INSERT INTO kept_out (subject, print, memory_id, kept_at, author) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING

-- name: list
SELECT print, memory_id, kept_at, author FROM kept_out WHERE subject = $1 ORDER BY kept_at, memory_id, print

-- name: lift
DELETE FROM kept_out WHERE subject = $1 AND memory_id = $2
