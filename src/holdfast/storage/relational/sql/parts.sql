-- name: add
INSERT INTO parts (tenant, name, kind, url, options, unowned_as) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (tenant, name) DO UPDATE
SET kind = excluded.kind, url = excluded.url, options = excluded.options, unowned_as = excluded.unowned_as

-- name: list
SELECT tenant, name, kind, url, options, unowned_as FROM parts WHERE tenant = $1 ORDER BY name

-- name: remove
DELETE FROM parts WHERE tenant = $1 AND name = $2
