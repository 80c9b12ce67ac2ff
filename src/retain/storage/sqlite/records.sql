-- name: subject_no
SELECT no FROM subjects WHERE subject = ?

-- name: new_subject
INSERT INTO subjects (subject) VALUES (?) RETURNING no

-- name: subjects_of_tenant
SELECT subject FROM subjects WHERE subject >= :tenant || '/' AND subject < :tenant || '0' ORDER BY subject

-- name: scope
SELECT seq, floor, next, memories, bytes FROM scopes WHERE scope = ?

-- name: put_scope
INSERT INTO scopes (scope, seq, floor, next, memories, bytes) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (scope) DO UPDATE
SET seq = excluded.seq, floor = excluded.floor, next = excluded.next, memories = excluded.memories, bytes = excluded.bytes

-- name: quotas
SELECT user_id, max_memories, max_bytes FROM quotas WHERE tenant = ? AND user_id IN ('', ?) AND kind = ?

-- name: quota
SELECT max_memories, max_bytes FROM quotas WHERE tenant = ? AND user_id = ? AND kind = ?

-- name: put_quota
INSERT OR REPLACE INTO quotas (tenant, user_id, kind, max_memories, max_bytes) VALUES (?, ?, ?, ?, ?)

-- name: model
SELECT code FROM models WHERE id = ?

-- name: current_model
SELECT id FROM models WHERE current

-- name: adopt_model
UPDATE models SET current = (code = ?)

-- name: new_model
INSERT INTO models (id) VALUES (?) RETURNING code

-- name: insert
INSERT INTO records (key, subject, kind, id, state, version, agent_id, session_id, name, created_at, updated_at,
                     dated_at, hidden_from, size, model, vectors, terms, metadata, content, body)
VALUES (?, ?, ?, ?, 'active', 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: get
SELECT kind, id, state, version, agent_id, session_id, name, created_at, updated_at, dated_at, hidden_from,
       metadata, content, body, previous
FROM records WHERE id = ? AND subject = ?

-- name: fetch
SELECT kind, id, state, version, agent_id, session_id, name, created_at, updated_at, dated_at, hidden_from,
       metadata, content, body, previous
FROM records
WHERE id IN (SELECT value FROM json_each(?)) AND subject = ? AND state IN ('active', 'archived')
  AND (hidden_from IS NULL OR hidden_from > ?)

-- name: get_named
SELECT kind, id, state, version, agent_id, session_id, name, created_at, updated_at, dated_at, hidden_from,
       metadata, content, body, previous
FROM records
WHERE subject = ? AND kind = ? AND name = ? AND state IN ('active', 'archived')
  AND (hidden_from IS NULL OR hidden_from > ?)

-- name: standing
SELECT key, kind, state, previous, version, size FROM records WHERE id = ? AND subject = ?

-- name: replace
UPDATE records SET version = version + 1, name = ?, updated_at = ?, hidden_from = ?, size = ?, model = ?, vectors = ?,
                   terms = ?, metadata = ?, content = ?, body = ?
WHERE key = ?

-- name: move
UPDATE records SET state = ?, previous = state, version = version + 1, moved_at = ?, reason = ? WHERE key = ?

-- name: oldest
SELECT key, id, size, state, version FROM records
WHERE key BETWEEN ? AND ? AND state IN ('active', 'archived') ORDER BY dated_at, key LIMIT ?

-- name: embed
UPDATE records SET model = ?, vectors = ?, terms = ? WHERE key = ? AND version = ?

-- name: unembedded
SELECT kind, id, state, version, agent_id, session_id, name, created_at, updated_at, dated_at, hidden_from,
       metadata, content, body, previous
FROM records
WHERE key BETWEEN ? AND ? AND state IN ('active', 'archived') AND (model IS NOT ? OR vectors IS NULL) LIMIT ?

-- name: index_rows
SELECT id, agent_id, session_id, created_at, updated_at, hidden_from, state = 'archived', metadata,
       CASE WHEN model = ? THEN vectors END, terms
FROM records WHERE key BETWEEN ? AND ? AND state IN ('active', 'archived')

-- name: index_row
SELECT id, agent_id, session_id, created_at, updated_at, hidden_from, state = 'archived', metadata,
       CASE WHEN model = ? THEN vectors END, terms
FROM records WHERE id = ? AND subject = ? AND state IN ('active', 'archived')

-- name: changed_ids
SELECT DISTINCT id FROM changes WHERE scope = ? AND seq > ?

-- name: log_change
INSERT OR IGNORE INTO changes (scope, seq, id) VALUES (?, ?, ?)

-- name: forget_changes
DELETE FROM changes WHERE scope = ? AND seq <= ?
