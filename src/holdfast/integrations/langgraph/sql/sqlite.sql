-- name: columns
SELECT tables.name, columns.name, columns.type FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns
WHERE tables.type = 'table' AND tables.name IN LIST(:tables) ORDER BY tables.name, columns.cid

-- name: create_binned_writes
CREATE INDEX IF NOT EXISTS holdfast_bin_writes_bin ON @holdfast_bin_writes (bin_id)

-- name: create_guard_of_checkpoints
CREATE TRIGGER IF NOT EXISTS holdfast_guard_checkpoints BEFORE INSERT ON checkpoints
WHEN EXISTS (SELECT 1 FROM holdfast_bin WHERE thread_id = NEW.thread_id)
AND NOT EXISTS (SELECT 1 FROM holdfast_bin WHERE bin_id = '') AND (
    NEW.parent_checkpoint_id IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM checkpoints AS live WHERE live.thread_id = NEW.thread_id
        AND live.checkpoint_ns = NEW.checkpoint_ns AND live.checkpoint_id = NEW.parent_checkpoint_id)
    OR EXISTS (SELECT 1 FROM holdfast_bin JOIN holdfast_bin_checkpoints AS binned USING (bin_id)
               WHERE holdfast_bin.thread_id = NEW.thread_id
               AND binned.checkpoint_id = json_extract(CAST(NEW.metadata AS TEXT), '$.parents.""')))
BEGIN
    SELECT RAISE(ABORT, 'the thread is in the recycle bin of Holdfast; restore it, or begin another');
END

-- name: create_guard_of_writes
CREATE TRIGGER IF NOT EXISTS holdfast_guard_writes BEFORE INSERT ON writes
WHEN NOT EXISTS (SELECT 1 FROM holdfast_bin WHERE bin_id = '')
AND EXISTS (SELECT 1 FROM holdfast_bin JOIN holdfast_bin_checkpoints AS binned USING (bin_id)
             WHERE holdfast_bin.thread_id = NEW.thread_id
             AND binned.checkpoint_id = NEW.checkpoint_id)
BEGIN
    SELECT RAISE(ABORT, 'the thread is in the recycle bin of Holdfast; restore it, or begin another');
END

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
