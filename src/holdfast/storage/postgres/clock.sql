-- What the store has seen of the time.

-- name: seen
SELECT at, sighted FROM seen

-- name: see
INSERT INTO seen (one, at, sighted) VALUES (1, $1, $2)
ON CONFLICT (one) DO UPDATE SET at = excluded.at, sighted = excluded.sighted
