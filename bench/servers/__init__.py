"""Real servers for tests and benchmarks, from the wheels that ``holdfast[dev]`` installs; nothing else is needed.

::

    with postgres() as server:
        psycopg.connect(server.new_database())

:func:`postgres` is PostgreSQL 18 or newer with pgvector, :func:`valkey` is Valkey, :func:`s3` is moto. A server lives
in a private folder below ``TMPDIR`` and listens on loopback only. Between it and the caller stands a guard, a process
that runs ``ward.py``: it starts the server, and when the caller ends, however it ends, the guard ends the server with
all its children and removes the folder. If the guard itself is killed, Linux ends the server.
"""

from __future__ import annotations

from bench.servers.guard import ServerError
from bench.servers.postgres_server import PostgresServer, postgres
from bench.servers.s3_server import S3Server, s3
from bench.servers.valkey_server import ValkeyServer, valkey

__all__ = ("PostgresServer", "S3Server", "ServerError", "ValkeyServer", "postgres", "s3", "valkey")
