-- name: holders
SELECT kind, name, records.id
FROM json_each(?1) AS wanted CROSS JOIN records
ON subject = ?2 AND kind = wanted.value ->> 0 AND name = wanted.value ->> 1 AND state IN ('active', 'archived')

-- name: remove_records
DELETE FROM records WHERE ?1 IS NOT NULL AND key IN (SELECT value FROM json_each(?2))

-- name: insert_message
INSERT INTO history (key, created_at, purge_at, id, role, metadata, external_id, content)
SELECT ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9 WHERE ?1 IS NOT NULL

-- name: messages_there
SELECT id, key FROM history WHERE ?1 IS NOT NULL AND key BETWEEN ?2 AND ?3

-- name: message_anywhere
SELECT 1 FROM history JOIN sessions ON sessions.no = history.key >> :MESSAGE_BITS
JOIN subjects ON subjects.no = sessions.subject
WHERE history.id = ?1 AND subjects.subject >= ?2 || '/' AND subjects.subject < ?2 || '0' LIMIT 1
