-- A tenant's subjects are a range, here written as what is not outside of it: so no plan begins with all of them.
-- name: profiles
SELECT no, kind, rules, ttl FROM profiles WHERE tenant = $1 ORDER BY no

-- name: due
SELECT :FACTS, subjects.subject, CASE WHEN $7::boolean THEN metadata ELSE '{}' END AS metadata
FROM records INDEXED BY records_due JOIN subjects ON subjects.no = records.subject
WHERE profile = $1 AND state = $2 AND state IN ('active', 'archived') AND aged_from > $3 AND aged_from <= $4
  AND (aged_from, key) > ($5, $6)
ORDER BY aged_from, key LIMIT $8

-- name: bin_census
SELECT subjects.subject, records, bytes, mark, check_mark, kind
FROM (SELECT subject AS number, kind, count(*) AS records, sum(size)::bigint AS bytes,
             sum((key % 2147483647 * 48271 + version * 69621) % 2147483647)::bigint AS mark,
             sum((key % 2147483629 * 40692 + version * 39373) % 2147483629)::bigint AS check_mark
      FROM records INDEXED BY records_binned
      WHERE state IN ('recycled', 'deleting') AND purge_at <= $1
      GROUP BY subject, kind
      UNION ALL
      SELECT subject, NULL::bigint, count(*), sum(size)::bigint,
             sum((no % 2147483647 * 48271 + version * 69621) % 2147483647)::bigint,
             sum((no % 2147483629 * 40692 + version * 39373) % 2147483629)::bigint
      FROM sessions INDEXED BY sessions_binned
      WHERE state IN ('recycled', 'deleting') AND purge_at <= $1
      GROUP BY subject) AS binned
JOIN subjects ON subjects.no = number
WHERE subjects.subject >= $2::text || '/' AND subjects.subject < $2::text || '0' ORDER BY kind IS NULL, number, kind

-- name: binned
SELECT :FACTS, subjects.subject, CASE WHEN $5::boolean THEN metadata ELSE '{}' END AS metadata
FROM records INDEXED BY records_binned JOIN subjects ON subjects.no = records.subject
WHERE state IN ('recycled', 'deleting') AND purge_at <= $1 AND (purge_at, key) > ($3, $4)
  AND (subjects.subject < $2::text || '/' OR subjects.subject >= $2::text || '0') IS NOT TRUE
ORDER BY purge_at, key LIMIT $6

-- name: session_census
SELECT subjects.subject, records, bytes, mark, check_mark
FROM (SELECT subject AS number, count(*) AS records, sum(size)::bigint AS bytes,
             sum((no % 2147483647 * 48271 + version * 69621) % 2147483647)::bigint AS mark,
             sum((no % 2147483629 * 40692 + version * 39373) % 2147483629)::bigint AS check_mark
      FROM sessions INDEXED BY sessions_due
      WHERE profile = $1 AND state = $2 AND state = 'active' AND aged_from > $3 AND aged_from <= $4
        AND ($5::text = '[]' OR NOT (agent_id IN LIST($5)))
      GROUP BY subject) AS due
JOIN subjects ON subjects.no = number ORDER BY number

-- name: sessions_due
SELECT :SESSION_FACTS
FROM sessions INDEXED BY sessions_due JOIN subjects ON subjects.no = sessions.subject
WHERE profile = $1 AND state = $2 AND state = 'active' AND aged_from > $3 AND aged_from <= $4
  AND (aged_from, sessions.no) > ($5, $6) AND $7::boolean IS NOT NULL
ORDER BY aged_from, sessions.no LIMIT $8

-- name: sessions_binned
SELECT :SESSION_FACTS
FROM sessions INDEXED BY sessions_binned JOIN subjects ON subjects.no = sessions.subject
WHERE state IN ('recycled', 'deleting') AND purge_at <= $1 AND (purge_at, sessions.no) > ($3, $4)
  AND $5::boolean IS NOT NULL
  AND (subjects.subject < $2::text || '/' OR subjects.subject >= $2::text || '0') IS NOT TRUE
ORDER BY purge_at, sessions.no LIMIT $6

-- Counted by subject first: a tenant has more subjects than an agent has.
-- name: live_of_agent
SELECT coalesce(sum(live), 0)::bigint
FROM (SELECT subject AS number, count(*) AS live FROM records INDEXED BY records_by_agent
      WHERE agent_id = $1 AND kind IN (:OWN_KINDS) AND state IN ('active', 'archived')
      GROUP BY subject) AS own
