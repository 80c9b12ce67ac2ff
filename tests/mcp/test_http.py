"""Streamable HTTP: a real server on loopback, the SDK's client, and what strangers send."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import anyio
import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from clocks import FakeClock
from holdfast import Holdfast
from holdfast.core.access import Right
from holdfast.edges.access.callers import Callers
from holdfast.edges.mcp.transport import McpApp
from holdfast.edges.operations.catalog import TOOLS
from holdfast.edges.operations.operation import Reach
from mcp_clients import MODES, answer, connected, error, listening, run, serving

CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "memory_search", "arguments": {"query": "x"}},
}
ACCEPTS = {"Accept": "application/json, text/event-stream"}


@pytest.fixture
def url(holdfast: Holdfast) -> Iterator[str]:
    with serving(holdfast) as address:
        yield address


@pytest.fixture
def alices(holdfast: Holdfast) -> str:
    """A key for alice's memory, as the agent claude."""
    return holdfast.access.create(
        "alice's", rights=[Right.WRITE], tenant="default", users=["alice"], agents=["claude"]
    )[1]


def post(url: str, body: Any, secret: str | None = None, **headers: str) -> httpx.Response:
    given = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    all_headers = {"Content-Type": "application/json", **ACCEPTS, **given, **headers}
    return httpx.post(url, content=content, headers=all_headers, timeout=30, trust_env=False)


@pytest.mark.parametrize("mode", MODES)
def test_an_agent_remembers_over_http(holdfast: Holdfast, url: str, alices: str, mode: str) -> None:
    async def talk() -> None:
        async with connected(url, alices, mode=mode) as client:
            assert "memory_add" in [tool.name for tool in (await client.list_tools()).tools]
            memory_id = answer(await client.call_tool("memory_add", {"content": "Likes tea"}))["memory_id"]
            (found,) = answer(await client.call_tool("memory_search", {"query": "drinks"}))["items"]
            assert found["memory_id"] == memory_id
            got = answer(await client.call_tool("memory_get", {"memory_id": memory_id}))
            assert got["agent_id"] == "claude"
            (read,) = (await client.read_resource(f"holdfast://memories/alice/{memory_id}")).contents
            assert "Likes tea" in read.model_dump_json()
            assert (await client.list_resources()).resources[-1].name == "Likes tea"

    run(talk)
    assert holdfast.manager("alice", "claude").count_memories() == 1


def test_a_key_is_asked_for_and_a_revoked_one_lets_nobody_in(holdfast: Holdfast, url: str, clock: FakeClock) -> None:
    key, secret = holdfast.access.create(
        "short", rights=["read"], tenant="default", expires_at=clock().timestamp() + 60
    )
    assert post(url, CALL, secret).status_code == 200
    assert post(url, CALL, **{"X-API-Key": secret}).status_code == 200
    wrong = [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": f"Basic {secret}"},
        {"Authorization": f"Bearer {secret}x"},
        {"Authorization": "Bearer " + "x" * 4_000},
        {"Authorization": f"Bearer {secret}", "X-API-Key": "another"},
    ]
    for headers in wrong:
        refused = post(url, CALL, **headers)
        assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
        assert refused.headers["www-authenticate"].startswith("Bearer")
        assert refused.headers["content-type"] == "application/problem+json"
        assert secret not in refused.text
    clock.advance(seconds=61)
    assert post(url, CALL, secret).status_code == 401, "its time is over"
    other = holdfast.access.create("other", rights=["read"], tenant="default")
    assert post(url, CALL, other[1]).status_code == 200
    holdfast.access.revoke(other[0].id)
    assert post(url, CALL, other[1]).status_code == 401
    assert key.id != other[0].id


def test_without_keys_the_local_caller_may_do_everything_and_a_key_still_counts(
    holdfast: Holdfast, alices: str
) -> None:
    async def talk(url: str) -> None:
        async with connected(url) as client:
            assert len((await client.list_tools()).tools) == len(TOOLS)
            assert answer(await client.call_tool("sweep_preview"))["lines"] == []
        async with connected(url, alices) as client:
            assert error(await client.call_tool("sweep_preview"))["code"] == "forbidden"

    with serving(holdfast, keys_required=False) as url:
        run(lambda: talk(url))
        assert post(url, CALL, "holdfast_wrong").status_code == 401


