-- A tenant's subjects are a range, here written as what is not outside of it: so no plan begins with all of them.
-- name: session
SELECT :SESSION
FROM sessions JOIN profiles ON profiles.no = sessions.profile JOIN subjects ON subjects.no = sessions.subject
WHERE sessions.subject = $1 AND agent_id = $2 AND session_id = $3 AND state = 'active' AND aside = 0

-- name: visible_session
SELECT :SESSION
FROM sessions JOIN profiles ON profiles.no = sessions.profile JOIN subjects ON subjects.no = sessions.subject
WHERE sessions.subject = $1 AND subjects.subject = $2 AND agent_id = $3 AND session_id = $4
  AND state = 'active' AND aside = 0 AND (delete_after IS NULL OR aged_from + delete_after > $5)
  AND NOT EXISTS (SELECT 1 FROM registry WHERE registry.tenant = $6 AND sort = 'agent' AND registry.id = $3
                  AND registry.state <> 'active')

-- name: session_by_id
SELECT :SESSION
FROM sessions JOIN profiles ON profiles.no = sessions.profile JOIN subjects ON subjects.no = sessions.subject
WHERE sessions.id = $1 AND sessions.subject = $2

-- name: new_session
INSERT INTO sessions (subject, agent_id, session_id, id, state, version, profile, created_at, updated_at, aged_from,
                      messages, size, summary)
VALUES ($1, $2, $3, $4, 'active', 1, $5, $6, $6, $6, 0, 0, '') ON CONFLICT DO NOTHING

-- name: touch_session
UPDATE sessions SET version = version + 1, updated_at = greatest(updated_at, $2), aged_from = greatest(aged_from, $2),
                    messages = messages + $3, size = size + $4, summary = $5
WHERE subject = $1 AND no = $6

-- name: count_messages
UPDATE sessions SET version = version + 1, messages = messages + $2, size = size + $3, summary = coalesce($4, summary)
WHERE subject = $1 AND no = $5

-- name: sessions_to_summarize
SELECT :SESSION
FROM sessions JOIN profiles ON profiles.no = sessions.profile
JOIN subjects ON subjects.no = sessions.subject
WHERE sessions.no > $1 AND state = 'active' AND aside = 0 AND summarized <> version AND messages > 0 AND updated_at <= $2
  AND (delete_after IS NULL OR aged_from + delete_after > $3)
  AND subjects.subject >= $4::text || '/' AND subjects.subject < $4::text || '0'
ORDER BY sessions.no LIMIT $5

-- name: save_summary
UPDATE sessions SET version = version + 1, summarized = version + 1, summary = $4
WHERE subject = $1 AND id = $2 AND version = $3 AND state = 'active'

-- name: move_session
UPDATE sessions SET state = $2, version = version + 1, moved_at = $3, reason = $4, purge_at = $5, bundle = $6,
                    aged_from = coalesce($7, aged_from), aside = 0
WHERE subject = $1 AND no = $8

-- What is being deleted stays where a sweep looks for it.
-- name: claim_session
UPDATE sessions SET state = $2, version = version + 1, moved_at = $3, reason = $4, purge_at = coalesce($5, purge_at, $3)
WHERE subject = $1 AND no = $6

-- name: give_up_name
UPDATE sessions SET aside = no WHERE subject = $1 AND no = $2

-- name: note_parts
UPDATE sessions SET version = version + 1, updated_at = greatest(updated_at, $4), aged_from = greatest(aged_from, $4),
                    part_state = coalesce(part_state, 'active'), size = size - part_size + $5, part_size = $5
WHERE subject = $1 AND agent_id = $2 AND session_id = $3 AND state = 'active' AND aside = 0

-- name: behind
SELECT :SESSION
FROM sessions INDEXED BY sessions_behind JOIN profiles ON profiles.no = sessions.profile
JOIN subjects ON subjects.no = sessions.subject
WHERE part_state <> state AND sessions.no > $1 AND state <> 'deleting'
  AND (subjects.subject < $2::text || '/' OR subjects.subject >= $2::text || '0') IS NOT TRUE
ORDER BY sessions.no LIMIT $3

-- name: some
SELECT no FROM sessions LIMIT 1

-- name: count_behind
SELECT count(*) FROM sessions INDEXED BY sessions_behind WHERE part_state <> state AND state <> 'deleting'

-- name: note_followed
UPDATE sessions SET part_state = $3, size = CASE WHEN $3::text IS NULL THEN size - part_size ELSE size END,
                    part_size = CASE WHEN $3::text IS NULL THEN 0 ELSE part_size END
WHERE subject = $1 AND no = $2 AND state = $4

-- name: known
SELECT id FROM sessions WHERE id IN LIST($1)

-- name: follow_anew
UPDATE sessions SET part_state = '' WHERE part_state IS NOT NULL

-- name: sessions
SELECT :SESSION
FROM sessions INDEXED BY sessions_active JOIN profiles ON profiles.no = sessions.profile
JOIN subjects ON subjects.no = sessions.subject
WHERE sessions.subject = $1 AND state = 'active' AND aside = 0 AND ($2::text IS NULL OR agent_id = $2)
  AND (delete_after IS NULL OR aged_from + delete_after > $3)
  AND NOT EXISTS (SELECT 1 FROM registry
                  WHERE registry.tenant = $4 AND sort = 'agent' AND registry.id = agent_id AND registry.state <> 'active')
ORDER BY sessions.updated_at DESC, sessions.no DESC

-- name: owners
SELECT substr(subjects.subject, length($4::text) + 2)
FROM sessions INDEXED BY sessions_by_agent JOIN subjects ON subjects.no = sessions.subject
JOIN profiles ON profiles.no = sessions.profile
WHERE agent_id = $1 AND session_id = $2 AND state = 'active' AND aside = 0
  AND (delete_after IS NULL OR aged_from + delete_after > $3)
  AND (subjects.subject < $4::text || '/' OR subjects.subject >= $4::text || '0') IS NOT TRUE
  AND NOT EXISTS (SELECT 1 FROM registry
                  WHERE registry.tenant = $4 AND sort = 'agent' AND registry.id = $1 AND registry.state <> 'active')
ORDER BY subjects.subject

-- name: window
SELECT no, expires_at, session FROM short_windows WHERE subject = $1 AND agent_id = $2 AND session_id = $3

-- name: new_window
INSERT INTO short_windows (subject, agent_id, session_id, expires_at, session) VALUES ($1, $2, $3, $4, $5) RETURNING no

-- name: keep_window
UPDATE short_windows SET expires_at = $2 WHERE subject = $1 AND no = $3

-- name: end_window
DELETE FROM short_windows WHERE subject = $1 AND agent_id = $2 AND session_id = $3

-- name: end_window_of_session
DELETE FROM short_windows WHERE subject = $1 AND agent_id = $2 AND session_id = $3 AND session = $4

-- name: end_windows_of_user
DELETE FROM short_windows WHERE subject = $1

-- name: windows_of_user
SELECT no, agent_id, session_id, expires_at FROM short_windows WHERE subject = $1 ORDER BY no

-- name: end_windows_of_agent
DELETE FROM short_windows
WHERE agent_id = $1
  AND subject IN (SELECT no FROM subjects WHERE subjects.subject >= $2::text || '/' AND subjects.subject < $2::text || '0')
