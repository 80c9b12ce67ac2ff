-- What a backup brings back into a store that is in use.

-- Columns are in the order of the catalogue.
-- name: insert_record
INSERT INTO records (subject, key, kind, version, profile, aged_from, created_at, updated_at, dated_at, moved_at, purge_at,
                     pack, size, model, id, state, previous, agent_id, session_id, name, reason, bundle, metadata, terms,
                     vectors, content, body, source, derived_from, text_hash, ttl, revision)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25,
        packed($26), packed($27), $28, $29, $30, $31, $32)

-- A version goes to the record of an id, which is $2, if it is older than what that says now.
-- name: insert_version
INSERT INTO versions (subject, key, version, started_at, ended_at, size, text_hash, model, actor, reason, metadata, terms,
                      vectors, content, source, derived_from)
SELECT subject, key, $3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::bigint, $8::bigint, $9, $10, $11, $12::bytea,
       $13::bytea, packed($14), $15, $16
FROM records WHERE subject = $1 AND id = $2 AND state <> 'deleting' AND revision > $3
ON CONFLICT DO NOTHING

-- name: pack
SELECT no AS number, state,
       EXISTS (SELECT 1 FROM records WHERE records.subject = $1 AND pack = packs.no) AS is_filled
FROM packs WHERE subject = $1 AND name = $2

-- name: insert_session
INSERT INTO sessions (subject, version, profile, created_at, updated_at, aged_from, moved_at, purge_at, messages, size,
                      aside, id, agent_id, session_id, state, reason, bundle, summary, part_state, part_size)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20) RETURNING no

-- name: facts_there
SELECT id FROM facts WHERE subject = $2 AND id IN LIST($1)

-- name: insert_hold
INSERT INTO holds (id, tenant, user_id, agent_id, session_id, memory_id, tag, reason, author, created_at, released_at,
                   released_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (id) DO NOTHING

-- name: holds_on_ids
SELECT id, tenant, memory_id FROM holds WHERE user_id IS NULL AND memory_id IS NOT NULL

-- name: session_anywhere
SELECT 1 FROM sessions JOIN subjects ON subjects.no = sessions.subject
WHERE sessions.id = $1 AND subjects.subject >= $2::text || '/' AND subjects.subject < $2::text || '0' LIMIT 1
