"""HTTP as it comes and goes: what is no request reaches nobody, and every answer is one that a strict reader accepts."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Message, Receive, Scope, Send

from effort import times
from holdfast.edges.service.connections import Connections
from service.served import PATIENCE
from service.test_connections import connect, greet, read_all, running

App = Callable[[Scope, Receive, Send], Awaitable[None]]
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


class Echo:
    """Answers with what it was asked, and keeps that."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.left = threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await greet(scope, receive, send)
            return
        body, has_more = b"", scope["path"] != "/unread"
        while has_more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.left.set()
                return
            body += message["body"]
            has_more = message["more_body"]
        said = {
            "method": scope["method"],
            "path": scope["path"],
            "raw_path": scope["raw_path"].decode(),
            "query": scope["query_string"].decode(),
            "version": scope["http_version"],
            "headers": [[name.decode(), value.decode("latin-1")] for name, value in scope["headers"]],
            "body": body.decode("latin-1"),
        }
        self.asked.append(said)
        await answer(send, json.dumps(said).encode())


async def answer(send: Send, *pieces: bytes, status: int = 200, headers: Any = None, has_length: bool = True) -> None:
    told = [(b"content-length", b"%d" % sum(map(len, pieces)))] if has_length else []
    await send({"type": "http.response.start", "status": status, "headers": told if headers is None else headers})
    for piece in pieces[:-1]:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": pieces[-1]})


def only(respond: Callable[[Scope, Receive, Send], Awaitable[None]]) -> App:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await (greet if scope["type"] == "lifespan" else respond)(scope, receive, send)

    return app


def serve(app: App) -> Any:
    return running(Connections(8, head_seconds=5), app)


