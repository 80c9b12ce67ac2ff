-- `@checkpoints` is the table with its schema, `:name` a parameter, `IN LIST(:names)` asks for any of a list, and
-- `FIELD(metadata, :name)` is a field of a JSON object: its text if it is a text or a whole number, else NULL.
-- name: create_threads
CREATE TABLE IF NOT EXISTS @holdfast_threads (
    thread_id text PRIMARY KEY, head text NOT NULL, user_id text, agent_id text, active_at bigint)

-- name: create_threads_of_user
CREATE INDEX IF NOT EXISTS holdfast_threads_user ON @holdfast_threads (user_id)

-- While a row has no id, threads are being brought back, and the guard lets them pass; no other transaction sees it.
-- name: create_binned
CREATE TABLE IF NOT EXISTS @holdfast_bin (
    bin_id text PRIMARY KEY, thread_id text NOT NULL, head text NOT NULL, user_id text, agent_id text,
    active_at bigint, recycled_at bigint NOT NULL)

-- name: create_binned_of_thread
CREATE INDEX IF NOT EXISTS holdfast_bin_thread ON @holdfast_bin (thread_id)

-- name: create_binned_checkpoints
CREATE INDEX IF NOT EXISTS holdfast_bin_checkpoints_bin ON @holdfast_bin_checkpoints (bin_id, checkpoint_id)

-- name: changed
SELECT heads.thread_id, heads.head,
       (SELECT FIELD(one.metadata, :user_from) FROM @checkpoints AS one WHERE one.thread_id = heads.thread_id
        AND one.checkpoint_ns = '' AND one.checkpoint_id = heads.root),
       (SELECT FIELD(one.metadata, :agent_from) FROM @checkpoints AS one WHERE one.thread_id = heads.thread_id
        AND one.checkpoint_ns = '' AND one.checkpoint_id = heads.root)
FROM (SELECT thread_id, max(checkpoint_id) AS head, max(CASE checkpoint_ns WHEN '' THEN checkpoint_id END) AS root
      FROM @checkpoints GROUP BY thread_id) AS heads
LEFT JOIN @holdfast_threads AS known ON known.thread_id = heads.thread_id
WHERE known.head IS NULL OR known.head <> heads.head

-- The owner is who the newest checkpoint names that names any: `update_state` may be called without.
-- name: found
SELECT heads.thread_id, heads.head,
       (SELECT FIELD(one.metadata, :user_from) FROM @checkpoints AS one
        WHERE one.thread_id = heads.thread_id AND one.checkpoint_ns = '' AND FIELD(one.metadata, :user_from) IS NOT NULL
        ORDER BY one.checkpoint_id DESC LIMIT 1),
       (SELECT FIELD(one.metadata, :agent_from) FROM @checkpoints AS one
        WHERE one.thread_id = heads.thread_id AND one.checkpoint_ns = '' AND FIELD(one.metadata, :agent_from) IS NOT NULL
        ORDER BY one.checkpoint_id DESC LIMIT 1)
FROM (SELECT thread_id, max(checkpoint_id) AS head FROM @checkpoints
      WHERE thread_id IN LIST(:threads) GROUP BY thread_id) AS heads

-- name: named
SELECT DISTINCT thread_id FROM @checkpoints WHERE FIELD(metadata, :user_from) = :user_id

-- name: named_in_bin
SELECT DISTINCT bin_id FROM @holdfast_bin_checkpoints WHERE FIELD(metadata, :user_from) = :user_id
UNION SELECT bin_id FROM @holdfast_bin WHERE user_id = :user_id

-- name: noted
SELECT thread_id FROM @holdfast_threads WHERE user_id = :user_id

-- name: unowned
SELECT thread_id FROM @holdfast_threads WHERE user_id IS NULL

-- name: ungoverned
SELECT thread_id, head, user_id, agent_id, active_at FROM @holdfast_threads
WHERE user_id IS NULL OR active_at IS NULL ORDER BY thread_id LIMIT :limit

-- name: counts
SELECT (SELECT count(*) FROM @holdfast_threads), (SELECT count(DISTINCT user_id) FROM @holdfast_threads),
       (SELECT count(*) FROM @holdfast_threads WHERE user_id IS NULL),
       (SELECT count(*) FROM @holdfast_threads WHERE active_at IS NULL),
       (SELECT min(active_at) FROM @holdfast_threads), (SELECT count(*) FROM @holdfast_bin)

-- name: gone
SELECT thread_id FROM @holdfast_threads AS known
WHERE NOT EXISTS (SELECT 1 FROM @checkpoints WHERE checkpoints.thread_id = known.thread_id)

-- name: forget
DELETE FROM @holdfast_threads WHERE thread_id IN LIST(:threads)

-- name: heads
SELECT thread_id, max(checkpoint_id) FROM @checkpoints WHERE thread_id IN LIST(:threads) GROUP BY thread_id

-- name: binned
SELECT bin_id, thread_id, head, user_id, agent_id, active_at, recycled_at FROM @holdfast_bin
WHERE bin_id IN LIST(:bins)

-- name: let_pass
INSERT INTO @holdfast_bin (bin_id, thread_id, head, recycled_at) VALUES ('', '', '', 0)

-- name: binned_before
SELECT bin_id FROM @holdfast_bin WHERE recycled_at < :before ORDER BY recycled_at

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
