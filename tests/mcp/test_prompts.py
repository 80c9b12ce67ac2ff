"""Prompts: what is remembered, as a user of a client puts it into a conversation."""

from __future__ import annotations

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from holdfast import Holdfast
from holdfast.core.access import Principal, Right
from holdfast.edges.mcp.tools import Defaults
from mcp_clients import answer, ask, local_server, run

ALICE = Defaults("alice", "claude")


async def said(client: Client, arguments: dict[str, str]) -> str:
    (message,) = (await client.get_prompt("memory", arguments)).messages
    assert message.role == "user"
    return message.content.text  # type: ignore[union-attr]


def test_a_prompt_is_the_block_of_whom_the_server_means(holdfast: Holdfast) -> None:
    memory = holdfast.manager("alice", "claude")
    memory.persona.add("You answer briefly.")
    memory.add("Alice prefers night trains")
    holdfast.manager("bob", "claude").add("Bob prefers night buses")

    async def talk() -> None:
        async with Client(local_server(holdfast, defaults=ALICE)) as client:
            (prompt,) = (await client.list_prompts()).prompts
            assert prompt.name == "memory"
            named = {one.name for one in prompt.arguments or ()}
            assert named == {"query", "max_tokens", "user_id", "agent_id", "session_id"}
            assert await said(client, {"query": "night trains"}) == memory.context("night trains").text
            assert await said(client, {}) == memory.context().text
            short = await said(client, {"query": "night trains", "max_tokens": "60"})
            assert short == memory.context("night trains", max_tokens=60).text
            assert "buses" in await said(client, {"query": "night buses", "user_id": "bob"})
            assert await said(client, {"user_id": "nobody"}) == "Nothing is remembered that bears on this."
            for name, arguments in (("memory", {"max_tokens": "many"}), ("dreams", {})):
                with pytest.raises(MCPError):
                    await client.get_prompt(name, arguments)

    run(talk)


def test_a_key_reaches_no_more_by_a_prompt(holdfast: Holdfast) -> None:
    holdfast.manager("bob", "claude").add("Bob prefers night buses")
    bound = Principal("k", "default", frozenset({Right.READ}), users=frozenset({"alice"}))
    nothing = Principal("k", "default", frozenset())

    async def talk(caller: Principal) -> list[str]:
        async with Client(local_server(holdfast, caller)) as client:
            with pytest.raises(MCPError):
                await client.get_prompt("memory", {"query": "night buses", "user_id": "bob"})
            return [one.name for one in (await client.list_prompts()).prompts]

    assert run(lambda: talk(bound)) == ["memory"]
    assert run(lambda: talk(nothing)) == []


def test_the_tool_gives_a_model_the_text_and_how_much_was_left_out(holdfast: Holdfast) -> None:
    memory = holdfast.manager("alice", "claude")
    memory.add_many([f"Alice prefers night train number {number}" for number in range(30)])
    server = local_server(holdfast, defaults=ALICE)
    given = answer(ask(server, "memory_context", {"query": "night trains", "max_tokens": 200}))
    block = memory.context("night trains", max_tokens=200)
    assert given == {"text": block.text, "left_out": len(block.left_out)}
    assert answer(ask(server, "memory_context", {"query": "night trains", "max_tokens": 5_000})).keys() == {"text"}
