-- name: opened
SELECT sessions.no AS number, id, version, summary, aged_from + delete_after AS hidden_from,
       coalesce((SELECT max(key) + 1 FROM history WHERE history.subject = $1
                 AND key BETWEEN sessions.no << :MESSAGE_BITS AND (sessions.no + 1 << :MESSAGE_BITS) - 1), sessions.no << :MESSAGE_BITS) AS next_key
FROM sessions JOIN profiles ON profiles.no = sessions.profile
WHERE subject = $1 AND agent_id = $2 AND session_id = $3 AND state = 'active' AND aside = 0
  AND NOT EXISTS (SELECT 1 FROM registry WHERE registry.tenant = $4 AND sort = 'agent' AND registry.id = $2
                  AND registry.state <> 'active')

-- name: unnoted
SELECT (asked.place - 1)::bigint AS place
FROM jsonb_array_elements($1::jsonb) WITH ORDINALITY AS asked (value, place)
JOIN subjects ON subjects.subject = $2::text || '/' || (asked.value ->> 1)
JOIN sessions ON sessions.subject = subjects.no AND agent_id = asked.value ->> 2 AND session_id = asked.value ->> 0
WHERE state = 'active' AND aside = 0 AND (part_state IS NULL OR updated_at < coalesce((asked.value ->> 3)::bigint, $3::bigint))

-- Of those that parts hold something for: which are there, or have gone without them.
-- name: known_to_parts
SELECT (asked.place - 1)::bigint AS place
FROM jsonb_array_elements($1::jsonb) WITH ORDINALITY AS asked (value, place)
JOIN subjects ON subjects.subject = $2::text || '/' || (asked.value ->> 1)
JOIN sessions ON sessions.subject = subjects.no AND agent_id = asked.value ->> 2 AND session_id = asked.value ->> 0
WHERE state = 'active' AND aside = 0 OR part_state <> state

-- name: end_session
DELETE FROM sessions
WHERE subject = $2 AND no = $1 AND NOT EXISTS (SELECT 1 FROM history WHERE subject = $2 AND key BETWEEN $3 AND $4)

-- name: append
INSERT INTO history (subject, key, id, role, created_at, metadata, external_id, content)
VALUES ($1, $2, $3, $4, $5, $6, $7, packed($8))

-- name: next_place
SELECT coalesce(max(key) + 1, $2) FROM history WHERE subject = $1 AND key BETWEEN $2 AND $3

-- name: named_messages
SELECT external_id, id FROM history
WHERE subject = $1 AND key BETWEEN $2 AND $3 AND purge_at IS NULL
  AND external_id = ANY (ARRAY(SELECT jsonb_array_elements_text($4::jsonb)))
ORDER BY key DESC

-- name: last_messages
SELECT id, role, content, created_at, metadata, external_id FROM history
WHERE subject = $1 AND key BETWEEN $2 AND $3 AND purge_at IS NULL
  AND ($5::text IS NULL OR key < (SELECT earlier.key FROM history AS earlier
                                  WHERE earlier.subject = $1 AND earlier.key BETWEEN $2 AND $3 AND earlier.id = $5))
ORDER BY key DESC LIMIT nullif($4::bigint, -1)

-- The 0 before a text that is stored as it is counts for nothing.
-- name: messages_to_remove
SELECT key, id, metadata, :STORED_SIZE AS size FROM history
WHERE subject = $1 AND key BETWEEN $2 AND $3 AND purge_at IS NULL
  AND id = ANY (ARRAY(SELECT jsonb_array_elements_text($4::jsonb)))

-- name: messages_to_hold
SELECT id, metadata FROM history
WHERE subject = $1 AND key BETWEEN $2 AND $3
  AND ($4::boolean OR id = ANY (ARRAY(SELECT jsonb_array_elements_text($5::jsonb))))

-- name: bin_message
UPDATE history SET purge_at = $2 WHERE subject = $1 AND key = $3

-- name: binned_message
SELECT history.key, history.purge_at, :STORED_SIZE AS size, sessions.no AS session, agent_id, session_id, state
FROM history JOIN sessions ON sessions.subject = history.subject AND sessions.no = history.key >> :MESSAGE_BITS
WHERE history.purge_at IS NOT NULL AND history.id = $1 AND history.subject = $2

