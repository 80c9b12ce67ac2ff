"""Object stores in bad company: wrong URLs, closed doors, full disks, kills, servers that fail."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from effort import soak, times
from holdfast.core.errors import (
    ConflictError,
    InvalidInputError,
    InvalidSettingsError,
    ObjectMissingError,
    ObjectStoreError,
    ObjectStoreUnavailableError,
)
from holdfast.ports.objects import ObjectStore
from holdfast.storage.objects import disk as folder_locks
from holdfast.storage.objects import open_objects
from holdfast.storage.objects.local import INCOMING
from holdfast.storage.objects.remote import SIZES, Patience, RemoteObjects, explain
from holdfast.storage.objects.urls import read_place

#: As patient as it is meant to be, but for the pauses.
QUICK = Patience(pause=0.005)
UNDERSTOOD = "file:///absolute/folder, s3://bucket/prefix, az://container/prefix or gs://bucket/prefix"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def store(folder: Path) -> ObjectStore:
    return open_objects(folder.as_uri())


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that other users can reach."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    made.chmod(0o755)
    shutil.rmtree(made)


def run(script: str, *arguments: object) -> Any:
    """What a process of its own answers; its script finds the arguments in ``argv``."""
    begin = "import json, os, resource, signal, sys\nfrom holdfast.storage.objects import open_objects\nargv = sys.argv[1:]\n"
    begin += textwrap.dedent(
        """
        def attempt(call):
            try:
                return {"answer": repr(call())}
            except Exception as problem:
                return {"code": getattr(problem, "code", ""), "retryable": getattr(problem, "retryable", None),
                        "message": f"{type(problem).__name__}: {problem}"}
        """
    )
    command = [sys.executable, "-c", begin + textwrap.dedent(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# --- URLs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["", "archive", "/var/archive", "http://host/x", "S3://bucket", "s3:bucket", "ftp://h/x", "memory://"])  # fmt: skip
def test_a_url_of_an_unknown_scheme_is_refused_with_what_is_understood(url: str) -> None:
    with pytest.raises(InvalidSettingsError) as raised:
        open_objects(url)
    assert repr(url) in str(raised.value)
    assert UNDERSTOOD in str(raised.value)


@pytest.mark.parametrize("url", ["file://", "file:///", "file://relative/path", "file:///a/../b", "file:///a%2F..%2Fb", "file:///a%00b"])  # fmt: skip
def test_a_file_url_names_a_folder_by_its_absolute_path(url: str) -> None:
    with pytest.raises(InvalidSettingsError, match="names no folder by its absolute path"):
        open_objects(url)


@pytest.mark.parametrize("url", ["s3://", "s3:///prefix", "s3://a", "gs://bucket//a", "az://con tainer", "s3://bucket/../x", "s3://bucket/a//b", "s3://bücket/x"])  # fmt: skip
def test_a_bucket_or_a_prefix_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(InvalidSettingsError, match="names no bucket or prefix"):
        open_objects(url)


@pytest.mark.parametrize("url", ["s3://key:hunter2@bucket/x", "s3://bucket/x?secret=hunter2", "az://c/x#hunter2", "s3://bucket/x%3Fhunter2", "abfs://container@hunter2.dfs.core.windows.net/x", "redis://me:hunter2@host/0"])  # fmt: skip
def test_a_secret_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidSettingsError) as raised:
        open_objects(url)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("azure://container/prefix", "az://container/prefix"),
        ("abfs://container/prefix/", "az://container/prefix"),
        ("abfss://container", "az://container/"),
        ("gcs://bucket/a/b", "gs://bucket/a/b"),
        ("s3a://bucket/a", "s3://bucket/a"),
        ("s3://bucket/a%2Db/c%5Fd%2Fe", "s3://bucket/a-b/c_d/e"),
    ],
)
def test_a_place_may_be_written_in_several_ways(url: str, shown: str) -> None:
    assert open_objects(url).url == shown


@pytest.mark.parametrize("url", ["s3://bucket/%2E%2E/x", "s3://bucket/a%2F%2Fb", "s3://buck%65t/a", "gs://bucket/a%00"])
def test_what_is_written_in_percent_is_checked_like_the_rest(url: str) -> None:
    with pytest.raises(InvalidSettingsError, match="names no bucket or prefix"):
        open_objects(url)


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    odd = tmp_path / "a b%20 é#?"

    open_objects(odd.as_uri()).put("a", b"x")

    assert (odd / "a").read_bytes() == b"x"
    assert open_objects(odd.as_uri()).url == odd.as_uri()


@pytest.mark.parametrize("endpoint", ["localhost:9000", "not a url", "ftp://host", "http://", "http://ho st", "http://host:port", "http://me:hunter2@host"])  # fmt: skip
def test_an_endpoint_that_is_no_address_is_refused_at_once(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)

    with pytest.raises(InvalidSettingsError, match=r"AWS_ENDPOINT_URL is .* no address of a server") as raised:
        open_objects("s3://bucket/prefix")
    assert "hunter2" not in str(raised.value)


def test_opening_a_bucket_loads_no_client_yet() -> None:
    script = """
        store = open_objects("s3://bucket/prefix")
        print(json.dumps([store.url, "obstore" in sys.modules]))
    """
    assert run(script) == ["s3://bucket/prefix", False]


# --- folders -----------------------------------------------------------------------------------------------------


def test_folders_and_files_are_for_their_owner_only(folder: Path, store: ObjectStore) -> None:
    before = os.umask(0)
    try:
        store.put("archive/ab/one.pack", b"private")
    finally:
        os.umask(before)

    modes = {path.relative_to(folder.parent).as_posix(): path.stat().st_mode & 0o777 for path in folder.rglob("*")}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert modes.pop("archive/archive/ab/one.pack") == 0o600
    assert set(modes.values()) == {0o700}


def test_a_folder_that_was_there_keeps_its_permissions(folder: Path, store: ObjectStore) -> None:
    folder.mkdir()
    folder.chmod(0o750)

    store.put("a", b"x")

    assert folder.stat().st_mode & 0o777 == 0o750


def test_nothing_is_made_before_the_first_write_nor_left_by_a_check(folder: Path) -> None:
    deep = open_objects((folder / "b" / "c").as_uri())

    assert list(deep.names()) == []
    deep.check()

    assert not folder.exists()


def test_the_last_object_of_a_folder_takes_the_folder_with_it(folder: Path, store: ObjectStore) -> None:
    store.put("archive/ab/abcd/one.pack", b"x")
    store.put("archive/cd/cdef/two.pack", b"x")

    store.delete(["archive/ab/abcd/one.pack"])

    assert sorted(path.name for path in folder.rglob("*")) == ["archive", "cd", "cdef", "two.pack"]


def test_a_folder_that_is_not_there_is_not_an_empty_one(folder: Path, store: ObjectStore) -> None:
    store.put("a/one.pack", b"x")
    folder.rename(folder.with_name("unmounted"))

    calls: list[Callable[[], object]] = [lambda: store.get("a/one.pack"), lambda: store.delete(["a/one.pack"])]
    for call in calls:
        with pytest.raises(ObjectStoreUnavailableError, match="mount its disk") as raised:
            call()
        assert raised.value.retryable

    folder.with_name("unmounted").rename(folder)
    assert store.get("a/one.pack") == b"x"


@pytest.mark.parametrize("name", ["taken", "taken/deeper"])
def test_a_file_where_the_folder_should_be_is_said(tmp_path: Path, name: str) -> None:
    (tmp_path / "taken").write_text("a file", encoding="utf-8")
    store = open_objects((tmp_path / name).as_uri())

    with pytest.raises(ObjectStoreError, match="cannot write") as raised:
        store.check()
    assert not raised.value.retryable
    assert (tmp_path / "taken").read_text(encoding="utf-8") == "a file"


def test_other_peoples_files_are_not_objects(folder: Path, store: ObjectStore) -> None:
    store.put("a/one.pack", b"x")
    for odd in (".DS_Store", "Notes.txt", "a/.hidden", "a/two.pack~"):
        (folder / odd).write_bytes(b"not ours")
    (folder / "dangling").symlink_to("nowhere")

    assert list(store.names()) == ["a/one.pack"]


def test_a_folder_that_may_not_be_written_is_said_and_can_be_read(shared: Path) -> None:
    open_objects(shared.as_uri()).put("a", b"x")
    (shared / "a").chmod(0o644)
    shared.chmod(0o555)
    script = """
        store, new = open_objects(argv[0]), open_objects(argv[0] + "/deeper")
        import holdfast.storage.objects.checks
        if os.geteuid() == 0:
            os.setgid(65_534)
            os.setuid(65_534)
        put, check, delete, made, get = map(attempt, (
            lambda: store.put("b", b"x"), store.check, lambda: store.delete(["a"]), lambda: new.put("b", b"x"),
            lambda: store.get("a")))
        print(json.dumps([put, check, delete, made, get]))
    """

    *refused, read = run(script, shared.as_uri())

    for answer in refused:
        assert (answer["code"], answer["retryable"]) == ("object_store", False)
        assert "check the permissions of the folder" in answer["message"]
    assert read == {"answer": "b'x'"}
    assert sorted(path.name for path in shared.rglob("*")) == [INCOMING, "a"]


def test_a_full_disk_leaves_no_part_and_can_be_tried_again(folder: Path, store: ObjectStore) -> None:
    store.put("a", b"the old one")
    script = """
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        store = open_objects(argv[0])
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        full = attempt(lambda: store.put("a", bytes(500_000)))
        print(json.dumps([full, repr(store.get("a"))]))
    """

    full, old = run(script, folder.as_uri())

    assert (full["code"], full["retryable"]) == ("store_full", True)
    assert old == repr(b"the old one")
    assert not list((folder / INCOMING).iterdir())
    store.put("a", bytes(500_000))
    assert len(store.get("a")) == 500_000


def test_what_was_written_survives_the_deletes_of_others_until_it_has_its_name(
    folder: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.replace

    def replace(source: Any, target: Any) -> None:
        open_objects(folder.as_uri()).delete([])
        rename(source, target)

    monkeypatch.setattr(os, "replace", replace)
    store.put("a", b"whole")

    assert store.get("a") == b"whole"


def test_a_folder_that_another_keeps_locked_is_unavailable_and_not_for_ever(
    folder: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a", b"old")
    monkeypatch.setattr(folder_locks, "_WAIT_S", 0.05)
    calls: list[Callable[[], object]] = [
        lambda: store.put("a", b"new"),
        lambda: store.put("b", b"new", absent=True),
        lambda: store.delete(["a"]),
    ]
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        for call in calls:
            with pytest.raises(ObjectStoreUnavailableError, match="kept it locked for too long") as raised:
                call()
            assert raised.value.retryable
        assert store.get("a") == b"old"
        assert list(store.names()) == ["a"]
    finally:
        os.close(descriptor)

    for call in calls:
        call()
    assert list(store.names()) == ["b"]


@pytest.mark.parametrize("unlockable", ["folders", "anything"])
def test_where_a_folder_cannot_be_locked_a_file_in_it_is(
    store: ObjectStore, folder: Path, monkeypatch: pytest.MonkeyPatch, unlockable: str
) -> None:
    """As on some network shares, where only what is open for writing can be locked."""
    lock = fcntl.flock

    def flock(descriptor: Any, how: int) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        if unlockable == "anything" or stat.S_ISDIR(os.fstat(number).st_mode):
            raise OSError(9, "Bad file descriptor")
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    store.put("a", b"without a condition")

    if unlockable == "anything":
        with pytest.raises(ObjectStoreError, match="the file system has no locks"):
            store.put("b", b"first", absent=True)
    else:
        tag = store.put("b", b"first", absent=True)
        store.put("b", b"second", match=tag)
        with pytest.raises(ConflictError):
            store.put("b", b"third", match=tag)
        assert (folder / folder_locks.LOCK).exists()
    store.delete(["b"])
    assert list(store.names()) == ["a"]


CHANGE = """
import sys
from holdfast.core.errors import StaleError
from holdfast.storage.objects import open_objects

