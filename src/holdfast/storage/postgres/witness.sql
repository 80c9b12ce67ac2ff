-- What is PostgreSQL's alone: whether this is the very database that agreed with the ledger of erasures before.

-- name: confirm
INSERT INTO witness (one, started_at, xid)
VALUES (1, pg_postmaster_start_time(), pg_current_xact_id()::text::bigint & 4294967295)
ON CONFLICT (one) DO UPDATE SET started_at = excluded.started_at, xid = excluded.xid

-- name: is_unbroken
SELECT EXISTS (
    SELECT 1 FROM witness WHERE started_at = pg_postmaster_start_time() AND xid = xmin::text::bigint
)
