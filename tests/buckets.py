"""Buckets to test with: an S3 server of our own, on this machine only, and a proxy before it that fails on demand."""

from __future__ import annotations

import http.client
import itertools
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, NamedTuple


class Request(NamedTuple):
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


#: A status, perhaps with a code; another answer; another request in its place; or what goes wrong with it.
#: ``lost``: carried out, and the answer never arrives. ``cut``: half of the answer. ``silent``: no answer at all.
Fault = int | tuple[int, str] | bytes | Request | Literal["reset", "lost", "cut", "silent"] | None


@contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """The address of an S3 server with one bucket, ``archive``; it forgets everything when it ends."""
    log = folder / "log"  # a file: a pipe that nobody reads would fill, and the server wait
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
            stdout=output,
            stderr=output,
            env={"PATH": os.environ["PATH"]},
        )
    try:
        address = _address(process, log)
        make_bucket(address, "archive")
        yield address
    finally:
        process.kill()
        process.communicate()


def make_bucket(address: str, name: str) -> None:
    put(f"{address}/{name}", b"")


def put(url: str, body: bytes) -> None:
    """Put something past every client."""
    headers = {"Content-Type": "application/octet-stream"}
    request = urllib.request.Request(url, data=body, method="PUT", headers=headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        assert answer.status == 200


def unfinished(address: str, url: str) -> int:
    """How many uploads in parts lie in a place of the bucket, neither completed nor given up."""
    with urllib.request.urlopen(f"{address}/archive?uploads", timeout=30) as answer:  # noqa: S310
        return int(answer.read().count(f"<Key>{url.removeprefix('s3://archive/')}/".encode()))


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    for _ in range(600):
        if found := re.search(r"Running on (http://127\.0\.0\.1:\d+)", log.read_text()):
            return found[1]
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise AssertionError(
        f"the S3 server did not start; are moto and flask installed? It said: {log.read_text()[-500:]}"
    )


class Proxy:
    """Passes requests on to a server, but for those that ``fault`` has something against."""

    def __init__(self, address: str, server: str) -> None:
        self.address = address
        self.server = server
        self.requests: list[Request] = []
        self.fault: Callable[[Request], Fault] = lambda request: None
        self.over = threading.Event()
        self._lock = threading.Lock()
        self._turn = threading.Lock()

    def fail_every(self, n: int, fault: Fault, *, only: Callable[[Request], bool] = lambda request: True) -> None:
        turns = itertools.count(1)
        self.fault = lambda request: fault if only(request) and next(turns) % n == 0 else None

    def fail_once(self, fault: Fault, *, only: Callable[[Request], bool] = lambda request: True) -> None:
        left = [fault]
        self.fault = lambda request: left.pop() if left and only(request) else None

    def heal(self) -> None:
        self.fault = lambda request: None

    def judge(self, request: Request) -> Fault:
        with self._lock:
            self.requests.append(request)
            return self.fault(request)

    def forward(self, request: Request) -> tuple[int, list[tuple[str, str]], bytes]:
        """One at a time: the server checks a condition and writes in two steps, which no real one does."""
        with self._turn:
            return self._forward(request)

    def _forward(self, request: Request) -> tuple[int, list[tuple[str, str]], bytes]:
        host = self.server.removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=60)
        try:
            connection.request(request.method, request.path, request.body, request.headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


@contextmanager
def proxy_before(server: str) -> Iterator[Proxy]:
    """A proxy before a server."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def reply(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            request = Request(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            _answer(self, proxy, request, proxy.judge(request))

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = reply  # noqa: N815 - http.server looks for these names

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 64

        def handle_error(self, *_: object) -> None:
            """A client that has gone away is no news here."""

    listening = Server(("127.0.0.1", 0), Handler)
    proxy = Proxy(f"http://127.0.0.1:{listening.server_port}", server)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.over.set()
        listening.shutdown()
        thread.join()
        listening.server_close()


def _answer(handler: BaseHTTPRequestHandler, proxy: Proxy, request: Request, fault: Fault) -> None:
    if fault == "silent":
        proxy.over.wait(60)
        return _hang_up(handler)
    if fault == "reset":
        return _hang_up(handler)
    if isinstance(fault, int):
        fault = fault, "Trouble"
    if isinstance(fault, tuple) and not isinstance(fault, Request):
        status, code = fault
        body = f"<Error><Code>{code}</Code><Message>no</Message><Region>eu-west-1</Region></Error>".encode()
        return _send(handler, status, [], body)
    if isinstance(fault, bytes):
        return _send(handler, 200, [("Content-Type", "application/xml")], fault)
    if isinstance(fault, Request):
        request = fault
    status, answered, body = proxy.forward(request)
    if fault == "lost":
        return _hang_up(handler)
    return _send(handler, status, answered, body, cut=fault == "cut" and len(body) > 1)


def _send(
    handler: BaseHTTPRequestHandler, status: int, headers: list[tuple[str, str]], body: bytes, *, cut: bool = False
) -> None:
    handler.send_response_only(status)
    own = {"connection", "transfer-encoding"} | (set() if handler.command == "HEAD" else {"content-length"})
    for name, value in headers:
        if name.lower() not in own:
            handler.send_header(name, value)
    if handler.command != "HEAD":
        handler.send_header("Content-Length", str(len(body)))
    elif not any(name.lower() == "content-length" for name, _ in headers):
        handler.send_header("Content-Length", "0")
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body[: len(body) // 2] if cut else body)
    if cut:
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)
        handler.close_connection = True


def _hang_up(handler: Any) -> None:
    """End the connection at once, without the farewell of an orderly one."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.close_connection = True
