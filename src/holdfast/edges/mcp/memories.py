"""The tools that agents remember with. Each works on the memory that the gate handed out, and on nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.core.access import Right
from holdfast.edges.mcp.models import (
    Added,
    AddMemory,
    Deleted,
    DeleteMemory,
    Explanation,
    Found,
    FoundMemory,
    Memory,
    MemoryRules,
    OneMemory,
    Restored,
    SearchMemories,
    UpdateMemory,
    WholeMemory,
    Whose,
)
from holdfast.edges.mcp.tools import ADDS, BRINGS_BACK, CHANGES, LOOKS, Reach, Tool
from holdfast.engine import MemoryManager

#: A search shows so much of each memory: what it finds is to fit into what a model can read.
MAX_SHOWN_CHARS: Final = 8_000


def add(memory: MemoryManager, asked: AddMemory) -> Added:
    """Remember something."""
    done = memory.add(
        asked.content, asked.memory_type, asked.metadata, source=asked.source, derived_from=asked.derived_from
    )
    return Added.model_validate(done)


def search(memory: MemoryManager, asked: SearchMemories) -> Found:
    """What bears on a question."""
    found = memory.retrieve(
        asked.query, asked.memory_types, asked.top_k, asked.filters, include_archived=asked.include_archived
    )
    return Found(memories=[_found(one) for one in found])


def get(memory: MemoryManager, asked: OneMemory) -> WholeMemory:
    """One memory."""
    return whole(memory.get(asked.memory_id))


def update(memory: MemoryManager, asked: UpdateMemory) -> Memory:
    """Change a memory."""
    return Memory.model_validate(memory.update(asked.memory_id, asked.content, asked.metadata))


def delete(memory: MemoryManager, asked: DeleteMemory) -> Deleted:
    """Send a memory to the recycle bin."""
    done = memory.delete(asked.memory_id, with_derived=asked.with_derived)
    return Deleted.model_validate({"deleted_with": [], "derived": [], **done})


def restore(memory: MemoryManager, asked: OneMemory) -> Restored:
    """Bring a memory back from the recycle bin."""
    return Restored.model_validate({"restored_with": [], **memory.restore(asked.memory_id)})


def explain(memory: MemoryManager, asked: OneMemory) -> Explanation:
    """What a memory lives under, and what happens to it next."""
    return Explanation.model_validate(memory.explain(asked.memory_id))


def rules(memory: MemoryManager, _asked: Whose) -> MemoryRules:
    """How long things are kept."""
    return MemoryRules.model_validate(memory.rules())


def whole(shown: Mapping[str, Any]) -> WholeMemory:
    """A memory as the engine shows it; what belongs to its kind alone is put together under ``details``."""
    own = {name: value for name, value in shown.items() if name not in Memory.model_fields}
    return WholeMemory.model_validate({**shown, "details": own})


def _found(shown: Mapping[str, Any]) -> FoundMemory:
    content: str = shown["content"]
    cut = len(content) > MAX_SHOWN_CHARS
    return FoundMemory.model_validate({**shown, "content": content[:MAX_SHOWN_CHARS], "is_cut": cut})


TOOLS: Final = (
    Tool(
        "memory_add",
        "Remember something",
        "Remember something about the user beyond this conversation: a fact, a preference, a decision, how a task "
        "went. One thought for each memory, in a sentence that can be understood by itself later. It is durable when "
        "this returns.",
        Right.WRITE,
        Reach.MEMORY,
        AddMemory,
        Added,
        add,
        ADDS,
    ),
    Tool(
        "memory_search",
        "Search memories",
        "Find what is remembered of the user that bears on a question or task; use it before you answer or ask the "
        "user for something they may have said before. Finds by meaning and by words, best first. Memories whose time "
        "is over or that were deleted are never found.",
        Right.READ,
        Reach.MEMORY,
        SearchMemories,
        Found,
        search,
        LOOKS,
    ),
    Tool(
        "memory_get",
        "Read a memory",
        "Read one memory, all of it, by its id.",
        Right.READ,
        Reach.MEMORY,
        OneMemory,
        WholeMemory,
        get,
        LOOKS,
    ),
    Tool(
        "memory_update",
        "Correct a memory",
        "Change what a memory says, or its metadata, when the user corrects it or things have changed. What it said "
        "before is replaced; its age stays. Entities cannot be changed as text, short-term messages not at all.",
        Right.WRITE,
        Reach.MEMORY,
        UpdateMemory,
        Memory,
        update,
        CHANGES,
    ),
    Tool(
        "memory_delete",
        "Forget a memory",
        "Forget one memory, when the user asks for it or it is wrong. It is out of recall at once and stays in the "
        "recycle bin for 15 days, from which memory_restore brings it back; a short-term message is gone for good. A "
        "memory on hold is not deleted.",
        Right.WRITE,
        Reach.MEMORY,
        DeleteMemory,
        Deleted,
        delete,
        CHANGES,
    ),
    Tool(
        "memory_restore",
        "Restore a memory",
        "Bring a memory back from the recycle bin, exactly as it was, with what was deleted along with it.",
        Right.WRITE,
        Reach.MEMORY,
        OneMemory,
        Restored,
        restore,
        BRINGS_BACK,
    ),
    Tool(
        "memory_explain",
        "Explain a memory's life",
        "Say under which rules a memory lives, what happens to it next and when, and what protects it; of one that is "
        "gone, when, why and by which rule it went. Use it when the user asks why something is, or is not, remembered.",
        Right.READ,
        Reach.MEMORY,
        OneMemory,
        Explanation,
        explain,
        LOOKS,
    ),
    Tool(
        "memory_rules",
        "Say how long memories are kept",
        "Say the rules in force for the user and this agent, for each kind of memory, in words and numbers: after how "
        "many days it is archived, after how many it is deleted or that it never is, how long it can be restored from "
        "the recycle bin, how long short-term memory and conversations last, quotas, and the holds that keep things. "
        "Use it when the user asks how long something is kept; for one memory in particular, use memory_explain.",
        Right.READ,
        Reach.MEMORY,
        Whose,
        MemoryRules,
        rules,
        LOOKS,
    ),
)
