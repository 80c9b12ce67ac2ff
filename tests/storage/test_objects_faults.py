"""Buckets that fail: now and then, for a while, halfway, or for a reason. Over real HTTP, through a proxy."""

from __future__ import annotations

import hashlib
import os
from base64 import b64decode
from collections.abc import Callable, Iterator

import pytest

from buckets import Fault, Proxy, Request, make_bucket, proxy_before, put, s3_server, unfinished
from holdfast.core.errors import (
    ConflictError,
    ObjectMissingError,
    ObjectStoreError,
    ObjectStoreUnavailableError,
    StaleError,
)
from holdfast.ports.objects import ObjectStore
from holdfast.storage.objects.remote import SIZES, Patience, RemoteObjects
from holdfast.storage.objects.urls import read_place

#: Waits for this machine as long as it takes, and for what is known to fail only as long as it must.
QUICK = Patience(pause=0.005, silence=30, trying=20)
HASTY = QUICK._replace(silence=0.5, whole=5, retries=1, trying=2, slowest=100_000_000)
LARGE = SIZES[-1] + 12_345
Open = Callable[..., RemoteObjects]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server(tmp_path_factory.mktemp("s3")) as address:
        yield address


@pytest.fixture
def proxy(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    for variable in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(variable)
    with proxy_before(server) as opened:
        monkeypatch.setenv("AWS_ENDPOINT_URL", opened.address)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
        yield opened


@pytest.fixture
def open_store(proxy: Proxy, request: pytest.FixtureRequest) -> Open:
    """Stores in a place of the bucket that no other test writes to."""
    prefix = f"{abs(hash(request.node.nodeid)):x}"

    def opening(patience: Patience = QUICK) -> RemoteObjects:
        return RemoteObjects(read_place(f"s3://archive/{prefix}"), patience)

    return opening


@pytest.fixture
def store(open_store: Open) -> RemoteObjects:
    return open_store()


def is_write(request: Request) -> bool:
    return request.method in ("PUT", "POST", "DELETE")


def is_put(request: Request) -> bool:
    return request.method == "PUT"


def is_read(request: Request) -> bool:
    return request.method == "GET" and "list-type" not in request.path


# --- now and then ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [503, 500, (429, "SlowDown"), "reset", "cut"], ids=str)
def test_a_bucket_that_fails_every_third_call_loses_nothing(
    proxy: Proxy, store: ObjectStore, server: str, fault: Fault
) -> None:
    proxy.fail_every(3, fault, only=is_read if fault == "cut" else lambda request: True)
    large = os.urandom(LARGE)

    for n in range(6):
        store.put(f"a/{n}", b"%d" % n)
    tag = store.put("b/key", b"first", absent=True)
    store.put("b/key", b"second", match=tag)
    store.put("c/large", large)
    for n in range(6):
        assert store.get(f"a/{n}") == b"%d" % n
    assert store.get("c/large") == large
    store.delete([f"a/{n}" for n in range(1, 6)])

    assert sorted(store.names()) == ["a/0", "b/key", "c/large"]
    assert store.get("b/key") == b"second"
    proxy.heal()
    assert not store.check()
    assert unfinished(server, store.url) == 0


@pytest.mark.parametrize("fault", ["lost", "reset", "silent", 503], ids=str)
@pytest.mark.parametrize("condition", ["absent", "match"])
def test_a_write_on_a_condition_is_made_once_though_its_answer_was_lost(
    proxy: Proxy, open_store: Open, fault: Fault, condition: str
) -> None:
    store = open_store(HASTY)
    tag = None if condition == "absent" else store.put("a", b"before")
    proxy.fail_once(fault, only=is_put)

    made = store.put("a", b"ours", absent=condition == "absent", match=tag)

    assert store.get_with_tag("a") == (b"ours", made)
    with pytest.raises(ConflictError):
        store.put("a", b"again", absent=condition == "absent", match=tag)


def test_what_another_wrote_the_same_is_not_taken_for_ones_own(proxy: Proxy, store: ObjectStore) -> None:
    store.put("a", b"the same", absent=True)

    with pytest.raises(ConflictError):
        store.put("a", b"the same", absent=True)


def test_writers_that_the_server_set_apart_try_again(proxy: Proxy, store: ObjectStore) -> None:
    proxy.fail_once((409, "ConditionalRequestConflict"), only=is_put)
    store.put("a", b"first", absent=True)

    proxy.fail_every(1, (409, "ConditionalRequestConflict"), only=is_put)
    with pytest.raises(ObjectStoreUnavailableError, match="others are writing it"):
        store.put("b", b"first", absent=True)

    assert list(store.names()) == ["a"]


# --- for a while -------------------------------------------------------------------------------------------------


def verbs(store: ObjectStore, tag: str) -> dict[str, Callable[[], object]]:
    return {
        "put": lambda: store.put("a", b"new"),
        "absent": lambda: store.put("b", b"new", absent=True),
        "match": lambda: store.put("a", b"new", match=tag),
        "large": lambda: store.put("a", bytes(LARGE)),
        "get": lambda: store.get("a"),
        "delete": lambda: store.delete(["a", "b"]),
        "names": lambda: list(store.names()),
        "check": store.check,
    }


@pytest.mark.parametrize("fault", [503, "silent", "reset"], ids=str)
def test_a_bucket_that_does_not_answer_is_unavailable_and_recovers_by_itself(
    proxy: Proxy, open_store: Open, server: str, fault: Fault
) -> None:
    store = open_store(HASTY)
    tag = store.put("a", b"old")
    for verb, call in verbs(store, tag).items():
        proxy.fail_every(1, fault)
        with pytest.raises(ObjectStoreUnavailableError) as raised:
            call()
        assert raised.value.retryable, verb
        assert "cannot " in str(raised.value)
        assert "try again" in str(raised.value)
        assert "hunter2" not in f"{raised.value}{raised.value!r}{store!r}"

        proxy.heal()
        assert store.get("a") == b"old", verb
        assert list(store.names()) == ["a"], verb

    assert unfinished(server, store.url) == 0
    store.put("a", b"new", match=tag)
    assert not store.check()


@pytest.mark.parametrize("code", ["AccessDenied", "AllAccessDisabled"])
def test_a_bucket_that_may_only_be_read_is_not_tried_again(
    proxy: Proxy, store: ObjectStore, server: str, code: str
) -> None:
    tag = store.put("a", b"old")
    proxy.fail_every(1, (403, code), only=is_write)
    calls = verbs(store, tag)
    for verb in ("put", "absent", "match", "large", "delete", "check"):
        before = len(proxy.requests)
        with pytest.raises(ObjectStoreError, match=rf"not allowed \(403 {code}\); check the credentials") as raised:
            calls[verb]()
        assert not raised.value.retryable
        assert sum(map(is_write, proxy.requests[before:])) <= 2  # the check also tries to leave nothing

    assert calls["get"]() == b"old"
    assert calls["names"]() == ["a"]
    proxy.heal()
    assert unfinished(server, store.url) == 0
    calls["put"]()
    assert store.get("a") == b"new"


# --- halfway -----------------------------------------------------------------------------------------------------


def test_a_download_that_breaks_off_is_taken_up_again(proxy: Proxy, store: ObjectStore) -> None:
    data = os.urandom(LARGE)
    store.put("a", data)
    proxy.fail_once("cut", only=is_read)

    assert store.get("a") == data


def test_a_download_that_always_breaks_off_is_never_taken_for_the_whole(proxy: Proxy, store: ObjectStore) -> None:
    store.put("a", os.urandom(LARGE))
    proxy.fail_every(1, "cut", only=is_read)

    with pytest.raises(ObjectStoreUnavailableError, match="try again"):
        store.get("a")

    proxy.heal()
    assert len(store.get("a")) == LARGE


def test_what_is_sent_is_sent_with_its_checksum(proxy: Proxy, store: ObjectStore) -> None:
    store.put("a", b"small")
    store.put("b", b"small", absent=True)
    store.put("c", os.urandom(LARGE))

    sent = [request for request in proxy.requests if request.method == "PUT"]
    assert len(sent) == 3
    for request in sent:
        assert b64decode(request.headers["x-amz-checksum-sha256"]) == hashlib.sha256(request.body).digest()


# --- for a reason ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ((403, "RequestTimeTooSkewed"), "clock is too far from the server's (403 RequestTimeTooSkewed); set it"),
        ((403, "InvalidAccessKeyId"), "does not know these credentials (403 InvalidAccessKeyId)"),
        ((403, "SignatureDoesNotMatch"), "does not know these credentials (403 SignatureDoesNotMatch)"),
        ((400, "ExpiredToken"), "credentials have expired (400 ExpiredToken); renew them"),
        ((400, "AuthorizationHeaderMalformed"), "bucket archive is in another region (400 AuthorizationHeaderMalformed); set AWS_REGION to eu-west-1"),
        ((301, "PermanentRedirect"), "in another region; set AWS_REGION"),
        ((501, "NotImplemented"), "cannot do this (501 NotImplemented)"),
        ((400, "InvalidRequest"), "refused (400 InvalidRequest)"),
        ((404, "NoSuchBucket"), "there is no such bucket, archive (404 NoSuchBucket); create it, or name another in its URL"),
    ],
)  # fmt: skip
def test_a_check_names_the_reason_and_what_to_do(proxy: Proxy, store: ObjectStore, fault: Fault, said: str) -> None:
    proxy.fail_every(1, fault)

    with pytest.raises(ObjectStoreError) as raised:
        store.check()
    assert said in str(raised.value)
    assert not raised.value.retryable


