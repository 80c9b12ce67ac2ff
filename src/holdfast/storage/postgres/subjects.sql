-- name: messages
SELECT id, role, content, created_at, metadata, external_id, purge_at, key FROM history
WHERE subject = $1
  AND key IN (SELECT key FROM (SELECT key, sum(size) OVER (ORDER BY key) - size AS before
                               FROM (SELECT key, octet_length(content) AS size FROM history
                                     WHERE subject = $1 AND key BETWEEN $2 AND $3 ORDER BY key LIMIT $4) AS page) AS sizes
              WHERE before < $5)
ORDER BY key

-- name: with_alias
SELECT encode(alias, 'hex') AS alias, subject FROM subjects
WHERE alias = ANY (ARRAY(SELECT decode(value, 'hex') FROM jsonb_array_elements_text($1::jsonb) AS given (value)))
  AND subject >= chr(2) ORDER BY no

-- What a hold may be on: memories, conversations, and messages.
-- name: things
SELECT agent_id, session_id, id, metadata FROM records WHERE subject = $1 AND state <> 'deleting'
UNION ALL
SELECT agent_id, nullif(session_id, ''), id, '{}' FROM sessions WHERE subject = $1
UNION ALL
SELECT agent_id, nullif(session_id, ''), history.id, metadata
FROM history JOIN sessions ON sessions.subject = history.subject AND sessions.no = history.key >> :MESSAGE_BITS
WHERE history.subject = $1

-- name: kinds
SELECT kind, count(*) AS records, count(*) FILTER (WHERE state IN ('active', 'archived')) AS live
FROM records WHERE subject = $1 GROUP BY kind

-- Rows of a subject, by the table they are in.
-- name: rows
SELECT 'memories' AS name, count(*) AS rows FROM records WHERE subject = $1
UNION ALL SELECT 'facts', count(*) FROM facts WHERE subject = $1
UNION ALL SELECT 'texts that are kept out', count(*) FROM kept_out WHERE subject = $1
UNION ALL SELECT 'conversations', count(*) FROM sessions WHERE subject = $1
UNION ALL SELECT 'messages', count(*) FROM history WHERE subject = $1
UNION ALL SELECT 'short-term messages', count(*) FROM short_messages WHERE subject = $1
UNION ALL SELECT 'notes of cold objects', count(*) FROM packs WHERE subject = $1
UNION ALL
SELECT 'indexes and counters', (SELECT count(*) FROM scopes WHERE subject = $1)
                             + (SELECT count(*) FROM changes WHERE subject = $1)
                             + (SELECT count(*) FROM derivations WHERE subject = $1)
                             + (SELECT count(*) FROM versions WHERE subject = $1)
                             + (SELECT count(*) FROM short_windows WHERE subject = $1)
                             + (SELECT count(*) FROM totals WHERE subject = $1)

-- Rows of what is made from a record go with it.
-- name: remove_records
DELETE FROM records
WHERE subject = $1 AND key IN (SELECT key FROM records WHERE subject = $1 ORDER BY key LIMIT $2)

-- name: remove_history
DELETE FROM history
WHERE subject = $1 AND key IN (SELECT key FROM history WHERE subject = $1 ORDER BY key LIMIT $2)

-- name: remove_sessions
DELETE FROM sessions WHERE subject = $1 AND no IN (SELECT no FROM sessions WHERE subject = $1 ORDER BY no LIMIT $2)

-- name: remove_short_windows
DELETE FROM short_windows
WHERE subject = $1 AND no IN (SELECT no FROM short_windows WHERE subject = $1 ORDER BY no LIMIT $2)

-- name: remove_changes
DELETE FROM changes
WHERE subject = $1 AND (scope, seq) IN (SELECT scope, seq FROM changes WHERE subject = $1 ORDER BY scope, seq LIMIT $2)

-- name: remove_scopes
DELETE FROM scopes WHERE subject = $1

-- name: sessions_of
SELECT session_id FROM records
WHERE subject = $1 AND session_id = ANY (ARRAY(SELECT jsonb_array_elements_text($2::jsonb)))
UNION SELECT session_id FROM sessions
WHERE subject = $1 AND session_id = ANY (ARRAY(SELECT jsonb_array_elements_text($2::jsonb)))
UNION SELECT session_id FROM short_windows
WHERE subject = $1 AND session_id = ANY (ARRAY(SELECT jsonb_array_elements_text($2::jsonb)))

-- Of all others in the tenant, whose names lie between the last two.
-- name: sessions_of_others
WITH others AS (SELECT no FROM subjects WHERE subject >= $3 AND subject < $4 AND no <> $1)
SELECT session_id FROM records
WHERE session_id = ANY (ARRAY(SELECT jsonb_array_elements_text($2::jsonb))) AND subject IN (SELECT no FROM others)
UNION SELECT session_id FROM sessions
WHERE session_id = ANY (ARRAY(SELECT jsonb_array_elements_text($2::jsonb))) AND subject IN (SELECT no FROM others)
UNION SELECT session_id FROM short_windows
WHERE session_id = ANY (ARRAY(SELECT jsonb_array_elements_text($2::jsonb))) AND subject IN (SELECT no FROM others)

-- What is left of rules that are gone.
-- name: remove_profiles
DELETE FROM profiles
WHERE rules <> '[]' AND EXISTS (SELECT 1 FROM jsonb_array_elements_text(profiles.rules::jsonb) AS named (no)
                                WHERE named.no::bigint NOT IN (SELECT rules.no FROM rules))

-- One row for each user of a page, one for each kind that there are records of, and one for conversations (kind 0): how
-- many are live, and when the newest was made or last active.
-- name: users
WITH page AS MATERIALIZED (
    SELECT no, subject FROM subjects WHERE subject > $1 AND subject < $2 ORDER BY subject LIMIT $3
)
SELECT subject, NULL::bigint AS kind, 0::bigint AS live, NULL::bigint AS latest FROM page
UNION ALL
SELECT page.subject, scope & :LAST_KIND, memories, created_at
FROM page JOIN scopes ON scopes.subject = page.no
CROSS JOIN LATERAL (SELECT created_at FROM records
                    WHERE records.subject = scopes.subject AND key BETWEEN scope << :COUNT_BITS AND (scope + 1 << :COUNT_BITS) - 1
                    ORDER BY key DESC LIMIT 1) AS latest
UNION ALL
SELECT page.subject, 0, count(*) FILTER (WHERE state = 'active'), max(updated_at)
FROM page JOIN sessions ON sessions.subject = page.no GROUP BY page.subject
