-- name: opened
SELECT sessions.no AS number, id, version, summary, aged_from + delete_after AS hidden_from,
       ifnull((SELECT max(key) + 1 FROM history
               WHERE key BETWEEN sessions.no << :MESSAGE_BITS AND (sessions.no + 1 << :MESSAGE_BITS) - 1), sessions.no << :MESSAGE_BITS) AS next_key
FROM sessions CROSS JOIN profiles ON profiles.no = sessions.profile
WHERE subject = ?1 AND agent_id = ?2 AND session_id = ?3 AND state = 'active' AND aside = 0
  AND NOT EXISTS (SELECT 1 FROM registry WHERE registry.tenant = ?4 AND sort = 'agent' AND registry.id = ?2
                  AND registry.state <> 'active')

-- name: unnoted
SELECT asked.key AS place FROM json_each(?1) AS asked
CROSS JOIN subjects ON subjects.subject = ?2 || '/' || (asked.value ->> 1)
CROSS JOIN sessions INDEXED BY sessions_active
  ON sessions.subject = subjects.no AND agent_id = asked.value ->> 2 AND session_id = asked.value ->> 0
WHERE state = 'active' AND aside = 0 AND (part_state IS NULL OR updated_at < ifnull(asked.value ->> 3, ?3))

-- Of those that parts hold something for: which are there, or have gone without them.
-- name: known_to_parts
SELECT asked.key AS place FROM json_each(?1) AS asked
CROSS JOIN subjects ON subjects.subject = ?2 || '/' || (asked.value ->> 1)
CROSS JOIN sessions INDEXED BY sessions_by_agent
  ON sessions.subject = subjects.no AND agent_id = asked.value ->> 2 AND session_id = asked.value ->> 0
WHERE state = 'active' AND aside = 0 OR part_state <> state

-- name: end_session
DELETE FROM sessions
WHERE no = ?1 AND subject = ?2 AND NOT EXISTS (SELECT 1 FROM history WHERE key BETWEEN ?3 AND ?4)

-- name: append
INSERT INTO history (key, id, role, created_at, metadata, external_id, content)
SELECT ?2, ?3, ?4, ?5, ?6, ?7, ?8 WHERE ?1 IS NOT NULL
ON CONFLICT DO NOTHING

-- name: next_place
SELECT ifnull(max(key) + 1, ?2) FROM history WHERE ?1 IS NOT NULL AND key BETWEEN ?2 AND ?3

-- name: named_messages
SELECT external_id, id FROM history
WHERE ?1 IS NOT NULL AND key BETWEEN ?2 AND ?3 AND purge_at IS NULL AND external_id IN (SELECT value FROM json_each(?4))
ORDER BY key DESC

-- name: last_messages
SELECT id, role, content, created_at, metadata, external_id FROM history
WHERE ?1 IS NOT NULL AND key BETWEEN ?2 AND ?3 AND purge_at IS NULL
  AND (?5 IS NULL OR key < (SELECT earlier.key FROM history AS earlier WHERE earlier.key BETWEEN ?2 AND ?3 AND earlier.id = ?5))
ORDER BY key DESC LIMIT ?4

-- name: messages_to_remove
SELECT key, id, metadata, :STORED_SIZE AS size FROM history
WHERE ?1 IS NOT NULL AND key BETWEEN ?2 AND ?3 AND purge_at IS NULL AND id IN (SELECT value FROM json_each(?4))

-- name: messages_to_hold
SELECT id, metadata FROM history
WHERE ?1 IS NOT NULL AND key BETWEEN ?2 AND ?3 AND (?4 OR id IN (SELECT value FROM json_each(?5)))

-- name: bin_message
UPDATE history SET purge_at = ?2 WHERE ?1 IS NOT NULL AND key = ?3

-- name: binned_message
SELECT history.key, history.purge_at, :STORED_SIZE AS size, sessions.no AS session, agent_id, session_id, state
FROM history INDEXED BY history_binned CROSS JOIN sessions ON sessions.no = history.key >> :MESSAGE_BITS
WHERE history.purge_at IS NOT NULL AND history.id = ? AND sessions.subject = ?

