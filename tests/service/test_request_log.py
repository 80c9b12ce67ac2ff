"""Every request has an id, is counted and is a line of the log; no secret and nothing of a memory is in it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.core.errors import StoreAwayError
from holdfast.edges.service.limits import Limits, RequestLimit
from holdfast.edges.service.logs import LATE_SECONDS, LogFormat, install_logs, redact
from holdfast.edges.service.request_log import RequestLog, Traffic
from service.asking import ask, ask_async

SECRET = "holdfast_0123456789abcdef0123456789abcdef_" + "Zq3" * 14 + "x"


def api() -> Starlette:
    def get_user(request: Request) -> Response:
        return JSONResponse({"user": request.path_params["user_id"]})

    async def broken(request: Request) -> Response:
        raise LookupError(f"nothing like {(await request.body()).decode()} and {request.headers['authorization']}")

    def away(_request: Request) -> Response:
        raise StoreAwayError(f"postgresql://holdfast:hunter2@db/holdfast is away, asked with {SECRET}")

    return Starlette(
        routes=[
            Route("/v1/users/{user_id}", get_user),
            Route("/v1/broken", broken, methods=["POST"]),
            Route("/v1/away", away),
        ]
    )


@contextmanager
def logging_to(form: LogFormat) -> Iterator[io.StringIO]:
    """What is logged meanwhile; the log of the tests is as it was after."""
    root, ours = logging.getLogger(), logging.getLogger("holdfast")
    handlers, levels = list(root.handlers), (root.level, ours.level)
    stream = io.StringIO()
    install_logs(form, stream)
    try:
        yield stream
        for handler in root.handlers:
            handler.flush()
    finally:
        logging.captureWarnings(capture=False)
        root.handlers[:] = handlers
        root.setLevel(levels[0])
        ours.setLevel(levels[1])


@pytest.fixture
def traffic() -> Traffic:
    return Traffic()


@pytest.fixture
def app(traffic: Traffic) -> ASGIApp:
    return RequestLog(api(), traffic)


def test_a_request_keeps_its_id_or_is_given_one(app: ASGIApp) -> None:
    assert ask(app, "/v1/users/alice", headers={"X-Request-ID": "from-the-proxy.1"}).headers["x-request-id"] == (
        "from-the-proxy.1"
    )
    given = {
        ask(app, "/v1/users/alice", headers={"X-Request-ID": odd}).headers["x-request-id"]
        for odd in ("", "a b", "x" * 65, "evil\r\nheader", '{"json"}')
    }
    assert len(given) == 5
    assert all(len(one) == 32 for one in given)


def test_a_line_tells_the_route_and_not_whose_memory_it_was(app: ASGIApp) -> None:
    with logging_to(LogFormat.JSON) as stream:
        ask(app, "/v1/users/alice?q=private", headers={"X-Request-ID": "one"})
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert (line["message"], line["request_id"], line["status"]) == ("request", "one", 200)
    assert (line["method"], line["route"], line["client"]) == ("GET", "/v1/users/{user_id}", "127.0.0.1")
    assert line["ms"] >= 0
    assert "alice" not in stream.getvalue()
    assert "private" not in stream.getvalue()


def test_lines_are_written_together_a_moment_later_and_before_what_comes_after_them(app: ASGIApp) -> None:
    async def story(stream: io.StringIO) -> None:
        for name in ("one", "two"):
            await ask_async(app, "/v1/users/alice", headers={"X-Request-ID": name})
        assert stream.getvalue() == ""
        async with asyncio.timeout(10):
            while not stream.getvalue():
                await asyncio.sleep(0.01)
        assert [json.loads(line)["request_id"] for line in stream.getvalue().splitlines()] == ["one", "two"]
        await ask_async(app, "/v1/users/alice", headers={"X-Request-ID": "three"})
        logging.getLogger("holdfast.any").warning("four")
        assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()[2:]] == ["request", "four"]

    with logging_to(LogFormat.JSON) as stream:
        asyncio.run(story(stream))


def test_a_line_of_a_loop_that_has_ended_is_written_with_the_next(app: ASGIApp) -> None:
    async def story(stream: io.StringIO) -> None:
        await ask_async(app, "/v1/users/alice")
        async with asyncio.timeout(10):
            while not stream.getvalue():
                await asyncio.sleep(0.01)

    with logging_to(LogFormat.JSON) as stream:
        asyncio.run(ask_async(app, "/v1/users/alice"))
        assert stream.getvalue() == ""
        asyncio.run(story(stream))
    assert len(stream.getvalue().splitlines()) == 2


def test_a_log_that_nobody_reads_any_more_keeps_nobody_from_an_answer(app: ASGIApp) -> None:
    failures: list[dict[str, object]] = []

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, said: failures.append(said))
        for _ in range(3):
            assert (await ask_async(app, "/v1/users/alice")).status == 200
            await asyncio.sleep(2 * LATE_SECONDS)

    with logging_to(LogFormat.JSON) as stream:
        stream.close()
        asyncio.run(story())
    assert failures == []


def test_what_nobody_expected_is_an_answer_and_a_line_with_its_place(app: ASGIApp) -> None:
    with logging_to(LogFormat.JSON) as stream:
        answer = ask(
            app, "/v1/broken", "POST", pieces=[b"my diary"], headers={"Authorization": "Bearer x", "X-Request-ID": "r"}
        )
    assert answer.status == 500
    assert answer.headers["x-request-id"] == "r"
    failure, request = map(json.loads, stream.getvalue().splitlines())
    assert (failure["level"], failure["error"], failure["request_id"]) == ("error", "LookupError", "r")
    assert any(place.endswith(" broken") for place in failure["at"])
    assert request["status"] == 500
    assert "diary" not in stream.getvalue()


def test_an_app_that_fails_without_an_answer_is_answered_for(traffic: Traffic) -> None:
    async def broken(*_: object) -> None:
        raise LookupError("my diary")

    answer = ask(RequestLog(broken, traffic), headers={"X-Request-ID": "r"})
    assert (answer.status, answer.code, answer.json["request_id"]) == (500, "error", "r")
    assert "diary" not in answer.body.decode()


@pytest.mark.parametrize("form", LogFormat)
def test_a_secret_is_in_no_line(app: ASGIApp, form: LogFormat) -> None:
    with logging_to(form) as stream:
        for headers in ({"Authorization": f"Bearer {SECRET}"}, {"X-API-Key": SECRET, "Authorization": SECRET}):
            ask(app, f"/v1/users/{SECRET}?key={SECRET}", headers=headers)
            ask(app, f"/{SECRET}", headers=headers)
            ask(app, "/v1/broken", "POST", pieces=[SECRET.encode()], headers=headers)
            ask(app, "/v1/away", headers={**headers, "X-Request-ID": SECRET[:60]})
        logging.getLogger("uvicorn.error").warning("a library says %s", SECRET)
        logging.getLogger("holdfast.any").error("Authorization: Bearer %s", SECRET[40:])
    said = stream.getvalue()
    assert len(said.splitlines()) >= 12
    for planted in (SECRET, SECRET[40:], SECRET[:60], "hunter2"):
        assert planted not in said


def test_a_line_of_text_is_one_line(app: ASGIApp) -> None:
    with logging_to(LogFormat.TEXT) as stream:
        ask(app, "/v1/users/alice")
        logging.getLogger("holdfast.any").warning("two\nlines and \x1b[31mcolour")
        logging.getLogger("holdfast.latency").warning("is in the metrics")
    first, second = stream.getvalue().splitlines()
    assert "route=/v1/users/{user_id} status=200" in first
    assert second.endswith("warning two lines and  [31mcolour")


def test_passwords_and_keys_are_blotted_out_and_the_rest_is_not() -> None:
    assert redact("postgresql://me:secret@host/db is away") == "postgresql://me:…@host/db is away"
    assert redact(f"asked with {SECRET}.") == "asked with …."
    assert redact("holdfast_overdue_seconds is 3") == "holdfast_overdue_seconds is 3"


def test_requests_are_counted_by_route_and_status(app: ASGIApp, traffic: Traffic) -> None:
    for path in ("/v1/users/alice", "/v1/users/bob", "/no/such/route", "/another"):
        ask(app, path)
    ask(app, "/v1/users/alice", "BREW")
    said = generate_latest(traffic.registry).decode()
    assert 'holdfast_http_requests_total{method="GET",route="/v1/users/{user_id}",status="200"} 2.0' in said
    assert 'holdfast_http_requests_total{method="GET",route="none",status="404"} 2.0' in said
    assert 'holdfast_http_requests_total{method="other",route="/v1/users/{user_id}",status="405"} 1.0' in said
    assert 'holdfast_http_request_seconds_count{method="GET",route="/v1/users/{user_id}"} 2.0' in said
    assert "holdfast_http_requests_in_flight 0.0" in said
    assert "alice" not in said


def test_what_is_given_up_is_a_line_and_counted_when_it_is_answered_and_not_again_when_it_ends(
    traffic: Traffic,
) -> None:
    async def story() -> None:
        release = asyncio.Event()

        async def waits(_scope: Scope, receive: Receive, _send: Send) -> None:
            await receive()
            await release.wait()

        limit = RequestLimit(waits, Limits(request_seconds=0.01))
        assert (await ask_async(RequestLog(limit, traffic))).status == 503
        assert "holdfast_http_requests_in_flight 0.0" in generate_latest(traffic.registry).decode()
        release.set()
        await limit.finish()
        await asyncio.sleep(0)

    with logging_to(LogFormat.JSON) as stream:
        asyncio.run(story())
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert line["status"] == 503
    counted = 'holdfast_http_requests_total{method="GET",route="none",status="503"} 1.0'
    assert counted in generate_latest(traffic.registry).decode()
