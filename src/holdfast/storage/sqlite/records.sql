-- name: derived
SELECT DISTINCT id, records.kind, state, version, aged_from, purge_at, size, pack, agent_id, session_id, source, records.key
FROM derivations CROSS JOIN records ON records.key = derivations.key
WHERE derivations.subject = ?1 AND source_id IN (SELECT value FROM json_each(?2))
ORDER BY records.key

-- What an agent wrote and nothing else was said of has no entry in an index: this reads what there is.
-- name: of_agent
SELECT id, records.kind, state, version, aged_from, purge_at, size, pack, agent_id, session_id, source, key,
       subjects.subject
FROM records CROSS JOIN subjects ON subjects.no = records.subject
WHERE (source IS NULL AND agent_id = ?6 OR source = ?1) AND key > ?2 AND key <= ?3
  AND subjects.subject >= ?4 || '/' AND subjects.subject < ?4 || '0'
ORDER BY key LIMIT ?5

-- name: new_subject
INSERT INTO subjects (subject, alias) VALUES (?, randomblob(16)) RETURNING no

-- All that a write asks before it begins, at one look.
-- name: opening
SELECT known.no, coalesce(seq, 0), coalesce(floor, 0), coalesce(next, 0), coalesce(memories, 0), coalesce(bytes, 0),
       everyone.max_memories, everyone.max_bytes, own.max_memories, own.max_bytes,
       coalesce((SELECT version FROM books WHERE tenant = ?2), 0),
       EXISTS (SELECT 1 FROM holds WHERE tenant = ?2 AND released_at IS NULL AND (user_id IS NULL OR user_id = ?3)),
       EXISTS (SELECT 1 FROM registry
               WHERE tenant = ?2 AND sort = 'agent' AND state != 'active' AND id IN (SELECT value FROM json_each(?5)))
FROM (SELECT (SELECT no FROM subjects WHERE subject = ?1) AS no) AS known
LEFT JOIN scopes ON scopes.scope = (known.no << 3 | ?4)
LEFT JOIN quotas AS everyone ON everyone.tenant = ?2 AND everyone.user_id = '' AND everyone.kind = ?4
LEFT JOIN quotas AS own ON own.tenant = ?2 AND own.user_id = ?3 AND own.kind = ?4

-- name: put_scope
INSERT INTO scopes (scope, seq, floor, next, memories, bytes) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (scope) DO UPDATE
SET seq = excluded.seq, floor = excluded.floor, next = excluded.next, memories = excluded.memories, bytes = excluded.bytes

-- name: cursor
SELECT subjects.no, ifnull(seq, 0), ifnull(next, 0), ifnull((SELECT version FROM books WHERE tenant = ?3), 0),
       EXISTS (SELECT 1 FROM registry WHERE tenant = ?3 AND sort = 'agent' AND id = ?4 AND state <> 'active'),
       ifnull(memories, 0)
FROM subjects LEFT JOIN scopes ON scopes.scope = subjects.no << 3 | ?2
WHERE subjects.subject = ?1

-- name: fetch
SELECT records.kind, id, state, version, agent_id, session_id, name, created_at, updated_at, dated_at, aged_from,
       metadata, content, body, previous, aged_from + archive_after, aged_from + delete_after, moved_at, purge_at, reason,
       pack, source, derived_from, bundle,
       records.kind IN (4, 5) AND EXISTS (SELECT 1 FROM registry WHERE registry.tenant = ?4 AND sort = 'agent'
                                          AND registry.id = records.agent_id AND registry.state <> 'active')
FROM records CROSS JOIN profiles ON profiles.no = records.profile
WHERE id IN (SELECT value FROM json_each(?1)) AND subject = (SELECT no FROM subjects WHERE subjects.subject = ?2)
  AND state IN ('active', 'archived') AND (delete_after IS NULL OR aged_from + delete_after > ?3)

-- name: standing_all
SELECT id, key, kind, state, version, size, agent_id, session_id, CASE WHEN ?3 THEN metadata ELSE '{}' END, pack,
       name, derived_from
FROM records WHERE id IN (SELECT value FROM json_each(?1)) AND subject = ?2

-- name: replace
UPDATE records SET version = version + 1, name = ?, updated_at = ?, size = ?, model = ?, vectors = ?,
                   terms = ?, metadata = ?, content = ?, body = ?, source = ?, derived_from = ?
