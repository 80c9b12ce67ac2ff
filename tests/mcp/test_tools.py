"""The tools: what each of them says of itself, does, and answers to what is wrong."""

from __future__ import annotations

import json
import logging
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import Tool as ShownTool

from clocks import FakeClock
from effort import soak, times
from holdfast import Holdfast
from holdfast.core.access import LOCAL, Principal, Right
from holdfast.edges.access.gate import Gate
from holdfast.edges.mcp.tools import Defaults, describe_tool
from holdfast.edges.mcp.transport import build_server
from holdfast.edges.operations.catalog import TOOLS
from holdfast.edges.operations.memories import MAX_SHOWN_CHARS
from holdfast.edges.operations.operation import Reach
from mcp_clients import GOOD, MODES, answer, ask, error, good, local_server, run

ALICE = Defaults("alice", "claude")
NAMES = sorted(TOOLS)


@pytest.fixture
def peanuts(holdfast: Holdfast) -> str:
    added = holdfast.manager("alice", "claude").add("Is allergic to peanuts", "long_term", {"topic": "food"})
    memory_id: str = added["memory_id"]
    return memory_id


def shown_tools(holdfast: Holdfast, principal: Principal = LOCAL, mode: str = "auto") -> dict[str, ShownTool]:
    async def talk() -> dict[str, ShownTool]:
        async with Client(local_server(holdfast, principal, ALICE), mode=mode) as client:
            return {tool.name: tool for tool in (await client.list_tools()).tools}

    return run(talk)


# --- what they say of themselves --------------------------------------------------------------------------------------


def test_the_tools_are_those_that_agents_and_governors_need() -> None:
    assert set(TOOLS) == {
        "retention_configure",
        "retention_get",
        "retention_apply",
        "retention_archive",
        "retention_policies",
        "retention_gc_params",
        "memory_add",
        "memory_search",
        "memory_context",
        "memory_conflicts",
        "memory_list",
        "memory_get",
        "memory_update",
        "memory_correct",
        "memory_history",
        "memory_revert",
        "memory_delete",
        "memory_restore",
        "memory_explain",
        "memory_rules",
        "sweep_preview",
    }
    assert set(GOOD) == set(TOOLS), "every tool has arguments that are good for it, so that tests can call it"


@pytest.mark.parametrize("mode", MODES)
def test_every_tool_has_a_title_a_description_schemas_and_hints(holdfast: Holdfast, mode: str) -> None:
    tools = shown_tools(holdfast, mode=mode)
    assert list(tools) == list(TOOLS)
    for name, tool in tools.items():
        assert tool.title
        assert tool.description
        assert len(tool.description) > 30
        assert tool.output_schema is not None
        for schema in (tool.input_schema, tool.output_schema):
            jsonschema.Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object"
        assert tool.input_schema["additionalProperties"] is False
        for argument, described in tool.input_schema["properties"].items():
            assert described.get("description"), f"{name}.{argument}"
        jsonschema.validate(good(name, "x"), tool.input_schema)
        assert tool.annotations is not None
        hints = tool.annotations
        assert None not in (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint)
        assert hints.open_world_hint is False


def test_a_tool_that_only_looks_needs_no_more_than_the_right_to_read() -> None:
    hints: dict[str, Any] = {name: describe_tool(one, ALICE, keyed=False).annotations for name, one in TOOLS.items()}
    for name, tool in TOOLS.items():
        assert hints[name].read_only_hint is (tool.right is Right.READ)
    destructive = {name for name, own in hints.items() if own.destructive_hint}
    assert destructive == {"memory_update", "memory_delete", "retention_configure"}


def test_a_caller_is_shown_the_tools_that_its_key_can_use(holdfast: Holdfast) -> None:
    reader = Principal("k", "default", frozenset({Right.READ}))
    bound = Principal("k", "default", frozenset({Right.ADMIN}), users=frozenset({"alice"}))
    assert set(shown_tools(holdfast, reader)) == {name for name, tool in TOOLS.items() if tool.right is Right.READ}
    assert set(shown_tools(holdfast, bound)) == {name for name, tool in TOOLS.items() if tool.reach is Reach.MEMORY}


