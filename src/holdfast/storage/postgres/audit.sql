-- name: head_of_erased
-- An entry's text begins with {"chain":"…", the pseudonym in 32 hex digits; what is not hex digits is no pseudonym.
SELECT CASE WHEN substr(audit.entry, 11, 32) ~ '^([0-9A-Fa-f]{2})*$' THEN decode(substr(audit.entry, 11, 32), 'hex') END
       AS alias, chains.seq, chains.hash
FROM chains JOIN audit ON audit.subject = chains.subject AND audit.seq = chains.seq
WHERE chains.subject = $1

-- name: numbers
-- The next so many numbers: those of a transaction that is undone are left out for good.
SELECT nextval('audit_no') FROM generate_series(1, $1::bigint)

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

-- name: last_checkpoints
SELECT no, at, chains, entries, root, hash FROM audit_checkpoints ORDER BY no DESC LIMIT nullif($1::bigint, -1)

-- name: written
-- Nobody counts the rows that were ever written to a table: all writers would wait for each other there.
SELECT NULL::bigint FROM (SELECT $1::text) AS asked

-- name: all_chains
-- An erased subject's pseudonym is known from what was sealed, or (it was erased since) from the chain alone.
SELECT every.subject, chains.seq, chains.hash, chains.floor, chains.floor_hash,
       sealed.alias AS sealed_alias, sealed.seq AS sealed_seq, sealed.hash AS sealed_hash,
       coalesce(subjects.alias, sealed.alias, CASE WHEN substr(last.entry, 11, 32) ~ '^([0-9A-Fa-f]{2})*$'
                                                   THEN decode(substr(last.entry, 11, 32), 'hex') END) AS alias
FROM (SELECT subject FROM chains UNION SELECT subject FROM sealed UNION SELECT subject FROM audit) AS every
LEFT JOIN chains ON chains.subject = every.subject
LEFT JOIN audit AS last ON last.subject = chains.subject AND last.seq = chains.seq
LEFT JOIN sealed ON sealed.subject = every.subject
LEFT JOIN subjects ON subjects.no = every.subject
ORDER BY every.subject
