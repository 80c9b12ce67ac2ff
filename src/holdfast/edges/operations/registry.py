"""Operations on agents and tools: they are registered, removed with all that is their own, and restored with it; and on
databases that live with the sessions.
"""

from __future__ import annotations

from operator import itemgetter

from pydantic import Field

from holdfast.edges.operations.models import Id, Input, Paged, example
from holdfast.edges.operations.operation import ADMIN, GOVERN, READ, TENANT, WRITE, Group
from holdfast.edges.operations.outputs import PageOf
from holdfast.engine import Holdfast
from holdfast.results.lifecycle import PartResult, RegistryMoveResult, RegistryResult
from holdfast.results.memory import Metadata

agents = Group("agents", "The agents that are known, with all that is their own.")
tools = Group("tools", "The tools that are known.")
parts = Group("parts", "Databases whose contents live with the sessions, such as LangGraph's threads.")


class ListRegistered(Paged):
    """Which agents or tools to list."""

    include_removed: bool = Field(False, description="Those in the recycle bin too.")


class OneAgent(Input):
    """One agent."""

    agent_id: Id = Field(description="The agent's id.", examples=["travel_agent"])


class OneTool(Input):
    """One tool."""

    tool_id: Id = Field(description="The tool's id.", examples=["route_finder"])


class RemovePart(Input):
    """One database that sessions have a part in."""

    name: Id = Field(description="What certificates and exports call it.", examples=["langgraph"])
    confirm: bool = Field(False, description="What is in its recycle bin may stay there.")


class Description(Input):
    """What is known of an agent or a tool."""

    model_config = example({"description": "Books journeys", "metadata": {"team": "travel"}})

    description: str = Field("", description="What it is for.")
    metadata: Metadata | None = Field(None, description="What else is known of it.")


class DescribedAgent(Description, OneAgent):
    """An agent, and what is known of it."""


class DescribedTool(Description, OneTool):
    """A tool, and what is known of it."""


@agents.add("GET /agents", READ, TENANT)
def list_agents(holdfast: Holdfast, asked: ListRegistered) -> PageOf[RegistryResult]:
    """List the agents that are known."""
    return asked.cut_page(holdfast.agents.list(include_removed=asked.include_removed), itemgetter("agent_id"))


@agents.add("GET /agents/{agent_id}", READ, TENANT, errors=(404,))
def get_agent(holdfast: Holdfast, asked: OneAgent) -> RegistryResult:
    """Read what is known of an agent."""
    return holdfast.agents.get(asked.agent_id)


@agents.add("PUT /agents/{agent_id}", WRITE, TENANT)
def put_agent(holdfast: Holdfast, asked: DescribedAgent) -> RegistryResult:
    """Register an agent, or replace what is known of it."""
    return holdfast.agents.add(asked.agent_id, asked.description, asked.metadata)


@agents.add("DELETE /agents/{agent_id}", GOVERN, TENANT, errors=(404, 423))
def remove_agent(holdfast: Holdfast, asked: OneAgent) -> RegistryMoveResult:
    """Send an agent to the recycle bin for 15 days, with its persona, its episodes and its conversations.

    They are out of recall at once.
    """
    return holdfast.agents.remove(asked.agent_id)


@agents.add("POST /agents/{agent_id}/restore", GOVERN, TENANT, errors=(404,))
def restore_agent(holdfast: Holdfast, asked: OneAgent) -> RegistryMoveResult:
    """Bring an agent back from the recycle bin with exactly what went with it."""
    return holdfast.agents.restore(asked.agent_id)


@tools.add("GET /tools", READ, TENANT)
def list_tools(holdfast: Holdfast, asked: ListRegistered) -> PageOf[RegistryResult]:
    """List the tools that are known."""
    return asked.cut_page(holdfast.tools.list(include_removed=asked.include_removed), itemgetter("tool_id"))


@tools.add("GET /tools/{tool_id}", READ, TENANT, errors=(404,))
def get_tool(holdfast: Holdfast, asked: OneTool) -> RegistryResult:
    """Read what is known of a tool."""
    return holdfast.tools.get(asked.tool_id)


@tools.add("PUT /tools/{tool_id}", WRITE, TENANT)
def put_tool(holdfast: Holdfast, asked: DescribedTool) -> RegistryResult:
    """Register a tool, or replace what is known of it."""
    return holdfast.tools.add(asked.tool_id, asked.description, asked.metadata)


@tools.add("DELETE /tools/{tool_id}", GOVERN, TENANT, errors=(404, 423))
def remove_tool(holdfast: Holdfast, asked: OneTool) -> RegistryMoveResult:
    """Send a tool to the recycle bin for 15 days, out of recall at once."""
    return holdfast.tools.remove(asked.tool_id)


@tools.add("POST /tools/{tool_id}/restore", GOVERN, TENANT, errors=(404,))
def restore_tool(holdfast: Holdfast, asked: OneTool) -> RegistryMoveResult:
    """Bring a tool back from the recycle bin."""
    return holdfast.tools.restore(asked.tool_id)


@parts.add("GET /parts", ADMIN, TENANT)
def list_parts(holdfast: Holdfast, asked: Paged) -> PageOf[PartResult]:
    """List the databases whose contents live with the sessions. They are added with `holdfast langgraph govern`."""
    return asked.cut_page(holdfast.parts.list(), itemgetter("name"))


@parts.add("DELETE /parts/{name}", ADMIN, TENANT, errors=(404, 428))
def remove_part(holdfast: Holdfast, asked: RemovePart) -> PartResult:
    """Let a database live without the sessions again: nothing of it is removed, and nothing is looked after any more.

    Refused without `confirm` while something of it is in its recycle bin, or if it cannot be looked at.
    """
    return holdfast.parts.remove(asked.name, confirm=asked.confirm)
