"""The index of vectors: one for each model, made without keeping anyone from writing."""

from __future__ import annotations

import logging
from typing import Final

from holdfast.storage.postgres.connect import quoted
from holdfast.storage.postgres.database import PostgresDatabase
from holdfast.storage.postgres.term_ids import MARKS
from holdfast.storage.postgres.transactions import lock_key

_log = logging.getLogger("holdfast.recall")
#: Fewer vectors than this are compared one by one as fast.
LEAST: Final = 10_000
#: More dimensions than this cannot be indexed.
_WIDEST: Final = 4_000


def index_vectors(database: PostgresDatabase, model: int, dim: int) -> bool:
    """Make the index of a model's vectors, if there is none; whether there is one now.

    One that was cut short is made anew. Where another makes it already, that is left to it.
    """
    name = f"passages_near_{model}_{dim}"
    width = dim + MARKS
    if width > _WIDEST:
        return False
    with database.outside() as connection:
        lock = (lock_key(database.schema, name),)
        row = connection.execute("SELECT pg_try_advisory_lock(%s)", lock).fetchone()
        if row is None or not row[0]:
            return False
        try:
            found = connection.execute(
                "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)",
                (f"{quoted(database.schema)}.{quoted(name)}",),
            ).fetchone()
            if found is not None and found[0]:
                return True
            if found is not None:
                connection.execute(f"DROP INDEX CONCURRENTLY {quoted(name)}".encode())
            _log.info("indexing the vectors of large scopes as %s", name)
            connection.execute(
                f"CREATE INDEX CONCURRENTLY {quoted(name)} ON passages USING hnsw "
                f"((vector::halfvec({width})) halfvec_cosine_ops) WHERE model = {model}".encode()
            )
        finally:
            connection.execute("SELECT pg_advisory_unlock(%s)", lock)
    return True


def analyze(database: PostgresDatabase) -> None:
    """Let the server learn how much there is of what, after much has come in."""
    with database.outside() as connection:
        connection.execute("ANALYZE passages, records")
