"""Every section of the console, in the order of its navigation, with every page and action there is."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from holdfast.edges.console.pages import (
    agents,
    audit,
    backups,
    erasure,
    forecast,
    holds,
    memories,
    overview,
    playground,
    policies,
    record,
    recycle_bin,
    schedule,
    sessions,
)
from holdfast.edges.console.table import Section

_MODULES: Final = (
    overview,
    memories,
    record,
    forecast,
    recycle_bin,
    policies,
    holds,
    sessions,
    agents,
    erasure,
    backups,
    audit,
    schedule,
    playground,
)
#: The entries of the navigation.
SECTIONS: Final = tuple(
    dict.fromkeys(one for module in _MODULES for one in vars(module).values() if isinstance(one, Section))
)
#: Every page by its path.
PAGES: Final = MappingProxyType({one.path: one for section in SECTIONS for one in section.pages})
#: Every action by its name.
ACTIONS: Final = MappingProxyType({one.name: one for section in SECTIONS for one in section.actions})
