-- What is PostgreSQL's alone: scopes that are too large for an index in memory. A scope's number is $1 throughout.
-- {model} and {dim} are numbers that are written in, so that the index that is for them alone can be used.

-- name: filled
SELECT filled FROM fillings WHERE subject = $1::bigint >> 3 AND scope = $1

-- name: put_filled
INSERT INTO fillings (subject, scope, filled) VALUES ($1::bigint >> 3, $1, $2)
ON CONFLICT (subject, scope) DO UPDATE SET filled = excluded.filled

-- name: stale
SELECT key FROM passages WHERE subject = $1::bigint >> 3 AND scope = $1 AND place = 0 AND words IS NULL
ORDER BY key LIMIT $2

-- Whatever their state: one that is in the recycle bin may come back.
-- name: to_fill
SELECT key, id, agent_id, session_id, created_at, updated_at, NULL, NULL, metadata,
       CASE WHEN model = $4 THEN vectors END, terms, CASE WHEN octet_length(terms) = 0 THEN content END
FROM records
WHERE subject = $1::bigint >> 3 AND key BETWEEN $2 AND $3 ORDER BY key LIMIT $5

-- name: to_fill_anew
SELECT key, id, agent_id, session_id, created_at, updated_at, NULL, NULL, metadata,
       CASE WHEN model = $3 THEN vectors END, terms, CASE WHEN octet_length(terms) = 0 THEN content END
FROM records
WHERE subject = $1::bigint >> 3 AND key = ANY ($2::bigint[]) ORDER BY key

-- name: forget
DELETE FROM passages WHERE subject = $1::bigint >> 3 AND key = ANY ($2::bigint[])

-- name: forget_scope
DELETE FROM passages WHERE (subject, key, place) IN
    (SELECT subject, key, place FROM passages WHERE subject = $1::bigint >> 3 AND scope = $1 LIMIT $2)

-- name: forget_filling
DELETE FROM fillings WHERE subject = $1::bigint >> 3 AND scope = $1

-- name: copy
COPY passages (subject, key, place, length, scope, model, session_id, id, words, vector) FROM STDIN (FORMAT BINARY)

-- name: fillings
SELECT subjects.subject, fillings.scope, coalesce(memories, 0)
FROM fillings JOIN subjects ON subjects.no = fillings.subject LEFT JOIN scopes ON scopes.subject = fillings.subject AND scopes.scope = fillings.scope
WHERE subjects.subject >= $1::text || '/' AND subjects.subject < $1::text || '0'

-- name: large
SELECT subjects.subject, scope, memories FROM scopes JOIN subjects ON subjects.no = scopes.subject
WHERE memories > $2 AND subjects.subject >= $1::text || '/' AND subjects.subject < $1::text || '0'

-- name: embedded
SELECT count(*) FROM (SELECT 1 FROM passages WHERE model = $1 AND vector IS NOT NULL LIMIT $2) AS few

-- Runs of neighbouring records, spread evenly over the scope.
-- name: sample
SELECT id, agent_id, session_id, created_at, updated_at, aged_from + delete_after,
       CASE WHEN state = 'archived' THEN 0 ELSE aged_from + archive_after END, metadata,
       CASE WHEN model = $2 THEN vectors END, terms, CASE WHEN octet_length(terms) = 0 THEN content END
FROM unnest($3::bigint[]) AS runs (start)
JOIN records ON records.subject = $1::bigint >> 3 AND key >= start AND key < start + $4
JOIN profiles ON profiles.no = records.profile
WHERE state IN ('active', 'archived')

-- name: rows
SELECT id, agent_id, session_id, created_at, updated_at, aged_from + delete_after,
       CASE WHEN state = 'archived' THEN 0 ELSE aged_from + archive_after END, metadata,
       CASE WHEN model = $2 THEN vectors END, terms, CASE WHEN octet_length(terms) = 0 THEN content END
FROM records JOIN profiles ON profiles.no = records.profile
WHERE subject = $1::bigint >> 3 AND key = ANY ($3::bigint[]) AND state IN ('active', 'archived')

-- Plans are to follow the index that is meant, also before the server knows how much there is of what.
-- name: tune
SELECT set_config('hnsw.ef_search', $1, true), set_config('hnsw.iterative_scan', 'relaxed_order', true),
       set_config('hnsw.max_scan_tuples', $2, true), set_config('enable_sort', 'off', true),
       set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true),
       set_config('plan_cache_mode', 'force_custom_plan', true)

-- name: untune
SELECT set_config('enable_sort', 'on', true), set_config('enable_bitmapscan', 'on', true)

-- name: near
SELECT passages.key
FROM passages JOIN records USING (subject, key) JOIN profiles ON profiles.no = records.profile
WHERE passages.subject = $1::bigint >> 3 AND passages.scope = $1 AND passages.model = {model}
  AND state IN ('active', 'archived') AND (delete_after IS NULL OR aged_from + delete_after > $2)
  AND ($3 OR state = 'active' AND (archive_after IS NULL OR aged_from + archive_after > $2))
  AND ($4 = '' OR agent_id = $4)
  AND ($7::bigint[] = '{}' OR words && $7) AND ($8::bigint[] = '{}' OR words && $8) AND ($9::bigint[] = '{}' OR words && $9)
ORDER BY vector::halfvec({dim}) <=> $5::text::halfvec({dim}) LIMIT $6

