-- Versions of records that have ended. A record's row is the version that is current, since updated_at.

-- What is there of a version: the newest ones, and none past its time, as of $2.
-- name: KEPT
((profiles.versions IS NULL OR versions.version >= revision - profiles.versions)
   AND (versions_for IS NULL OR versions.ended_at + versions_for > $2::bigint))

-- name: VERSION
records.id, versions.version, versions.started_at, versions.ended_at, versions.actor, versions.reason, versions.metadata,
       versions.content, versions.source, versions.derived_from

-- name: end
INSERT INTO versions (subject, key, version, started_at, ended_at, actor, reason, size, text_hash, model, vectors, terms,
                      metadata, content, source, derived_from)
SELECT subject, key, revision, updated_at, $1, $2, $3, size, text_hash, model, vectors, terms, metadata, content, source,
       derived_from
FROM records WHERE subject = $4::bigint >> :KEY_BITS AND key = $4

-- name: of_record
SELECT :VERSION
FROM records JOIN profiles ON profiles.no = records.profile
     JOIN versions ON versions.subject = records.subject AND versions.key = records.key
WHERE records.id = $3 AND records.subject = $1 AND ($2::bigint IS NULL OR :KEPT)
ORDER BY versions.version

-- name: rewritten
SELECT name, id, revision
FROM EACH records OF $3 BY records.subject = $1 AND records.kind = $2 AND name = wanted.value AND state IN ('active', 'archived')
JOIN versions ON versions.subject = $1 AND versions.key = records.key AND versions.version = revision - 1
WHERE versions.ended_at = $4

-- name: trim
DELETE FROM versions
WHERE subject = $1::bigint >> :KEY_BITS AND key = $1
  AND NOT EXISTS (SELECT 1 FROM records JOIN profiles ON profiles.no = records.profile
                  WHERE records.subject = versions.subject AND records.key = versions.key AND :KEPT)
RETURNING version

-- name: shortest
SELECT min(versions_for) FROM profiles WHERE tenant = $1

-- name: DUE
versions.key, versions.version, ended_at, versions.size, records.id, subjects.subject, agent_id, session_id,
       records.metadata, records.profile, revision

-- What ended too long ago, by $2, in the order in which it ended; $1 is that less the shortest time.
-- name: too_old
SELECT :DUE
FROM versions INDEXED BY versions_by_end JOIN records ON records.subject = versions.subject AND records.key = versions.key
     JOIN profiles ON profiles.no = records.profile
     JOIN subjects ON subjects.no = versions.subject
WHERE ended_at <= $1 AND ended_at + versions_for <= $2
  AND (subjects.subject < $3::text || '/' OR subjects.subject >= $3::text || '0') IS NOT TRUE
  AND (ended_at, versions.key, versions.version) > ($4, $5, $6)
ORDER BY ended_at, versions.key, versions.version LIMIT $7

-- What others came after, more than are kept: of records that were changed more often than that.
-- name: too_many
SELECT :DUE
FROM profiles JOIN records INDEXED BY records_by_revision ON records.profile = profiles.no
     JOIN versions ON versions.subject = records.subject AND versions.key = records.key
     JOIN subjects ON subjects.no = records.subject
WHERE profiles.tenant = $1 AND revision > 1 AND revision > profiles.versions + 1
  AND versions.version < revision - profiles.versions AND (versions_for IS NULL OR ended_at + versions_for > $2)
  AND (records.profile, revision, versions.key, versions.version) > ($3, $4, $5, $6)
ORDER BY records.profile, revision, versions.key, versions.version LIMIT $7

-- What a profile keeps, and would not if it kept $3 versions for $4.
-- name: newly_due
SELECT :DUE
FROM records INDEXED BY records_by_revision JOIN profiles ON profiles.no = records.profile
     JOIN versions ON versions.subject = records.subject AND versions.key = records.key
     JOIN subjects ON subjects.no = records.subject
WHERE records.profile = $1 AND revision > 1 AND :KEPT
  AND NOT (($3::bigint IS NULL OR versions.version >= revision - $3) AND ($4::bigint IS NULL OR ended_at + $4 > $2::bigint))
  AND (revision, versions.key, versions.version) > ($5, $6, $7)
ORDER BY revision, versions.key, versions.version LIMIT $8

-- name: complete
UPDATE versions SET size = $4, text_hash = $5, model = $6, vectors = $7, terms = $8, metadata = $9, content = packed($10)
WHERE subject = $1 AND key = (SELECT key FROM records WHERE id = $2 AND subject = $1) AND version = $3

-- name: erase
DELETE FROM versions
WHERE subject = $1::bigint >> :KEY_BITS AND key = $1 AND version = $3
  AND NOT EXISTS (SELECT 1 FROM records JOIN profiles ON profiles.no = records.profile
                  WHERE records.subject = versions.subject AND records.key = versions.key AND :KEPT)

-- What indexes need of ended versions.
-- name: INDEXED_VERSION
records.id || '@' || versions.version AS id, agent_id, session_id, created_at, versions.started_at AS updated_at,
       least(coalesce(aged_from + delete_after, 9223372036854775807), coalesce(versions.ended_at + versions_for, 9223372036854775807)) AS hidden_from,
       CASE WHEN state = 'archived' THEN 0 ELSE aged_from + archive_after END AS archived_from, versions.metadata,
       CASE WHEN versions.model = $1 THEN versions.vectors END AS vectors, versions.terms,
       CASE WHEN length(versions.terms) = 0 OR versions.model IS DISTINCT FROM $1 THEN versions.content END AS text,
       CASE WHEN name IS NULL OR records.kind IN (:TEXT_KINDS) THEN versions.text_hash END AS text_hash, versions.ended_at

-- name: index_rows
SELECT :INDEXED_VERSION
FROM versions JOIN records ON records.subject = versions.subject AND records.key = versions.key
     JOIN profiles ON profiles.no = records.profile
WHERE versions.subject = $3::bigint >> :KEY_BITS AND versions.key BETWEEN $2 AND $3 AND state IN ('active', 'archived')
  AND (profiles.versions IS NULL OR versions.version >= revision - profiles.versions)

-- name: index_rows_of
SELECT :INDEXED_VERSION
FROM EACH records OF $2 BY records.id = wanted.value AND records.subject = $3
JOIN profiles ON profiles.no = records.profile
JOIN versions ON versions.subject = $3 AND versions.key = records.key
WHERE state IN ('active', 'archived')
  AND (profiles.versions IS NULL OR versions.version >= revision - profiles.versions)

-- name: at
SELECT :VERSION
FROM EACH records OF $3 BY records.id = wanted.value AND records.subject = $1
JOIN profiles ON profiles.no = records.profile
JOIN versions ON versions.subject = $1 AND versions.key = records.key
WHERE versions.started_at <= $4 AND versions.ended_at > $4 AND :KEPT
