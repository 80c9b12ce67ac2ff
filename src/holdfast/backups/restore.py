"""Bringing back what a backup holds: all of it into a store that nothing was ever kept in, or what is missing of some
users into one that is in use. The ledger of erasures is asked within the transaction that writes, which no erasure can
come between: whoever was erased stays so.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.backups.catalog import Catalog
from holdfast.backups.contents import Reading, table_of
from holdfast.backups.format import PACKS, Doc, Manifest
from holdfast.core.errors import NotFoundError, StoreTooNewError
from holdfast.core.frames import Frame
from holdfast.core.records import Subject
from holdfast.core.types import MemoryType
from holdfast.installation import upgrade_command
from holdfast.ports.objects import ObjectStore
from holdfast.storage.transfer.temp_store import scratch_store
from holdfast.storage.transfer.views import Fill, View, versions

Progress = Callable[[int], None]


@dataclass
class Restored:
    """What a restore brought back."""

    backup_id: str
    kinds: tuple[str, ...]
    users: int = 0
    memories: int = 0
    """Memories that are back."""
    expired: int = 0
    """Memories that are past their time by the rules in force: nobody sees them, and the next sweep takes them."""
    kept: int = 0
    """Memories that were there, or whose name another has by now: all of it was left as it is."""
    binned: int = 0
    """Memories that are in the recycle bin, and were left there: they are brought back from that."""
    lost: int = 0
    """Memories that cannot be brought back, because the backup has not the cold object that they lie in."""
    sessions: int = 0
    messages: int = 0
    facts: int = 0
    holds: int = 0
    erased: int = 0
    """Users who were erased since, and stay so."""
    strangers: int = 0
    """Users whose name belongs to somebody else by now: nothing was mixed."""
    objects: int = 0
    """Cold objects that were missing, and are back."""
    whole: bool = False
    """Whether it became the whole store, rules, agents and audit chain included."""
    counts: Counter[str] = field(default_factory=Counter)
    entities: dict[Subject, Sequence[str]] = field(default_factory=dict)
    """Entities of subjects, whose texts may no longer say what holds."""

    def as_dict(self) -> dict[str, Any]:
        """The same, for programs."""
        return {
            "backup_id": self.backup_id,
            "kinds": list(self.kinds),
            "users": self.users,
            "memories": self.memories,
            "expired": self.expired,
            "kept": self.kept,
            "binned": self.binned,
            "lost": self.lost,
            "sessions": self.sessions,
            "messages": self.messages,
            "facts": self.facts,
            "holds": self.holds,
            "erased": self.erased,
            "strangers": self.strangers,
            "objects": self.objects,
            "whole": self.whole,
        }


def check_known(manifest: Manifest) -> None:
    """``StoreTooNewError`` if a newer version of Holdfast has made a backup."""
    if any(theirs > ours for theirs, ours in zip(manifest.schema, versions(), strict=True)):
        raise StoreTooNewError(
            f"backup {manifest.id} was made by {manifest.software}, which is newer than this; "
            f"upgrade with: {upgrade_command()}"
        )


def fill_whole(
    catalog: Catalog,
    manifest: Manifest,
    fill: Fill,
    *,
    is_erased: Callable[[str], bool],
    is_revoked: Callable[[str], bool] = lambda _key_id: False,
    progress: Progress = lambda _count: None,
) -> tuple[Restored, list[Doc]]:
    """Write all that a backup holds, but for who was erased and for API keys that were revoked since; what was
    written.
    """
    restored = Restored(manifest.id, manifest.kinds, whole=True)
    written: list[Doc] = []
    erased: set[str] = set()
    fill.clear()
    for doc, frames in catalog.contents(manifest, catalog.docs(manifest)):
        if frames is None or (doc.sort == "user" and is_erased(doc.key)):
            erased.add(doc.key)
            continue
        _add(fill, frames, is_revoked)
        written.append(doc)
        restored.counts.update(doc.rows)
        progress(doc.rows.get("records", 0))
    fill.finish(manifest.counters)
    restored.users = len({doc.key for doc in written if doc.sort == "user"})
    restored.erased = len(erased)
    restored.memories = restored.counts["records"]
    restored.sessions, restored.messages = restored.counts["sessions"], restored.counts["history"]
    restored.facts = restored.counts["facts"]
    restored.holds = restored.counts["holds"]
    return restored, written


def _add(fill: Fill, frames: Iterable[Frame], is_revoked: Callable[[str], bool]) -> None:
    for frame in frames:
        table, rows = table_of(frame), frame.rows
        if frame.table == "api_keys":
            rows = [row for row in rows if not is_revoked(row[frame.columns.index("id")])]
        fill.add(table, frame.columns, rows)


def bring_back_packs(catalog: Catalog, manifest: Manifest, docs: Sequence[Doc], cold: ObjectStore) -> int:
    """Put back the cold objects that memories lie in and that are missing; how many were."""
    held = {one.name: one for one in manifest.packs}
    missing = 0
    for name in sorted({name for doc in docs for name in doc.packs}):
        if next(iter(_there(cold, name)), None) is None and f"{PACKS}{name}" in held:
            cold.prepare()
            cold.put(name, catalog.checked(held[f"{PACKS}{name}"]))
            missing += 1
    return missing


def _there(cold: ObjectStore, name: str) -> Iterable[str]:
    folder = name.rsplit("/", 1)[0] + "/"
    return (one for one in cold.names(folder) if one == name)


# --- trials -----------------------------------------------------------------------------------------------------------


def try_restore(
    catalog: Catalog, manifest: Manifest, is_erased: Callable[[str], bool], progress: Progress
) -> tuple[Restored, list[str]]:
    """Restore a backup into a store of its own, read that again and compare; what is not the same, in words."""
    with scratch_store() as scratch:
        scratch.connection.execute("BEGIN")
        restored, docs = fill_whole(catalog, manifest, scratch.fill, is_erased=is_erased, progress=progress)
        scratch.connection.execute("COMMIT")
        return restored, _differences(scratch.view, manifest, docs)


def _differences(view: View, manifest: Manifest, docs: Sequence[Doc]) -> list[str]:
    """What a restored store holds otherwise than the backup says."""
    reading = Reading(view, frozenset(MemoryType(kind) for kind in manifest.kinds))
    told: dict[tuple[str, str], str] = {
        (doc.sort, doc.key if doc.sort in {"user", "tenant"} else doc.mark): doc.digest for doc in docs
    }
    found: dict[tuple[str, str], str] = {}
    for owners in reading.owners():
        digests = {owner.number: hashlib.sha256() for owner in owners}
        for _ in reading.pieces(owners, lambda owner, digests=digests: digests[owner.number]):  # type: ignore[misc]
            pass
        found |= {(owner.sort, owner.alias): digests[owner.number].hexdigest() for owner in owners}
    for number, _, read in reading.chains():
        digest = hashlib.sha256()
        for _ in read(digest):
            pass
        found["chain", f"chain {number}"] = digest.hexdigest()
    digest = hashlib.sha256()
    for _ in reading.common(digest):
        pass
    found["common", ""] = digest.hexdigest()
    return [_difference(which, told, found) for which in sorted({*told, *found}) if told.get(which) != found.get(which)]


def _difference(
    which: tuple[str, str], told: Mapping[tuple[str, str], str], found: Mapping[tuple[str, str], str]
) -> str:
    what = {
        "user": f"what is kept of {which[1]}",
        "tenant": f"what is kept of tenant {which[1]}",
        "chain": f"audit {which[1]}",
        "common": "what belongs to everybody",
    }
    if which not in found:
        return f"{what[which[0]]} is missing"
    return f"{what[which[0]]} is {'other than it was' if which in told else 'there, and was not'}"


# --- looking up one user ----------------------------------------------------------------------------------------------


def docs_of(catalog: Catalog, manifest: Manifest, mark: str, who: str) -> list[Doc]:
    """The documents of a user of whom only the mark is known."""
    theirs = [doc for doc in catalog.docs(manifest) if doc.sort == "user" and doc.mark == mark]
    if not theirs:
        raise NotFoundError(
            f"backup {manifest.id} holds nothing of user {who!r}; see others with: holdfast backup list"
        )
    return theirs
