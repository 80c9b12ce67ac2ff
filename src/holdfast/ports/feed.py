"""What recall needs: a scope as it changes, an embedder, a summarizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import add
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from holdfast.core.records import Encoding, Kind, MemoryType, Record, Scope, Subject

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
    """A vector for each passage (one, of an archived record), as ``recall.vectors.to_steps`` makes them, in the space
    of the index's embedder; ``None`` if not embedded in that space.
    """
    terms: bytes
    """The passages' terms, as ``recall.terms.encode`` wrote them; empty for an archived record."""
    text: str | None = None
    """The record's text, where there are no terms, or (of a version that has ended) no vectors."""
    text_hash: int | None = None
    """Equal texts have the same; ``None`` if the record is not to be taken for another."""
    ended_at: int | None = None
    """Of a version that has ended."""


#: Stands between the texts of a column that was joined: no id has such a character, and JSON writes it otherwise.
SEPARATOR: Final = "\x1f"


@dataclass(frozen=True)
class PackedRows:
    """At least one ``IndexRow``, each of which has terms, in columns that an engine joined: texts by ``SEPARATOR``,
    numbers by commas, bytes by nothing. An index reads all of a column at once; by itself it gives one row after the
    other.
    """

    count: int
    id: str
    agent_id: str
    session_id: str
    """Nothing, for a record without a session."""
    created_at: str
    changed_after: str
    """How long after that it was last changed: long numbers take time to write and to read."""
    hidden_from: str
    """-1, for a record that is always seen; so in the next one."""
    archived_from: str
    metadata: str
    vector_sizes: str
    """How many bytes of ``vectors`` are each record's; 0 for those that are not embedded."""
    vectors: bytes | None
    """``None`` if there are none at all."""
    term_sizes: str
    terms: bytes
    text_hash: str
    """0 for a record that is not to be taken for another."""
    ended_at: str | None = None
    """``None`` if all of them are current."""

    def __iter__(self) -> Iterator[IndexRow]:
        texts = (self.id, self.agent_id, self.session_id, self.metadata)
        ids, agents, sessions, metadata = (text.split(SEPARATOR) for text in texts)
        created = list(map(int, self.created_at.split(",")))
        updated = map(add, created, map(int, self.changed_after.split(",")))
        until = (_or_none(text, -1) for text in (self.hidden_from, self.archived_from))
        when = zip(created, updated, *until, strict=True)
        vectors = [blob or None for blob in _cut(self.vectors or b"", self.vector_sizes)]
        found_by = zip(metadata, vectors, _cut(self.terms, self.term_sizes), strict=True)
        hashes = _or_none(self.text_hash, 0)
        ended = [None] * len(ids) if self.ended_at is None else _or_none(self.ended_at, -1)
        for at, (times, found) in enumerate(zip(when, found_by, strict=True)):
            values = (ids[at], agents[at], sessions[at] or None, *times, *found, None, hashes[at], ended[at])
            yield IndexRow._make(values)


def _or_none(numbers: str, nothing: int) -> list[int | None]:
    return [None if number == nothing else number for number in map(int, numbers.split(","))]


def _cut(joined: bytes, sizes: str) -> Iterator[bytes]:
    """The parts of what was joined, by their sizes."""
    ends = accumulate(map(int, sizes.split(",")), initial=0)
    return (joined[start:end] for start, end in pairwise(ends))


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
        read: Callable[[list[IndexRow] | PackedRows], PageT],
        ended: bool = False,
    ) -> Changes[PageT]:
        """What changed in a scope since ``since`` (``None``: everything), as ``model`` sees it. With ``ended``, all
        versions that have ended of what is new or changed, too, each by the name that ``split_version_id`` reads.

        Rows are handed to ``read`` a few thousand at a time, so that they are never all in memory. Those of a whole
        scope are packed. Writes and deletes of any process are in the answer once they have committed.
        """

    def unchanged(self, scope: Scope, cursors: Sequence[tuple[Kind, Cursor]]) -> dict[MemoryType, Cursor]:
        """Of some kinds, each with a cursor: those in which nothing has changed since, by one look at all of them."""

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
