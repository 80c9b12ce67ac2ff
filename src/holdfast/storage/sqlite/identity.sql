-- Which store this is, and which keyring it belongs to.

-- name: identity
SELECT store, keyring FROM identity

-- name: make
INSERT INTO identity (one, store) VALUES (1, ?) ON CONFLICT (one) DO NOTHING

-- name: bind
UPDATE identity SET keyring = ?

-- What belongs to a user, and what an operator has set up: an empty store has neither.
-- name: has_data
SELECT EXISTS (SELECT 1 FROM subjects WHERE substr(subject, -1) <> '/')
    OR EXISTS (SELECT 1 FROM rules) OR EXISTS (SELECT 1 FROM registry) OR EXISTS (SELECT 1 FROM api_keys)