def test_a_check_finds_what_cannot_be_deleted(proxy: Proxy, store: ObjectStore) -> None:
    proxy.fail_every(1, (403, "AccessDenied"), only=lambda request: "?delete" in request.path)
    with pytest.raises(ObjectStoreError, match=r"cannot delete objects .* not allowed"):
        store.check()

    proxy.heal()
    left = list(store.names())
    assert len(left) == 1
    store.delete(left)


def test_one_object_among_many_that_may_not_be_deleted_is_said(proxy: Proxy, store: ObjectStore) -> None:
    store.put("a", b"x")
    key = f"{store.url.removeprefix('s3://archive/')}/a"
    refusal = (
        f"<DeleteResult><Error><Key>{key}</Key><Code>AccessDenied</Code><Message>no</Message></Error></DeleteResult>"
    )
    proxy.fault = lambda request: refusal.encode() if "?delete" in request.path else None

    with pytest.raises(ObjectStoreError, match=r"not allowed \(AccessDenied\)") as raised:
        store.delete(["a", "b"])
    assert not raised.value.retryable


def test_a_check_warns_of_a_bucket_that_keeps_versions(proxy: Proxy, server: str) -> None:
    make_bucket(server, "versioned")
    body = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
    put(f"{server}/versioned/?versioning", body)

    (warning,) = RemoteObjects(read_place("s3://versioned/x"), QUICK).check()

    assert "the bucket versioned keeps versions: what is deleted or replaced stays there" in warning