def read_answers(one: socket.socket, *methods: str) -> Iterator[tuple[h11.Response, bytes]]:
    """The answers to requests of these methods, as a reader that forgives nothing reads them."""
    left = b""
    for method in methods:
        reader = h11.Connection(h11.CLIENT)
        reader.send(h11.Request(method=method, target="/", headers=[("host", "a")]))
        reader.send(h11.EndOfMessage())
        if left:
            reader.receive_data(left)
        found: h11.Response | None = None
        body = b""
        while not isinstance(event := reader.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                reader.receive_data(one.recv(65_536))
            elif isinstance(event, h11.Response):
                found = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            else:
                raise AssertionError(event)
        assert found is not None
        yield found, body
        left = reader.trailing_data[0]


def ask(app: App, said: bytes, method: str = "GET") -> tuple[h11.Response, bytes]:
    with serve(app) as port, connect(port, said) as one:
        return next(read_answers(one, method))


# --- requests ---------------------------------------------------------------------------------------------------------


def test_a_request_reaches_the_application_as_it_was_sent() -> None:
    said = (
        b"POST /a%2Fb%20c?q=%20x&y HTTP/1.1\r\nHost: a\r\nX-Two: 1\r\nx-two: \xe9\r\nContent-Length: 5\r\n\r\nh\x00llo"
    )
    _, body = ask(Echo(), said, "POST")
    assert json.loads(body) == {
        "method": "POST",
        "path": "/a/b c",
        "raw_path": "/a%2Fb%20c",
        "query": "q=%20x&y",
        "version": "1.1",
        "headers": [["host", "a"], ["x-two", "1"], ["x-two", "é"], ["content-length", "5"]],
        "body": "h\0llo",
    }


def test_a_whole_url_is_a_path_and_a_query() -> None:
    _, body = ask(Echo(), b"GET http://a/b?c#d HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (json.loads(body)["path"], json.loads(body)["query"]) == ("/b", "c")


SEVERAL = (
    b"POST /one HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
    b"GET /two?x HTTP/1.1\r\nHost: a\r\n\r\n"
    b"POST /three HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ndefg\r\n1;x=y\r\nh\r\n0\r\nTrailer: t\r\n\r\n"
    b"POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nno"
    b"DELETE /four HTTP/1.1\r\nHost: a\r\n\r\n"
)


def test_requests_that_come_in_pieces_or_all_at_once_are_answered_in_their_order() -> None:
    with serve(Echo()) as port:

        @settings(max_examples=times(60))
        @given(st.lists(st.integers(1, len(SEVERAL) - 1), max_size=8, unique=True))
        def holds(cuts: list[int]) -> None:
            places = [0, *sorted(cuts), len(SEVERAL)]
            with connect(port) as one:
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for begin, end in itertools.pairwise(places):
                    one.sendall(SEVERAL[begin:end])
                answers = [json.loads(body) for _, body in read_answers(one, *5 * ["GET"])]
            assert [(each["path"], each["body"]) for each in answers] == [
                ("/one", "abc"),
                ("/two", ""),
                ("/three", "defgh"),
                ("/unread", ""),
                ("/four", ""),
            ]

        holds()


@pytest.mark.parametrize(
    "body", [b"Content-Length: 3\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n"]
)
def test_who_asks_for_another_protocol_is_answered_in_this_one(body: bytes) -> None:
    asks = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    said = b"POST /a?b HTTP/1.1\r\nHost: a\r\nX-Two: \xe9\r\n" + asks + body

    with serve(Echo()) as port:

        @settings(max_examples=times(20))
        @given(st.lists(st.integers(1, 2 * len(said) - 1), max_size=4, unique=True))
        def holds(cuts: list[int]) -> None:
            with connect(port) as one:
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for begin, end in itertools.pairwise([0, *sorted(cuts), 2 * len(said)]):
                    one.sendall((said + said)[begin:end])
                answers = [json.loads(found) for _, found in read_answers(one, "POST", "POST")]
            for each in answers:
                assert (each["path"], each["query"], each["body"]) == ("/a", "b", "abc")
                assert ["x-two", "é"] in each["headers"]

        holds()


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n\r\n",
        b"GET / HTTP/1.1\nHost: a\n\n",
        b"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: a\r\n\r\n",
        b"GET / HTTP/0.9\r\nHost: a\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT http://a/b HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_no_plain_request_reaches_nobody_and_ends_the_connection(said: bytes) -> None:
    echo = Echo()
    with serve(echo) as port, connect(port, said + GET) as one:
        answer = read_all(one)
    assert answer[:13] in {b"HTTP/1.1 %d " % status for status in (400, 431, 501, 505)}
    assert answer.count(b"HTTP/1.1 ") == 1
    assert echo.asked == [], "what came after it is not read, either"


def test_a_chunk_that_is_none_ends_a_request_that_is_being_read() -> None:
    echo = Echo()
    said = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n"
    with serve(echo) as port, connect(port, said + GET) as one:
        assert read_all(one).startswith(b"HTTP/1.1 400 ")
        assert echo.left.wait(PATIENCE)
    assert echo.asked == []


def test_a_head_of_more_than_64_kib_is_refused_and_one_of_less_is_not() -> None:
    many, few = (
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: %b\r\n" % (b"y" * 1_000) * count + b"\r\n" for count in (70, 50)
    )
    with serve(Echo()) as port:
        with connect(port, many) as one:
            assert read_all(one).startswith(b"HTTP/1.1 431 ")
        with connect(port, few + few + few) as one:
            assert [response.status_code for response, _ in read_answers(one, *3 * ["GET"])] == 3 * [200]


def test_what_was_asked_before_what_cannot_be_read_is_answered_first() -> None:
    with serve(Echo()) as port, connect(port, GET + b"no HTTP\r\n\r\n") as one:
        said = read_all(one)
    assert said.startswith(b"HTTP/1.1 200 ")
    assert said.index(b"HTTP/1.1 200 ") < said.index(b"HTTP/1.1 400 ")


def test_what_comes_after_a_body_is_no_header_of_the_request() -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    _, body = ask(Echo(), head + b"1\r\nx\r\n0\r\nAuthorization: Bearer y\r\nHost: b\r\n\r\n", "POST")
    assert json.loads(body)["headers"] == [["host", "a"], ["transfer-encoding", "chunked"]]


@pytest.mark.parametrize(
    "more", [40 * GET, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n" + bytes(2**20)]
)
def test_what_waits_behind_a_request_is_bounded(more: bytes) -> None:
    release = threading.Event()
    answered: list[int] = []

    async def slow(_scope: Scope, _receive: Receive, send: Send) -> None:
        await asyncio.to_thread(release.wait, PATIENCE)
        answered.append(1)
        await answer(send, b"done")

    with serve(only(slow)) as port, connect(port, GET) as one:
        one.sendall(more)
        threading.Event().wait(0.3)
        release.set()
        said = read_all(one)
    assert said.count(b"HTTP/1.1 200 ") == len(answered) == (17 if more.startswith(GET) else 1)
    assert said.rindex(b"HTTP/1.1 429 ") > said.rindex(b"HTTP/1.1 200 ")


def test_a_caller_that_leaves_is_told_of_though_another_request_of_it_waits() -> None:
    left = threading.Event()

    async def listen(_scope: Scope, receive: Receive, _send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()

    with serve(only(listen)) as port:
        with connect(port, GET + GET):
            threading.Event().wait(0.1)
        assert left.wait(PATIENCE)


def test_a_body_is_taken_as_fast_as_it_is_read() -> None:
    go_on, sent = threading.Event(), threading.Event()
    received = 0

    async def slow(_scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal received
        await asyncio.to_thread(go_on.wait, PATIENCE)
        has_more = True
        while has_more:
            message = await receive()
            received += len(message["body"])
            has_more = message["more_body"]
        await answer(send, b"done")

    size = 64 * 2**20
    with (
        serve(only(slow)) as port,
        connect(port, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size) as one,
    ):

        def push() -> None:
            for _ in range(size // 2**20):
                one.sendall(bytes(2**20))
            sent.set()

        pushing = threading.Thread(target=push)
        pushing.start()
        assert not sent.wait(0.5), "all of it was taken though nobody read it"
        go_on.set()
        _, body = next(read_answers(one, "POST"))
        pushing.join(PATIENCE)
    assert (body, received) == (b"done", size)


def test_who_waits_to_be_asked_for_a_body_is_asked_when_it_is_read() -> None:
    head = b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    with serve(Echo()) as port, connect(port, head % b"/") as one:
        assert one.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        one.sendall(b"abc")
        _, body = next(read_answers(one, "POST"))
        assert json.loads(body)["body"] == "abc"
        one.sendall(head % b"/unread")
        assert one.recv(65_536).startswith(b"HTTP/1.1 200 "), "nobody wants to read it"


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n"])
def test_a_connection_ends_where_the_caller_says_so_or_knows_no_other(said: bytes) -> None:
    with serve(Echo()) as port, connect(port, said + GET) as one:
        answer = read_all(one)
    assert answer.count(b"HTTP/1.1 200 ") == 1
    assert b"\r\nconnection: close\r\n" in answer


def test_a_caller_that_leaves_is_told_of_to_whoever_reads() -> None:
    echo = Echo()
    with serve(echo) as port:
        with connect(port, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\nsome"):
            pass
        assert echo.left.wait(PATIENCE)


# --- answers ----------------------------------------------------------------------------------------------------------


def test_an_answer_says_when_it_was_made() -> None:
    response, _ = ask(Echo(), GET)
    assert [name for name, _ in response.headers].count(b"date") == 1


@pytest.mark.parametrize(
    ("method", "status", "expected"), [("GET", 200, b"ab"), ("HEAD", 200, b""), ("GET", 204, b""), ("GET", 304, b"")]
)
@pytest.mark.parametrize("has_length", [True, False])
def test_a_body_is_sent_where_there_may_be_one(method: str, status: int, expected: bytes, has_length: bool) -> None:
    pieces = (b"a", b"", b"b") if status == 200 else (b"",)
    app = only(lambda _scope, _receive, send: answer(send, *pieces, status=status, has_length=has_length))
    said = b"%b / HTTP/1.1\r\nHost: a\r\n\r\n" % method.encode()
    with serve(app) as port, connect(port, said + said) as one:
        answers = list(read_answers(one, method, method))
    assert [(each.status_code, body) for each, body in answers] == 2 * [(status, expected)]


def test_a_stream_has_no_end_but_that_of_the_connection_for_who_knows_no_chunks() -> None:
    app = only(lambda _scope, _receive, send: answer(send, b"a", b"b", has_length=False))
    with serve(app) as port, connect(port, b"GET / HTTP/1.0\r\n\r\n") as one:
        said = read_all(one)
    assert said.endswith(b"\r\n\r\nab")
    assert b"transfer-encoding" not in said


def test_who_makes_chunks_is_decided_once() -> None:
    headers = [(b"transfer-encoding", b"chunked")]
    _, body = ask(only(lambda _scope, _receive, send: answer(send, b"a", b"b", headers=headers)), GET)
    assert body == b"ab"


@pytest.mark.parametrize("header", [(b"x", b"y\r\nz: 1"), (b"x\n", b"y"), (b"x", b"y\rz"), (b"x", b"\0")])
def test_a_header_cannot_begin_another(header: tuple[bytes, bytes]) -> None:
    headers = [header, (b"content-length", b"2")]
    app = only(lambda _scope, _receive, send: answer(send, b"ab", headers=headers))
    with serve(app) as port, connect(port, GET) as one:
        assert read_all(one).startswith(b"HTTP/1.1 500 ")


@pytest.mark.parametrize("length", [b"1", b"3"])
def test_a_body_of_another_length_than_was_said_is_no_whole_answer(length: bytes) -> None:
    headers = [(b"content-length", length)]
    app = only(lambda _scope, _receive, send: answer(send, b"a", b"b", headers=headers))
    with serve(app) as port, connect(port, GET + GET) as one:
        said = read_all(one)
    assert said.count(b"HTTP/1.1 ") <= 1, "nothing comes after it"
    assert len(said.partition(b"\r\n\r\n")[2]) <= int(length)


async def _fail(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise LookupError("my diary")


async def _fail_late(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"some", "more_body": True})
    raise LookupError("my diary")


async def _say_nothing(_scope: Scope, _receive: Receive, _send: Send) -> None:
    pass


async def _begin_with_the_body(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.body", "body": b"some"})


@pytest.mark.parametrize("app", [_fail, _say_nothing, _begin_with_the_body])
def test_an_application_without_an_answer_is_answered_for(app: App) -> None:
    with serve(only(app)) as port, connect(port, GET + GET) as one:
        said = read_all(one)
    assert said.startswith(b"HTTP/1.1 500 ")
    assert said.count(b"HTTP/1.1 ") == 1
    assert b"diary" not in said


def test_an_answer_that_breaks_off_does_not_look_whole() -> None:
    with serve(only(_fail_late)) as port, connect(port, GET + GET) as one:
        said = read_all(one)
    assert said.count(b"HTTP/1.1 ") == 1
    assert b"some" in said
    assert b"0\r\n\r\n" not in said


def test_a_stream_waits_for_its_reader_and_goes_on() -> None:
    begun: list[Message] = []

    async def much(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(24):
            message = {"type": "http.response.body", "body": bytes(2**20), "more_body": True}
            begun.append(message)
            await send(message)
        await send({"type": "http.response.body"})

    with serve(only(much)) as port, connect(port, GET) as one:
        threading.Event().wait(0.3)
        assert len(begun) < 24, "all of it was sent though nobody read it"
        _, body = next(read_answers(one, "GET"))
    assert len(body) == 24 * 2**20
