-- name: scopes_of_subject
SELECT scope & :LAST_KIND AS kind, next FROM scopes WHERE subject = $1 ORDER BY scope

-- name: count_states
INSERT INTO scopes (subject, scope, archived, archived_bytes, binned, binned_bytes) VALUES ($1::bigint >> :KIND_BITS, $1, $2, $3, $4, $5)
ON CONFLICT (subject, scope) DO UPDATE
SET archived = scopes.archived + excluded.archived, archived_bytes = scopes.archived_bytes + excluded.archived_bytes,
    binned = scopes.binned + excluded.binned, binned_bytes = scopes.binned_bytes + excluded.binned_bytes

-- What a tenant's users have, and ever had, of each kind.
-- name: holdings
SELECT scope & :LAST_KIND AS kind, sum(next)::bigint AS added, sum(memories)::bigint AS memories,
       sum(bytes)::bigint AS bytes, sum(archived)::bigint AS archived, sum(archived_bytes)::bigint AS archived_bytes,
       sum(binned)::bigint AS binned, sum(binned_bytes)::bigint AS binned_bytes
FROM subjects JOIN scopes ON scopes.subject = subjects.no
WHERE subjects.subject >= $1::text || '/' AND subjects.subject < $1::text || '0' GROUP BY 1

-- name: users
SELECT count(*)
FROM (SELECT subject FROM scopes WHERE memories > 0 OR binned > 0 UNION SELECT subject FROM sessions) AS kept
JOIN subjects ON subjects.no = kept.subject
WHERE subjects.subject > $1::text || '/' AND subjects.subject < $1::text || '0'
