"""What recall needs: a scope as it changes, an embedder, a summarizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import add
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

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
_TEXTS: Final = ("id", "agent_id", "session_id", "metadata")
_NUMBERS: Final = (
    *("created_at", "changed_after", "aged_after", "profile"),
    *("vector_sizes", "term_sizes", "text_hash"),
)


class ProfileTimes(NamedTuple):
    """How long after a moment of theirs the records of a profile are archived, and hidden; ``None`` is never."""

    no: int
    archive_after: int | None
    delete_after: int | None


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
    aged_after: str
    """How long after it was made the moment was that the times of its profile count from."""
    profile: str
    """Twice the number of its profile, and one more for a record that is archived."""
    metadata: str
    vector_sizes: str
    """How many bytes of ``vectors`` are each record's; 0 for those that are not embedded."""
    vectors: bytes | None
    """``None`` if there are none at all."""
    term_sizes: str
    terms: bytes
    text_hash: str
    """0 for a record that is not to be taken for another."""
    profiles: Sequence[ProfileTimes] = ()
    """All profiles that they have."""

    @classmethod
    def join(cls, pages: Sequence[PackedRows]) -> PackedRows:
        """The rows of several pages, one after the other."""
        if len(pages) == 1:
            return pages[0]
        joined: dict[str, Any] = {name: SEPARATOR.join([getattr(page, name) for page in pages]) for name in _TEXTS}
        joined |= {name: ",".join([getattr(page, name) for page in pages]) for name in _NUMBERS}
        joined |= {name: b"".join([getattr(page, name) or b"" for page in pages]) for name in ("vectors", "terms")}
        return cls(count=sum(page.count for page in pages), **joined)

    def __iter__(self) -> Iterator[IndexRow]:
        ids, agents, sessions, metadata = (getattr(self, name).split(SEPARATOR) for name in _TEXTS)
        created = list(map(int, self.created_at.split(",")))
        updated = map(add, created, map(int, self.changed_after.split(",")))
        aged = map(add, created, map(int, self.aged_after.split(",")))
        codes = map(int, self.profile.split(","))
        known = {number: times for number, *times in self.profiles}
        until = (_moments(moment, code & 1, *known[code >> 1]) for moment, code in zip(aged, codes, strict=True))
        vectors = [blob or None for blob in _cut(self.vectors or b"", self.vector_sizes)]
        found_by = zip(metadata, vectors, _cut(self.terms, self.term_sizes), strict=True)
        hashes = [number or None for number in map(int, self.text_hash.split(","))]
        when = zip(created, updated, until, strict=True)
        for at, ((made, changed, moments), found) in enumerate(zip(when, found_by, strict=True)):
            values = (
                ids[at],
                agents[at],
                sessions[at] or None,
                made,
                changed,
                *moments,
                *found,
                None,
                hashes[at],
                None,
            )
            yield IndexRow._make(values)

    @property
    def profile_numbers(self) -> list[int]:
        """The numbers of all profiles that they have."""
        numbers: list[int] = np.unique(read_numbers(self.profile) >> 1).tolist()
        return numbers


def _moments(
    aged_from: int, is_archived: int, archive_after: int | None, delete_after: int | None
) -> tuple[int | None, int | None]:
    """From when on a record is hidden, and archived."""
    archived_from = None if archive_after is None else aged_from + archive_after
    return None if delete_after is None else aged_from + delete_after, 0 if is_archived else archived_from


def read_numbers(joined: str) -> npt.NDArray[np.int64]:
    """A column of numbers of ``PackedRows``."""
    one = joined[: joined.find(",") + 1]
    count = (len(joined) + 1) // len(one) if one else 0
    if count * one == joined + ",":  # all of them are the same, which is seen faster
        return np.full(count, int(one[:-1]))
    return np.fromstring(joined, np.int64, sep=",")


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

        Rows are handed to ``read`` some thousands at a time, so that they are never all in memory. Those of a whole
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
