"""``holdfast.backups``: made, listed, verified, restored, rotated and removed."""

from __future__ import annotations

import builtins
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from holdfast.backups.catalog import Catalog, Damaged, counted, is_ahead
from holdfast.backups.create import Creation, describe_left_out, ends_at, mark_of
from holdfast.backups.format import STORE_KEY, Manifest, is_named_after, name_backup
from holdfast.backups.merge import Merging
from holdfast.backups.restore import Restored, bring_back_packs, check_known, docs_of, fill_whole, try_restore
from holdfast.backups.rotate import Rotation, kinds_without, remove, rotate
from holdfast.core.clock import Belief
from holdfast.core.content import check_id
from holdfast.core.errors import (
    ConfirmationNeededError,
    ConflictError,
    InvalidInputError,
    InvalidKindError,
    LeaseLostError,
    LedgerError,
    NotFoundError,
    ObjectDamagedError,
    StoreTooNewError,
)
from holdfast.core.records import Subject
from holdfast.core.times import iso
from holdfast.core.types import DURABLE, MemoryType, kind_of
from holdfast.lifecycle.schedule.leadership import Leadership
from holdfast.ports.objects import ObjectStore
from holdfast.ports.requests import begin_steps
from holdfast.privacy.keys.keyring import Keyring
from holdfast.privacy.keys.signing import SigningKeys
from holdfast.privacy.ledger import Ledger
from holdfast.storage.relational.database import Database
from holdfast.storage.relational.restore_rows import Origin, SqlAdopter
from holdfast.storage.transfer.stores import fill_of

