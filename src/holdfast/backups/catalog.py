"""Which backups there are, and what they hold."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.backups import layout
from holdfast.backups.layout import Doc, Held, Manifest
from holdfast.core import errors
from holdfast.core.clock import SKEW
from holdfast.core.errors import quote
from holdfast.core.records import MemoryType, Rhythm, kind_of
from holdfast.core.values import DAY, iso
from holdfast.ports.objects import ObjectStore
from holdfast.privacy.keys.encryption import SealBrokenError, unseal
from holdfast.privacy.ledger import KeysAndLedger


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup, as a list of backups shows it."""

    id: str
    created_at: str
    kinds: tuple[str, ...]
    users: int
    memories: int
    bytes: int
    """All that it refers to."""
    written: int
    """What was written for it, beside the backups before."""
    keeps_until: str
    good: bool | None
    """Whether a trial restore was the same as what it holds; ``None`` if there was none yet."""
    tried_at: str | None
    problem: str | None = None
    left_out: tuple[str, ...] = ()
    """The pseudonyms of users who are not in it, because the master key does not open their keys."""

    def as_dict(self) -> dict[str, Any]:
        """The same, for programs."""
        lists = {"kinds": list(self.kinds), "left_out": list(self.left_out)}
        return {name: getattr(self, name) for name in self.__slots__} | lists


class Damaged(NamedTuple):
    """A backup with a manifest that cannot be trusted."""

    id: str
    problem: str


@dataclass(frozen=True, slots=True)
class Catalog:
    """Backups in an object store. Objects with other names than those of a backup are never touched."""

    objects: ObjectStore
    state: KeysAndLedger
    is_erased: Callable[[str], bool]

    def ids(self) -> list[str]:
        """The ids of all backups, the oldest first."""
        return sorted(one for name in self.objects.names(layout.FOLDER) if (one := layout.backup_of(name)))

    def get(self, backup_id: str) -> Manifest:
        """The manifest of a backup, as it was signed."""
        if not layout.is_backup_id(backup_id):
            raise errors.NotFoundError(f"there is no backup {quote(backup_id)}; see: holdfast backup list")
        name = layout.manifest_name(backup_id)
        gone = errors.NotFoundError(f"there is no backup {backup_id} in {self.objects.url}; see: holdfast backup list")
        if name not in self.objects.names(
            f"{layout.FOLDER}{backup_id}/"
        ):  # before the first backup the folder is missing too
            raise gone
        try:
            return layout.read_manifest(self.objects.get(name), self.state.signing, backup_id)
        except errors.ObjectMissingError:  # it was removed just now
            raise gone from None

    def all(self, *, newest_first: bool = False) -> Iterator[Manifest | Damaged]:
        """Every backup, the oldest first unless said otherwise; each is read as it is taken."""
        for backup_id in sorted(self.ids(), reverse=newest_first):
            try:
                yield self.get(backup_id)
            except (errors.ObjectDamagedError, errors.StoreTooNewError) as problem:
                yield Damaged(backup_id, str(problem))
            except errors.NotFoundError:  # a rotation removed it meanwhile
                continue

    def whole(self) -> list[Manifest]:
        """Every backup with a manifest as it was signed, the oldest first."""
        return [one for one in self.all() if isinstance(one, Manifest)]

    def latest(self, kinds: frozenset[MemoryType], *, now: int) -> Manifest | None:
        """The latest backup of exactly these kinds that is not dated later than now."""
        wanted = tuple(sorted(kind.value for kind in kinds))
        return next((one for one in reversed(self.whole()) if one.kinds == wanted and not is_ahead(one, now)), None)

    def trial(self, backup_id: str) -> dict[str, Any] | None:
        """The result of the last trial restore; ``None`` if there was none, or if it is not signed."""
        with suppress(errors.ObjectDamagedError):
            return self.check_trial(backup_id)
        return None

    def check_trial(self, backup_id: str) -> dict[str, Any] | None:
        """The same; ``ObjectDamagedError`` unless it is as it was signed."""
        try:
            data = self.objects.get(layout.trial_name(backup_id))
        except errors.ObjectMissingError:
            return None
        what = f"the result of the last trial of backup {backup_id}"
        content = layout.read_signed(data, self.state.signing, what)
        if content.get("backup") != backup_id:
            raise errors.ObjectDamagedError(f"{what} is that of another")
        return content

    def is_known_bad(self, backup_id: str) -> bool:
        """Whether a problem was found when the backup was last verified."""
        return bool((self.trial(backup_id) or {}).get("problems"))

    def is_good(self, backup_id: str) -> bool:
        """Whether the last trial restore was compared with what the backup holds, and was the same."""
        return (self.trial(backup_id) or {}).get("good") is True

    def note_trial(self, backup_id: str, problems: Sequence[str], *, good: bool, memories: int, now: int) -> None:
        """Note the result of verifying a backup, so that a rotation knows which backups are good."""
        content = {"backup": backup_id, "at": iso(now), "good": good, "memories": memories, "problems": list(problems)}
        key = self.state.signing.current(now=now)
        self.objects.put(layout.trial_name(backup_id), layout.sign_document(content, key))

    # --- what a backup holds -------------------------------------------------------------------------------------

    def docs(self, manifest: Manifest) -> Iterator[Doc]:
        """The documents of a backup; ``ObjectDamagedError`` unless its index is as it was written."""
        return layout.read_index(self.read(manifest.index))

    def read(self, held: Held) -> bytes:
        """An object that a manifest refers to; ``ObjectDamagedError`` unless it is as it was written."""
        try:
            data = self.objects.get(held.name)
        except errors.ObjectMissingError as problem:
            raise errors.ObjectDamagedError(f"{held.name} is missing in {self.objects.url}") from problem
        if len(data) != held.bytes or hashlib.sha256(data).hexdigest() != held.sha256:
            raise errors.ObjectDamagedError(f"{held.name} in {self.objects.url} is not as it was written")
        return data

    def sizes(self) -> dict[str, int]:
        """How large everything is that backups may refer to."""
        return {name: size for folder in layout.FOLDERS for name, size in self.objects.sizes(folder)}

    def contents(self, manifest: Manifest, docs: Iterable[Doc]) -> Iterator[tuple[Doc, list[layout.Frame] | None]]:
        """The frames of documents, in the order in which they were written; ``None`` for a document that was sealed
        under a key that is destroyed. Each segment is read once, and checked whole.
        """
        held = {one.name: one for one in manifest.segments}
        by_segment: dict[str, list[Doc]] = {}
        for doc in docs:
            by_segment.setdefault(doc.segment, []).append(doc)
        for name in sorted(by_segment, key=layout.segment_place):
            if name not in held:
                raise errors.ObjectDamagedError(f"the index of backup {manifest.id} refers to {name}, which it has not")
            data = self.read(held[name])
            for doc in sorted(by_segment[name], key=lambda one: one.at):
                yield doc, self._unseal(doc, data)

    def _unseal(self, doc: Doc, segment: bytes) -> list[layout.Frame] | None:
        """The frames of one document; ``None`` if its key is destroyed. ``ObjectDamagedError`` if the key is missing
        and no erasure explains that: then it was lost.
        """
        keyring = self.state.keyring
        try:
            sealed = segment[doc.at : doc.at + doc.size]
            return list(layout.read_frames(unseal(keyring.get(doc.key), layout.sealed_name(doc.id), sealed)))
        except (errors.KeyMissingError, SealBrokenError, layout.FrameDamagedError) as problem:
            is_missing = isinstance(problem, errors.KeyMissingError)
            if is_missing and self.is_erased(doc.key):
                return None
            if is_missing and not keyring.is_abandoned(doc.key):
                raise errors.ObjectDamagedError(
                    f"key {doc.key} is missing, and the ledger of erasures does not say that it was destroyed; bring "
                    "it back from a copy of the keyring, or name the keyring that belongs to the backups in "
                    "HOLDFAST_STATE_URL"
                ) from problem
            raise keyring.explain_unreadable(doc.key, f"a document in {doc.segment}", problem) from problem


