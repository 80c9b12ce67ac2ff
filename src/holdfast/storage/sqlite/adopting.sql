-- What a backup brings back into a store that is in use.

-- name: new_subject
INSERT INTO subjects (subject, alias) VALUES (?, ?) ON CONFLICT (subject) DO NOTHING RETURNING no

-- There is one writer at a time: nobody needs to be told whose turn it is.
-- name: new_turn
SELECT no FROM subjects WHERE no = ?

-- name: there
SELECT records.id, records.key, kind, state, version, size, agent_id, session_id, metadata, pack
FROM json_each(?1) AS wanted CROSS JOIN records ON records.id = wanted.value AND subject = ?2

-- name: holders
SELECT kind, name, records.id
FROM json_each(?1) AS wanted CROSS JOIN records
ON subject = ?2 AND kind = wanted.value ->> 0 AND name = wanted.value ->> 1 AND state IN ('active', 'archived')

-- name: remove_records
DELETE FROM records WHERE ?1 IS NOT NULL AND key IN (SELECT value FROM json_each(?2))

-- name: insert_record
INSERT INTO records (key, subject, kind, profile, pack, model, version, aged_from, created_at, updated_at, dated_at,
                     moved_at, purge_at, size, id, state, previous, agent_id, session_id, name, reason, bundle, metadata,
                     terms, vectors, content, body, source, derived_from)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: pack
SELECT no, state, EXISTS (SELECT 1 FROM records WHERE pack = packs.no) FROM packs WHERE subject = ? AND name = ?

-- name: insert_session
INSERT INTO sessions (subject, profile, messages, size, aside, version, created_at, updated_at, aged_from, moved_at,
                      purge_at, id, agent_id, session_id, state, reason, bundle, summary)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING no

-- name: insert_message
INSERT INTO history (key, created_at, purge_at, id, role, metadata, content)
SELECT ?2, ?3, ?4, ?5, ?6, ?7, ?8 WHERE ?1 IS NOT NULL

-- name: messages_there
SELECT id, key FROM history WHERE ?1 IS NOT NULL AND key BETWEEN ?2 AND ?3

-- name: facts_there
SELECT facts.id FROM json_each(?1) AS wanted CROSS JOIN facts ON facts.subject = ?2 AND facts.id = wanted.value

-- name: insert_hold
INSERT INTO holds (id, tenant, user_id, agent_id, session_id, memory_id, tag, reason, author, created_at, released_at,
                   released_by)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING

-- name: session_anywhere
SELECT 1 FROM sessions JOIN subjects ON subjects.no = sessions.subject
WHERE sessions.id = ?1 AND subjects.subject >= ?2 || '/' AND subjects.subject < ?2 || '0' LIMIT 1

-- name: message_anywhere
SELECT 1 FROM history JOIN sessions ON sessions.no = history.key >> 24
JOIN subjects ON subjects.no = sessions.subject
WHERE history.id = ?1 AND subjects.subject >= ?2 || '/' AND subjects.subject < ?2 || '0' LIMIT 1
