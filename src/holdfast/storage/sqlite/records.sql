-- name: derived
SELECT :FACTS
FROM records
WHERE key IN (SELECT key FROM derivations WHERE subject = ?1 AND source_id IN (SELECT value FROM json_each(?2)))
ORDER BY key

-- What an agent wrote and nothing else was said of has no entry in an index: this reads what there is.
-- name: of_agent
SELECT :FACTS, subjects.subject
FROM records CROSS JOIN subjects ON subjects.no = records.subject
WHERE (source IS NULL AND agent_id = ?6 OR source = ?1) AND key > ?2 AND key <= ?3
  AND subjects.subject >= ?4 || '/' AND subjects.subject < ?4 || '0'
ORDER BY key LIMIT ?5

-- name: new_subject
INSERT INTO subjects (subject, alias) VALUES (?1, coalesce(?2, randomblob(16))) RETURNING no

-- All that a write asks before it begins, at one look.
-- name: write_context
SELECT known.no AS number, coalesce(seq, 0) AS seq, coalesce(floor, 0) AS floor, coalesce(next, 0) AS next,
       coalesce(memories, 0) AS memories, coalesce(bytes, 0) AS bytes,
       everyone.max_memories AS their_memories, everyone.max_bytes AS their_bytes,
       own.max_memories AS own_memories, own.max_bytes AS own_bytes,
       coalesce((SELECT version FROM books WHERE tenant = ?2), 0) AS version,
       EXISTS (SELECT 1 FROM holds WHERE tenant = ?2 AND released_at IS NULL AND (user_id IS NULL OR user_id = ?3)) AS is_held,
       EXISTS (SELECT 1 FROM registry
               WHERE tenant = ?2 AND sort = 'agent' AND state != 'active' AND id IN (SELECT value FROM json_each(?5)))
       AS is_removed,
       EXISTS (SELECT 1 FROM kept_out WHERE kept_out.subject = known.no) AS keeps_out
FROM (SELECT (SELECT no FROM subjects WHERE subject = ?1) AS no) AS known
LEFT JOIN scopes ON scopes.scope = (known.no << :KIND_BITS | ?4)
LEFT JOIN quotas AS everyone ON everyone.tenant = ?2 AND everyone.user_id = '' AND everyone.kind = ?4
LEFT JOIN quotas AS own ON own.tenant = ?2 AND own.user_id = ?3 AND own.kind = ?4

-- What says a text comes last, the newest at the end; before that, what said it before and was corrected. What is archived
-- is not found by the usual recall, so that it is not taken for what is there.
-- name: of_text
SELECT id, text_hash, 1 AS is_current, key
FROM (SELECT value FROM json_each(?3)) AS wanted
CROSS JOIN records ON records.subject + 0 = ?1 AND text_hash = wanted.value AND state IN ('active', 'archived')
CROSS JOIN profiles ON profiles.no = records.profile
WHERE records.kind = ?4 AND state = 'active' AND (name IS NULL OR records.kind IN (:TEXT_KINDS))
  AND (archive_after IS NULL OR aged_from + archive_after > ?2) AND (delete_after IS NULL OR aged_from + delete_after > ?2)
  AND (?5 IS NULL OR agent_id = ?5)
UNION ALL
SELECT records.id, versions.text_hash, 0, records.key
FROM (SELECT value FROM json_each(?3)) AS wanted
CROSS JOIN versions ON versions.subject = ?1 AND versions.text_hash = wanted.value
CROSS JOIN records ON records.key = versions.key
CROSS JOIN profiles ON profiles.no = records.profile
WHERE versions.text_hash <> records.text_hash AND records.kind = ?4 AND state IN ('active', 'archived')
  AND (name IS NULL OR records.kind IN (:TEXT_KINDS)) AND (delete_after IS NULL OR aged_from + delete_after > ?2)
  AND (profiles.versions IS NULL OR versions.version >= revision - profiles.versions)
  AND (versions_for IS NULL OR versions.ended_at + versions_for > ?2) AND (?5 IS NULL OR agent_id = ?5)
