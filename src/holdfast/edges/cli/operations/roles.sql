-- What an administrator does once, with psql, in any database of the server. It can be run again.
-- Nobody can log in by a password before it is given: \password {owner}, and the same for {app}.
SELECT 'CREATE ROLE {owner} LOGIN' WHERE NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = {owner_text}) \gexec
SELECT 'CREATE ROLE {app} LOGIN' WHERE NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = {app_text}) \gexec
SELECT 'CREATE DATABASE {database} OWNER {owner} ENCODING ''UTF8'' TEMPLATE template0'
WHERE NOT EXISTS (SELECT 1 FROM pg_database WHERE datname = {database_text}) \gexec
REVOKE ALL ON DATABASE {database} FROM PUBLIC;
GRANT CONNECT ON DATABASE {database} TO {app};
-- It lets doctor see who keeps transactions open.
GRANT pg_read_all_stats TO {app};

\connect {database}
CREATE SCHEMA IF NOT EXISTS holdfast AUTHORIZATION {owner};
GRANT USAGE ON SCHEMA holdfast TO {app};
ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA holdfast GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {app};
ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA holdfast GRANT USAGE ON SEQUENCES TO {app};
