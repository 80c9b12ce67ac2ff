"""The server itself: it listens, says when it has started, ends by a signal, and does not hang with what hangs."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.core.errors import HoldfastError, InvalidSettingsError
from holdfast.edges.service.limits import Limits, RequestLimit
from holdfast.edges.service.run import Service
from holdfast.edges.service.server import Server, listen


async def nothing_left() -> None:
    """Nothing is still being done."""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with listen("127.0.0.1", 0) as one:
        yield one


def url_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_socket_is_told_apart_as_tcp_so_that_small_answers_are_sent_at_once(listener: socket.socket) -> None:
    assert listener.proto == socket.IPPROTO_TCP


def test_ipv6_is_listened_at() -> None:
    with listen("::1", 0) as one:
        assert one.family is socket.AF_INET6


def test_a_host_that_is_not_of_this_machine_is_told() -> None:
    with pytest.raises(InvalidSettingsError, match=r"cannot listen at '192\.0\.2\.1'"):
        listen("192.0.2.1", 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_is_named(listener: socket.socket, number: signal.Signals) -> None:
    server = Server(listener, stop_seconds=5)
    told: list[bool] = []
    ended = server.run(
        Starlette(),
        started=lambda: os.kill(os.getpid(), number),
        stop=lambda: told.append(server.stopping),
        finish=nothing_left,
    )
    assert (ended, told, server.stuck) == (number.name, [True], False)


def test_the_handlers_of_signals_are_as_they_were(listener: socket.socket) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    Server(listener, stop_seconds=5).run(
        Starlette(), started=lambda: os.kill(os.getpid(), signal.SIGTERM), stop=lambda: None, finish=nothing_left
    )
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_an_app_that_cannot_start_is_an_error(listener: socket.socket) -> None:
    @asynccontextmanager
    async def fails(_app: Starlette) -> AsyncIterator[None]:
        if listener.fileno() >= 0:
            raise LookupError("no such thing")
        yield

    server = Server(listener, stop_seconds=5)
    with pytest.raises(HoldfastError, match="could not be started"):
        server.run(
            Starlette(lifespan=fails), started=lambda: pytest.fail("started"), stop=lambda: None, finish=nothing_left
        )


def test_what_was_given_up_is_finished_before_it_ends(listener: socket.socket) -> None:
    release, finished = threading.Event(), threading.Event()

    def slow(_request: Request) -> Response:
        assert release.wait(30)
        finished.set()
        return Response()

    api = Starlette(routes=[Route("/slow", slow)])
    limit = RequestLimit(api, Limits(request_seconds=0.05))

    def ask() -> None:
        assert httpx.get(f"{url_of(listener)}/slow", trust_env=False).status_code == 503
        os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask)
    server = Server(listener, stop_seconds=20)
    server.run(Service(api, limit, limit), started=asking.start, stop=release.set, finish=limit.finish)
    asking.join(30)
    assert finished.is_set()
    assert not server.stuck


def test_what_hangs_does_not_keep_it_from_ending(listener: socket.socket) -> None:
    begun, release = threading.Event(), threading.Event()

    def hangs(_request: Request) -> Response:
        begun.set()
        release.wait(60)
        return Response()

    app = Starlette(routes=[Route("/hangs", hangs)])

    def ask() -> None:
        with httpx.Client(base_url=url_of(listener), trust_env=False) as client, suppress(httpx.HTTPError):
            client.get("/hangs")

    def ask_and_end() -> None:
        asking = threading.Thread(target=ask)
        asking.start()
        assert begun.wait(30)
        os.kill(os.getpid(), signal.SIGTERM)
        asking.join(60)

    ending = threading.Thread(target=ask_and_end)
    server = Server(listener, stop_seconds=0.1, late_seconds=0.2)
    assert server.run(app, started=ending.start, stop=lambda: None, finish=nothing_left) == "SIGTERM"
    assert server.stuck
    release.set()
    ending.join(30)
