"""Which backups there are, and what they hold."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from holdfast.backups.format import (
    FOLDER,
    PACKS,
    SEGMENTS,
    Doc,
    Held,
    Manifest,
    backup_of,
    is_backup_id,
    manifest_name,
    read_index,
    read_manifest,
    read_signed,
    sign_document,
    trial_name,
)
from holdfast.backups.writer import part_name
from holdfast.core.clock import SKEW
from holdfast.core.errors import (
    HoldfastError,
    KeyMissingError,
    NotFoundError,
    ObjectDamagedError,
    ObjectMissingError,
    OtherKeyringError,
    StoreTooNewError,
    quote,
)
from holdfast.core.frames import Frame, FrameDamagedError, read_frames
from holdfast.core.times import iso
from holdfast.core.types import MemoryType
from holdfast.ports.objects import ObjectStore
from holdfast.privacy.keys.keyring import Keyring, open_keyring, sealed_elsewhere, why_abandoned
from holdfast.privacy.keys.sealing import DataKey, OtherKeyError, SealBrokenError, unseal
from holdfast.privacy.keys.signing import SigningKeys
from holdfast.settings import Settings
from holdfast.storage.objects import open_backups, open_keeping


class Damaged(NamedTuple):
    """A backup whose manifest cannot be trusted."""

    id: str
    problem: str


class Catalog:
    """Backups in an object store. What has other names than a backup's objects is never touched."""

    def __init__(
        self, objects: ObjectStore, keys: SigningKeys, keyring: Keyring, is_erased: Callable[[str], bool]
    ) -> None:
        self.objects = objects
        self.keys = keys
        self._keyring = keyring
        self._is_erased = is_erased

    def ids(self) -> list[str]:
        """The ids of all backups, the oldest first."""
        return sorted(found for name in self.objects.names(FOLDER) if (found := backup_of(name)) is not None)

    def get(self, backup_id: str) -> Manifest:
        """The manifest of a backup, as it was signed."""
        if not is_backup_id(backup_id):
            raise NotFoundError(f"there is no backup {quote(backup_id)}; see: holdfast backup list")
        name = manifest_name(backup_id)
        missing = NotFoundError(f"there is no backup {backup_id} in {self.objects.url}; see: holdfast backup list")
        if name not in self.objects.names(f"{FOLDER}{backup_id}/"):  # where none was ever made there is no place either
            raise missing
        try:
            return read_manifest(self.objects.get(name), self.keys, backup_id)
        except ObjectMissingError:  # it went just now
            raise missing from None

    def all(self) -> Iterator[Manifest | Damaged]:
        """Every backup, the oldest first."""
        for backup_id in self.ids():
            try:
                yield self.get(backup_id)
            except (ObjectDamagedError, StoreTooNewError) as problem:
                yield Damaged(backup_id, str(problem))
            except NotFoundError:  # it was rotated out meanwhile
                continue

    def whole(self) -> list[Manifest]:
        """Every backup whose manifest is as it was signed, the oldest first."""
        return [one for one in self.all() if isinstance(one, Manifest)]

    def latest(self, kinds: frozenset[MemoryType], *, now: int) -> Manifest | None:
        """The latest backup of exactly these kinds, but for those that a clock has dated ahead."""
        wanted = tuple(sorted(kind.value for kind in kinds))
        found = (one for one in reversed(self.whole()) if one.kinds == wanted and not is_ahead(one, now))
        return next(found, None)

    def trial(self, backup_id: str) -> dict[str, Any] | None:
        """What came of the last trial restore; ``None`` if there was none, or if it says so without a signature."""
        with suppress(ObjectDamagedError):
            return self.checked_trial(backup_id)
        return None

    def checked_trial(self, backup_id: str) -> dict[str, Any] | None:
        """The same; ``ObjectDamagedError`` unless it is as it was signed."""
        try:
            data = self.objects.get(trial_name(backup_id))
        except ObjectMissingError:
            return None
        said = read_signed(data, self.keys, f"the note on the last trial of backup {backup_id}")
        if said.get("backup") != backup_id:
            raise ObjectDamagedError(f"the note on the last trial of backup {backup_id} is that of another")
        return said

    def is_known_bad(self, backup_id: str) -> bool:
        """Whether something was found wrong with a backup when it was last looked at."""
        trial = self.trial(backup_id)
        return trial is not None and bool(trial["problems"])

    def note_trial(self, backup_id: str, problems: Sequence[str], *, good: bool, memories: int, now: int) -> None:
        """Note what came of looking at a backup, so that a rotation knows which ones are good."""
        said = {"backup": backup_id, "at": iso(now), "good": good, "memories": memories, "problems": list(problems)}
        self.objects.put(trial_name(backup_id), sign_document(said, self.keys.current(now=now)))

    # --- what a backup holds -------------------------------------------------------------------------------------

    def docs(self, manifest: Manifest) -> Iterator[Doc]:
        """The documents of a backup; ``ObjectDamagedError`` unless its index is as it was written."""
        return read_index(self.checked(manifest.index))

    def checked(self, held: Held) -> bytes:
        """An object that a manifest refers to, as it was written."""
        try:
            data = self.objects.get(held.name)
        except ObjectMissingError as problem:
            raise ObjectDamagedError(f"{held.name} is missing in {self.objects.url}") from problem
        if len(data) != held.bytes or hashlib.sha256(data).hexdigest() != held.sha256:
            raise ObjectDamagedError(f"{held.name} in {self.objects.url} is not as it was written")
        return data

    def is_complete(self, manifest: Manifest, sizes: Mapping[str, int]) -> bool:
        """Whether all that a backup refers to is there by a listing, in the size that it was written in."""
        return all(sizes.get(held.name) == held.bytes for held in (manifest.index, *manifest.segments, *manifest.packs))

    def sizes(self) -> dict[str, int]:
        """How large everything is that backups may refer to."""
        return {name: size for prefix in (FOLDER, SEGMENTS, PACKS) for name, size in self.objects.sizes(prefix)}

    def contents(self, manifest: Manifest, docs: Iterable[Doc]) -> Iterator[tuple[Doc, list[Frame] | None]]:
        """What documents say, segment by segment, each of which is checked whole; ``None`` for what was sealed under
        a key that is destroyed.
        """
        held = {one.name: one for one in manifest.segments}
        by_segment: dict[str, list[Doc]] = {}
        for doc in docs:
            by_segment.setdefault(doc.segment, []).append(doc)
        for name, within in by_segment.items():
            if name not in held:
                raise ObjectDamagedError(f"the index of backup {manifest.id} refers to {name}, which it has not")
            data = self.checked(held[name])
            for doc in sorted(within, key=lambda one: one.at):
                yield doc, self.opened(doc, data)

    def opened(self, doc: Doc, segment: bytes) -> list[Frame] | None:
        """What one document says; ``None`` if its key is destroyed. ``ObjectDamagedError`` if the key is missing, and
        no erasure says why: then it was lost.
        """
        try:
            key = self._keyring.get(doc.key)
        except KeyMissingError as problem:
            if self._is_erased(doc.key):
                return None
            if self._keyring.is_abandoned(doc.key):
                raise _abandoned(doc) from problem
            raise ObjectDamagedError(
                f"key {doc.key} is missing, and the ledger of erasures does not say that it was destroyed; bring it "
                "back from a copy of the keyring, or name the keyring that belongs to the backups in HOLDFAST_STATE_URL"
            ) from problem
        try:
            return list(frames_of(doc, segment, key))
        except ObjectDamagedError as problem:
            if self._keyring.is_abandoned(doc.key):
                raise _abandoned(doc) from problem
            if isinstance(problem, OtherKeyringError):
                raise OtherKeyringError(f"a document in {doc.segment} {sealed_elsewhere(self._keyring)}") from problem
            raise


