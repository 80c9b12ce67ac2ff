"""Schemas of collections in a relational engine: the ``SchemaStore``."""

from __future__ import annotations

from holdfast.storage.relational.database import Database, Names

SQL = Names("facts")


class SqlSchemas:
    """The ``SchemaStore`` of the relational engines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, tenant: str, collection: str, schema: str | None) -> None:
        with self._database.write() as tx:
            if schema is None:
                tx.run(SQL["remove_schema"], (tenant, collection))
            else:
                tx.run(SQL["put_schema"], (tenant, collection, schema))

    def get(self, tenant: str, collection: str) -> str | None:
        with self._database.read() as tx:
            row = tx.one(SQL["schema"], (tenant, collection))
        return None if row is None else str(row[0])
