-- name: scopes_of_subject
SELECT scope & :LAST_KIND AS kind, next FROM scopes WHERE subject = $1 ORDER BY scope

-- name: count_states
UPDATE scopes SET archived = archived + $2, archived_bytes = archived_bytes + $3, binned = binned + $4,
                  binned_bytes = binned_bytes + $5
WHERE subject = $1::bigint >> :KIND_BITS AND scope = $1

-- What a tenant's users have, and ever had, of each kind.
-- name: holdings
SELECT scope & :LAST_KIND AS kind, sum(next)::bigint AS added, sum(memories)::bigint AS memories,
       sum(bytes)::bigint AS bytes, sum(archived)::bigint AS archived, sum(archived_bytes)::bigint AS archived_bytes,
       sum(binned)::bigint AS binned, sum(binned_bytes)::bigint AS binned_bytes
FROM subjects JOIN scopes ON scopes.subject = subjects.no
WHERE subjects.subject >= $1::text || '/' AND subjects.subject < $1::text || '0' GROUP BY 1

-- name: users
SELECT count(*) FROM subjects
WHERE subject > $1::text || '/' AND subject < $1::text || '0'
  AND (EXISTS (SELECT 1 FROM scopes WHERE scopes.subject = subjects.no AND (memories > 0 OR binned > 0))
       OR EXISTS (SELECT 1 FROM sessions WHERE sessions.subject = subjects.no))
