"""How the doctor asks a PostgreSQL server."""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg import RawCursor
from psycopg.rows import tuple_row

from holdfast.storage.postgres.errors import in_our_words
from holdfast.storage.relational.database import statements

_SQL: Final = statements("holdfast.health")


class Asking:
    """A connection that can only look: statements by their names, problems in Holdfast's words."""

    def __init__(self, connection: psycopg.Connection[Any], place: str) -> None:
        self.connection = connection
        self.place = place
        connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY; SET lock_timeout = 2000")

    def rows(self, name: str, *bindings: Any) -> list[tuple[Any, ...]]:
        """All rows of a statement of ``postgres.sql``."""
        try:
            cursor = RawCursor(self.connection, row_factory=tuple_row)
            return cursor.execute(_SQL[f"postgres.{name}"].encode(), bindings).fetchall()
        except psycopg.Error as problem:
            raise in_our_words(problem, self.place) from problem

    def row(self, name: str, *bindings: Any) -> tuple[Any, ...]:
        """The one row of such a statement."""
        (row,) = self.rows(name, *bindings)
        return row
