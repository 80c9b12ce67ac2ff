-- A tenant's subjects are a range, here written as what is not outside of it: so no plan begins with all of them.

-- name: derive
INSERT INTO derivations (subject, source_id, key) VALUES ($1, $2, $3)

-- name: underive
DELETE FROM derivations WHERE subject = $1::bigint >> :KEY_BITS AND key = $1

-- name: of_source
SELECT :FACTS, subjects.subject
FROM records INDEXED BY records_by_source JOIN subjects ON subjects.no = records.subject
WHERE source = $1 AND key > $2 AND key <= $3
  AND (subjects.subject < $4::text || '/' OR subjects.subject >= $4::text || '0') IS NOT TRUE
ORDER BY key LIMIT $5

-- name: subject_no
SELECT no FROM subjects WHERE subject = $1

-- name: subjects_of_tenant
SELECT subject FROM subjects WHERE subject >= $1::text || '/' AND subject < $1::text || '0' ORDER BY subject

-- name: quota
SELECT max_memories, max_bytes FROM quotas WHERE tenant = $1 AND user_id = $2 AND kind = $3

-- name: put_quota
INSERT INTO quotas (tenant, user_id, kind, max_memories, max_bytes) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant, user_id, kind) DO UPDATE SET max_memories = excluded.max_memories, max_bytes = excluded.max_bytes

-- name: model
SELECT code FROM models WHERE id = $1

-- name: current_model
SELECT id FROM models WHERE current

-- name: adopt_model
UPDATE models SET current = (code = $1)

-- The update changes nothing: it is there to give the number, should another have been faster.
-- name: new_model
INSERT INTO models (id) VALUES ($1) ON CONFLICT (id) DO UPDATE SET current = models.current RETURNING code

-- name: insert
INSERT INTO records (key, subject, kind, profile, id, state, version, agent_id, session_id, name, created_at,
                     updated_at, dated_at, aged_from, size, model, vectors, terms, metadata, content, body, source,
                     derived_from, text_hash, ttl)
VALUES ($1, $2, $3, $4, $5, 'active', 1, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, packed($18), packed($19),
        $20, $21, $22, $23)

-- name: get
SELECT :RECORD
FROM records JOIN profiles ON profiles.no = records.profile
WHERE records.subject = $1 AND EXISTS (SELECT 1 FROM subjects WHERE no = $1 AND subjects.subject = $2) AND id = $3

-- name: get_named
SELECT :RECORD
FROM records JOIN profiles ON profiles.no = records.profile
WHERE subject = $1 AND EXISTS (SELECT 1 FROM subjects WHERE no = $1 AND subjects.subject = $2) AND records.kind = $3 AND name = $4
  AND state IN ('active', 'archived') AND (delete_after IS NULL OR aged_from + delete_after > $5)

-- name: get_all_named
SELECT :RECORD
FROM EACH records OF $4 BY records.subject = $1 AND records.kind = $3 AND name = wanted.value AND state IN ('active', 'archived')
JOIN profiles ON profiles.no = records.profile
WHERE EXISTS (SELECT 1 FROM subjects WHERE no = $1 AND subjects.subject = $2)
  AND (delete_after IS NULL OR aged_from + delete_after > $5)

-- What says the same as a record, and goes by no key: a key makes it another fact.
-- name: twins
SELECT :RECORD FROM records JOIN profiles ON profiles.no = records.profile
WHERE subject = $1 AND subject + 0 = $1 AND text_hash = (SELECT text_hash FROM records WHERE id = $2 AND subject = $1)
  AND records.kind = $3 AND id <> $2 AND name IS NULL
  AND state IN ('active', 'archived') AND (delete_after IS NULL OR aged_from + delete_after > $4)
  AND ($5::text IS NULL OR agent_id = $5)
ORDER BY key

-- name: live_of_text
SELECT :CURRENT
FROM EACH records OF $2 BY records.subject = $1 AND records.subject + 0 = $1 AND text_hash = wanted.value::bigint AND state IN ('active', 'archived')
ORDER BY key

-- name: live_hashes
SELECT DISTINCT text_hash FROM records
WHERE subject = $1 AND subject + 0 = $1 AND state IN ('active', 'archived')

-- name: fetch
SELECT :RECORD
FROM EACH records OF $3 BY records.id = wanted.value AND records.subject = $1
JOIN profiles ON profiles.no = records.profile
WHERE EXISTS (SELECT 1 FROM subjects WHERE no = $1 AND subjects.subject = $2) AND state IN ('active', 'archived')
  AND (delete_after IS NULL OR aged_from + delete_after > $4)
  AND NOT (records.kind IN (:OWN_KINDS) AND EXISTS (SELECT 1 FROM registry WHERE registry.tenant = $5 AND sort = 'agent'
                                                    AND registry.id = records.agent_id AND registry.state <> 'active'))

-- name: entries
SELECT :RECORD
FROM EACH records OF $1 BY records.id = wanted.value AND records.subject = $2
JOIN profiles ON profiles.no = records.profile

