"""What short-term memory says when a Valkey or Redis server refuses, is another than was named, or cannot be named."""

from __future__ import annotations

import itertools
import re
import socket
import ssl
import sys
import traceback
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from bench.servers import ValkeyServer, valkey
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from conformance.samples import NOW, Person, message
from conformance.test_short_term_store import append, contents
from holdfast.core.errors import (
    ClosedError,
    InvalidSettingsError,
    MissingExtraError,
    StorageError,
    StoreAwayError,
    StoreBusyError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from holdfast.installation import install_command
from holdfast.ports.conversations import SessionWindow
from holdfast.storage.valkey import open_short_term
from holdfast.storage.valkey.addresses import read_address
from storage.wire import Relay, free_port, keep_silent, listening, own_client, two_nodes, uses

SECRET = "correct-horse/battery#staple@home:1%"  # noqa: S105
QUOTED = "correct-horse%2Fbattery%23staple%40home%3A1%25"

_people = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with valkey() as running:
        yield running


@pytest.fixture
def own_server() -> Iterator[ValkeyServer]:
    """One to do harm to."""
    with valkey() as running:
        yield running


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with two_nodes() as url:
        yield url


@pytest.fixture
def me() -> Person:
    return Person(f"refused-{next(_people):06}", "user_123")


def refused(url: str, error: type[StorageError], words: str, *, timeout: float = 2.0) -> None:
    """A call fails with this error, which shows no secret, nor does what it was raised from."""
    with closing(open_short_term(url, timeout=timeout)) as store:
        with pytest.raises(error, match=words) as problem:
            append(store, Person("t", "u").scope(), message("what was said in confidence"))
        assert type(problem.value) is error
        shown = "".join(traceback.format_exception(problem.value)) + repr(problem.value) + repr(store)
        for secret in (SECRET, QUOTED, "staple", "said in confidence\n"):
            assert secret not in shown.replace('message("what was said in confidence"))', "")
        assert str(problem.value).startswith(f"the short-term store {store.url} ")


def test_a_password_that_is_wrong_or_missing_is_refused_and_the_right_one_serves(
    own_server: ValkeyServer, me: Person
) -> None:
    with own_client(own_server) as raw:
        raw.config_set("requirepass", SECRET)
        here = f"127.0.0.1:{own_server.port}"
        refused(f"valkey://{here}", StoreUnavailableError, "refused the user or the password; check HOLDFAST_SHORT")
        refused(f"valkey://:wrong{QUOTED}@{here}", StoreUnavailableError, "refused the user or the password")
        refused(f"redis://nobody:{QUOTED}@{here}/0", StoreUnavailableError, "refused the user or the password")
        with closing(open_short_term(f"valkey://:{QUOTED}@{here}/1")) as store:
            assert append(store, me.scope(), message()) == 1
            assert store.url == f"valkey://{here}/1"
            assert SECRET not in str(store.check())


def test_a_user_who_may_not_do_what_is_needed_is_told_so(own_server: ValkeyServer) -> None:
    with own_client(own_server) as raw:
        raw.execute_command("ACL", "SETUSER", "clerk", "on", f">{SECRET}", "~holdfast:*", "+ping", "+zrange")
        url = f"valkey://clerk:{QUOTED}@127.0.0.1:{own_server.port}"
        refused(url, StoreUnavailableError, "does not permit what Holdfast needs")


def test_few_permissions_are_enough(own_server: ValkeyServer, me: Person) -> None:
    with own_client(own_server) as raw:
        raw.execute_command("ACL", "SETUSER", "clerk", "on", f">{SECRET}", "~holdfast:*", "+@sortedset", "+eval",
                            "+evalsha", "+ping", "+del", "+time", "+pttl", "+pexpire")  # fmt: skip
        with closing(open_short_term(f"valkey://clerk:{QUOTED}@127.0.0.1:{own_server.port}")) as store:
            for use in uses(store, me):
                use()


def test_a_replica_takes_no_writes_and_the_next_primary_does(own_server: ValkeyServer, me: Person) -> None:
    with own_client(own_server) as raw, closing(open_short_term(own_server.url)) as store:
        append(store, me.scope(), message("before"))
        raw.execute_command("REPLICAOF", "127.0.0.1", free_port())
        refused(own_server.url, StoreReadOnlyError, "read-only replica; name the primary in HOLDFAST_SHORT_TERM_URL")
        assert contents(store, me.scope()) == ["before"]
        assert "it is a replica" in store.check().problems[0].text
        raw.execute_command("REPLICAOF", "NO", "ONE")
        assert append(store, me.scope(), message("after")) == 2


def test_a_server_without_memory_refuses_all_of_a_write_and_lets_go_of_sessions(
    own_server: ValkeyServer, me: Person
) -> None:
    with own_client(own_server) as raw, closing(open_short_term(own_server.url)) as store:
        append(store, me.scope(), message("before"))
        raw.config_set("maxmemory", "1")
        refused(own_server.url, StoreFullError, "no memory left")
        with pytest.raises(StoreFullError) as full:
            append(store, me.scope(), message("after"))
        assert full.value.retryable
        assert contents(store, me.scope()) == ["before"]
        assert raw.keys() != [], "nothing was taken back"
        assert store.end([SessionWindow(me.scope(), None)])
        assert raw.keys() == []
        raw.config_set("maxmemory", "0")
        assert append(store, me.scope(), message("after")) == 1


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        (b"-LOADING Valkey is loading the dataset in memory\r\n", StoreAwayError, "not ready"),
        (b"-BUSY Valkey is busy running a script.\r\n", StoreBusyError, "busy with a script"),
        (b"-CLUSTERDOWN Hash slot not served\r\n", StoreAwayError, "not ready"),
        (b"-MISCONF Errors writing to the AOF file: No space left\r\n", StoreAwayError, "cannot save to its disk"),
        (b"-ERR max number of clients reached\r\n", StoreAwayError, "cannot be reached"),
        (b"-MOVED 3999 127.0.0.1:6381\r\n", StoreUnavailableError, r"valkey\+cluster://"),
        (b"-WRONGTYPE Operation against a key\r\n", StorageError, "a database of its own"),
        (b"-ERR Error running script: @user_script: 3: -OOM command not allowed\r\n", StoreFullError, "no memory"),
        (b"-ERR Error running script: @user_script: 3: -READONLY You can't\r\n", StoreReadOnlyError, "replica"),
        (b"-ERR unknown command `EVALSHA`, with args beginning with: `staple`\r\n", StorageError, "Redis 6.2"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", StoreUnavailableError, "does not answer as a Valkey or Redis server"),
    ],
)
def test_what_a_server_says_is_told_in_our_words(said: bytes, error: type[StorageError], words: str) -> None:
    def answer(peer: socket.socket) -> None:
        while asked := peer.recv(65_536):
            peer.sendall(b"+OK\r\n" * asked.count(b"SETINFO") if b"SETINFO" in asked else said)

    with listening(answer) as port:
        refused(f"valkey://127.0.0.1:{port}", error, words)