JOIN subjects ON subjects.no = number
WHERE subjects.subject >= $2::text || '/' AND subjects.subject < $2::text || '0'

-- name: earliest
SELECT min(aged_from) FROM records INDEXED BY records_due
WHERE profile = $1 AND state = $2 AND state IN ('active', 'archived')

-- name: earliest_session
SELECT min(aged_from) FROM sessions INDEXED BY sessions_due WHERE profile = $1 AND state = $2 AND state = 'active'

-- name: earliest_binned
SELECT min(purge_at)
FROM (SELECT subject AS number, min(purge_at) AS purge_at FROM records INDEXED BY records_binned
      WHERE state IN ('recycled', 'deleting') AND purge_at <= $1 GROUP BY subject
      UNION ALL
      SELECT subject, min(purge_at) FROM sessions INDEXED BY sessions_binned
      WHERE state IN ('recycled', 'deleting') AND purge_at <= $1 GROUP BY subject) AS binned
JOIN subjects ON subjects.no = number
WHERE subjects.subject >= $2::text || '/' AND subjects.subject < $2::text || '0'

-- name: bin_of_sessions
SELECT :SESSION
FROM sessions INDEXED BY sessions_binned JOIN profiles ON profiles.no = sessions.profile
JOIN subjects ON subjects.no = sessions.subject
WHERE state IN ('recycled', 'deleting') AND state = 'recycled'
  AND (subjects.subject < $1::text || '/' OR subjects.subject >= $1::text || '0') IS NOT TRUE
  AND CASE WHEN $2::text IS NULL THEN true ELSE subjects.subject = $2 END
  AND purge_at >= $4::bigint AND (purge_at, id) > ($4::bigint, $5::text)
ORDER BY purge_at, id LIMIT $3

-- name: tenants
SELECT tenant FROM profiles UNION SELECT tenant FROM parts ORDER BY tenant

-- name: expired
SELECT count(*) FROM profiles JOIN records INDEXED BY records_due ON records.profile = profiles.no
WHERE profiles.tenant = $1 AND profiles.kind = $2 AND delete_after IS NOT NULL
  AND state IN ('active', 'archived') AND aged_from <= $3 - delete_after
  AND subject = $5::bigint >> :KEY_BITS AND key BETWEEN $4 AND $5

-- What becomes due on each of some days: 0 is all up to the first moment, 1 what is due within a day after it, and so on.
-- name: by_day
SELECT :DAY_CENSUS
FROM (SELECT subject AS number, agent_id, greatest(0, (aged_from - $3::bigint + 86399999999) / 86400000000) AS day,
             count(*) AS records, sum(size)::bigint AS bytes
      FROM records INDEXED BY records_due
      WHERE profile = $1 AND state = $2 AND state IN ('active', 'archived') AND aged_from <= $4
      GROUP BY 1, 2, 3) AS due
JOIN subjects ON subjects.no = number

-- name: sessions_by_day
SELECT :DAY_CENSUS
FROM (SELECT subject AS number, agent_id, greatest(0, (aged_from - $3::bigint + 86399999999) / 86400000000) AS day,
             count(*) AS records, sum(size)::bigint AS bytes
      FROM sessions INDEXED BY sessions_due
      WHERE profile = $1 AND state = $2 AND state = 'active' AND aged_from <= $4
      GROUP BY 1, 2, 3) AS due
JOIN subjects ON subjects.no = number

-- name: bin_by_day
SELECT :DAY_CENSUS, kind
FROM (SELECT subject AS number, kind, '' AS agent_id,
             greatest(0, (purge_at - $1::bigint + 86399999999) / 86400000000) AS day,
             count(*) AS records, sum(size)::bigint AS bytes
      FROM records INDEXED BY records_binned
      WHERE state IN ('recycled', 'deleting') AND purge_at <= $2
      GROUP BY 1, 2, 3, 4
      UNION ALL
      SELECT subject, NULL::bigint, '', greatest(0, (purge_at - $1::bigint + 86399999999) / 86400000000),
             count(*), sum(size)::bigint
      FROM sessions INDEXED BY sessions_binned
      WHERE state IN ('recycled', 'deleting') AND purge_at <= $2
      GROUP BY 1, 2, 3, 4) AS binned
JOIN subjects ON subjects.no = number
WHERE subjects.subject >= $3::text || '/' AND subjects.subject < $3::text || '0'
