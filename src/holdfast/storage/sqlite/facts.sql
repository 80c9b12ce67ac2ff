-- name: add
INSERT INTO facts (subject, id, source, name, target, value, since, until, recorded_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: end
UPDATE facts SET until = ? WHERE subject = ? AND id = ?

-- name: end_current
UPDATE facts SET until = ?1 WHERE subject = ?2 AND id = ?3 AND since <= ?1 AND (until IS NULL OR until > ?1)

-- name: of_source
SELECT id, source, name, target, value, since, until, recorded_at FROM facts WHERE subject = ? AND source = ?

-- name: of_target
SELECT id, source, name, target, value, since, until, recorded_at FROM facts WHERE subject = ? AND target = ?
