-- Classes of what is due: a profile, a state, after which moment and up to which.
-- name: census
SELECT subjects.subject, records, bytes, mark, check_mark, place
FROM (SELECT due.key AS place, subject AS number, count(*) AS records, sum(size) AS bytes,
             sum((records.key % 2147483647 * 48271 + version * 69621) % 2147483647) AS mark,
             sum((records.key % 2147483629 * 40692 + version * 39373) % 2147483629) AS check_mark
      FROM json_each(?1) AS due CROSS JOIN records INDEXED BY records_due
      ON profile = due.value ->> 0 AND state = due.value ->> 1 AND state IN ('active', 'archived')
        AND aged_from > due.value ->> 2 AND aged_from <= due.value ->> 3
      WHERE ?2 = '[]' OR agent_id NOT IN (SELECT value FROM json_each(?2))
      GROUP BY place, subject)
CROSS JOIN subjects ON subjects.no = number ORDER BY place, number

-- name: census_of_agents
SELECT agent_id, count(*) AS records FROM records INDEXED BY records_due
WHERE profile = ?1 AND state = ?2 AND state IN ('active', 'archived') AND aged_from > ?3 AND aged_from <= ?4
  AND (?5 = '[]' OR subject NOT IN (SELECT no FROM subjects WHERE subjects.subject IN (SELECT value FROM json_each(?5))))
GROUP BY agent_id

-- name: due_of_subject
SELECT :FACTS, ?9 AS subject, CASE WHEN ?7 THEN metadata ELSE '{}' END AS metadata
FROM records
WHERE key BETWEEN ?5 AND ?6 AND profile = ?1 AND +state = ?2 AND aged_from > ?3 AND aged_from <= ?4
ORDER BY key LIMIT ?8

-- name: live_of_subject
SELECT ifnull(sum(memories), 0) FROM scopes WHERE scope BETWEEN ?1 << :KIND_BITS AND (?1 << :KIND_BITS) + :LAST_KIND

-- What is named comes as the keys of objects: a name is found in them without looking at all of them.
-- name: shares
SELECT CASE WHEN subject IN (SELECT CAST(key AS INTEGER) FROM json_each(?5)) THEN subject END AS subject,
       CASE WHEN agent_id IN (SELECT key FROM json_each(?6)) THEN agent_id END AS agent_id,
       CASE WHEN session_id IN (SELECT key FROM json_each(?7)) THEN session_id END AS session_id,
       CASE WHEN id IN (SELECT key FROM json_each(?8)) THEN id END AS id,
       count(*) AS records, sum(size) AS bytes
FROM records INDEXED BY records_due
WHERE profile = ?1 AND state = ?2 AND state IN ('active', 'archived') AND aged_from > ?3 AND aged_from <= ?4
GROUP BY 1, 2, 3, 4

-- name: session_shares
SELECT CASE WHEN subject IN (SELECT CAST(key AS INTEGER) FROM json_each(?5)) THEN subject END AS subject,
       CASE WHEN agent_id IN (SELECT key FROM json_each(?6)) THEN agent_id END AS agent_id,
       CASE WHEN session_id IN (SELECT key FROM json_each(?7)) THEN session_id END AS session_id,
       CASE WHEN id IN (SELECT key FROM json_each(?8)) THEN id END AS id,
       count(*) AS records, sum(size) AS bytes
FROM sessions INDEXED BY sessions_due
WHERE profile = ?1 AND state = ?2 AND state = 'active' AND aged_from > ?3 AND aged_from <= ?4
GROUP BY 1, 2, 3, 4

-- name: expired
SELECT count(*) FROM profiles CROSS JOIN records INDEXED BY records_due ON records.profile = profiles.no
WHERE profiles.tenant = ?1 AND profiles.kind = ?2 AND delete_after IS NOT NULL
  AND state IN ('active', 'archived') AND aged_from <= ?3 - delete_after AND key BETWEEN ?4 AND ?5

-- Each part is added up by itself: to group what is not in order takes five times as long.
-- name: counts
SELECT -1 AS place, kind, state, cause, sum(count) AS records, 0 AS bytes
FROM totals WHERE state <> 'added' GROUP BY kind, state, cause
UNION ALL
SELECT scope & :LAST_KIND, NULL, NULL, NULL, sum(memories), sum(bytes) FROM scopes GROUP BY scope & :LAST_KIND
UNION ALL
SELECT -2, NULL, NULL, NULL, count(*), 0
FROM sessions INDEXED BY sessions_behind WHERE part_state <> state AND state <> 'deleting'

-- Each count is of a range of the index.
-- name: ages
WITH counted AS MATERIALIZED (
  SELECT profiles.no AS profile, live.state, place,
         (SELECT json_array(count(*), sum(aged_from / 1000000), min(aged_from)) FROM records INDEXED BY records_due
          WHERE records.profile = profiles.no AND records.state = live.state AND records.state IN ('active', 'archived')
            AND aged_from >= iif(place = 0, -1 << 63, ?1 ->> (place - 1))
            AND aged_from < ifnull(?1 ->> place, ~(-1 << 63))) AS sums
  FROM profiles CROSS JOIN (SELECT 'active' AS state UNION ALL SELECT 'archived') AS live
  CROSS JOIN (SELECT key AS place FROM json_each(?1) UNION ALL SELECT json_array_length(?1)) AS places)
SELECT profile, state, place, sums ->> 0 AS records, sums ->> 1 AS seconds, sums ->> 2 AS first
FROM counted WHERE sums ->> 0 > 0
UNION ALL
SELECT profile, 'active', 0, count(*), sum(aged_from / 1000000), min(aged_from)
FROM sessions INDEXED BY sessions_due WHERE state = 'active' GROUP BY profile
UNION ALL
SELECT 0, 'recycled', 0, count(*), sum(purge_at / 1000000), min(purge_at)
FROM records INDEXED BY records_binned WHERE state IN ('recycled', 'deleting') AND purge_at <= ?2 HAVING count(*) > 0
UNION ALL
SELECT 0, 'recycled', 0, count(*), sum(purge_at / 1000000), min(purge_at)
FROM sessions INDEXED BY sessions_binned WHERE state IN ('recycled', 'deleting') AND purge_at <= ?2 HAVING count(*) > 0
