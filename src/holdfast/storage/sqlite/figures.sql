-- name: scopes_of_subject
SELECT scope & :LAST_KIND AS kind, next FROM scopes
WHERE scope BETWEEN ?1 << :KIND_BITS AND (?1 << :KIND_BITS) + :LAST_KIND ORDER BY scope