store = open_objects(sys.argv[1])
left = 25
while left:
    number, tag = store.get_with_tag("count")
    try:
        store.put("count", b"%d" % (int(number) + 1), match=tag)
    except StaleError:
        continue
    left -= 1
"""


def test_processes_that_count_in_one_object_lose_no_count(folder: Path, store: ObjectStore) -> None:
    store.put("count", b"0", absent=True)

    counting = [subprocess.Popen([sys.executable, "-c", CHANGE, folder.as_uri()]) for _ in range(3)]

    assert [process.wait(120) for process in counting] == [0, 0, 0]
    assert store.get("count") == b"75"


# --- crashes -----------------------------------------------------------------------------------------------------

PUT_FOREVER = """
import hashlib, os, sys
from holdfast.storage.objects import open_objects

store = open_objects(sys.argv[1])
for n in range(1_000_000):
    data = os.urandom(400_000 + n % 7)
    name = f"a/{n % 3}/{hashlib.sha256(data).hexdigest()}"
    store.put(name, data)
    store.put("a/same", data + hashlib.sha256(data).digest())
    print(name, flush=True)
"""


@soak
def test_a_kill_in_the_middle_of_puts_leaves_whole_objects_only(folder: Path, store: ObjectStore) -> None:
    promised: set[str] = set()
    for turn in range(times(4)):
        process = subprocess.Popen(
            [sys.executable, "-c", PUT_FOREVER, folder.as_uri()], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        promised.update(process.stdout.readline().strip() for _ in range(3 + turn))
        process.kill()
        promised.update(line.strip() for line in process.communicate()[0].splitlines(keepends=True) if line[-1] == "\n")

    found = set(store.names())

    assert promised <= found
    for name in found - {"a/same"}:
        assert hashlib.sha256(store.get(name)).hexdigest() == name.rpartition("/")[2]
    same = store.get("a/same")
    assert hashlib.sha256(same[:-32]).digest() == same[-32:]


DIE_HALFWAY = """
import resource, signal, sys
from holdfast.storage.objects import open_objects