def test_whose_memory_is_meant_must_be_said_unless_the_server_knows() -> None:
    search = TOOLS["memory_search"]
    unknown = describe_tool(search, Defaults(), keyed=False).input_schema
    known = describe_tool(search, ALICE, keyed=False).input_schema
    keyed = describe_tool(search, Defaults(), keyed=True).input_schema
    assert unknown["required"] == ["user_id", "query"]
    assert known["required"] == keyed["required"] == ["query"]
    assert "'alice'" in known["properties"]["user_id"]["description"]
    assert "'claude'" in known["properties"]["agent_id"]["description"]
    assert "only if the key is for one user" in keyed["properties"]["user_id"]["description"]


# --- what they do -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_memory_lives_its_life_through_the_tools(holdfast: Holdfast, clock: FakeClock, mode: str) -> None:
    async def talk() -> None:
        async with Client(local_server(holdfast, defaults=ALICE), mode=mode) as client:
            added = answer(
                await client.call_tool("memory_add", {"content": "Likes tea", "metadata": {"topic": "food"}})
            )
            memory_id = added["memory_id"]
            one = {"memory_id": memory_id}
            (found,) = answer(await client.call_tool("memory_search", {"query": "hot drinks"}))["items"]
            assert (found["memory_id"], found["content"]) == (memory_id, "Likes tea")
            filtered = {"query": "hot drinks", "filters": {"topic": "travel"}}
            assert answer(await client.call_tool("memory_search", filtered))["items"] == []
            many = {"any": [{"x": number} for number in range(201)]}
            refused = error(await client.call_tool("memory_search", {"query": "hot drinks", "filters": many}))
            assert (refused["code"], "more than 200 conditions" in refused["message"]) == ("invalid_filter", True)
            changed = answer(await client.call_tool("memory_update", {**one, "content": "Likes green tea"}))
            assert (changed["content"], changed["metadata"]) == ("Likes green tea", {"topic": "food"})
            assert answer(await client.call_tool("memory_delete", one))["operation"] == "recycle"
            assert error(await client.call_tool("memory_get", one))["code"] == "not_found"
            binned = answer(await client.call_tool("memory_explain", one))
            assert (binned["state"], binned["days_left"]) == ("recycled", 15)
            assert answer(await client.call_tool("memory_restore", one))["content"] == "Likes green tea"
            assert answer(await client.call_tool("memory_get", one))["agent_id"] == "claude"
            said = answer(await client.call_tool("memory_explain", one))
            assert said["next"]["action"] == "archive"
            assert "365 days" in said["summary"]
            preview = answer(await client.call_tool("sweep_preview", {"days_ahead": 366}))
            assert preview["counts"] == {"archive": 1, "recycle": 0, "delete": 1}
            assert preview["samples"][0]["memory_id"] == memory_id
            assert answer(await client.call_tool("sweep_preview", {}))["counts"]["archive"] == 0

    run(talk)


def test_every_kind_but_working_memory_can_be_added_and_found(holdfast: Holdfast) -> None:
    server = local_server(holdfast, defaults=ALICE)
    contents: dict[str, Any] = {
        "long_term": "Plays the cello",
        "short_term": "What about the cello?",
        "persona": "Speaks to her as a cello teacher",
        "episodic": "Tuned the cello",
        "entity": "The cello",
        "structured": {"instrument": "cello"},
    }
    for kind, content in contents.items():
        added = answer(ask(server, "memory_add", {"content": content, "memory_type": kind}))
        assert added["memory_type"] == kind
        search = {"query": "cello", "memory_types": [kind]}
        assert added["memory_id"] in str(answer(ask(server, "memory_search", search)))
        got = answer(ask(server, "memory_get", {"memory_id": added["memory_id"]}))
        assert got["memory_type"] == kind
    assert error(ask(server, "memory_add", {"content": "x", "memory_type": "working"}))["code"] == "invalid_input"


