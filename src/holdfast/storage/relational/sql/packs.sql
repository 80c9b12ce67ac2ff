-- name: open
INSERT INTO packs (subject, name, state, records, bytes, digest, made_at) VALUES ($1, $2, 'writing', $3, $4, $5, $6)
RETURNING no

-- name: get
SELECT packs.no AS number, subjects.subject, name, state, records, digest
FROM packs JOIN subjects ON subjects.no = packs.subject WHERE packs.subject = $1 AND packs.no = $2

-- name: unsettled
SELECT packs.no AS number, subjects.subject, name, state, records, digest
FROM packs INDEXED BY packs_unsettled JOIN subjects ON subjects.no = packs.subject
WHERE state <> 'kept' AND (subjects.subject < $1::text || '/' OR subjects.subject >= $1::text || '0') IS NOT TRUE
ORDER BY packs.no

-- name: members
SELECT id FROM records WHERE subject = $1 AND pack = $2 AND state <> 'deleting' ORDER BY key

-- name: count_members
SELECT count(*) FROM records WHERE subject = $1 AND pack = $2 AND state <> 'deleting'

-- name: move_members
UPDATE records SET pack = $3 WHERE subject = $1 AND pack = $2 AND state <> 'deleting'

-- name: empty
UPDATE records SET pack = NULL WHERE subject = $1 AND pack = $2

-- name: is_writing
SELECT 1 FROM packs WHERE subject = $1 AND no = $2 AND state = 'writing'

-- name: small
SELECT packs.no AS number, subjects.subject, name, state, records, digest
FROM packs JOIN subjects ON subjects.no = packs.subject
WHERE packs.subject = $1 AND state = 'kept' AND bytes < $2 ORDER BY bytes LIMIT 1

-- name: oldest
SELECT packs.no AS number, subjects.subject, name, state, records, digest
FROM packs JOIN subjects ON subjects.no = packs.subject
WHERE (packs.subject, packs.no) IN (SELECT subject, min(no) FROM packs WHERE state IN ('kept', 'stale')
                                      GROUP BY subject ORDER BY 2 LIMIT $1)
ORDER BY packs.no

-- name: settle
UPDATE packs SET state = CASE (SELECT count(*) FROM records
                               WHERE records.subject = $1 AND pack = $2 AND records.state <> 'deleting')
                         WHEN 0 THEN 'leaving' WHEN packs.records THEN 'kept' ELSE 'stale' END
WHERE subject = $1 AND no = $2 AND state IN ('writing', 'kept', 'stale') RETURNING state

-- name: set_state
UPDATE packs SET state = $3 WHERE subject = $1 AND no = $2

-- name: forget
DELETE FROM packs WHERE subject = $1 AND no = $2 AND state = 'leaving'

-- name: mark_stale
UPDATE packs SET state = 'stale' WHERE subject = $1 AND no = $2 AND state = 'kept'
