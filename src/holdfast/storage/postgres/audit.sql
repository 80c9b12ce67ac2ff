-- A tenant's subjects are a range, here written as what is not outside of it: so no plan begins with all of them.

-- name: head
SELECT subjects.alias, chains.seq, chains.hash
FROM subjects LEFT JOIN chains ON chains.subject = subjects.no
WHERE subjects.no = $1 AND subjects.alias IS NOT NULL

-- name: head_of_erased
-- An entry's text begins with {"chain":"…", the pseudonym in 32 hex digits; what is not hex digits is no pseudonym.
SELECT CASE WHEN substr(audit.entry, 11, 32) ~ '^([0-9A-Fa-f]{2})*$' THEN decode(substr(audit.entry, 11, 32), 'hex') END,
       chains.seq, chains.hash
FROM chains JOIN audit ON audit.subject = chains.subject AND audit.seq = chains.seq
WHERE chains.subject = $1

-- name: numbers
-- The next so many numbers: those of a transaction that is undone are left out for good.
SELECT nextval('audit_no') FROM generate_series(1, $1::bigint)

-- name: append
INSERT INTO audit (no, subject, seq, at, item, last_item, entry, hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)

-- name: move_head
INSERT INTO chains (subject, seq, hash, floor, floor_hash) VALUES ($1, $2, $3, 0, $4)
ON CONFLICT (subject) DO UPDATE SET seq = excluded.seq, hash = excluded.hash

-- name: of_item
-- Entries about it alone, and those about several items among which it may be.
SELECT convert_to(entry, 'UTF8'), hash
FROM (SELECT no, entry, hash FROM audit WHERE subject = $1 AND item = $2 AND last_item IS NULL
      UNION ALL
      SELECT no, entry, hash FROM audit WHERE subject = $1 AND item <= $2 AND last_item >= $2) AS found
ORDER BY no

-- name: tail_of_subject
SELECT convert_to(entry, 'UTF8'), hash FROM audit WHERE subject = $1 ORDER BY seq DESC LIMIT $2

-- name: tail_of_tenant
-- Newest first through all entries, for the few that are asked for.
SELECT convert_to(audit.entry, 'UTF8'), audit.hash
FROM audit JOIN subjects ON subjects.no = audit.subject
WHERE (subjects.subject < $1::text || '/' OR subjects.subject >= $1::text || '0') IS NOT TRUE
ORDER BY audit.no DESC LIMIT $2

-- name: sizes
SELECT (SELECT count(*) FROM chains), (SELECT count(*) FROM audit), (SELECT count(*) FROM audit_checkpoints)

-- name: seal_heads
-- A chain that no longer has the entry that was sealed stays sealed as it was, so that it goes on being found.
INSERT INTO sealed (subject, alias, seq, hash)
SELECT chains.subject, decode(substr(last.entry, 11, 32), 'hex'), chains.seq, chains.hash
FROM chains
LEFT JOIN sealed ON sealed.subject = chains.subject
JOIN audit AS last ON last.subject = chains.subject AND last.seq = chains.seq AND last.hash = chains.hash
WHERE substr(last.entry, 11, 32) ~ '^([0-9A-Fa-f]{2})*$'
  AND (sealed.subject IS NULL
       OR (chains.seq > sealed.seq
           AND ((sealed.seq = chains.floor AND sealed.hash = chains.floor_hash)
                OR sealed.hash = (SELECT old.hash FROM audit AS old
                                  WHERE old.subject = sealed.subject AND old.seq = sealed.seq))))
ON CONFLICT (subject) DO UPDATE SET seq = excluded.seq, hash = excluded.hash

-- name: sealed
SELECT subject, alias, seq, hash FROM sealed ORDER BY subject

-- name: add_checkpoint
INSERT INTO audit_checkpoints (no, at, chains, entries, root, hash) VALUES ($1, $2, $3, $4, $5, $6)

-- name: checkpoints
SELECT no, at, chains, entries, root, hash FROM audit_checkpoints ORDER BY no

-- name: last_checkpoints
SELECT no, at, chains, entries, root, hash FROM audit_checkpoints ORDER BY no DESC LIMIT nullif($1::bigint, -1)

-- name: written
-- Nobody counts the rows that were ever written to a table: all writers would wait for each other there.
SELECT NULL::bigint FROM (SELECT $1::text) AS asked

-- name: all_chains
-- An erased subject's pseudonym is known from what was sealed, or (it was erased since) from the chain alone.
SELECT every.subject, chains.seq, chains.hash, chains.floor, chains.floor_hash,
       sealed.alias, sealed.seq, sealed.hash,
       coalesce(subjects.alias, sealed.alias,
                (SELECT CASE WHEN substr(entry, 11, 32) ~ '^([0-9A-Fa-f]{2})*$'
                             THEN decode(substr(entry, 11, 32), 'hex') END
                 FROM audit WHERE audit.subject = chains.subject AND audit.seq = chains.seq))
FROM (SELECT subject FROM chains UNION SELECT subject FROM sealed UNION SELECT subject FROM audit) AS every
LEFT JOIN chains ON chains.subject = every.subject
LEFT JOIN sealed ON sealed.subject = every.subject
LEFT JOIN subjects ON subjects.no = every.subject
ORDER BY every.subject

-- name: links
SELECT no, seq, at, convert_to(item, 'UTF8'), convert_to(last_item, 'UTF8'), convert_to(entry, 'UTF8'), hash FROM audit
WHERE subject = $1 AND seq >= $2 ORDER BY seq

-- name: overdue
-- Chains whose first entry is of before a moment.
SELECT chains.subject
FROM chains JOIN audit AS oldest ON oldest.subject = chains.subject AND oldest.seq = chains.floor + 1
WHERE chains.subject > $1 AND oldest.at < $2
ORDER BY chains.subject LIMIT $3

-- name: cut_limits
SELECT sealed.alias, sealed.seq, chains.floor, chains.floor_hash
FROM chains JOIN sealed ON sealed.subject = chains.subject
JOIN audit AS head ON head.subject = sealed.subject AND head.seq = sealed.seq AND head.hash = sealed.hash
WHERE chains.subject = $1

-- name: cut
DELETE FROM audit WHERE subject = $1 AND seq <= $2

-- name: move_floor
UPDATE chains SET floor = $1, floor_hash = $2 WHERE subject = $3
