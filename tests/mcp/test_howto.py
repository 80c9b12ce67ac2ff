"""The page on MCP is true: what it has to be pasted can be read and starts, and its tables are those of the code."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import typer

from holdfast.edges.cli.app import app
from holdfast.edges.mcp.catalogue import TOOLS
from holdfast.edges.mcp.resources import TEMPLATES
from holdfast.edges.reference import render

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "mcp.md").read_text(encoding="utf-8")


def pasted() -> list[dict[str, Any]]:
    """The servers of every configuration on the page."""
    found = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
    return [(one.get("mcpServers") or one["servers"])["holdfast"] for one in found]


def check_command(words: list[str]) -> None:
    """That ``holdfast`` has the command, and the command its options."""
    found: Any = typer.main.get_command(app)
    rest = list(words)
    while rest and hasattr(found, "commands"):
        found = found.commands[rest.pop(0)]
    options = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {word for word in rest if word.startswith("--")} <= options, words


def test_every_configuration_names_a_command_or_an_address_that_there_is() -> None:
    servers = pasted()
    assert len(servers) == 5
    for server in servers:
        if "command" in server:
            assert server["command"] == "holdfast"
            check_command(server["args"])
        else:
            assert server["url"].endswith("/mcp")
            assert server["headers"]["Authorization"].startswith("Bearer ")


def test_every_command_on_the_page_is_there() -> None:
    commands = [shlex.split(line) for line in re.findall(r"^\$ (.*)$", PAGE, re.MULTILINE)]
    assert len(commands) == 4
    for words in commands:
        if words[0] == "claude" and "--" in words:
            words = words[words.index("--") + 1 :]  # noqa: PLW2901 - what it starts is ours
        if words[0] == "holdfast":
            check_command(words[1:])


def test_the_table_of_tools_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| (\w+) \| (\w+) \|$", PAGE, re.MULTILINE)
    assert rows == [(tool.name, tool.right.value, tool.reach.value) for tool in TOOLS.values()]
    assert re.findall(r"^\| `(holdfast://\S+)` \|", PAGE, re.MULTILINE) == [str(one.uri) for one in TEMPLATES]


def test_the_reference_says_what_the_code_says() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "mcp.md"
    assert page.read_text(encoding="utf-8") == render(), "renew it: python -m holdfast.edges.reference mcp"
