"""Operations on agents and tools: they are registered, removed with all that is their own, and restored with it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from holdfast.core.access import Right
from holdfast.edges.operations.models import Id, Input, Metadata, example
from holdfast.edges.operations.operation import Group, Reach
from holdfast.edges.operations.outputs import page_of
from holdfast.edges.operations.pagination import Paged
from holdfast.engine import Holdfast
from holdfast.results import RegistryMoveResult, RegistryResult

agents = Group("agents", "The agents that are known, with all that is their own.")
tools = Group("tools", "The tools that are known.")

RegisteredAgentId = Annotated[Id, Field(description="The agent's id.", examples=["travel_agent"])]
ToolId = Annotated[Id, Field(description="The tool's id.", examples=["route_finder"])]


class ListRegistered(Paged):
    """Which agents or tools to list."""

    include_removed: bool = Field(False, description="Those in the recycle bin too.")


class OneAgent(Input):
    """One agent."""

    agent_id: RegisteredAgentId


class OneTool(Input):
    """One tool."""

    tool_id: ToolId


class Description(Input):
    """What is known of an agent or a tool."""

    model_config = example({"description": "Books journeys", "metadata": {"team": "travel"}})

    description: str = Field("", description="What it is for.")
    metadata: Metadata | None = Field(None, description="What else is known of it.")


class DescribedAgent(Description):
    """An agent, and what is known of it."""

    agent_id: RegisteredAgentId


class DescribedTool(Description):
    """A tool, and what is known of it."""

    tool_id: ToolId


@agents.add("GET /agents", Right.READ, Reach.TENANT, page_of(RegistryResult))
def list_agents(holdfast: Holdfast, asked: ListRegistered) -> Any:
    """List the agents that are known."""
    found = holdfast.agents.list(include_removed=asked.include_removed)
    return asked.page_of_all(found, lambda one: str(one["agent_id"]))


@agents.add("GET /agents/{agent_id}", Right.READ, Reach.TENANT, RegistryResult, errors=(404,))
def get_agent(holdfast: Holdfast, asked: OneAgent) -> Any:
    """Read what is known of an agent."""
    return holdfast.agents.get(asked.agent_id)


@agents.add("PUT /agents/{agent_id}", Right.WRITE, Reach.TENANT, RegistryResult)
def put_agent(holdfast: Holdfast, asked: DescribedAgent) -> Any:
    """Register an agent, or replace what is known of it."""
    return holdfast.agents.add(asked.agent_id, asked.description, asked.metadata)


@agents.add("DELETE /agents/{agent_id}", Right.GOVERN, Reach.TENANT, RegistryMoveResult, errors=(404, 423))
def remove_agent(holdfast: Holdfast, asked: OneAgent) -> Any:
    """Send an agent to the recycle bin for 15 days, with its persona, its episodes and its conversations.

    They are out of recall at once.
    """
    return holdfast.agents.remove(asked.agent_id)


@agents.add("POST /agents/{agent_id}/restore", Right.GOVERN, Reach.TENANT, RegistryMoveResult, errors=(404,))
def restore_agent(holdfast: Holdfast, asked: OneAgent) -> Any:
    """Bring an agent back from the recycle bin with exactly what went with it."""
    return holdfast.agents.restore(asked.agent_id)


@tools.add("GET /tools", Right.READ, Reach.TENANT, page_of(RegistryResult))
def list_tools(holdfast: Holdfast, asked: ListRegistered) -> Any:
    """List the tools that are known."""
    found = holdfast.tools.list(include_removed=asked.include_removed)
    return asked.page_of_all(found, lambda one: str(one["tool_id"]))


@tools.add("GET /tools/{tool_id}", Right.READ, Reach.TENANT, RegistryResult, errors=(404,))
def get_tool(holdfast: Holdfast, asked: OneTool) -> Any:
    """Read what is known of a tool."""
    return holdfast.tools.get(asked.tool_id)


@tools.add("PUT /tools/{tool_id}", Right.WRITE, Reach.TENANT, RegistryResult)
def put_tool(holdfast: Holdfast, asked: DescribedTool) -> Any:
    """Register a tool, or replace what is known of it."""
    return holdfast.tools.add(asked.tool_id, asked.description, asked.metadata)


@tools.add("DELETE /tools/{tool_id}", Right.GOVERN, Reach.TENANT, RegistryMoveResult, errors=(404, 423))
def remove_tool(holdfast: Holdfast, asked: OneTool) -> Any:
    """Send a tool to the recycle bin for 15 days, out of recall at once."""
    return holdfast.tools.remove(asked.tool_id)


@tools.add("POST /tools/{tool_id}/restore", Right.GOVERN, Reach.TENANT, RegistryMoveResult, errors=(404,))
def restore_tool(holdfast: Holdfast, asked: OneTool) -> Any:
    """Bring a tool back from the recycle bin."""
    return holdfast.tools.restore(asked.tool_id)
