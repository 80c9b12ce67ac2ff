-- What the doctor asks a PostgreSQL server. Every statement only looks.

-- name: server
SELECT current_setting('server_version'), current_setting('server_version_num')::int, pg_encoding_to_char(d.encoding),
       pg_database_size(d.oid)
FROM pg_database d WHERE d.datname = current_database()

-- name: writable
SELECT pg_is_in_recovery(),
       (SELECT reset_val::boolean FROM pg_settings WHERE name = 'default_transaction_read_only'),
       (SELECT count(*) FROM pg_stat_replication)

-- name: now
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint

-- name: durability
SELECT name FROM pg_settings
WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off' ORDER BY name

-- name: connections
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
         - coalesce(current_setting('reserved_connections', true), '0')::int,
       (SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user),
       (SELECT datconnlimit FROM pg_database WHERE datname = current_database()),
       (SELECT sum(numbackends) FROM pg_stat_database)::int

-- Transactions in which nothing has happened for so many seconds, and those that were prepared so long ago.
-- name: idle
SELECT 'process ' || pid || ' of ' || coalesce(usename, '?') || coalesce(' (' || nullif(application_name, '') || ')', ''),
       extract(epoch FROM clock_timestamp() - state_change)::float8 AS since
FROM pg_stat_activity
WHERE datname = current_database() AND state LIKE 'idle in transaction%'
  AND clock_timestamp() - state_change > make_interval(secs => $1)
UNION ALL
SELECT 'the prepared transaction ' || quote_literal(gid) || ' of ' || owner,
       extract(epoch FROM clock_timestamp() - prepared)::float8
FROM pg_prepared_xacts
WHERE database = current_database() AND clock_timestamp() - prepared > make_interval(secs => $1)
ORDER BY since DESC

-- name: sees_all
SELECT pg_has_role('pg_read_all_stats', 'USAGE')

-- name: autovacuum
SELECT current_setting('autovacuum')::boolean AND current_setting('track_counts')::boolean,
       (SELECT age(datfrozenxid) FROM pg_database WHERE datname = current_database()),
       ARRAY(SELECT relname::text FROM pg_class
             WHERE relnamespace = to_regnamespace($1) AND relkind = 'r'
               AND lower(reloptions::text) ~ 'autovacuum_enabled=(false|off|no|0)' ORDER BY relname)

-- name: citus_version
SELECT (SELECT extversion FROM pg_extension WHERE extname = 'citus')

-- name: tables
SELECT relname::text FROM pg_class WHERE relnamespace = to_regnamespace($1) AND relkind IN ('r', 'p')

-- Tables of these names that applications of this database find in other schemas.
-- name: namesakes
SELECT nspname || '.' || relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE relkind IN ('r', 'p') AND nspname <> $1 AND nspname <> 'information_schema' AND left(nspname, 3) <> 'pg_'
  AND relname = ANY ($2::text[]) AND has_schema_privilege(relnamespace, 'USAGE')
ORDER BY 1

-- Who this is; whether it may do everything, or make schemas, or is the owner of the tables.
-- name: role
SELECT current_user::text, (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),
       has_database_privilege(current_database(), 'CREATE'),
       coalesce((SELECT bool_and(pg_has_role(relowner, 'USAGE')) FROM pg_class
                 WHERE relnamespace = to_regnamespace($1) AND relkind IN ('r', 'p')), true)

-- What this role may not do with the tables and sequences of the schema, though it must.
-- name: missing
SELECT 'USAGE on schema ' || nspname FROM pg_namespace
WHERE oid = to_regnamespace($1) AND NOT has_schema_privilege(oid, 'USAGE')
UNION ALL
SELECT privilege || ' on ' || relname
FROM pg_class CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) WITH ORDINALITY AS p (privilege, place)
WHERE relnamespace = to_regnamespace($1) AND relkind IN ('r', 'p')
  AND NOT has_table_privilege(pg_class.oid, privilege)
  AND (relname <> 'schema_version' OR privilege = 'SELECT')
UNION ALL
SELECT 'USAGE on sequence ' || relname
FROM pg_class
WHERE relnamespace = to_regnamespace($1)
  AND CASE WHEN relkind = 'S' THEN NOT has_sequence_privilege(pg_class.oid, 'USAGE') ELSE false END
  AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = pg_class.oid AND d.deptype = 'i')

-- Tables that Citus spreads: by a column, or (no column) whole on every node.
-- name: distributed
SELECT relname::text, partkey IS NOT NULL FROM pg_dist_partition JOIN pg_class ON pg_class.oid = logicalrelid
WHERE relnamespace = to_regnamespace($1)

-- name: nodes
SELECT (SELECT count(*) FROM pg_dist_node WHERE isactive AND shouldhaveshards),
       (SELECT groupid = 0 FROM pg_dist_local_group LIMIT 1)