def test_what_an_explanation_says_is_all_there(holdfast: Holdfast, clock: FakeClock, peanuts: str) -> None:
    memory = holdfast.manager("alice", "claude", "s")
    states = [memory.explain(peanuts)]
    memory.delete(peanuts)
    states.append(memory.explain(peanuts))
    clock.advance(days=16)
    holdfast.sweep()
    states.append(memory.explain(peanuts))
    memory.short_term.add_message("user", "hello")
    states.append(memory.explain(memory.short_term.messages()[0].id))
    for said in states:
        TOOLS["memory_explain"].output.model_validate(said)
    gone = answer(ask(local_server(holdfast, defaults=ALICE), "memory_explain", {"memory_id": peanuts}))
    assert gone["state"] == "deleted"
    assert gone["cause"] == states[2]["cause"]


def test_an_episode_comes_with_its_steps(holdfast: Holdfast) -> None:
    episode = holdfast.manager("alice", "claude").episodic.record_episode("Book a flight", ["search", "pay"])
    got = answer(ask(local_server(holdfast, defaults=ALICE), "memory_get", {"memory_id": episode}))
    assert [step["content"] for step in got["steps"]] == ["search", "pay"]


def test_what_was_derived_goes_and_comes_back_with_it(holdfast: Holdfast, peanuts: str) -> None:
    server = local_server(holdfast, defaults=ALICE)
    made = answer(ask(server, "memory_add", {"content": "Needs a nut-free menu", "derived_from": [peanuts]}))[
        "memory_id"
    ]
    assert answer(ask(server, "memory_delete", {"memory_id": peanuts}))["derived"] == [made]
    assert "restored_with" not in answer(ask(server, "memory_restore", {"memory_id": peanuts}))
    gone = answer(ask(server, "memory_delete", {"memory_id": peanuts, "with_derived": True}))
    assert gone["deleted_with"] == [made]
    assert "derived" not in gone
    assert answer(ask(server, "memory_restore", {"memory_id": peanuts}))["restored_with"] == [made]


def test_a_search_shows_the_beginning_of_what_is_long(holdfast: Holdfast) -> None:
    server = local_server(holdfast, defaults=ALICE)
    long = "cello " * 5_000
    memory_id = answer(ask(server, "memory_add", {"content": long}))["memory_id"]
    (found,) = answer(ask(server, "memory_search", {"query": "cello"}))["items"]
    assert found["content"] == long[:MAX_SHOWN_CHARS] + "… (memory_get has the rest)"
    assert answer(ask(server, "memory_get", {"memory_id": memory_id}))["content"] == long


def test_a_result_of_a_search_costs_a_model_at_most_150_characters_beside_the_content(
    holdfast: Holdfast, clock: FakeClock
) -> None:
    """Beside what it says, a model reads which memory it is, how well it matches and how old it is."""
    memory = holdfast.manager("alice", "claude", "a session with a long name")
    clock.advance(milliseconds=123.456)
    for number in range(5):
        metadata = {"topic": "music", "speaker": "alice", "number": number, "tags": ["cello", "practice"]}
        memory.add(f'Practises the "cello" at {number} o’clock', metadata=metadata, source="import:crm-2026-05")
    memory.episodic.record_episode("Tuned the cello", ["listened", "turned a peg"])
    memory.structured.put("instruments", {"name": "cello", "strings": 4}, key="cello")
    memory.short_term.add_message("user", "What about the cello?")
    clock.advance(days=91)
    holdfast.sweep(confirm=True)
    server = local_server(holdfast, defaults=ALICE)
    kinds = ["long_term", "episodic", "structured", "entity", "persona"]
    several = {"query": "cello", "memory_types": kinds, "top_k": 20, "include_archived": True}
    listed = {"memory_type": "long_term", "limit": 2}
    seen = set()
    for name, arguments in (("memory_search", {"query": "cello"}), ("memory_search", several), ("memory_list", listed)):
        result = ask(server, name, arguments)
        (text,) = result.content
        assert text.type == "text"
        given = json.loads(text.text)
        assert given == result.structured_content
        assert text.text == json.dumps(given, ensure_ascii=False, separators=(",", ":")), "as compact as JSON can be"
        items = given["items"]
        assert items
        for one in items:
            contents = [json.dumps(part, ensure_ascii=False, separators=(",", ":")) for part in (one, one["content"])]
            assert len(contents[0]) - len(contents[1]) <= 150, one
            seen |= one.keys()
    assert seen == {"memory_id", "content", "score", "created_at", "memory_type", "is_archived"}