-- name: said
SELECT history.id, role, content, history.created_at, metadata, external_id, history.purge_at, history.key, '' AS subject, agent_id,
       session_id, sessions.id AS session
FROM history JOIN sessions ON sessions.subject = history.subject AND sessions.no = history.key >> :MESSAGE_BITS
JOIN profiles ON profiles.no = sessions.profile
WHERE history.subject = $1 AND history.id = $2

-- name: binned_messages
SELECT history.id, role, content, history.created_at, metadata, external_id, history.purge_at, history.key, subjects.subject, agent_id,
       nullif(session_id, '') AS session_id
FROM history JOIN sessions ON sessions.subject = history.subject AND sessions.no = history.key >> :MESSAGE_BITS
JOIN subjects ON subjects.no = sessions.subject
WHERE history.purge_at > $1 AND (history.purge_at, history.key) > ($2, $3) AND sessions.state = 'active'
  AND (subjects.subject < $4::text || '/' OR subjects.subject >= $4::text || '0') IS NOT TRUE
  AND CASE WHEN $5::text IS NULL THEN true ELSE subjects.subject = $5 END
ORDER BY history.purge_at, history.key LIMIT $6

-- name: messages_to_purge
SELECT history.key, history.id, history.purge_at, subjects.subject, agent_id, nullif(session_id, '') AS session_id, metadata,
       sessions.subject AS number, :STORED_SIZE AS size, sessions.no, sessions.id AS item_id,
       sessions.state IN ('recycled', 'deleting') AND sessions.purge_at <= $1 AS is_over
FROM history JOIN sessions ON sessions.subject = history.subject AND sessions.no = history.key >> :MESSAGE_BITS
JOIN subjects ON subjects.no = sessions.subject
WHERE history.purge_at <= $1 AND (history.purge_at, history.key) > ($2, $3)
  AND (subjects.subject < $4::text || '/' OR subjects.subject >= $4::text || '0') IS NOT TRUE
ORDER BY history.purge_at, history.key LIMIT $5

-- name: erase_message
DELETE FROM history WHERE subject = $1 AND key = $2 AND purge_at <= $3

-- name: take_back_message
DELETE FROM history WHERE subject = $1 AND key = $2

-- name: erase_messages
DELETE FROM history
WHERE subject = $1
  AND key = ANY (ARRAY(SELECT key FROM history WHERE subject = $1 AND key BETWEEN $2 AND $3 ORDER BY key LIMIT $4))

-- name: count_rows
SELECT count(*) FROM history WHERE subject = $1 AND key BETWEEN $2 AND $3

-- One that is being kept at this moment has another expiry by the time it would go, and stays.
-- name: end_expired
DELETE FROM short_windows
WHERE expires_at = ANY (ARRAY(SELECT expires_at FROM short_windows WHERE expires_at <= $1 ORDER BY expires_at, no LIMIT $2))
  AND no = ANY (ARRAY(SELECT no FROM short_windows WHERE expires_at <= $1 ORDER BY expires_at, no LIMIT $2))

-- name: append_short
INSERT INTO short_messages (subject, "window", id, role, created_at, metadata, external_id, content)
VALUES ($1, $2, $3, $4, $5, $6, $7, packed($8)) ON CONFLICT DO NOTHING

-- name: short_messages
SELECT id, role, content, created_at, metadata, external_id FROM short_messages WHERE subject = $1 AND "window" = $2 ORDER BY place

-- name: short_ids
SELECT string_agg(id, chr(31)) FROM short_messages WHERE subject = $1 AND "window" = $2

-- name: remove_short
DELETE FROM short_messages WHERE subject = $1 AND "window" = $2 AND id = $3

-- name: count_short
SELECT count(*) FROM short_messages WHERE subject = $1 AND "window" = $2

-- name: trim_short
DELETE FROM short_messages
WHERE subject = $1 AND "window" = $2
  AND place = ANY (ARRAY(SELECT place FROM short_messages WHERE subject = $1 AND "window" = $2 ORDER BY place LIMIT $3))
