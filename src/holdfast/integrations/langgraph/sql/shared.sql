-- `@checkpoints` is the table with its schema, `:name` a parameter, `IN LIST(:names)` asks for any of a list.
-- name: create_threads
CREATE TABLE IF NOT EXISTS @holdfast_threads (
    thread_id text PRIMARY KEY, head text NOT NULL, user_id text, agent_id text, active_at bigint)

-- name: create_threads_of_user
CREATE INDEX IF NOT EXISTS holdfast_threads_user ON @holdfast_threads (user_id)

-- name: create_binned
CREATE TABLE IF NOT EXISTS @holdfast_bin (
    bin_id text PRIMARY KEY, thread_id text NOT NULL, head text NOT NULL, user_id text, agent_id text,
    active_at bigint, recycled_at bigint NOT NULL)

-- name: create_binned_of_thread
CREATE INDEX IF NOT EXISTS holdfast_bin_thread ON @holdfast_bin (thread_id)

-- name: create_binned_checkpoints
CREATE INDEX IF NOT EXISTS holdfast_bin_checkpoints_bin ON @holdfast_bin_checkpoints (bin_id)

-- name: create_binned_ids
CREATE INDEX IF NOT EXISTS holdfast_bin_checkpoints_id ON @holdfast_bin_checkpoints (thread_id, checkpoint_id)

-- name: gone
SELECT thread_id FROM @holdfast_threads AS known
WHERE NOT EXISTS (SELECT 1 FROM @checkpoints WHERE checkpoints.thread_id = known.thread_id)

-- name: forget
DELETE FROM @holdfast_threads WHERE thread_id IN LIST(:threads)

-- name: idle
SELECT thread_id, head, user_id, agent_id, active_at FROM @holdfast_threads
WHERE active_at <= :before AND thread_id > :after ORDER BY thread_id LIMIT :limit

-- name: heads
SELECT thread_id, max(checkpoint_id) FROM @checkpoints WHERE thread_id IN LIST(:threads) GROUP BY thread_id

-- name: binned
SELECT bin_id, thread_id, head, user_id, agent_id, active_at, recycled_at FROM @holdfast_bin
WHERE bin_id IN LIST(:bins)

-- name: thin_checkpoints
DELETE FROM @checkpoints WHERE thread_id = :thread AND checkpoint_ns = :namespace AND checkpoint_id IN LIST(:ids)

-- name: thin_writes
DELETE FROM @writes WHERE thread_id = :thread AND checkpoint_ns = :namespace AND checkpoint_id IN LIST(:ids)

-- name: thin_checkpoint_writes
DELETE FROM @checkpoint_writes WHERE thread_id = :thread AND checkpoint_ns = :namespace AND checkpoint_id IN LIST(:ids)

-- name: thin_checkpoint_blobs
DELETE FROM @checkpoint_blobs
WHERE thread_id = :thread AND checkpoint_ns = :namespace AND channel = :channel AND version IN LIST(:versions)

-- name: cut_parents
UPDATE @checkpoints SET parent_checkpoint_id = NULL
WHERE thread_id = :thread AND checkpoint_ns = :namespace AND checkpoint_id IN LIST(:ids)
