"""Restoring a whole backup into a store that nothing was ever kept in, for use or on trial.

The ledger of erasures is read within the transaction that writes, and no erasure can come between: users who were
erased stay erased.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.backups.catalog import Catalog
from holdfast.backups.contents import Snapshot, check_frame
from holdfast.backups.layout import PACKS, Doc, Manifest, count_records
from holdfast.core.errors import StoreTooNewError
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
    kept_out: int = 0
    """Memories whose texts are kept out. They are in the recycle bin."""
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
    outdated: dict[Subject, Sequence[str]] = field(default_factory=dict)
    """Entities of subjects with texts that may no longer be true."""

    def as_dict(self) -> dict[str, Any]:
        """The same, for programs."""
        fields = {name: value for name, value in vars(self).items() if name != "outdated"}
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
    catalog: Catalog, manifest: Manifest, writer: RowWriter, is_revoked: Callable[[str], bool], progress: Progress
) -> tuple[Restored, list[Doc]]:
    """Write all that a backup holds, without users who were erased and API keys that were revoked since; the documents
    that were written.
    """
    written: list[Doc] = []
    erased: set[str] = set()
    writer.clear()
    for doc, frames in catalog.contents(manifest, catalog.docs(manifest)):
        if frames is None or (doc.sort == "user" and catalog.is_erased(doc.key)):
            erased.add(doc.key)
            continue
        for frame in frames:
            check_frame(frame)
            rows = frame.rows
            if frame.table == "api_keys":
                rows = [row for row in rows if not is_revoked(row[frame.columns.index("id")])]
            writer.add(frame.table, frame.columns, rows)
        written.append(doc)
        progress(count_records([doc]))
    writer.finish(manifest.counters)
    return _count(manifest, written, erased), written


def _count(manifest: Manifest, docs: Sequence[Doc], erased: set[str]) -> Restored:
    """What documents hold."""
    users = len({doc.key for doc in docs if doc.sort == "user"})
    tables = {"memories": "records", "sessions": "sessions", "messages": "history", "facts": "facts", "holds": "holds"}
    counts: dict[str, Any] = {name: sum(doc.rows.get(table, 0) for doc in docs) for name, table in tables.items()}
    return Restored(manifest.id, manifest.kinds, users=users, erased=len(erased), whole=True, **counts)


def restore_packs(catalog: Catalog, manifest: Manifest, docs: Sequence[Doc], cold: ObjectStore) -> int:
    """Write the cold objects that memories lie in and that are missing; how many were."""
    needed, missing = {name for doc in docs for name in doc.packs}, 0
    for held in manifest.packs:
        name = held.name.removeprefix(PACKS)
        if name in needed and name not in cold.names(name.rsplit("/", 1)[0] + "/"):
            cold.prepare()
            cold.put(name, catalog.read(held))
            missing += 1
    return missing


def read_whole(catalog: Catalog, manifest: Manifest, progress: Progress) -> tuple[Restored, list[str]]:
    """Read all documents of a backup; what they hold, and where that is not what the index says."""
    problems, read, erased = [], [], set()
    for doc, frames in catalog.contents(manifest, catalog.docs(manifest)):
        if frames is None:
            erased.add(doc.key)
            continue
        rows: Counter[str] = Counter()
        for frame in frames:
            rows[frame.table] += len(frame.rows)
        if rows != doc.rows:
            problems.append(f"a document in {doc.segment} has other rows than the index says")
        read.append(doc)
        progress(count_records([doc]))
    return _count(manifest, read, erased), problems


# --- trials -----------------------------------------------------------------------------------------------------------


def try_restore(rows: RowStore, catalog: Catalog, manifest: Manifest, progress: Progress) -> tuple[Restored, list[str]]:
    """Restore a backup into a store of its own, read that and compare; the differences, in words."""
    with rows.trial() as (writer, reader):
        restored, docs = fill_whole(catalog, manifest, writer, lambda _key_id: False, progress)
        found = Snapshot(reader, frozenset(MemoryType(kind) for kind in manifest.kinds)).digests()
        wanted: dict[tuple[str, str], str] = {
            (doc.sort, doc.key if doc.sort in {"user", "tenant"} else doc.mark): doc.digest for doc in docs
        }
        differing = sorted(key for key in {*wanted, *found} if wanted.get(key) != found.get(key))
        return restored, [_describe(*key, is_new=key not in wanted, is_gone=key not in found) for key in differing]


def _describe(sort: str, key: str, *, is_new: bool, is_gone: bool) -> str:
    """How a document of the restored store differs from the one in the backup."""
    names = {"user": f"what is kept of {key}", "tenant": f"what is kept of tenant {key}", "chain": f"audit {key}"}
    difference = "is missing" if is_gone else "is new" if is_new else "has changed"
    return f"{names.get(sort, 'what belongs to everybody')} {difference}"
