"""What recall reads: a scope as it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from holdfast.core.filters import Filter
from holdfast.core.records import Encoding, Record, Scope
from holdfast.core.types import Kind
from holdfast.ports.models import Vectors


class IndexRow(NamedTuple):
    """What the recall index needs to know of a record; all of it lies in the record's own row."""

    id: str
    agent_id: str
    session_id: str | None
    created_at: int
    updated_at: int
    hidden_from: int | None
    """The moment from which the record must not be seen, whether or not a sweep has run."""
    archived_from: int | None
    """The moment from which it counts as archived, whether or not a sweep has run."""
    metadata: str
    """JSON text."""
    vectors: bytes | None
    """float16, one row per passage, in the space of the index's embedder; ``None`` if not embedded in that space. Of an
    archived record, one vector as ``recall.compaction`` wrote it.
    """
    terms: bytes
    """The passages' terms, as ``recall.terms.encode`` wrote them; empty for an archived record."""
    text: str | None = None
    """The record's text, where there are no terms."""


#: How far an index has followed a scope; means something to the engine only.
Cursor = tuple[int, ...]


class Changes(NamedTuple):
    """What happened to a scope since a caller last looked."""

    cursor: Cursor
    """Hand this back next time. Empty, if there are more live records than were asked for, and nothing else is said."""
    reload: bool
    """``rows`` is everything there is; what the caller had is to be forgotten."""
    rows: list[IndexRow]
    """Live records that are new or changed, or (``reload``) all of them."""
    gone: list[str]
    """Ids that are no longer live."""


class RecallFeed(Protocol):
    """What an in-process index follows."""

    def changes(
        self, scope: Scope, kind: Kind, since: Cursor | None, *, model: str, most: int | None = None
    ) -> Changes:
        """What changed in a scope since ``since`` (``None``: everything), as ``model`` sees it; with ``most``, nothing
        (an empty cursor) if the user has more live records of the kind.

        Writes and deletes of any process are in the answer once they have committed.
        """

    def unembedded(self, subject: str, kind: Kind, *, model: str, limit: int) -> list[Record]:
        """Live records of a kind that have no vectors of this model."""

    def embed(self, subject: str, kind: Kind, encodings: Iterable[tuple[str, int, Encoding]]) -> int:
        """Give records (id, version) their new encoding; those that changed meanwhile are passed over."""

    def adopt(self, model: str) -> None:
        """Make this the model that records without its vectors are to be embedded with."""

    def is_current(self, model: str) -> bool:
        """Whether this model was the last to be adopted."""

    def subjects(self, tenant: str) -> Iterator[str]:
        """Every subject of a tenant."""


class Said(NamedTuple):
    """What a record's encoding says of its text."""

    terms: npt.NDArray[np.uint32]
    """The distinct ones."""
    length: int
    """How many words it has."""
    passages: int
    vectors: bytes | None
    """float16, one row per passage."""


class Space(NamedTuple):
    """How records are encoded: by which model, in how many dimensions, and how their rows are read."""

    model: str
    dim: int
    read: Callable[[Kind, Sequence[IndexRow]], Sequence[Said]]


class Wanted(NamedTuple):
    """What candidates are looked for, and what the scope is like."""

    vector: Vectors | None
    """What their vectors should point to."""
    terms: npt.NDArray[np.uint32]
    holding: npt.NDArray[np.float64]
    """How many records hold each term; NaN where that is to be counted."""
    records: float
    """How many there are in the scope."""
    usual: float
    """How many words they have."""
    enough: int
    """How many candidates there should be of each sort."""
    now: int
    where: Filter | None
    include_archived: bool


class Candidates(NamedTuple):
    """Records among which the best matches are."""

    rows: list[IndexRow]
    holding: npt.NDArray[np.float64]
    """As in ``Wanted``, with those that were counted."""


class Neighbours(NamedTuple):
    """Live records that stand next to others in their sessions."""

    rows: list[IndexRow]
    before: dict[str, str]
    """By id, which record stands right before which."""


class LargeScopes(Protocol):
    """Scopes with too many records to be held in memory, searched where they are kept.

    What is searched is made from the records, in batches, some time after they were written. What has not been made
    yet is among the candidates all the same, so that every answer is of the records as they are.
    """

    @property
    def most(self) -> int:
        """A scope with more live records than this is a large one."""

    def standing(self, scope: Scope, kind: Kind) -> tuple[int, int]:
        """How many live records a user has of a kind (0: none that the agent may see), and how many of all of them are
        still to be made ready for search.
        """

    def fill(self, scope: Scope, kind: Kind, space: Space, *, limit: int) -> int:
        """Make some records ready for search; how many. 0: all are."""

    def sample(self, scope: Scope, kind: Kind, *, model: str, limit: int) -> tuple[list[IndexRow], float]:
        """Live records in runs spread over the scope, about ``limit`` at most, and the part of the scope that they are;
        1 if they are all there are.
        """

    def candidates(self, scope: Scope, kind: Kind, space: Space, wanted: Wanted) -> Candidates:
        """Records that pass the filter and are to be seen: those closest in meaning, and in words. Where few pass, all
        of them.
        """

    def around(self, scope: Scope, kind: Kind, rows: Sequence[IndexRow], *, model: str, reach: int) -> Neighbours:
        """The records up to ``reach`` places before and after these in their sessions."""

    def select(
        self,
        scope: Scope,
        kind: Kind,
        top_k: int,
        *,
        now: int,
        where: Filter | None,
        include_archived: bool,
        before: str | None = None,
    ) -> list[str]:
        """Ids of records that pass the filter and are to be seen, newest first; with ``before``, of those older than
        that one, be it there or not.
        """

    def tend(self, tenant: str, space: Space, *, thorough: bool) -> int:
        """Make a tenant's large scopes ready, with the index that makes their search fast, and let go of what was made
        for scopes that have become small; how many records were made ready.

        ``thorough``: all of the large scopes, not only those that were searched before. It looks at every scope.
        """