def describe_last(open_catalog: Callable[[], Catalog]) -> str | None:
    """The last backup, in words; ``None`` if there is none."""
    try:
        last = max(open_catalog().whole(), key=lambda one: one.created_at, default=None)
    except errors.HoldfastError as problem:
        return f"it could not be looked up: {problem}"
    return None if last is None else f"{last.id} of {last.moment[:16]}, {last.amount}"


def describe_backup(catalog: Catalog, one: Manifest | Damaged, *, now: int) -> Backup:
    """A backup as a list shows it, with what is wrong with it."""
    if isinstance(one, Damaged):
        return Backup(one.id, "", (), 0, 0, 0, 0, "", False, None, one.problem)
    trial = catalog.trial(one.id)
    problems = [] if trial is None else list(trial["problems"])
    if one.left_out:
        problems.append(describe_left_out(one))
    if is_ahead(one, now):
        problems.append("it is dated later than now, by a clock that ran ahead (or this one is behind)")
    return Backup(
        id=one.id,
        created_at=one.moment,
        kinds=one.kinds,
        users=one.subjects,
        memories=one.records,
        bytes=one.size,
        written=one.written,
        keeps_until=iso(ends_at(one)),
        good=None if trial is None else bool(trial["good"]),
        tried_at=None if trial is None else str(trial["at"]),
        problem="; ".join(problems) or None,
        left_out=one.left_out,
    )


def describe_left_out(manifest: Manifest) -> str:
    """Why some users are not in a backup, and what to do."""
    count = len(manifest.left_out)
    some = ", ".join(manifest.left_out[:3]) + (", …" if count > 3 else "")
    return (
        f"it is without {count:,} {'user' if count == 1 else 'users'}, whose keys are damaged or not opened by the "
        f"master key ({some}); bring the keys back from a copy of the keyring, or go on without "
        "them with: holdfast key abandon"
    )


def keep_days(kinds: Sequence[str]) -> int:
    """How many days a backup of some kinds is kept."""
    return 90 if all(kind_of(kind).backup is Rhythm.WEEKLY for kind in kinds) else 30


def ends_at(manifest: Manifest) -> int:
    """When a backup may go."""
    return manifest.created_at + keep_days(manifest.kinds) * DAY


def is_ahead(manifest: Manifest, now: int) -> bool:
    """Whether a backup is dated later than now: it was made under a clock that ran ahead, or this one is behind."""
    return manifest.created_at > now + SKEW