def test_a_database_that_is_not_there_is_told_so(server: ValkeyServer) -> None:
    refused(f"valkey://127.0.0.1:{server.port}/99", StoreUnavailableError, "no database of that number")


def test_a_server_that_is_silent_is_given_up_after_the_time_given() -> None:
    with listening(keep_silent) as port:
        refused(f"valkey://127.0.0.1:{port}", StoreAwayError, "did not answer in time", timeout=0.1)


def test_a_host_that_is_not_there_is_told_so() -> None:
    refused(
        f"valkey://:{QUOTED}@no-such-host.invalid", StoreAwayError, "no address is known for 'no-such-host.invalid'"
    )
    refused(f"valkey://:{QUOTED}@127.0.0.1:{free_port()}", StoreAwayError, "is the server running")
    refused(f"valkey+cluster://:{QUOTED}@127.0.0.1:{free_port()}", StoreAwayError, "is the server running")


def test_a_cluster_and_a_single_server_are_not_mistaken_for_each_other(server: ValkeyServer, cluster: str) -> None:
    refused(f"{server.url[:-2]}?cluster=true", StoreUnavailableError, "is not a cluster")
    with closing(open_short_term(cluster.replace("+cluster", ""))) as store:

        def write_to_both_nodes() -> None:
            for n in range(99):
                append(store, Person("t", f"user_{n}").scope(), message())

        with pytest.raises(StoreUnavailableError, match=r"write valkey\+cluster://"):
            write_to_both_nodes()


def test_a_closed_store_says_so(server: ValkeyServer, me: Person) -> None:
    store = open_short_term(server.url)
    append(store, me.scope(), message())
    store.close()
    store.close()
    with pytest.raises(ClosedError, match="was closed"):
        store.window(me.scope(), now=NOW)