ORDER BY is_current, key

-- name: put_scope
INSERT INTO scopes (scope, seq, floor, next, memories, bytes) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (scope) DO UPDATE
SET seq = excluded.seq, floor = excluded.floor, next = excluded.next, memories = excluded.memories, bytes = excluded.bytes

-- name: cursor
SELECT subjects.no AS number, ifnull(seq, 0) AS seq, ifnull(next, 0) AS next,
       ifnull((SELECT version FROM books WHERE tenant = ?4), 0) AS rules,
       EXISTS (SELECT 1 FROM registry WHERE tenant = ?4 AND sort = 'agent' AND id = ?5 AND state <> 'active') AS is_removed
FROM subjects LEFT JOIN scopes ON scopes.scope = ?3
WHERE subjects.no = ?1 AND subjects.subject = ?2

-- The same of several scopes of a subject, each with the agent that it is of.
-- name: cursors
SELECT asked.value ->> 0 AS place, subjects.no AS number, ifnull(seq, 0) AS seq, ifnull(next, 0) AS next,
       ifnull((SELECT version FROM books WHERE tenant = ?4), 0) AS rules,
       EXISTS (SELECT 1 FROM registry
               WHERE tenant = ?4 AND sort = 'agent' AND id = asked.value ->> 1 AND state <> 'active') AS is_removed
FROM subjects CROSS JOIN json_each(?3) AS asked LEFT JOIN scopes ON scopes.scope = asked.value ->> 0
WHERE subjects.no = ?1 AND subjects.subject = ?2

-- name: move_all
UPDATE records SET state = ?1, previous = state, version = version + 1, moved_at = ?2, reason = ?3,
                   purge_at = CASE WHEN ?1 = 'deleting' THEN coalesce(?4, purge_at, ?2) ELSE ?4 END, bundle = ?5,
                   aged_from = ifnull(?6, aged_from)
FROM (SELECT value ->> 0 AS move_id, value ->> 1 AS move_version FROM json_each(?7))
WHERE id = move_id AND subject = ?8 AND +state = ?9 AND version = move_version
RETURNING id, kind, size, pack

-- name: erase_all
DELETE FROM records
WHERE key IN (SELECT known.key FROM json_each(?1) AS moves CROSS JOIN records AS known
              ON known.id = moves.value ->> 0 AND known.subject = ?2
              WHERE +known.state = ?3 AND known.version = moves.value ->> 1 AND known.pack IS NULL)
RETURNING id, kind, size, pack

-- name: oldest
SELECT :CURRENT
FROM records CROSS JOIN profiles ON profiles.no = records.profile
WHERE key BETWEEN ? AND ? AND state IN ('active', 'archived') AND (keep_for IS NULL OR aged_from + keep_for <= ?)
ORDER BY aged_from, key LIMIT ?

-- name: changed_ids
SELECT DISTINCT value FROM changes, json_each(ids) WHERE scope = ? AND seq > ?

-- name: log_change
INSERT INTO changes (scope, seq, ids) VALUES (?, ?, ?)

-- name: scope
SELECT seq, floor, next, memories, bytes FROM scopes WHERE scope = ?

-- What is counted of the kind of a record.
-- name: scope_of
SELECT seq, floor, next, memories, bytes FROM scopes
WHERE scope = ?2 << :KIND_BITS | (SELECT kind FROM records WHERE id = ?1 AND subject = ?2)

-- name: forget_changes
DELETE FROM changes WHERE scope = ? AND seq <= ?

-- name: move_keeping
UPDATE records SET state = ?2, previous = state, version = version + 1, moved_at = ?3, reason = ?4,
                   purge_at = CASE WHEN ?2 = 'deleting' THEN coalesce(?5, purge_at, ?3) ELSE ?5 END, bundle = ?6,
                   aged_from = coalesce(?7, aged_from), pack = ?8, model = ?9, size = ?11, vectors = ?12, terms = ?13,
                   metadata = ?14, content = ?15, body = ?16
WHERE key = ?10 AND subject = ?1
