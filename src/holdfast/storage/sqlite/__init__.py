"""The embedded engine: one SQLite file, through ``apsw``."""
