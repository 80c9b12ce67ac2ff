"""Nobody reaches past their key: attempts on every tool and every resource there is, over HTTP, as an attacker would.

They are generated from the tables that the server is built from: a new tool is attacked as soon as it is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from holdfast import Holdfast
from holdfast.core.access import Right
from holdfast.edges.mcp.resources import TEMPLATES
from holdfast.edges.operations.catalog import TOOLS
from holdfast.edges.operations.operation import Reach
from mcp_clients import connected, good, run, serving

ALLERGY = "Is allergic to peanuts"
PRIVATE = "Speaks softly to her"


class Stage(NamedTuple):
    """A service with a victim in the tenant ``acme``: alice, and what her agent claude knows of her."""

    engine: Holdfast
    acme: Holdfast
    url: str
    shared: str
    """A memory that all of her agents share."""
    own: str
    """A memory that is claude's own."""

    def key(self, tenant: str, right: Right, users: list[str] | None = None, agents: list[str] | None = None) -> str:
        """The secret of a new key."""
        return self.engine.access.create("attacker", rights=[right], tenant=tenant, users=users, agents=agents)[1]

    def state(self) -> Any:
        """All that is kept of the victim, and the policies of her tenant."""
        kept = self.acme.export_user("alice")
        return kept["memories"], [self.acme.domains.get(domain) for domain in ("memory", "rag")]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    home: Path = tmp_path_factory.mktemp("boundaries") / "home"
    with Holdfast.open(home=home) as engine:
        acme = engine.of_tenant("acme")
        claude = acme.manager("alice", "claude")
        shared = claude.add(ALLERGY, "long_term")["memory_id"]
        own = claude.add(PRIVATE, "persona")["memory_id"]
        with serving(engine) as url:
            yield Stage(engine, acme, url, shared, own)


async def attempt(client: Client, name: str, arguments: dict[str, Any]) -> tuple[str, str]:
    """What became of a call: the code (``fine``, if it was answered) and all that was said."""
    result = await client.call_tool(name, arguments)
    code = result.structured_content["error"]["code"] if result.is_error else "fine"
    return code, result.model_dump_json()


async def look(client: Client, uri: str) -> tuple[str, str]:
    """What became of reading a resource."""
    try:
        return "fine", (await client.read_resource(uri)).model_dump_json()
    except MCPError as problem:
        return problem.error.data["error"]["code"], str(problem.error)


def uris(user: str, memory_id: str, agent: str) -> list[str]:
    """A resource of every kind."""
    names = {"user_id": user, "memory_id": memory_id, "agent_id": agent}
    made = [
        one.uri.expand({name: value for name, value in names.items() if name in one.uri.variable_names})
        for one in TEMPLATES
    ]
    assert len(made) == len(set(made)) == len(TEMPLATES)
    return made


def test_a_key_without_the_right_is_refused_by_every_tool_and_resource(stage: Stage) -> None:
    before = stage.state()
    lesser = {Right.WRITE: Right.READ, Right.GOVERN: Right.WRITE}

    async def talk() -> None:
        for right, less in lesser.items():
            names = [name for name, tool in TOOLS.items() if tool.right is right]
            assert names
            async with connected(stage.url, stage.key("acme", less)) as client:
                for name in names:
                    arguments = good(name, stage.shared, user_id="alice", agent_id="claude")
                    assert (await attempt(client, name, arguments))[0] == "forbidden", name

    run(talk)
    assert {tool.right for tool in TOOLS.values()} == {Right.READ, *lesser}, "every right but read was tried"
    assert stage.state() == before


def test_a_key_of_another_tenant_finds_nothing_and_changes_nothing(stage: Stage) -> None:
    before = stage.state()
    secret = stage.key("evil", Right.ADMIN)

    async def talk() -> None:
        async with connected(stage.url, secret) as client:
            for name, tool in TOOLS.items():
                for memory_id in (stage.shared, stage.own):
                    code, said = await attempt(client, name, good(name, memory_id, user_id="alice", agent_id="claude"))
                    assert ALLERGY not in said, name
                    assert PRIVATE not in said, name
                    one = "memory_id" in tool.inputs.model_fields
                    assert code == ("not_found" if one else "fine"), (name, said)
            for memory_id in (stage.shared, stage.own):
                for uri in uris("alice", memory_id, "claude"):
                    code, said = await look(client, uri)
                    assert ALLERGY not in said
                    assert PRIVATE not in said
        async with connected(stage.url, secret, **{"X-Holdfast-Tenant": "acme"}) as client:
            for name in TOOLS:
                arguments = good(name, stage.shared, user_id="alice", agent_id="claude")
                assert (await attempt(client, name, arguments))[0] == "forbidden", name
            for uri in uris("alice", stage.shared, "claude"):
                assert (await look(client, uri))[0] == "forbidden"
            for listing in (client.list_tools, client.list_resources):
                with pytest.raises(MCPError, match="another tenant"):
                    await listing()

    run(talk)
    assert stage.state() == before