# --- TLS -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key, and a certificate of 127.0.0.1 that vouches for itself, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "holdfast tests")])
    today = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    no_password = serialization.NoEncryption()
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, no_password)
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
def tls_port(server: ValkeyServer, certificate: Path) -> Iterator[int]:
    """Where the server is reached through TLS only."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    relay = Relay(server.port)

    def answer(peer: socket.socket) -> None:
        with context.wrap_socket(peer, server_side=True) as secured:
            relay.answer(secured)

    with listening(answer) as port:
        yield port


def test_a_server_with_tls_is_reached_where_its_certificate_is_trusted(
    tls_port: int, certificate: Path, me: Person
) -> None:
    for scheme in ("valkeys", "rediss"):
        with closing(open_short_term(f"{scheme}://127.0.0.1:{tls_port}?ssl_ca_certs={certificate}")) as store:
            append(store, me.scope(), message("in confidence"))
            assert "in confidence" in contents(store, me.scope())
            assert store.url == f"{scheme}://127.0.0.1:{tls_port}/0"


def test_a_server_with_a_certificate_that_is_not_trusted_is_refused(tls_port: int, certificate: Path) -> None:
    refused(f"valkeys://:{QUOTED}@127.0.0.1:{tls_port}", StoreUnavailableError, r"not trusted .*ssl_ca_certs=")
    named = f"valkeys://localhost:{tls_port}?ssl_ca_certs={certificate}"
    refused(named, StoreUnavailableError, "not trusted")
    otherwise = named.replace("valkeys://localhost", "valkeys+cluster://127.1")  # the client itself resolves localhost
    refused(otherwise, StoreUnavailableError, "not trusted")
    with closing(open_short_term(f"{named}&ssl_check_hostname=false")) as store:
        append(store, Person("t", "u").scope(), message())


def test_tls_on_one_side_only_is_told_so(tls_port: int, server: ValkeyServer) -> None:
    with (
        closing(open_short_term(f"valkey://:{QUOTED}@127.0.0.1:{tls_port}")) as store,
        pytest.raises(StorageError, match=r"one that speaks TLS is valkeys://"),
    ):
        store.check()
    refused(f"valkeys://127.0.0.1:{server.port}", StoreAwayError, r"without TLS is written valkey://", timeout=0.2)
    with listening(lambda peer: peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as port:
        refused(f"valkeys://127.0.0.1:{port}", StoreUnavailableError, "does not speak TLS")


# --- addresses -------------------------------------------------------------------------------------------------------


def test_urls_are_read_as_they_are_written() -> None:
    plain = read_address("redis://cache.example.com")
    assert (plain.host, plain.port, plain.database, plain.password) == ("cache.example.com", 6379, 0, None)
    full = read_address(f"rediss://us%3Aer:{QUOTED}@[::1]:7000/3?ssl_check_hostname=no")
    assert (full.host, full.port, full.database) == ("::1", 7000, 3)
    assert (full.username, full.password, full.tls, full.check_hostname) == ("us:er", SECRET, True, False)
    assert full.safe_url == "rediss://[::1]:7000/3"
    assert SECRET not in repr(full)
    for url in ("valkey+cluster://h:1", "valkey://h:1/0?cluster=true", "redis+cluster://h:1/"):
        assert read_address(url).cluster
    assert read_address("rediss+cluster://h:1").safe_url == "rediss+cluster://h:1"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "staple",
        "valkey:staple",
        "http://:staple@host",
        "staple://host",
        "valkey://",
        "valkey://:staple@",
        "valkey://:sta/staple@host",
        "valkey://user:1/staple@host",
        "valkey://:1#staple@host",
        "valkey://:1?staple@host",
        "valkey://:staple@host:0",
        "valkey://:staple@host:99999",
        "valkey://:staple@host:port",
        "valkey://:staple@ho st",
        "valkey://:staple@two..dots",
        f"valkey://:staple@{'long' * 16}.example.com",
        "valkey://:staple@[::1",
        "valkey://:staple@host/one",
        "valkey://:staple@host/1/2",
        "valkey://:staple@host/-1",
        "valkey://host?password=staple",
        "valkey://host?cluster=staple",
        "valkey://host?ssl_ca_certs=/etc/hosts",
        "valkeys://host?ssl_ca_certs=/nowhere/staple",
        "valkey+cluster://:staple@host/1",
        "unix:///run/valkey.sock",
    ],
)
def test_a_url_that_is_not_understood_is_refused_without_a_word_of_what_may_be_a_password(url: str) -> None:
    with pytest.raises(InvalidSettingsError, match="HOLDFAST_SHORT_TERM_URL") as problem:
        open_short_term(url)
    if not url.startswith("staple"):
        assert "staple" not in "".join(traceback.format_exception(problem.value)).replace(repr(url), "")


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_a_time_limit_that_is_none_is_refused(timeout: float) -> None:
    with pytest.raises(InvalidSettingsError, match="timeout"):
        open_short_term("valkey://host", timeout=timeout)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("short_term", "server"):
        monkeypatch.delitem(sys.modules, f"holdfast.storage.valkey.{name}")
    monkeypatch.setitem(sys.modules, "valkey", None)
    with pytest.raises(MissingExtraError, match=re.escape(install_command("valkey"))):
        open_short_term("valkey://:staple@host")


# --- the doctor ------------------------------------------------------------------------------------------------------


def test_a_check_tells_what_answers_and_warns_of_sessions_that_may_be_dropped(own_server: ValkeyServer) -> None:
    with own_client(own_server) as raw, closing(open_short_term(own_server.url)) as store:
        version = raw.info("server")["valkey_version"]
        assert store.check().found.startswith(f"Valkey {version} at valkey://127.0.0.1:{own_server.port}/0 answers in ")
        raw.config_set("maxmemory-policy", "allkeys-lru")
        assert not store.check().problems, "without a limit nothing is dropped"
        raw.config_set("maxmemory", "100mb")
        for policy in ("allkeys-lru", "volatile-ttl"):
            raw.config_set("maxmemory-policy", policy)
            assert f"maxmemory-policy {policy}" in store.check().problems[0].text
        raw.config_set("maxmemory-policy", "noeviction")
        assert not store.check().problems


def test_a_cluster_can_be_checked(cluster: str) -> None:
    with closing(open_short_term(cluster)) as store:
        found, problems = store.check()
        assert found.startswith("Valkey ")
        assert not problems
