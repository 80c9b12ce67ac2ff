-- name: profiles
SELECT no, kind, rules FROM profiles WHERE tenant = ? ORDER BY no

-- name: census
SELECT subjects.subject, records, bytes, mark, check_mark
FROM (SELECT subject AS number, count(*) AS records, sum(size) AS bytes,
             sum((key % 2147483647 * 48271 + version * 69621) % 2147483647) AS mark,
             sum((key % 2147483629 * 40692 + version * 39373) % 2147483629) AS check_mark
      FROM records INDEXED BY records_due
      WHERE profile = ?1 AND state = ?2 AND state IN ('active', 'archived') AND aged_from > ?3 AND aged_from <= ?4
        AND (?5 = '[]' OR agent_id NOT IN (SELECT value FROM json_each(?5)))
      GROUP BY subject)
JOIN subjects ON subjects.no = number ORDER BY number

-- name: census_of_agents
SELECT agent_id, count(*) FROM records INDEXED BY records_due
WHERE profile = ?1 AND state = ?2 AND state IN ('active', 'archived') AND aged_from > ?3 AND aged_from <= ?4
  AND (?5 = '[]' OR subject NOT IN (SELECT no FROM subjects WHERE subjects.subject IN (SELECT value FROM json_each(?5))))
GROUP BY agent_id

-- name: due
SELECT key, aged_from, id, subjects.subject, version, agent_id, session_id, size, pack, CASE WHEN ?7 THEN metadata ELSE '{}' END
FROM records INDEXED BY records_due CROSS JOIN subjects ON subjects.no = records.subject
WHERE profile = ?1 AND state = ?2 AND state IN ('active', 'archived') AND aged_from > ?3 AND aged_from <= ?4
  AND (aged_from, key) > (?5, ?6)
ORDER BY aged_from, key LIMIT ?8

-- name: due_of_subject
SELECT key, aged_from, id, ?9, version, agent_id, session_id, size, pack, CASE WHEN ?7 THEN metadata ELSE '{}' END
FROM records
WHERE key BETWEEN ?5 AND ?6 AND profile = ?1 AND +state = ?2 AND aged_from > ?3 AND aged_from <= ?4
ORDER BY key LIMIT ?8

-- name: bin_census
SELECT subjects.subject, kind, records, bytes, mark, check_mark
FROM (SELECT subject AS number, kind, count(*) AS records, sum(size) AS bytes,
             sum((key % 2147483647 * 48271 + version * 69621) % 2147483647) AS mark,
             sum((key % 2147483629 * 40692 + version * 39373) % 2147483629) AS check_mark
      FROM records INDEXED BY records_binned
      WHERE state IN ('recycled', 'deleting') AND purge_at <= ?1
      GROUP BY subject, kind)
JOIN subjects ON subjects.no = number
WHERE subjects.subject >= ?2 || '/' AND subjects.subject < ?2 || '0' ORDER BY number, kind

-- name: binned
SELECT key, purge_at, id, subjects.subject, version, agent_id, session_id, size, pack, CASE WHEN ?5 THEN metadata ELSE '{}' END,
       kind, state, aged_from
FROM records INDEXED BY records_binned CROSS JOIN subjects ON subjects.no = records.subject
WHERE state IN ('recycled', 'deleting') AND purge_at <= ?1 AND (purge_at, key) > (?3, ?4)
  AND subjects.subject >= ?2 || '/' AND subjects.subject < ?2 || '0'
ORDER BY purge_at, key LIMIT ?6

-- name: session_census
SELECT subjects.subject, count(*), sum(size),
       sum((sessions.no % 2147483647 * 48271 + version * 69621) % 2147483647),
       sum((sessions.no % 2147483629 * 40692 + version * 39373) % 2147483629)
FROM sessions INDEXED BY sessions_due CROSS JOIN subjects ON subjects.no = sessions.subject
WHERE profile = ?1 AND state = ?2 AND state = 'active' AND aged_from > ?3 AND aged_from <= ?4
  AND (?5 = '[]' OR agent_id NOT IN (SELECT value FROM json_each(?5)))
GROUP BY sessions.subject

-- name: sessions_due
SELECT sessions.no, aged_from, id, subjects.subject, version, agent_id, nullif(session_id, ''), size, 1, '{}'
FROM sessions INDEXED BY sessions_due CROSS JOIN subjects ON subjects.no = sessions.subject
WHERE profile = ?1 AND state = ?2 AND state = 'active' AND aged_from > ?3 AND aged_from <= ?4
  AND (aged_from, sessions.no) > (?5, ?6) AND ?7 IS NOT NULL
ORDER BY aged_from, sessions.no LIMIT ?8

-- name: session_bin_census
SELECT subjects.subject, 8, count(*), sum(size),
       sum((sessions.no % 2147483647 * 48271 + version * 69621) % 2147483647),
       sum((sessions.no % 2147483629 * 40692 + version * 39373) % 2147483629)
FROM sessions INDEXED BY sessions_binned CROSS JOIN subjects ON subjects.no = sessions.subject
WHERE state IN ('recycled', 'deleting') AND purge_at <= ?1
  AND subjects.subject >= ?2 || '/' AND subjects.subject < ?2 || '0' GROUP BY sessions.subject

