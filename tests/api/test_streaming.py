"""Answers that take a while: sent as they are made, ended when nobody listens, told wrong when they go wrong."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, MutableMapping
from typing import Any

import pytest
from starlette.applications import Starlette

from api.client import Client
from clocks import FakeClock
from holdfast import Holdfast
from holdfast.core.errors import StaleError
from holdfast.edges.rest import streams
from holdfast.edges.rest.streams import ClientGoneError, Sink, StreamedResponse, stream_file, stream_progress

Message = MutableMapping[str, Any]
LONG = 30.0


class Listener:
    """The other end of an answer, which takes what is sent until it has heard enough."""

    def __init__(self, *, enough: int | None = None, slow: asyncio.Event | None = None) -> None:
        self.heard: list[Message] = []
        self._enough = enough
        self._slow = slow
        self._left = asyncio.Event()

    async def receive(self) -> Message:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self._slow is not None:
            await self._slow.wait()
        self.heard.append(message)
        if self._enough is not None and len(self.heard) >= self._enough:
            self._left.set()

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.heard)

    @property
    def is_whole(self) -> bool:
        return self.heard[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


def answer(response: StreamedResponse, listener: Listener) -> None:
    """Let a response answer a listener."""
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b"", "app": Starlette()}
    asyncio.run(asyncio.wait_for(response(scope, listener.receive, listener.send), LONG))


def lines(body: bytes) -> list[Any]:
    return [json.loads(line) for line in body.splitlines()]


def test_work_tells_how_far_it_is_and_what_came_of_it() -> None:
    def work(progress: Callable[[int], None]) -> dict[str, Any]:
        progress(2)
        progress(3)
        return {"done": True}

    listener = Listener()
    answer(stream_progress(work), listener)
    assert listener.heard[0]["status"] == 200
    assert lines(listener.body) == [{"progress": 2}, {"progress": 5}, {"result": {"done": True}}]
    assert listener.is_whole


def test_an_error_before_the_first_line_is_answered_as_any_error() -> None:
    def work(_progress: Callable[[int], None]) -> dict[str, Any]:
        raise StaleError("too late")

    listener = Listener()
    answer(stream_progress(work), listener)
    assert listener.heard[0]["status"] == 409
    assert json.loads(listener.body)["code"] == "stale"


def test_an_error_after_it_is_the_last_line() -> None:
    def work(progress: Callable[[int], None]) -> dict[str, Any]:
        progress(1)
        raise StaleError("too late")

    listener = Listener()
    answer(stream_progress(work), listener)
    assert lines(listener.body)[-1] == {"problem": {"code": "stale", "detail": "too late", "retryable": True}}


def test_work_that_is_silent_for_long_begins_its_answer_all_the_same() -> None:
    heard = threading.Event()

    def work(sink: Sink) -> None:
        assert heard.wait(LONG)
        sink.write(b"there\n")

    def late(_sink: Sink) -> None:
        assert heard.wait(LONG)
        raise StaleError("too late")

    class Hearing(Listener):
        async def send(self, message: Message) -> None:
            await super().send(message)
            if message.get("body") == b"wait\n":
                heard.set()

    listener = Hearing()
    answer(StreamedResponse(work, media_type="text/plain", first_part=b"wait\n", first_after=0.01), listener)
    assert listener.body == b"wait\nthere\n"
    heard.clear()
    listener = Hearing()
    told = StreamedResponse(
        late,
        media_type="text/plain",
        first_part=b"wait\n",
        first_after=0.01,
        last_part=lambda problem: str(problem).encode(),
    )
    answer(told, listener)
    assert listener.body == b"wait\ntoo late"
    assert listener.heard[-1]["more_body"] is False


@pytest.mark.parametrize("begun", [False, True])
def test_a_failure_that_nobody_foresaw_is_never_taken_for_the_end(begun: bool) -> None:
    def work(progress: Callable[[int], None]) -> dict[str, Any]:
        if begun:
            progress(1)
        raise ZeroDivisionError("inside")

    listener = Listener()
    with pytest.raises(ZeroDivisionError):
        answer(stream_progress(work), listener)
    assert b"inside" not in listener.body
    assert listener.heard[0]["status"] == (200 if begun else 500)
    assert not listener.is_whole


def test_work_ends_when_the_caller_goes_away() -> None:
    steps: list[int] = []
    ended = threading.Event()

    def work(progress: Callable[[int], None]) -> dict[str, Any]:
        try:
            while len(steps) < 1_000_000:
                steps.append(1)
                progress(1)
        except ClientGoneError:
            ended.set()
            raise
        return {}

    listener = Listener(enough=3)
    answer(stream_progress(work), listener)
    assert ended.is_set()
    assert not listener.is_whole


def test_a_caller_who_reads_slowly_does_not_hold_the_work_up() -> None:
    done = threading.Event()

    def work(progress: Callable[[int], None]) -> dict[str, Any]:
        for _ in range(1_000):
            progress(1)
        done.set()
        return {"done": True}

    async def both() -> Listener:
        reading = asyncio.Event()
        listener = Listener(slow=reading)
        scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b"", "app": Starlette()}
        answering = asyncio.create_task(stream_progress(work)(scope, listener.receive, listener.send))
        await asyncio.to_thread(done.wait, LONG)
        assert done.is_set(), "the work waits for somebody who does not read"
        reading.set()
        await asyncio.wait_for(answering, LONG)
        return listener

    heard = lines(asyncio.run(both()).body)
    assert heard[-1] == {"result": {"done": True}}
    assert len(heard) < 1_000


def test_a_file_is_sent_while_it_is_written_and_waits_for_its_reader() -> None:
    written: list[int] = []

    def write(file: Any) -> None:
        for number in range(64):
            file.write(bytes([number]) * 16_384)
            written.append(number)

    listener = Listener()
    answer(stream_file(write, media_type="application/zip", filename="a.zip"), listener)
    assert listener.body == b"".join(bytes([number]) * 16_384 for number in range(64))
    assert len(listener.heard) > 8
    assert listener.is_whole

    gone = Listener(enough=2)
    written.clear()
    answer(stream_file(write, media_type="application/zip", filename="a.zip"), gone)
    assert len(written) < 64
    assert not gone.is_whole


def test_an_answer_can_be_made_whole_first() -> None:
    def work(sink: Sink) -> None:
        sink.try_write(b"on the way\n")
        sink.write(b"there\n")

    response = asyncio.run(StreamedResponse(work, media_type="text/plain").make_whole({"app": Starlette()}))
    assert (response.status_code, response.body) == (200, b"there\n")
    assert response.headers["content-length"] == "6"


# --- over the API -----------------------------------------------------------------------------------------------------


def test_an_export_that_cannot_begin_has_a_status_that_says_so(client: Client, holdfast: Holdfast) -> None:
    response = client.get("/v1/users/%00/export")
    assert response.status_code == 422
    response = client.get("/v1/users/nobody/export")
    assert (response.status_code, response.json()["code"]) == (404, "not_found")
    assert "holdfast user list" in response.json()["detail"]


def test_a_sweep_whose_caller_goes_away_ends_after_a_batch_and_the_next_one_does_the_rest(
    app: Starlette, holdfast: Holdfast, clock: FakeClock
) -> None:
    for user in range(40):
        holdfast.manager(f"user {user}", "guide").add_many([f"Note {number}" for number in range(3)], "episodic")
    clock.advance(days=91)
    before = holdfast.sweep(dry_run=True).counts["archive"]
    body = json.dumps({}).encode()
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    heard: list[Message] = []

    async def sweep() -> None:
        gone = asyncio.Event()

        async def receive() -> Message:
            if messages:
                return messages.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            heard.append(message)
            gone.set()

        headers = [(b"content-type", b"application/json")]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/sweeps",
            "raw_path": b"/v1/sweeps",
            "query_string": b"",
            "headers": headers,
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http",
        }
        await asyncio.wait_for(app(scope, receive, send), LONG)

    asyncio.run(sweep())
    assert heard[0]["status"] == 200
    left = holdfast.sweep(dry_run=True).counts["archive"]
    assert left <= before == 120
    assert holdfast.sweep().counts["archive"] == left
    assert holdfast.sweep(dry_run=True).counts["archive"] == 0


def test_a_caller_who_takes_nothing_is_given_up_and_its_place_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_SEND_TIMEOUT_SECONDS", 0.05)
    ended = threading.Event()

    def write(file: Any) -> None:
        try:
            while True:
                file.write(bytes(1 << 16))
        except ClientGoneError:
            ended.set()
            raise

    async def stalled() -> None:
        app = Starlette()
        scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b"", "app": app}
        listener = Listener(slow=asyncio.Event())  # which nobody ever sets
        response = stream_file(write, media_type="application/zip", filename="a.zip")
        await asyncio.wait_for(response(scope, listener.receive, listener.send), LONG)
        assert app.state.long_files[0].borrowed_tokens == 0

    asyncio.run(stalled())
    assert ended.is_set()