-- name: encodings
SELECT records.id, models.id AS model, vectors, terms
FROM EACH records OF $1 BY records.id = wanted.value AND records.subject = $2
LEFT JOIN models ON models.code = records.model

-- name: contents
SELECT records.id, metadata, content, body, models.id AS model, vectors, terms
FROM EACH records OF $1 BY records.id = wanted.value AND records.subject = $2
LEFT JOIN models ON models.code = records.model

-- name: places
SELECT key, kind, state, version, size, id FROM EACH records OF $1 BY records.id = wanted.value AND records.subject = $2

-- name: current_all
SELECT key, kind, state, version, size, agent_id, session_id, CASE WHEN $3::boolean THEN metadata ELSE '{}' END AS metadata,
       pack, name, derived_from, id, ttl, revision, text_hash, :MOST_VERSIONS
FROM EACH records OF $1 BY records.id = wanted.value AND records.subject = $2

-- name: current
SELECT key, kind, state, version, size, agent_id, session_id, metadata, pack, name, derived_from, id, ttl, revision,
       text_hash, :MOST_VERSIONS
FROM records WHERE id = $1 AND subject = $2

-- name: is_source
SELECT 1 FROM derivations WHERE subject = $1 AND source_id = $2 LIMIT 1

-- What is being deleted stays where a sweep looks for it.
-- name: move
UPDATE records SET state = $1, previous = state, version = version + 1, moved_at = $2, reason = $3,
                   purge_at = CASE WHEN $1 = 'deleting' THEN coalesce($4::bigint, purge_at, $2) ELSE $4 END,
                   bundle = $5, aged_from = coalesce($6::bigint, aged_from)
WHERE subject = $7::bigint >> :KEY_BITS AND key = $7

-- name: erase
DELETE FROM records WHERE subject = $1::bigint >> :KEY_BITS AND key = $1

-- name: forget_facts
DELETE FROM facts WHERE subject = $1 AND (source = $2 OR target = $2)

-- name: count_moves
INSERT INTO totals (subject, kind, state, cause, count) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (subject, kind, state, cause) DO UPDATE SET count = totals.count + excluded.count

-- name: expired
SELECT :CURRENT
FROM records JOIN profiles ON profiles.no = records.profile
WHERE subject = $2::bigint >> :KEY_BITS AND key BETWEEN $1 AND $2 AND state IN ('active', 'archived')
  AND aged_from + delete_after <= $3

-- name: named
SELECT :CURRENT, coalesce(aged_from + delete_after <= $4, FALSE) AS is_over,
       EXISTS (SELECT 1 FROM records AS other
               WHERE other.subject = $1 AND other.subject + 0 = $1 AND other.text_hash = records.text_hash
                 AND other.kind = $2 AND other.key <> records.key AND other.name IS NULL
                 AND other.state IN ('active', 'archived')) AS has_twins
FROM EACH records OF $3 BY records.subject = $1 AND records.kind = $2 AND name = wanted.value AND state IN ('active', 'archived')
JOIN profiles ON profiles.no = records.profile

-- name: active_holds
SELECT id, tenant, reason, author, created_at, user_id, agent_id, session_id, memory_id, tag FROM holds
WHERE tenant = $1 AND released_at IS NULL AND (user_id IS NULL OR user_id = $2)

-- name: has_holds
SELECT 1 FROM holds WHERE tenant = $1 AND released_at IS NULL LIMIT 1

-- name: removed_agent
SELECT coalesce(purge_at, 0) FROM registry WHERE tenant = $1 AND sort = 'agent' AND id = $2 AND state <> 'active'

-- name: bin_of_subject
SELECT :RECORD, key, subjects.subject
FROM records JOIN profiles ON profiles.no = records.profile
     JOIN subjects ON subjects.no = records.subject
WHERE records.subject = $5::bigint >> :KEY_BITS AND key BETWEEN $4 AND $5 AND state = 'recycled' AND (purge_at, key) > ($1, $2)
ORDER BY purge_at, key LIMIT $3

-- name: bin_of_tenant
SELECT :RECORD, key, subjects.subject
FROM records INDEXED BY records_binned JOIN profiles ON profiles.no = records.profile
     JOIN subjects ON subjects.no = records.subject
WHERE state = 'recycled' AND state IN ('recycled', 'deleting') AND (purge_at, key) > ($1, $2)
  AND (subjects.subject < $4::text || '/' OR subjects.subject >= $4::text || '0') IS NOT TRUE
ORDER BY purge_at, key LIMIT $3

-- name: live_ids
SELECT :FACTS FROM records
WHERE subject = $2::bigint >> :KEY_BITS AND key BETWEEN $1 AND $2 AND state IN ('active', 'archived')
ORDER BY key LIMIT $3

-- name: find
SELECT :RECORD, key, subjects.subject
FROM records JOIN profiles ON profiles.no = records.profile
     JOIN subjects ON subjects.no = records.subject
WHERE id = $1 AND (subjects.subject < $2::text || '/' OR subjects.subject >= $2::text || '0') IS NOT TRUE