-- name: sessions_binned
SELECT sessions.no, purge_at, id, subjects.subject, version, agent_id, nullif(session_id, ''), size, 1, '{}',
       8, state, aged_from
FROM sessions INDEXED BY sessions_binned CROSS JOIN subjects ON subjects.no = sessions.subject
WHERE state IN ('recycled', 'deleting') AND purge_at <= ?1 AND (purge_at, sessions.no) > (?3, ?4) AND ?5 IS NOT NULL
  AND subjects.subject >= ?2 || '/' AND subjects.subject < ?2 || '0'
ORDER BY purge_at, sessions.no LIMIT ?6

-- name: live_of_subject
SELECT ifnull(sum(memories), 0) FROM scopes WHERE scope BETWEEN ?1 << 3 AND (?1 << 3) + 7

-- name: live_of_agent
SELECT count(*) FROM records INDEXED BY records_by_agent CROSS JOIN subjects ON subjects.no = records.subject
WHERE agent_id = ?1 AND kind IN (4, 5) AND state IN ('active', 'archived')
  AND subjects.subject >= ?2 || '/' AND subjects.subject < ?2 || '0'

-- name: earliest
SELECT min(aged_from) FROM records INDEXED BY records_due WHERE profile = ? AND state = ? AND state IN ('active', 'archived')

-- name: earliest_session
SELECT min(aged_from) FROM sessions INDEXED BY sessions_due WHERE profile = ? AND state = 'active'

-- name: earliest_binned
SELECT min(purge_at) FROM (
    SELECT purge_at FROM records INDEXED BY records_binned CROSS JOIN subjects ON subjects.no = records.subject
    WHERE state IN ('recycled', 'deleting') AND purge_at <= ?1
      AND subjects.subject >= ?2 || '/' AND subjects.subject < ?2 || '0'
    UNION ALL
    SELECT purge_at FROM sessions INDEXED BY sessions_binned CROSS JOIN subjects ON subjects.no = sessions.subject
    WHERE state IN ('recycled', 'deleting') AND purge_at <= ?1
      AND subjects.subject >= ?2 || '/' AND subjects.subject < ?2 || '0')

-- name: every_profile
SELECT no, kind FROM profiles WHERE kind != 'history'

-- name: ages
SELECT count(*), ifnull(sum(aged_from / 1000000), 0) FROM records INDEXED BY records_due
WHERE profile = ? AND state = ? AND state IN ('active', 'archived') AND aged_from > ? AND aged_from <= ?

-- name: bytes_by_kind
SELECT scope & 7, sum(bytes), sum(memories) FROM scopes GROUP BY 1

-- name: totals
SELECT kind, state, cause, sum(count) FROM totals GROUP BY 1, 2, 3

-- What is named comes as the keys of objects: a name is found in them without looking at all of them.
-- name: shares
SELECT CASE WHEN subject IN (SELECT CAST(key AS INTEGER) FROM json_each(?5)) THEN subject END,
       CASE WHEN agent_id IN (SELECT key FROM json_each(?6)) THEN agent_id END,
       CASE WHEN session_id IN (SELECT key FROM json_each(?7)) THEN session_id END,
       CASE WHEN id IN (SELECT key FROM json_each(?8)) THEN id END,
       count(*), sum(size)
FROM records INDEXED BY records_due
WHERE profile = ?1 AND state = ?2 AND state IN ('active', 'archived') AND aged_from > ?3 AND aged_from <= ?4
GROUP BY 1, 2, 3, 4

-- name: session_shares
SELECT CASE WHEN subject IN (SELECT CAST(key AS INTEGER) FROM json_each(?5)) THEN subject END,
       CASE WHEN agent_id IN (SELECT key FROM json_each(?6)) THEN agent_id END,
       CASE WHEN session_id IN (SELECT key FROM json_each(?7)) THEN session_id END,
       CASE WHEN id IN (SELECT key FROM json_each(?8)) THEN id END,
       count(*), sum(size)
FROM sessions INDEXED BY sessions_due
WHERE profile = ?1 AND state = ?2 AND state = 'active' AND aged_from > ?3 AND aged_from <= ?4
GROUP BY 1, 2, 3, 4

-- name: bin_of_sessions
SELECT sessions.no, id, agent_id, session_id, state, version, created_at, updated_at, aged_from, aged_from + delete_after,
       moved_at, reason, purge_at, bundle, messages, size, summary, subjects.subject
FROM sessions INDEXED BY sessions_binned CROSS JOIN profiles ON profiles.no = sessions.profile
CROSS JOIN subjects ON subjects.no = sessions.subject
WHERE state IN ('recycled', 'deleting') AND state = 'recycled'
  AND subjects.subject >= ?1 || '/' AND subjects.subject < ?1 || '0' AND (?2 IS NULL OR subjects.subject = ?2)
  AND purge_at >= ?4 AND (purge_at, id) > (?4, ?5)
ORDER BY purge_at, id LIMIT ?3

-- name: tenants
SELECT DISTINCT tenant FROM profiles ORDER BY tenant

-- name: expired
SELECT count(*) FROM profiles CROSS JOIN records INDEXED BY records_due ON records.profile = profiles.no
WHERE profiles.tenant = ?1 AND profiles.kind = ?2 AND delete_after IS NOT NULL
  AND state IN ('active', 'archived') AND aged_from <= ?3 - delete_after AND key BETWEEN ?4 AND ?5