def test_memories_are_listed_page_by_page(holdfast: Holdfast) -> None:
    server = local_server(holdfast, defaults=ALICE)
    ids = holdfast.manager("alice", "claude").add_many([f"Fact {number}" for number in range(5)])["memory_ids"]
    found, cursor = [], None
    while True:
        page = answer(ask(server, "memory_list", {"limit": 2, "cursor": cursor}))
        found += [one["memory_id"] for one in page["items"]]
        cursor = page.get("next_cursor")
        if cursor is None:
            break
    assert found == ids[::-1]


def test_a_search_leaves_out_what_scores_less_than_asked_for(holdfast: Holdfast, peanuts: str) -> None:
    server = local_server(holdfast, defaults=ALICE)
    holdfast.manager("alice", "claude").add("Drives an electric car")
    assert len(answer(ask(server, "memory_search", {"query": "allergic to peanuts"}))["items"]) == 2
    (found,) = answer(ask(server, "memory_search", {"query": "allergic to peanuts", "min_score": 0.5}))["items"]
    assert found["memory_id"] == peanuts
    assert error(ask(server, "memory_search", {"query": "x", "min_score": 2}))["code"] == "invalid_input"


def test_objects_and_lists_may_come_as_json_text(holdfast: Holdfast, peanuts: str) -> None:
    """Some clients send them so."""
    server = local_server(holdfast, defaults=ALICE)
    asked = {"query": "peanuts", "filters": '{"topic": "food"}', "memory_types": '["long_term", "persona"]'}
    assert peanuts in str(answer(ask(server, "memory_search", asked)))
    answer(ask(server, "memory_add", {"content": "{not json", "metadata": '{"topic": "odd"}'}))
    assert error(ask(server, "memory_search", {"query": "x", "filters": "[1]"}))["code"] == "invalid_input"


def test_the_user_and_agent_come_from_the_call_the_server_or_the_key(holdfast: Holdfast) -> None:
    texts = iter(("Likes tea", "Lives in Rome", "Has two cats", "Plays chess"))  # a text of a user is kept once

    def written_by(principal: Principal, defaults: Defaults, **whose: str) -> tuple[str, str]:
        server = build_server(lambda _request: Gate(holdfast, principal), defaults=defaults)
        memory_id = answer(ask(server, "memory_add", {"content": next(texts), **whose}))["memory_id"]
        for user in ("alice", "bob", "carol"):
            if memory_id in str(holdfast.manager(user, "any").list_memories()):
                return user, holdfast.manager(user, "any").get(memory_id)["agent_id"]
        raise AssertionError("nobody has it")

    bound = Principal("k", "default", frozenset({Right.WRITE}), frozenset({"carol"}), frozenset({"c_agent"}))
    assert written_by(LOCAL, ALICE) == ("alice", "claude")
    assert written_by(LOCAL, ALICE, user_id="bob", agent_id="other") == ("bob", "other")
    assert written_by(bound, Defaults()) == ("carol", "c_agent")
    assert written_by(LOCAL, Defaults("bob")) == ("bob", "mcp")


# --- retention domains ------------------------------------------------------------------------------------------------


