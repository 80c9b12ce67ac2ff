"""Schemas of collections in SQLite: the ``SchemaStore``."""

from __future__ import annotations

from retain.storage.sql import statements
from retain.storage.sqlite.database import Database, one

SQL = statements("retain.storage.sqlite", "schemas.sql")


class SqliteSchemas:
    """The ``SchemaStore`` of the embedded engine."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, tenant: str, collection: str, schema: str | None) -> None:
        with self._database.write() as connection:
            if schema is None:
                connection.execute(SQL["remove"], (tenant, collection))
            else:
                connection.execute(SQL["put"], (tenant, collection, schema))

    def get(self, tenant: str, collection: str) -> str | None:
        with self._database.read() as connection:
            row = one(connection, SQL["get"], (tenant, collection))
        return None if row is None else str(row[0])
