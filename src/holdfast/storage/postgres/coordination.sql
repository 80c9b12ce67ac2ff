-- What belongs to a user, and what an operator has set up: an empty store has neither.
-- name: has_data
SELECT EXISTS (SELECT 1 FROM subjects WHERE right(subject, 1) <> '/')
    OR EXISTS (SELECT 1 FROM rules) OR EXISTS (SELECT 1 FROM registry) OR EXISTS (SELECT 1 FROM api_keys)
    OR EXISTS (SELECT 1 FROM parts)

-- Until the end of the transaction nobody takes it over: that changes the epoch, which is part of a key. Its holder goes on
-- extending it meanwhile.
-- name: lease_checked
SELECT name, holder, epoch, expires_at FROM leases WHERE name = $1 FOR KEY SHARE
