-- A tenant's subjects are a range, here written as what is not outside of it: so no plan begins with all of them.
-- name: head
SELECT subjects.alias, chains.seq, chains.hash
FROM subjects LEFT JOIN chains ON chains.subject = subjects.no
WHERE subjects.no = $1 AND subjects.alias IS NOT NULL

-- name: name
SELECT subject FROM subjects WHERE no = $1

-- name: known
SELECT 1 FROM subjects WHERE subject = $1

-- name: append
INSERT INTO audit (no, subject, seq, at, item, last_item, entry, hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)

-- name: move_head
INSERT INTO chains (subject, seq, hash, floor, floor_hash) VALUES ($1, $2, $3, 0, $4)
ON CONFLICT (subject) DO UPDATE SET seq = excluded.seq, hash = excluded.hash

-- name: of_item
-- Entries about it alone, and those about several items among which it may be.
SELECT convert_to(entry, 'UTF8') AS text, hash
FROM (SELECT no, entry, hash FROM audit WHERE subject = $1 AND item = $2 AND last_item IS NULL
      UNION ALL
      SELECT no, entry, hash FROM audit WHERE subject = $1 AND item <= $2 AND last_item >= $2) AS found
ORDER BY no

-- name: tail_of_subject
SELECT convert_to(entry, 'UTF8') AS text, hash FROM audit WHERE subject = $1 ORDER BY seq DESC LIMIT $2

-- name: tail_of_tenant
-- Newest first through all entries, for the few that are asked for.
SELECT convert_to(audit.entry, 'UTF8') AS text, audit.hash
FROM audit JOIN subjects ON subjects.no = audit.subject
WHERE (subjects.subject < $1::text || '/' OR subjects.subject >= $1::text || '0') IS NOT TRUE
ORDER BY audit.no DESC LIMIT $2

-- name: sizes
SELECT (SELECT count(*) FROM chains) AS chains, (SELECT count(*) FROM audit) AS entries,
       (SELECT count(*) FROM audit_checkpoints) AS checkpoints

-- name: sealed
SELECT subject, alias, seq, hash FROM sealed ORDER BY subject

-- name: add_checkpoint
INSERT INTO audit_checkpoints (no, at, chains, entries, root, hash) VALUES ($1, $2, $3, $4, $5, $6)

-- name: checkpoints
SELECT no, at, chains, entries, root, hash FROM audit_checkpoints ORDER BY no

-- name: links
SELECT no, seq, at, convert_to(item, 'UTF8') AS item, convert_to(last_item, 'UTF8') AS last_item,
       convert_to(entry, 'UTF8') AS text, hash
FROM audit WHERE subject = $1 AND seq >= $2 ORDER BY seq

-- name: overdue
-- Chains whose first entry is of before a moment.
SELECT chains.subject
FROM chains JOIN audit AS oldest ON oldest.subject = chains.subject AND oldest.seq = chains.floor + 1
WHERE chains.subject > $1 AND oldest.at < $2
ORDER BY chains.subject LIMIT $3

-- name: cut_limits
SELECT sealed.alias, sealed.seq AS sealed_seq, chains.floor, chains.floor_hash
FROM chains JOIN sealed ON sealed.subject = chains.subject
JOIN audit AS head ON head.subject = sealed.subject AND head.seq = sealed.seq AND head.hash = sealed.hash
WHERE chains.subject = $1

-- name: cut
DELETE FROM audit WHERE subject = $1 AND seq <= $2

-- name: move_floor
UPDATE chains SET floor = $1, floor_hash = $2 WHERE subject = $3

-- name: page_of_subject
SELECT no, at, convert_to(entry, 'UTF8') AS text, hash FROM audit
WHERE subject = $1 AND no < $2 ORDER BY seq DESC LIMIT $3

-- name: page_of_tenant
SELECT audit.no, at, convert_to(audit.entry, 'UTF8') AS text, audit.hash
FROM audit JOIN subjects ON subjects.no = audit.subject
WHERE audit.no < $2 AND (subjects.subject < $1::text || '/' OR subjects.subject >= $1::text || '0') IS NOT TRUE
ORDER BY audit.no DESC LIMIT $3

-- name: last_no
SELECT max(no) FROM audit

-- name: time_at
SELECT at FROM audit WHERE no <= $1 ORDER BY no DESC LIMIT 1
