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