-- The same without the index: among records that have been chosen.
-- name: near_among
WITH chosen AS MATERIALIZED (
    SELECT key, vector FROM passages
    WHERE subject = $1::bigint >> 3 AND key = ANY ($2::bigint[]) AND model = {model} AND vector IS NOT NULL
)
SELECT key FROM chosen ORDER BY vector::halfvec({dim}) <=> $3::text::halfvec({dim}) LIMIT $4

-- Which records hold the words, each by itself or two together: how many hold each ($4 at most), and those of the
-- greatest weight, a short text before a long one. A weight that is not given follows from how many hold the word.
-- name: holding
WITH held AS MATERIALIZED (
    SELECT asked.place, found.key, found.length, found.fits
    FROM unnest($2::bigint[], $3::bigint[]) WITH ORDINALITY AS asked (one, other, place)
    CROSS JOIN LATERAL (SELECT key, length, ($12::bigint[] = '{}' OR words && $12)
                               AND ($13::bigint[] = '{}' OR words && $13) AND ($14::bigint[] = '{}' OR words && $14) AS fits
                        FROM passages
                        WHERE subject = $1::bigint >> 3 AND scope = $1 AND words @> ARRAY[asked.one, asked.other]
                        LIMIT $4) AS found
), counted AS MATERIALIZED (
    SELECT place, count(*)::float8 AS holding FROM held GROUP BY place
), weighed AS MATERIALIZED (
    SELECT place, coalesce(weight, ln(1 + greatest($6::float8 - holding, 0) / (holding + 1.5))) AS weight
    FROM unnest($5::float8[]) WITH ORDINALITY AS given (weight, place) JOIN counted USING (place)
), best AS (
    SELECT key, sum(weight) / (0.3 + 0.9 * length / $7::float8 + 1) AS score FROM held JOIN weighed USING (place)
    WHERE fits GROUP BY key, length ORDER BY score DESC, key DESC LIMIT 16 * $8
), seen AS (
    SELECT key, score FROM best JOIN records USING (key) JOIN profiles ON profiles.no = records.profile
    WHERE subject = $1::bigint >> 3 AND state IN ('active', 'archived')
      AND (delete_after IS NULL OR aged_from + delete_after > $9)
      AND ($10 OR state = 'active' AND (archive_after IS NULL OR aged_from + archive_after > $9))
      AND ($11 = '' OR agent_id = $11)
    ORDER BY score DESC, key DESC LIMIT $8
)
SELECT false, place, holding FROM counted UNION ALL SELECT true, key, score FROM seen

-- What a filter needs of the records that have all of some fields ($2 at least one, $3 and $4 too, unless empty).
-- name: having
SELECT records.key, records.id, agent_id, records.session_id, created_at, updated_at, metadata
FROM passages JOIN records USING (subject, key) JOIN profiles ON profiles.no = records.profile
WHERE passages.subject = $1::bigint >> 3 AND passages.scope = $1 AND place = 0 AND words && $2::bigint[]
  AND ($3::bigint[] = '{}' OR words && $3::bigint[]) AND ($4::bigint[] = '{}' OR words && $4::bigint[])
  AND state IN ('active', 'archived') AND (delete_after IS NULL OR aged_from + delete_after > $5)
  AND ($6 OR state = 'active' AND (archive_after IS NULL OR aged_from + archive_after > $5))
  AND ($7 = '' OR agent_id = $7)
LIMIT $8::bigint

-- The same of every record of the scope, the newest first; only of those made within a time ($7, $8) and with metadata that
-- a path ($9, unless empty) holds for.
-- name: newest
SELECT key, id, agent_id, session_id, created_at, updated_at, metadata
FROM records JOIN profiles ON profiles.no = records.profile
WHERE subject = $1::bigint >> 3 AND key >> 29 = $1 AND id < $2
  AND state IN ('active', 'archived') AND (delete_after IS NULL OR aged_from + delete_after > $3)
  AND ($4 OR state = 'active' AND (archive_after IS NULL OR aged_from + archive_after > $3))
  AND ($5 = '' OR agent_id = $5) AND created_at BETWEEN $7 AND $8
  AND ($9::text = '' OR metadata::jsonb @@ $9::text::jsonpath)
ORDER BY id DESC LIMIT $6

-- The live records of the same session before and after each of some, nearest first.
-- name: around
SELECT centre.id, side, near.id, near.key
FROM unnest($2::text[], $3::text[]) AS centre (id, session_id)
CROSS JOIN LATERAL (
    (SELECT -1 AS side, passages.id, passages.key FROM passages JOIN records USING (subject, key)
     WHERE passages.subject = $1::bigint >> 3 AND passages.scope = $1 AND passages.session_id = centre.session_id
       AND passages.id < centre.id AND state IN ('active', 'archived') AND ($4 = '' OR agent_id = $4)
     ORDER BY passages.id DESC LIMIT $5)
    UNION ALL
    (SELECT 1, passages.id, passages.key FROM passages JOIN records USING (subject, key)
     WHERE passages.subject = $1::bigint >> 3 AND passages.scope = $1 AND passages.session_id = centre.session_id
       AND passages.id > centre.id AND state IN ('active', 'archived') AND ($4 = '' OR agent_id = $4)
     ORDER BY passages.id LIMIT $5)
) AS near