-- Those in the recycle bin have an index of their own.
-- name: said
SELECT history.id, role, content, history.created_at, metadata, external_id, history.purge_at, history.key, '' AS subject, agent_id,
       session_id, sessions.id AS session
FROM (SELECT no AS number FROM sessions WHERE subject = ?1 AND state = 'active'
      UNION ALL
      SELECT no FROM sessions WHERE subject = ?1 AND state IN ('recycled', 'deleting')) AS theirs
CROSS JOIN history ON history.key BETWEEN theirs.number << :MESSAGE_BITS AND (theirs.number + 1 << :MESSAGE_BITS) - 1
CROSS JOIN sessions ON sessions.no = theirs.number
WHERE history.id = ?2

-- name: binned_messages
SELECT history.id, role, content, history.created_at, metadata, external_id, history.purge_at, history.key, subjects.subject, agent_id,
       nullif(session_id, '') AS session_id
FROM history INDEXED BY history_binned CROSS JOIN sessions ON sessions.no = history.key >> :MESSAGE_BITS
CROSS JOIN subjects ON subjects.no = sessions.subject
WHERE history.purge_at > ?1 AND (history.purge_at, history.key) > (?2, ?3) AND sessions.state = 'active'
  AND subjects.subject >= ?4 || '/' AND subjects.subject < ?4 || '0' AND (?5 IS NULL OR subjects.subject = ?5)
ORDER BY history.purge_at, history.key LIMIT ?6

-- name: messages_to_purge
SELECT history.key, history.id, history.purge_at, subjects.subject, agent_id, nullif(session_id, '') AS session_id, metadata,
       sessions.subject AS number, :STORED_SIZE AS size, sessions.no, sessions.id AS item_id,
       sessions.state IN ('recycled', 'deleting') AND sessions.purge_at <= ?1 AS is_over
FROM history INDEXED BY history_binned CROSS JOIN sessions ON sessions.no = history.key >> :MESSAGE_BITS
CROSS JOIN subjects ON subjects.no = sessions.subject
WHERE history.purge_at <= ?1 AND (history.purge_at, history.key) > (?2, ?3)
  AND subjects.subject >= ?4 || '/' AND subjects.subject < ?4 || '0'
ORDER BY history.purge_at, history.key LIMIT ?5

-- name: erase_message
DELETE FROM history WHERE ?1 IS NOT NULL AND key = ?2 AND purge_at <= ?3

-- name: take_back_message
DELETE FROM history WHERE ?1 IS NOT NULL AND key = ?2

-- name: erase_messages
DELETE FROM history WHERE key IN (SELECT key FROM history WHERE ?1 IS NOT NULL AND key BETWEEN ?2 AND ?3 LIMIT ?4)

-- name: count_rows
SELECT count(*) FROM history WHERE ?1 IS NOT NULL AND key BETWEEN ?2 AND ?3

-- name: end_expired
DELETE FROM short_windows WHERE no IN (SELECT no FROM short_windows WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)

-- name: append_short
INSERT INTO short_messages (window, id, role, created_at, metadata, external_id, content)
SELECT ?2, ?3, ?4, ?5, ?6, ?7, ?8 WHERE ?1 IS NOT NULL

-- name: short_messages
SELECT id, role, content, created_at, metadata, external_id FROM short_messages WHERE ?1 IS NOT NULL AND window = ?2 ORDER BY rowid

-- name: short_ids
SELECT string_agg(id, char(31)) FROM short_messages WHERE ?1 IS NOT NULL AND window = ?2

-- name: remove_short
DELETE FROM short_messages WHERE ?1 IS NOT NULL AND window = ?2 AND id = ?3

-- name: count_short
SELECT count(*) FROM short_messages WHERE ?1 IS NOT NULL AND window = ?2

-- name: trim_short
DELETE FROM short_messages
WHERE ?1 IS NOT NULL AND window = ?2 AND id IN (SELECT id FROM short_messages WHERE window = ?2 ORDER BY rowid LIMIT ?3)
