"""Where one PostgreSQL is no longer enough: the same tables, spread over the nodes of a Citus cluster by subject."""

from __future__ import annotations

from typing import Final

import psycopg

from holdfast.core.errors import StoreUnavailableError
from holdfast.storage.catalog import TABLES, Spread
from holdfast.storage.postgres.transactions import Connection

#: Tables whose rows lie together on one node for each user. The others of a user lie beside those of the first.
BY_SUBJECT: Final = tuple(table.name for table in TABLES if table.spread is Spread.SUBJECT)
#: Small tables, whole on every node.
EVERYWHERE: Final = tuple(table.name for table in TABLES if table.spread is Spread.EVERYWHERE)
#: Every table of the schema.
ALL_TABLES: Final = frozenset(table.name for table in TABLES)


def distribute_tables(connection: Connection, schema: str, place: str) -> None:
    """Spread the tables that are not spread yet; ``StoreUnavailableError`` where the extension is not enabled."""
    if connection.execute("SELECT 1 FROM pg_extension WHERE extname = 'citus'").fetchone() is None:
        raise StoreUnavailableError(
            f"{place} does not have the citus extension enabled, so tables cannot be distributed; "
            "run CREATE EXTENSION citus there, or leave HOLDFAST_DISTRIBUTE out"
        )
    found = connection.execute(
        "SELECT relname FROM pg_dist_partition JOIN pg_class ON pg_class.oid = logicalrelid "
        "WHERE relnamespace = %s::regnamespace",
        (schema,),
    )
    spread = {name for (name,) in found}
    try:
        for table in EVERYWHERE:
            if table not in spread:
                connection.execute("SELECT create_reference_table(%s::regclass)", (table,))
        for table in BY_SUBJECT:
            if table not in spread:
                beside = "default" if table == BY_SUBJECT[0] else BY_SUBJECT[0]
                connection.execute(
                    "SELECT create_distributed_table(%s::regclass, 'subject', colocate_with => %s)", (table, beside)
                )
    except psycopg.OperationalError:
        raise  # the server is away, or busy: that is no matter of distribution
    except psycopg.Error as problem:
        raise StoreUnavailableError(f"{place}: the tables could not be distributed ({problem})") from problem