def test_a_check_warns_of_a_server_that_heeds_no_conditions(proxy: Proxy, store: ObjectStore) -> None:
    def forget_conditions(request: Request) -> Fault:
        headers = {name: value for name, value in request.headers.items() if not name.startswith("if-")}
        return request._replace(headers=headers)

    proxy.fault = forget_conditions

    (warning,) = store.check()

    assert "replaces objects even if it is told not to" in warning
    assert list(store.names()) == []


def test_a_check_warns_of_a_server_to_which_all_goes_in_the_clear(
    proxy: Proxy, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not open_store().check()
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address.replace("127.0.0.1", "0.0.0.0"))  # noqa: S104

    (warning,) = open_store().check()

    assert "is not encrypted" in warning


# --- little by little --------------------------------------------------------------------------------------------


def page(prefix: str, numbers: range, following: str) -> bytes:
    """A page of a list, as S3 gives it."""
    more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{following}</NextContinuationToken>"
    found = "".join(
        f"<Contents><Key>{prefix}/a/{n}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>1</Size></Contents>"
        for n in numbers
    )
    return f"<ListBucketResult>{more if following else ''}{found}</ListBucketResult>".encode()


def test_names_are_listed_a_page_at_a_time(proxy: Proxy, store: ObjectStore) -> None:
    prefix = store.url.removeprefix("s3://archive/")
    proxy.fault = lambda request: (
        page(prefix, range(1_000, 1_003), "")
        if "continuation-token=next" in request.path
        else page(prefix, range(1_000), "next")
    )

    names = store.names("a")
    assert len(proxy.requests) == 0
    found = [next(names)]
    assert len(proxy.requests) == 1
    found.extend(names)

    assert found == [f"a/{n}" for n in range(1_003)]
    assert len(proxy.requests) == 2
    assert f"prefix={prefix}%2Fa%2F" in proxy.requests[0].path


def test_a_list_that_breaks_off_between_pages_is_never_taken_for_the_whole(proxy: Proxy, store: ObjectStore) -> None:
    prefix = store.url.removeprefix("s3://archive/")
    proxy.fault = lambda request: 503 if "continuation-token" in request.path else page(prefix, range(1_000), "next")

    names = store.names("a")
    found = [next(names) for _ in range(1_000)]

    with pytest.raises(ObjectStoreUnavailableError, match="cannot list objects"):
        next(names)
    assert len(found) == 1_000


def test_a_missing_object_is_not_a_passing_fault(proxy: Proxy, store: ObjectStore) -> None:
    proxy.fail_every(3, 503)

    for _ in range(4):
        with pytest.raises(ObjectMissingError):
            store.get("never/was")
        with pytest.raises(StaleError):
            store.put("never/was", b"x", match='["tag", null]')