def test_part_of_a_policy_is_set_and_the_whole_of_it_is_told(holdfast: Holdfast, clock: FakeClock) -> None:
    server = local_server(holdfast)
    before = {domain: answer(ask(server, "retention_get", {"domain": domain})) for domain in ("memory", "rag")}
    assert before["memory"] == before["rag"] == holdfast.domains.get("rag")

    first = {"older_than_days": 9_999, "source_types": ["thought", "rumour", "thought"]}
    done = answer(ask(server, "retention_configure", {"domain": "rag", "config": first}))
    policy = {**before["rag"], "older_than_days": 3_650, "source_types": ["thought"]}
    assert done == {"success": True, "domain": "rag", "policy": policy, "updated_at": clock().isoformat()}

    clock.advance(hours=1)
    done = answer(ask(server, "retention_configure", {"domain": "rag", "config": {"limit": 1}}))
    policy = {**policy, "limit": 1}
    assert done == {"success": True, "domain": "rag", "policy": policy, "updated_at": clock().isoformat()}
    assert answer(ask(server, "retention_get", {"domain": "rag"})) == policy
    assert holdfast.domains.get("rag") == policy
    assert answer(ask(server, "retention_get", {"domain": "memory"})) == before["memory"]


def test_both_policies_are_told_together_for_older_callers(holdfast: Holdfast, clock: FakeClock) -> None:
    server = local_server(holdfast)
    answer(ask(server, "retention_configure", {"domain": "rag", "config": {"limit": 1}}))
    assert answer(ask(server, "retention_policies")) == {
        "version": 1,
        "updated_at": clock().isoformat(),
        "memory": holdfast.domains.get("memory"),
        "rag": {**holdfast.domains.get("memory"), "limit": 1},
    }


def test_resources_are_sorted_by_the_policy(holdfast: Holdfast) -> None:
    server = local_server(holdfast)
    answer(ask(server, "retention_configure", {"domain": "rag", "config": {"limit": 1}}))
    old = {"id": 7, "source_type": "action", "created_at": "2001-01-01T00:00:00Z", "own": [True, None]}
    kept = {"id": "k", "source_type": "rumour", "created_at": "2001-01-01T00:00:00Z"}
    sorted_ = answer(ask(server, "retention_apply", {"domain": "rag", "resources": [old, kept, old]}))
    assert sorted_["success"] is True
    assert sorted_["eligible"] == [old], "as they were given, and not more than the limit"
    assert sorted_["protected"] == [{"resource": kept, "reason": "invalid_source_type"}]
    assert sorted_["counts"] == {"eligible": 1, "protected": 1, "total": 3}


def test_resources_are_archived_and_the_answer_says_where_and_how_much(holdfast: Holdfast) -> None:
    server = local_server(holdfast)
    old = {"id": 7, "source_type": "action", "created_at": "2001-01-01T00:00:00Z", "own": [True, None]}
    archived = answer(ask(server, "retention_archive", {"domain": "rag", "resources": [old], "options": {"note": "n"}}))
    assert (archived["success"], archived["resource_count"]) == (True, 1)
    found = holdfast.domains.read_archive("rag", archived["archive_id"])
    assert found["resources"] == [old]
    assert archived["archive_id"] in archived["manifest_path"]
    assert archived["total_size_bytes"] > len(str(old)) / 2


def test_a_policy_by_which_memories_go_earlier_asks_first(holdfast: Holdfast) -> None:
    server = local_server(holdfast)
    holdfast.manager("alice", "claude").add("Thought of tea", metadata={"source_type": "thought"})
    asked = {"domain": "memory", "config": {"older_than_days": 1, "auto_gc": True}}
    said = error(ask(server, "retention_configure", asked))
    assert said["code"] == "confirmation_needed"
    assert "confirm" in said["advice"]
    assert not answer(ask(server, "retention_get", {"domain": "memory"}))["auto_gc"]
    assert answer(ask(server, "retention_configure", {**asked, "confirm": True}))["policy"]["auto_gc"]
    assert answer(ask(server, "sweep_preview", {"days_ahead": 2}))["counts"]["recycle"] == 1


