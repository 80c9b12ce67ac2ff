"""The limits of the service: too large, too long, too often and too many are clear answers, and nothing is left over."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from functools import partial

import anyio.to_thread
import pytest
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from holdfast.core.clock import watch
from holdfast.core.errors import RequestTimeoutError
from holdfast.edges.service.limits import Buckets, Limits, RateLimit, RequestLimit
from holdfast.settings import read_settings
from service.asking import LOOPBACK, REMOTE, Answer, ask, ask_async


async def count_body(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the length of what it was sent; says 400 to a caller that leaves, as frameworks do."""
    total = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            await PlainTextResponse("gone", 400)(scope, receive, send)
            return
        total += len(message["body"])
        if not message["more_body"]:
            await PlainTextResponse(f"{total}")(scope, receive, send)
            return


# --- size -------------------------------------------------------------------------------------------------------------


def test_a_request_within_the_limit_passes_whole() -> None:
    answer = ask(RequestLimit(count_body, Limits(request_bytes=10)), method="POST", pieces=[b"12345", b"67890"])
    assert (answer.status, answer.body) == (200, b"10")


def test_a_request_that_says_that_it_is_too_large_is_refused_before_it_is_read() -> None:
    async def never(*_: object) -> None:
        raise AssertionError("the app was asked")

    answer = ask(RequestLimit(never, Limits(request_bytes=10)), method="POST", headers={"content-length": "11"})
    assert (answer.status, answer.code) == (413, "request_too_large")
    assert answer.headers["connection"] == "close"
    assert "10 bytes" in answer.json["detail"]


def test_a_request_that_turns_out_too_large_is_refused_whatever_the_app_makes_of_it() -> None:
    answer = ask(RequestLimit(count_body, Limits(request_bytes=10)), method="POST", pieces=[b"12345", b"67890", b"1"])
    assert (answer.status, answer.code) == (413, "request_too_large")


@pytest.mark.parametrize("length", ["-1", "ten", "1e3", "٣"])
def test_a_length_that_is_no_number_is_refused(length: str) -> None:
    scope_header = {"content-length": length}
    answer = ask(RequestLimit(count_body, Limits(request_bytes=10)), method="POST", headers=scope_header)
    assert (answer.status, answer.code) == (422, "invalid_input")


def test_a_length_of_many_digits_is_too_large_and_no_trouble() -> None:
    assert (
        ask(
            RequestLimit(count_body, Limits(request_bytes=10)), method="POST", headers={"content-length": "9" * 4_000}
        ).status
        == 413
    )


def test_all_that_is_being_sent_at_once_is_bounded_and_what_has_ended_does_not_count() -> None:
    async def story() -> None:
        release, inside = asyncio.Event(), asyncio.Semaphore(0)

        async def holds(scope: Scope, receive: Receive, send: Send) -> None:
            while (message := await receive()).get("more_body", False):
                pass
            if message["type"] == "http.disconnect":
                return
            inside.release()
            await release.wait()
            await PlainTextResponse("done")(scope, receive, send)

        limit = RequestLimit(holds, Limits(request_bytes=100_000))
        whole, much = [bytes(60_000), bytes(40_000)], bytes(70_000)
        first = [asyncio.create_task(ask_async(limit, method="POST", pieces=whole)) for _ in range(16)]
        for _ in first:
            await inside.acquire()
        for headers in ({}, {"content-length": "70000"}):
            one_more = await ask_async(limit, method="POST", pieces=[much], headers=headers)
            assert (one_more.status, one_more.code) == (429, "rate_limited")
            assert "1,600,000 bytes" in one_more.json["detail"]
        none = [asyncio.create_task(ask_async(limit, method="POST", pieces=[piece])) for piece in (b"", b"little")]
        for _ in none:
            await inside.acquire()  # who sends little is let in
        release.set()
        assert {answer.status for answer in await asyncio.gather(*none, *first)} == {200}
        assert (await ask_async(limit, method="POST", pieces=[much])).status == 200

    asyncio.run(story())


# --- time -------------------------------------------------------------------------------------------------------------


