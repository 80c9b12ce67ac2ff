"""Asking an ASGI application, without a network between: one request, its body in as many pieces as given."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Scope

LOOPBACK = "127.0.0.1"
REMOTE = "203.0.113.7"


@dataclass
class Answer:
    """What came back."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    complete: bool = False

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of a problem."""
        assert self.headers["content-type"] == "application/problem+json"
        assert self.json["status"] == self.status
        return str(self.json["code"])


def scope_of(
    path: str = "/", method: str = "GET", headers: Mapping[str, str] | None = None, client: str = LOOPBACK
) -> Scope:
    named = {"host": "127.0.0.1:8422", **{name.lower(): value for name, value in (headers or {}).items()}}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path.partition("?")[0],
        "raw_path": path.partition("?")[0].encode(),
        "query_string": path.partition("?")[2].encode(),
        "root_path": "",
        "scheme": "http",
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
        "client": (client, 50_000),
        "server": (LOOPBACK, 8422),
        "state": {},
    }


async def ask_async(
    app: ASGIApp,
    path: str = "/",
    method: str = "GET",
    *,
    headers: Mapping[str, str] | None = None,
    pieces: Sequence[bytes] = (b"",),
    client: str = LOOPBACK,
    arrives: bool = True,
) -> Answer:
    """Ask, until the answer is whole: its app may go on. Without ``arrives``, the end of the body never comes."""
    answer, left = Answer(), list(pieces)
    over = asyncio.Event()

    async def receive() -> Message:
        if left and (arrives or len(left) > 1):
            piece = left.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(left)}
        await over.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        assert not answer.complete, "nothing is sent after the end of an answer"
        if message["type"] == "http.response.start":
            assert not answer.status, "an answer begins once"
            answer.status = message["status"]
            answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            answer.body += message.get("body", b"")
            if not message.get("more_body", False):
                answer.complete = True
                over.set()

    async def run() -> None:
        await app(scope_of(path, method, headers, client), receive, send)

    asking = asyncio.create_task(run())
    whole = asyncio.create_task(over.wait())
    try:
        await asyncio.wait((asking, whole), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0)  # what ends with its answer has ended
    except asyncio.CancelledError:
        asking.cancel()
        raise
    if asking.done():
        asking.result()
    return answer


def ask(app: ASGIApp, path: str = "/", method: str = "GET", **more: Any) -> Answer:
    """The same, in a loop of its own."""
    return asyncio.run(ask_async(app, path, method, **more))
