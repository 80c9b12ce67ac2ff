"""Making a backup: what has changed since the one before is read, sealed and written; the rest is referred to."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from holdfast.backups.catalog import Catalog
from holdfast.backups.contents import Piece, Snapshot, UserRows
from holdfast.backups.format import (
    PACKS,
    SEGMENTS,
    STORE_KEY,
    Doc,
    Held,
    Manifest,
    Sort,
    held_object,
    index_name,
    manifest_name,
    part_name,
    write_index,
    write_manifest,
)
from holdfast.core.errors import ConflictError, MasterKeyError, ObjectDamagedError, ObjectMissingError
from holdfast.core.records import MemoryType, Subject
from holdfast.installation import SOFTWARE
from holdfast.ports.backups import RowStore
from holdfast.ports.objects import ObjectStore
from holdfast.privacy.keys.encryption import DataKey, seal

_log = logging.getLogger("holdfast.backups")
#: A segment of which less than this part is still in use is not referred to by new backups.
_WORN: Final = 0.5
Progress = Callable[[int], None]
#: About how many bytes of frames are sealed as one part: as much as is held in memory of a document.
PART: Final = 2 * 1024 * 1024
#: About how many bytes one segment has.
SEGMENT: Final = 64 * 1024 * 1024


#: The sealed parts of documents, as they are made; a draft follows the last part of each.
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
    """Of all rows of one owner, in however many documents they are."""
    continues: bool = False
    """Whether it continues another document that had become too large."""
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    rows: Counter[str] = field(default_factory=Counter)
    sizes: list[int] = field(default_factory=list)
    _waiting: list[bytes] = field(default_factory=list)
    _bytes: int = 0

    def add(self, piece: Piece) -> Iterator[bytes]:
        """Add a frame; the parts that are full."""
        self.rows[piece.table] += piece.rows
        self._waiting.append(piece.data)
        self._bytes += len(piece.data)
        if self._bytes >= PART:
            yield self._seal()

    def end(self) -> Parts:
        """The last part, and the draft itself; nothing, if it was to continue another and there was no more."""
        if self._waiting or not (self.sizes or self.continues):
            yield self._seal()
        if self.sizes:
            yield self

    @property
    def is_full(self) -> bool:
        """Whether the rest should be another document. No more than this is ever held in memory."""
        return sum(self.sizes) >= SEGMENT

    def next(self) -> Draft:
        """The document that continues this one."""
        return Draft(self.sort, self.key, self.mark, self.signature, digest=self.digest, continues=True)

    def _seal(self) -> bytes:
        part = seal(self.key, part_name(self.id, len(self.sizes)), b"".join(self._waiting))
        self.sizes.append(len(part))
        self._waiting, self._bytes = [], 0
        return part

    def finish(self, segment: str, at: int) -> Doc:
        """The document as the index lists it."""
        about = (self.sort, self.key.id, self.mark, self.id, self.signature, self.digest.hexdigest())
        return Doc(*about, dict(self.rows), self.kinds, self.packs, segment, at, tuple(self.sizes))


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
                self.docs.append(part.finish(name, start))
                start = place
                if place >= SEGMENT:
                    return
            else:
                place += len(part)
                yield part
            part = next(parts, None)


class Order(NamedTuple):
    """The backup that is to be made."""

    id: str
    kinds: frozenset[MemoryType]
    now: int


class BackupMaker:
    """Makes one backup. ``renew`` raises if another process has taken over."""

    def __init__(
        self,
        rows: RowStore,
        catalog: Catalog,
        cold: Callable[[], ObjectStore],
        order: Order,
        *,
        progress: Progress,
        renew: Callable[[], None],
    ) -> None:
        self._rows = rows
        self._catalog = catalog
        self._keyring, _, self._ledger = catalog.state
        self._cold = cold
        self._id, self._kinds, self._now = order
        self._progress = progress
        self._renew = renew
        self._reused: list[Doc] = []
        self._left_out: list[str] = []
        self._known: dict[tuple[str, str, str], list[Doc]] = defaultdict(list)
        self._store_key = self._keyring.ensure(STORE_KEY, now=self._now)

    def run(self, *, full: bool) -> Manifest:
        """Make the backup. If anything breaks it off there is no backup, and a rotation removes what was written."""
        objects = self._catalog.objects
        objects.prepare()
        ledger = self._ledger.last()
        parent = None if full else self._find_reusable(self._catalog.latest(self._kinds, now=self._now))
        writer = SegmentWriter(objects, self._id)
        with self._rows.read() as reader:
            snapshot = Snapshot(reader, self._kinds)
            writer.write(self._parts(snapshot))
            counters = snapshot.counters()
        seen, seen_hash = self._ledger.head()  # a rotation removes those who are erased from here on
        docs = self._without_erased([*writer.docs, *self._reused], after=ledger)
        packs = self._copy_packs(docs, parent)
        index = write_index(docs)
        objects.put(index_name(self._id), index)
        needed = {doc.segment for doc in docs}
        older = () if parent is None else parent.segments
        segments = tuple(held for held in (*older, *writer.segments) if held.name in needed)
        rows: Counter[str] = Counter()
        for doc in docs:
            rows.update(doc.rows)
        manifest = Manifest(
            id=self._id,
            created_at=self._now,
            kinds=tuple(sorted(kind.value for kind in self._kinds)),
            engine=self._rows.engine,
            software=SOFTWARE,
            schema=self._rows.schema,
            subjects=len({doc.key for doc in docs if doc.sort == "user"}),
            records=rows["records"],
            rows=dict(rows),
            counters=counters,
            index=held_object(index_name(self._id), index),
            segments=segments,
            packs=packs,
            parent=None if parent is None else parent.id,
            reused=len(self._reused),
            ledger=seen,
            ledger_hash=seen_hash,
            written=len(index) + sum(held.bytes for held in writer.segments),
            left_out=tuple(self._left_out),
        )
        key = self._catalog.state.signing.current(now=self._now)
        self._renew()  # another process may have removed what is not referred to yet
        objects.put(manifest_name(self._id), write_manifest(manifest, key), absent=True)
        return replace(manifest, key={"id": key.id})

    def _find_reusable(self, parent: Manifest | None) -> Manifest | None:
        """Look up which documents of the backup before can be used again: those in segments that are whole and mostly
        in use. The backup itself; ``None`` if it has another schema, is damaged, or is known to be bad.
        """
        if parent is None or parent.schema != self._rows.schema or self._catalog.is_known_bad(parent.id):
            return None
        try:
            docs = list(self._catalog.docs(parent))
        except ObjectDamagedError as problem:
            _log.warning("backup %s cannot be used by the next one, which copies everything: %s", parent.id, problem)
            return None
        used: Counter[str] = Counter()
        for doc in docs:
            used[doc.segment] += sum(doc.sizes)
        there = dict(self._catalog.objects.sizes(SEGMENTS))
        whole = [held for held in parent.segments if there.get(held.name) == held.bytes]
        worth = {held.name for held in whole if used[held.name] >= held.bytes * _WORN}
        worn = {(doc.sort, doc.key, doc.mark) for doc in docs if doc.segment not in worth}
        for doc in docs:
            if (doc.sort, doc.key, doc.mark) not in worn:
                self._known[doc.sort, doc.key, doc.mark].append(doc)
        return parent

    # --- documents -----------------------------------------------------------------------------------------------

    def _parts(self, snapshot: Snapshot) -> Parts:
        for users in snapshot.users():
            yield from self._write_users(snapshot, users)
        for number, signature, read in snapshot.chains():
            mark = f"chain {number}"
            if not self._is_known("chain", STORE_KEY, mark, signature):
                draft = Draft("chain", self._store_key, mark, signature)
                yield from _write_pieces(draft, read(draft.digest))
        draft = Draft("common", self._store_key, "", "")
        yield from _write_pieces(draft, snapshot.common(draft.digest))

    def _write_users(self, snapshot: Snapshot, users: Sequence[UserRows]) -> Parts:
        changed = []
        keys: dict[str, DataKey] = {}
        for user in users:
            if self._is_known(user.sort, user.alias, mark_of(self._store_key, user.subject), user.signature):
                continue
            if self._ledger.find(user.alias) is None and (key := self._key_of(user)) is not None:
                keys[user.alias] = key
                changed.append(user)
        digests = {user.number: hashlib.sha256() for user in changed}
        draft: Draft | None = None
        before: UserRows | None = None
        for user, piece in snapshot.pieces(changed, lambda user: digests[user.number]):
            if draft is not None and (user is not before or draft.is_full):
                yield from draft.end()
                draft = draft.next() if user is before else None
            before = user
            draft = draft or self._draft(user, keys[user.alias], digests[user.number])
            yield from draft.add(piece)
            if piece.table == "records":
                self._progress(piece.rows)
        if draft is not None:
            yield from draft.end()

    def _key_of(self, user: UserRows) -> DataKey | None:
        """The key of a user; ``None`` if it is damaged or the master key does not open it. Then the user is left out,
        and the others are backed up.
        """
        try:
            return self._keyring.ensure(user.alias, now=self._now)
        except (ObjectDamagedError, MasterKeyError) as problem:
            _log.warning("the backup leaves out user %s: %s", user.alias, problem)
            self._left_out.append(user.alias)
            return None

    def _draft(self, user: UserRows, key: DataKey, digest: hashlib._Hash) -> Draft:
        mark = mark_of(self._store_key, user.subject)
        return Draft(user.sort, key, mark, user.signature, user.count_kinds(), user.packs(), digest)

    def _is_known(self, sort: str, key: str, mark: str, signature: str) -> bool:
        """Whether the backup before has the document, and nothing in it has changed since."""
        docs = self._known.get((sort, key, mark), [])
        if not docs or docs[0].signature != signature:
            return False
        self._reused += docs
        self._progress(sum(doc.rows.get("records", 0) for doc in docs))
        return True

    def _without_erased(self, docs: Sequence[Doc], *, after: int) -> list[Doc]:
        """The documents without those of users who were erased meanwhile; this may have made their keys again."""
        erased = self._ledger.erased(after=after)
        for alias in filter(self._ledger.is_carried_out, erased):  # the other erasures have not come to their keys yet
            self._keyring.destroy(alias)
        return [doc for doc in docs if doc.key not in erased]

    # --- cold objects --------------------------------------------------------------------------------------------

    def _copy_packs(self, docs: Sequence[Doc], parent: Manifest | None) -> tuple[Held, ...]:
        """Copy the cold objects that are not there yet. They are sealed, and never change under one name."""
        there = set(self._catalog.objects.names(PACKS)) if parent is not None and parent.packs else set()
        before = {held.name: held for held in (() if parent is None else parent.packs) if held.name in there}
        kept = []
        for name in sorted({name for doc in docs for name in doc.packs}):
            held = before.get(f"{PACKS}{name}")
            with suppress(ObjectMissingError):  # it was removed while this was read, and so were the memories in it
                kept.append(held if held is not None else self._copy_pack(name))
        return tuple(kept)

    def _copy_pack(self, name: str) -> Held:
        objects, copy = self._catalog.objects, f"{PACKS}{name}"
        data = self._cold().get(name)
        try:
            objects.put(copy, data, absent=True)
        except ConflictError:  # an older backup has it
            if objects.get(copy) != data:
                objects.put(copy, data)  # damaged since: it is whole again, for that one, too
        return held_object(copy, data)


def mark_of(store_key: DataKey, subject: Subject) -> str:
    """A digest of a subject by which its document is found. Without the key nobody can compute or reverse it."""
    return hmac.new(store_key.secret, b"backup of " + subject.encode(), hashlib.sha256).hexdigest()[:32]


def _write_pieces(draft: Draft, pieces: Iterable[Piece]) -> Parts:
    for piece in pieces:
        if draft.is_full:
            yield from draft.end()
            draft = draft.next()
        yield from draft.add(piece)
    yield from draft.end()
