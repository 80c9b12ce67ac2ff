"""A domain's policy is brought into bounds in one place: whatever surface a value comes by, the same becomes of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from api.client import Client
from cli.shell import Shell
from clocks import FakeClock
from holdfast import Holdfast, InvalidInputError, aio
from holdfast.core.domains import MAX_KEPT
from holdfast.edges.rest.app import build_app
from mcp_clients import answer, ask, error, local_server

#: The policy before each case: nothing in it is a default, so that a value that stays can be told from one.
BEFORE: dict[str, Any] = {
    "older_than_days": 45,
    "source_types": ["action", "thought"],
    "keep_session_ids": ["s-before"],
    "keep_context_ids": [7],
    "limit": 500,
    "vacuum": True,
    "auto_gc": False,
}
STAYS = object()

#: What is given for a field, and what becomes of it.
CASES: list[tuple[str, Any, Any]] = [
    ("older_than_days", 60, 60),
    ("older_than_days", 1.2, 2),
    ("older_than_days", 59.000001, 60),
    ("older_than_days", 60.0, 60),
    ("older_than_days", 0, 1),
    ("older_than_days", -3, 1),
    ("older_than_days", 0.25, 1),
    ("older_than_days", 3_650.5, 3_650),
    ("older_than_days", 99_999, 3_650),
    ("older_than_days", 10**15, 3_650),
    ("older_than_days", "60", STAYS),
    ("older_than_days", "soon", STAYS),
    ("older_than_days", True, STAYS),
    ("older_than_days", False, STAYS),
    ("older_than_days", None, STAYS),
    ("older_than_days", [60], STAYS),
    ("older_than_days", {"days": 60}, STAYS),
    ("limit", 2.9, 2),
    ("limit", 2, 2),
    ("limit", 0, 1),
    ("limit", 0.5, 1),
    ("limit", 20_000.9, 20_000),
    ("limit", 1_000_000, 20_000),
    ("limit", "60", STAYS),
    ("limit", True, STAYS),
    ("limit", None, STAYS),
    ("source_types", ["thought"], ["thought"]),
    ("source_types", [1, "thought"], ["thought"]),
    ("source_types", ["thought", "context", "thought"], ["thought", "context"]),
    ("source_types", ["rumour", "action", None, {"x": 1}], ["action"]),
    ("source_types", ["Thought"], STAYS),
    ("source_types", ["rumour"], STAYS),
    ("source_types", [], STAYS),
    ("source_types", "thought", STAYS),
    ("source_types", '["thought"]', STAYS),
    ("source_types", {"thought": True}, STAYS),
    ("source_types", None, STAYS),
    ("keep_session_ids", ["a", "b", "a"], ["a", "b"]),
    ("keep_session_ids", ["a", 4, None, "", True], ["a"]),
    ("keep_session_ids", [4], []),
    ("keep_session_ids", [], []),
    ("keep_session_ids", "a", STAYS),
    ("keep_session_ids", '["a"]', STAYS),
    ("keep_session_ids", {"a": 1}, STAYS),
    ("keep_context_ids", [4, 5, 4], [4, 5]),
    ("keep_context_ids", ["4"], []),
    ("keep_context_ids", [4, "5", 6.0, 6.5, -1, 0, True, None], [4, 6]),
    ("keep_context_ids", [], []),
    ("keep_context_ids", 4, STAYS),
    ("keep_context_ids", "[4]", STAYS),
    ("vacuum", False, False),
    ("vacuum", "no", STAYS),
    ("vacuum", "false", STAYS),
    ("vacuum", 0, STAYS),
    ("vacuum", None, STAYS),
    ("auto_gc", "yes", STAYS),
    ("auto_gc", "true", STAYS),
    ("auto_gc", 1, STAYS),
    ("auto_gc", [True], STAYS),
]

#: The same by the options that the command line has beside ``--config``.
OPTIONS: list[tuple[tuple[str, ...], str, Any]] = [
    (("--older-than-days", "1.2"), "older_than_days", 2),
    (("--older-than-days", "99999"), "older_than_days", 3_650),
    (("--older-than-days", "nan"), "older_than_days", STAYS),
    (("--limit", "2.9"), "limit", 2),
    (("--limit", "0"), "limit", 1),
    (("--source-type", "rumour", "--source-type", "thought"), "source_types", ["thought"]),
    (("--source-type", "rumour"), "source_types", STAYS),
    (("--keep-session", ""), "keep_session_ids", []),
    (("--keep-context", "4", "--keep-context", "6.5", "--keep-context", "0"), "keep_context_ids", [4]),
    (("--no-vacuum",), "vacuum", False),
]

Configure = Callable[[dict[str, Any]], Mapping[str, Any]]


def by_python(holdfast: Holdfast, _home: Path) -> Configure:
    return lambda config: holdfast.domains.configure("rag", config)


def by_aio(holdfast: Holdfast, _home: Path) -> Configure:
    return lambda config: asyncio.run(aio.Holdfast(holdfast).domains.configure("rag", config))


def by_rest(holdfast: Holdfast, _home: Path) -> Configure:
    app = build_app(holdfast, keys_required=False)

    def configure(config: dict[str, Any]) -> dict[str, Any]:
        with Client(app) as client:
            response = client.patch("/v1/domains/rag", {"config": config})
        assert response.status_code == 200, response.text
        said: dict[str, Any] = response.json()
        return said

    return configure


def by_mcp(holdfast: Holdfast, _home: Path) -> Configure:
    server = local_server(holdfast)
    return lambda config: answer(ask(server, "retention_configure", {"domain": "rag", "config": config}))


def by_mcp_as_text(holdfast: Holdfast, _home: Path) -> Configure:
    """Some clients hand the whole object over as JSON text."""
    server = local_server(holdfast)
    return lambda config: answer(ask(server, "retention_configure", {"domain": "rag", "config": json.dumps(config)}))


def by_command(_holdfast: Holdfast, home: Path) -> Configure:
    shell = Shell(home)
    return lambda config: shell.json("domain", "set", "rag", "--config", json.dumps(config))


SURFACES = [by_python, by_aio, by_rest, by_mcp, by_mcp_as_text, by_command]


@pytest.mark.parametrize("surface", SURFACES)
def test_every_surface_makes_the_same_of_a_value(
    holdfast: Holdfast, home: Path, clock: FakeClock, surface: Callable[[Holdfast, Path], Configure]
) -> None:
    configure = surface(holdfast, home)
    wrong = []
    for field, given, expected in CASES:
        holdfast.domains.configure("rag", BEFORE)
        clock.advance(seconds=1)
        wanted = {**BEFORE, field: BEFORE[field] if expected is STAYS else expected}
        done = configure({field: given})
        assert (done["success"], done["domain"]) == (True, "rag")
        if not done["policy"] == holdfast.domains.get("rag") == wanted:
            wrong.append((field, given, done["policy"][field]))
        elif repr(done["policy"]) != repr(wanted):  # 1, 1.0 and True are equal, and not the same
            wrong.append((field, given, done["policy"]))
    assert wrong == []


@pytest.mark.parametrize("surface", SURFACES)
def test_several_fields_at_once_and_none(
    holdfast: Holdfast, home: Path, surface: Callable[[Holdfast, Path], Configure]
) -> None:
    holdfast.domains.configure("rag", BEFORE)
    configure = surface(holdfast, home)
    assert configure({})["policy"] == BEFORE
    both = configure({"older_than_days": 1.2, "limit": "60", "keep_context_ids": ["4"]})["policy"]
    assert both == {**BEFORE, "older_than_days": 2, "keep_context_ids": []}
    assert holdfast.domains.get("memory")["older_than_days"] == 30


@pytest.mark.parametrize(("options", "field", "expected"), OPTIONS)
def test_options_of_the_command_line_are_the_same_fields(
    holdfast: Holdfast, home: Path, options: tuple[str, ...], field: str, expected: Any
) -> None:
    holdfast.domains.configure("rag", BEFORE)
    wanted = {**BEFORE, field: BEFORE[field] if expected is STAYS else expected}
    assert Shell(home).json("domain", "set", "rag", *options)["policy"] == wanted
    assert Shell(home).json("domain", "set", "rag", "--config", '{"limit": 3}', "--limit", "4")["policy"]["limit"] == 4


@pytest.mark.parametrize(
    "config", [{"older": 1}, {"limit": 1, "Limit": 2}, {"keep_context_ids": list(range(1, MAX_KEPT + 2))}]
)
def test_what_no_policy_can_have_is_refused_by_every_surface_and_changes_nothing(
    holdfast: Holdfast, home: Path, config: dict[str, Any]
) -> None:
    holdfast.domains.configure("rag", BEFORE)
    with pytest.raises(InvalidInputError):
        holdfast.domains.configure("rag", config)
    with Client(build_app(holdfast, keys_required=False)) as client:
        refused = client.patch("/v1/domains/rag", {"config": config})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input")
    asked = {"domain": "rag", "config": config}
    assert error(ask(local_server(holdfast), "retention_configure", asked))["code"] == "invalid_input"
    shell = Shell(home)
    assert shell.error("domain", "set", "rag", "--config", json.dumps(config))[1]["code"] == "invalid_input"
    assert holdfast.domains.get("rag") == BEFORE


@pytest.mark.parametrize("text", ["{", "[1]", '"limit"', "3"])
def test_a_config_that_is_no_object_is_refused_on_the_command_line(home: Path, text: str) -> None:
    _, said = Shell(home).error("domain", "set", "rag", "--config", text)
    assert said["code"] == "invalid_input"
    assert "--config" in said["message"]


# --- the parameters of a garbage collection -----------------------------------------------------------------------------


def params_by_rest(holdfast: Holdfast, _home: Path, args: dict[str, Any]) -> Any:
    with Client(build_app(holdfast, keys_required=False)) as client:
        return client.post("/v1/domains/rag/gc-params", args).json()


def params_by_mcp(holdfast: Holdfast, _home: Path, args: dict[str, Any]) -> Any:
    return answer(ask(local_server(holdfast), "retention_gc_params", {"domain": "rag", **args}))


def params_by_command(_holdfast: Holdfast, home: Path, args: dict[str, Any]) -> Any:
    names = {"raw_args": "--args", "validated_args": "--validated"}
    options = [part for name, value in args.items() for part in (names[name], json.dumps(value))]
    return Shell(home).json("domain", "gc-params", "rag", *options)


@pytest.mark.parametrize("surface", [params_by_rest, params_by_mcp, params_by_command])
@pytest.mark.parametrize(
    "args",
    [
        {},
        {"raw_args": {"limit": 2.9, "older_than_days": "60"}},
        {"raw_args": {"limit": 9}, "validated_args": {"limit": 8, "dry_run": True, "targets": ["x"]}},
        {"validated_args": {"limit": 8}},
        {"raw_args": {"keep_session_ids": ["s1"], "vacuum": "no", "auto_gc": True}},
    ],
)
def test_the_parameters_of_a_collection_are_the_same_by_every_surface(
    holdfast: Holdfast, home: Path, surface: Callable[..., Any], args: dict[str, Any]
) -> None:
    holdfast.domains.configure("rag", BEFORE)
    expected = holdfast.domains.resolve_gc_params("rag", **args)
    assert {"older_than_days", "source_types", "keep_session_ids", "keep_context_ids", "limit", "vacuum"} <= set(
        expected
    )
    assert surface(holdfast, home, args) == expected


def test_the_policies_of_all_domains_say_their_version_and_when_they_were_changed(
    holdfast: Holdfast, home: Path, clock: FakeClock
) -> None:
    with Client(build_app(holdfast, keys_required=False)) as client:
        fresh = client.get("/v1/domains").json()
        assert (fresh["version"], fresh["updated_at"]) == (1, None)
        holdfast.domains.configure("rag", BEFORE)
        listed = client.get("/v1/domains").json()
    assert listed == holdfast.domains.list() == answer(ask(local_server(holdfast), "retention_policies"))
    assert listed == Shell(home).json("domain", "list")
    assert (listed["updated_at"], listed["rag"]) == (clock().isoformat(), BEFORE)