WHERE key = ?

-- name: recycle_all
UPDATE records SET state = 'recycled', previous = state, version = version + 1, moved_at = ?1, reason = ?2, purge_at = ?3,
                   bundle = ?4, aged_from = ifnull(?5, aged_from)
FROM (SELECT value ->> 0 AS move_id, value ->> 1 AS move_version FROM json_each(?6))
WHERE id = move_id AND subject = ?7 AND +state = ?8 AND version = move_version
RETURNING id, kind, size

-- name: erase_all
DELETE FROM records
WHERE key IN (SELECT known.key FROM json_each(?1) AS moves CROSS JOIN records AS known
              ON known.id = moves.value ->> 0 AND known.subject = ?2
              WHERE +known.state = ?3 AND known.version = moves.value ->> 1 AND known.pack IS NULL)
RETURNING id, kind, size

-- name: move_keeping
UPDATE records SET state = ?1, previous = state, version = version + 1, moved_at = ?2, reason = ?3,
                   purge_at = CASE WHEN ?1 = 'deleting' THEN coalesce(?4, purge_at, ?2) ELSE ?4 END,
                   bundle = ?5, aged_from = ifnull(?6, aged_from), pack = ?7, size = ?, model = ?, vectors = ?, terms = ?,
                   metadata = ?, content = ?, body = ?
WHERE key = ?

-- name: oldest
SELECT key, id, size, state, version, agent_id, session_id, metadata
FROM records CROSS JOIN profiles ON profiles.no = records.profile
WHERE key BETWEEN ? AND ? AND state IN ('active', 'archived') AND (keep_for IS NULL OR aged_from + keep_for <= ?)
ORDER BY dated_at, key LIMIT ?

-- name: embed
UPDATE records SET model = ?, vectors = ?, terms = ? WHERE key = ? AND version = ?

-- name: unembedded
SELECT records.kind, id, state, version, agent_id, session_id, name, created_at, updated_at, dated_at, aged_from,
       metadata, content, body, previous, aged_from + archive_after, aged_from + delete_after, moved_at, purge_at, reason,
       pack, source, derived_from, bundle
FROM records CROSS JOIN profiles ON profiles.no = records.profile
WHERE key BETWEEN ? AND ? AND state IN ('active', 'archived') AND (model IS NOT ? OR vectors IS NULL) LIMIT ?

-- name: index_rows
SELECT id, agent_id, session_id, created_at, updated_at, aged_from + delete_after,
       CASE WHEN state = 'archived' THEN 0 ELSE aged_from + archive_after END, metadata,
       CASE WHEN model = ? THEN vectors END, terms, CASE WHEN length(terms) = 0 THEN content END
FROM records CROSS JOIN profiles ON profiles.no = records.profile
WHERE key BETWEEN ? AND ? AND state IN ('active', 'archived')
ORDER BY key

-- name: index_row
SELECT id, agent_id, session_id, created_at, updated_at, aged_from + delete_after,
       CASE WHEN state = 'archived' THEN 0 ELSE aged_from + archive_after END, metadata,
       CASE WHEN model = ? THEN vectors END, terms, CASE WHEN length(terms) = 0 THEN content END
FROM records CROSS JOIN profiles ON profiles.no = records.profile
WHERE id = ? AND subject = ? AND state IN ('active', 'archived')

-- name: changed_ids
SELECT DISTINCT value FROM changes, json_each(ids) WHERE scope = ? AND seq > ?

-- name: log_change
INSERT INTO changes (scope, seq, ids) VALUES (?, ?, ?)

-- name: entries
SELECT records.kind, records.id, state, version, agent_id, session_id, name, created_at, updated_at, dated_at, aged_from,
       metadata, content, body, previous, aged_from + archive_after, aged_from + delete_after, moved_at, purge_at, reason,
       pack, source, derived_from, bundle, models.id, vectors, terms
FROM records CROSS JOIN profiles ON profiles.no = records.profile
     LEFT JOIN models ON models.code = records.model
WHERE records.id IN (SELECT value FROM json_each(?)) AND subject = ?

-- name: scope
SELECT seq, floor, next, memories, bytes FROM scopes WHERE scope = ?

-- name: forget_changes
DELETE FROM changes WHERE scope = ? AND seq <= ?
