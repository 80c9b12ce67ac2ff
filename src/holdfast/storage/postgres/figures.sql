-- name: scopes_of_subject
SELECT scope & :LAST_KIND AS kind, next FROM scopes WHERE subject = $1 ORDER BY scope
