-- name: alias
SELECT alias FROM subjects WHERE no = ?

-- name: open
INSERT INTO packs (subject, name, state, records, bytes, digest, made_at) VALUES (?, ?, 'writing', ?, ?, ?, ?) RETURNING no

-- name: get
SELECT packs.no, subjects.subject, name, state, records, digest
FROM packs JOIN subjects ON subjects.no = packs.subject WHERE packs.no = ?

-- name: unsettled
SELECT packs.no, subjects.subject, name, state, records, digest
FROM packs INDEXED BY packs_unsettled CROSS JOIN subjects ON subjects.no = packs.subject
WHERE state != 'kept' AND subjects.subject >= ?1 || '/' AND subjects.subject < ?1 || '0' ORDER BY packs.no

-- name: members
SELECT id FROM records WHERE pack = ? AND state != 'deleting' ORDER BY key

-- name: count_members
SELECT count(*) FROM records WHERE pack = ? AND state != 'deleting'

-- name: move_members
UPDATE records SET pack = ? WHERE pack = ? AND state != 'deleting'

-- name: let_go
UPDATE records SET pack = NULL WHERE pack = ?

-- name: is_writing
SELECT 1 FROM packs WHERE no = ? AND state = 'writing'

-- name: small
SELECT packs.no, subjects.subject, name, state, records, digest
FROM packs JOIN subjects ON subjects.no = packs.subject
WHERE subjects.subject = ? AND state = 'kept' AND bytes < ? ORDER BY bytes LIMIT 1

-- name: oldest
SELECT packs.no, subjects.subject, name, state, records, digest
FROM packs JOIN subjects ON subjects.no = packs.subject
WHERE packs.no IN (SELECT min(no) FROM packs WHERE state IN ('kept', 'stale') GROUP BY subject ORDER BY 1 LIMIT ?)
ORDER BY packs.no

-- name: settle
UPDATE packs SET state = CASE (SELECT count(*) FROM records WHERE pack = packs.no AND records.state != 'deleting')
                         WHEN 0 THEN 'leaving' WHEN records THEN 'kept' ELSE 'stale' END
WHERE no = ? AND state IN ('writing', 'kept', 'stale') RETURNING state

-- name: set_state
UPDATE packs SET state = ? WHERE no = ?

-- name: forget
DELETE FROM packs WHERE no = ? AND state = 'leaving'

-- name: spoil
UPDATE packs SET state = 'stale' WHERE no = ? AND state = 'kept'
