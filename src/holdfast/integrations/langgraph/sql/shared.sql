-- `@checkpoints` is the table with its schema, `:name` a parameter, `IN LIST(:names)` asks for any of a list,
-- `IN ENTRIES(:ids)` for the numbers of entries of the bin by their ids, and
-- `FIELD(metadata, :name)` is a field of a JSON object: its text if it is a text or a whole number, else NULL.
-- name: create_binned_of_thread
CREATE INDEX IF NOT EXISTS holdfast_bin_thread ON @holdfast_bin (thread_id)

-- name: create_binned_checkpoints
CREATE INDEX IF NOT EXISTS holdfast_bin_checkpoints_bin ON @holdfast_bin_checkpoints (bin)

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

-- name: checkpoints_of
SELECT thread_id, count(*) FROM @checkpoints WHERE thread_id IN LIST(:threads) GROUP BY thread_id

-- name: named
SELECT DISTINCT thread_id FROM @checkpoints WHERE FIELD(metadata, :user_from) = :user_id

-- A thread goes on from nothing if its first checkpoint has a parent, or if it has none outside of subgraphs.
-- name: late
SELECT known.thread_id, known.user_id, known.agent_id, first.parent_checkpoint_id
FROM @holdfast_threads AS known
LEFT JOIN @checkpoints AS first ON first.thread_id = known.thread_id AND first.checkpoint_ns = ''
  AND first.checkpoint_id = (SELECT min(checkpoint_id) FROM @checkpoints AS one
                             WHERE one.thread_id = known.thread_id AND one.checkpoint_ns = '')
WHERE known.active_at >= :since AND (
    first.parent_checkpoint_id IS NOT NULL OR (first.thread_id IS NULL AND known.active_at < :settled))

-- name: named_in_bin
SELECT bin_id FROM @holdfast_bin WHERE user_id = :user_id
OR no IN (SELECT bin FROM @holdfast_bin_checkpoints WHERE FIELD(metadata, :user_from) = :user_id)

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
       (SELECT min(active_at) FROM @holdfast_threads), (SELECT count(*) FROM @holdfast_bin WHERE cut IS NULL),
       (SELECT count(DISTINCT thread_id) FROM @holdfast_bin WHERE cut IS NOT NULL)

-- name: forget
DELETE FROM @holdfast_threads WHERE thread_id IN LIST(:threads)

-- name: heads
SELECT thread_id, max(checkpoint_id) FROM @checkpoints WHERE thread_id IN LIST(:threads) GROUP BY thread_id

-- Threads, and what is noted of them: that is true as long as they have no newer checkpoint.
-- name: noted_heads
SELECT heads.thread_id, heads.head, known.user_id, known.agent_id, known.active_at, known.head IS NOT NULL
FROM (SELECT thread_id, max(checkpoint_id) AS head FROM @checkpoints
      WHERE thread_id IN LIST(:threads) GROUP BY thread_id) AS heads
LEFT JOIN @holdfast_threads AS known ON known.thread_id = heads.thread_id AND known.head = heads.head
                                        AND known.thread_id IN LIST(:threads)

-- name: binned
SELECT bin_id, thread_id, head, user_id, agent_id, active_at, recycled_at FROM @holdfast_bin
WHERE bin_id IN LIST(:bins)

-- name: let_pass
INSERT INTO @holdfast_bin (bin_id, thread_id, head, recycled_at) VALUES ('', '', '', 0)

-- name: binned_before
SELECT bin_id, thread_id, user_id, agent_id, active_at FROM @holdfast_bin
WHERE recycled_at < :before ORDER BY recycled_at

-- name: thinned
SELECT bin_id, cut FROM @holdfast_bin
WHERE thread_id = :thread AND cut IS NOT NULL AND head IN (
    SELECT checkpoint_id FROM @checkpoints WHERE thread_id = :thread)
ORDER BY no DESC LIMIT 1

-- name: cut_parents
UPDATE @checkpoints SET parent_checkpoint_id = NULL
WHERE thread_id = :thread AND checkpoint_ns = :namespace AND checkpoint_id IN LIST(:ids)

-- name: tie_parent
UPDATE @checkpoints SET parent_checkpoint_id = :parent
WHERE thread_id = :thread AND checkpoint_ns = :namespace AND checkpoint_id = :id AND parent_checkpoint_id IS NULL
