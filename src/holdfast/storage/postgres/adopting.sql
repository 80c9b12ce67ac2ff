-- What a backup brings back into a store that is in use.

-- No row, if another was faster: then it is there to be found.
-- name: new_subject
INSERT INTO subjects (subject, alias) VALUES ($1, $2) ON CONFLICT (subject) DO NOTHING RETURNING no

-- name: new_turn
INSERT INTO turns (subject) VALUES ($1) ON CONFLICT (subject) DO NOTHING

-- name: there
SELECT records.id, key, kind, state, version, size, agent_id, session_id, metadata, pack
FROM jsonb_array_elements_text($1::jsonb) AS wanted
CROSS JOIN LATERAL (SELECT * FROM records WHERE records.id = wanted.value AND subject = $2 OFFSET 0) AS records

-- name: holders
SELECT records.kind, records.name, records.id
FROM jsonb_array_elements($1::jsonb) AS wanted
CROSS JOIN LATERAL (SELECT kind, name, id FROM records
                    WHERE subject = $2 AND kind = (wanted.value ->> 0)::bigint AND name = wanted.value ->> 1
                      AND state IN ('active', 'archived') OFFSET 0) AS records

-- name: remove_records
DELETE FROM records WHERE subject = $1 AND key = ANY (ARRAY(SELECT jsonb_array_elements_text($2::jsonb)::bigint))

-- name: insert_record
INSERT INTO records (key, subject, kind, profile, pack, model, version, aged_from, created_at, updated_at, dated_at,
                     moved_at, purge_at, size, id, state, previous, agent_id, session_id, name, reason, bundle, metadata,
                     terms, vectors, content, body, source, derived_from)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25,
        packed($26), packed($27), $28, $29)

-- name: pack
SELECT no, state, EXISTS (SELECT 1 FROM records WHERE records.subject = packs.subject AND pack = packs.no)
FROM packs WHERE subject = $1 AND name = $2

-- name: insert_session
INSERT INTO sessions (subject, profile, messages, size, aside, version, created_at, updated_at, aged_from, moved_at,
                      purge_at, id, agent_id, session_id, state, reason, bundle, summary)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18) RETURNING no

-- name: insert_message
INSERT INTO history (subject, key, created_at, purge_at, id, role, metadata, content)
VALUES ($1, $2, $3, $4, $5, $6, $7, packed($8))

-- name: messages_there
SELECT id, key FROM history WHERE subject = $1 AND key BETWEEN $2 AND $3

-- name: facts_there
SELECT id FROM facts WHERE subject = $2 AND id = ANY (ARRAY(SELECT jsonb_array_elements_text($1::jsonb)))

-- name: insert_hold
INSERT INTO holds (id, tenant, user_id, agent_id, session_id, memory_id, tag, reason, author, created_at, released_at,
                   released_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (id) DO NOTHING

-- name: session_anywhere
SELECT 1 FROM sessions JOIN subjects ON subjects.no = sessions.subject
WHERE sessions.id = $1 AND subjects.subject >= $2::text || '/' AND subjects.subject < $2::text || '0' LIMIT 1

-- name: message_anywhere
SELECT 1 FROM history JOIN subjects ON subjects.no = history.subject
WHERE history.id = $1 AND subjects.subject >= $2::text || '/' AND subjects.subject < $2::text || '0' LIMIT 1
