"""The engine for many processes: PostgreSQL, through psycopg."""
