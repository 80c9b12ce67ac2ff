-- name: session
SELECT no, messages FROM sessions WHERE subject = ? AND agent_id = ? AND session_id = ?

-- name: new_session
INSERT INTO sessions (subject, agent_id, session_id, created_at, updated_at, messages) VALUES (?, ?, ?, ?, ?, 0)
RETURNING no, messages

-- name: touch_session
UPDATE sessions SET updated_at = max(updated_at, ?), messages = ? WHERE no = ?

-- name: append
INSERT INTO history (key, id, role, created_at, metadata, content) VALUES (?, ?, ?, ?, ?, ?)

-- name: next_place
SELECT ifnull(max(key) + 1, ?1) FROM history WHERE key BETWEEN ?1 AND ?2

-- name: remove
DELETE FROM history WHERE key BETWEEN ? AND ? AND id IN (SELECT value FROM json_each(?))

-- name: count_down
UPDATE sessions SET messages = messages - ? WHERE no = ?

-- name: last_messages
SELECT id, role, content, created_at, metadata FROM history WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT ?

-- name: sessions
SELECT agent_id, session_id, created_at, updated_at, messages FROM sessions
WHERE subject = ? AND (?2 IS NULL OR agent_id = ?2) ORDER BY updated_at DESC, no DESC

-- name: owners
SELECT subjects.subject FROM sessions JOIN subjects ON subjects.no = sessions.subject
WHERE sessions.agent_id = ? AND sessions.session_id = ? ORDER BY subjects.subject

-- name: window
SELECT no, expires_at FROM short_windows WHERE subject = ? AND agent_id = ? AND session_id = ?

-- name: new_window
INSERT INTO short_windows (subject, agent_id, session_id, expires_at) VALUES (?, ?, ?, ?) RETURNING no

-- name: keep_window
UPDATE short_windows SET expires_at = ? WHERE no = ?

-- name: end_window
DELETE FROM short_windows WHERE subject = ? AND agent_id = ? AND session_id = ?

-- name: end_expired
DELETE FROM short_windows WHERE no IN (SELECT no FROM short_windows WHERE expires_at <= ? ORDER BY expires_at LIMIT 16)

-- name: append_short
INSERT INTO short_messages (window, id, role, created_at, metadata, content) VALUES (?, ?, ?, ?, ?, ?)

-- name: short_messages
SELECT id, role, content, created_at, metadata FROM short_messages WHERE window = ? ORDER BY rowid

-- name: remove_short
DELETE FROM short_messages WHERE window = ? AND id = ?

-- name: count_short
SELECT count(*) FROM short_messages WHERE window = ?

-- name: trim_short
DELETE FROM short_messages
WHERE window = ? AND id IN (SELECT id FROM short_messages WHERE window = ? ORDER BY rowid LIMIT ?)
