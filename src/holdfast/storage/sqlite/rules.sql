-- name: book
SELECT version FROM books WHERE tenant = ?

-- name: turn_page
INSERT INTO books (tenant, version, defaults, software) VALUES (?1, 1, ?2, ?3)
ON CONFLICT (tenant) DO UPDATE SET version = version + 1

-- name: open_book
INSERT INTO books (tenant, version, defaults, software) VALUES (?1, 1, ?2, ?3) ON CONFLICT (tenant) DO NOTHING

-- name: defaults
SELECT defaults, software FROM books WHERE tenant = ?1

-- name: other_defaults
SELECT tenant, software FROM books WHERE defaults <> ?1 ORDER BY tenant

-- name: put_defaults
UPDATE books SET defaults = ?2, software = ?3, version = version + 1 WHERE tenant = ?1

-- name: rules
SELECT no, id, kind, user_id, agent_id, session_id, memory_id, terms, pending, version, updated_at, selection
FROM rules WHERE tenant = ? ORDER BY no

-- name: put_rule
INSERT INTO rules (id, tenant, kind, user_id, agent_id, session_id, memory_id, selection, terms, pending, version,
                   updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, '[null,null,null]', ?, 0, ?)
ON CONFLICT (tenant, kind, user_id, agent_id, session_id, memory_id, selection) DO UPDATE SET pending = excluded.pending
RETURNING no

-- name: settle_rule
UPDATE rules SET terms = pending, pending = NULL, version = version + 1, updated_at = ?
WHERE no = ? AND pending IS NOT NULL

-- One selection is in force at a time: those before it say nothing from now on, and are about to say nothing.
-- name: retire_selections
UPDATE rules SET terms = '[null,null,null]', pending = NULL, updated_at = ?1
WHERE tenant = ?2 AND selection != '' AND no != ?3 AND (pending IS NOT NULL OR terms != '[null,null,null]')
RETURNING no

-- name: settle_selection
UPDATE rules SET terms = pending, pending = NULL, updated_at = ?1,
                 version = 1 + (SELECT max(version) FROM rules WHERE tenant = ?3 AND selection != '')
WHERE no = ?2 AND pending IS NOT NULL

-- name: profile
SELECT no FROM profiles WHERE tenant = ? AND kind = ? AND rules = ?

-- name: new_profile
INSERT INTO profiles (tenant, kind, rules, archive_after, delete_after, keep_for) VALUES (?, ?, ?, ?, ?, ?) RETURNING no

-- name: profiles
SELECT no, kind, rules FROM profiles WHERE tenant = ?

-- name: put_life
UPDATE profiles SET archive_after = ?, delete_after = ?, keep_for = ? WHERE no = ?

-- name: subjects_of
SELECT no, subject FROM subjects WHERE subject >= ?1 || '/' AND subject < ?1 || '0' ORDER BY no

-- name: records_to_assign
SELECT key, id, kind, profile, agent_id, session_id, metadata FROM records
WHERE key BETWEEN ? AND ? AND (?3 = '' OR agent_id = ?3) AND (?4 = '' OR session_id = ?4) ORDER BY key LIMIT ?

-- name: record_to_assign
SELECT key, id, kind, profile, agent_id, session_id, metadata FROM records WHERE id = ? AND subject = ?

-- name: assign_record
UPDATE records SET profile = ? WHERE key = ?

-- name: sessions_to_assign
SELECT no, id, profile, agent_id, session_id FROM sessions
WHERE subject = ? AND (?2 = '' OR agent_id = ?2) AND (?3 = '' OR session_id = ?3)

-- name: assign_session
UPDATE sessions SET profile = ?2 WHERE no = ?3 AND subject = ?1