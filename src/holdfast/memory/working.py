"""Working memory: what an agent has in mind during a task, in process memory only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.core.records import TYPES, MemoryType, Message, Scope, Usage
from holdfast.core.values import check_content, check_metadata
from holdfast.memory.services import Services
from holdfast.ports.access import begin_steps


class Working:
    """``memory.working``: the task's notes."""

    def __init__(self, services: Services, scope: Scope) -> None:
        self._services = services
        self._scope = scope

    def add(self, content: str, metadata: Mapping[str, Any] | None = None) -> str:
        """Note a text for the duration of the task; its id."""
        return self.put([content], metadata, prune=False)[0][0]

    def put(
        self, contents: list[str], metadata: Mapping[str, Any] | None, *, prune: bool
    ) -> tuple[list[str], Usage, int]:
        """Note some contents, all or none; their ids, what is there then, and how many old ones went."""
        self._scope.check_one()
        now = self._services.now()
        checked = [check_content(content, max_bytes=self._services.max_content_bytes) for content in contents]
        ids = self._services.new_ids(now, len(checked))
        kept = check_metadata(metadata)
        begin_steps()  # no transaction undoes a note
        items = [Message(item_id, "note", content, now, kept) for item_id, content in zip(ids, checked, strict=True)]
        usage, pruned = self._services.working.put(self._scope, items, prune=prune)
        return ids, usage, pruned

    def items(self) -> list[Message]:
        """Everything noted during this task, oldest first."""
        self._services.check()
        return self._services.working.items(self._scope)

    def get(self, item_id: str) -> Message | None:
        """One note."""
        return self._services.working.get(self._scope, item_id) if isinstance(item_id, str) else None

    def update(self, item: Message) -> bool:
        """Change a note; whether it was there."""
        return self._services.working.replace(self._scope, item)

    def delete(self, item_id: str) -> bool:
        """Drop a note; whether it was there."""
        return isinstance(item_id, str) and self._services.working.remove(self._scope, item_id)

    def clear(self) -> int:
        """Drop every note; how many there were."""
        dropped = self._services.working.clear(self._scope)
        self._services.recall.drop(self._scope, TYPES[MemoryType.WORKING])
        return dropped
