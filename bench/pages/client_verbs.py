"""The verbs of a memory with their signatures, as ``holdfast.client`` reads them. None of this is shipped.

``python -m bench.pages.client_verbs > src/holdfast/client.json``; ``make reference`` does it too.
"""

from __future__ import annotations

import inspect
import json
import sys
from typing import Any, Final

from holdfast.edges.operations.calls import VERBS
from holdfast.manager import Memory
from holdfast.memory.entity import Entity
from holdfast.memory.episodic import Episodic
from holdfast.memory.short_term import ShortTerm
from holdfast.memory.structured import Structured
from holdfast.memory.text import TextMemory
from holdfast.memory.working import Working

OWNERS: Final[dict[str, Any]] = {
    "": Memory,
    "working": Working,
    "short_term": ShortTerm,
    "long_term": TextMemory,
    "persona": TextMemory,
    "episodic": Episodic,
    "entity": Entity,
    "structured": Structured,
}


def find_verb(name: str) -> Any:
    """The engine's function of a verb."""
    part, _, verb = name.rpartition(".")
    return getattr(OWNERS[part], verb)


def render() -> str:
    """One line for each verb: its right, and its parameters with their defaults."""
    rows = []
    for name, right in VERBS.items():
        given: dict[str, dict[str, list[object]]] = {"positional": {}, "named": {}}
        for one in list(inspect.signature(find_verb(name)).parameters.values())[1:]:
            group = "named" if one.kind is one.KEYWORD_ONLY else "positional"
            given[group][one.name] = [] if one.default is one.empty else [one.default]
        found = {group: parameters for group, parameters in given.items() if parameters}
        rows.append(f"  {json.dumps(name)}: {json.dumps({'right': right.value, **found})}")
    return "{\n" + ",\n".join(rows) + "\n}\n"


if __name__ == "__main__":
    sys.stdout.write(render())