def test_a_key_that_is_bound_to_another_user_is_refused_by_every_tool_and_resource(stage: Stage) -> None:
    before = stage.state()

    async def talk() -> None:
        async with connected(stage.url, stage.key("acme", Right.ADMIN, users=["mallory"])) as client:
            for name, tool in TOOLS.items():
                arguments = good(name, stage.shared, user_id="alice", agent_id="claude")
                assert (await attempt(client, name, arguments))[0] == "forbidden", name
                if tool.reach is Reach.MEMORY:  # under its own name, with the id of hers
                    code, said = await attempt(client, name, good(name, stage.shared, user_id="mallory"))
                    assert code == ("not_found" if "memory_id" in tool.inputs.model_fields else "fine"), name
                    assert ALLERGY not in said
            for uri in uris("alice", stage.shared, "claude"):
                assert (await look(client, uri))[0] == "forbidden"
            listed = (await client.list_resources()).model_dump_json()
            assert "mallory" in listed
            assert ALLERGY not in listed
            assert (await look(client, uris("mallory", stage.shared, "claude")[1]))[0] == "not_found"

    run(talk)
    assert stage.state() == before


def test_a_refusal_tells_nothing_of_what_exists(stage: Stage) -> None:
    nothing = "00000000-0000-7000-8000-000000000000"

    async def talk() -> None:
        async with connected(stage.url, stage.key("acme", Right.WRITE, users=["mallory"])) as client:
            for name, tool in TOOLS.items():
                if "memory_id" not in tool.inputs.model_fields:
                    continue
                for whose in ({"user_id": "alice"}, {"user_id": "mallory"}):
                    real = await attempt(client, name, good(name, stage.shared, **whose))
                    none = await attempt(client, name, good(name, nothing, **whose))
                    assert (real[0], real[1].replace(stage.shared, nothing)) == none

    run(talk)


def test_a_key_that_is_bound_to_another_agent_does_not_see_what_is_claudes_own(stage: Stage) -> None:
    before = stage.state()

    async def talk() -> None:
        async with connected(stage.url, stage.key("acme", Right.ADMIN, agents=["spy"])) as client:
            for name, tool in TOOLS.items():
                arguments = good(name, stage.own, user_id="alice", agent_id="claude")
                assert (await attempt(client, name, arguments))[0] == "forbidden", name
                if "memory_id" in tool.inputs.model_fields:
                    code, said = await attempt(client, name, good(name, stage.own, user_id="alice"))
                    assert code == "not_found", (name, said)
                    assert PRIVATE not in said
            kinds = {"query": "softly", "user_id": "alice", "memory_types": ["persona", "episodic", "short_term"]}
            assert (await client.call_tool("memory_search", kinds)).structured_content == {"items": []}
            for uri in uris("alice", stage.own, "claude"):
                assert (await look(client, uri))[0] == "forbidden"
            for uri in uris("alice", stage.own, "spy"):
                assert PRIVATE not in (await look(client, f"{uri}&memory_type=persona" if "users" in uri else uri))[1]

    run(talk)
    assert stage.state() == before


def test_a_key_that_is_bound_to_an_agent_writes_in_no_other_agents_name(stage: Stage) -> None:
    async def talk() -> None:
        async with connected(stage.url, stage.key("acme", Right.WRITE, agents=["spy"])) as client:
            said = {"user_id": "zoe", "agent_id": "spy", "content": "tea"}
            assert (await attempt(client, "memory_add", {**said, "source": "agent:claude"}))[0] == "forbidden"
            assert (await attempt(client, "memory_add", {**said, "source": "agent:spy"}))[0] == "fine"

    run(talk)


def test_an_operator_acts_for_the_tenant_that_it_names(stage: Stage) -> None:
    async def found(client: Client) -> str:
        asked = {"query": "peanuts", "user_id": "alice"}
        return (await client.call_tool("memory_search", asked)).model_dump_json()

    async def talk() -> None:
        secret = stage.key("*", Right.ADMIN)
        async with connected(stage.url, secret, **{"X-Holdfast-Tenant": "acme"}) as client:
            assert ALLERGY in await found(client)
        async with connected(stage.url, secret) as client:
            assert ALLERGY not in await found(client), "the default tenant is another one"
        async with connected(stage.url, stage.key("acme", Right.READ)) as client:
            assert ALLERGY in await found(client)

    run(talk)
