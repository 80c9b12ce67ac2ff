"""Rotation: it removes backups past their time, takes erased users out of the others, and removes objects that no
backup refers to any more.

The last good backup of a kind is never removed. A backup that is incomplete, or dated later than now, does not count
as good. Objects that are not of backups are left alone.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final

from holdfast.backups import layout
from holdfast.backups.catalog import Catalog, Damaged, ends_at, is_ahead
from holdfast.backups.layout import Doc, Held, Manifest
from holdfast.core.clock import Belief
from holdfast.core.errors import ObjectDamagedError, ObjectMissingError
from holdfast.core.packs import is_pack_name
from holdfast.privacy.ledger import Ledger

_log = logging.getLogger("holdfast.backups")
_OBJECT: Final = re.compile(
    rf"{layout.FOLDER}([^/]+)/(?:(?:manifest|trial)\.json|index(?:-\d+)?)|{layout.SEGMENTS}(.+)-\d+(?:r\d+)?"
)


@dataclass
class Rotation:
    """What a rotation did."""

    removed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """Backups past their time that are the last good ones of a kind."""
    rewritten: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    """Backups with a manifest that cannot be trusted, or without something that they refer to. They and all that they
    may refer to are left as they are."""
    ahead: list[str] = field(default_factory=list)
    """Backups that are dated later than now. They are left alone, and none is removed because of them."""
    waiting: list[str] = field(default_factory=list)
    """Backups that are past their time by a clock that is not trusted."""
    waiting_for: str | None = None
    """Why they wait, in words."""
    objects: int = 0
    """How many objects were removed."""

    def as_dict(self) -> dict[str, Any]:
        """The same, for programs."""
        return dict(vars(self))


def rotate(catalog: Catalog, ledger: Ledger, *, belief: Belief, renew: Callable[[], None] = lambda: None) -> Rotation:
    """Rotate. Only backups past their time by the trusted time are removed. If anything breaks it off, every backup is
    whole, and the next rotation goes on.
    """
    now, done = belief.now, Rotation()
    whole = _readable(catalog, done)
    done.ahead += [one.id for one in whole if is_ahead(one, now)]
    staying, incomplete = _remove_old(catalog, whole, done, belief.upto)
    done.waiting += [one.id for one in staying if belief.upto < ends_at(one) <= now]
    done.waiting_for = belief.explain() if done.waiting else None
    rewrite = _Rewrite(catalog, ledger, staying, now)
    after = rewrite.run(renew)
    done.damaged += sorted(rewrite.damaged)
    done.rewritten += rewrite.rewritten
    renew()
    _remove_objects(catalog, after, done)
    done.damaged += [one for one in incomplete if one not in done.damaged]
    return done


def remove(catalog: Catalog, backup_id: str) -> Rotation:
    """Remove one backup, and what no other refers to."""
    catalog.objects.delete([layout.manifest_name(backup_id)])  # without a manifest it is no backup
    done = Rotation(removed=[backup_id])
    _remove_objects(catalog, _readable(catalog, done), done)
    return done


def kinds_without(catalog: Catalog, backup_id: str, *, now: int) -> set[str]:
    """The kinds that a good backup other than this one holds."""
    good, _ = _find_good(catalog, [one for one in catalog.whole() if one.id != backup_id], now)
    return {kind for one in good for kind in one.kinds}


def _readable(catalog: Catalog, done: Rotation) -> list[Manifest]:
    """The backups with a manifest that can be trusted; the others are noted."""
    found = list(catalog.all())
    done.damaged += [one.id for one in found if isinstance(one, Damaged)]
    return [one for one in found if isinstance(one, Manifest)]


def _find_good(catalog: Catalog, whole: Sequence[Manifest], now: int) -> tuple[list[Manifest], list[Manifest]]:
    """The backups that are good, dated not later than now, complete and with all users; and those that would be good
    but are incomplete.
    """
    tried = [one for one in whole if catalog.is_good(one.id) and not is_ahead(one, now) and not one.left_out]
    sizes = catalog.sizes() if tried else {}
    good = [one for one in tried if all(sizes.get(held.name) == held.bytes for held in one.objects)]
    return good, [one for one in tried if one not in good]


def _remove_old(
    catalog: Catalog, whole: Sequence[Manifest], done: Rotation, now: int
) -> tuple[list[Manifest], list[str]]:
    """Remove the backups past their time, if later good ones hold all of their kinds; the backups that stay, and the
    ids of those that are incomplete.
    """
    if all(now < ends_at(one) for one in whole):
        return list(whole), []
    good, incomplete = _find_good(catalog, whole, now)
    staying = []
    for manifest in whole:
        if now < ends_at(manifest):
            staying.append(manifest)
            continue
        later = {kind for one in good if one.created_at > manifest.created_at for kind in one.kinds}
        if set(manifest.kinds) <= later:
            catalog.objects.delete([layout.manifest_name(manifest.id)])  # without a manifest it is no backup
            done.removed.append(manifest.id)
        else:
            staying.append(manifest)
            done.kept.append(manifest.id)
    left = [one.id for one in incomplete if one in staying]
    for backup_id in left:
        _log.warning("backup %s lacks something that it refers to; no older one is removed because of it", backup_id)
    return staying, left


class _Rewrite:
    """Takes erased users out of backups. A segment is written again once, for all backups that share it.

    A backup that cannot be read is left as it is, and does not stop the others.
    """

    def __init__(self, catalog: Catalog, ledger: Ledger, staying: Sequence[Manifest], now: int) -> None:
        self._catalog = catalog
        self._now = now
        self._last, last_hash = ledger.head()
        #: The fields of a manifest that was compared with the ledger as it is.
        self._seen: dict[str, Any] = {"ledger": self._last, "ledger_hash": last_hash}
        self._staying = staying
        self.damaged: set[str] = set()
        self.rewritten: list[str] = []
        known = min((one.ledger for one in staying), default=self._last)
        self._erased = ledger.list_erased(after=known)
        self._docs = self._read_indexes() if self._erased else {}
        self._worn = {doc.segment for docs in self._docs.values() for doc in docs if doc.key in self._erased}
        self._taken = set(catalog.objects.names(layout.SEGMENTS)) if self._worn else set()
        self._moved: dict[str, Doc] = {}
        self._new_segments: dict[str, Held | None] = {}

    def _read_indexes(self) -> dict[str, list[Doc]]:
        found = {}
        for one in self._staying:
            try:
                found[one.id] = list(self._catalog.docs(one))
            except ObjectDamagedError as problem:
                self._note_damaged(one, problem)
        return found

    def _note_damaged(self, one: Manifest, problem: ObjectDamagedError) -> None:
        _log.warning("backup %s is left as it is: %s", one.id, problem)
        self.damaged.add(one.id)

    def run(self, renew: Callable[[], None]) -> list[Manifest]:
        """The backups as they are afterwards."""
        for name in sorted(self._worn):
            users = [one for one in self._staying if any(held.name == name for held in one.segments)]
            held = next(held for held in users[0].segments if held.name == name)
            try:
                self._new_segments[name] = self._without_erased(held)
            except ObjectDamagedError as problem:
                for one in users:
                    self._note_damaged(one, problem)
            renew()
        return [one if one.id in self.damaged else self._rewrite(one) for one in self._staying]

    def _without_erased(self, held: Held) -> Held | None:
        """Write a segment again, with what any backup still refers to; ``None`` if that is nothing."""
        within = {
            doc.id: doc
            for docs in self._docs.values()
            for doc in docs
            if doc.segment == held.name and doc.key not in self._erased
        }
        if not within:
            return None
        old, name, place = self._catalog.read(held), self._new_name(held.name), 0
        docs = sorted(within.values(), key=lambda doc: doc.at)
        for doc in docs:
            self._moved[doc.id] = doc._replace(segment=name, at=place)
            place += doc.size
        data = b"".join(old[doc.at : doc.at + doc.size] for doc in docs)
        self._catalog.objects.put(name, data)
        return layout.held_object(name, data)

    def _new_name(self, segment: str) -> str:
        """A name that no object has. A rotation that was cut short may have used some already."""
        backup_id, number = layout.segment_place(segment)
        names = (f"{layout.SEGMENTS}{backup_id}-{number}r{version}" for version in count(self._last))
        name = next(name for name in names if name not in self._taken)
        self._taken.add(name)
        return name

    def _rewrite(self, manifest: Manifest) -> Manifest:
        if not any(held.name in self._worn for held in manifest.segments):
            return self._sign(replace(manifest, **self._seen)) if manifest.ledger < self._last else manifest
        docs = [self._moved.get(doc.id, doc) for doc in self._docs[manifest.id] if doc.key not in self._erased]
        gone = {doc.key for doc in self._docs[manifest.id] if doc.sort == "user" and doc.key in self._erased}
        index, name = layout.write_index(docs), layout.index_name(manifest.id, self._last)
        self._catalog.objects.put(name, index)
        segments = [self._new_segments.get(held.name, held) for held in manifest.segments]
        rewritten = replace(
            manifest,
            index=layout.held_object(name, index),
            segments=tuple(held for held in segments if held is not None),
            packs=tuple(one for one in manifest.packs if not any(f"/{alias}/" in one.name for alias in self._erased)),
            subjects=manifest.subjects - len(gone),
            records=layout.count_records(docs),
            **self._seen,
        )
        self.rewritten.append(manifest.id)
        return self._sign(rewritten)

    def _sign(self, manifest: Manifest) -> Manifest:
        key = self._catalog.state.signing.current(now=self._now)
        self._catalog.objects.put(layout.manifest_name(manifest.id), layout.write_manifest(manifest, key))
        return manifest


def _remove_objects(catalog: Catalog, staying: Sequence[Manifest], done: Rotation) -> None:
    """Remove the objects of backups that no backup refers to; none, while a backup cannot be read."""
    if done.damaged:
        return
    needed = {held.name for one in staying for held in one.objects}
    needed |= {name for one in staying for name in (layout.manifest_name(one.id), layout.trial_name(one.id))}
    there = (name for folder in layout.FOLDERS for name in catalog.objects.names(folder))
    unused = [name for name in there if name not in needed and _is_of_backup(name)]
    for start in range(0, len(unused), 1_000):
        with suppress(ObjectMissingError):
            catalog.objects.delete(unused[start : start + 1_000])
    done.objects += len(unused)


def _is_of_backup(name: str) -> bool:
    if name.startswith(layout.PACKS):
        return is_pack_name(name.removeprefix(layout.PACKS))
    found = _OBJECT.fullmatch(name)
    return found is not None and layout.is_backup_id(found[1] or found[2])
