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
from itertools import groupby
from operator import itemgetter
from typing import Final

from holdfast.backups import layout
from holdfast.backups.catalog import Catalog
from holdfast.backups.contents import Piece, Snapshot, UserRows
from holdfast.backups.layout import Doc, Held, Manifest
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
#: About how many bytes one segment has, and one document at most. It is held in memory, and sent as one object.
SEGMENT: Final = 8 * 1024 * 1024


@dataclass
class Draft:
    """A document that is being written."""

    sort: layout.Sort
    key: DataKey
    mark: str
    signature: str
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)
    """Of all rows of one owner, in however many documents they are."""
    packs: list[str] = field(default_factory=list)
    rows: Counter[str] = field(default_factory=Counter)
    frames: bytearray = field(default_factory=bytearray)

    def fill(self, pieces: Iterable[Piece]) -> Iterator[Draft]:
        """Take in frames; the document, and those that continue it where it becomes too large."""
        draft = self
        for piece in pieces:
            if len(draft.frames) >= SEGMENT:
                yield draft
                draft = Draft(self.sort, self.key, self.mark, self.signature, self.digest)
            draft.rows[piece.table] += piece.rows
            draft.frames += piece.data
        yield draft

    def seal(self, segment: str, at: int) -> tuple[Doc, bytes]:
        """The document as the index lists it, and its sealed bytes."""
        doc_id = secrets.token_hex(12)
        data = seal(self.key, layout.sealed_name(doc_id), bytes(self.frames))
        about = (self.sort, self.key.id, self.mark, doc_id, self.signature, self.digest.hexdigest())
        return Doc(*about, dict(self.rows), self.packs, segment, at, len(data)), data


