"""The page on MCP is true: what it has to be pasted can be read and starts, and its tables are those of the code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from docs.pages import check_command
from holdfast.edges.mcp.resources import TEMPLATES
from holdfast.edges.operations.catalog import TOOLS

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "mcp.md").read_text(encoding="utf-8")


def pasted() -> list[dict[str, Any]]:
    """The servers of every configuration on the page."""
    found = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
    return [(one.get("mcpServers") or one["servers"])["holdfast"] for one in found]


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


def test_the_table_of_tools_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| (\w+) \| (\w+) \|$", PAGE, re.MULTILINE)
    assert rows == [(tool.tool, tool.right.value, tool.reach.value) for tool in TOOLS.values()]
    assert re.findall(r"^\| `(holdfast://\S+)` \|", PAGE, re.MULTILINE) == [str(one.uri) for one in TEMPLATES]
