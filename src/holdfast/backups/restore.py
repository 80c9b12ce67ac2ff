"""Restoring a whole backup into a store that nothing was ever kept in, for use or on trial.

The ledger of erasures is read within the transaction that writes, and no erasure can come between: users who were
erased stay erased.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.backups.catalog import Catalog
from holdfast.backups.contents import Snapshot, check_frame
from holdfast.backups.format import PACKS, Doc, Frame, Manifest
from holdfast.core.errors import NotFoundError, StoreTooNewError
from holdfast.core.records import MemoryType, Subject
from holdfast.installation import upgrade_command
from holdfast.ports.backups import RowStore, RowWriter
from holdfast.ports.objects import ObjectStore

Progress = Callable[[int], None]


@dataclass
class Restored:
    """The result of a restore."""

    backup_id: str
    kinds: tuple[str, ...]
    users: int = 0
    memories: int = 0
    """Memories that are back."""
    expired: int = 0
    """Memories that are past their time by the rules in force. Nobody sees them, and the next sweep removes them."""
    kept: int = 0
    """Memories that were there already, or with a name that another memory has now. They were not changed."""
    binned: int = 0
    """Memories that are in the recycle bin, and were left there. Restore them from the bin."""
    lost: int = 0
    """Memories that cannot be restored, because the backup does not have the cold object that they lie in."""
    sessions: int = 0
    messages: int = 0
    facts: int = 0
    holds: int = 0
    erased: int = 0
    """Users who were erased after the backup, and stay erased."""
    strangers: int = 0
    """Users with a name that another user has now. Nothing of them was restored."""
    objects: int = 0
    """Cold objects that were missing, and are there again."""
    whole: bool = False
    """Whether the backup became the whole store, with rules, agents and audit chains."""
    counts: Counter[str] = field(default_factory=Counter)
    outdated: dict[Subject, Sequence[str]] = field(default_factory=dict)
    """Entities of subjects with texts that may no longer be true."""

    def as_dict(self) -> dict[str, Any]:
        """The same, for programs."""
        fields = {name: value for name, value in vars(self).items() if name not in {"counts", "outdated"}}
        return fields | {"kinds": list(self.kinds)}


@dataclass(frozen=True, slots=True)
class Check:
    """The result of verifying a backup; falsy if there is a problem."""

    id: str
    restored: bool
    """Whether it was also restored on trial and compared."""
    users: int
    memories: int
    erased: int
    """Users who were erased, so that nobody can read their part any more."""
    bytes: int
    seconds: float
    problems: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """The same, for programs."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return fields | {"problems": list(self.problems), "good": bool(self)}


def check_version(manifest: Manifest, schema: tuple[int, int]) -> None:
    """``StoreTooNewError`` if a newer version of Holdfast has made a backup."""
    if any(theirs > ours for theirs, ours in zip(manifest.schema, schema, strict=True)):
        raise StoreTooNewError(
            f"backup {manifest.id} was made by {manifest.software}, which is newer than this; "
            f"upgrade with: {upgrade_command()}"
        )


def fill_whole(
    catalog: Catalog,
    manifest: Manifest,
    writer: RowWriter,
    *,
    is_erased: Callable[[str], bool],
    is_revoked: Callable[[str], bool] = lambda _key_id: False,
    progress: Progress = lambda _count: None,
) -> tuple[Restored, list[Doc]]:
    """Write all that a backup holds, without users who were erased and API keys that were revoked since; the documents
    that were written.
    """
    restored = Restored(manifest.id, manifest.kinds, whole=True)
    written: list[Doc] = []
    erased: set[str] = set()
    writer.clear()
    for doc, frames in catalog.contents(manifest, catalog.docs(manifest)):
        if frames is None or (doc.sort == "user" and is_erased(doc.key)):
            erased.add(doc.key)
            continue
        _add(writer, frames, is_revoked)
        written.append(doc)
        restored.counts.update(doc.rows)
        progress(doc.rows.get("records", 0))
    writer.finish(manifest.counters)
    restored.users = len({doc.key for doc in written if doc.sort == "user"})
    restored.erased = len(erased)
    restored.memories = restored.counts["records"]
    restored.sessions, restored.messages = restored.counts["sessions"], restored.counts["history"]
    restored.facts = restored.counts["facts"]
    restored.holds = restored.counts["holds"]
    return restored, written


def _add(writer: RowWriter, frames: Iterable[Frame], is_revoked: Callable[[str], bool]) -> None:
    for frame in frames:
        check_frame(frame)
        rows = frame.rows
        if frame.table == "api_keys":
            rows = [row for row in rows if not is_revoked(row[frame.columns.index("id")])]
        writer.add(frame.table, frame.columns, rows)


def restore_packs(catalog: Catalog, manifest: Manifest, docs: Sequence[Doc], cold: ObjectStore) -> int:
    """Write the cold objects that memories lie in and that are missing; how many were."""
    held = {one.name: one for one in manifest.packs}
    missing = 0
    for name in sorted({name for doc in docs for name in doc.packs}):
        if name not in cold.names(name.rsplit("/", 1)[0] + "/") and f"{PACKS}{name}" in held:
            cold.prepare()
            cold.put(name, catalog.read(held[f"{PACKS}{name}"]))
            missing += 1
    return missing


# --- trials -----------------------------------------------------------------------------------------------------------


def try_restore(
    rows: RowStore, catalog: Catalog, manifest: Manifest, is_erased: Callable[[str], bool], progress: Progress
) -> tuple[Restored, list[str]]:
    """Restore a backup into a store of its own, read that and compare; the differences, in words."""
    with rows.trial() as (writer, reader):
        restored, docs = fill_whole(catalog, manifest, writer, is_erased=is_erased, progress=progress)
        found = Snapshot(reader, frozenset(MemoryType(kind) for kind in manifest.kinds)).digests()
        wanted: dict[tuple[str, str], str] = {
            (doc.sort, doc.key if doc.sort in {"user", "tenant"} else doc.mark): doc.digest for doc in docs
        }
        keys = sorted({*wanted, *found})
        return restored, [_describe(*key, wanted, found) for key in keys if wanted.get(key) != found.get(key)]


_Digests = Mapping[tuple[str, str], str]


def _describe(sort: str, key: str, wanted: _Digests, found: _Digests) -> str:
    """How a document of the restored store differs from the one in the backup."""
    names = {"user": f"what is kept of {key}", "tenant": f"what is kept of tenant {key}", "chain": f"audit {key}"}
    name = names.get(sort, "what belongs to everybody")
    if (sort, key) not in found:
        return f"{name} is missing"
    return f"{name} {'has changed' if (sort, key) in wanted else 'is new'}"


# --- looking up one user ----------------------------------------------------------------------------------------------


def docs_of(catalog: Catalog, manifest: Manifest, mark: str, who: str) -> list[Doc]:
    """The documents of a user, found by the mark."""
    theirs = [doc for doc in catalog.docs(manifest) if doc.sort == "user" and doc.mark == mark]
    if not theirs:
        raise NotFoundError(
            f"backup {manifest.id} holds nothing of user {who!r}; see others with: holdfast backup list"
        )
    return theirs
