-- name: derive
INSERT INTO derivations (subject, source_id, key) VALUES (?, ?, ?)

-- name: underive
DELETE FROM derivations WHERE key = ?

-- name: derived
SELECT DISTINCT id, records.kind, state, version, aged_from, purge_at, size, pack, agent_id, session_id, source, records.key
FROM derivations CROSS JOIN records ON records.key = derivations.key
WHERE derivations.subject = ?1 AND source_id IN (SELECT value FROM json_each(?2))
ORDER BY records.key

-- name: of_source
SELECT id, records.kind, state, version, aged_from, purge_at, size, pack, agent_id, session_id, source, key,
       subjects.subject
FROM records INDEXED BY records_by_source CROSS JOIN subjects ON subjects.no = records.subject
WHERE source = ?1 AND key > ?2 AND key <= ?3 AND subjects.subject >= ?4 || '/' AND subjects.subject < ?4 || '0'
ORDER BY key LIMIT ?5

-- What an agent wrote and nothing else was said of has no entry in an index: this reads what there is.
-- name: of_agent
SELECT id, records.kind, state, version, aged_from, purge_at, size, pack, agent_id, session_id, source, key,
       subjects.subject
FROM records CROSS JOIN subjects ON subjects.no = records.subject
WHERE (source IS NULL AND agent_id = ?6 OR source = ?1) AND key > ?2 AND key <= ?3
  AND subjects.subject >= ?4 || '/' AND subjects.subject < ?4 || '0'
ORDER BY key LIMIT ?5
