-- name: put
INSERT OR REPLACE INTO schemas (tenant, collection, schema) VALUES (?, ?, ?)

-- name: remove
DELETE FROM schemas WHERE tenant = ? AND collection = ?

-- name: get
SELECT schema FROM schemas WHERE tenant = ? AND collection = ?
