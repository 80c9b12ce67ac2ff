"""Every operation there is. REST, MCP and the reference pages are made of this table."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from holdfast.edges.operations import (
    batches,
    calls,
    conversations,
    domains,
    lifecycle,
    maintenance,
    memories,
    policies,
    privacy,
    registry,
)
from holdfast.edges.operations.operation import Group

_MODULES: Final = (
    memories,
    conversations,
    batches,
    policies,
    lifecycle,
    registry,
    privacy,
    domains,
    maintenance,
    calls,
)
#: The resources, in the order in which they are documented: that of the modules, and within each of them.
GROUPS: Final = tuple(one for module in _MODULES for one in vars(module).values() if isinstance(one, Group))
#: Every operation by its name.
OPERATIONS: Final = MappingProxyType({one.name: one for group in GROUPS for one in group.operations})
#: Every operation that is an MCP tool, by the tool's name, in the order in which clients see them.
TOOLS: Final = MappingProxyType({one.tool: one for one in OPERATIONS.values() if one.tool is not None})
