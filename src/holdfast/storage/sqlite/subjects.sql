-- name: messages
SELECT id, role, content, created_at, metadata, external_id, purge_at, key FROM history
WHERE ?1 IS NOT NULL
  AND key IN (SELECT key FROM (SELECT key, sum(size) OVER (ORDER BY key) - size AS before
                               FROM (SELECT key, octet_length(content) AS size FROM history
                                     WHERE ?1 IS NOT NULL AND key BETWEEN ?2 AND ?3 ORDER BY key LIMIT ?4) AS page) AS sizes
              WHERE before < ?5)
ORDER BY key

-- name: with_alias
SELECT lower(hex(alias)) AS alias, subject FROM subjects
WHERE alias IN (SELECT unhex(value) FROM json_each(?)) AND subject >= char(2) ORDER BY no

-- What a hold may be on: memories, conversations, and messages.
-- name: things
SELECT agent_id, session_id, id, metadata FROM records
WHERE key BETWEEN ?1 << :KEY_BITS AND ((?1 + 1) << :KEY_BITS) - 1 AND state != 'deleting'
UNION ALL
SELECT agent_id, nullif(session_id, ''), id, '{}' FROM sessions WHERE subject = ?1
UNION ALL
SELECT agent_id, nullif(session_id, ''), history.id, metadata
FROM sessions CROSS JOIN history ON history.key BETWEEN sessions.no << :MESSAGE_BITS AND ((sessions.no + 1) << :MESSAGE_BITS) - 1
WHERE subject = ?1

-- name: kinds
SELECT kind, count(*) AS records, count(*) FILTER (WHERE state IN ('active', 'archived')) AS live
FROM records WHERE key BETWEEN ?1 << :KEY_BITS AND ((?1 + 1) << :KEY_BITS) - 1 GROUP BY kind

-- Rows of a subject, by the table they are in.
-- name: rows
SELECT 'memories' AS name, count(*) AS rows FROM records WHERE key BETWEEN ?1 << :KEY_BITS AND ((?1 + 1) << :KEY_BITS) - 1
UNION ALL SELECT 'facts', count(*) FROM facts WHERE subject = ?1
UNION ALL SELECT 'texts that are kept out', count(*) FROM kept_out WHERE subject = ?1
UNION ALL SELECT 'conversations', count(*) FROM sessions WHERE subject = ?1
UNION ALL
SELECT 'messages', count(*)
FROM sessions CROSS JOIN history ON history.key BETWEEN sessions.no << :MESSAGE_BITS AND ((sessions.no + 1) << :MESSAGE_BITS) - 1
WHERE subject = ?1
UNION ALL
SELECT 'short-term messages', count(*)
FROM short_windows CROSS JOIN short_messages ON short_messages.window = short_windows.no WHERE subject = ?1
UNION ALL SELECT 'notes of cold objects', count(*) FROM packs WHERE subject = ?1
UNION ALL
SELECT 'indexes and counters', (SELECT count(*) FROM scopes WHERE scope BETWEEN ?1 << :KIND_BITS AND (?1 << :KIND_BITS) + :LAST_KIND)
                             + (SELECT count(*) FROM changes WHERE scope BETWEEN ?1 << :KIND_BITS AND (?1 << :KIND_BITS) + :LAST_KIND)
                             + (SELECT count(*) FROM derivations WHERE subject = ?1)
                             + (SELECT count(*) FROM versions WHERE subject = ?1)
                             + (SELECT count(*) FROM short_windows WHERE subject = ?1)
                             + (SELECT count(*) FROM totals WHERE subject = ?1)

-- name: remove_records
DELETE FROM records
WHERE key IN (SELECT key FROM records WHERE key BETWEEN ?1 << :KEY_BITS AND ((?1 + 1) << :KEY_BITS) - 1 ORDER BY key LIMIT ?2)

-- name: remove_history
DELETE FROM history
WHERE key IN (SELECT history.key
              FROM sessions CROSS JOIN history ON history.key BETWEEN sessions.no << :MESSAGE_BITS AND ((sessions.no + 1) << :MESSAGE_BITS) - 1
              WHERE subject = ?1 LIMIT ?2)

-- name: remove_sessions
DELETE FROM sessions WHERE no IN (SELECT no FROM sessions WHERE subject = ?1 ORDER BY no LIMIT ?2)

-- name: remove_short_windows
DELETE FROM short_windows WHERE no IN (SELECT no FROM short_windows WHERE subject = ?1 ORDER BY no LIMIT ?2)

-- name: remove_changes
DELETE FROM changes
WHERE (scope, seq) IN (SELECT scope, seq FROM changes WHERE scope BETWEEN ?1 << :KIND_BITS AND (?1 << :KIND_BITS) + :LAST_KIND LIMIT ?2)

-- name: remove_scopes
DELETE FROM scopes WHERE scope BETWEEN ?1 << :KIND_BITS AND (?1 << :KIND_BITS) + :LAST_KIND

-- name: sessions_of
SELECT session_id FROM records
WHERE key BETWEEN ?1 << :KEY_BITS AND ((?1 + 1) << :KEY_BITS) - 1 AND session_id IN (SELECT value FROM json_each(?2))
UNION SELECT session_id FROM sessions WHERE subject = ?1 AND session_id IN (SELECT value FROM json_each(?2))
UNION SELECT session_id FROM short_windows WHERE subject = ?1 AND session_id IN (SELECT value FROM json_each(?2))

-- Of all others in the tenant, whose names lie between the last two.
-- name: sessions_of_others
WITH others AS (SELECT no FROM subjects WHERE subject >= ?3 AND subject < ?4 AND no != ?1),
     named AS (SELECT value FROM json_each(?2))
SELECT session_id FROM records
WHERE session_id IN (SELECT value FROM named) AND subject IN (SELECT no FROM others)
UNION SELECT session_id FROM sessions
WHERE session_id IN (SELECT value FROM named) AND subject IN (SELECT no FROM others)
UNION SELECT session_id FROM short_windows
WHERE session_id IN (SELECT value FROM named) AND subject IN (SELECT no FROM others)

-- What is left of rules that are gone.
-- name: remove_profiles
DELETE FROM profiles
WHERE rules != '[]' AND EXISTS (SELECT 1 FROM json_each(profiles.rules) WHERE value NOT IN (SELECT no FROM rules))

-- One row for each user of a page, one for each kind that there are records of, and one for conversations (kind 0): how
-- many are live, and when the newest was made or last active.
-- name: users
WITH page AS MATERIALIZED (SELECT no, subject FROM subjects WHERE subject > ?1 AND subject < ?2 ORDER BY subject LIMIT ?3),
counts AS (SELECT page.subject, scope & :LAST_KIND AS kind, memories,
                  (SELECT created_at FROM records WHERE key BETWEEN scope << :COUNT_BITS AND (scope + 1 << :COUNT_BITS) - 1
                   ORDER BY key DESC LIMIT 1) AS latest
           FROM page CROSS JOIN scopes ON scope BETWEEN no << :KIND_BITS AND no << :KIND_BITS | :LAST_KIND)
SELECT subject, NULL AS kind, 0 AS live, NULL AS latest FROM page
UNION ALL
SELECT subject, kind, memories, latest FROM counts WHERE latest IS NOT NULL
UNION ALL
SELECT page.subject, 0, sum(state = 'active'), max(updated_at)
FROM page CROSS JOIN sessions ON sessions.subject = page.no GROUP BY page.no
