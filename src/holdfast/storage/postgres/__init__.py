"""The engine for many processes: PostgreSQL with pgvector, through psycopg."""
