"""What recall needs: a scope as it changes, an embedder, a summarizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from holdfast.core.records import Encoding, Kind, Record, Scope, Subject

Vectors = npt.NDArray[np.float32]


class Embedder(Protocol):
    """Turns texts into vectors of one space."""

    @property
    def id(self) -> str:
        """Names the space: two embedders share an id only if their vectors may be compared."""

    @property
    def dim(self) -> int:
        """How long each vector is."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit-length float32 row per text (all zeros where a text has nothing to embed).

        Raises ``EmbedderError``; ``EmbedderUnavailableError`` where trying again may help.
        """


class Summarizer(Protocol):
    """Makes a short text of a long one."""

    def summarize(self, texts: Sequence[str], *, max_chars: int) -> str:
        """A summary of ``texts``, in their order, of at most ``max_chars`` characters."""


PageT = TypeVar("PageT")


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
    """The record's text, where there are no terms, or (of a version that has ended) no vectors."""
    text_hash: int | None = None
    """Equal texts have the same; ``None`` if the record is not to be taken for another."""
    ended_at: int | None = None
    """Of a version that has ended."""


def split_version_id(name: str) -> tuple[str, int | None]:
    """The record, and which version of it: ``None`` is the one that is current. A version is ``record@number``."""
    record_id, _, version = name.partition("@")
    return record_id, int(version) if version else None


#: How far an index has followed a scope; means something to the engine only.
Cursor = tuple[int, ...]


class Changes(NamedTuple, Generic[PageT]):
    """What happened to a scope since a caller last looked."""

    cursor: Cursor
    """Hand this back next time."""
    reload: bool
    """``pages`` is everything there is; what the caller had is to be forgotten."""
    pages: list[PageT]
    """Live records that are new or changed, or (``reload``) all of them, as the caller reads them."""
    gone: list[str]
    """Ids that are no longer live."""


class RecallFeed(Protocol):
    """What an in-process index follows."""

    def changes(
        self,
        scope: Scope,
        kind: Kind,
        since: Cursor | None,
        *,
        model: str,
        read: Callable[[list[IndexRow]], PageT],
        ended: bool = False,
    ) -> Changes[PageT]:
        """What changed in a scope since ``since`` (``None``: everything), as ``model`` sees it. With ``ended``, all
        versions that have ended of what is new or changed, too, each by the name that ``split_version_id`` reads.

        Rows are handed to ``read`` a few thousand at a time, so that they are never all in memory. Writes and deletes
        of any process are in the answer once they have committed.
        """

    def unembedded(self, subject: Subject, kind: Kind, *, model: str, limit: int) -> list[Record]:
        """Live records of a kind that have no vectors of this model."""

    def embed(self, subject: Subject, kind: Kind, encodings: Iterable[tuple[str, int, Encoding]]) -> int:
        """Give records (id, version) their new encoding; those that changed meanwhile are passed over."""

    def adopt(self, model: str) -> None:
        """Make this the model that records without its vectors are to be embedded with."""

    def is_current(self, model: str) -> bool:
        """Whether this model was the last to be adopted."""

    def subjects(self, tenant: str) -> Iterator[Subject]:
        """Every subject of a tenant."""
