-- name: columns
SELECT tables.name, columns.name, columns.type FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns
WHERE tables.type = 'table' AND tables.name IN LIST(:tables) ORDER BY tables.name, columns.cid

-- name: create_threads
CREATE TABLE IF NOT EXISTS @holdfast_threads (
    thread_id text PRIMARY KEY, head text NOT NULL, user_id text, agent_id text, active_at bigint) WITHOUT ROWID

-- While a row has no id, threads are being brought back, and the guard lets them pass; no other transaction sees it.
-- Where only earlier checkpoints of a thread are kept, `cut` has the links to them that were cut, as JSON.
-- name: create_binned
CREATE TABLE IF NOT EXISTS @holdfast_bin (
    no integer PRIMARY KEY, bin_id text NOT NULL UNIQUE, thread_id text NOT NULL,
    head text NOT NULL, user_id text, agent_id text, active_at bigint, recycled_at bigint NOT NULL, cut text)

-- name: create_binned_writes
CREATE INDEX IF NOT EXISTS holdfast_bin_writes_bin ON @holdfast_bin_writes (bin)

-- name: create_guard_of_checkpoints
CREATE TRIGGER IF NOT EXISTS holdfast_guard_checkpoints BEFORE INSERT ON checkpoints
WHEN EXISTS (SELECT 1 FROM holdfast_bin WHERE thread_id = NEW.thread_id AND cut IS NULL)
AND NOT EXISTS (SELECT 1 FROM holdfast_bin WHERE bin_id = '') AND (
    NEW.parent_checkpoint_id IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM checkpoints AS live WHERE live.thread_id = NEW.thread_id
        AND live.checkpoint_ns = NEW.checkpoint_ns AND live.checkpoint_id = NEW.parent_checkpoint_id)
    OR EXISTS (SELECT 1 FROM holdfast_bin JOIN holdfast_bin_checkpoints AS binned ON binned.bin = holdfast_bin.no
               WHERE holdfast_bin.thread_id = NEW.thread_id AND holdfast_bin.cut IS NULL
               AND binned.checkpoint_id = json_extract(CAST(NEW.metadata AS TEXT), '$.parents.""')))
BEGIN
    SELECT RAISE(ABORT, 'the thread is in the recycle bin of Holdfast; restore it, or begin another');
END

-- name: create_guard_of_writes
CREATE TRIGGER IF NOT EXISTS holdfast_guard_writes BEFORE INSERT ON writes
WHEN NOT EXISTS (SELECT 1 FROM holdfast_bin WHERE bin_id = '')
AND EXISTS (SELECT 1 FROM holdfast_bin JOIN holdfast_bin_checkpoints AS binned ON binned.bin = holdfast_bin.no
             WHERE holdfast_bin.thread_id = NEW.thread_id AND holdfast_bin.cut IS NULL
             AND binned.checkpoint_id = NEW.checkpoint_id)
BEGIN
    SELECT RAISE(ABORT, 'the thread is in the recycle bin of Holdfast; restore it, or begin another');
END

-- What a survey has to note: the threads whose newest checkpoint is another, with the user and the agent that it names
-- as a JSON list, and (with no head) those that are gone. It goes from thread to thread by the primary key, however many
-- checkpoints each has.
-- name: changed
WITH RECURSIVE live (thread_id) AS (
    SELECT min(thread_id) FROM @checkpoints
    UNION ALL SELECT (SELECT min(one.thread_id) FROM @checkpoints AS one WHERE one.thread_id > live.thread_id)
    FROM live WHERE live.thread_id IS NOT NULL)
SELECT heads.thread_id, max(heads.root, heads.rest) AS head,
       CASE WHEN json_valid(CAST(one.metadata AS TEXT))
            THEN json_extract(CAST(one.metadata AS TEXT), :user_from, :agent_from) END
FROM (SELECT thread_id, ifnull((SELECT max(checkpoint_id) FROM @checkpoints AS one
                                WHERE one.thread_id = live.thread_id AND one.checkpoint_ns = ''), '') AS root,
             ifnull((SELECT max(checkpoint_id) FROM @checkpoints AS one
                     WHERE one.thread_id = live.thread_id AND one.checkpoint_ns > ''), '') AS rest
      FROM live WHERE thread_id IS NOT NULL LIMIT -1) AS heads
LEFT JOIN @holdfast_threads AS known ON known.thread_id = heads.thread_id
LEFT JOIN @checkpoints AS one
       ON one.thread_id = heads.thread_id AND one.checkpoint_ns = '' AND one.checkpoint_id = heads.root
WHERE known.head IS NOT max(heads.root, heads.rest)
UNION ALL
SELECT thread_id, NULL, NULL FROM @holdfast_threads AS known
WHERE NOT EXISTS (SELECT 1 FROM @checkpoints AS one WHERE one.thread_id = known.thread_id)

-- name: sizes_of_checkpoints
SELECT thread_id, sum(length(checkpoint) + length(metadata)) FROM @checkpoints
WHERE thread_id IN LIST(:threads) GROUP BY thread_id

-- name: sizes_of_writes
SELECT thread_id, sum(length(value)) FROM @writes
WHERE thread_id IN LIST(:threads) GROUP BY thread_id

-- name: checkpoints
SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, metadata, checkpoint, type FROM @checkpoints
WHERE thread_id = :thread

-- name: sends
SELECT DISTINCT checkpoint_ns, checkpoint_id FROM @writes WHERE thread_id = :thread AND channel = '__pregel_tasks'
