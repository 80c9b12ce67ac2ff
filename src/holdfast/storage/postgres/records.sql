-- name: derived
SELECT :FACTS
FROM records
WHERE subject = $1 AND key = ANY (ARRAY(
    SELECT key FROM derivations
    WHERE subject = $1 AND source_id = ANY (ARRAY(SELECT jsonb_array_elements_text($2::jsonb)))))
ORDER BY key

-- What an agent wrote and nothing else was said of has no entry in an index: this reads what there is, in its order.
-- name: of_agent
SELECT :FACTS, subjects.subject
FROM records JOIN subjects ON subjects.no = records.subject
WHERE (source IS NULL AND agent_id = $6 OR source = $1)
  AND records.subject >= $2::bigint >> :KEY_BITS AND records.subject <= $3::bigint >> :KEY_BITS AND key > $2 AND key <= $3
  AND (subjects.subject < $4::text || '/' OR subjects.subject >= $4::text || '0') IS NOT TRUE
ORDER BY records.subject, key LIMIT $5

-- No row, if another was faster: then it is there to be found.
-- name: new_subject
INSERT INTO subjects (subject, alias) VALUES ($1, coalesce($2::bytea, uuid_send(gen_random_uuid())))
ON CONFLICT (subject) DO NOTHING RETURNING no

-- name: new_subject_lock
INSERT INTO subject_locks (subject) VALUES ($1) ON CONFLICT (subject) DO NOTHING

-- name: subject_lock
SELECT number, xid FROM subject_lock($1, $2)

-- name: lock_subjects
SELECT subject, number, xid FROM lock_subjects($1::bigint[], $2::text[])

-- name: subject_numbers
SELECT subject, no AS number, NULL AS xid FROM subjects WHERE subject = ANY ($1::text[])

-- name: lock_subject
SELECT subject FROM subject_locks WHERE subject = $1 FOR NO KEY UPDATE

-- All that a write asks before it begins, at one look.
-- name: write_context
SELECT * FROM write_context($1, $2, $3, $4, $5)

-- name: expect_context
SELECT expect_context($1, $2, $3, $4, $5, $6, $7)

-- name: of_text
SELECT id, text_hash, is_current, key FROM records_of_text($1, $2, $3, $4, $5)

-- What insert and put_scope do, by the values of both, after what expect_context does by its own, unless it finds something.
-- name: add_expected
SELECT is_done, found_id, found_revision, found_bytes FROM add_expected($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36,
    $37, $38, $39, $40, $41, $42, $43)

-- name: put_scope
INSERT INTO scopes (subject, scope, seq, floor, next, memories, bytes) VALUES ($1::bigint >> :KIND_BITS, $1, $2, $3, $4, $5, $6)
ON CONFLICT (subject, scope) DO UPDATE
SET seq = excluded.seq, floor = excluded.floor, next = excluded.next, memories = excluded.memories, bytes = excluded.bytes

-- name: cursor
SELECT subjects.no AS number, coalesce(seq, 0) AS seq, coalesce(next, 0) AS next,
       coalesce((SELECT version FROM books WHERE tenant = $4), 0) AS rules,
       EXISTS (SELECT 1 FROM registry WHERE tenant = $4 AND sort = 'agent' AND id = $5 AND state <> 'active') AS is_removed
FROM subjects LEFT JOIN scopes ON scopes.subject = $1 AND scopes.scope = $3
WHERE subjects.no = $1 AND subjects.subject = $2

-- The same of several scopes of a subject, each with the agent that it is of.
-- name: cursors
SELECT (asked.value ->> 0)::bigint AS place, subjects.no AS number, coalesce(seq, 0) AS seq, coalesce(next, 0) AS next,
       coalesce((SELECT version FROM books WHERE tenant = $4), 0) AS rules,
       EXISTS (SELECT 1 FROM registry
               WHERE tenant = $4 AND sort = 'agent' AND id = asked.value ->> 1 AND state <> 'active') AS is_removed
