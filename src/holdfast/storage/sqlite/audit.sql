-- name: head_of_erased
-- An entry's text begins with {"chain":"…", the pseudonym in 32 hex digits.
SELECT unhex(substr(audit.entry, 11, 32)) AS alias, chains.seq, chains.hash
FROM chains JOIN audit ON audit.subject = chains.subject AND audit.seq = chains.seq
WHERE chains.subject = ?

-- name: numbers
-- The next numbers, so many as are asked for.
WITH RECURSIVE counting (more) AS (SELECT 1 UNION ALL SELECT more + 1 FROM counting WHERE more < ?1)
SELECT more + (SELECT max(ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'audit'), 0),
                          ifnull((SELECT max(no) FROM audit), 0)))
FROM counting

-- name: seal_heads
-- A chain that no longer has the entry that was sealed stays sealed as it was, so that it goes on being found.
INSERT INTO sealed (subject, alias, seq, hash)
SELECT chains.subject, unhex(substr(last.entry, 11, 32)), chains.seq, chains.hash
FROM chains
LEFT JOIN sealed ON sealed.subject = chains.subject
CROSS JOIN audit AS last ON last.subject = chains.subject AND last.seq = chains.seq AND last.hash = chains.hash
WHERE unhex(substr(last.entry, 11, 32)) IS NOT NULL
  AND (sealed.subject IS NULL
       OR (chains.seq > sealed.seq
           AND ((sealed.seq = chains.floor AND sealed.hash = chains.floor_hash)
                OR EXISTS (SELECT 1 FROM audit AS old
                           WHERE old.subject = sealed.subject AND old.seq = sealed.seq AND old.hash = sealed.hash))))
ON CONFLICT (subject) DO UPDATE SET seq = excluded.seq, hash = excluded.hash

-- name: last_checkpoints
SELECT no, at, chains, entries, root, hash FROM audit_checkpoints ORDER BY no DESC LIMIT ?

-- name: written
-- How many rows were ever written: SQLite counts them where it numbers them.
SELECT ifnull((SELECT seq FROM sqlite_sequence WHERE name = ?), 0)

-- name: all_chains
-- An erased subject's pseudonym is known from what was sealed, or (it was erased since) from the chain alone.
SELECT every.subject, chains.seq, chains.hash, chains.floor, chains.floor_hash,
       sealed.alias AS sealed_alias, sealed.seq AS sealed_seq, sealed.hash AS sealed_hash,
       ifnull(ifnull(subjects.alias, sealed.alias),
              (SELECT unhex(substr(entry, 11, 32)) FROM audit WHERE subject = chains.subject AND seq = chains.seq)) AS alias
FROM (SELECT subject FROM chains UNION SELECT subject FROM sealed UNION SELECT DISTINCT subject FROM audit
      ORDER BY subject) AS every
LEFT JOIN chains ON chains.subject = every.subject
LEFT JOIN sealed ON sealed.subject = every.subject
LEFT JOIN subjects ON subjects.no = every.subject
ORDER BY every.subject
