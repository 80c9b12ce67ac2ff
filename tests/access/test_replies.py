"""A request that comes again under the same idempotency key is carried out once, and answered as before."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import raw
from clocks import FakeClock
from homes import Homes, on_sqlite
from retain import ConflictError, IdempotencyKeyReusedError, InvalidInputError, RequestInProgressError, Retain
from retain.access import Replies, Reply
from retain.access.replies import MAX_REPLY_BYTES, fingerprint

REQUEST = fingerprint("POST", "/v1/memories", b'{"content": "likes tea"}')
OTHER = fingerprint("POST", "/v1/memories", b'{"content": "likes coffee"}')
REPLY = Reply(201, {"content-type": "application/json", "location": "/v1/memories/ü"}, b'{"memory_id": "\xff"}')


@pytest.fixture
def other(home: Path, retain: Retain, clock: FakeClock) -> Iterator[Retain]:
    """The same store, opened as another process would."""
    with Retain.open(home=home, clock=clock) as opened:
        yield opened


def test_a_request_that_comes_again_gets_the_reply_that_it_had(retain: Retain, other: Retain) -> None:
    assert retain.replies.claim("key-1", "abc", REQUEST) is None
    retain.replies.keep("key-1", "abc", REQUEST, REPLY)

    assert retain.replies.claim("key-1", "abc", REQUEST) == REPLY
    assert other.replies.claim("key-1", "abc", REQUEST) == REPLY


def test_keys_of_different_callers_have_nothing_to_do_with_each_other(retain: Retain) -> None:
    retain.replies.claim("key-1", "abc", REQUEST)
    retain.replies.keep("key-1", "abc", REQUEST, REPLY)

    assert retain.replies.claim("key-2", "abc", REQUEST) is None
    assert retain.replies.claim("key-1", "abcd", REQUEST) is None
    assert retain.replies.claim("key-1a", "bc", REQUEST) is None


def test_a_key_is_for_one_request(retain: Retain, other: Retain) -> None:
    retain.replies.claim("key-1", "abc", REQUEST)
    with pytest.raises(IdempotencyKeyReusedError, match="another request"):
        other.replies.claim("key-1", "abc", OTHER)
    retain.replies.keep("key-1", "abc", REQUEST, REPLY)
    for replies in (retain.replies, other.replies):
        with pytest.raises(IdempotencyKeyReusedError):
            replies.claim("key-1", "abc", OTHER)


def test_a_request_at_work_is_not_begun_again(retain: Retain, other: Retain, clock: FakeClock) -> None:
    retain.replies.claim("key-1", "abc", REQUEST)
    for replies in (retain.replies, other.replies):
        with pytest.raises(RequestInProgressError) as refused:
            replies.claim("key-1", "abc", REQUEST)
        assert refused.value.retryable
        assert isinstance(refused.value, ConflictError)

    clock.advance(hours=1)
    with pytest.raises(RequestInProgressError):
        retain.replies.claim("key-1", "abc", REQUEST)
    retain.replies.keep("key-1", "abc", REQUEST, REPLY)
    assert other.replies.claim("key-1", "abc", REQUEST) == REPLY


def test_a_request_that_another_process_was_cut_short_at_is_begun_again_after_its_time(
    retain: Retain, other: Retain, clock: FakeClock
) -> None:
    retain.replies.claim("key-1", "abc", REQUEST)
    clock.advance(seconds=59.9)
    with pytest.raises(RequestInProgressError):
        other.replies.claim("key-1", "abc", REQUEST)
    clock.advance(seconds=0.1)

    assert other.replies.claim("key-1", "abc", REQUEST) is None
    retain.replies.keep("key-1", "abc", REQUEST, Reply(200, {}, b"late"))
    other.replies.keep("key-1", "abc", REQUEST, REPLY)
    assert retain.replies.claim("key-1", "abc", REQUEST) == REPLY


def test_a_request_that_failed_may_be_sent_again_as_another(retain: Retain, other: Retain) -> None:
    retain.replies.claim("key-1", "abc", REQUEST)
    retain.replies.release("key-1", "abc")

    assert other.replies.claim("key-1", "abc", OTHER) is None
    retain.replies.release("key-1", "abc")
    retain.replies.keep("key-1", "abc", REQUEST, REPLY)
    with pytest.raises(RequestInProgressError):
        other.replies.claim("key-1", "abc", OTHER)


def test_replies_are_kept_for_a_day_and_then_removed_by_the_way(retain: Retain, clock: FakeClock) -> None:
    for number in range(3):
        retain.replies.claim("key-1", f"key {number}", REQUEST)
        retain.replies.keep("key-1", f"key {number}", REQUEST, REPLY)
    clock.advance(hours=23, minutes=59)
    assert retain.replies.claim("key-1", "key 0", REQUEST) == REPLY
    clock.advance(minutes=1)

    assert retain.replies.claim("key-1", "key 0", OTHER) is None
    assert raw.rows(retain, "SELECT count(*) FROM replies") == [(1,)]


def test_nothing_that_was_said_can_be_read_from_the_store(homes: Homes, clock: FakeClock) -> None:
    home = homes.new()
    key, said = "1f0c-my-own-key", b"alice-likes-tea-with-milk"
    with Retain.open(home=home, clock=clock) as retain:
        request = fingerprint("POST", "/v1/memories", said)
        retain.replies.claim("caller-7", key, request)
        retain.replies.keep("caller-7", key, request, Reply(200, {"x-who": said.decode()}, said))
        kept = [path.read_bytes() for path in home.rglob("*") if path.is_file()] + list(homes.tables(home).values())
        found = retain.replies.claim("caller-7", key, request)

    assert found == Reply(200, {"x-who": said.decode()}, said)
    secret = [said, key.encode(), b"caller-7", request, request.hex().encode(), hashlib.sha256(key.encode()).digest()]
    assert not any(part in data for part in secret for data in kept)


def test_a_reply_too_large_to_keep_is_told_and_not_carried_out_again(retain: Retain) -> None:
    largest = Reply(200, {}, b"x" * MAX_REPLY_BYTES)
    for key, reply in (("fits", largest), ("large", Reply(200, {}, largest.body + b"x"))):
        retain.replies.claim("key-1", key, REQUEST)
        retain.replies.keep("key-1", key, REQUEST, reply)

    assert retain.replies.claim("key-1", "fits", REQUEST) == largest
    with pytest.raises(ConflictError, match="too large to keep"):
        retain.replies.claim("key-1", "large", REQUEST)
    with pytest.raises(ConflictError, match="too large to keep"):
        retain.replies.claim("key-1", "large", REQUEST)


@on_sqlite
def test_a_damaged_reply_is_told_and_not_carried_out_again(home: Path, retain: Retain) -> None:
    retain.replies.claim("key-1", "abc", REQUEST)
    retain.replies.keep("key-1", "abc", REQUEST, REPLY)
    with closing(sqlite3.connect(home / "retain.db")) as database, database:
        database.execute("UPDATE replies SET reply = substr(reply, 1, length(reply) - 1)")

    with pytest.raises(ConflictError, match="damaged"):
        retain.replies.claim("key-1", "abc", REQUEST)


@on_sqlite
@pytest.mark.parametrize("key", ["", " ", "k" * 257, "a\nb", "\ud800", None, 7], ids=repr)
def test_a_key_that_is_none_is_refused(retain: Retain, key: str) -> None:
    with pytest.raises(InvalidInputError, match="idempotency key"):
        retain.replies.claim("key-1", key, REQUEST)


def test_whatever_sets_requests_apart_is_in_the_fingerprint() -> None:
    told_apart = {
        fingerprint("POST", "/a", b"b"),
        fingerprint("PUT", "/a", b"b"),
        fingerprint("POST", "/ab", b""),
        fingerprint("POST", "/a", b""),
        fingerprint("POST", "/a?b", b""),
        fingerprint("POST", "/a", b"b", tenant="acme"),
        fingerprint("POST", "/aacme", b"b"),
    }
    assert len(told_apart) == 7
    assert fingerprint("POST", "/a", b"b") == fingerprint("POST", "/a", b"b")


def test_of_many_who_send_a_request_at_once_one_carries_it_out(retain: Retain, other: Retain) -> None:
    def send(replies: Replies) -> str:
        try:
            return "begun" if replies.claim("key-1", "abc", REQUEST) is None else "answered"
        except RequestInProgressError:
            return "in progress"

    with ThreadPoolExecutor(8) as pool:
        became = list(pool.map(send, [retain.replies, other.replies] * 8))
    assert sorted(became) == ["begun", *["in progress"] * 15]
