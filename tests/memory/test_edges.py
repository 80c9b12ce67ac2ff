"""One story of corrections, told at every edge: what Python can ask for, the others can, and they answer the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from api.client import Client
from cli.shell import Shell
from holdfast import Holdfast, HoldfastError
from holdfast import aio as async_holdfast
from holdfast.edges.operations.catalog import OPERATIONS
from holdfast.edges.rest.app import build_app
from mcp_clients import ask, local_server

WHO = {"user_id": "ann", "agent_id": "guide"}
#: The operation of each verb.
VERBS = {
    "add": "add_memory",
    "retrieve": "recall",
    "context": "read_context",
    "get": "get_memory",
    "update": "update_memory",
    "correct": "correct_memory",
    "history": "get_history",
    "revert": "revert_memory",
    "delete": "delete_memory",
    "restore": "restore_memory",
    "conflicts": "list_conflicts",
    "kept_out": "list_kept_out",
    "lift": "lift_kept_out",
    "explain": "explain_memory",
}
#: Those that are called otherwise on the command line, and what they take without a name.
COMMANDS = {"retrieve": ["search"], "kept_out": ["kept-out", "list"], "lift": ["kept-out", "lift"]}
BARE = ("memory_id", "query", "content")
Ask = Callable[..., Any]


class RefusedError(Exception):
    """What an edge refused; its code."""


def _to_data(given: Any) -> Any:
    """What a verb gives, as data."""
    data = given.to_dict() if hasattr(given, "to_dict") else given
    return data["items"] if isinstance(data, dict) and "items" in data else data


@contextmanager
def python(home: Path) -> Iterator[Ask]:
    with Holdfast.open(home=home) as holdfast:
        memory = holdfast.manager(*WHO.values())

        def ask_python(verb: str, **given: Any) -> Any:
            try:
                return _to_data(getattr(memory, verb)(**given))
            except HoldfastError as problem:
                raise RefusedError(problem.code) from problem

        yield ask_python


@contextmanager
def aio(home: Path) -> Iterator[Ask]:
    with asyncio.Runner() as runner:
        holdfast = runner.run(_open(home))
        memory = holdfast.manager(*WHO.values())

        def ask_aio(verb: str, **given: Any) -> Any:
            try:
                return _to_data(runner.run(getattr(memory, verb)(**given)))
            except HoldfastError as problem:
                raise RefusedError(problem.code) from problem

        yield ask_aio
        runner.run(holdfast.close())


async def _open(home: Path) -> async_holdfast.Holdfast:
    return await async_holdfast.Holdfast.open(home=home)


@contextmanager
def rest(home: Path) -> Iterator[Ask]:
    with Holdfast.open(home=home) as holdfast, Client(build_app(holdfast, keys_required=False)) as client:

        def ask_rest(verb: str, **given: Any) -> Any:
            row = OPERATIONS[VERBS[verb]]
            path = "/v1" + row.path.format(**given)
            others = {name: value for name, value in given.items() if name not in row.in_path}
            in_body = row.method in ("POST", "PATCH")
            whose = WHO if row.in_path and in_body else {}
            body = others if whose else {**WHO, **others}
            how: dict[str, Any] = {"json": body, "params": whose} if in_body else {"params": body}
            answer = client.request(row.method, path, **how)
            if answer.status_code >= 400:
                raise RefusedError(answer.json()["code"])
            return _to_data(answer.json())

        yield ask_rest


@contextmanager
def mcp(home: Path) -> Iterator[Ask]:
    with Holdfast.open(home=home) as holdfast, python_of(holdfast) as govern:
        server = local_server(holdfast)

        def ask_mcp(verb: str, **given: Any) -> Any:
            tool = OPERATIONS[VERBS[verb]].tool
            if tool is None:  # what governs is not for an agent
                return govern(verb, **given)
            said = ask(server, tool, {**WHO, **given})
            if said.is_error:
                raise RefusedError(said.structured_content["error"]["code"])
            return _to_data(said.structured_content)

        yield ask_mcp


@contextmanager
def python_of(holdfast: Holdfast) -> Iterator[Ask]:
    memory = holdfast.manager(*WHO.values())
    yield lambda verb, **given: _to_data(getattr(memory, verb)(**given))


@contextmanager
def cli(home: Path) -> Iterator[Ask]:
    shell = Shell(home)

    def ask_cli(verb: str, **given: Any) -> Any:
        bare = [
            str(given.pop(name)) for name in BARE if name in given and not (verb == "history" and name != "memory_id")
        ]
        options: list[str] = []
        for name, value in given.items():
            option = "--" + {"memory_type": "kind", "memory_types": "kind", "kinds": "kind"}.get(name, name).replace(
                "_", "-"
            )
            if value not in (None, False, "all"):
                options += [option] if value is True else [option, str(value)]
        result = shell(*COMMANDS.get(verb, [verb]), *bare, *options, "-u", "ann", "-a", "guide", "--json")
        if result.exit_code:
            raise RefusedError(json.loads(result.stderr)["error"]["code"])
        return _to_data(json.loads(result.stdout))

    yield ask_cli


EDGES = {"python": python, "aio": aio, "rest": rest, "mcp": mcp, "cli": cli}


@pytest.mark.parametrize("edge", EDGES)
def test_corrections_are_the_same_at_every_edge(edge: str, home: Path) -> None:
    with EDGES[edge](home) as call:
        _tell_corrections(call)
        _tell_same_texts(call, edge)
        _tell_what_is_kept_out(call)


@pytest.mark.parametrize("edge", EDGES)
def test_a_context_has_the_same_options_at_every_edge(edge: str, home: Path) -> None:
    with EDGES[edge](home) as call:
        for place in ("Lyon", "Paris", "Vienna", "Rome"):
            call("add", content=f"Ann takes the night train to {place} with a window seat.")
        whole = call("context", query="night trains", max_tokens=400)
        assert whole["text"].count("night train") == 4
        for form in ("text", "messages", "json"):
            small = call("context", query="night trains", max_tokens=60, format=form)
            assert small["text"].count("night train") < 4
            if edge == "mcp":
                assert small["left_out"] >= 1
            else:
                assert small["tokens"] <= 60
                assert {one["memory_id"] for one in small["left_out"]}
                assert all(one["reason"] for one in small["left_out"])
        assert (
            call("context", query="quantum chromodynamics", kinds="episodic" if edge == "cli" else ["episodic"])["text"]
            == ""
        )


@pytest.mark.parametrize("edge", EDGES)
def test_where_no_kinds_are_named_models_and_people_ask_all_and_programs_long_term(edge: str, home: Path) -> None:
    with EDGES[edge](home) as call:
        call("add", content="You book night trains before flights.", memory_type="persona")
        found = [one["content"] for one in call("retrieve", query="Who books night trains?")]
        assert found == ([] if edge in ("python", "aio", "rest") else ["You book night trains before flights."])
        assert "night trains" in call("context", query="Who books night trains?")["text"]


def _refuse(call: Ask, code: str, verb: str, **given: Any) -> None:
    with pytest.raises(RefusedError) as refused:
        call(verb, **given)
    assert str(refused.value) == code


def _tell_corrections(call: Ask) -> None:
    first = call("add", content="Ann lives in Paris.", key="home")
    one, before = first["memory_id"], len(call("retrieve", query="where does Ann live?", memory_types="all"))
    assert (first["operation"], before) == ("add", 1)
    by_key = call("add", content="Ann lives in Lyon.", key="home")
    assert (by_key["operation"], by_key["version"], by_key["memory_id"]) == ("corrected", 2, one)
    by_id = call("add", content="Ann lives in Nantes.", supersedes=one)
    assert (by_id["operation"], by_id["version"]) == ("corrected", 3)
    assert call("correct", memory_id=one, content="Ann lives in Rome.", reason="She moved.")["version"] == 4
    assert call("update", memory_id=one, content="Ann lives in Bonn.")["content"] == "Ann lives in Bonn."
    said = call("history", key="home")
    assert said == call("history", memory_id=one)
    assert [one["content"].split()[-1] for one in said] == ["Paris.", "Lyon.", "Nantes.", "Rome.", "Bonn."]
    assert [one["reason"] for one in said] == [None, None, "She moved.", None, None]
    then = said[1]["started_at"]
    assert call("get", memory_id=one, as_of=then)["content"] == "Ann lives in Lyon."
    (found,) = call("retrieve", query="where does Ann live?", as_of=then)
    assert (found["memory_id"], found["content"]) == (one, "Ann lives in Lyon.")
    assert call("revert", memory_id=one, to=1)["version"] == 6
    assert call("get", memory_id=one)["content"] == "Ann lives in Paris."
    assert "after it was corrected" in call("explain", memory_id=one)["summary"]
    _refuse(call, "not_found", "revert", memory_id=one, to=99)
    _refuse(call, "not_found", "get", memory_id=one, as_of="2020-01-01")
    _refuse(call, "not_found", "add", content="Ann lives in Turin.", supersedes="01a1e527-d8f4-7fdf-9185-7eea44ab15b6")
    _refuse(call, "not_found", "history", key="work")
    _refuse(call, "invalid_input", "history")
    _refuse(call, "invalid_kind", "add", content="Ann", memory_type="entity", key="note")


def _tell_same_texts(call: Ask, edge: str) -> None:
    known = call("history", key="home")[-1]
    same = call("add", content="ann lives in PARIS", dedupe=True)
    assert (same["operation"], "corrected_to" in same) == ("exists", False)
    ended = call("add", content="Ann lives in Lyon", dedupe=True)
    assert (ended["operation"], ended["corrected_to"]) == ("exists", known["content"])
    if edge == "mcp":
        assert call("add", content="ann lives in PARIS")["operation"] == "exists", "the default for an agent"
    close = call("add", content="Ann lives in Paris with Bob.", similar=2)
    assert same["memory_id"] in [one["memory_id"] for one in close["similar"]]
    ids = [call("add", content=f"Carl works in {place}.")["memory_id"] for place in ("Kiel", "Bern")]
    pairs = [{one["older"]["memory_id"], one["newer"]["memory_id"]} for one in call("conflicts", limit=5)]
    assert set(ids) in pairs
    assert call("retrieve", query="Where does Ann live?", min_score=1.0) == []


def _tell_what_is_kept_out(call: Ask) -> None:
    one = call("add", content="Ann was ill in May.")["memory_id"]
    assert call("delete", memory_id=one, keep_out=True)["kept_out"] is True
    again = call("add", content="ann was ill in may")
    assert (again["operation"], again["memory_id"]) == ("kept_out", one)
    _refuse(call, "kept_out", "add", content="Ann was ill in May", key="health")
    _refuse(call, "kept_out", "restore", memory_id=one)
    assert [kept["memory_id"] for kept in call("kept_out")] == [one]
    call("lift", memory_id=one)
    assert call("kept_out") == []
    assert call("restore", memory_id=one)["memory_id"] == one
