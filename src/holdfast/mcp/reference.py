"""The reference page of the tools and resources, made from their tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from holdfast.mcp.calling import Defaults
from holdfast.mcp.catalogue import TOOLS, shown
from holdfast.mcp.resources import TEMPLATES
from holdfast.mcp.tools import Tool

_MADE: Final = "<!-- Made from the code by `make reference`; edit the code, not this page. -->"
_ABOUT: Final = """\
What `holdfast mcp` offers over stdio, and `holdfast serve` at `/mcp`; [how to set it up](../howto/mcp.md). A tool that
reaches a *memory* takes `user_id`, `agent_id` and `session_id` too: whose memory is meant, unless the server or the key
says it. A tool that reaches the *tenant* is refused for keys that are bound to users or agents."""
_WHOSE: Final = ("user_id", "agent_id", "session_id")


def render() -> str:
    """The page."""
    parts = ["# MCP: tools and resources", _MADE, _ABOUT, "## Tools"]
    for tool in TOOLS.values():
        parts += _section(tool)
    parts.append("## Resources")
    rows = [f"| `{one.uri}` | {one.about} | {one.right.value} |" for one in TEMPLATES]
    parts.append("\n".join(("| resource | what it is | right |", "|---|---|---|", *rows)))
    return "\n\n".join(parts) + "\n"


def _section(tool: Tool) -> Iterator[str]:
    seen = shown(tool, Defaults(), keyed=True)
    hints = tool.hints
    nature = "only looks" if hints.read_only_hint else "can destroy" if hints.destructive_hint else "only adds"
    yield f"### `{tool.name}`"
    yield f"**{tool.title}.** {tool.about}"
    yield f"Right: `{tool.right.value}`. Reaches: {tool.reach.value}. It {nature}."
    inputs = {name: one for name, one in seen.input_schema["properties"].items() if name not in _WHOSE}
    if inputs:
        required = seen.input_schema.get("required", ())
        yield _table("takes", inputs, dict.fromkeys(required, "yes"))
    gives = seen.output_schema or {}
    yield _table("gives", gives["properties"], None)
    for name, inner in gives.get("$defs", {}).items():
        yield _table(f"{name} has", inner["properties"], None)


def _table(title: str, fields: Mapping[str, Any], required: Mapping[str, str] | None) -> str:
    extra = required is not None
    lines = [f"| {title} | type |{' needed |' if extra else ''} meaning |", f"|---|---|{'---|' if extra else ''}---|"]
    for name, one in fields.items():
        needed = f" {(required or {}).get(name, '')} |" if extra else ""
        lines.append(f"| `{name}` | {_type(one)} |{needed} {_cell(one.get('description', ''))} |")
    return "\n".join(lines)


def _type(schema: Mapping[str, Any]) -> str:
    """A type in a word or two."""
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(one) for one in schema["anyOf"] if one.get("type") != "null"))
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    return str(schema.get("type", "any"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
