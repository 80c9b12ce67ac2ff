"""A real HTTP service on 127.0.0.1 that answers as a test tells it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    body: bytes = b"{}"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    then: str = ""
    """Beyond answering: ``hang`` (says nothing), ``drop`` (closes at once), ``cut`` (closes half-way), ``drip`` (never ends)."""


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: Any


def json_reply(value: object, status: int = 200, **headers: str) -> Reply:
    return Reply(json.dumps(value).encode(), status, {name.replace("_", "-"): text for name, text in headers.items()})


class ScriptedService:
    """Gives the queued replies in turn, then whatever ``answer`` makes of each request; remembers what it was asked."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.requests: list[Request] = []
        self.answer: Callable[[Request], Reply] = lambda _: Reply()
        self.closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = False  # closing waits for them, so that no socket outlives the test
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def reply_to(self, request: Request) -> Reply:
        self.requests.append(request)
        return self.replies.pop(0) if self.replies else self.answer(request)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                reply = service.reply_to(Request(self.path, dict(self.headers), json.loads(body)))
                if reply.then == "hang":
                    service.closing.wait()
                if reply.then in {"hang", "drop"}:
                    return
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                if reply.then == "drip":
                    self.end_headers()
                    self._drip()
                    return
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body[: len(reply.body) // 2] if reply.then == "cut" else reply.body)

            def _drip(self) -> None:
                try:
                    while not service.closing.wait(0.01):
                        self.wfile.write(b" ")
                except OSError:
                    return  # the client has had enough

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@contextmanager
def scripted_service() -> Iterator[ScriptedService]:
    service = ScriptedService()
    try:
        yield service
    finally:
        service.close()