# --- what is wrong ----------------------------------------------------------------------------------------------------

BAD: dict[str, list[tuple[dict[str, Any], str]]] = {
    "memory_add": [
        ({}, "invalid_input"),
        ({"content": ""}, "invalid_content"),
        ({"content": 5}, "invalid_input"),
        ({"content": "x\x00y"}, "invalid_content"),
        ({"content": "x" * 8_500_000}, "invalid_content"),
        ({"content": {"a": 1}}, "invalid_content"),
        ({"content": "x", "metadata": [1]}, "invalid_input"),
        ({"content": "x", "metadata": {"k": "v" * 300_000}}, "invalid_metadata"),
        ({"content": "x", "derived_from": ["nothing"]}, "invalid_input"),
    ],
    "memory_search": [
        ({}, "invalid_input"),
        ({"query": " "}, "invalid_content"),
        ({"query": "x" * 100_000}, "invalid_content"),
        ({"query": "x", "top_k": 0}, "invalid_input"),
        ({"query": "x", "top_k": 1_001}, "invalid_input"),
        ({"query": "x", "filters": {"a": {"near": 1}}}, "invalid_filter"),
        ({"query": "x", "memory_types": ["dreams"]}, "invalid_kind"),
    ],
    "memory_context": [
        ({"query": " "}, "invalid_content"),
        ({"max_tokens": 0}, "invalid_input"),
        ({"format": "yaml"}, "invalid_input"),
        ({"kinds": ["dreams"]}, "invalid_kind"),
        ({"kinds": ["working"]}, "invalid_input"),
    ],
    "memory_conflicts": [
        ({"memory_type": "dreams"}, "invalid_kind"),
        ({"memory_type": "entity"}, "invalid_kind"),
        ({"memory_type": "short_term"}, "invalid_kind"),
        ({"limit": 0}, "invalid_input"),
        ({"limit": 501}, "invalid_input"),
    ],
    "memory_list": [
        ({"memory_type": "dreams"}, "invalid_kind"),
        ({"memory_type": "short_term"}, "invalid_kind"),
        ({"limit": 0}, "invalid_input"),
        ({"cursor": "elsewhere"}, "invalid_input"),
        ({"filters": {"a": {"near": 1}}}, "invalid_filter"),
    ],
    "memory_get": [({}, "invalid_input"), ({"memory_id": "nothing"}, "not_found"), ({"memory_id": 5}, "invalid_input")],
    "memory_update": [
        ({"memory_id": "nothing", "content": "x"}, "not_found"),
        ({"memory_id": "<real>"}, "invalid_input"),
        ({"memory_id": "<real>", "content": ""}, "invalid_content"),
    ],
    "memory_correct": [
        ({"memory_id": "nothing", "content": "x"}, "not_found"),
        ({"memory_id": "<real>"}, "invalid_input"),
        ({"memory_id": "<real>", "content": ""}, "invalid_content"),
    ],
    "memory_history": [
        ({"memory_id": "nothing"}, "not_found"),
        ({"key": "nothing"}, "not_found"),
        ({}, "invalid_input"),
    ],
    "memory_revert": [
        ({"memory_id": "nothing", "to": 1}, "not_found"),
        ({"memory_id": "<real>", "to": 99}, "not_found"),
        ({"memory_id": "<real>", "to": 0}, "invalid_input"),
    ],
    "memory_delete": [
        ({"memory_id": "nothing"}, "not_found"),
        ({"memory_id": "<real>", "with_derived": 7}, "invalid_input"),
    ],
    "memory_restore": [({"memory_id": "nothing"}, "not_found"), ({"memory_id": "<real>"}, "conflict")],
    "memory_explain": [({"memory_id": "nothing"}, "not_found"), ({"memory_id": None}, "invalid_input")],
    "memory_rules": [({"memory_id": "<real>"}, "invalid_input"), ({"user_id": ""}, "invalid_scope")],
    "retention_configure": [
        ({"domain": "memory"}, "invalid_input"),
        ({"domain": "dreams", "config": {}}, "invalid_input"),
        ({"domain": "rag", "config": "everything"}, "invalid_input"),
        ({"domain": "rag", "config": {"older": 1}}, "invalid_input"),
    ],
    "retention_get": [({}, "invalid_input"), ({"domain": ["memory"]}, "invalid_input")],
    "retention_apply": [
        ({"domain": "memory"}, "invalid_input"),
        ({"domain": "memory", "resources": [5]}, "invalid_input"),
        ({"domain": "memory", "resources": [{}] * 20_001}, "invalid_input"),
    ],
    "retention_archive": [({"domain": "memory", "resources": "all"}, "invalid_input")],
    "retention_policies": [({"domain": "memory"}, "invalid_input")],
    "retention_gc_params": [
        ({}, "invalid_input"),
        ({"domain": "dreams"}, "invalid_input"),
        ({"domain": "rag", "raw_args": 5}, "invalid_input"),
    ],
    "sweep_preview": [
        ({"at": "soon"}, "invalid_input"),
        ({"at": "2030-01-01", "days_ahead": 3}, "invalid_input"),
        ({"days_ahead": -1}, "invalid_input"),
        ({"samples": 1_001}, "invalid_input"),
        ({"at": "2030-01-01T00:00:00"}, "invalid_input"),
    ],
}


