"""The servers that tests and benchmarks start: they serve, crash, come back, and leave nothing behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psutil
import psycopg
import pytest
import valkey as valkey_client
from bench.servers import PostgresServer, S3Server, ServerError, ValkeyServer, postgres, s3, valkey

from clocks import wait_until
from holdfast.core.errors import ObjectStoreError, ObjectStoreUnavailableError
from holdfast.storage.objects import open_objects


@pytest.fixture(scope="module")
def database_server() -> Iterator[PostgresServer]:
    with postgres() as server:
        yield server


@pytest.fixture(scope="module")
def cache_server() -> Iterator[ValkeyServer]:
    with valkey() as server:
        yield server


@pytest.fixture(scope="module")
def bucket_server() -> Iterator[S3Server]:
    with s3() as server:
        yield server


def ask(url: str, question: str) -> object:
    """The one value that a query answers; what it changes is committed."""
    with psycopg.connect(url) as connection:
        row = connection.execute(question.encode()).fetchone()
    return row and row[0]


def increment(url: str, key: str) -> object:
    with closing(valkey_client.Valkey.from_url(url)) as client:
        return client.incr(key)


def is_open(port: int | str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


# --- PostgreSQL --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tcp", [False, True])
def test_postgresql_is_18_or_newer_and_has_pgvector(database_server: PostgresServer, tcp: bool) -> None:
    url = database_server.new_database(tcp=tcp)

    assert int(str(ask(url, "SELECT current_setting('server_version_num')"))) >= 18_00_00
    assert ask(url, "SELECT count(*) FROM pg_extension WHERE extname = 'vector'") == 0
    with psycopg.connect(url) as connection:
        connection.execute("CREATE EXTENSION vector")
    assert ask(url, "SELECT '[3,4]'::vector <-> '[0,0]'::vector") == 5.0


def test_databases_are_new_each_time_and_can_be_dropped_while_in_use(database_server: PostgresServer) -> None:
    first, second = database_server.new_database(), database_server.new_database()
    with psycopg.connect(first) as connection:
        connection.execute("CREATE TABLE mine (x int)")

    assert ask(second, "SELECT to_regclass('mine')") is None
    with psycopg.connect(first):
        database_server.drop_database(first)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(first)


def test_a_wrong_password_is_refused_over_tcp(database_server: PostgresServer) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(database_server.url(tcp=True, password="wrong"))  # noqa: S106

    assert ask(database_server.url(tcp=True), "SELECT 1") == 1


def test_what_a_durable_postgresql_committed_is_there_after_a_crash() -> None:
    with postgres(durable=True) as server:
        url = server.new_database()
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        with closing(psycopg.connect(url)) as witness:
            server.kill()
            with pytest.raises(psycopg.OperationalError):
                witness.execute("SELECT 1")
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url)

        server.start()
        assert ask(url, "SELECT answer FROM kept") == 42
        assert ask(url, "SELECT string_agg(setting, ' ' ORDER BY name) FROM pg_settings "
                        "WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit')") == "on on on"  # fmt: skip


def test_a_postgresql_that_was_stopped_or_restarted_has_its_data(database_server: PostgresServer) -> None:
    url = database_server.new_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")

    database_server.stop()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    database_server.start()
    database_server.restart()

    assert ask(url, "SELECT answer FROM kept") == 42


def test_a_server_that_runs_is_not_started_twice(database_server: PostgresServer) -> None:
    with pytest.raises(ServerError, match="PostgreSQL is running already"):
        database_server.start()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("shared_buffers", "much", 'invalid value for parameter "shared_buffers": "much"'),
        ("shared_preload_libraries", "no_such_library", 'could not access file "no_such_library"'),
    ],
)
def test_a_postgresql_that_cannot_start_says_why_and_leaves_no_process(name: str, value: str, said: str) -> None:
    before = psutil.Process().children()

    with pytest.raises(ServerError) as raised, postgres(settings={name: value}):
        pass

    assert said in str(raised.value)
    assert psutil.Process().children() == before


# --- Valkey ------------------------------------------------------------------------------------------------------


def test_valkey_serves_on_a_port_and_on_a_socket(cache_server: ValkeyServer) -> None:
    assert increment(cache_server.url, "shared") == 1
    assert increment(cache_server.socket_url, "shared") == 2

    cache_server.flush()
    assert increment(cache_server.url, "shared") == 1


@pytest.mark.parametrize("end", [ValkeyServer.stop, ValkeyServer.kill])
def test_a_valkey_that_went_down_comes_back_empty_at_the_same_address(
    cache_server: ValkeyServer, end: Callable[[ValkeyServer], None]
) -> None:
    increment(cache_server.url, "lost")
    end(cache_server)
    for url in (cache_server.url, cache_server.socket_url):
        with pytest.raises(valkey_client.ConnectionError):
            increment(url, "lost")

    cache_server.start()
    assert increment(cache_server.url, "lost") == 1


# --- S3 ----------------------------------------------------------------------------------------------------------


def test_an_object_store_finds_the_s3_server_by_its_environment(
    bucket_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in bucket_server.environment.items():
        monkeypatch.setenv(name, value)
    store, other = open_objects(bucket_server.new_bucket()), open_objects(bucket_server.new_bucket())

    store.put("note", b"kept")

    assert store.get("note") == b"kept"
    assert list(other.names()) == []


def test_an_s3_server_that_crashed_comes_back_empty_at_the_same_address(
    bucket_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in bucket_server.environment.items():
        monkeypatch.setenv(name, value)
    store = open_objects(bucket_server.new_bucket())
    store.put("note", b"lost")

    bucket_server.kill()
    with pytest.raises(ObjectStoreUnavailableError):
        store.get("note")
    bucket_server.start()

    with pytest.raises(ObjectStoreError, match="bucket"):
        store.get("note")


# --- what is left behind -----------------------------------------------------------------------------------------

OWNER = """
import time
from bench.servers import postgres, s3, valkey
with postgres() as a, valkey() as b, s3() as c:
    print(a.folder, a.port, b.port, c.port, flush=True)
    time.sleep(600)
"""


def test_servers_and_their_folders_go_when_their_owner_is_killed() -> None:
    paths = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-c", OWNER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": paths}) as owner:
        assert owner.stdout is not None
        folder, *ports = owner.stdout.readline().split()
        family = psutil.Process(owner.pid).children(recursive=True)
        assert {"postgres", "valkey-server"} <= {process.name() for process in family}
        assert all(map(is_open, ports))
        owner.kill()

    wait_until(lambda: not any(map(is_alive, family)))
    assert not Path(folder).exists()
    assert not any(map(is_open, ports))


def test_a_postgresql_goes_with_its_guard_when_that_is_killed() -> None:
    with ExitStack() as stack:
        server = stack.enter_context(postgres())
        postmaster = psutil.Process(int((server.folder / "data" / "postmaster.pid").read_text().split()[0]))
        family = [postmaster, *postmaster.children(recursive=True)]
        assert postmaster.parent() in psutil.Process().children()

        postmaster.parent().kill()
        wait_until(lambda: not any(map(is_alive, family)))

        with pytest.raises(ServerError, match="the guard of a server ended"):
            stack.close()
    assert not server.folder.exists()