_log = logging.getLogger("holdfast.backups")
#: What is backed up together, as the schedule does it.
DAILY: Final = frozenset(kind for kind in DURABLE if kind is not MemoryType.PERSONA)
WEEKLY: Final = frozenset({MemoryType.PERSONA})
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup, as a list of them shows it."""

    id: str
    created_at: str
    kinds: tuple[str, ...]
    users: int
    memories: int
    bytes: int
    """All that it refers to."""
    written: int
    """What it took beside the ones before."""
    keeps_until: str
    good: bool | None
    """Whether a trial restore was the same as what it holds; ``None`` if there was none yet."""
    tried_at: str | None
    problem: str | None = None
    left_out: tuple[str, ...] = ()
    """The pseudonyms of users who are not in it, because their keys could not be opened."""

    def as_dict(self) -> dict[str, Any]:
        """The same, for programs."""
        lists = {"kinds": list(self.kinds), "left_out": list(self.left_out)}
        return {name: getattr(self, name) for name in self.__slots__} | lists


@dataclass(frozen=True, slots=True)
class Check:
    """What came of verifying a backup; falsy when something is wrong with it."""

    id: str
    restored: bool
    """Whether it was restored on trial and compared, too."""
    users: int
    memories: int
    erased: int
    """Users whose part nobody can read any more, because they were erased."""
    bytes: int
    seconds: float
    problems: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """The same, for programs."""
        return {name: getattr(self, name) for name in self.__slots__} | {
            "problems": list(self.problems),
            "good": bool(self),
        }


class Backups:
    """``holdfast.backups``: of the whole store, whichever tenant asks; single users are restored for that tenant."""

    def __init__(
        self,
        database: Database,
        tenant: str,
        *,
        open_objects: Callable[[], ObjectStore],
        open_cold: Callable[[], ObjectStore],
        keys: SigningKeys,
        keyring: Keyring,
        ledger: Ledger,
        leadership: Leadership,
        now: Callable[[], int],
        new_id: Callable[[int], str],
        check_clock: Callable[[int, bool], Belief],
        is_revoked: Callable[[str], bool],
        settle: Callable[[Restored], None],
        check_state: Callable[[], None] = lambda: None,
    ) -> None:
        self._database = database
        self._tenant = tenant
        self._open = open_objects
        self._cold = open_cold
        self._keys = keys
        self._keyring = keyring
        self._ledger = ledger
        self._leadership = leadership
        self._now = now
        self._new_id = new_id
        self._check_clock = check_clock
        self._is_revoked = is_revoked
        self._settle = settle
        self._check_state = check_state

    @cached_property
    def _catalog(self) -> Catalog:
        return Catalog(self._open(), self._keys, self._keyring, self._is_erased)

    def create(
        self,
        kinds: Iterable[MemoryType | str] | None = None,
        *,
        full: bool = False,
        confirm: bool = False,
        progress: Progress = lambda _count: None,
    ) -> Backup:
        """Make a backup of the store as it is now, of some kinds or of all; others go on writing meanwhile.

        What has not changed since the backup before is referred to, not copied; ``full`` copies it all the same.
        ``ClockError`` on a clock that leaped, or is behind what the store has seen, unless confirmed: the date of a
        backup decides when others go. ``progress`` hears how many more memories are in it.
        """
        chosen = _kinds(kinds)
        self._check_state()
        with self._alone() as renew:
            now = self._now()
            request = begin_steps()
            record_id = self._new_id(now) if request is None else request.new_ids(1)[0]
            if request is not None:  # it may have been made by a process that did not live to say so
                named = (one for one in self._catalog.ids() if is_named_after(one, record_id))
                for made_id in named:
                    with suppress(NotFoundError):
                        return self._told(self._catalog.get(made_id))
            self._check_clock(now, confirm)
            creation = Creation(
                self._catalog,
                self._database,
                self._keyring,
                self._ledger,
                self._cold,
                backup_id=name_backup(record_id, now),
                kinds=chosen,
                now=now,
                progress=progress,
                renew=renew,
            )
            made = self._told(creation.run(full=full))
        _log.info("backup %s holds %d memories of %d users", made.id, made.memories, made.users)
        return made

    def list(self) -> list[Backup]:
        """All backups, the oldest first."""
        return [self._told(one) for one in self._catalog.all()]

    def get(self, backup_id: str) -> Backup:
        """One of them."""
        return self._told(self._catalog.get(backup_id))

    def verify(self, backup_id: str, *, restore: bool = False, progress: Progress = lambda _count: None) -> Check:
        """Read all of a backup and see that each byte is as it was written; with ``restore``, also restore it into a
        store of its own, read that again and compare. Only then it counts as good. Changes nothing else.
        """
        began = time.perf_counter()
        catalog = self._catalog
        if restore:
            self._check_ledger()
        problems: list[str] = []
        users = memories = erased = 0
        manifest: Manifest | None = None
        try:
            manifest = catalog.get(backup_id)
            check_known(manifest)
            if restore:
                restored, problems = try_restore(catalog, manifest, self._is_erased, progress)
                users, memories, erased = restored.users, restored.memories, restored.erased
            else:
                users, memories, erased = self._read(manifest, progress, problems)
            for held in manifest.packs:
                catalog.checked(held)
            catalog.checked_trial(backup_id)
        except ObjectDamagedError as problem:
            problems.append(str(problem))
        size, took = manifest.size if manifest else 0, time.perf_counter() - began
        check = Check(backup_id, restore, users, memories, erased, size, took, tuple(problems))
        if manifest is not None and (restore or not check):  # of one that cannot be trusted nothing is noted
            good = bool(check) and check.restored
            catalog.note_trial(check.id, check.problems, good=good, memories=check.memories, now=self._now())
        return check

    def restore(
        self,
        backup_id: str,
        *,
        user_id: str | None = None,
        memory_id: str | None = None,
        overwrite: bool = False,
        progress: Progress = lambda _count: None,
    ) -> Restored:
        """Bring back what a backup holds, but nobody who was erased since.

        Into a store that nothing was ever kept in: all of it, exactly as it was. Into one that is in use: the
        memories, conversations, facts and holds that are missing, of everyone or of one user, or one memory of a user.
        What is there stays as it is; with ``overwrite``, memories become what they were, unless a hold keeps them.
        Rules, quotas and agents stay as they are, and quotas are not asked. Cut short, it is finished by doing it
        again. ``progress`` hears how many more memories were looked at.
        """
        manifest = self._catalog.get(backup_id)
        check_known(manifest)
        if memory_id is not None and user_id is None:
            raise InvalidInputError("name the user whose memory it is, too: restore(id, user_id=…, memory_id=…)")
        self._check_state()
        self._check_ledger()
        with self._alone():
            restored = None if user_id is not None else self._restore_whole(manifest, progress)
            if restored is None:
                restored = self._merge(manifest, user_id, memory_id, overwrite=overwrite, progress=progress)
        self._settle(restored)
        return restored

    def rotate(self, *, confirm: bool = False) -> Rotation:
        """Remove the backups past their time, but never the last good one of a kind, and take what was sealed for the
        erased out of the others. ``ClockError`` on a clock that leaped, or is behind what the store has seen, unless
        confirmed. Of a clock that is far ahead of it: backups that are past their time by that clock alone wait, and
        are named. Backups that are dated later than now are left alone, and named too.
        """
        self._check_state()
        with self._alone() as renew:
            now = self._now()
            belief = self._check_clock(now, confirm)
            self._check_ledger()
            return rotate(self._catalog, self._ledger, belief=belief, renew=renew)

    def remove(self, backup_id: str, *, confirm: bool = False, even_last: bool = False) -> Rotation:
        """Remove one backup for good, with what no other refers to.

        ``ConfirmationNeededError`` unless confirmed, and also while no other backup that is good has all of its kinds,
        unless ``even_last`` says that it may go even so.
        """
        with self._alone():
            catalog, now = self._catalog, self._now()
            try:
                manifest = catalog.get(backup_id)
                told, kinds = f"of {manifest.moment} with {manifest.records:,} memories", set(manifest.kinds)
            except (ObjectDamagedError, StoreTooNewError) as problem:
                told, kinds = f"which cannot be read ({problem})", {"every kind"}
            last = sorted(kinds - kinds_without(catalog, backup_id, now=now))
            if last and not even_last:
                raise ConfirmationNeededError(
                    f"backup {backup_id}, {told}, may be the last good one of {', '.join(last)}; nothing was removed: "
                    "restore a later one on trial first (holdfast backup verify ID --restore), or say that it may go "
                    "even so (even_last, --even-last)"
                )
            if not confirm:
                raise ConfirmationNeededError(
                    f"backup {backup_id}, {told}, would be removed for good; nothing was removed: confirm it "
                    "(confirm, --confirm)"
                )
            return remove(catalog, backup_id)

    def latest(self) -> Sequence[str]:
        """The latest backup of each set of kinds, but for those that are dated later than now."""
        now = self._now()
        return list({one.kinds: one.id for one in self._catalog.whole() if not is_ahead(one, now)}.values())

    def _check_ledger(self) -> None:
        """``LedgerError`` if a backup was held against erasures that the ledger has not: it is an old copy, or one that
        went on from there, and who was erased since would come back.
        """
        held = {(one.ledger, one.ledger_hash): one for one in self._catalog.whole() if one.ledger}
        for (number, known), one in held.items():
            found = self._ledger.hash_of(number)
            if not found or (known and found != known):
                raise LedgerError(
                    f"backup {one.id} was held against {number:,} entries of the ledger of erasures, and the one in "
                    f"{self._ledger.url} is an older copy of it, or goes on from one: whoever was erased since would "
                    "come back. Nothing was done: bring back the newest copy of the state store, or name it in "
                    "HOLDFAST_STATE_URL"
                )

    # --- parts of it -----------------------------------------------------------------------------------------------

    def _restore_whole(self, manifest: Manifest, progress: Progress) -> Restored | None:
        """Restore all into a store that nothing was ever kept in; ``None`` if it is not."""
        with fill_of(self._database) as fill:
            if fill.used():
                return None
            self._check_first(manifest)
            restored, docs = fill_whole(
                self._catalog,
                manifest,
                fill,
                is_erased=self._is_erased,
                is_revoked=self._is_revoked,
                progress=progress,
            )
            restored.objects = bring_back_packs(self._catalog, manifest, docs, self._cold())
        return restored

    def _check_first(self, manifest: Manifest) -> None:
        """``ConflictError`` if a backup is to become the whole store, and there is one to begin with: agents,
        conversations and the audit chain come with long-term memory, and into an empty store alone.
        """
        first = MemoryType.LONG_TERM.value
        if first in manifest.kinds:
            return
        others = [one for one in self._catalog.whole() if first in one.kinds]
        better = next((one for one in reversed(others) if not self._catalog.is_known_bad(one.id)), None)
        if better is not None:
            raise ConflictError(
                f"backup {manifest.id} has {', '.join(manifest.kinds)} alone; restored first, it would keep out the "
                "agents, conversations and the audit chain of others. Nothing was restored: begin with one that has "
                f"{first}, such as {better.id} (holdfast backup restore latest does both), then restore this one"
            )

    def _merge(
        self, manifest: Manifest, user_id: str | None, memory_id: str | None, *, overwrite: bool, progress: Progress
    ) -> Restored:
        """Bring back what is missing in a store that is in use."""

        def adopter(origin: Origin) -> SqlAdopter:
            return SqlAdopter(self._database, origin, is_erased=self._is_erased, cold=self._cold, now=self._now())

        def retell(subject: Subject, entities: Sequence[str]) -> None:
            self._settle(Restored(manifest.id, manifest.kinds, entities={subject: entities}))

        catalog = self._catalog
        merging = Merging(
            catalog,
            manifest,
            adopter,
            overwrite=overwrite,
            progress=progress,
            retell=retell,
        )
        if user_id is None:
            merging.everyone()
            return merging.restored
        mark = mark_of(self._keyring.get(STORE_KEY), Subject.checked(self._tenant, user_id))
        docs = docs_of(catalog, manifest, mark, user_id)
        if memory_id is None:
            merging.user(docs, user_id)
        else:
            merging.memory(docs, user_id, check_id(memory_id, "memory_id"))
        return merging.restored

    def _read(self, manifest: Manifest, progress: Progress, problems: builtins.list[str]) -> tuple[int, int, int]:
        users: set[str] = set()
        erased: set[str] = set()
        memories = 0
        for doc, frames in self._catalog.contents(manifest, self._catalog.docs(manifest)):
            if frames is None:
                erased.add(doc.key)
                continue
            if counted(frames) != doc.rows:
                problems.append(f"a document in {doc.segment} has other rows than the index says")
            users |= {doc.key} if doc.sort == "user" else set()
            memories += doc.rows.get("records", 0)
            progress(doc.rows.get("records", 0))
        return len(users), memories, len(erased)

    def _is_erased(self, alias: str) -> bool:
        return self._ledger.find(alias) is not None

    def _told(self, one: Manifest | Damaged) -> Backup:
        if isinstance(one, Damaged):
            return Backup(one.id, "", (), 0, 0, 0, 0, "", False, None, one.problem)
        trial = self._catalog.trial(one.id)
        problems = [] if trial is None else list(trial["problems"])
        if one.left_out:
            problems.append(describe_left_out(one))
        if is_ahead(one, self._now()):
            problems.append("it is dated later than now, by a clock that ran ahead (or this one is behind)")
        return Backup(
            one.id,
            one.moment,
            one.kinds,
            one.subjects,
            one.records,
            one.size,
            one.written,
            iso(ends_at(one)),
            None if trial is None else bool(trial["good"]),
            None if trial is None else str(trial["at"]),
            "; ".join(problems) or None,
            one.left_out,
        )

    @contextmanager
    def _alone(self) -> Iterator[Callable[[], None]]:
        """One process at a time makes, removes or restores backups. What is given says whether it still is the one."""
        with self._leadership.held() as lease:
            if lease is None:
                raise LeaseLostError(f"nothing was done: {self._leadership.other()}; try again when it is done")
            yield self._check_alone

    def _check_alone(self) -> None:
        if not self._leadership.is_held():
            raise LeaseLostError(f"it was broken off: {self._leadership.other()}; try again when that is done")


def _kinds(kinds: Iterable[MemoryType | str] | None) -> frozenset[MemoryType]:
    """The kinds to back up, checked."""
    if kinds is None:
        return frozenset(DURABLE)
    if isinstance(kinds, str):
        kinds = [kinds]
    chosen: Sequence[Any] = [kind_of(kind) for kind in kinds]
    if not chosen:
        raise InvalidKindError("name at least one kind to back up, or none to back up all of them")
    for row in chosen:
        if not row.durable:
            raise InvalidKindError(f"{row.name.value} memory is never backed up: it is not meant to last")
    return frozenset(row.name for row in chosen)


def backup_runners(backups: Backups) -> dict[str, Callable[[], dict[str, Any]]]:
    """What each of the jobs for backups does."""

    def daily() -> dict[str, Any]:
        made = backups.create(DAILY)
        return {**_told(made), **backups.rotate().as_dict()}

    def weekly() -> dict[str, Any]:
        made = backups.create(WEEKLY)
        return _told(made)

    def trial() -> dict[str, Any]:
        checks = [backups.verify(backup_id, restore=True) for backup_id in backups.latest()]
        wrong = [f"backup {check.id}: {check.problems[0]}" for check in checks if not check]
        if wrong:
            raise ObjectDamagedError(f"{'; '.join(wrong)}; make another with: holdfast backup create --full")
        return {"backups": [check.id for check in checks], "memories": sum(check.memories for check in checks)}

    return {"backup": daily, "backup_persona": weekly, "backup_trial": trial}


def _told(made: Backup) -> dict[str, Any]:
    said: dict[str, Any] = {"backup": made.id, "memories": made.memories, "written": made.written}
    return {**said, "left_out": list(made.left_out)} if made.left_out else said