def test_a_page_in_somebodys_browser_gets_nowhere(holdfast: Holdfast) -> None:
    def status(**headers: str) -> int:
        return post(address, CALL, **headers).status_code

    with serving(holdfast, keys_required=False) as address:
        assert status() == 200
        assert status(Host="evil.example") == 421
        assert status(Host="127.0.0.1.evil.example:80") == 421
        assert status(Origin="http://evil.example") == 403
        assert status(Origin="null") == 403
        assert status(Host="localhost:8000", Origin="http://localhost:8000") == 200
    secret = holdfast.access.create("reader", rights=["read"], tenant="default")[1]
    with serving(holdfast) as address:
        assert status(Host="anything.example", Authorization=f"Bearer {secret}") == 200


def test_what_is_no_request_is_refused(holdfast: Holdfast, alices: str) -> None:
    with serving(holdfast, max_request_bytes=100_000) as url:
        for method in ("GET", "DELETE", "PUT"):
            refused = httpx.request(method, url, headers={"Authorization": f"Bearer {alices}"}, trust_env=False)
            assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
        for body in (b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"[" * 50_000, b'{"jsonrpc": "2.0"}'):
            assert post(url, body, alices).status_code == 400, body[:20]
        huge = {**CALL, "params": {"name": "memory_add", "arguments": {"content": "x" * 100_000}}}
        assert post(url, huge, alices).status_code == 413
        assert post(url, CALL, alices, **{"Content-Type": "text/plain"}).status_code == 400
        assert post(url, CALL, alices).status_code == 200, "and it goes on serving"


def test_a_memory_that_is_too_large_is_told_so(holdfast: Holdfast, url: str, alices: str) -> None:
    most = holdfast.settings.max_content_bytes

    async def talk() -> None:
        async with connected(url, alices) as client:
            said = error(await client.call_tool("memory_add", {"content": "x " * (most // 2) + "x"}))
            assert said["code"] == "invalid_content"
            assert len(said["message"]) < 500

    run(talk)
    assert holdfast.manager("alice", "claude").count_memories() == 0


def test_many_clients_at_once_lose_nothing(holdfast: Holdfast, url: str) -> None:
    """Each with a key of its own; each finds its own user's memories, and no other's."""
    users = [f"user{number}" for number in range(6)]
    keys = {user: holdfast.access.create(user, rights=["write"], tenant="default", users=[user])[1] for user in users}

    async def one(user: str, mode: str) -> None:
        async with connected(url, keys[user], mode=mode) as client:
            for number in range(5):
                answer(await client.call_tool("memory_add", {"content": f"{user} likes number {number}"}))
            found = answer(await client.call_tool("memory_search", {"query": "likes", "top_k": 50}))["items"]
            assert {one["content"] for one in found} == {f"{user} likes number {number}" for number in range(5)}

    async def talk() -> None:
        async with anyio.create_task_group() as group:
            for place, user in enumerate(users):
                group.start_soon(one, user, MODES[place % 2])

    run(talk)


def test_one_request_is_like_another_whichever_process_answers(holdfast: Holdfast, alices: str) -> None:
    """There are no sessions: what one server was told, another goes on with."""
    legacy = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {}}
    with serving(holdfast) as one, serving(holdfast) as other:
        for url in (one, other):
            response = post(url, legacy, alices, **{"MCP-Protocol-Version": "2025-06-18"})
            assert response.status_code == 200
            assert "mcp-session-id" not in response.headers
            assert len(response.json()["result"]["tools"]) == len(
                [tool for tool in TOOLS.values() if tool.reach is Reach.MEMORY]
            )


def test_it_is_part_of_another_application_and_can_be_started_again(holdfast: Holdfast, alices: str) -> None:
    app = McpApp(Callers(holdfast))
    for _ in range(2):
        outer = Starlette(routes=[Route("/mcp", app)], lifespan=lambda _app: app.run())
        with listening(outer) as url:
            assert post(url, CALL, alices).status_code == 200
            assert post(url.replace("/mcp", "/other"), CALL, alices).status_code == 404


def test_a_client_is_told_which_server_it_speaks_to(holdfast: Holdfast, url: str, alices: str) -> None:
    async def talk(mode: str) -> None:
        async with connected(url, alices, mode=mode) as client:
            assert client.server_info is not None
            assert client.server_info.name == "holdfast"
            assert client.server_capabilities.tools is not None
            assert client.server_capabilities.resources is not None
            said = client.session.instructions or ""
            assert "memory_search" in said
            assert "what has changed with memory_correct" in said, "as the text of memory_update says"

    for mode in MODES:
        run(partial(talk, mode))
