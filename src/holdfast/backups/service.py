"""``holdfast.backups``: making, listing, verifying, restoring, rotating and removing backups."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, Protocol

from holdfast.backups.catalog import Backup, Catalog, Damaged, describe_backup, is_ahead
from holdfast.backups.contents import count_memories
from holdfast.backups.create import BackupMaker, Progress, mark_of
from holdfast.backups.layout import STORE_KEY, Manifest, name_backup
from holdfast.backups.merge import Merge
from holdfast.backups.restore import Check, Restored, check_version, fill_whole, read_whole, restore_packs, try_restore
from holdfast.backups.rotate import Rotation, kinds_without, remove, rotate
from holdfast.core import errors
from holdfast.core.clock import Belief
from holdfast.core.records import DURABLE, TYPES, MemoryType, Rhythm, Subject, kind_of
from holdfast.core.values import check_id
from holdfast.lifecycle.schedule.leadership import Leadership
from holdfast.ports.backups import RowStore
from holdfast.ports.coordination import begin_steps
from holdfast.ports.objects import ObjectStore
from holdfast.ports.records import KeptText
from holdfast.privacy.ledger import KeysAndLedger
from holdfast.results.figures import LastBackupResult
from holdfast.storage.catalog import COPIED

_log = logging.getLogger("holdfast.backups")
#: What is backed up together, as the schedule does it.
DAILY: Final = frozenset(kind.name for kind in TYPES.values() if kind.backup is Rhythm.DAILY)
WEEKLY: Final = frozenset(kind.name for kind in TYPES.values() if kind.backup is Rhythm.WEEKLY)


class Host(Protocol):
    """What backups ask of the store around them."""

    def open_backups(self) -> ObjectStore:
        """Where backups go."""

    def open_cold(self) -> ObjectStore:
        """Cold storage, as it is: what is in it stays sealed."""

    def now(self) -> int:
        """The present."""

    def new_id(self, now: int, /) -> str:
        """An id that was never given before."""

    def check_clock(self, now: int, *, confirm: bool) -> Belief:
        """The time that can be trusted. ``ClockError`` on a clock that has leaped, unless confirmed."""

    def check_state(self) -> None:
        """Raise unless the store belongs to its state store, and everyone who was erased is erased here too."""

    def is_revoked(self, key_id: str, /) -> bool:
        """Whether an API key was ever revoked."""

    def kept_out(self) -> Mapping[str, Sequence[KeptText]]:
        """The texts that users keep out, by their pseudonyms, as they are noted beside the keys."""

    def settle(self, restored: Restored, /) -> None:
        """Make what was restored ready to be used."""


@dataclass(eq=False)
class Backups:
    """``holdfast.backups``: of the whole store, whichever tenant asks; single users are restored for that tenant."""

    _rows: RowStore
    _tenant: str
    _state: KeysAndLedger
    _leadership: Leadership
    _host: Host

    @cached_property
    def _catalog(self) -> Catalog:
        ledger = self._state.ledger
        return Catalog(self._host.open_backups(), self._state, lambda alias: ledger.find(alias) is not None)

    def create(
        self,
        kinds: Iterable[MemoryType | str] | None = None,
        *,
        full: bool = False,
        confirm: bool = False,
        progress: Progress = lambda _count: None,
    ) -> Backup:
        """Make a backup of the store as it is now, of some kinds or of all; others go on writing meanwhile.

        What has not changed since the backup before is referred to, not copied; ``full`` copies it too. ``ClockError``
        on a clock that has leaped, or is behind the times of the store, unless confirmed: the date of a backup decides
        when others are removed. ``progress`` is called with each number of memories that were added.
        """
        chosen = _check_kinds(kinds)
        self._host.check_state()
        with self._alone() as renew:
            now = self._host.now()
            request = begin_steps()
            record_id = self._host.new_id(now) if request is None else request.new_ids(1)[0]
            for made_id in [] if request is None else self._catalog.ids():
                if made_id.endswith(record_id[14:]):  # made by a process that was killed before it answered
                    with suppress(errors.NotFoundError):
                        return self._describe(self._catalog.get(made_id))
            self._host.check_clock(now, confirm=confirm)
            order = (name_backup(record_id, now), chosen, now)
            maker = BackupMaker(*order, self._rows, self._catalog, self._host.open_cold, progress, renew, full)
            made = self._describe(maker.run())
        _log.info("backup %s holds %d memories of %d users", made.id, made.memories, made.users)
        return made

    def count_memories(self, kinds: Iterable[MemoryType | str] | None = None) -> int:
        """About how many memories a backup of some kinds would hold now."""
        with self._rows.read() as reader:
            return count_memories(reader, _check_kinds(kinds))

    def is_store_used(self) -> bool:
        """Whether anything was ever kept in the store. If not, a restore makes the backup the whole store."""
        with self._rows.read() as reader:
            return any(reader.count(table.name) for table in COPIED if table.is_data and table.name != "turns")

    def list(self) -> list[Backup]:
        """All backups, the oldest first."""
        return [self._describe(one) for one in self._catalog.all()]

    def last(self) -> LastBackupResult | None:
        """The last backup and its last trial, and the last one that is good; ``None`` if there is none, or the place of
        backups does not answer.
        """
        last = good = None
        with suppress(errors.ObjectStoreError):
            for one in map(self._describe, self._catalog.all(newest_first=True)):
                last = last or one
                if one.good:
                    good = one
                    break
        if last is None:
            return None
        return {
            "created_at": last.created_at,
            "good": last.good,
            "tried_at": last.tried_at,
            "problem": last.problem,
            "last_good_at": None if good is None else good.created_at,
            "last_good_tried_at": None if good is None else good.tried_at,
        }

    def get(self, backup_id: str) -> Backup:
        """One backup."""
        return self._describe(self._catalog.get(backup_id))

    def verify(self, backup_id: str, *, restore: bool = False, progress: Progress = lambda _count: None) -> Check:
        """Read all of a backup and check that each byte is as it was written; with ``restore``, also restore it into a
        store of its own, read that and compare. Only then it counts as good. Nothing else is changed.
        """
        began, catalog = time.perf_counter(), self._catalog
        if restore:
            self._check_ledger()
        problems: list[str] = []
        found, manifest = Restored(backup_id, ()), None
        try:
            manifest = catalog.get(backup_id)
            check_version(manifest, self._rows.schema)
            if restore:
                found, problems = try_restore(self._rows, catalog, manifest, progress)
            else:
                found, problems = read_whole(catalog, manifest, progress)
            for held in manifest.packs:
                catalog.read(held)
            catalog.check_trial(backup_id)
        except errors.ObjectDamagedError as problem:
            problems.append(str(problem))
        size, took = manifest.size if manifest else 0, time.perf_counter() - began
        counts = (found.users, found.memories, found.erased)
        check = Check(backup_id, restore, *counts, size, took, tuple(problems))
        if manifest is not None and (restore or not check):  # nothing is noted of a backup that cannot be trusted
            good = bool(check) and check.restored
            catalog.note_trial(check.id, check.problems, good=good, memories=check.memories, now=self._host.now())
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
        """Restore what a backup holds, without users who were erased since.

        Into a store that nothing was ever kept in: all of it, exactly as it was. Into one that is in use: the
        memories, conversations, facts and holds that are missing, of everyone or of one user, or one memory of a user.
        What is there stays as it is; with ``overwrite``, memories become what they were, unless a hold keeps them.
        Rules, quotas and agents stay as they are, and quotas are not checked. If it is cut short, doing it again
        finishes it. ``progress`` is called with each number of memories that were read.
        """
        manifest = self._catalog.get(backup_id)
        check_version(manifest, self._rows.schema)
        if memory_id is not None and user_id is None:
            raise errors.InvalidInputError("the user whose memory it is was not named", needs=("user_id", "memory_id"))
        self._host.check_state()
        self._check_ledger()
        with self._alone():
            restored = None if user_id is not None else self._restore_whole(manifest, progress)
            if restored is None:
                restored = self._merge(manifest, user_id, memory_id, progress, overwrite=overwrite)
        self._host.settle(restored)
        return restored

    def rotate(self, *, confirm: bool = False) -> Rotation:
        """Remove the backups past their time, but never the last good one of a kind, and take erased users out of the
        others. ``ClockError`` on a clock that has leaped, or is behind the times of the store, unless confirmed. If the
        clock is far ahead of them, backups that are past their time by that clock alone wait, and are listed. Backups
        that are dated later than now are left alone, and listed too.
        """
        self._host.check_state()
        with self._alone() as renew:
            belief = self._host.check_clock(self._host.now(), confirm=confirm)
            self._check_ledger()
            return rotate(self._catalog, self._state.ledger, belief=belief, renew=renew)

    def remove(self, backup_id: str, *, confirm: bool = False, even_last: bool = False) -> Rotation:
        """Remove one backup for good, with what no other refers to.

        ``ConfirmationNeededError`` unless confirmed, and also if no other good backup has all of its kinds, unless
        ``even_last`` is set.
        """
        with self._alone():
            catalog, now = self._catalog, self._host.now()
            try:
                manifest = catalog.get(backup_id)
                about, kinds = f"of {manifest.moment} with {manifest.amount}", set(manifest.kinds)
            except (errors.ObjectDamagedError, errors.StoreTooNewError) as problem:
                about, kinds = f"which cannot be read ({problem})", {"every kind"}
            last = sorted(kinds - kinds_without(catalog, backup_id, now=now))
            if last and not even_last:
                raise errors.ConfirmationNeededError(
                    f"backup {backup_id}, {about}, may be the last good one of {', '.join(last)}; nothing was removed; "
                    "restore a later one on trial first (holdfast backup verify ID --restore); if it may go even so",
                    needs=("even_last",),
                )
            if not confirm:
                raise errors.ConfirmationNeededError(
                    f"backup {backup_id}, {about}, would be removed for good; nothing was removed", needs=("confirm",)
                )
            return remove(catalog, backup_id)

    def latest(self) -> Sequence[str]:
        """The latest backup of each set of kinds, of those that are not dated later than now."""
        now = self._host.now()
        return list({one.kinds: one.id for one in self._catalog.whole() if not is_ahead(one, now)}.values())

    # --- steps -----------------------------------------------------------------------------------------------------

    def _check_ledger(self) -> None:
        """``LedgerError`` if a backup was compared with erasures that the ledger does not have: then it is an old copy,
        or one that went on from there, and users who were erased since would be restored.
        """
        ledger = self._state.ledger
        compared = {(one.ledger, one.ledger_hash): one for one in self._catalog.whole() if one.ledger}
        for (number, known), one in compared.items():
            found = ledger.hash_of(number)
            if not found or (known and found != known):
                raise errors.LedgerError(
                    f"backup {one.id} was compared with {number:,} entries of the ledger of erasures, and the one in "
                    f"{ledger.url} is an older copy of it, or goes on from one: users who were erased since would be "
                    "restored. Nothing was done: bring back the newest copy of the state store, or name it in "
                    "HOLDFAST_STATE_URL"
                )

    def _restore_whole(self, manifest: Manifest, progress: Progress) -> Restored | None:
        """Restore all into a store that nothing was ever kept in; ``None`` if the store is in use."""
        with self._rows.fill() as (writer, adopt, forget_holds):
            if writer.used():
                return None
            self._check_first(manifest)
            restored, docs = fill_whole(self._catalog, manifest, writer, self._host.is_revoked, progress)
            restored.objects = restore_packs(self._catalog, manifest, docs, self._host.open_cold())
            noted, now = self._host.kept_out(), self._host.now()
            restored.kept_out = sum(adopt(alias, texts, now) for alias, texts in noted.items())
            restored.memories -= restored.kept_out
            if restored.erased:  # a hold on a memory of theirs does not say whose it is, and so it came back
                forget_holds()
        return restored

    def _check_first(self, manifest: Manifest) -> None:
        """``ConflictError`` if a backup without long-term memory is to become the whole store, and there is one with
        it: agents, conversations and audit chains come with long-term memory, and only into an empty store.
        """
        first = MemoryType.LONG_TERM.value
        if first in manifest.kinds:
            return
        others = [one for one in self._catalog.whole() if first in one.kinds]
        better = next((one for one in reversed(others) if not self._catalog.is_known_bad(one.id)), None)
        if better is not None:
            raise errors.ConflictError(
                f"backup {manifest.id} has only {', '.join(manifest.kinds)}. If it is restored first, the agents, "
                "conversations and audit chains of others cannot be restored any more. Nothing was restored: begin "
                f"with one that has {first}, such as {better.id} (holdfast backup restore latest does both), then "
                "restore this one"
            )

    def _merge(
        self, manifest: Manifest, user_id: str | None, memory_id: str | None, progress: Progress, *, overwrite: bool
    ) -> Restored:
        """Restore what is missing in a store that is in use."""
        catalog, cold, now = self._catalog, self._host.open_cold, self._host.now()

        def refresh(subject: Subject, entities: Sequence[str]) -> None:
            self._host.settle(Restored(manifest.id, manifest.kinds, outdated={subject: entities}))

        kept_out = self._host.kept_out()
        make_merger = partial(self._rows.merge, is_erased=catalog.is_erased, cold=cold, now=now, kept_out=kept_out)
        merge = Merge(catalog, manifest, make_merger, refresh, progress, overwrite)
        if user_id is None:
            merge.everyone()
        else:
            mark = mark_of(self._state.keyring.get(STORE_KEY), Subject.check(self._tenant, user_id))
            merge.user(user_id, mark, None if memory_id is None else check_id(memory_id, "memory_id"))
        return merge.restored

    def _describe(self, one: Manifest | Damaged) -> Backup:
        return describe_backup(self._catalog, one, now=self._host.now())

    @contextmanager
    def _alone(self) -> Iterator[Callable[[], None]]:
        """One process at a time makes, removes or restores backups. It gives a function that raises if another process
        has taken over.
        """
        leadership = self._leadership

        def check() -> None:
            if not leadership.is_held():
                raise errors.LeaseLostError(f"it was broken off: {leadership.other()}; try again when that is done")

        with leadership.held() as lease:
            if lease is None:
                raise errors.LeaseLostError(f"nothing was done: {leadership.other()}; try again when it is done")
            yield check


def _check_kinds(kinds: Iterable[MemoryType | str] | None) -> frozenset[MemoryType]:
    """The kinds to back up; without any, all that last."""
    if kinds is None:
        return frozenset(DURABLE)
    chosen = [kind_of(kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)]
    if not chosen:
        raise errors.InvalidKindError("name at least one kind to back up, or none to back up all of them")
    for kind in chosen:
        if not kind.durable:
            raise errors.InvalidKindError(f"{kind.name.value} memory is never backed up: it is not meant to last")
    return frozenset(kind.name for kind in chosen)


def backup_jobs(backups: Backups) -> dict[str, Callable[[], dict[str, Any]]]:
    """The function of each job that makes or verifies backups."""

    def create(kinds: frozenset[MemoryType]) -> dict[str, Any]:
        made = backups.create(kinds)
        result: dict[str, Any] = {"backup": made.id, "memories": made.memories, "written": made.written}
        return {**result, "left_out": list(made.left_out)} if made.left_out else result

    def trial() -> dict[str, Any]:
        checks = [backups.verify(backup_id, restore=True) for backup_id in backups.latest()]
        wrong = [f"backup {check.id}: {check.problems[0]}" for check in checks if not check]
        if wrong:
            raise errors.ObjectDamagedError(f"{'; '.join(wrong)}; make another with: holdfast backup create --full")
        return {"backups": [check.id for check in checks], "memories": sum(check.memories for check in checks)}

    return {
        "backup": lambda: {**create(DAILY), **backups.rotate().as_dict()},
        "backup_persona": lambda: create(WEEKLY),
        "backup_trial": trial,
    }
