"""Prompts: what a user of a client can put into a conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mcp_types import GetPromptResult, Prompt, PromptArgument, PromptMessage, TextContent

from holdfast.core.audit import MCP
from holdfast.core.errors import NotFoundError, quote
from holdfast.edges.access.gate import Gate
from holdfast.edges.mcp.tools import Defaults, read_input
from holdfast.edges.operations.catalog import OPERATIONS

NAME: Final = "memory"
OPERATION: Final = OPERATIONS["read_context"]
_NOTHING: Final = "Nothing is remembered that bears on this."
_ABOUT: Final = "What is remembered that bears on a question, as one block."


def list_prompts(gate: Gate) -> list[Prompt]:
    """The prompts that the caller may use."""
    fields = OPERATION.inputs.model_fields
    arguments = [
        PromptArgument(name=name, description=field.description, required=False)
        for name, field in fields.items()
        if name in ("query", "max_tokens", "user_id", "agent_id", "session_id")
    ]
    offered = [Prompt(name=NAME, title="What you remember", description=_ABOUT, arguments=arguments)]
    return offered if OPERATION.is_for(gate.principal) else []


def get_prompt(name: str, given: Mapping[str, str], gate: Gate, defaults: Defaults) -> GetPromptResult:
    """What a prompt says now; ``NotFoundError`` if there is none of that name."""
    if name != NAME:
        raise NotFoundError(f"there is no prompt {quote(name)}; there is {NAME}")
    asked = read_input(OPERATION, given, gate, defaults)
    text = OPERATION.bind(gate, asked, MCP)()["text"] or _NOTHING
    return GetPromptResult(
        description=_ABOUT, messages=[PromptMessage(role="user", content=TextContent(type="text", text=text))]
    )
