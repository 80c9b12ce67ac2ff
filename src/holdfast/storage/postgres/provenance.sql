-- name: derive
INSERT INTO derivations (subject, source_id, key) VALUES ($1, $2, $3)

-- name: underive
DELETE FROM derivations WHERE subject = $1::bigint >> 32 AND key = $1

-- name: derived
SELECT id, records.kind, state, version, aged_from, purge_at, size, pack, agent_id, session_id, source, key
FROM records
WHERE subject = $1 AND key = ANY (ARRAY(
    SELECT key FROM derivations
    WHERE subject = $1 AND source_id = ANY (ARRAY(SELECT jsonb_array_elements_text($2::jsonb)))))
ORDER BY key

-- name: of_source
SELECT id, records.kind, state, version, aged_from, purge_at, size, pack, agent_id, session_id, source, key,
       subjects.subject
FROM records JOIN subjects ON subjects.no = records.subject
WHERE source = $1 AND key > $2 AND key <= $3
  AND (subjects.subject < $4::text || '/' OR subjects.subject >= $4::text || '0') IS NOT TRUE
ORDER BY key LIMIT $5

-- What an agent wrote and nothing else was said of has no entry in an index: this reads what there is, in its order.
-- name: of_agent
SELECT id, records.kind, state, version, aged_from, purge_at, size, pack, agent_id, session_id, source, key,
       subjects.subject
FROM records JOIN subjects ON subjects.no = records.subject
WHERE (source IS NULL AND agent_id = $6 OR source = $1)
  AND records.subject >= $2::bigint >> 32 AND records.subject <= $3::bigint >> 32 AND key > $2 AND key <= $3
  AND (subjects.subject < $4::text || '/' OR subjects.subject >= $4::text || '0') IS NOT TRUE
ORDER BY records.subject, key LIMIT $5
