"""Rotation: backups past their time go, what was sealed for the erased is taken out of the others, and what no backup
refers to any more goes with them. The last good backup of a kind never goes by itself, nor on the word of one that is
incomplete or dated ahead; files that are nobody's are left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.backups.catalog import Catalog, Damaged, is_ahead
from holdfast.backups.create import ends_at
from holdfast.backups.format import (
    FOLDER,
    PACKS,
    SEGMENTS,
    Doc,
    Held,
    Manifest,
    backup_of,
    held_object,
    index_name,
    maker_of,
    manifest_name,
    segment_anew,
    trial_name,
    write_index,
    write_manifest,
)
from holdfast.core.clock import Belief
from holdfast.core.errors import ObjectDamagedError, ObjectMissingError
from holdfast.core.packs import is_pack_name
from holdfast.privacy.ledger import Ledger

_log = logging.getLogger("holdfast.backups")


@dataclass
class Rotation:
    """What a rotation did."""

    removed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """Backups past their time that are the last good ones of a kind."""
    rewritten: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    """Backups whose manifest cannot be trusted, or that lack something that they refer to; they are left as they are,
    with all that they may refer to."""
    ahead: list[str] = field(default_factory=list)
    """Backups that are dated later than now: they are left alone, and no other goes on their account."""
    waiting: list[str] = field(default_factory=list)
    """Backups that are past their time by the clock, and not by the time that is believed."""
    waiting_for: str | None = None
    """Why they wait, in words."""
    objects: int = 0
    """How many objects went."""

    def as_dict(self) -> dict[str, Any]:
        """The same, for programs."""
        return {
            "removed": self.removed,
            "kept": self.kept,
            "rewritten": self.rewritten,
            "damaged": self.damaged,
            "ahead": self.ahead,
            "waiting": self.waiting,
            "waiting_for": self.waiting_for,
            "objects": self.objects,
        }


def rotate(catalog: Catalog, ledger: Ledger, *, belief: Belief, renew: Callable[[], None] = lambda: None) -> Rotation:
    """Do all of it; no backup goes before the time that is believed. Whatever breaks it off, every backup that is there
    is whole, and the next rotation goes on.
    """
    now = belief.now
    done = Rotation()
    whole = _readable(catalog, done)
    done.ahead += [one.id for one in whole if is_ahead(one, now)]
    staying, lacking = _leave(catalog, whole, done, belief.upto)
    done.waiting += [one.id for one in staying if belief.upto < ends_at(one) <= now]
    done.waiting_for = belief.explain() if done.waiting else None
    rewriting = _Rewriting(catalog, ledger, staying, now)
    after = rewriting.run(renew)
    done.damaged += sorted(rewriting.damaged)
    done.rewritten += [manifest.id for manifest, is_rewritten in after if is_rewritten]
    renew()
    _sweep_objects(catalog, [manifest for manifest, _ in after], done)
    done.damaged += [one for one in lacking if one not in done.damaged]
    return done


def remove(catalog: Catalog, backup_id: str) -> Rotation:
    """Remove one backup, and what no other refers to."""
    catalog.objects.delete([manifest_name(backup_id)])  # from here on it is none
    done = Rotation(removed=[backup_id])
    _sweep_objects(catalog, _readable(catalog, done), done)
    return done


def kinds_without(catalog: Catalog, backup_id: str, *, now: int) -> set[str]:
    """The kinds that a good backup other than this one holds."""
    good, _ = _good(catalog, [one for one in catalog.whole() if one.id != backup_id], now)
    return {kind for one in good for kind in one.kinds}


def _readable(catalog: Catalog, done: Rotation) -> list[Manifest]:
    """The backups whose manifest can be trusted; the others are noted."""
    whole: list[Manifest] = []
    for one in catalog.all():
        if isinstance(one, Damaged):
            done.damaged.append(one.id)
        else:
            whole.append(one)
    return whole


def is_good(catalog: Catalog, backup_id: str) -> bool:
    """Whether a trial restore of a backup has been compared with what it holds, and was the same."""
    trial = catalog.trial(backup_id)
    return trial is not None and trial.get("good") is True


def _good(catalog: Catalog, whole: Sequence[Manifest], now: int) -> tuple[list[Manifest], list[Manifest]]:
    """The backups that another may go for: good on trial, not dated ahead, with everyone in them, and all that they
    refer to is there still; and those that lack something of it by now.
    """
    tried = [one for one in whole if is_good(catalog, one.id) and not is_ahead(one, now) and not one.left_out]
    sizes = catalog.sizes() if tried else {}
    good = [one for one in tried if catalog.is_complete(one, sizes)]
    return good, [one for one in tried if one not in good]


def _leave(catalog: Catalog, whole: Sequence[Manifest], done: Rotation, now: int) -> tuple[list[Manifest], list[str]]:
    """Remove the backups past their time, but for those that nothing better has come after; what stays, and which of
    that were good once and lack something by now.
    """
    if all(now < ends_at(one) for one in whole):
        return list(whole), []
    good, lacking = _good(catalog, whole, now)
    staying = []
    for manifest in whole:
        if now < ends_at(manifest):
            staying.append(manifest)
            continue
        later = {kind for one in good if one.created_at > manifest.created_at for kind in one.kinds}
        if set(manifest.kinds) <= later:
            catalog.objects.delete([manifest_name(manifest.id)])  # from here on it is none
            done.removed.append(manifest.id)
        else:
            staying.append(manifest)
            done.kept.append(manifest.id)
    left = [one.id for one in lacking if one in staying]
    for backup_id in left:
        _log.warning("backup %s lacks something that it refers to; no older one goes on its account", backup_id)
    return staying, left


class _Rewriting:
    """Takes what was sealed for the erased out of backups: a segment is written anew once, for all that share it.

    A backup of which that cannot be read is left as it is, and does not keep the others from it.
    """

    def __init__(self, catalog: Catalog, ledger: Ledger, staying: Sequence[Manifest], now: int) -> None:
        self._catalog = catalog
        self._now = now
        self._last, self._last_hash = ledger.head()
        self._staying = staying
        self.damaged: set[str] = set()
        known = min((one.ledger for one in staying), default=self._last)
        self._erased = ledger.erased(after=known)
        self._docs = self._read_indexes() if self._erased else {}
        self._worn = {doc.segment for docs in self._docs.values() for doc in docs if doc.key in self._erased}
        self._taken = set(catalog.objects.names(SEGMENTS)) if self._worn else set()
        self._moved: dict[str, Doc] = {}
        self._anew: dict[str, Held | None] = {}

    @property
    def _held(self) -> dict[str, Any]:
        """What a manifest says that was held against the ledger as it is."""
        return {"ledger": self._last, "ledger_hash": self._last_hash}

    def _read_indexes(self) -> dict[str, list[Doc]]:
        found = {}
        for one in self._staying:
            try:
                found[one.id] = list(self._catalog.docs(one))
            except ObjectDamagedError as problem:
                self._set_aside(one, problem)
        return found

    def _set_aside(self, one: Manifest, problem: ObjectDamagedError) -> None:
        _log.warning("backup %s is left as it is: %s", one.id, problem)
        self.damaged.add(one.id)

    def run(self, renew: Callable[[], None]) -> list[tuple[Manifest, bool]]:
        """The backups as they are then, and whether each was rewritten."""
        for name in sorted(self._worn):
            users = [one for one in self._staying if any(held.name == name for held in one.segments)]
            held = next(held for held in users[0].segments if held.name == name)
            try:
                self._anew[name] = self._without_erased(held)
            except ObjectDamagedError as problem:
                for one in users:
                    self._set_aside(one, problem)
            renew()
        return [self._rewritten(one) if one.id not in self.damaged else (one, False) for one in self._staying]

    def _without_erased(self, held: Held) -> Held | None:
        """A segment anew, with what any backup still refers to; ``None`` if that is nothing."""
        within = {
            doc.id: doc
            for docs in self._docs.values()
            for doc in docs
            if doc.segment == held.name and doc.key not in self._erased
        }
        if not within:
            return None
        old, name, place = self._catalog.checked(held), self._new_name(held.name), 0
        pieces = []
        for doc in sorted(within.values(), key=lambda doc: doc.at):
            size = sum(doc.sizes)
            pieces.append(old[doc.at : doc.at + size])
            self._moved[doc.id] = doc._replace(segment=name, at=place)
            place += size
        data = b"".join(pieces)
        self._catalog.objects.put(name, data)
        return held_object(name, data)

    def _new_name(self, segment: str) -> str:
        """A name that no object has: one that a rotation wrote before it was cut short may be in use already."""
        version = self._last
        while (name := segment_anew(segment, version)) in self._taken:
            version += 1
        self._taken.add(name)
        return name

    def _rewritten(self, manifest: Manifest) -> tuple[Manifest, bool]:
        if not any(held.name in self._worn for held in manifest.segments):
            if manifest.ledger < self._last:
                manifest = _kept(self._catalog, replace(manifest, **self._held), self._now)
            return manifest, False
        docs = [self._moved.get(doc.id, doc) for doc in self._docs[manifest.id] if doc.key not in self._erased]
        gone = {doc.key for doc in self._docs[manifest.id] if doc.sort == "user" and doc.key in self._erased}
        index, name = write_index(docs), index_name(manifest.id, self._last)
        self._catalog.objects.put(name, index)
        segments = [self._anew.get(held.name, held) for held in manifest.segments]
        rewritten = replace(
            manifest,
            index=held_object(name, index),
            segments=tuple(held for held in segments if held is not None),
            packs=tuple(one for one in manifest.packs if not any(f"/{alias}/" in one.name for alias in self._erased)),
            subjects=manifest.subjects - len(gone),
            records=sum(doc.rows.get("records", 0) for doc in docs),
            rows=_summed(docs),
            **self._held,
            rewritten_at=self._now,
        )
        return _kept(self._catalog, rewritten, self._now), True


def _kept(catalog: Catalog, manifest: Manifest, now: int) -> Manifest:
    catalog.objects.put(manifest_name(manifest.id), write_manifest(manifest, catalog.keys.current(now=now)))
    return manifest


def _summed(docs: Sequence[Doc]) -> dict[str, int]:
    rows: dict[str, int] = {}
    for doc in docs:
        for table, count in doc.rows.items():
            rows[table] = rows.get(table, 0) + count
    return rows


def _sweep_objects(catalog: Catalog, staying: Sequence[Manifest], done: Rotation) -> None:
    """Remove the objects of ours that no backup refers to; while one cannot be read, none of them."""
    if done.damaged:
        return
    needed = {held.name for one in staying for held in (one.index, *one.segments, *one.packs)}
    needed |= {name for one in staying for name in (manifest_name(one.id), trial_name(one.id))}
    there = (name for prefix in (FOLDER, SEGMENTS, PACKS) for name in catalog.objects.names(prefix))
    leaving = [name for name in there if name not in needed and _is_ours(name)]
    for start in range(0, len(leaving), 1_000):
        with suppress(ObjectMissingError):
            catalog.objects.delete(leaving[start : start + 1_000])
    done.objects += len(leaving)


def _is_ours(name: str) -> bool:
    if name.startswith(FOLDER):
        parts = name.split("/")
        return len(parts) == 3 and backup_of(manifest_name(parts[1])) is not None and _is_known_file(parts[2])
    return is_pack_name(name.removeprefix(PACKS)) if name.startswith(PACKS) else maker_of(name) is not None


def _is_known_file(name: str) -> bool:
    return name in {"manifest.json", "trial.json", "index"} or name.removeprefix("index-").isdigit()
