-- A run of a user's records of one kind, the last first.
-- name: page
SELECT id, records.kind, state, revision, agent_id, session_id, name, created_at, updated_at,
       aged_from + archive_after AS archive_at, aged_from + delete_after AS hidden_from, moved_at, purge_at, reason, source,
       size, text_hash, CASE WHEN $9::boolean THEN metadata ELSE '{}' END AS metadata,
       substr(content, 1, $10::integer) AS beginning, key
FROM records JOIN profiles ON profiles.no = records.profile
WHERE subject = $2::bigint >> :KEY_BITS AND key BETWEEN $1 AND $2
  AND state IN LIST($3) AND ($4::text IS NULL OR agent_id = $4) AND ($5::text IS NULL OR session_id = $5)
  AND ($6::text IS NULL OR coalesce(source, 'agent:' || agent_id) = $6)
  AND created_at >= $7 AND created_at < $8
ORDER BY key DESC LIMIT $11

-- name: facets
SELECT kind, state, agent_id, session_id, source, count(*) AS records, sum(size)::bigint AS bytes
FROM records
WHERE subject = $2::bigint >> :KEY_BITS AND key BETWEEN $1 AND $2 AND state IN ('active', 'archived', 'recycled')
GROUP BY kind, state, agent_id, session_id, source

-- How many records each profile makes due at a moment, as far as one cares to count.
-- name: due_to_recycle
SELECT kind, count(*) AS records
FROM (SELECT profiles.kind FROM profiles JOIN records INDEXED BY records_due ON records.profile = profiles.no
      WHERE profiles.tenant = $1 AND delete_after IS NOT NULL
        AND state IN ('active', 'archived') AND aged_from <= $2 - delete_after
      LIMIT $3) AS due
GROUP BY kind

-- name: due_to_archive
SELECT kind, count(*) AS records
FROM (SELECT profiles.kind FROM profiles JOIN records INDEXED BY records_due ON records.profile = profiles.no
      WHERE profiles.tenant = $1 AND archive_after IS NOT NULL
        AND state IN ('active', 'archived') AND state = 'active' AND aged_from <= $2 - archive_after
        AND (delete_after IS NULL OR aged_from > $2 - delete_after)
      LIMIT $3) AS due
GROUP BY kind

-- name: due_sessions
SELECT kind, count(*) AS records
FROM (SELECT profiles.kind FROM profiles JOIN sessions INDEXED BY sessions_due ON sessions.profile = profiles.no
      WHERE profiles.tenant = $1 AND delete_after IS NOT NULL AND state = 'active' AND aged_from <= $2 - delete_after
      LIMIT $3) AS due
GROUP BY kind

-- name: due_in_bin
SELECT kind, count(*) AS records
FROM (SELECT records.kind FROM records INDEXED BY records_binned JOIN subjects ON subjects.no = records.subject
      WHERE state IN ('recycled', 'deleting') AND purge_at <= $2
        AND (subjects.subject < $1::text || '/' OR subjects.subject >= $1::text || '0') IS NOT TRUE
      LIMIT $3) AS due
GROUP BY kind

-- name: bin_ends
SELECT (SELECT purge_at FROM records INDEXED BY records_binned JOIN subjects ON subjects.no = records.subject
        WHERE state IN ('recycled', 'deleting')
          AND (subjects.subject < $1::text || '/' OR subjects.subject >= $1::text || '0') IS NOT TRUE
        ORDER BY purge_at, key LIMIT 1) AS first,
       (SELECT purge_at FROM records INDEXED BY records_binned JOIN subjects ON subjects.no = records.subject
        WHERE state IN ('recycled', 'deleting')
          AND (subjects.subject < $1::text || '/' OR subjects.subject >= $1::text || '0') IS NOT TRUE
        ORDER BY purge_at DESC, key DESC LIMIT 1) AS last

-- name: totals
SELECT kind, state, cause, sum(count)::bigint AS records
FROM subjects JOIN totals ON totals.subject = subjects.no
WHERE subjects.subject >= $1::text || '/' AND subjects.subject < $1::text || '0' GROUP BY kind, state, cause

-- name: sessions
SELECT state, count(*) AS records
FROM subjects JOIN sessions ON sessions.subject = subjects.no
WHERE subjects.subject >= $1::text || '/' AND subjects.subject < $1::text || '0' GROUP BY state

-- name: days
SELECT day, kind, action, count AS times FROM daily_counts WHERE tenant = $1 AND day >= $2 ORDER BY day, kind, action

-- name: last_day
SELECT max(day) FROM daily_counts WHERE tenant = $1

-- name: note_day
INSERT INTO daily_counts (tenant, day, kind, action, count) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant, day, kind, action) DO NOTHING

-- name: forget_days
DELETE FROM daily_counts WHERE tenant = $1 AND day < $2

-- name: erasures
SELECT requested_at, hidden_at, gone_at, certified_at FROM erasure_times
WHERE tenant = $1 AND (requested_at >= $2 OR certified_at IS NULL) ORDER BY requested_at

-- Of all tenants: how many erasures took at most so long for each stage, by bounds in microseconds, and how long in all.
-- name: erasure_times
SELECT stage, bound, count(*) AS erasures, CAST(sum(took) AS bigint) AS total FROM (
  SELECT stage, took, CASE WHEN took <= $1 THEN 0 WHEN took <= $2 THEN 1 WHEN took <= $3 THEN 2 WHEN took <= $4 THEN 3
    WHEN took <= $5 THEN 4 WHEN took <= $6 THEN 5 WHEN took <= $7 THEN 6 WHEN took <= $8 THEN 7 ELSE 8 END AS bound
  FROM (
    SELECT 'hidden' AS stage, hidden_at - requested_at AS took FROM erasure_times WHERE hidden_at IS NOT NULL
    UNION ALL SELECT 'gone', gone_at - requested_at FROM erasure_times WHERE gone_at IS NOT NULL
    UNION ALL SELECT 'certified', certified_at - requested_at FROM erasure_times WHERE certified_at IS NOT NULL
  ) AS stages
) AS counted GROUP BY stage, bound

-- name: erasures_late
SELECT count(*) FILTER (WHERE certified_at - requested_at <= $1) AS in_time,
  count(*) FILTER (WHERE coalesce(certified_at, $2) - requested_at > $1) AS late,
  min(requested_at) FILTER (WHERE certified_at IS NULL) AS oldest
FROM erasure_times

-- What is live and may be on hold, of a tenant's subjects with these numbers, as far as one cares to read.
-- name: held_rows
SELECT agent_id, session_id, CASE WHEN $5 = 1 THEN metadata ELSE '{}' END AS metadata
FROM records JOIN subjects ON subjects.no = records.subject
WHERE records.subject BETWEEN $2 AND $3
  AND key BETWEEN $2::bigint << :KEY_BITS AND (($3::bigint + 1) << :KEY_BITS) - 1
  AND state IN ('active', 'archived')
  AND (subjects.subject < $1::text || '/' OR subjects.subject >= $1::text || '0') IS NOT TRUE
LIMIT $4

-- name: held_sessions
SELECT agent_id, session_id, '{}' AS metadata FROM sessions JOIN subjects ON subjects.no = sessions.subject
WHERE sessions.subject BETWEEN $2 AND $3 AND state = 'active'
  AND (subjects.subject < $1::text || '/' OR subjects.subject >= $1::text || '0') IS NOT TRUE
LIMIT $4
