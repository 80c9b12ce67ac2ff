"""What every object store does, over a folder and over S3 (a server of our own, on this machine only)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from buckets import proxy_before, s3_server
from holdfast.backups.create import SEGMENT
from holdfast.core.errors import ConflictError, InvalidInputError, ObjectMissingError, ObjectStoreError, StaleError
from holdfast.ports.objects import ObjectStore
from holdfast.storage.objects import open_objects

BAD_NAMES = ["", "/", "/etc/passwd", "..", "../a", "a/../b", "a//b", "a/", "./a", ".incoming/a", "a\\b", "A", "é", "a b", "a\n", "a\x00", "a?b", "a%2e", "x" * 129, "/".join(["x" * 100] * 6)]  # fmt: skip
_TURNS = itertools.count()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server(tmp_path_factory.mktemp("s3")) as address:
        yield address


@pytest.fixture
def s3(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The server, with everything in the environment that leads to it."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    return server


@pytest.fixture(params=["folder", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place that no other test writes to."""
    if request.param == "folder":
        return (tmp_path / "not" / "made yet").as_uri()
    request.getfixturevalue("s3")
    return f"s3://archive/turn-{next(_TURNS)}"


@pytest.fixture
def contested(url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The same place, for many writers at once."""
    if url.startswith("file:"):
        yield url
        return
    with proxy_before(request.getfixturevalue("server")) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        yield url


@pytest.fixture
def store(url: str) -> ObjectStore:
    return open_objects(url)


# --- put and get -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 3, os.urandom(3 * 1024 * 1024)], ids=len)
def test_an_object_comes_back_byte_for_byte(store: ObjectStore, data: bytes) -> None:
    store.put("archive/ab/one.pack", data)

    assert store.get("archive/ab/one.pack") == data


def test_another_process_sees_what_was_put(store: ObjectStore, url: str) -> None:
    store.put("a/one.pack", b"first")

    again = open_objects(url)

    assert again.get("a/one.pack") == b"first"
    assert list(again.names()) == ["a/one.pack"]


def test_names_come_with_the_sizes_of_what_has_them(store: ObjectStore) -> None:
    assert list(store.sizes()) == []
    store.put("a/one.pack", b"first")
    store.put("b/two", b"")
    store.put("a/one.pack", b"longer than the first")

    assert sorted(store.sizes()) == [("a/one.pack", 21), ("b/two", 0)]
    assert list(store.sizes("b/")) == [("b/two", 0)]


def test_the_same_object_can_be_put_again(store: ObjectStore) -> None:
    store.put("a/one.pack", b"first")
    store.put("a/one.pack", b"first")

    assert store.get("a/one.pack") == b"first"
    assert list(store.names()) == ["a/one.pack"]


def test_a_put_replaces_what_had_the_name(store: ObjectStore) -> None:
    store.put("a/one.pack", b"the first, which is longer")
    store.put("a/one.pack", b"the second")

    assert store.get("a/one.pack") == b"the second"


@pytest.mark.parametrize("name", ["a/two.pack", "a", "a/one.pack/deeper", "b/c/d"])
def test_an_object_that_is_not_there_is_missing_for_good(store: ObjectStore, name: str) -> None:
    store.put("a/one.pack", b"first")

    with pytest.raises(ObjectMissingError, match=f"no object {name} ") as raised:
        store.get(name)
    assert not raised.value.retryable


def test_of_many_writers_of_one_name_one_wins_whole(store: ObjectStore) -> None:
    written = [bytes([n]) * 200_000 for n in range(12)]

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda data: store.put("a/one.pack", data), written))

    assert store.get("a/one.pack") in written
    assert list(store.names()) == ["a/one.pack"]


def test_puts_and_deletes_at_once_lose_nothing_that_was_kept(store: ObjectStore) -> None:
    def work(n: int) -> None:
        for turn in range(8):
            store.put(f"a/{n}/{turn}", b"passing")
            store.delete([f"a/{n}/{turn}"])
        store.put(f"a/{n}/kept", b"kept")

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(work, range(6)))

    assert sorted(store.names()) == [f"a/{n}/kept" for n in range(6)]


# --- streams -----------------------------------------------------------------------------------------------------


# --- conditions --------------------------------------------------------------------------------------------------


def test_what_must_be_absent_is_written_once(store: ObjectStore) -> None:
    tag = store.put("a/key", b"first", absent=True)

    with pytest.raises(ConflictError, match="already; nothing was written") as raised:
        store.put("a/key", b"second", absent=True)
    assert not raised.value.retryable
    assert store.get_with_tag("a/key") == (b"first", tag)

    store.delete(["a/key"])
    store.put("a/key", b"third", absent=True)
    assert store.get("a/key") == b"third"


def test_what_must_match_is_written_only_over_what_was_read(store: ObjectStore) -> None:
    first = store.put("a/key", b"first")
    assert store.get_with_tag("a/key") == (b"first", first)

    second = store.put("a/key", b"second", match=first)

    assert second != first
    for stale in (first, store.put("other", b"something else")):
        with pytest.raises(StaleError, match="another writer has changed") as raised:
            store.put("a/key", b"third", match=stale)
        assert raised.value.retryable
    assert store.get_with_tag("a/key") == (b"second", second)


def test_nothing_matches_what_is_not_there(store: ObjectStore) -> None:
    tag = store.put("a/key", b"first")
    store.delete(["a/key"])

    with pytest.raises(StaleError):
        store.put("a/key", b"second", match=tag)
    assert list(store.names()) == []


def test_an_object_cannot_be_absent_and_match(store: ObjectStore) -> None:
    with pytest.raises(InvalidInputError, match="give one of the two"):
        store.put("a", b"x", absent=True, match="tag")


def test_of_many_who_would_be_first_one_is(store: ObjectStore, contested: str) -> None:
    def claim(n: int) -> bool:
        try:
            open_objects(contested).put("a/claim", str(n).encode(), absent=True)
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        won = list(threads.map(claim, range(16)))

    assert won.count(True) == 1
    assert store.get("a/claim") == str(won.index(True)).encode()


def test_of_many_who_change_an_object_none_is_lost(store: ObjectStore, contested: str) -> None:
    store.put("a/ledger", b"", absent=True)

    def append(n: int) -> None:
        own = open_objects(contested)
        while True:
            lines, tag = own.get_with_tag("a/ledger")
            try:
                own.put("a/ledger", lines + b"%d\n" % n, match=tag)
            except StaleError:
                continue
            return

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(append, range(12)))

    assert sorted(map(int, store.get("a/ledger").split())) == list(range(12))


# --- delete ------------------------------------------------------------------------------------------------------


def test_a_deleted_object_is_gone(store: ObjectStore) -> None:
    store.put("a/one.pack", b"first")
    store.put("a/two.pack", b"second")

    store.delete(["a/one.pack"])

    with pytest.raises(ObjectMissingError):
        store.get("a/one.pack")
    assert list(store.names()) == ["a/two.pack"]


def test_deleting_can_be_repeated_and_passes_over_what_is_not_there(store: ObjectStore) -> None:
    store.put("a/one.pack", b"first")
    store.put("b/two.pack", b"second")

    for _ in range(2):
        store.delete(["never/was", "a/one.pack", "a", "a/one.pack/deeper", "b/two.pack"])

    assert list(store.names()) == []


def test_deleting_nothing_does_nothing(store: ObjectStore) -> None:
    store.delete([])

    assert list(store.names()) == []


def test_more_objects_than_a_page_holds_are_listed_and_deleted(store: ObjectStore) -> None:
    wanted = {f"archive/{n % 7}/{n:04}.pack" for n in range(1_005)}
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: store.put(name, b"x"), wanted))

    found = list(store.names())
    store.delete(found)

    assert len(found) == len(wanted)
    assert set(found) == wanted
    assert list(store.names()) == []


# --- names -------------------------------------------------------------------------------------------------------


def test_names_are_those_below_a_prefix_of_whole_parts(store: ObjectStore) -> None:
    for name in ("archive/ab/1.pack", "archive/ab/c/2.pack", "archive/abc/3.pack", "backup/4"):
        store.put(name, b"x")

    def below(prefix: str) -> list[str]:
        return sorted(store.names(prefix))

    assert below("archive/ab") == below("archive/ab/") == ["archive/ab/1.pack", "archive/ab/c/2.pack"]
    assert below("archive/a") == below("nothing") == below("backup/4") == []
    assert len(below("")) == 4


def test_what_was_listed_can_be_deleted_while_the_list_goes_on(store: ObjectStore) -> None:
    for n in range(20):
        store.put(f"a/{n}/x", b"x")

    for name in store.names():
        store.delete([name])

    assert list(store.names()) == []


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_could_lead_elsewhere_is_refused(store: ObjectStore, name: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.put(name, b"x"),
        lambda: store.get(name),
        lambda: store.get_with_tag(name),
        lambda: store.delete(["fine", name]),
    ]
    if name not in ("", "a/"):
        calls.append(lambda: store.names(name))

    for call in calls:
        with pytest.raises(InvalidInputError, match="cannot name an object"):
            call()
    assert list(store.names()) == []


# --- check -------------------------------------------------------------------------------------------------------


def test_a_check_of_a_store_that_works_leaves_nothing_behind(store: ObjectStore) -> None:
    assert list(store.check()) == []
    assert list(store.names()) == []

    store.put("a/one.pack", b"first")
    assert list(store.check()) == []
    assert list(store.names()) == ["a/one.pack"]


def test_its_url_can_be_opened_again(store: ObjectStore, url: str) -> None:
    assert store.url == url
    assert open_objects(store.url).url == url


# --- what only a bucket can do -----------------------------------------------------------------------------------


def test_stores_in_one_bucket_do_not_see_each_other(s3: str) -> None:
    one, eleven = open_objects("s3://archive/side-1"), open_objects("s3://archive/side-11/")
    one.put("a", b"one")
    eleven.put("a", b"eleven")
    eleven.put("b", b"eleven")

    one.delete(["a", "b"])

    assert list(one.names()) == []
    assert sorted(eleven.names()) == ["a", "b"]
    assert "side-11/a" in open_objects("s3://archive").names()


@pytest.mark.parametrize("verb", ["put", "large", "create", "replace", "get", "delete", "names", "check"])
def test_a_bucket_that_does_not_exist_is_no_empty_bucket(s3: str, verb: str) -> None:
    store = open_objects("s3://no-such-bucket/prefix", "HOLDFAST_STATE_URL")
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: store.put("a", b"x"),
        "create": lambda: store.put("a", b"x", absent=True),
        "replace": lambda: store.put("a", b"x", match='["tag", null]'),
        "large": lambda: store.put("a", bytes(2 * SEGMENT)),
        "get": lambda: store.get("a"),
        "delete": lambda: store.delete(["a", "b"]),
        "names": lambda: list(store.names()),
        "check": store.check,
    }

    with pytest.raises(
        ObjectStoreError, match=r"no such bucket, no-such-bucket .*name another in HOLDFAST_STATE_URL"
    ) as raised:
        calls[verb]()
    assert raised.value.code == "object_store"
    assert not raised.value.retryable
