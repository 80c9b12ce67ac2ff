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

-- name: put_schema
INSERT INTO schemas (tenant, collection, schema) VALUES ($1, $2, $3)
ON CONFLICT (tenant, collection) DO UPDATE SET schema = excluded.schema

-- name: remove_schema
DELETE FROM schemas WHERE tenant = $1 AND collection = $2

-- name: schemas
SELECT collection, schema FROM schemas WHERE tenant = $1 AND collection IN LIST($2)
