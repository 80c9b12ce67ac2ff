-- name: put
INSERT INTO schemas (tenant, collection, schema) VALUES ($1, $2, $3)
ON CONFLICT (tenant, collection) DO UPDATE SET schema = excluded.schema

-- name: remove
DELETE FROM schemas WHERE tenant = $1 AND collection = $2

-- name: get
SELECT schema FROM schemas WHERE tenant = $1 AND collection = $2
