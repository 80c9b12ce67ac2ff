-- name: scopes_of_subject
SELECT scope & :LAST_KIND AS kind, next FROM scopes
WHERE scope BETWEEN ?1 << :KIND_BITS AND (?1 << :KIND_BITS) + :LAST_KIND ORDER BY scope

-- name: count_states
UPDATE scopes SET archived = archived + ?2, archived_bytes = archived_bytes + ?3, binned = binned + ?4,
                  binned_bytes = binned_bytes + ?5
WHERE scope = ?1

-- What a tenant's users have, and ever had, of each kind.
-- name: holdings
SELECT scope & :LAST_KIND AS kind, sum(next) AS added, sum(memories) AS memories, sum(bytes) AS bytes,
       sum(archived) AS archived, sum(archived_bytes) AS archived_bytes, sum(binned) AS binned,
       sum(binned_bytes) AS binned_bytes
FROM subjects CROSS JOIN scopes ON scope BETWEEN no << :KIND_BITS AND no << :KIND_BITS | :LAST_KIND
WHERE subject >= ?1 || '/' AND subject < ?1 || '0' GROUP BY 1

-- name: users
SELECT count(*) FROM subjects
WHERE subject > ?1 || '/' AND subject < ?1 || '0'
  AND (EXISTS (SELECT 1 FROM scopes WHERE scope BETWEEN no << :KIND_BITS AND no << :KIND_BITS | :LAST_KIND
               AND (memories > 0 OR binned > 0))
       OR EXISTS (SELECT 1 FROM sessions WHERE sessions.subject = subjects.no))
