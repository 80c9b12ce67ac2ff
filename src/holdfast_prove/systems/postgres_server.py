"""Databases on the PostgreSQL server that ``HOLDFAST_PROVE_POSTGRES`` names, and all that can be seen of them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, LiteralString, NamedTuple

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

SERVER: Final = "HOLDFAST_PROVE_POSTGRES"
#: What a server remembers beside the rows: the last statements of sessions, and common values of columns.
_REMEMBERED: Final[Mapping[str, LiteralString]] = {
    "statements of sessions": (
        "SELECT query FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()"
    ),
    "statistics of columns": (
        "SELECT concat_ws(' ', most_common_vals, histogram_bounds) FROM pg_stats WHERE schemaname <> 'pg_catalog'"
    ),
}


class Database(NamedTuple):
    """A database that was made for one store, and is dropped with it."""

    url: str
    server: str

    @classmethod
    def new(cls) -> Database:
        """A new database on the server."""
        server = os.environ.get(SERVER)
        if not server:
            raise LookupError(f"no PostgreSQL server is named; give its URL with --server, or in {SERVER}")
        name = f"holdfast_prove_{secrets.token_hex(6)}"
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
        before, _, after = server.partition("?")
        return cls(f"{before.rpartition('/')[0]}/{name}" + (f"?{after}" if after else ""), server)

    def drop(self) -> None:
        """Drop it, with all that is in it."""
        name = conninfo_to_dict(self.url)["dbname"]
        with psycopg.connect(self.server, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(str(name))))


def read_tables(url: str) -> Iterator[tuple[str, bytes]]:
    """Every row of every table of a database, as the server copies it, and what it remembers of statements."""
    with psycopg.connect(make_conninfo(url), autocommit=True) as connection:
        tables = connection.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        for schema, table in tables:
            statement = sql.SQL("COPY {} TO STDOUT (FORMAT binary)").format(sql.Identifier(schema, table))
            with connection.cursor().copy(statement) as stream:
                yield f"table {schema}.{table}", b"".join(stream)
        for name, asked in _REMEMBERED.items():
            yield name, "\n".join(str(row[0]) for row in connection.execute(asked)).encode()


def analyze(url: str) -> None:
    """Let the server look at the tables, as it does by itself when many rows have changed."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ANALYZE")


def data_folder(url: str) -> list[Path]:
    """The folder with the server's files, where it is on this machine and can be read."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        row = connection.execute("SHOW data_directory").fetchone()
    folder = Path(str(row[0]) if row else "")
    return [folder] if folder.is_dir() and os.access(folder, os.R_OK) else []
