-- name: NOW
CAST(unixepoch('subsec') * 1000000 AS INTEGER)

-- name: STORED_SIZE
length(CAST(content AS BLOB))