-- name: bundled
SELECT :RECORD, key, subjects.subject
FROM records INDEXED BY records_by_bundle JOIN profiles ON profiles.no = records.profile
     JOIN subjects ON subjects.no = records.subject
WHERE bundle = $1 AND key > $2 AND state = 'recycled'
  AND (subjects.subject < $3::text || '/' OR subjects.subject >= $3::text || '0') IS NOT TRUE
ORDER BY key LIMIT $4

-- name: alias
SELECT alias FROM subjects WHERE no = $1

-- name: aliases
SELECT no AS number, alias FROM EACH subjects OF $1 BY subjects.no = wanted.value::bigint

-- name: replace
UPDATE records SET version = version + 1, revision = revision + 1, updated_at = $1, size = $2, model = $3, vectors = $4,
                   terms = $5, metadata = $6, content = packed($7), body = coalesce(packed($8), body), source = $9, derived_from = $10,
                   text_hash = $11, ttl = $12, aged_from = coalesce($13::bigint, aged_from)
WHERE subject = $14::bigint >> :KEY_BITS AND key = $14

-- name: rename
UPDATE records SET name = $1 WHERE subject = $2::bigint >> :KEY_BITS AND key = $2

-- Only what lives by a wish of its own, and is not over: what has expired stays gone.
-- name: refreshable
SELECT key, id
FROM EACH records OF $3 BY records.id = wanted.value AND records.subject = $2
JOIN profiles ON profiles.no = records.profile
WHERE records.ttl IS NOT NULL AND state IN ('active', 'archived') AND aged_from < $1 AND aged_from + delete_after > $1

-- name: refresh
UPDATE records SET aged_from = $1 WHERE subject = $2::bigint >> :KEY_BITS AND key = $2

-- name: embed
UPDATE records SET model = $1, vectors = $2, terms = $3 WHERE subject = $4::bigint >> :KEY_BITS AND key = $4 AND version = $5

-- name: unembedded
SELECT :RECORD
FROM records JOIN profiles ON profiles.no = records.profile
WHERE subject = $2::bigint >> :KEY_BITS AND key BETWEEN $1 AND $2 AND state IN ('active', 'archived')
  AND (model IS DISTINCT FROM $3 OR vectors IS NULL)
LIMIT $4

-- name: index_rows
SELECT :INDEXED,
       CASE WHEN model = $1 THEN vectors END AS vectors, terms,
       CASE WHEN length(terms) = 0 THEN content END AS text, :TEXT_HASH
FROM records JOIN profiles ON profiles.no = records.profile
WHERE subject = $3::bigint >> :KEY_BITS AND key BETWEEN $2 AND $3 AND state IN ('active', 'archived')
ORDER BY key

-- The same of rows with terms, packed: each column joined to one value, so that nothing is done for each row.
-- name: index_page
SELECT count(*) AS count, string_agg(id, chr(31)) AS id, string_agg(agent_id, chr(31)) AS agent_id,
       string_agg(coalesce(session_id, ''), chr(31)) AS session_id,
       string_agg(created_at::text, ',') AS created_at, string_agg((updated_at - created_at)::text, ',') AS changed_after,
       string_agg((aged_from - created_at)::text, ',') AS aged_after,
       string_agg((2 * profile + CASE WHEN state = 'archived' THEN 1 ELSE 0 END)::text, ',') AS profile,
       string_agg(metadata, chr(31)) AS metadata,
       string_agg((CASE WHEN model = $1 THEN coalesce(length(vectors), 0) ELSE 0 END)::text, ',') AS vector_sizes,
       join_bytes(CASE WHEN model = $1 THEN vectors END) AS vectors,
       string_agg(length(terms)::text, ',') AS term_sizes, join_bytes(terms) AS terms,
       string_agg((CASE WHEN name IS NULL OR kind IN (:TEXT_KINDS) THEN text_hash ELSE 0 END)::text, ',') AS text_hash
FROM records
WHERE subject = $3::bigint >> :KEY_BITS AND key BETWEEN $2 AND $3 AND state IN ('active', 'archived')
  AND ($4::text IS NULL OR agent_id = $4::text) AND length(terms) > 0

-- name: profile_times
SELECT no, archive_after, delete_after FROM EACH profiles OF $1 BY profiles.no = wanted.value::bigint

-- name: index_rows_without_terms
SELECT :INDEXED,
       CASE WHEN model = $1 THEN vectors END AS vectors, terms, content AS text, :TEXT_HASH
FROM records JOIN profiles ON profiles.no = records.profile
WHERE subject = $3::bigint >> :KEY_BITS AND key BETWEEN $2 AND $3 AND state IN ('active', 'archived')
  AND length(terms) = 0
ORDER BY key

-- name: index_row
SELECT :INDEXED,
       CASE WHEN model = $1 THEN vectors END AS vectors, terms,
       CASE WHEN length(terms) = 0 THEN content END AS text, :TEXT_HASH
FROM records JOIN profiles ON profiles.no = records.profile
WHERE id = $2 AND subject = $3 AND state IN ('active', 'archived')
