-- name: NOW
(extract(epoch FROM clock_timestamp()) * 1000000)::bigint

-- name: STORED_SIZE
octet_length(content) - CASE WHEN get_byte(content, 0) = 0 THEN 1 ELSE 0 END
