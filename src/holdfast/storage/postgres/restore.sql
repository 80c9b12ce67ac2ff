-- name: holders
SELECT records.kind, records.name, records.id
FROM jsonb_array_elements($1::jsonb) AS wanted
CROSS JOIN LATERAL (SELECT kind, name, id FROM records
                    WHERE subject = $2 AND kind = (wanted.value ->> 0)::bigint AND name = wanted.value ->> 1
                      AND state IN ('active', 'archived') OFFSET 0) AS records

-- name: remove_records
DELETE FROM records WHERE subject = $1 AND key = ANY (ARRAY(SELECT jsonb_array_elements_text($2::jsonb)::bigint))

-- name: insert_message
INSERT INTO history (subject, key, created_at, purge_at, id, role, metadata, external_id, content)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, packed($9))

-- name: messages_there
SELECT id, key FROM history WHERE subject = $1 AND key BETWEEN $2 AND $3

-- name: message_anywhere
SELECT 1 FROM history JOIN subjects ON subjects.no = history.subject
WHERE history.id = $1 AND subjects.subject >= $2::text || '/' AND subjects.subject < $2::text || '0' LIMIT 1