def test_what_is_wrong_is_said_and_changes_nothing(holdfast: Holdfast, peanuts: str) -> None:
    before = holdfast.export_user("alice")["memories"]

    async def talk() -> None:
        async with Client(local_server(holdfast, defaults=ALICE)) as client:
            for name in NAMES:
                cases = [*BAD[name], ({**good(name, peanuts), "bogus": 1}, "invalid_input")]
                for arguments, code in cases:
                    asked = {key: peanuts if value == "<real>" else value for key, value in arguments.items()}
                    said = error(await client.call_tool(name, asked))
                    assert said["code"] == code, (name, said)
                    assert len(said["message"]) < 2_000, "however large the input, the answer is not"

    run(talk)
    assert holdfast.export_user("alice")["memories"] == before


def test_a_tool_works_on_the_memory_of_one_user_and_agent(holdfast: Holdfast) -> None:
    server = local_server(holdfast, defaults=ALICE)
    for scope in ({"user_id": ""}, {"user_id": "*"}, {"agent_id": "*"}, {"user_id": "x" * 300}):
        assert error(ask(server, "memory_search", {"query": "tea", **scope}))["code"] == "invalid_scope"


def test_a_server_that_knows_no_user_asks_for_one(holdfast: Holdfast) -> None:
    several = Principal("k", "default", frozenset({Right.READ}), None, frozenset({"a", "b"}))
    server = build_server(lambda _request: Gate(holdfast, several), keyed=True)
    assert "user_id" in error(ask(server, "memory_search", {"query": "tea"}))["message"]
    assert "agent_id" in error(ask(server, "memory_search", {"query": "tea", "user_id": "u"}))["message"]


def test_a_tool_that_is_not_there_is_an_error_of_the_protocol(holdfast: Holdfast) -> None:
    async def talk() -> None:
        async with Client(local_server(holdfast)) as client:
            with pytest.raises(MCPError, match="there is no tool 'memory_burn'; there are memory_add, "):
                await client.call_tool("memory_burn")

    run(talk)


def test_a_quota_a_hold_and_a_conflict_are_told_with_what_to_do(holdfast: Holdfast, peanuts: str) -> None:
    server = local_server(holdfast, defaults=ALICE)
    holdfast.quotas.set("long_term", max_memories=1, user_id="alice")
    full = error(ask(server, "memory_add", {"content": "One more"}))
    assert (full["code"], full["retryable"]) == ("quota_exceeded", False)
    assert "memory_delete" in full["advice"]
    holdfast.holds.add(user_id="alice", reason="lawsuit", author="legal")
    assert error(ask(server, "memory_delete", {"memory_id": peanuts}))["code"] == "held"
    assert answer(ask(server, "memory_explain", {"memory_id": peanuts}))["protected_by"][0]["reason"] == "lawsuit"


