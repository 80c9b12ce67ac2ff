"""A request that comes again under the same idempotency key is carried out once, and answered as before."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import raw
from clocks import FakeClock
from holdfast import ConflictError, Holdfast, IdempotencyKeyReusedError, InvalidInputError, RequestInProgressError
from holdfast.access import replies
from holdfast.access.replies import MAX_REPLY_BYTES, Once, Replies, Reply, fingerprint
from holdfast.core.errors import NotFoundError, StoreAwayError
from holdfast.ports.coordination import Claim
from homes import Homes, on_sqlite

REQUEST = fingerprint("POST", "/v1/memories", b'{"content": "likes tea"}')
OTHER = fingerprint("POST", "/v1/memories", b'{"content": "likes coffee"}')
REPLY = Reply(201, {"content-type": "application/json", "location": "/v1/memories/ü"}, b'{"memory_id": "\xff"}')


@pytest.fixture
def other(home: Path, holdfast: Holdfast, clock: FakeClock) -> Iterator[Holdfast]:
    """The same store, opened as another process would."""
    with Holdfast.open(home=home, clock=clock) as opened:
        yield opened


def never() -> Reply:
    raise AssertionError("it is not carried out again")


def send(
    holdfast: Holdfast,
    work: Callable[[], Reply] = lambda: REPLY,
    *,
    who: str = "key-1",
    key: str = "abc",
    request: bytes = REQUEST,
) -> Reply:
    """What becomes of a request, whose work is short."""
    return holdfast.replies.once(who, key, request).carry_out(work, never)[0]


def begin(holdfast: Holdfast, request: bytes = REQUEST) -> Once:
    """A request whose work is long."""
    once = holdfast.replies.once("key-1", "abc", request)
    assert once.begin() is None
    return once


def adding(holdfast: Holdfast, tool: str = "finder") -> Callable[[], Reply]:
    def work() -> Reply:
        holdfast.tools.add(tool)
        return REPLY

    return work


def test_a_request_that_comes_again_gets_the_reply_that_it_had(holdfast: Holdfast, other: Holdfast) -> None:
    assert send(holdfast, adding(holdfast)) == REPLY
    assert send(holdfast, never) == REPLY
    assert send(other, never) == REPLY
    assert len(other.tools.list()) == 1


def test_keys_of_different_callers_have_nothing_to_do_with_each_other(holdfast: Holdfast) -> None:
    send(holdfast)
    said = Reply(200, {}, b"other")
    assert send(holdfast, lambda: said, who="key-2") == said
    assert send(holdfast, lambda: said, key="abcd") == said
    assert send(holdfast, lambda: said, who="key-1a", key="bc") == said


def test_a_key_is_for_one_request(holdfast: Holdfast, other: Holdfast) -> None:
    at_work = begin(holdfast)
    with pytest.raises(IdempotencyKeyReusedError, match="another request"):
        send(other, never, request=OTHER)
    at_work.keep(REPLY)
    for engine in (holdfast, other):
        with pytest.raises(IdempotencyKeyReusedError):
            send(engine, never, request=OTHER)


def test_long_work_is_not_begun_again_while_its_process_is_at_it(
    holdfast: Holdfast, other: Holdfast, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed = threading.Event()
    renew = holdfast.replies.renewals._renew

    def renew_and_tell(claims: Sequence[Claim]) -> None:
        renew(claims)
        renewed.set()

    monkeypatch.setattr(holdfast.replies.renewals, "_renew", renew_and_tell)
    monkeypatch.setattr(replies, "_RENEW_SECONDS", 0.01)
    at_work = begin(holdfast)
    raw.run(other, "UPDATE replies SET leased_until = 0")
    renewed.clear()
    assert renewed.wait(60)
    clock.advance(hours=1)
    for engine in (holdfast, other):
        with pytest.raises(RequestInProgressError) as refused:
            send(engine, never)
        assert refused.value.retryable
        assert isinstance(refused.value, ConflictError)
    at_work.keep(REPLY)
    assert send(other, never) == REPLY


def test_long_work_that_was_cut_short_is_gone_on_with_by_another(
    holdfast: Holdfast, other: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holdfast.replies.renewals, "add", lambda _claim: None)  # its process is gone
    cut_short = begin(holdfast)
    with pytest.raises(RequestInProgressError):
        other.replies.once("key-1", "abc", REQUEST).begin()
    raw.run(other, "UPDATE replies SET leased_until = 0")

    gone_on = begin(other)
    assert gone_on.request.new_ids(2) == cut_short.request.new_ids(2)
    cut_short.keep(Reply(200, {}, b"late"))
    gone_on.keep(REPLY)
    assert send(holdfast, never) == REPLY


def test_nothing_renews_what_has_ended(holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "_RENEW_SECONDS", 0.01)
    begin(holdfast).keep(REPLY)
    thread = holdfast.replies.renewals._thread
    if thread is not None:
        thread.join(60)
    assert holdfast.replies.renewals._thread is None


def test_a_request_that_failed_may_be_sent_again_as_another(holdfast: Holdfast, other: Holdfast) -> None:
    def fail() -> Reply:
        raise NotFoundError("nothing is there")

    with pytest.raises(NotFoundError):
        send(holdfast, fail)
    begin(holdfast).give_up(NotFoundError("nothing is there"))
    said = Reply(200, {}, b"other")
    assert send(other, lambda: said, request=OTHER) == said


def test_work_that_breaks_off_has_done_nothing(holdfast: Holdfast, other: Holdfast) -> None:
    def break_off() -> Reply:
        holdfast.tools.add("finder")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        send(holdfast, break_off)
    assert other.tools.list() == []
    assert send(other, adding(other)) == REPLY


def test_long_work_that_breaks_off_is_not_done_again(holdfast: Holdfast, other: Holdfast) -> None:
    failed = Reply(500, {}, b"nobody knows what it has done")
    begin(holdfast).fail(lambda: failed)
    assert send(other, never) == failed


def test_a_reply_that_cannot_be_kept_takes_its_work_with_it(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> int:
        raise StoreAwayError("the server is away")

    monkeypatch.setattr(holdfast.replies, "erasures", refuse)
    with pytest.raises(StoreAwayError):
        send(holdfast, adding(holdfast))
    assert holdfast.tools.list() == []


def test_who_finds_nothing_to_do_because_another_was_faster_gets_that_ones_reply(
    holdfast: Holdfast, other: Holdfast
) -> None:
    def come_too_late() -> Reply:
        send(other)
        raise NotFoundError("it is gone already")

    assert send(holdfast, come_too_late) == REPLY


def test_replies_are_kept_for_a_day_and_then_removed_by_the_way(holdfast: Holdfast, clock: FakeClock) -> None:
    for number in range(3):
        send(holdfast, key=f"key {number}")
    clock.advance(hours=23, minutes=59)
    assert send(holdfast, never, key="key 0") == REPLY
    clock.advance(minutes=1)

    assert send(holdfast, key="key 0", request=OTHER) == REPLY
    assert raw.rows(holdfast, "SELECT count(*) FROM replies") == [(1,)]


def test_nothing_that_was_said_can_be_read_from_the_store(homes: Homes, clock: FakeClock) -> None:
    home = homes.new()
    key, said = "1f0c-my-own-key", b"alice-likes-tea-with-milk"
    reply = Reply(200, {"x-who": said.decode()}, said)
    with Holdfast.open(home=home, clock=clock) as holdfast:
        request = fingerprint("POST", "/v1/memories", said)
        send(holdfast, lambda: reply, who="caller-7", key=key, request=request)
        kept = [path.read_bytes() for path in home.rglob("*") if path.is_file()] + list(homes.tables(home).values())
        found = send(holdfast, never, who="caller-7", key=key, request=request)
        seed = holdfast.replies.once("caller-7", key, request).claim.seed

    assert found == reply
    secret = [said, key.encode(), b"caller-7", request, request.hex().encode(), hashlib.sha256(key.encode()).digest()]
    assert not any(part in data for part in (*secret, seed) for data in kept)


def test_a_reply_too_large_to_keep_is_told_and_not_carried_out_again(holdfast: Holdfast) -> None:
    largest = Reply(200, {}, b"x" * MAX_REPLY_BYTES)
    larger = Reply(200, {}, largest.body + b"x")
    assert send(holdfast, lambda: largest, key="fits") == largest
    assert send(holdfast, lambda: larger, key="large") == larger

    assert send(holdfast, never, key="fits") == largest
    for _ in range(2):
        with pytest.raises(ConflictError, match="too large to keep"):
            send(holdfast, never, key="large")


@on_sqlite
def test_a_damaged_reply_is_told_and_not_carried_out_again(home: Path, holdfast: Holdfast) -> None:
    send(holdfast)
    with closing(sqlite3.connect(home / "holdfast.db")) as database, database:
        database.execute("UPDATE replies SET reply = substr(reply, 1, length(reply) - 1)")

    with pytest.raises(ConflictError, match="damaged"):
        send(holdfast, never)


@on_sqlite
@pytest.mark.parametrize("key", ["", " ", "k" * 257, "a\nb", "\ud800", None, 7], ids=repr)
def test_a_key_that_is_none_is_refused(holdfast: Holdfast, key: str) -> None:
    with pytest.raises(InvalidInputError, match="idempotency key"):
        send(holdfast, never, key=key)


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


def test_of_many_who_send_a_request_at_once_one_carries_it_out(holdfast: Holdfast, other: Holdfast) -> None:
    def carry_out(number: int) -> Reply:
        engine = (holdfast, other)[number % 2]

        def work() -> Reply:
            engine.tools.add(f"tool-{number}")
            return Reply(200, {}, str(number).encode())

        return send(engine, work)

    with ThreadPoolExecutor(8) as pool:
        told = {reply.body for reply in pool.map(carry_out, range(16))}
    assert len(told) == 1
    assert [tool["tool_id"] for tool in holdfast.tools.list()] == [f"tool-{told.pop().decode()}"]


def test_of_many_who_begin_long_work_at_once_one_does(holdfast: Holdfast, other: Holdfast) -> None:
    def begin_or_wait(replies: Replies) -> str:
        try:
            return "begun" if replies.once("key-1", "abc", REQUEST).begin() is None else "answered"
        except RequestInProgressError:
            return "in progress"

    with ThreadPoolExecutor(8) as pool:
        became = list(pool.map(begin_or_wait, [holdfast.replies, other.replies] * 8))
    assert sorted(became) == ["begun", *["in progress"] * 15]
