"""Making a backup: what has changed since the one before is read, sealed and written; the rest is referred to."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from holdfast.backups.catalog import Catalog
from holdfast.backups.contents import Owner, Piece, Reading, counted_kinds, packs_of
from holdfast.backups.format import (
    PACKS,
    SEGMENTS,
    STORE_KEY,
    Doc,
    Held,
    Manifest,
    held_object,
    index_name,
    manifest_name,
    write_index,
    write_manifest,
)
from holdfast.backups.writer import Draft, Parts, SegmentWriter
from holdfast.core.errors import ConflictError, MasterKeyError, ObjectDamagedError, ObjectMissingError
from holdfast.core.records import Subject
from holdfast.core.times import DAY
from holdfast.core.types import MemoryType
from holdfast.core.version import SOFTWARE
from holdfast.ports.objects import ObjectStore
from holdfast.privacy.keys.keyring import Keyring
from holdfast.privacy.keys.sealing import DataKey
from holdfast.privacy.ledger import Ledger
from holdfast.storage.relational.database import Database
from holdfast.storage.transfer.stores import view_of
from holdfast.storage.transfer.views import versions

_log = logging.getLogger("holdfast.backups")
#: A segment of which less than this part is still referred to is not referred to by new backups.
_WORN: Final = 0.5
Progress = Callable[[int], None]


class Creation:
    """One backup in the making."""

    def __init__(
        self,
        catalog: Catalog,
        database: Database,
        keyring: Keyring,
        ledger: Ledger,
        cold: Callable[[], ObjectStore],
        *,
        backup_id: str,
        kinds: frozenset[MemoryType],
        now: int,
        progress: Progress,
        renew: Callable[[], None] = lambda: None,
    ) -> None:
        self._catalog = catalog
        self._database = database
        self._keyring = keyring
        self._ledger = ledger
        self._cold = cold
        self._id = backup_id
        self._kinds = kinds
        self._now = now
        self._progress = progress
        self._renew = renew
        self._reused: list[Doc] = []
        self._left_out: list[str] = []
        self._known: dict[tuple[str, str, str], list[Doc]] = defaultdict(list)
        self._store_key = keyring.ensure(STORE_KEY, now=now)

    def run(self, *, full: bool) -> Manifest:
        """Make it. Whatever breaks it off, there is no backup, and what was written of it goes with a rotation."""
        objects = self._catalog.objects
        objects.prepare()
        ledger = self._ledger.last()
        parent = None if full else self._take_over(self._catalog.latest(self._kinds, now=self._now))
        writer = SegmentWriter(objects, self._id)
        with view_of(self._database) as view:
            reading = Reading(view, self._kinds)
            writer.write(self._parts(reading))
            counters = reading.counters()
        seen, seen_hash = self._ledger.head()  # who is erased from here on is taken out by a rotation
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
            engine=_engine_of(self._database),
            software=SOFTWARE,
            schema=versions(),
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
        key = self._catalog.keys.current(now=self._now)
        self._renew()  # whoever took over may have removed what is not referred to yet
        objects.put(manifest_name(self._id), write_manifest(manifest, key), absent=True)
        return replace(manifest, key={"id": key.id})

    def _take_over(self, parent: Manifest | None) -> Manifest | None:
        """Look up what the backup before holds, as far as its segments are there and still worth keeping.

        The backup itself, unless it is of no use: damage that is known of is not handed on.
        """
        if parent is None or parent.schema != versions() or self._catalog.is_known_bad(parent.id):
            return None
        try:
            docs = list(self._catalog.docs(parent))
        except ObjectDamagedError as problem:
            _log.warning("backup %s is of no use to the next one, which copies all: %s", parent.id, problem)
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

    def _parts(self, reading: Reading) -> Parts:
        for owners in reading.owners():
            yield from self._users(reading, owners)
        for number, signature, read in reading.chains():
            mark = f"chain {number}"
            if not self._is_known("chain", STORE_KEY, mark, signature):
                draft = Draft("chain", self._store_key, mark, signature)
                yield from _written(draft, read(draft.digest))
        draft = Draft("common", self._store_key, "", "")
        yield from _written(draft, reading.common(draft.digest))

    def _users(self, reading: Reading, owners: Sequence[Owner]) -> Parts:
        changed = []
        keys: dict[str, DataKey] = {}
        for owner in owners:
            if self._is_known(owner.sort, owner.alias, mark_of(self._store_key, owner.subject), owner.signature):
                continue
            if self._ledger.find(owner.alias) is None and (key := self._key_of(owner)) is not None:
                keys[owner.alias] = key
                changed.append(owner)
        digests = {owner.number: hashlib.sha256() for owner in changed}
        draft: Draft | None = None
        before: Owner | None = None
        for owner, piece in reading.pieces(changed, lambda owner: digests[owner.number]):
            if draft is not None and (owner is not before or draft.is_full):
                yield from draft.end()
                draft = draft.next() if owner is before else None
            before = owner
            draft = draft or self._draft(owner, keys[owner.alias], digests[owner.number])
            yield from draft.add(piece)
            if piece.table == "records":
                self._progress(piece.rows)
        if draft is not None:
            yield from draft.end()

    def _key_of(self, owner: Owner) -> DataKey | None:
        """The key of a user; ``None``, and the user is left out, if it is damaged or the master key does not open it:
        the others are backed up all the same.
        """
        try:
            return self._keyring.ensure(owner.alias, now=self._now)
        except (ObjectDamagedError, MasterKeyError) as problem:
            _log.warning("the backup is made without user %s: %s", owner.alias, problem)
            self._left_out.append(owner.alias)
            return None

    def _draft(self, owner: Owner, key: DataKey, digest: hashlib._Hash) -> Draft:
        return Draft(
            owner.sort,
            key,
            mark_of(self._store_key, owner.subject),
            owner.signature,
            counted_kinds(owner),
            packs_of(owner),
            digest,
        )

    def _is_known(self, sort: str, key: str, mark: str, signature: str) -> bool:
        """Whether the backup before has a document, and nothing of it has changed since."""
        docs = self._known.get((sort, key, mark), [])
        if not docs or docs[0].signature != signature:
            return False
        self._reused += docs
        self._progress(sum(doc.rows.get("records", 0) for doc in docs))
        return True

    def _without_erased(self, docs: Sequence[Doc], *, after: int) -> list[Doc]:
        """The documents but for those of whoever was erased meanwhile, whose key this may have made anew."""
        erased = self._ledger.erased(after=after)
        for alias in filter(self._ledger.is_carried_out, erased):  # the others have yet to come to their keys
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
            with suppress(ObjectMissingError):  # it went while this was read: so did the memories in it
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
    """By which the document of a subject is found; it tells nothing to who has not the key."""
    return hmac.new(store_key.secret, b"backup of " + subject.encode(), hashlib.sha256).hexdigest()[:32]


def describe_left_out(manifest: Manifest) -> str:
    """What is to be said of a backup that some users are not in."""
    count = len(manifest.left_out)
    some = ", ".join(manifest.left_out[:3]) + (", …" if count > 3 else "")
    return (
        f"it is without {count:,} {'user' if count == 1 else 'users'}, whose keys are damaged or not opened by the "
        f"master key ({some}); bring the keys back from a copy of the keyring, or go on without "
        "them with: holdfast key abandon"
    )


def keep_days(kinds: Sequence[str]) -> int:
    """How many days a backup of some kinds is kept."""
    return 90 if set(kinds) == {MemoryType.PERSONA.value} else 30


def ends_at(manifest: Manifest) -> int:
    """When a backup may go."""
    return manifest.created_at + keep_days(manifest.kinds) * DAY


def _written(draft: Draft, pieces: Iterable[Piece]) -> Parts:
    for piece in pieces:
        if draft.is_full:
            yield from draft.end()
            draft = draft.next()
        yield from draft.add(piece)
    yield from draft.end()


def _engine_of(database: Database) -> str:
    return "sqlite" if type(database).__module__.startswith("holdfast.storage.sqlite") else "postgresql"
