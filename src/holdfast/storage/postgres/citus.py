"""Where one PostgreSQL is no longer enough: the same tables, spread over the nodes of a Citus cluster by subject."""

from __future__ import annotations

from typing import Final

import psycopg

from holdfast.core.errors import StoreUnavailableError
from holdfast.storage.postgres.transactions import Connection

#: Rows of a user, together on one node.
BY_SUBJECT: Final = (
    "turns",
    "scopes",
    "records",
    "derivations",
    "passages",
    "fillings",
    "changes",
    "sessions",
    "history",
    "short_windows",
    "short_messages",
    "facts",
    "packs",
    "chains",
    "audit",
    "sealed",
    "totals",
)
#: Small tables, whole on every node.
EVERYWHERE: Final = (
    "subjects",
    "models",
    "quotas",
    "books",
    "rules",
    "profiles",
    "registry",
    "holds",
    "schemas",
    "leases",
    "jobs",
    "audit_checkpoints",
    "seen",
    "ledger_seen",
    "identity",
    "api_keys",
)
#: Where everyone connects: written with many requests, or read by everyone, and of no use after some days; and what
#: speaks for this very server.
ON_THE_COORDINATOR: Final = ("replies", "recent_erasures", "witness")
#: Every table of the schema.
ALL_TABLES: Final = frozenset({*BY_SUBJECT, *EVERYWHERE, *ON_THE_COORDINATOR, "schema_version"})


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
    spread = {row[0] for row in found}
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