FROM subjects CROSS JOIN jsonb_array_elements($3::jsonb) AS asked
LEFT JOIN scopes ON scopes.subject = $1 AND scopes.scope = (asked.value ->> 0)::bigint
WHERE subjects.no = $1 AND subjects.subject = $2

-- Each record is looked up by its id, whatever the planner knows of the table: OFFSET 0 keeps it from joining otherwise.
-- name: move_all
UPDATE records SET state = $1, previous = state, version = version + 1, moved_at = $2, reason = $3,
                   purge_at = CASE WHEN $1 = 'deleting' THEN coalesce($4::bigint, purge_at, $2) ELSE $4 END, bundle = $5,
                   aged_from = coalesce($6::bigint, aged_from)
WHERE subject = $8 AND key = ANY (ARRAY(
    SELECT known.key
    FROM jsonb_array_elements($7::jsonb) AS moves
    CROSS JOIN LATERAL (SELECT key FROM records
                        WHERE id = moves.value ->> 0 AND subject = $8 AND state = $9
                          AND version = (moves.value ->> 1)::bigint OFFSET 0) AS known))
RETURNING id, kind, size, pack

-- name: erase_all
DELETE FROM records
WHERE subject = $2 AND key = ANY (ARRAY(
    SELECT known.key
    FROM jsonb_array_elements($1::jsonb) AS moves
    CROSS JOIN LATERAL (SELECT key FROM records
                        WHERE id = moves.value ->> 0 AND subject = $2 AND state = $3
                          AND version = (moves.value ->> 1)::bigint AND pack IS NULL OFFSET 0) AS known))
RETURNING id, kind, size, pack

-- name: oldest
SELECT :CURRENT
FROM records JOIN profiles ON profiles.no = records.profile
WHERE subject = $2::bigint >> :KEY_BITS AND key BETWEEN $1 AND $2 AND state IN ('active', 'archived')
  AND (keep_for IS NULL OR aged_from + keep_for <= $3)
ORDER BY aged_from, key LIMIT nullif($4::bigint, -1)

-- name: changed_ids
SELECT DISTINCT value FROM changes, jsonb_array_elements_text(ids::jsonb)
WHERE subject = $1::bigint >> :KIND_BITS AND scope = $1 AND seq > $2

-- name: log_change
INSERT INTO changes (subject, scope, seq, ids) VALUES ($1::bigint >> :KIND_BITS, $1, $2, $3)

-- name: scope
SELECT seq, floor, next, memories, bytes FROM scopes WHERE subject = $1::bigint >> :KIND_BITS AND scope = $1

-- What is counted of the kind of a record.
-- name: scope_of
SELECT seq, floor, next, memories, bytes FROM scopes
WHERE subject = $2 AND scope = $2::bigint << :KIND_BITS | (SELECT kind FROM records WHERE id = $1 AND subject = $2)

-- name: forget_changes
DELETE FROM changes WHERE subject = $1::bigint >> :KIND_BITS AND scope = $1 AND seq <= $2

-- name: move_keeping
UPDATE records SET state = $2, previous = state, version = version + 1, moved_at = $3, reason = $4,
                   purge_at = CASE WHEN $2 = 'deleting' THEN coalesce($5::bigint, purge_at, $3) ELSE $5 END, bundle = $6,
                   aged_from = coalesce($7::bigint, aged_from), pack = $8, model = $9, size = kept.size,
                   vectors = kept.vectors, terms = kept.terms, metadata = kept.metadata, content = kept.content,
                   body = kept.body
FROM unnest($10::bigint[], $11::bigint[], $12::bytea[], $13::bytea[], $14::text[], packed($15)::bytea[], packed($16)::bytea[])
     AS kept (key, size, vectors, terms, metadata, content, body)
WHERE records.subject = $1 AND records.key = kept.key
