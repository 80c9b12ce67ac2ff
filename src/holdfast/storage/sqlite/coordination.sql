-- What belongs to a user, and what an operator has set up: an empty store has neither.
-- name: has_data
SELECT EXISTS (SELECT 1 FROM subjects WHERE substr(subject, -1) <> '/')
    OR EXISTS (SELECT 1 FROM rules) OR EXISTS (SELECT 1 FROM registry) OR EXISTS (SELECT 1 FROM api_keys)
    OR EXISTS (SELECT 1 FROM parts)

-- Where a lock can be had on it, until the end of the transaction that relies on it.
-- name: lease_checked
SELECT name, holder, epoch, expires_at FROM leases WHERE name = ?
