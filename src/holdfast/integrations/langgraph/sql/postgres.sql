-- name: columns
SELECT table_name, column_name, data_type FROM information_schema.columns
WHERE table_schema = :schema AND table_name IN LIST(:tables) ORDER BY table_name, ordinal_position

-- name: version
SELECT max(v) FROM @checkpoint_migrations

-- name: create_threads
CREATE TABLE IF NOT EXISTS @holdfast_threads (
    thread_id text PRIMARY KEY, head text NOT NULL, user_id text, agent_id text, active_at bigint)

-- While a row has no id, threads are being brought back, and the guard lets them pass; no other transaction sees it.
-- Where only earlier checkpoints of a thread are kept, `cut` has the links to them that were cut, as JSON.
-- name: create_binned
CREATE TABLE IF NOT EXISTS @holdfast_bin (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, bin_id text NOT NULL UNIQUE, thread_id text NOT NULL,
    head text NOT NULL, user_id text, agent_id text, active_at bigint, recycled_at bigint NOT NULL, cut text)

-- name: create_binned_checkpoint_writes
CREATE INDEX IF NOT EXISTS holdfast_bin_checkpoint_writes_bin ON @holdfast_bin_checkpoint_writes (bin)

-- name: create_binned_checkpoint_blobs
CREATE INDEX IF NOT EXISTS holdfast_bin_checkpoint_blobs_bin ON @holdfast_bin_checkpoint_blobs (bin)

-- name: create_guard
CREATE OR REPLACE FUNCTION @holdfast_guard() RETURNS trigger LANGUAGE plpgsql AS $guard$
DECLARE
    needed text;
    refused boolean := false;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1214203980, hashtext(NEW.thread_id));
    IF NOT EXISTS (SELECT 1 FROM @holdfast_bin AS bin WHERE bin.thread_id = NEW.thread_id AND bin.cut IS NULL)
       OR EXISTS (SELECT 1 FROM @holdfast_bin AS bin WHERE bin.bin_id = '') THEN
        RETURN NEW;
    END IF;
    IF TG_TABLE_NAME = 'checkpoints' THEN
        refused := NEW.parent_checkpoint_id IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM @checkpoints AS live WHERE live.thread_id = NEW.thread_id
            AND live.checkpoint_ns = NEW.checkpoint_ns AND live.checkpoint_id = NEW.parent_checkpoint_id);
        needed := NEW.metadata -> 'parents' ->> '';
    ELSE
        needed := NEW.checkpoint_id;
    END IF;
    IF refused OR EXISTS (SELECT 1 FROM @holdfast_bin AS bin JOIN @holdfast_bin_checkpoints AS binned ON binned.bin = bin.no
                          WHERE bin.thread_id = NEW.thread_id AND bin.cut IS NULL AND binned.checkpoint_id = needed) THEN
        RAISE EXCEPTION 'thread % is in the recycle bin of Holdfast; restore it, or begin another', NEW.thread_id;
    END IF;
    RETURN NEW;
END $guard$

-- name: create_guard_of_checkpoints
CREATE OR REPLACE TRIGGER holdfast_guard BEFORE INSERT ON @checkpoints
FOR EACH ROW EXECUTE FUNCTION @holdfast_guard()

-- name: create_guard_of_writes
CREATE OR REPLACE TRIGGER holdfast_guard BEFORE INSERT ON @checkpoint_writes
FOR EACH ROW EXECUTE FUNCTION @holdfast_guard()

-- What a survey has to note: the threads whose newest checkpoint is another, with the user and the agent that it names
-- as a JSON list, and (with no head) those that are gone.
-- name: changed
SELECT coalesce(heads.thread_id, known.thread_id), heads.head, owner.names
FROM (SELECT thread_id, max(checkpoint_id COLLATE "C") AS head FROM @checkpoints GROUP BY thread_id) AS heads
FULL JOIN @holdfast_threads AS known ON known.thread_id = heads.thread_id
LEFT JOIN LATERAL (SELECT jsonb_build_array(one.metadata -> :user_from, one.metadata -> :agent_from)::text AS names
                   FROM @checkpoints AS one WHERE one.thread_id = heads.thread_id AND one.checkpoint_ns = ''
                   ORDER BY one.checkpoint_id DESC LIMIT 1) AS owner ON true
WHERE known.head IS DISTINCT FROM heads.head

-- name: sizes_of_checkpoints
SELECT thread_id, sum(pg_column_size(checkpoint) + pg_column_size(metadata)) FROM @checkpoints
WHERE thread_id IN LIST(:threads) GROUP BY thread_id

-- name: sizes_of_checkpoint_writes
SELECT thread_id, sum(pg_column_size(blob)) FROM @checkpoint_writes
WHERE thread_id IN LIST(:threads) GROUP BY thread_id

-- name: sizes_of_checkpoint_blobs
SELECT thread_id, sum(pg_column_size(blob)) FROM @checkpoint_blobs
WHERE thread_id IN LIST(:threads) GROUP BY thread_id

-- name: clear_samples
SELECT pg_clear_attribute_stats(schemaname::text, tablename::text, attname::text, inherited)
FROM pg_stats WHERE schemaname = :schema AND tablename IN LIST(:tables)

-- name: lock
SELECT pg_advisory_xact_lock(1214203980, hashtext(thread_id)) FROM unnest(:threads::text[]) AS asked(thread_id)

-- name: checkpoints
SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, metadata, checkpoint FROM @checkpoints WHERE thread_id = :thread

-- name: blobs
SELECT checkpoint_ns, channel, version FROM @checkpoint_blobs WHERE thread_id = :thread AND type <> 'empty'

-- name: sends
SELECT DISTINCT checkpoint_ns, checkpoint_id FROM @checkpoint_writes WHERE thread_id = :thread AND channel = '__pregel_tasks'
