-- All that is kept of a subject, in whatever state, in pages by key. Of what can be large, a page ends where it
-- has so many bytes.
-- name: size
SELECT (SELECT count(*) FROM records WHERE subject = $1 AND key BETWEEN $2 AND $3)
     + coalesce((SELECT sum(messages) FROM sessions WHERE subject = $1), 0)::bigint

-- name: records
SELECT :RECORD, key
FROM records JOIN profiles ON profiles.no = records.profile
WHERE subject = $1
  AND key IN (SELECT key FROM (SELECT key, sum(size) OVER (ORDER BY key) - size AS before
                               FROM (SELECT key, size FROM records WHERE subject = $1 AND key BETWEEN $2 AND $3
                                     ORDER BY key LIMIT $4) AS page) AS sizes
              WHERE before < $5)
ORDER BY key

-- name: sessions
SELECT :SESSION
FROM sessions JOIN profiles ON profiles.no = sessions.profile JOIN subjects ON subjects.no = sessions.subject
WHERE sessions.subject = $1 AND sessions.no > $2 ORDER BY sessions.no LIMIT $3

-- name: facts
SELECT id, source, name, target, value, since, until, recorded_at FROM facts
WHERE subject = $1 AND id > $2 ORDER BY id LIMIT $3

-- name: audit
SELECT convert_to(entry, 'UTF8') AS text, hash, seq FROM audit
WHERE subject = $1
  AND seq IN (SELECT seq FROM (SELECT seq, sum(size) OVER (ORDER BY seq) - size AS before
                               FROM (SELECT seq, octet_length(entry) AS size FROM audit
                                     WHERE subject = $1 AND seq > $2 ORDER BY seq LIMIT $3) AS page) AS sizes
              WHERE before < $4)
ORDER BY seq

-- name: quotas
SELECT kind, max_memories, max_bytes FROM quotas WHERE tenant = $1 AND user_id = $2 ORDER BY kind

-- name: rename
UPDATE subjects SET subject = $1 WHERE no = $2

-- name: disown_parts
UPDATE parts SET unowned_as = NULL WHERE tenant = $1 AND unowned_as = $2

-- name: tombstones
SELECT no, subject FROM subjects WHERE subject >= chr(1) AND subject < chr(2) ORDER BY no

-- name: bury
DELETE FROM subjects WHERE no = $1 AND subject >= chr(1) AND subject < chr(2)

-- name: pack_names
SELECT name FROM packs WHERE subject = $1

-- name: remove_kept_out
DELETE FROM kept_out WHERE subject = $1 AND print IN (SELECT print FROM kept_out WHERE subject = $1 ORDER BY print LIMIT $2)

-- name: remove_facts
DELETE FROM facts WHERE subject = $1 AND id IN (SELECT id FROM facts WHERE subject = $1 ORDER BY id LIMIT $2)

-- name: remove_packs
DELETE FROM packs WHERE subject = $1

-- name: totals
SELECT kind, state, cause, count AS records FROM totals WHERE subject = $1

-- name: remove_totals
DELETE FROM totals WHERE subject = $1

-- name: remove_quotas
DELETE FROM quotas WHERE tenant = $1 AND user_id = $2

-- Sessions that rules and holds name, without a word of whose they are.
-- name: sessions_named
SELECT session_id FROM rules WHERE tenant = $1 AND user_id = '' AND session_id <> ''
UNION SELECT session_id FROM holds WHERE tenant = $1 AND user_id IS NULL AND session_id IS NOT NULL

-- Those that name a user, or a session that is theirs alone.
-- name: remove_rules
DELETE FROM rules
WHERE tenant = $1 AND (user_id = $2 OR user_id = ''
                       AND session_id IN LIST($3))

-- name: remove_holds
DELETE FROM holds
WHERE tenant = $1 AND (released_at IS NOT NULL OR $3)
  AND (user_id = $2 OR user_id IS NULL AND session_id IN LIST($4))

-- Holds on one memory, without a word of whose that is.
-- name: holds_on_memories
SELECT id, memory_id FROM holds
WHERE tenant = $1 AND user_id IS NULL AND memory_id IS NOT NULL AND (released_at IS NOT NULL OR $2)

-- name: remove_hold
DELETE FROM holds WHERE id = $1

-- name: job_words
SELECT name, started_at, result, error FROM jobs WHERE result IS NOT NULL OR error IS NOT NULL

-- name: reword_job
UPDATE jobs SET result = $1, error = $2 WHERE name = $3 AND $4::bigint IS NOT DISTINCT FROM started_at

-- name: seen
SELECT no, hash FROM ledger_seen

-- name: see
INSERT INTO ledger_seen (one, no, hash) VALUES (1, $1, $2)
ON CONFLICT (one) DO UPDATE SET no = excluded.no, hash = excluded.hash WHERE excluded.no > ledger_seen.no

-- What other processes are told of an erasure, by the clock of the store.
-- name: note_erasure
INSERT INTO recent_erasures (salt, digest, erased_at)
VALUES ($1, $2, :NOW)

-- name: recent_erasures
SELECT salt, digest, (:NOW - erased_at) / 1000000.0::float8 AS age_seconds FROM recent_erasures
WHERE erased_at >= :NOW - $1::bigint

-- name: forget_erasures
DELETE FROM recent_erasures WHERE erased_at < :NOW - $1::bigint

-- name: run_words
SELECT name, started_at, result, error FROM job_runs

-- name: reword_run
UPDATE job_runs SET result = $1, error = $2 WHERE name = $3 AND started_at = $4

-- name: console_jobs
SELECT id, content FROM console_jobs WHERE is_cleared = 0

-- name: clear_console_job
UPDATE console_jobs SET content = NULL, is_cleared = 1 WHERE id = $1

-- name: note_request
INSERT INTO erasure_times (alias, tenant, requested_at) VALUES ($1, $2, $3) ON CONFLICT (alias) DO NOTHING

-- name: note_times
UPDATE erasure_times SET requested_at = least(requested_at, coalesce($2::bigint, requested_at)),
                         hidden_at = coalesce(hidden_at, $3::bigint), gone_at = coalesce($4::bigint, gone_at),
                         certified_at = coalesce($5::bigint, certified_at)
WHERE alias = $1
