-- A name in capitals is a word of ours, which other statements use with a colon before it.

-- name: RECORD
records.kind, records.id, state, version, agent_id, session_id, name, created_at, updated_at, dated_at, aged_from, metadata,
       content, body, previous, aged_from + archive_after AS archive_at, aged_from + delete_after AS hidden_from, moved_at,
       purge_at, reason, pack, source, derived_from, bundle, records.ttl, revision

-- What indexes need of a record, but for its vectors.
-- name: INDEXED
id, agent_id, session_id, created_at, updated_at, aged_from + delete_after AS hidden_from,
       CASE WHEN state = 'archived' THEN 0 ELSE aged_from + archive_after END AS archived_from, metadata

-- What says that records are the same; not of those whose name says what they are about.
-- name: TEXT_HASH
CASE WHEN name IS NULL OR records.kind IN (:TEXT_KINDS) THEN text_hash END AS text_hash

-- name: SESSION
sessions.id, subjects.subject, agent_id, nullif(session_id, '') AS session_id, state, version, created_at, updated_at,
       aged_from, aged_from + delete_after AS hidden_from, moved_at, reason, purge_at, bundle, messages, size, summary,
       sessions.no AS number, part_state, part_size

-- name: FACTS
id, records.kind, state, version, aged_from, purge_at, size, pack, agent_id, session_id, source, key

-- The same of a conversation.
-- name: SESSION_FACTS
id, NULL AS kind, state, version, aged_from, purge_at, size, 1 AS pack, agent_id, nullif(session_id, '') AS session_id,
       NULL AS source, sessions.no AS key, subjects.subject

-- What is an agent's own, in pages by place and key.
-- name: OWN_RECORD
'' AS place, key, subjects.subject, records.subject AS number, id, state, version, size, records.kind, 0 AS messages,
       session_id, metadata, purge_at, previous

-- name: OWN_SESSION
sessions.no AS key, subjects.subject, sessions.subject AS number, id, state, version, size, NULL AS kind, messages,
       session_id, '{}' AS metadata, purge_at, NULL AS previous

-- name: MOST_VERSIONS
(SELECT kept.versions FROM profiles AS kept WHERE kept.no = records.profile) AS most_versions

-- A record as a move finds it.
-- name: CURRENT
key, records.kind, state, version, size, agent_id, session_id, metadata, pack, name, derived_from, id, records.ttl, revision,
       text_hash, :MOST_VERSIONS

-- name: DAY_CENSUS
subjects.subject, agent_id, day, records, bytes