def test_what_fails_within_is_told_without_names_of_files(holdfast: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    server = local_server(holdfast, defaults=ALICE)
    holdfast.close()
    with caplog.at_level(logging.ERROR, "holdfast.errors"):
        said = error(ask(server, "memory_search", {"query": "tea"}))
    assert said["code"] == "closed"
    reference = said["message"].rstrip(".").split()[-1]
    assert reference in caplog.text


def test_an_unexpected_error_is_logged_and_nothing_of_it_shown(
    holdfast: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_request: object) -> Gate:
        raise RuntimeError("/secret/path is broken")

    server = build_server(broken, defaults=ALICE)
    with caplog.at_level(logging.ERROR, "holdfast.errors"):
        result = ask(server, "memory_search", {"query": "tea"})
    assert error(result)["code"] == "error"
    assert "secret" not in result.model_dump_json()
    assert "/secret/path" in caplog.text

    async def talk() -> None:
        async with Client(server) as client:
            with pytest.raises(MCPError) as caught:
                await client.read_resource("holdfast://users/alice/memories")
            assert "secret" not in str(caught.value.error)
            with pytest.raises(MCPError):
                await client.list_tools()

    run(talk)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A tool, and arguments by the right names with anything in them."""
    name = draw(st.sampled_from([name for name in NAMES if name != "retention_policies"]))
    fields = sorted(TOOLS[name].inputs.model_fields)
    given = draw(st.dictionaries(st.sampled_from(fields), json_values, max_size=4))
    return name, {**(GOOD[name] if draw(st.booleans()) else {}), **given}


@soak
def test_nothing_that_a_client_sends_is_more_than_a_wrong_argument(holdfast: Holdfast, peanuts: str) -> None:
    server = local_server(holdfast, defaults=ALICE)

    async def talk() -> None:
        async with Client(server) as client:
            await client.list_tools()  # so that every answer is held against its schema

            async def one(name: str, arguments: dict[str, Any]) -> None:
                result = await client.call_tool(name, json.loads(json.dumps(arguments)))
                if result.is_error:
                    assert error(result)["code"] not in ("error", "storage"), arguments

            made: list[tuple[str, dict[str, Any]]] = []

            @settings(max_examples=times(30), database=None)
            @given(calls())
            def collect(call: tuple[str, dict[str, Any]]) -> None:
                made.append(call)

            collect()
            for name, arguments in made:
                await one(name, arguments)

    run(talk)


def test_a_model_adds_a_text_once_sees_what_is_close_and_keeps_out_what_is_unwanted(holdfast: Holdfast) -> None:
    server = local_server(holdfast, defaults=ALICE)
    for content in ("The car is red", "Skiing was great", "Two cats at home", "Her sister plays the piano"):
        answer(ask(server, "memory_add", {"content": content}))
    first = answer(ask(server, "memory_add", {"content": "Ann lives in Paris"}))
    again = answer(ask(server, "memory_add", {"content": "ann lives in PARIS."}))
    assert (again["operation"], again["memory_id"]) == ("exists", first["memory_id"])
    added = answer(ask(server, "memory_add", {"content": "Ann lives in Lyon"}))
    assert [one["memory_id"] for one in added["similar"]] == [first["memory_id"]]
    (pair,) = answer(ask(server, "memory_conflicts", {}))["items"]
    assert pair["why"] == "They say the same, but for 'paris' and 'lyon'."

    gone = answer(ask(server, "memory_delete", {"memory_id": first["memory_id"], "keep_out": True}))

    assert gone["kept_out"]
    assert answer(ask(server, "memory_add", {"content": "Ann lives in Paris"}))["operation"] == "kept_out"
    assert error(ask(server, "memory_restore", {"memory_id": first["memory_id"]}))["code"] == "kept_out"
