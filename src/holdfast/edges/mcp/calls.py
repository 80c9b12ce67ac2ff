"""Calls: whose memory is meant, and the one way in which a tool is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from anyio import to_thread
from mcp_types import CallToolResult, TextContent
from pydantic import ValidationError
from starlette.requests import Request

from holdfast.core.access import Principal, Right
from holdfast.core.content import check_id
from holdfast.core.errors import HoldfastError, InvalidScopeError
from holdfast.edges.access.gate import Gate
from holdfast.edges.mcp.errors import as_result, refused
from holdfast.edges.mcp.models import Inputs, Whose
from holdfast.edges.mcp.tools import Reach, Tenant, Tool
from holdfast.engine import MemoryManager

#: The agent that sees a memory where neither the call, the server nor the key names one.
DEFAULT_AGENT: Final = "mcp"

#: What a caller may reach: the gate of one request, which is ``None`` where there is no HTTP.
GateOf = Callable[[Request | None], Gate]


class Defaults(NamedTuple):
    """Whose memory is meant where a call does not say."""

    user_id: str | None = None
    agent_id: str | None = None

    def user(self, given: str | None, caller: Principal) -> str:
        """The user that is meant: the one given, the server's, or the only one that the key is bound to."""
        user_id = given if given is not None else self.user_id or _only(caller.users)
        if user_id is None:
            raise InvalidScopeError("whose memory is meant is not said; give user_id")
        return user_id

    def agent(self, given: str | None, caller: Principal) -> str:
        """The agent that is meant: the one given, the server's, or the only one that the key is bound to."""
        agent_id = given if given is not None else self.agent_id or _only(caller.agents)
        if agent_id is None and caller.agents is not None:
            raise InvalidScopeError("which agent is meant is not said, and the key is for several; give agent_id")
        return agent_id or DEFAULT_AGENT

    def memory(self, gate: Gate, right: Right, whose: Whose) -> MemoryManager:
        """The memory that is meant, as far as the gate lets the caller reach it."""
        user_id, agent_id = self.user(whose.user_id, gate.principal), self.agent(whose.agent_id, gate.principal)
        for what, given in (("user_id", user_id), ("agent_id", agent_id)):
            check_id(given, what)  # one of each: what is done to all of them is no work for a model
        return gate.memory(right, user_id, agent_id, whose.session_id)


async def call(
    tool: Tool, arguments: Mapping[str, Any] | None, gate_of: Callable[[], Gate], defaults: Defaults
) -> CallToolResult:
    """Check the arguments, ask the gate, run the tool in a worker thread. Whatever fails is an answer, too."""
    try:
        return await to_thread.run_sync(_run, tool, arguments or {}, gate_of, defaults)
    except HoldfastError as problem:
        return as_result(problem)
    except Exception as problem:  # noqa: BLE001 - the edge: it is logged with its traceback, and nothing of it shown
        return as_result(problem)


def _run(tool: Tool, arguments: Mapping[str, Any], gate_of: Callable[[], Gate], defaults: Defaults) -> CallToolResult:
    gate = gate_of()
    try:
        asked = tool.inputs.model_validate(dict(arguments))
    except ValidationError as problem:
        raise refused(problem, tool.name) from None
    given = tool.run(_reached(tool, gate, asked, defaults), asked)
    answer = given.model_dump(mode="json")
    text = TextContent(type="text", text=given.model_dump_json())
    return CallToolResult(content=[text], structured_content=answer)


def _reached(tool: Tool, gate: Gate, asked: Inputs, defaults: Defaults) -> Any:
    """What a tool works on. There is no other way to it than the gate."""
    if tool.reach is Reach.TENANT:
        key_id = gate.principal.key_id
        return Tenant(gate.tenant(tool.right), "local" if key_id is None else f"key:{key_id}")
    if not isinstance(asked, Whose):
        raise TypeError(f"{tool.name} works on a memory, and its inputs do not say whose")
    return defaults.memory(gate, tool.right, asked)


def _only(ids: frozenset[str] | None) -> str | None:
    return next(iter(ids)) if ids is not None and len(ids) == 1 else None
