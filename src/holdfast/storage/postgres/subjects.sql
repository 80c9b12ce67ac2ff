-- A subject that is being erased has a name that no user can have; it begins with a control character.

-- name: alias
SELECT alias FROM subjects WHERE no = $1

-- name: with_alias
SELECT encode(alias, 'hex'), subject FROM subjects
WHERE alias = ANY (ARRAY(SELECT decode(value, 'hex') FROM jsonb_array_elements_text($1::jsonb) AS given (value)))
  AND subject >= chr(2) ORDER BY no

-- name: rename
UPDATE subjects SET subject = $1 WHERE no = $2

-- name: tombstones
SELECT no, subject FROM subjects WHERE subject >= chr(1) AND subject < chr(2) ORDER BY no

-- name: bury
DELETE FROM subjects WHERE no = $1 AND subject >= chr(1) AND subject < chr(2)

-- What a hold may be on: memories, conversations, and messages.
-- name: things
SELECT agent_id, session_id, id, metadata FROM records WHERE subject = $1 AND state <> 'deleting'
UNION ALL
SELECT agent_id, nullif(session_id, ''), id, '{}' FROM sessions WHERE subject = $1
UNION ALL
SELECT agent_id, nullif(session_id, ''), history.id, metadata
FROM history JOIN sessions ON sessions.subject = history.subject AND sessions.no = history.key >> 24
WHERE history.subject = $1

-- name: kinds
SELECT kind, count(*), count(*) FILTER (WHERE state IN ('active', 'archived'))
FROM records WHERE subject = $1 GROUP BY kind

-- Rows of a subject, by the table they are in.
-- name: rows
SELECT 'memories', count(*) FROM records WHERE subject = $1
UNION ALL SELECT 'facts', count(*) FROM facts WHERE subject = $1
UNION ALL SELECT 'conversations', count(*) FROM sessions WHERE subject = $1
UNION ALL SELECT 'messages', count(*) FROM history WHERE subject = $1
UNION ALL SELECT 'short-term messages', count(*) FROM short_messages WHERE subject = $1
UNION ALL SELECT 'notes of cold objects', count(*) FROM packs WHERE subject = $1
UNION ALL
SELECT 'indexes and counters', (SELECT count(*) FROM scopes WHERE subject = $1)
                             + (SELECT count(*) FROM changes WHERE subject = $1)
                             + (SELECT count(*) FROM passages WHERE subject = $1)
                             + (SELECT count(*) FROM fillings WHERE subject = $1)
                             + (SELECT count(*) FROM derivations WHERE subject = $1)
                             + (SELECT count(*) FROM short_windows WHERE subject = $1)
                             + (SELECT count(*) FROM totals WHERE subject = $1)

-- name: pack_names
SELECT name FROM packs WHERE subject = $1

-- Rows of what is made from a record go with it.
-- name: remove_records
DELETE FROM records
WHERE subject = $1 AND key IN (SELECT key FROM records WHERE subject = $1 ORDER BY key LIMIT $2)

-- name: remove_history
DELETE FROM history
WHERE subject = $1 AND key IN (SELECT key FROM history WHERE subject = $1 ORDER BY key LIMIT $2)

-- name: remove_sessions
DELETE FROM sessions WHERE subject = $1 AND no IN (SELECT no FROM sessions WHERE subject = $1 ORDER BY no LIMIT $2)

-- name: remove_windows
DELETE FROM short_windows
WHERE subject = $1 AND no IN (SELECT no FROM short_windows WHERE subject = $1 ORDER BY no LIMIT $2)

-- name: remove_facts
DELETE FROM facts WHERE subject = $1 AND id IN (SELECT id FROM facts WHERE subject = $1 ORDER BY id LIMIT $2)

-- name: remove_changes
DELETE FROM changes
WHERE subject = $1 AND (scope, seq) IN (SELECT scope, seq FROM changes WHERE subject = $1 ORDER BY scope, seq LIMIT $2)

-- name: remove_packs
DELETE FROM packs WHERE subject = $1

-- name: remove_scopes
WITH filled AS (DELETE FROM fillings WHERE subject = $1)
DELETE FROM scopes WHERE subject = $1

-- name: totals
SELECT kind, state, cause, count FROM totals WHERE subject = $1

-- name: remove_totals
DELETE FROM totals WHERE subject = $1

-- name: remove_quotas
DELETE FROM quotas WHERE tenant = $1 AND user_id = $2

-- Sessions that rules and holds name, without a word of whose they are.
-- name: sessions_named
SELECT session_id FROM rules WHERE tenant = $1 AND user_id = '' AND session_id <> ''
UNION SELECT session_id FROM holds WHERE tenant = $1 AND user_id IS NULL AND session_id IS NOT NULL

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

-- Those that name a user, or a session that is theirs alone.
-- name: remove_rules
DELETE FROM rules
WHERE tenant = $1 AND (user_id = $2 OR user_id = ''
                       AND session_id = ANY (ARRAY(SELECT jsonb_array_elements_text($3::jsonb))))

-- What is left of rules that are gone.
-- name: remove_profiles
DELETE FROM profiles
WHERE rules <> '[]' AND EXISTS (SELECT 1 FROM jsonb_array_elements_text(profiles.rules::jsonb) AS named (no)
                                WHERE named.no::bigint NOT IN (SELECT rules.no FROM rules))

-- name: remove_holds
DELETE FROM holds
WHERE tenant = $1 AND (released_at IS NOT NULL OR $3)
  AND (user_id = $2 OR user_id IS NULL AND session_id = ANY (ARRAY(SELECT jsonb_array_elements_text($4::jsonb))))

-- Holds on one memory, without a word of whose that is.
-- name: holds_on_memories
SELECT id, memory_id FROM holds
WHERE tenant = $1 AND user_id IS NULL AND memory_id IS NOT NULL AND (released_at IS NOT NULL OR $2)

-- name: remove_hold
DELETE FROM holds WHERE id = $1

-- name: job_words
SELECT name, result, error FROM jobs WHERE result IS NOT NULL OR error IS NOT NULL

-- name: reword_job
UPDATE jobs SET result = $1, error = $2 WHERE name = $3

-- name: seen
SELECT no, hash FROM ledger_seen

-- name: see
INSERT INTO ledger_seen (one, no, hash) VALUES (1, $1, $2)
ON CONFLICT (one) DO UPDATE SET no = excluded.no, hash = excluded.hash WHERE excluded.no > ledger_seen.no

-- What other processes are told of an erasure, by the clock of the store.
-- name: note_erasure
INSERT INTO recent_erasures (salt, digest, erased_at)
VALUES ($1, $2, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)

-- name: recent_erasures
SELECT salt, digest, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - erased_at FROM recent_erasures
WHERE erased_at >= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - $1::bigint

-- name: forget_erasures
DELETE FROM recent_erasures WHERE erased_at < (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - $1::bigint