def open_catalog(settings: Settings) -> Catalog:
    """The backups that the settings name, to be looked at: neither a key nor a folder is made, and nothing opened."""
    state = open_keeping(settings)
    keyring = open_keyring(state, settings.master_key, settings.master_path())
    return Catalog(open_backups(settings), SigningKeys(state, keyring), keyring, lambda _alias: False)


def last_backup(settings: Settings) -> str | None:
    """The last backup, in words; ``None`` if there is none."""
    try:
        last = max(open_catalog(settings).whole(), key=lambda one: one.created_at, default=None)
    except HoldfastError as problem:
        return f"it could not be looked up: {problem}"
    return None if last is None else f"{last.id} of {last.moment[:16]}, {last.records:,} memories"


def is_ahead(manifest: Manifest, now: int) -> bool:
    """Whether a backup is dated later than now: it was made under a clock that ran ahead, or this one is behind."""
    return manifest.created_at > now + SKEW


def _abandoned(doc: Doc) -> ObjectDamagedError:
    return ObjectDamagedError(f"a document in {doc.segment} cannot be read: {why_abandoned(doc.key)}")


def frames_of(doc: Doc, segment: bytes, key: DataKey) -> Iterator[Frame]:
    """The frames of a document, one part after the other."""
    place = doc.at
    for number, size in enumerate(doc.sizes):
        try:
            plain = unseal(key, part_name(doc.id, number), segment[place : place + size])
            yield from read_frames(plain)
        except OtherKeyError as problem:
            raise OtherKeyringError(str(problem)) from problem
        except (SealBrokenError, FrameDamagedError) as problem:
            raise ObjectDamagedError(f"a document in {doc.segment} is damaged: {problem}") from problem
        place += size


def counted(frames: Sequence[Frame]) -> Mapping[str, int]:
    """How many rows of each table there are."""
    counts: dict[str, int] = {}
    for frame in frames:
        counts[frame.table] = counts.get(frame.table, 0) + len(frame.rows)
    return counts
