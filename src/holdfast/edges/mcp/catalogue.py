"""The catalogue: every tool there is, and how it is shown to a client."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from mcp_types import Tool as ShownTool

from holdfast.edges.mcp import lifecycle, memories, sweeps
from holdfast.edges.mcp.calls import DEFAULT_AGENT, Defaults
from holdfast.edges.mcp.tools import Reach, Tool

#: Every tool by its name, in the order in which clients see them.
TOOLS: Final = MappingProxyType({tool.name: tool for tool in (*memories.TOOLS, *lifecycle.TOOLS, *sweeps.TOOLS)})


def shown(tool: Tool, defaults: Defaults, *, keyed: bool) -> ShownTool:
    """A tool as a client sees it; who is meant if a call does not say is told with its arguments."""
    return ShownTool(
        name=tool.name,
        title=tool.title,
        description=tool.about,
        input_schema=_input_schema(tool, defaults, keyed=keyed),
        output_schema=tool.output.model_json_schema(mode="serialization"),
        annotations=tool.hints,
        _meta={"right": tool.right.value, "reach": tool.reach.value},
    )


def _input_schema(tool: Tool, defaults: Defaults, *, keyed: bool) -> dict[str, Any]:
    schema = tool.inputs.model_json_schema()
    if tool.reach is not Reach.MEMORY:
        return schema
    user, agent = schema["properties"]["user_id"], schema["properties"]["agent_id"]
    if defaults.user_id is not None:
        user["description"] += f" Left out, it is {defaults.user_id!r}."
    elif keyed:
        user["description"] += " Can be left out only if the key is for one user."
    else:
        schema["properties"]["user_id"] = {"description": user["description"], "title": user["title"], "type": "string"}
        schema["required"] = ["user_id", *schema.get("required", ())]
    if keyed and defaults.agent_id is None:
        agent["description"] += f" Left out, it is the key's only agent, or {DEFAULT_AGENT!r}."
    else:
        agent["description"] += f" Left out, it is {defaults.agent_id or DEFAULT_AGENT!r}."
    return schema
