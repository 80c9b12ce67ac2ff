-- name: add
INSERT INTO facts (subject, id, source, name, target, value, since, until, recorded_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: end
UPDATE facts SET until = $1 WHERE subject = $2 AND id = $3

-- name: end_current
UPDATE facts SET until = $1 WHERE subject = $2 AND id = $3 AND since <= $1 AND (until IS NULL OR until > $1)

-- name: of_source
SELECT id, source, name, target, value, since, until, recorded_at FROM facts WHERE subject = $1 AND source = $2

-- name: of_target
SELECT id, source, name, target, value, since, until, recorded_at FROM facts WHERE subject = $1 AND target = $2