@dataclass
class BackupMaker:
    """Makes one backup. ``renew`` raises if another process has taken over."""

    id: str
    kinds: frozenset[MemoryType]
    now: int
    rows: RowStore
    catalog: Catalog
    cold: Callable[[], ObjectStore]
    progress: Progress
    renew: Callable[[], None]
    full: bool

    def __post_init__(self) -> None:
        self._keyring, self._signing, self._ledger = self.catalog.state
        self._docs: list[Doc] = []
        self._segments: list[Held] = []
        self._reused: list[Doc] = []
        self._left_out: list[str] = []
        self._known: dict[tuple[str, str, str], list[Doc]] = defaultdict(list)
        self._store_key = self._keyring.ensure(layout.STORE_KEY, now=self.now)
        self.catalog.objects.prepare()
        self._parent = None if self.full else self._find_reusable(self.catalog.latest(self.kinds, now=self.now))

    def run(self) -> Manifest:
        """Make the backup. If anything breaks it off there is no backup, and a rotation removes what was written."""
        objects = self.catalog.objects
        ledger = self._ledger.last()
        with self.rows.read() as reader:
            snapshot = Snapshot(reader, self.kinds)
            self._write(self._drafts(snapshot))
            counters, parts = snapshot.counters(), snapshot.parts()
        seen, seen_hash = self._ledger.head()  # a rotation removes those who are erased from here on
        docs = self._without_erased([*self._docs, *self._reused], after=ledger)
        packs = self._copy_packs(docs)
        index = layout.write_index(docs)
        objects.put(layout.index_name(self.id), index)
        needed = {doc.segment for doc in docs}
        older = () if self._parent is None else self._parent.segments
        manifest = Manifest(
            id=self.id,
            created_at=self.now,
            kinds=tuple(sorted(kind.value for kind in self.kinds)),
            engine=self.rows.engine,
            software=SOFTWARE,
            schema=self.rows.schema,
            subjects=len({doc.key for doc in docs if doc.sort == "user"}),
            records=layout.count_records(docs),
            counters=counters,
            index=layout.held_object(layout.index_name(self.id), index),
            segments=tuple(held for held in (*older, *self._segments) if held.name in needed),
            packs=packs,
            ledger=seen,
            ledger_hash=seen_hash,
            written=len(index) + sum(held.bytes for held in self._segments),
            left_out=tuple(self._left_out),
            parts=parts,
        )
        key = self._signing.current(now=self.now)
        self.renew()  # another process may have removed what is not referred to yet
        objects.put(layout.manifest_name(self.id), layout.write_manifest(manifest, key), absent=True)
        return replace(manifest, key={"id": key.id})

    def _find_reusable(self, parent: Manifest | None) -> Manifest | None:
        """Look up which documents of the backup before can be used again: those in segments that are whole and mostly
        in use. The backup itself; ``None`` if it has another schema, is damaged, or is known to be bad.
        """
        if parent is None or parent.schema != self.rows.schema or self.catalog.is_known_bad(parent.id):
            return None
        try:
            docs = list(self.catalog.docs(parent))
        except ObjectDamagedError as problem:
            _log.warning("backup %s cannot be used by the next one, which copies everything: %s", parent.id, problem)
            return None
        used: Counter[str] = Counter()
        for doc in docs:
            used[doc.segment] += doc.size
        there = dict(self.catalog.objects.sizes(layout.SEGMENTS))
        whole = [held for held in parent.segments if there.get(held.name) == held.bytes]
        worth = {held.name for held in whole if used[held.name] >= held.bytes * _WORN}
        worn = {(doc.sort, doc.key, doc.mark) for doc in docs if doc.segment not in worth}
        for doc in docs:
            if (doc.sort, doc.key, doc.mark) not in worn:
                self._known[doc.sort, doc.key, doc.mark].append(doc)
        return parent

    # --- documents -----------------------------------------------------------------------------------------------

    def _write(self, drafts: Iterator[Draft]) -> None:
        """Write documents into segments."""
        data = bytearray()
        for draft in drafts:
            doc, sealed = draft.seal(self._next_segment(), len(data))
            self._docs.append(doc)
            data += sealed
            if "records" in doc.rows:
                self.progress(layout.count_records([doc]))
            if len(data) >= SEGMENT:
                self._end_segment(bytes(data))
                data.clear()
        if data:
            self._end_segment(bytes(data))

    def _next_segment(self) -> str:
        return f"{layout.SEGMENTS}{self.id}-{len(self._segments) + 1}"

    def _end_segment(self, data: bytes) -> None:
        name = self._next_segment()
        self.catalog.objects.put(name, data)
        self._segments.append(layout.held_object(name, data))

    def _drafts(self, snapshot: Snapshot) -> Iterator[Draft]:
        """Every document that the backup before does not have."""
        for users in snapshot.users():
            keys = {user: key for user in users if (key := self._key_of(user)) is not None}
            for user, found in groupby(snapshot.pieces([*keys]), key=itemgetter(0)):
                mark = mark_of(self._store_key, user.subject)
                draft = Draft(user.sort, keys[user], mark, user.signature, user.digest, user.packs())
                yield from draft.fill(piece for _, piece in found)
        for number, signature in snapshot.chains():
            if not self._is_known("chain", layout.STORE_KEY, f"chain {number}", signature):
                draft = Draft("chain", self._store_key, f"chain {number}", signature)
                yield from draft.fill(snapshot.chain(number, draft.digest))
        draft = Draft("common", self._store_key, "", "")
        yield from draft.fill(snapshot.common(draft.digest))

    def _key_of(self, user: UserRows) -> DataKey | None:
        """The key to write a user with; ``None`` for one who has not changed, or is being erased. If the key is damaged
        or the master key does not open it, the user is left out, and the others are backed up.
        """
        mark = mark_of(self._store_key, user.subject)
        if self._is_known(user.sort, user.alias, mark, user.signature) or self._ledger.find(user.alias) is not None:
            return None
        try:
            return self._keyring.ensure(user.alias, now=self.now)
        except (ObjectDamagedError, MasterKeyError) as problem:
            _log.warning("the backup leaves out user %s: %s", user.alias, problem)
            self._left_out.append(user.alias)
            return None

    def _is_known(self, sort: str, key: str, mark: str, signature: str) -> bool:
        """Whether the backup before has the document, and nothing in it has changed since."""
        docs = self._known.get((sort, key, mark), [])
        if not docs or docs[0].signature != signature:
            return False
        self._reused += docs
        self.progress(layout.count_records(docs))
        return True

    def _without_erased(self, docs: Sequence[Doc], *, after: int) -> list[Doc]:
        """The documents without those of users who were erased meanwhile; this may have made their keys again."""
        erased = self._ledger.list_erased(after=after)
        for alias in filter(self._ledger.is_carried_out, erased):  # the other erasures have not come to their keys yet
            self._keyring.destroy(alias)
        return [doc for doc in docs if doc.key not in erased]

    # --- cold objects --------------------------------------------------------------------------------------------

    def _copy_packs(self, docs: Sequence[Doc]) -> tuple[Held, ...]:
        """Copy the cold objects that are not there yet. They are sealed, and never change under one name."""
        before = {} if self._parent is None else {held.name: held for held in self._parent.packs}
        there = set(self.catalog.objects.names(layout.PACKS)) if before else set()
        kept = []
        for name in sorted({name for doc in docs for name in doc.packs}):
            copy = f"{layout.PACKS}{name}"
            with suppress(ObjectMissingError):  # it was removed while this was read, and so were the memories in it
                kept.append(before[copy] if copy in before and copy in there else self._copy_pack(name, copy))
        return tuple(kept)

    def _copy_pack(self, name: str, copy: str) -> Held:
        objects, data = self.catalog.objects, self.cold().get(name)
        try:
            objects.put(copy, data, absent=True)
        except ConflictError:  # an older backup has it
            if objects.get(copy) != data:
                objects.put(copy, data)  # damaged since: it is whole again, for that one, too
        return layout.held_object(copy, data)


def mark_of(store_key: DataKey, subject: Subject) -> str:
    """A digest of a subject by which its document is found. Without the key nobody can compute or reverse it."""
    return hmac.new(store_key.secret, b"backup of " + subject.encode(), hashlib.sha256).hexdigest()[:32]
