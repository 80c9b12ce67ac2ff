-- A class of what is due, # of up to eight: a profile, a state, after which moment and up to which. Each is a range of an
-- index, and one that is not given is empty.
-- name: CLASS
profile = ($1::jsonb -> # ->> 0)::bigint AND state = $1::jsonb -> # ->> 1
        AND aged_from > ($1::jsonb -> # ->> 2)::bigint AND aged_from <= ($1::jsonb -> # ->> 3)::bigint

-- name: census
SELECT subjects.subject, records, bytes, mark, check_mark, place
FROM (SELECT (:CLASS_NUMBER)::bigint AS place, subject AS number, count(*) AS records, sum(size)::bigint AS bytes,
             sum((key % 2147483647 * 48271 + version * 69621) % 2147483647)::bigint AS mark,
             sum((key % 2147483629 * 40692 + version * 39373) % 2147483629)::bigint AS check_mark
      FROM records
      WHERE state IN ('active', 'archived') AND (:ANY_CLASS)
        AND ($2::text = '[]' OR agent_id NOT IN (SELECT jsonb_array_elements_text($2::jsonb)))
      GROUP BY 1, 2) AS due
JOIN subjects ON subjects.no = number ORDER BY place, number

-- name: census_of_agents
SELECT agent_id, count(*) AS records FROM records
WHERE profile = $1 AND state = $2 AND state IN ('active', 'archived') AND aged_from > $3 AND aged_from <= $4
  AND ($5::text = '[]' OR records.subject NOT IN (SELECT no FROM subjects
                                                  WHERE subjects.subject IN (SELECT jsonb_array_elements_text($5::jsonb))))
GROUP BY agent_id

-- name: due_of_subject
SELECT :FACTS, $9::text AS subject, CASE WHEN $7::boolean THEN metadata ELSE '{}' END AS metadata
FROM records
WHERE subject = $6::bigint >> :KEY_BITS AND key BETWEEN $5 AND $6 AND profile = $1 AND state = $2
  AND aged_from > $3 AND aged_from <= $4
ORDER BY key LIMIT $8

-- name: live_of_subject
SELECT coalesce(sum(memories), 0)::bigint FROM scopes WHERE subject = $1

-- What is named comes as the keys of objects: a name is found in them without looking at all of them.
-- name: shares
SELECT CASE WHEN $5::jsonb ? subject::text THEN subject END AS subject,
       CASE WHEN $6::jsonb ? agent_id THEN agent_id END AS agent_id,
       CASE WHEN $7::jsonb ? session_id THEN session_id END AS session_id,
       CASE WHEN $8::jsonb ? id THEN id END AS id,
       count(*) AS records, sum(size)::bigint AS bytes
FROM records
WHERE profile = $1 AND state = $2 AND state IN ('active', 'archived') AND aged_from > $3 AND aged_from <= $4
GROUP BY 1, 2, 3, 4

-- name: session_shares
SELECT CASE WHEN $5::jsonb ? subject::text THEN subject END AS subject,
       CASE WHEN $6::jsonb ? agent_id THEN agent_id END AS agent_id,
       CASE WHEN $7::jsonb ? session_id THEN session_id END AS session_id,
       CASE WHEN $8::jsonb ? id THEN id END AS id,
       count(*) AS records, sum(size)::bigint AS bytes
FROM sessions
WHERE profile = $1 AND state = $2 AND state = 'active' AND aged_from > $3 AND aged_from <= $4
GROUP BY 1, 2, 3, 4

-- What is live has the code of its kind as its place, what moved -1, and sessions that parts have not followed -2. Each part
-- has the subject first, so that a cluster adds up on each shard what it has of all of them.
-- name: counts
SELECT place, kind, state, cause, sum(records)::bigint AS records, sum(bytes)::bigint AS bytes
FROM (SELECT subject, -1::bigint AS place, kind, state, cause, count AS records, 0::bigint AS bytes
      FROM totals WHERE state <> 'added'
      UNION ALL
      SELECT subject, scope & :LAST_KIND, NULL, NULL, NULL, memories, bytes FROM scopes
      UNION ALL
      SELECT subject, -2, NULL, NULL, NULL, 1, 0 FROM sessions WHERE part_state <> state AND state <> 'deleting') AS counted
GROUP BY 1, 2, 3, 4

-- The sum of many moments is larger than a bigint.
-- name: ages
SELECT profile, state, width_bucket(aged_from, translate($1::text, '[]', '{}')::bigint[])::bigint AS place,
       count(*) AS records, sum(aged_from / 1000000)::bigint AS seconds, min(aged_from) AS first
FROM (SELECT subject, profile, state, aged_from FROM records WHERE state IN ('active', 'archived')
      UNION ALL
      SELECT subject, profile, state, aged_from FROM sessions WHERE state = 'active'
      UNION ALL
      SELECT subject, 0, 'recycled', purge_at FROM records WHERE state IN ('recycled', 'deleting') AND purge_at <= $2
      UNION ALL
      SELECT subject, 0, 'recycled', purge_at FROM sessions WHERE state IN ('recycled', 'deleting') AND purge_at <= $2) AS kept
GROUP BY 1, 2, 3

-- name: with_dead_rows
SELECT relname::text FROM pg_stat_user_tables
WHERE schemaname = $1 AND n_dead_tup > $2 AND n_dead_tup > n_live_tup / 20 ORDER BY relname
