"""The SDK's own client, and servers for it to talk to: in this process, or a real one on loopback.

It is not within ``tests/mcp``: there, ``mcp`` is the SDK.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, TypeVar

import anyio
import httpx2
import uvicorn
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server
from mcp_types import CallToolResult
from starlette.applications import Starlette
from starlette.routing import Route

from holdfast import Holdfast
from holdfast.core.access import LOCAL, Principal
from holdfast.edges.access.callers import Callers
from holdfast.edges.access.gate import Gate
from holdfast.edges.mcp.tools import Defaults
from holdfast.edges.mcp.transport import McpApp, build_server

#: Both ways to begin: asking what the server is (2026), and the handshake that clients have had since 2024.
MODES: Final = ("auto", "legacy")
_T = TypeVar("_T")

#: Arguments that are good for each tool; ``ID`` stands for a memory's id.
ID: Final = "<memory>"
THING: Final = {"id": "r1", "source_type": "context", "created_at": "2020-01-01T00:00:00+00:00", "size_bytes": 10}
GOOD: Final[dict[str, dict[str, Any]]] = {
    "memory_add": {"content": "Plays the cello"},
    "memory_search": {"query": "peanuts"},
    "memory_context": {"query": "peanuts"},
    "memory_conflicts": {},
    "memory_list": {"limit": 10},
    "memory_get": {"memory_id": ID},
    "memory_update": {"memory_id": ID, "content": "Was changed"},
    "memory_correct": {"memory_id": ID, "content": "Was corrected", "reason": "It was wrong"},
    "memory_history": {"memory_id": ID},
    "memory_revert": {"memory_id": ID, "to": 1},
    "memory_delete": {"memory_id": ID},
    "memory_restore": {"memory_id": ID},
    "memory_explain": {"memory_id": ID},
    "memory_rules": {},
    "retention_configure": {"domain": "memory", "config": {"older_than_days": 60}},
    "retention_get": {"domain": "memory"},
    "retention_apply": {"domain": "memory", "resources": [THING]},
    "retention_archive": {"domain": "memory", "resources": [THING]},
    "retention_policies": {},
    "retention_gc_params": {"domain": "rag", "raw_args": {"limit": 3}},
    "sweep_preview": {"days_ahead": 400},
}


def good(name: str, memory_id: str, **whose: str) -> dict[str, Any]:
    """Good arguments for a tool, on a memory."""
    filled = {key: memory_id if value == ID else value for key, value in GOOD[name].items()}
    return {**filled, **(whose if name.startswith("memory_") else {})}


def run(talk: Callable[[], Awaitable[_T]]) -> _T:
    """Have a conversation, to its end; one that does not end is an error."""

    async def bounded() -> _T:
        with anyio.fail_after(60):
            return await talk()

    return anyio.run(bounded)


def local_server(holdfast: Holdfast, principal: Principal = LOCAL, defaults: Defaults | None = None) -> Server[Any]:
    """A server in this process, whose only caller is the one given."""
    return build_server(lambda _request: Gate(holdfast, principal), defaults=defaults)


def ask(server: Server[Any], tool: str, arguments: dict[str, Any] | None = None) -> CallToolResult:
    """Call one tool of a server in this process."""

    async def talk() -> CallToolResult:
        async with Client(server) as client:
            return await client.call_tool(tool, arguments)

    return run(talk)


def answer(result: CallToolResult) -> dict[str, Any]:
    """What a tool gave; an error fails the test."""
    assert not result.is_error, result
    given: dict[str, Any] = result.structured_content
    return given


def error(result: CallToolResult) -> dict[str, Any]:
    """What went wrong; an answer fails the test."""
    assert result.is_error, result
    said: dict[str, Any] = result.structured_content["error"]
    assert said.keys() == {"code", "message", "retryable", "advice"}
    (text,) = result.content
    assert text.type == "text"
    assert all(said[part] in text.text for part in ("code", "message", "advice"))
    return said


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """An application on a loopback port of its own, until the block ends; its address."""
    options: dict[str, Any] = {"interface": "asgi3", "log_level": "warning", "timeout_graceful_shutdown": 5}
    config = uvicorn.Config(app, host="127.0.0.1", port=0, **options)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="test server")
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise RuntimeError("the server did not start")
            thread.join(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive(), "the server did not stop"


@contextmanager
def serving(holdfast: Holdfast, *, keys_required: bool = True, **options: Any) -> Iterator[str]:
    """The engine as a service of MCP alone, keys required unless told otherwise; its address."""
    app = McpApp(Callers(holdfast, keys_required=keys_required), **options)
    with listening(Starlette(routes=[Route("/mcp", app)], lifespan=lambda _app: app.run())) as url:
        yield url


@asynccontextmanager
async def connected(
    url: str, secret: str | None = None, *, mode: str = "auto", **headers: str
) -> AsyncIterator[Client]:
    """The SDK's client over HTTP, with a key."""
    given = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    async with (
        httpx2.AsyncClient(headers={**given, **headers}, timeout=30, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client