store = open_objects(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # past the limit the system kills the process, within its write
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
store.put(sys.argv[2], bytes(500_000))
"""


@pytest.mark.parametrize("name", ["a/old", "a/new", "b/new"])
def test_a_process_that_dies_halfway_through_a_put_has_put_nothing(folder: Path, store: ObjectStore, name: str) -> None:
    store.put("a/old", b"the old one")

    died = subprocess.run([sys.executable, "-c", DIE_HALFWAY, folder.as_uri(), name], timeout=120, check=False)

    assert died.returncode == -signal.SIGXFSZ
    (part,) = (folder / INCOMING).iterdir()
    assert part.stat().st_size == 100_000
    assert list(store.names()) == ["a/old"]
    assert store.get("a/old") == b"the old one"
    store.delete([])
    assert not part.exists()
    store.put(name, b"again")
    assert store.get(name) == b"again"


def test_what_a_killed_put_left_goes_with_the_next_delete_and_what_is_being_written_stays(
    folder: Path, store: ObjectStore
) -> None:
    store.put("a", b"x")
    incoming = folder / INCOMING
    dead, alive = incoming / "dead", incoming / "alive"
    dead.write_bytes(b"half of a memo")
    with alive.open("wb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)

        store.delete([])

        assert [path.name for path in incoming.iterdir()] == ["alive"]

    open_objects(folder.as_uri()).put("b", b"x")  # so does the first put of another process

    assert not list(incoming.iterdir())
    assert sorted(store.names()) == ["a", "b"]


@contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int]]]:
    """Syncs and renames in their order, each with the inode of what was synced or renamed."""
    events: list[tuple[str, int]] = []
    sync, rename = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        sync(descriptor)
        events.append(("synced", os.fstat(descriptor).st_ino))

    def replace(source: Any, target: Any) -> None:
        events.append(("named", Path(source).stat().st_ino))
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        patch.setattr(os, "replace", replace)
        yield events


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere syncing is not os.fsync")
def test_an_object_is_on_the_disk_before_it_has_its_name_and_its_folders_before_put_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "new" / "archive"

    with recorded(monkeypatch) as events:
        open_objects(folder.as_uri()).put("a/b/one", b"x")

    written = (folder / "a" / "b" / "one").stat().st_ino
    named = events.index(("named", written))
    assert ("synced", written) in events[:named]
    for above in (folder / "a" / "b", folder / "a", folder, tmp_path / "new", tmp_path):
        assert ("synced", above.stat().st_ino) in events[named:], above


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere syncing is not os.fsync")
def test_a_delete_is_on_the_disk_when_it_returns(
    folder: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/one", "a/two", "b/c/three"):
        store.put(name, b"x")

    with recorded(monkeypatch) as events:
        store.delete(["a/one", "b/c/three"])

    assert {("synced", (folder / "a").stat().st_ino), ("synced", folder.stat().st_ino)} <= set(events)


# --- servers -----------------------------------------------------------------------------------------------------


@pytest.fixture
def point_to(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ObjectStore]:
    """A store in a bucket of the server at an address."""

    def point(address: str) -> ObjectStore:
        for variable in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(variable)
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
        return RemoteObjects(read_place("s3://bucket/prefix"), QUICK)

    return point


def calls_of(store: ObjectStore) -> list[Callable[[], object]]:
    return [
        lambda: store.put("a", b"x"),
        lambda: store.get("a"),
        lambda: store.delete(["a"]),
        lambda: list(store.names()),
        lambda: store.put("a", b"x", absent=True),
        lambda: store.put("a", bytes(SIZES[-1] + 1)),
        store.check,
    ]


@contextmanager
def serving(
    answer: Callable[[str, bytes], tuple[int, str, bytes]], secure: ssl.SSLContext | None = None
) -> Iterator[str]:
    """A server that asks for each answer (status, type, body) with the path and the body of the request."""

    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            status, kind, body = answer(self.path, self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = reply  # noqa: N815 - http.server looks for these names

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """A client that does not like what it hears is no news here."""

    server = Server(("127.0.0.1", 0), Handler)
    if secure is not None:
        server.socket = secure.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A key, and a certificate that is signed with it and by nobody else."""
    own = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(own, hashes.SHA256())
    )
    key, signed = folder / "key.pem", folder / "certificate.pem"
    plain = serialization.NoEncryption()
    key.write_bytes(own.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    signed.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return key, signed


def error_body(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()


def azure_without_blobs(path: str, request: bytes) -> tuple[int, str, bytes]:
    """What Azure answers where a container holds nothing; a batch has an answer for each of its deletes."""
    if "comp=list" in path:
        return 200, "application/xml", b"<EnumerationResults><Blobs/></EnumerationResults>"
    if "comp=batch" not in path:
        return 404, "application/xml", error_body("BlobNotFound")
    missing = (
        b"--cut\r\nContent-Type: application/http\r\nContent-ID: %d\r\n\r\n"
        b"HTTP/1.1 404 The specified blob does not exist.\r\nx-ms-error-code: BlobNotFound\r\nContent-Length: 0\r\n\r\n"
    )
    deletes = range(request.count(b"DELETE /"))
    return 202, "multipart/mixed; boundary=cut", b"".join(missing % n for n in deletes) + b"--cut--\r\n"


def test_a_server_that_is_not_there_may_be_there_later(point_to: Callable[[str], ObjectStore]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        store = point_to(f"http://127.0.0.1:{taken.getsockname()[1]}")

        for call in calls_of(store):
            with pytest.raises(
                ObjectStoreUnavailableError, match="s3://bucket/prefix: the server did not answer"
            ) as raised:
                call()
            assert raised.value.retryable
            assert raised.value.code == "object_store_unavailable"


@pytest.mark.parametrize(
    ("status", "code", "retryable", "said"),
    [
        (503, "SlowDown", True, "not ready (503 SlowDown)"),
        (500, "InternalError", True, "not ready (500 InternalError)"),
        (429, "TooManyRequests", True, "not ready (429 TooManyRequests)"),
        (403, "AccessDenied", False, "not allowed (403 AccessDenied); check the credentials"),
        (401, "Unauthorized", False, "not allowed (401 Unauthorized); check the credentials"),
        (400, "ExpiredToken", False, "the credentials have expired (400 ExpiredToken)"),
        (404, "NoSuchBucket", False, "no such bucket, bucket (404 NoSuchBucket)"),
    ],
)
def test_what_a_server_answers_is_said_with_whether_to_try_again(
    point_to: Callable[[str], ObjectStore], status: int, code: str, retryable: bool, said: str
) -> None:
    with serving(lambda path, request: (status, "application/xml", error_body(code))) as address:
        store = point_to(address)
        for call in calls_of(store):
            with pytest.raises(ObjectStoreError) as raised:
                call()
            assert not isinstance(raised.value, ObjectMissingError)
            assert raised.value.retryable == retryable
            assert said in str(raised.value)


def test_a_bucket_is_waited_for_tens_of_seconds_and_not_for_ever() -> None:
    patience = Patience()
    longest = patience.trying + patience.silence + SIZES[-1] / patience.slowest

    assert patience.retries >= 3
    assert patience.trying + patience.silence < 30
    assert longest < 60
    assert longest < patience.whole


def test_a_name_that_nobody_knows_may_be_known_later(point_to: Callable[[str], ObjectStore]) -> None:
    with pytest.raises(ObjectStoreUnavailableError, match="the server's name was not found") as raised:
        point_to("http://no-such-host.invalid").get("a")
    assert raised.value.retryable


def test_a_server_without_tls_is_no_passing_fault(point_to: Callable[[str], ObjectStore]) -> None:
    with serving(lambda path, request: (200, "text/plain", b"")) as address:
        with pytest.raises(ObjectStoreError, match="does not speak TLS") as raised:
            point_to(address.replace("http:", "https:")).get("a")
        assert not raised.value.retryable


def test_a_certificate_that_nobody_vouches_for_is_not_trusted(
    point_to: Callable[[str], ObjectStore], tmp_path: Path
) -> None:
    key, certificate = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serving(lambda path, request: (200, "text/plain", b""), context) as address:
        with pytest.raises(ObjectStoreError, match="certificate is not trusted") as raised:
            point_to(address.replace("http://127.0.0.1", "https://localhost")).get("a")
        assert not raised.value.retryable


#: What each cloud needs to be found on this machine, and the path by which it then knows an object.
CLOUDS = {
    "az://container/prefix": (
        {"AZURE_STORAGE_ACCOUNT_NAME": "nobody", "AZURE_STORAGE_ACCOUNT_KEY": "bm90aGluZw=="},
        "AZURE_STORAGE_ENDPOINT",
        "/container/prefix/a/b",
    ),
    "gs://bucket/prefix": ({"GOOGLE_BEARER_TOKEN": "nothing"}, "GOOGLE_BASE_URL", "/bucket/prefix/a/b"),
    "s3://bucket/prefix": (
        {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing"},
        "AWS_ENDPOINT",
        "/bucket/prefix/a/b",
    ),
}


@pytest.fixture(params=CLOUDS)
def cloud(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    url: str = request.param
    for variable in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(variable)
    for variable, value in CLOUDS[url][0].items():
        monkeypatch.setenv(variable, value)
    return url


def test_every_cloud_is_asked_for_the_object_below_the_prefix(cloud: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, endpoint, path = CLOUDS[cloud]
    asked: list[str] = []

    def deny(path: str, request: bytes) -> tuple[int, str, bytes]:
        asked.append(path)
        return 403, "application/xml", error_body("AccessDenied")

    with serving(deny) as address:
        monkeypatch.setenv(endpoint, address)
        for variable in ("AWS_BUCKET", "AWS_BUCKET_NAME", "GOOGLE_BUCKET", "AZURE_CONTAINER_NAME"):
            monkeypatch.setenv(variable, "another-one")
        store = RemoteObjects(read_place(cloud), QUICK)
        calls: list[Callable[[], object]] = [lambda: store.get("a/b"), lambda: store.put("a/b", b"x")]
        for call in calls:
            with pytest.raises(ObjectStoreError, match=r"not allowed \(403 AccessDenied\)") as raised:
                call()
            assert cloud in str(raised.value)
            assert not raised.value.retryable

    assert [unquote(found.partition("?")[0]) for found in asked] == [path, path]


def test_every_cloud_that_is_not_there_may_be_there_later(cloud: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv(CLOUDS[cloud][1], f"http://127.0.0.1:{taken.getsockname()[1]}")
        store = RemoteObjects(read_place(cloud), QUICK)
        for call in calls_of(store):
            with pytest.raises(ObjectStoreUnavailableError, match=f"{cloud}: the server did not answer") as raised:
                call()
            assert raised.value.retryable


@pytest.mark.parametrize("tag", ["", "x", "[]", '["a"]', "null", "3"])
def test_a_tag_that_is_none_is_refused(tag: str) -> None:
    with pytest.raises(InvalidInputError, match="is no tag of an object"):
        open_objects("s3://bucket/prefix").put("a", b"x", match=tag)


def test_where_a_cloud_reports_an_object_that_is_not_there_deleting_it_passes_over_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "nobody")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "bm90aGluZw==")
    with serving(azure_without_blobs) as address:
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", address)
        store = open_objects("az://container/prefix")

        store.delete(["a", "b"])

        with pytest.raises(ObjectMissingError, match="no object a in az://container/prefix"):
            store.get("a")


def test_a_signed_url_is_not_shown() -> None:
    text = "Generic error: Error performing GET https://me.blob.core.windows.net/c/x?sv=1&sig=hunter2 in 2ms - oddness\nmore"

    assert "hunter2" not in str(explain(ValueError(text), "cannot read x", "c"))


def test_without_credentials_it_is_credentials_that_are_asked_for() -> None:
    text = "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1s - HTTP error: timeout"

    problem = explain(ValueError(text), "cannot write x in s3://bucket/y", "bucket")

    assert "no credentials in the environment" in str(problem)
    assert not problem.retryable


def test_an_azure_container_needs_an_account(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(variable)

    with pytest.raises(
        InvalidSettingsError, match=r"az://container/prefix cannot be opened: .*Account must be specified"
    ):
        open_objects("az://container/prefix").get("a")


def test_a_fork_is_told_instead_of_waiting_for_ever() -> None:
    script = """
        import warnings
        warnings.simplefilter("ignore")
        os.environ.update(AWS_ACCESS_KEY_ID="nobody", AWS_SECRET_ACCESS_KEY="nothing",
                          AWS_ENDPOINT_URL="http://127.0.0.1:1")
        store = open_objects("s3://bucket/prefix")
        before = attempt(lambda: store.get("a"))
        out, into = os.pipe()
        if os.fork() == 0:
            answers = [attempt(lambda: store.get("a")), attempt(open_objects("s3://bucket/other").check)]
            os.write(into, json.dumps(answers).encode())
            os._exit(0)
        os.wait()
        print(json.dumps([before, *json.loads(os.read(out, 10_000))]))
    """

    before, *after = run(script)

    assert before["code"] == "object_store_unavailable"
    for answer in after:
        assert answer["code"] == "closed"
        assert "start processes with 'spawn'" in answer["message"]
