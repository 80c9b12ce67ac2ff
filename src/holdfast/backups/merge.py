"""Restoring what a store that is in use has lost: of everyone in a backup, of one user, or one memory.

Rules, quotas, agents and the audit chains stay as they are. Quotas are not checked: it was all there before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, TypeVar

from holdfast.backups.catalog import Catalog
from holdfast.backups.contents import check_frame
from holdfast.backups.layout import PACKS, Doc, Frame, Manifest
from holdfast.backups.restore import Progress, Restored
from holdfast.core.errors import ConflictError, KeyDestroyedError, NotFoundError, ObjectDamagedError
from holdfast.core.records import State, Subject
from holdfast.ports.backups import (
    ConversationRows,
    ErasedError,
    Merged,
    Origin,
    Owner,
    PackRow,
    RowMerger,
    StrangerError,
    Values,
)

#: What is written in one transaction, at most: so many rows, of so many cold objects that may have to be put back.
_ROWS: Final = 2_000
_OBJECTS: Final = 8
_NO_SUBJECT: Final = "a document of a backup does not name its user"
_T = TypeVar("_T")


@dataclass
class _Part:
    """One user's part of a backup, as it is read."""

    owner: Owner
    packs: dict[int, PackRow] = field(default_factory=dict)
    """By the numbers that they have in the backup, as sessions are."""
    changed: dict[int, str] = field(default_factory=dict)
    """The ids of the records that have ended versions, by their keys in the backup."""
    sessions: dict[int, Values] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)
    """The sessions with messages that were read already."""
    made: set[str] = field(default_factory=set)
    """The entities that were restored."""
    outdated: set[str] = field(default_factory=set)


@dataclass
class Merge:
    """One restore into a store that is in use; ``restored`` counts what was restored.

    ``refresh`` is called with a subject and its entities whose texts may no longer be true.
    """

    catalog: Catalog
    manifest: Manifest
    make_merger: Callable[[Origin], RowMerger]
    refresh: Callable[[Subject, Sequence[str]], None]
    progress: Progress
    overwrite: bool

    def __post_init__(self) -> None:
        self._docs = list(self.catalog.docs(self.manifest))
        self._held = {one.name: one for one in self.manifest.packs}
        models: dict[int, str] = {}
        self._holds: list[Values] = []
        for frame in self._frames([doc for doc in self._docs if doc.sort == "common"]):
            if frame.table == "models":
                models |= {row["code"]: row["id"] for row in _rows(frame)}
            elif frame.table == "holds":
                self._holds += _rows(frame)
        self._merger = self.make_merger(Origin(self.manifest.id, models, self._fetch))
        self.restored = Restored(self.manifest.id, self.manifest.kinds)

    def user(self, who: str, mark: str, memory_id: str | None) -> None:
        """Restore what is missing of the user whose documents have a mark, or only one memory."""
        docs = [doc for doc in self._docs if doc.sort == "user" and doc.mark == mark]
        if not docs:
            raise NotFoundError(f"backup {self.manifest.id} holds nothing of user {who!r}; see: holdfast backup list")
        with self._explain_refusal(who):
            if memory_id is None:
                self._merge(docs[0].key, self._frames(docs))
            else:
                self._memory(docs, who, memory_id)

    def _memory(self, docs: Sequence[Doc], who: str, memory_id: str) -> None:
        """Restore one memory of a user, with its facts if it is an entity."""
        found: dict[str, list[Values]] = {"subjects": [], "records": [], "versions": [], "facts": [], "packs": []}
        for frame in self._frames(docs):
            if frame.table in found:
                found[frame.table] += (row for row in _rows(frame) if _is_about(frame.table, row, memory_id))
        if not found["records"]:
            raise NotFoundError(f"backup {self.manifest.id} holds no memory {memory_id!r} of user {who!r}")
        part = _Part(_owner(docs[0].key, found["subjects"]), _packs(found["packs"]))
        self._merge_records(part, found["records"], alone=True)
        self._merge_versions(part, found["versions"])
        if self.restored.lost:
            raise ObjectDamagedError(
                f"memory {memory_id} lies in a cold object that backup {self.manifest.id} does not hold; "
                "try another backup"
            )
        if found["facts"]:
            self._count(part, self._merger.facts(part.owner, found["facts"], part.made))
        self._finish(part)

    def everyone(self) -> None:
        """Restore what is missing of everyone, and the holds that name no user."""
        contents = self.catalog.contents(self.manifest, [doc for doc in self._docs if doc.sort == "user"])
        for key, found in groupby(contents, key=lambda one: one[0].key):  # documents of one user come together
            try:
                self._merge(key, _join(found))
            except ErasedError:
                self.restored.erased += 1
            except StrangerError:
                self.restored.strangers += 1
        tenants: dict[str, list[Values]] = defaultdict(list)
        for row in self._holds:
            tenants[row["tenant"]].append(row)
        for tenant, rows in tenants.items():
            self.restored.holds += self._merger.common_holds(tenant, rows).counts["holds"]

    # --- one user ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _explain_refusal(self, who: str) -> Iterator[None]:
        """Raise an error that says why one user cannot be restored."""
        backup_id = self.manifest.id
        try:
            yield
        except ErasedError:
            raise KeyDestroyedError(f"user {who!r} was erased after backup {backup_id}, and stays erased") from None
        except StrangerError:
            raise ConflictError(
                f"user {who!r} of backup {backup_id} is not the user who has that name now, and nothing was restored; "
                "restore the backup into a store of its own"
            ) from None

    def _merge(self, key: str, frames: Iterable[Frame]) -> None:
        """Restore what is missing of one user."""
        part: _Part | None = None
        for frame in frames:
            if frame.table == "subjects":
                part = _Part(_owner(key, list(_rows(frame))))
            elif part is None:
                raise ObjectDamagedError(_NO_SUBJECT)
            else:
                self._merge_frame(part, frame)
        if part is None:
            raise ObjectDamagedError(_NO_SUBJECT)
        rest = [ConversationRows(row, ()) for number, row in part.sessions.items() if number not in part.begun]
        for some in _chunks(rest):
            self._count(part, self._merger.conversations(part.owner, some))
        self._finish(part)

    def _merge_frame(self, part: _Part, frame: Frame) -> None:
        match frame.table:
            case "records":
                for batch in _batches(_rows(frame)):
                    self._merge_records(part, batch)
            case "versions":
                self._merge_versions(part, _rows(frame))
            case "packs":
                part.packs |= _packs(_rows(frame))
            case "sessions":
                part.sessions |= {row["no"]: row for row in _rows(frame)}
            case "history":
                for some in _chunks(list(_rows(frame))):
                    self._merge_messages(part, some)
            case "facts":
                for some in _chunks(list(_rows(frame))):
                    self._count(part, self._merger.facts(part.owner, some, part.made))
            case "holds":
                self._count(part, self._merger.holds(part.owner, list(_rows(frame))))

    def _merge_records(self, part: _Part, rows: Sequence[Values], *, alone: bool = False) -> None:
        merged = self._merger.records(part.owner, rows, part.packs, overwrite=self.overwrite, alone=alone)
        self._count(part, merged)
        part.changed |= {row["key"]: row["id"] for row in rows if (row["revision"] or 1) > 1}
        self.progress(len(rows))

    def _merge_versions(self, part: _Part, rows: Iterable[Values]) -> None:
        for some in _chunks([row for row in rows if row["key"] in part.changed]):
            self._merger.versions(part.owner, some, part.changed)

    def _merge_messages(self, part: _Part, rows: Sequence[Values]) -> None:
        conversations = []
        for number, messages in groupby(rows, key=lambda row: int(row["key"]) >> 24):
            if number in part.sessions:
                conversations.append(ConversationRows(part.sessions[number], list(messages)))
                part.begun.add(number)
        self._count(part, self._merger.conversations(part.owner, conversations))

    def _count(self, part: _Part, merged: Merged) -> None:
        for name, count in merged.counts.items():
            setattr(self.restored, name, getattr(self.restored, name) + count)
        part.made |= merged.entities
        part.outdated |= merged.outdated

    def _finish(self, part: _Part) -> None:
        self.restored.users += 1
        if part.outdated:
            self.refresh(part.owner.subject, sorted(part.outdated))

    # --- reading -----------------------------------------------------------------------------------------------------

    def _frames(self, docs: Sequence[Doc]) -> Iterator[Frame]:
        return _join(self.catalog.contents(self.manifest, docs))

    def _fetch(self, name: str) -> bytes | None:
        """A cold object as it was backed up."""
        held = self._held.get(f"{PACKS}{name}")
        return None if held is None else self.catalog.read(held)


