"""What is looked at as a whole: what there is of a user, in whatever state."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from holdfast.core.records import MemoryType, State, Subject


class Selection(NamedTuple):
    """Which records of a user are meant; ``None`` is any."""

    kind: MemoryType | None = None
    state: State | None = None
    agent_id: str | None = None
    session_id: str | None = None
    source: str | None = None
    """Who or what wrote it; a record that says nothing of it was written by its agent."""
    created_from: int | None = None
    created_before: int | None = None


class RecordSummary(NamedTuple):
    """What a list shows of a record."""

    id: str
    kind: MemoryType
    state: State
    revision: int
    agent_id: str
    session_id: str | None
    name: str | None
    created_at: int
    updated_at: int
    archive_at: int | None
    hidden_from: int | None
    moved_at: int | None
    purge_at: int | None
    reason: str | None
    source: str | None
    size: int
    text_hash: int
    metadata: dict[str, object]
    """Only where it was asked for."""
    beginning: str
    """Of its content."""


class FacetCount(NamedTuple):
    """How many records of a user are alike in all of this."""

    kind: MemoryType
    state: State
    agent_id: str
    session_id: str | None
    source: str | None
    records: int
    bytes: int


#: For each kind that is kept, the place that a list has come to in it.
Places = tuple[int, ...]


class FigureStore(Protocol):
    """Lists and counts of records in every state that people know: active, archived, recycled."""

    def page(
        self, subject: Subject, which: Selection, *, after: Places | None = None, limit: int, chars: int, tags: bool
    ) -> tuple[list[RecordSummary], Places | None]:
        """Some of a user's records, those that were stored last first, with so many characters of their content (and
        metadata only with ``tags``), and where to go on from; ``None``, if these are the last. A page costs the same
        wherever it is, and what it passes over.
        """

    def facets(self, subject: Subject, *, most: int) -> tuple[list[FacetCount], bool]:
        """How many records of a user are alike, among the ``most`` newest of each kind, and whether those are all."""