def test_a_request_that_takes_too_long_is_answered_and_still_finishes() -> None:
    release, finished = threading.Event(), threading.Event()

    def work() -> None:
        assert release.wait(30)
        finished.set()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await anyio.to_thread.run_sync(work)
        await PlainTextResponse("too late")(scope, receive, send)

    async def story() -> Answer:
        limit = RequestLimit(slow, Limits(request_seconds=0.01))
        answer = await ask_async(limit, method="POST")
        assert not finished.is_set()
        release.set()
        await limit.finish()
        assert finished.is_set()
        return answer

    answer = asyncio.run(story())
    assert (answer.status, answer.code) == (503, "request_timeout")
    assert "Idempotency-Key" in answer.json["detail"]


def test_a_request_that_does_not_arrive_is_not_waited_for() -> None:
    async def story() -> Answer:
        limit = RequestLimit(count_body, Limits(request_seconds=0.01))
        answer = await ask_async(limit, method="POST", pieces=[b"half", b"never"], arrives=False)
        await limit.finish()
        return answer

    answer = asyncio.run(story())
    assert (answer.status, answer.code) == (503, "request_timeout")
    assert "did not arrive" in answer.json["detail"]


def test_an_answer_that_has_begun_takes_its_time() -> None:
    async def story() -> Answer:
        long_enough = asyncio.Event()

        async def pieces(limit_seconds: float) -> object:
            yield "first "
            asyncio.get_running_loop().call_later(3 * limit_seconds, long_enough.set)
            await long_enough.wait()
            yield "last"

        async def stream(scope: Scope, receive: Receive, send: Send) -> None:
            await StreamingResponse(pieces(0.02))(scope, receive, send)  # type: ignore[arg-type]

        return await ask_async(RequestLimit(stream, Limits(request_seconds=0.02)))

    answer = asyncio.run(story())
    assert (answer.status, answer.body) == (200, b"first last")


def test_what_an_app_raises_in_time_is_raised() -> None:
    async def broken(*_: object) -> None:
        raise LookupError("as it was")

    with pytest.raises(LookupError, match="as it was"):
        ask(RequestLimit(broken, Limits(request_seconds=10)))


def test_a_stop_that_cannot_wait_reaches_the_app() -> None:
    async def story() -> None:
        begun, cancelled = asyncio.Event(), asyncio.Event()

        async def waits(*_: object) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        asking = asyncio.create_task(ask_async(RequestLimit(waits, Limits(request_seconds=600))))
        await begun.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.wait_for(cancelled.wait(), 10)

    asyncio.run(story())


# --- how many at once -------------------------------------------------------------------------------------------------


def test_one_request_too_many_at_once_is_refused_and_the_next_one_is_not() -> None:
    async def story() -> None:
        release = asyncio.Event()

        async def waits(scope: Scope, receive: Receive, send: Send) -> None:
            await release.wait()
            await PlainTextResponse("done")(scope, receive, send)

        limit = RequestLimit(waits, Limits(requests_at_once=2))
        two = [asyncio.create_task(ask_async(limit)) for _ in range(2)]
        await asyncio.sleep(0)
        third = await ask_async(limit)
        assert (third.status, third.code, third.headers["retry-after"]) == (429, "rate_limited", "1")
        release.set()
        assert [(await one).status for one in two] == [200, 200]
        assert (await ask_async(limit)).status == 200

    asyncio.run(story())


def test_what_was_given_up_still_counts_until_it_has_ended() -> None:
    async def story() -> None:
        release = asyncio.Event()

        async def waits(scope: Scope, receive: Receive, send: Send) -> None:
            await receive()
            await release.wait()
            await PlainTextResponse("done")(scope, receive, send)

        limit = RequestLimit(waits, Limits(requests_at_once=1, request_seconds=0.01))
        assert (await ask_async(limit)).code == "request_timeout"
        assert (await ask_async(limit)).code == "rate_limited"
        release.set()
        await limit.finish()
        assert (await ask_async(limit)).status == 200

    asyncio.run(story())


# --- how often --------------------------------------------------------------------------------------------------------