def _join(contents: Iterable[tuple[Doc, list[Frame] | None]]) -> Iterator[Frame]:
    """The frames of documents, one after the other."""
    for _, frames in contents:
        if frames is None:
            raise ErasedError
        yield from frames


def _owner(key: str, subjects: Sequence[Values]) -> Owner:
    """The owner of a document that is sealed under a key."""
    if len(subjects) != 1 or subjects[0]["alias"].hex() != key:
        raise ObjectDamagedError(_NO_SUBJECT)
    return Owner(Subject.parse(subjects[0]["subject"]), key)


def _packs(rows: Iterable[Values]) -> dict[int, PackRow]:
    """Cold objects by their numbers."""
    columns = ("name", "records", "bytes", "digest", "made_at")
    return {row["no"]: PackRow(*(row[column] for column in columns)) for row in rows}


def _is_about(table: str, row: Values, memory_id: str) -> bool:
    """Whether a row is wanted to bring one memory back."""
    if table == "records":
        return bool(row["id"] == memory_id and row["state"] != State.DELETING)
    return table != "facts" or memory_id in (row["source"], row["target"])


def _rows(frame: Frame) -> Iterator[dict[str, Any]]:
    """The rows of a frame by the names of all columns; one that is not given is ``None``."""
    nothing = dict.fromkeys(check_frame(frame).columns)
    return (nothing | dict(zip(frame.columns, row, strict=True)) for row in frame.rows)


def _batches(rows: Iterable[Values]) -> Iterator[list[Values]]:
    """Rows in batches that are written together."""
    some: list[Values] = []
    packs: set[int] = set()
    for row in rows:
        more = packs | {row["pack"]} - {None}
        if len(some) == _ROWS or len(more) > _OBJECTS:
            yield some
            some, more = [], {row["pack"]} - {None}
        some.append(row)
        packs = more
    if some:
        yield some


def _chunks(rows: Sequence[_T]) -> Iterator[Sequence[_T]]:
    return (rows[start : start + _ROWS] for start in range(0, len(rows), _ROWS))
