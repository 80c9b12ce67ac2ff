"""Writing documents: sealed in parts, many of them in one segment, streamed as they are read."""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from holdfast.backups.contents import Piece
from holdfast.backups.format import SEGMENTS, Doc, Held, Sort
from holdfast.ports.objects import ObjectStore
from holdfast.privacy.keys.sealing import DataKey, seal

#: About how many bytes of frames are sealed as one part: as much as is held in memory of a document.
PART: Final = 2 * 1024 * 1024
#: About how many bytes one segment has.
SEGMENT: Final = 64 * 1024 * 1024


#: Parts of documents as they are made; a draft after the last part of each.
Parts = Iterator["bytes | Draft"]


@dataclass
class Draft:
    """A document that is being written."""

    sort: Sort
    key: DataKey
    mark: str
    signature: str
    kinds: dict[str, int] = field(default_factory=dict)
    packs: list[str] = field(default_factory=list)
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)
    """Of all that belongs together, however many documents that becomes."""
    goes_on: bool = False
    """Whether it goes on where another stopped that had become too large."""
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    rows: Counter[str] = field(default_factory=Counter)
    sizes: list[int] = field(default_factory=list)
    _waiting: list[bytes] = field(default_factory=list)
    _bytes: int = 0

    def add(self, piece: Piece) -> Iterator[bytes]:
        """Take in a frame; the parts that are full."""
        self.rows[piece.table] += piece.rows
        self._waiting.append(piece.data)
        self._bytes += len(piece.data)
        if self._bytes >= PART:
            yield self._sealed()

    def end(self) -> Parts:
        """The last part, and the draft itself; nothing, if it was to go on and there was no more."""
        if self._waiting or not (self.sizes or self.goes_on):
            yield self._sealed()
        if self.sizes:
            yield self

    @property
    def is_full(self) -> bool:
        """Whether the rest should be another document: no more than this is ever held in memory."""
        return sum(self.sizes) >= SEGMENT

    def next(self) -> Draft:
        """The one that goes on where this one stops."""
        return Draft(self.sort, self.key, self.mark, self.signature, digest=self.digest, goes_on=True)

    def _sealed(self) -> bytes:
        part = seal(self.key, part_name(self.id, len(self.sizes)), b"".join(self._waiting))
        self.sizes.append(len(part))
        self._waiting, self._bytes = [], 0
        return part

    def done(self, segment: str, at: int) -> Doc:
        """The document as the index lists it."""
        return Doc(
            self.sort,
            self.key.id,
            self.mark,
            self.id,
            self.signature,
            self.digest.hexdigest(),
            dict(self.rows),
            self.kinds,
            self.packs,
            segment,
            at,
            tuple(self.sizes),
        )


def part_name(doc_id: str, number: int) -> str:
    """What a part is sealed for."""
    return f"backup document {doc_id}, part {number}"


class SegmentWriter:
    """Writes documents into segments of a backup."""

    def __init__(self, objects: ObjectStore, backup_id: str) -> None:
        self._objects = objects
        self._id = backup_id
        self.docs: list[Doc] = []
        self.segments: list[Held] = []

    def write(self, parts: Parts) -> None:
        """Write all of them."""
        first = next(parts, None)
        while first is not None:
            name = f"{SEGMENTS}{self._id}-{len(self.segments) + 1}"
            size, digest = self._objects.put_stream(name, self._segment(name, first, parts))
            self.segments.append(Held(name, size, digest.hex()))
            first = next(parts, None)

    def _segment(self, name: str, first: bytes | Draft, parts: Parts) -> Iterator[bytes]:
        """The bytes of one segment, which ends with a document."""
        place = start = 0
        part: bytes | Draft | None = first
        while part is not None:
            if isinstance(part, Draft):
                self.docs.append(part.done(name, start))
                start = place
                if place >= SEGMENT:
                    return
            else:
                place += len(part)
                yield part
            part = next(parts, None)