class Ticks:
    """A clock of seconds that only the test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


def limited(ticks: Ticks, *, rate: float = 1.0, burst: float = 2.0, status: int = 200) -> RateLimit:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("said", status)(scope, receive, send)

    return RateLimit(app, Buckets(rate, burst=burst, now=ticks), free=("/healthz",))


def test_who_asks_too_often_is_told_when_to_come_back(ticks: Ticks) -> None:
    app = limited(ticks, rate=0.5, burst=2)
    assert [ask(app).status for _ in range(2)] == [200, 200]
    refused = ask(app)
    assert (refused.status, refused.code, refused.headers["retry-after"]) == (429, "rate_limited", "2")
    ticks.now += 2
    assert ask(app).status == 200
    assert ask(app).status == 429


def test_each_key_and_each_address_has_a_limit_of_its_own(ticks: Ticks) -> None:
    app = limited(ticks, burst=1)
    asked = partial(ask, app)
    assert asked(client=REMOTE).status == 200
    assert asked(client=REMOTE, headers={"Authorization": "Bearer one"}).status == 429, "its address has used it up"
    assert asked(client="198.51.100.1").status == 200
    assert asked(client="192.0.2.1", headers={"Authorization": "Bearer one"}).status == 200
    assert asked(client="192.0.2.2", headers={"X-API-Key": "one"}).status == 429, "the same key from elsewhere"
    assert asked(client="192.0.2.2", headers={"X-API-Key": "two"}).status == 200


def test_ever_new_wrong_keys_do_not_go_on_for_long(ticks: Ticks) -> None:
    app = limited(ticks, rate=1, burst=20, status=401)
    statuses = [ask(app, headers={"Authorization": f"Bearer wrong{n}"}).status for n in range(5)]
    assert statuses == [401, 401, 429, 429, 429]
    assert ask(app, headers={"Authorization": "Bearer another"}, client=REMOTE).status == 401


def test_a_network_of_ipv6_is_one_caller(ticks: Ticks) -> None:
    app = limited(ticks, burst=1)
    assert ask(app, client="2001:db8:1:2::1").status == 200
    assert ask(app, client="2001:db8:1:2:ffff::9").status == 429
    assert ask(app, client="2001:db8:1:3::1").status == 200


def test_probes_cost_nothing(ticks: Ticks) -> None:
    app = limited(ticks, burst=1)
    assert {ask(app, "/healthz").status for _ in range(5)} == {200}


def test_memory_for_callers_is_bounded(ticks: Ticks) -> None:
    buckets = Buckets(1, burst=5, most=10, now=ticks)
    for n in range(1_000):
        buckets.take(f"caller {n}")
    assert len(buckets) == 10


def test_a_debt_is_bounded(ticks: Ticks) -> None:
    buckets = Buckets(1, burst=5, now=ticks)
    for _ in range(100):
        buckets.take(LOOPBACK, 10)
    assert buckets.wait(LOOPBACK) == 6


def test_limits_come_from_the_settings() -> None:
    given = {"HOLDFAST_REQUEST_MIB": "0.5", "HOLDFAST_REQUEST_SECONDS": "2.5", "HOLDFAST_RATE_PER_SECOND": "0"}
    settings = read_settings({**given, "HOLDFAST_REQUESTS_AT_ONCE": "7"})
    assert Limits.of(settings) == Limits(512 * 1024, 2.5, 0.0, 7)
    assert Limits.of(read_settings({})) == Limits()


def test_keys_that_nobody_looks_at_are_the_addresses_own_requests(ticks: Ticks) -> None:
    """Where no key is asked for, anything passes for one: a new name for each request is no way around the limit."""
    limited = RateLimit(PlainTextResponse("a page for everyone"), Buckets(5, now=ticks))
    keys = [{"Authorization": f"Bearer {n:032x}"} for n in range(40)]
    answers = [ask(limited, client=REMOTE, headers=key).status for key in keys]
    assert answers.count(200) <= 12
    assert set(answers) == {200, 429}


def test_work_that_only_looks_ends_with_its_request_and_frees_its_thread() -> None:
    steps = [0]

    def look() -> None:
        for _ in watch(range(10**9)):
            steps[0] += 1

    async def looks(_scope: Scope, receive: Receive, _send: Send) -> None:
        await receive()
        await anyio.to_thread.run_sync(look)

    async def story() -> Answer:
        limit = RequestLimit(looks, Limits(request_seconds=0.05))
        answer = await ask_async(limit, "/v1/recall", "POST")
        with suppress(RequestTimeoutError):
            await limit.finish()
        assert anyio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
        return answer

    answer = asyncio.run(story())
    assert answer.code == "request_timeout"
    assert "A read was stopped" in answer.json["detail"]
    assert answer.headers["retry-after"] == "1"
    assert 0 < steps[0] < 10**9
