"""Resources: a user's memories, listed, read and paged through."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from clocks import FakeClock
from holdfast import Holdfast
from holdfast.edges.mcp.tools import Defaults
from mcp_clients import MODES, local_server, run

ALICE = Defaults("alice", "claude")


async def read(client: Client, uri: str) -> dict[str, Any]:
    (content,) = (await client.read_resource(uri)).contents
    assert content.mime_type == "application/json"
    assert content.uri == uri
    found: dict[str, Any] = json.loads(content.text)  # type: ignore[union-attr]
    return found


@pytest.mark.parametrize("mode", MODES)
def test_a_users_memories_are_read_page_by_page(holdfast: Holdfast, mode: str) -> None:
    memory = holdfast.manager("alice", "claude")
    ids = memory.add_many([f"Fact {number}" for number in range(25)], "long_term")["memory_ids"]

    async def talk() -> list[str]:
        seen: list[str] = []
        async with Client(local_server(holdfast, defaults=ALICE), mode=mode) as client:
            templates = (await client.list_resource_templates()).resource_templates
            assert [one.name for one in templates] == ["memories", "memory"]
            uri: str | None = "holdfast://users/alice/memories?limit=10"
            while uri is not None:
                page = await read(client, uri)
                if not seen:  # what comes and goes meanwhile neither repeats nor hides anything else
                    memory.add("Came later", "long_term")
                    memory.delete(page["items"][0]["memory_id"])
                    one = await read(client, page["items"][1]["uri"])
                    assert one["content"] == "Fact 23"
                seen += [found["memory_id"] for found in page["items"]]
                uri = page["next"]
        return seen

    assert run(talk) == ids[::-1]


def test_the_resources_of_the_servers_user_are_listed(holdfast: Holdfast) -> None:
    memory = holdfast.manager("alice", "claude")
    memory.add_many([f"Fact {number}" for number in range(101)], "long_term")
    memory.add("Speaks softly", "persona")
    holdfast.manager("bob", "claude").add("Not hers", "long_term")

    async def talk() -> None:
        async with Client(local_server(holdfast, defaults=ALICE)) as client:
            first = await client.list_resources()
            names = [one.name for one in first.resources]
            assert names[:5] == [
                f"{kind} memories" for kind in ("long_term", "persona", "episodic", "entity", "structured")
            ]
            assert names[5:7] == ["Fact 100", "Fact 99"]
            assert first.next_cursor is not None
            second = await client.list_resources(cursor=first.next_cursor)
            assert ([one.name for one in second.resources], second.next_cursor) == (["Fact 0"], None)
            persona = await read(client, str(first.resources[1].uri))
            assert [one["content"] for one in persona["items"]] == ["Speaks softly"]
            with pytest.raises(MCPError, match="not a cursor of this list"):
                await client.list_resources(cursor="elsewhere")
        async with Client(local_server(holdfast)) as client:
            assert (await client.list_resources()).resources == [], "nobody is meant, so nobody's are listed"

    run(talk)


def test_a_user_with_an_odd_name_has_resources_too(holdfast: Holdfast) -> None:
    odd = "a/b?c=d#e%41 ö"
    holdfast.manager(odd, "claude").add("Likes tea", "long_term")

    async def talk() -> None:
        async with Client(local_server(holdfast, defaults=Defaults(odd))) as client:
            listed = (await client.list_resources()).resources
            assert (await read(client, str(listed[-1].uri)))["content"] == "Likes tea"
            assert (await read(client, str(listed[0].uri)))["user_id"] == odd

    run(talk)


WRONG = [
    ("holdfast://memories/alice/nothing", "not_found"),
    ("holdfast://users/alice/memories?limit=0", "invalid_input"),
    ("holdfast://users/alice/memories?limit=1001", "invalid_input"),
    ("holdfast://users/alice/memories?cursor=x", "invalid_input"),
    ("holdfast://users/alice/memories?memory_type=working", "invalid_input"),
    ("holdfast://users/alice/memories?memory_type=short_term", "invalid_kind"),
    ("holdfast://users/*/memories", "invalid_scope"),
    ("holdfast://users//memories", "invalid_scope"),
    ("holdfast://elsewhere", "not_found"),
    ("file:///etc/passwd", "not_found"),
    ("", "not_found"),
    ("holdfast://users/" + "x" * 10_000 + "/memories", "not_found"),
]


def test_a_resource_that_is_not_there_is_an_error_with_a_code(holdfast: Holdfast) -> None:
    async def talk() -> None:
        async with Client(local_server(holdfast, defaults=ALICE)) as client:
            for uri, code in WRONG:
                with pytest.raises(MCPError) as caught:
                    await client.read_resource(uri)
                problem = caught.value.error
                assert (problem.code, problem.data["error"]["code"]) == (-32602, code), uri
                assert len(problem.message) < 500

    run(talk)


def test_what_has_come_to_its_end_is_no_resource_any_more(holdfast: Holdfast, clock: FakeClock) -> None:
    memory = holdfast.manager("alice", "claude")
    memory_id = memory.add("Booked a flight", "episodic")["memory_id"]
    clock.advance(days=366)

    async def talk() -> None:
        async with Client(local_server(holdfast, defaults=ALICE)) as client:
            assert (await read(client, "holdfast://users/alice/memories?memory_type=episodic"))["items"] == []
            with pytest.raises(MCPError, match="end of its time"):
                await client.read_resource(f"holdfast://memories/alice/{memory_id}")

    run(talk)
