-- name: add_hold
INSERT INTO holds (id, tenant, reason, author, created_at, user_id, agent_id, session_id, memory_id, tag)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: holds
SELECT id, tenant, reason, author, created_at, user_id, agent_id, session_id, memory_id, tag, released_at, released_by
FROM holds WHERE tenant = $1 AND ($2::boolean OR released_at IS NULL) ORDER BY created_at, id

-- name: hold
SELECT id, tenant, reason, author, created_at, user_id, agent_id, session_id, memory_id, tag, released_at, released_by
FROM holds WHERE tenant = $1 AND id = $2

-- name: release_hold
UPDATE holds SET released_at = $1, released_by = $2 WHERE tenant = $3 AND id = $4 AND released_at IS NULL

-- name: book
SELECT version FROM books WHERE tenant = $1

-- name: raise_version
INSERT INTO books (tenant, version, defaults, software) VALUES ($1, 1, $2, $3)
ON CONFLICT (tenant) DO UPDATE SET version = books.version + 1

-- name: open_book
INSERT INTO books (tenant, version, defaults, software) VALUES ($1, 1, $2, $3) ON CONFLICT (tenant) DO NOTHING

-- name: defaults
SELECT defaults, software FROM books WHERE tenant = $1

-- name: other_defaults
SELECT tenant, software FROM books WHERE defaults <> $1 ORDER BY tenant

-- name: put_defaults
UPDATE books SET defaults = $2, software = $3, version = version + 1 WHERE tenant = $1

-- name: rules
-- An empty text stands for what a rule does not name.
SELECT no, id, kind, nullif(user_id, '') AS user_id, nullif(agent_id, '') AS agent_id, nullif(session_id, '') AS session_id,
       nullif(memory_id, '') AS memory_id, terms, pending, version, updated_at, selection
FROM rules WHERE tenant = $1 ORDER BY no

-- name: put_rule
INSERT INTO rules (id, tenant, kind, user_id, agent_id, session_id, memory_id, selection, terms, pending, version,
                   updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, '[null,null,null,null,null]', $9, 0, $10)
ON CONFLICT (tenant, kind, user_id, agent_id, session_id, memory_id, selection) DO UPDATE SET pending = excluded.pending
RETURNING no

-- name: settle_rule
UPDATE rules SET terms = pending, pending = NULL, version = version + 1, updated_at = $1
WHERE no = $2 AND pending IS NOT NULL

-- One selection is in force at a time: those before it say nothing from now on, and are about to say nothing.
-- name: retire_selections
UPDATE rules SET terms = '[null,null,null,null,null]', pending = NULL, updated_at = $1
WHERE tenant = $2 AND selection != '' AND no != $3 AND (pending IS NOT NULL OR terms != '[null,null,null,null,null]')
RETURNING no

-- name: settle_selection
UPDATE rules SET terms = pending, pending = NULL, updated_at = $1,
                 version = 1 + (SELECT max(version) FROM rules WHERE tenant = $3 AND selection != '')
WHERE no = $2 AND pending IS NOT NULL

-- name: profile
SELECT no FROM profiles WHERE tenant = $1 AND kind = $2 AND rules = $3 AND ttl = $4

-- The update changes nothing: it is there to give the number, should another have been faster.
-- name: new_profile
INSERT INTO profiles (tenant, kind, rules, ttl, archive_after, delete_after, keep_for, versions, versions_for)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (tenant, kind, rules, ttl) DO UPDATE SET keep_for = profiles.keep_for
RETURNING no

-- name: profiles
SELECT no, kind, rules, ttl FROM profiles WHERE tenant = $1

-- name: put_life
UPDATE profiles SET archive_after = $1, delete_after = $2, keep_for = $3, versions = $4, versions_for = $5 WHERE no = $6

-- name: subjects_of
SELECT subject, no FROM subjects WHERE subject >= $1::text || '/' AND subject < $1::text || '0' ORDER BY no

-- name: records_to_assign
SELECT key, id, kind, profile, agent_id, session_id, metadata, ttl FROM records
WHERE subject = $2::bigint >> :KEY_BITS AND key BETWEEN $1 AND $2 AND ($3::text = '' OR agent_id = $3)
  AND ($4::text = '' OR session_id = $4)
ORDER BY key LIMIT $5

-- name: record_to_assign
SELECT key, id, kind, profile, agent_id, session_id, metadata, ttl FROM records WHERE id = $1 AND subject = $2

-- name: assign_record
UPDATE records SET profile = $1 WHERE subject = $2::bigint >> :KEY_BITS AND key = $2

-- name: sessions_to_assign
SELECT no AS key, id, NULL AS kind, profile, agent_id, nullif(session_id, '') AS session_id, '{}' AS metadata
FROM sessions
WHERE subject = $1 AND ($2::text = '' OR agent_id = $2) AND ($3::text = '' OR session_id = $3)

-- name: assign_session
UPDATE sessions SET profile = $2 WHERE subject = $1 AND no = $3
