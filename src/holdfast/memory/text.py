"""Memories that are texts: long-term memory and the persona of an agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.ports.records import kept_out_error

if TYPE_CHECKING:
    from holdfast.core.records import MemoryType
    from holdfast.results.memory import AddResult, MemoryResult, RetrieveResult

Metadata = Mapping[str, Any] | None
Filters = Mapping[str, Any] | None
Ids = Sequence[str] | None


class _Verbs(Protocol):
    """What it asks of a memory."""

    @property
    def add(self) -> Callable[..., AddResult]: ...

    @property
    def retrieve(self) -> Callable[..., list[RetrieveResult]]: ...

    @property
    def list_memories(self) -> Callable[..., list[MemoryResult]]: ...

    @property
    def export_kind(self) -> Callable[..., list[dict[str, Any]]]: ...

    @property
    def count_memories(self) -> Callable[..., int]: ...

    @property
    def delete_user_memories(self) -> Callable[..., int]: ...

    @property
    def archive_due(self) -> Callable[..., int]: ...


class TextMemory:
    """``memory.long_term`` and ``memory.persona``: the memory's verbs, for one kind."""

    def __init__(self, memory: _Verbs, kind: MemoryType) -> None:
        self._memory, self._kind = memory, kind

    def add(
        self, content: str, metadata: Metadata = None, *, source: str | None = None, derived_from: Ids = None
    ) -> str:
        """Remember a text; its id."""
        added = self._memory.add(content, self._kind, metadata, source=source, derived_from=derived_from)
        if added["operation"] == "kept_out":  # there is no new id to give
            raise kept_out_error("nothing was added", added["memory_id"])
        return added["memory_id"]

    def retrieve(self, query: str, top_k: int = 5, filters: Filters = None) -> list[RetrieveResult]:
        """What is remembered of this kind that bears on ``query``."""
        return self._memory.retrieve(query, [self._kind], top_k, filters)

    def export_all(self, user_id: str) -> list[dict[str, Any]]:
        """All of a user's memories of this kind, whole, in whatever state, whichever agent they are with."""
        return self._memory.export_kind(user_id, self._kind)

    def list(self, filters: Filters = None, *, limit: int = 100) -> list[MemoryResult]:
        """What is remembered of this kind, newest first."""
        return self._memory.list_memories(self._kind, filters, limit=limit)

    def count(self) -> int:
        """How many memories of this kind there are."""
        return self._memory.count_memories(self._kind)

    def delete_all(self, user_id: str) -> int:
        """Send all of a user's memories of this kind to the recycle bin; how many."""
        return self._memory.delete_user_memories(user_id, self._kind)

    def archive_old_memories(self) -> int:
        """Move memories of this kind that are old enough to cold storage now, without waiting for a sweep; how many.

        Those of this user; of all users, where the memory's user is ``*``.
        """
        return self._memory.archive_due(self._kind)
