-- All that is kept of a subject, in whatever state, in pages by key. Of what can be large, a page ends where it
-- has so many bytes.

-- name: alias
SELECT alias FROM subjects WHERE no = ?1

-- One row for each user of a page, one for each kind that there are records of, and one for conversations (kind 0): how
-- many are live, and when the newest was made or last active.
-- name: users
WITH page AS MATERIALIZED (SELECT no, subject FROM subjects WHERE subject > ?1 AND subject < ?2 ORDER BY subject LIMIT ?3),
counts AS (SELECT page.subject, scope & 7 AS kind, memories,
                  (SELECT created_at FROM records WHERE key BETWEEN scope << 29 AND (scope + 1 << 29) - 1
                   ORDER BY key DESC LIMIT 1) AS latest
           FROM page CROSS JOIN scopes ON scope BETWEEN no << 3 AND no << 3 | 7)
SELECT subject, NULL, 0, NULL FROM page
UNION ALL
SELECT subject, kind, memories, latest FROM counts WHERE latest IS NOT NULL
UNION ALL
SELECT page.subject, 0, sum(state = 'active'), max(updated_at)
FROM page CROSS JOIN sessions ON sessions.subject = page.no GROUP BY page.no

-- name: size
SELECT (SELECT count(*) FROM records WHERE subject = ?1 AND key BETWEEN ?2 AND ?3)
     + ifnull((SELECT sum(messages) FROM sessions WHERE subject = ?1), 0)

-- name: records
SELECT records.kind, id, state, version, agent_id, session_id, name, created_at, updated_at, dated_at, aged_from,
       metadata, content, body, previous, aged_from + archive_after, aged_from + delete_after, moved_at, purge_at, reason,
       pack, source, derived_from, bundle, key
FROM records CROSS JOIN profiles ON profiles.no = records.profile
WHERE subject = ?1
  AND key IN (SELECT key FROM (SELECT key, sum(size) OVER (ORDER BY key) - size AS before
                               FROM (SELECT key, size FROM records WHERE subject = ?1 AND key BETWEEN ?2 AND ?3
                                     ORDER BY key LIMIT ?4) AS page) AS sizes
              WHERE before < ?5)
ORDER BY key

-- name: sessions
SELECT sessions.no, id, agent_id, session_id, state, version, created_at, updated_at, aged_from, aged_from + delete_after,
       moved_at, reason, purge_at, bundle, messages, size, summary
FROM sessions CROSS JOIN profiles ON profiles.no = sessions.profile
WHERE subject = ?1 AND sessions.no > ?2 ORDER BY sessions.no LIMIT ?3

-- name: messages
SELECT id, role, content, created_at, metadata, purge_at, key FROM history
WHERE ?1 IS NOT NULL
  AND key IN (SELECT key FROM (SELECT key, sum(size) OVER (ORDER BY key) - size AS before
                               FROM (SELECT key, octet_length(content) AS size FROM history
                                     WHERE ?1 IS NOT NULL AND key BETWEEN ?2 AND ?3 ORDER BY key LIMIT ?4) AS page) AS sizes
              WHERE before < ?5)
ORDER BY key

-- name: facts
SELECT id, source, name, target, value, since, until, recorded_at FROM facts
WHERE subject = ?1 AND id > ?2 ORDER BY id LIMIT ?3

-- name: audit
SELECT CAST(entry AS BLOB), hash, seq FROM audit
WHERE subject = ?1
  AND seq IN (SELECT seq FROM (SELECT seq, sum(size) OVER (ORDER BY seq) - size AS before
                               FROM (SELECT seq, octet_length(entry) AS size FROM audit
                                     WHERE subject = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3) AS page) AS sizes
              WHERE before < ?4)
ORDER BY seq

-- name: quotas
SELECT kind, max_memories, max_bytes FROM quotas WHERE tenant = ?1 AND user_id = ?2 ORDER BY kind
