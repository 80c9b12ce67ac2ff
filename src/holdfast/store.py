"""What all tenants of an open store share: the database and its stores, recall, keys, the ledger, the schedule."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.audit import PYTHON, Action, Event
from holdfast.core.clock import Belief
from holdfast.core.errors import (
    ConfirmationNeededError,
    LeaseLostError,
    ObjectStoreUnavailableError,
    StorageError,
    StoreAwayError,
    StoreReadOnlyError,
)
from holdfast.core.records import MemoryType, Subject
from holdfast.core.values import Clock, check_tenant, moment, name_in_logs
from holdfast.lifecycle.clock import ClockTrust
from holdfast.lifecycle.part_registry import OpenParts
from holdfast.lifecycle.schedule.leadership import Leadership
from holdfast.lifecycle.schedule.schedule import JOBS, Schedule
from holdfast.memory.services import Services
from holdfast.memory.working import WorkingStore
from holdfast.privacy.erasure import Beside, Eraser, Erasure, ignore
from holdfast.privacy.keep_out import KeepOut
from holdfast.privacy.keys.keyring import Keyring
from holdfast.privacy.keys.signatures import SigningKeys
from holdfast.privacy.ledger import KeysAndLedger, Ledger
from holdfast.privacy.store_state import Purpose, StoreState
from holdfast.recall import terms
from holdfast.recall.embedders import open_embedder
from holdfast.recall.service import Recall
from holdfast.recall.summaries import EXTRACTIVE, open_summarizer
from holdfast.settings import Settings
from holdfast.storage.objects import open_backups, open_cold, open_keeping
from holdfast.storage.relational.coordination import new_holder
from holdfast.storage.stores import open_database, open_short_term, store_url, stores_over, witness_of

if TYPE_CHECKING:  # what a process does not ask for is not loaded
    from holdfast.access.keys import Access
    from holdfast.access.replies import Replies
    from holdfast.access.sign_ins import SignIns
    from holdfast.backups.catalog import Catalog
    from holdfast.backups.lost_keys import Abandoned
    from holdfast.backups.restore import Restored
    from holdfast.backups.service import Backups
    from holdfast.lifecycle.audit import Audit
    from holdfast.lifecycle.bulk_delete import Sources
    from holdfast.lifecycle.domains import Domains
    from holdfast.lifecycle.figures.memories import Memories
    from holdfast.lifecycle.holds import Holds
    from holdfast.lifecycle.policies import Policies, Quotas
    from holdfast.lifecycle.recycle_bin import Recycle
    from holdfast.lifecycle.registry import Registry
    from holdfast.lifecycle.schedule.maintenance import Maintenance
    from holdfast.lifecycle.session_parts import SessionParts
    from holdfast.lifecycle.sessions import Sessions
    from holdfast.ports.feed import Embedder
    from holdfast.ports.objects import ObjectStore
    from holdfast.privacy.certificates import Certificates
    from holdfast.storage.transfer.stores import DatabaseRows
    from holdfast.telemetry import Telemetry

_log = logging.getLogger("holdfast.store")
_erasures = logging.getLogger("holdfast.erasure")
_REVOKED: Final = "revoked/"


def system_clock() -> datetime:
    """The present, by the machine's clock."""
    return datetime.now(UTC)


def _wall() -> int:
    """The machine's real time, in microseconds."""
    return time.time_ns() // 1_000


#: So many conversations of a tenant are summarized a night.
MOST_SUMMARIES: Final = 1_000


class Store:
    """An open store. What was erased anywhere is erased here before the first of its parts can be used."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock | None,
        tenant: str,
        purpose: Purpose = "use",
        author: str | None = None,
        *,
        embedder: Embedder | None = None,
    ) -> None:
        self.settings, self._purpose, self._is_checked = settings, purpose, False
        self.tenants = {tenant}
        """Who it was opened for, beside those who have memories in it."""
        self.embedder: Embedder = embedder or open_embedder(settings.embedder)
        self._summarizer = open_summarizer(settings.summarizer)
        self.state = open_keeping(settings)  # neither a key nor a folder is made before one is needed
        self.keys = _open_keys(settings, self.state, self._bind_keyring)
        self.keyring, _, self.ledger = self.keys
        self._store_state = StoreState(self.state, store_url(settings), partial(_describe_last, settings))
        self.database = open_database(settings, self._check_absent)
        self.database.author = author or PYTHON
        try:
            self._short_term_elsewhere = open_short_term(settings)
            self._parts = OpenParts(settings.url)
            self.services = self._make_services(clock or system_clock, is_watched=clock is None)
            self._make_shared_services()
            self.telemetry = self._open_telemetry()
            self._open()
        except BaseException:
            self.database.close()
            raise

    def _make_services(self, clock: Clock, *, is_watched: bool) -> Services:
        """What memories use."""
        settings, database = self.settings, self.database
        stores = stores_over(database, self._short_term_elsewhere)
        recall = Recall(stores.feed, self.embedder, max_bytes=settings.index_bytes)
        trust = ClockTrust(
            stores.clock_store,
            lambda: moment(clock(), what="the clock's time"),
            tolerance=settings.clock_tolerance(),
            watched=is_watched,
        )
        database.on_commit = trust.note_write
        database.sign_texts = self.keyring.sign_texts
        return Services(
            partial(getattr, stores),
            leadership=Leadership(stores.leases, wall=_wall, holder=new_holder()),
            trust=trust,
            objects=cache(self._open_cold),
            keep_out=KeepOut(stores, self.keyring, self.ledger.is_carried_out),
            erase=self.erase,
            open_part=self._parts.open,
            recall=recall,
            working=WorkingStore(stores.subjects.erased_within, recall.forget_user),
            summarizer=self._summarizer,
            clock=clock,
            check=database.check_usable,
            max_content_bytes=settings.max_content_bytes,
            refuse_kept_out=settings.refuse_kept_out,
            dedupe=settings.dedupe,
        )

    def _make_shared_services(self) -> None:
        """What every process needs of what the tenants of the store share."""
        services = self.services
        beside = Beside(self._forget, self._short_term_elsewhere, self._parts_of)
        self.eraser = Eraser(services.subjects, self.keys, services.objects, beside, services.now, self._certify)
        runs = {job: partial(self._run_job, job.name) for job in JOBS}
        timezone, trust = self.settings.timezone, services.trust
        self.schedule = Schedule(services.jobs, services.leadership, runs, services.clock, timezone, trust)

    @cached_property
    def rows(self) -> DatabaseRows:
        """The rows of the database, for backups."""
        from holdfast.storage.transfer.stores import DatabaseRows

        return DatabaseRows(self.database)

    @cached_property
    def backing_up(self) -> Leadership:
        """Whoever makes or restores a backup does so alone."""
        doing = "making or restoring a backup"
        return Leadership(self.services.leases, wall=_wall, holder=new_holder(), name="backups", doing=doing)

    @cached_property
    def access(self) -> Access:
        """API keys."""
        from holdfast.access.keys import Access

        return Access(self.services.keys, self.services.now, self.services.new_id, note=self._note_revoked)

    @cached_property
    def sign_ins(self) -> SignIns:
        """Whose browsers are signed in."""
        from holdfast.access.sign_ins import SignIns

        return SignIns(self.services.sign_ins, self.access, self.services.now)

    @cached_property
    def replies(self) -> Replies:
        """What requests with an idempotency key were told."""
        from holdfast.access.replies import Replies

        subjects = self.services.subjects
        seen = lambda: (subjects.ledger_seen() or (0, ""))[0]  # noqa: E731
        return Replies(self.services.replies, self.services.now, erasures=seen)

    @cached_property
    def certificates(self) -> Certificates:
        """Certificates of erasures."""
        from holdfast.privacy.certificates import Certificates, Engines, find_erasure

        services, now = self.services, self.services.now
        return Certificates(
            self.state,
            self.keys.signing,
            Engines(self.database.engine, has_short_term_server=self._short_term_elsewhere is not None),
            lambda alias: find_erasure(services.audit, (*self.tenants, *services.dues.tenants()), alias),
            now,
            lambda: services.new_id(now()),
        )

    def _open_telemetry(self) -> Telemetry | None:
        """OpenTelemetry, where the settings ask for it."""
        if not self.settings.otel:
            return None
        from holdfast.telemetry import Telemetry

        telemetry = Telemetry(content=self.settings.otel_content)
        self.services.latencies.observe = telemetry.record
        return telemetry

    def _certify(self, *erasure: Any) -> Any:
        return self.certificates.certify(*erasure)

    def _open(self) -> None:
        """Take up what the store has to know before anyone uses it; a store that is for reading only goes without."""
        with suppress(StoreReadOnlyError):  # then what is of another model is found by its words
            self.adopt_model()
        self._open_state()
        with suppress(StoreReadOnlyError):  # nobody can find or read anything of what is being erased
            self.eraser.finish_unfinished()
        with suppress(StoreReadOnlyError):
            self.services.rules.adopt_defaults(now=self.services.now)
        with suppress(StoreReadOnlyError):
            self.schedule.enrol()

    def adopt_model(self) -> None:
        """Let records be embedded with the embedder and the terms of this version."""
        self.services.feed.adopt(f"{self.embedder.id}/{terms.VERSION}")

    def _open_cold(self) -> ObjectStore:
        """Cold storage, in which everything is sealed under its user's key."""
        from holdfast.privacy.sealed_objects import SealedObjects

        return SealedObjects(open_cold(self.settings), self.keyring, self.services.now, self.ledger.is_carried_out)

    def _parts_of(self, tenant: str) -> SessionParts:
        from holdfast.lifecycle.session_parts import SessionParts

        return SessionParts(self.services.tenant(tenant))

    def _forget(self, subject: Subject) -> dict[str, int]:
        """Forget what the process holds of a subject; how many notes that were."""
        self.services.recall.forget_user(subject)
        return {MemoryType.WORKING.value: self.services.working.clear_user(subject)}

    # --- the store and its state ---------------------------------------------------------------------------------

    def _open_state(self) -> None:
        """Hold the store against its state: nobody reads what was erased, wherever this store comes from.

        Where the state store is away, a store goes without for now that is the very one that agreed with it before.
        """
        self._witness = witness_of(self.database)
        with suppress(StoreReadOnlyError):
            identity = self.services.identity.make(secrets.token_hex(16))
            if self._purpose == "new" and self._store_state.begin_anew(identity, now=self.services.now()):
                from holdfast.lifecycle.audit import begin_anew

                for tenant in self.tenants:  # the note of the last checkpoint is of the store that was lost
                    begin_anew(TenantServices(self, tenant).audit)
        try:
            self.check_state()
        except ObjectStoreUnavailableError as problem:
            if self._witness is None or not self._witness.is_unbroken():
                raise ObjectStoreUnavailableError(
                    f"{problem}. The store was not opened: without the ledger of erasures it cannot be told whether "
                    "someone is in it who was erased. Open it again when the state store is back"
                ) from problem
            _log.warning("the store was opened without its state store, which is away: %s", problem)

    def check_state(self) -> None:
        """See, once, that the store belongs to its state, and that whoever was erased is: before anything is done that
        needs the state. What is away is tried again each time.
        """
        if self._is_checked:
            return
        if self._purpose == "use":
            self._store_state.check_present(self.services.identity)
        if self._purpose != "abandon":
            self._store_state.check_keyring(self.services.identity, self.keyring)
        self.eraser.replay()
        if self._witness is not None:
            with suppress(StoreReadOnlyError):
                self._witness.confirm()
        self.note_data()
        self._is_checked = True

    def note_data(self) -> None:
        """Note in the state store that there is data in this one, once there is. Where that cannot be written (a full
        disk, one that is for reading only) the store is used all the same.
        """
        try:
            self._store_state.note_data(self.services.identity, now=self.services.now())
        except StorageError as problem:
            _log.info("it could not be noted that the store holds data: %s", problem)

    def _check_absent(self) -> None:
        if self._purpose not in {"new", "restore"}:
            self._store_state.check_absent()

    def _bind_keyring(self, found: str | None) -> None:
        self._store_state.bind(self.services.identity, found)

    def finish_erasures(self) -> int:
        """Go on with erasures that were cut short; what the state store is needed for waits while that is away."""
        try:
            self.check_state()
            self.note_data()
        except StorageError as problem:
            _log.warning("the store and its state cannot be compared just now: %s", problem)
            return self.eraser.finish_unfinished()
        return self.eraser.go_on()

    def abandon_keys(self, tenant: str, *, confirm: bool) -> Abandoned:
        """Set the keys aside that the master key does not open, once that is confirmed."""
        self.check_state()
        from holdfast.backups.catalog import Catalog
        from holdfast.backups.lost_keys import LostKeys

        is_erased = self.ledger.is_carried_out
        with self.backing_up.held() as lease:
            if lease is None:
                raise LeaseLostError(f"nothing was done: {self.backing_up.other()}; try again when it is done")
            catalog = Catalog(open_backups(self.settings), self.keys, is_erased)
            cold = open_cold(self.settings)
            lost = LostKeys(catalog, cold, self.services.identity)
            found = lost.find()
            if found and not confirm:
                raise ConfirmationNeededError(f"{found.describe()}; nothing was changed", needs=("confirm",))
            if found:
                now = self.services.now()
                self.services.audit.append(Subject(tenant), [Event(now, Action.KEYS_ABANDONED, None, found.as_dict())])
                lost.abandon(now=now)
            return found

    def _run_job(self, job: str) -> dict[str, Any]:
        """Run a job of the schedule. After the daily sweep idle conversations are summarized, if the settings name a
        summarizer for that.
        """
        from holdfast.lifecycle.schedule.maintenance import runners

        jobs = runners(self.services.dues, lambda tenant: TenantServices(self, tenant).maintenance)
        if job not in jobs:
            from holdfast.backups.service import backup_jobs

            return backup_jobs(TenantServices(self, next(iter(self.tenants))).backups)[job]()
        result = jobs[job]()
        if job == "daily":
            made = sum(self.summarize_conversations(tenant) for tenant in self.services.dues.tenants())
            return {**result, "conversations_summarized": made} if made else result
        return result

    def summarize_conversations(self, tenant: str, limit: int = MOST_SUMMARIES) -> int:
        """Have the summarizer of the settings summarize a tenant's idle conversations; how many. The extractive one is
        at work while messages come, so that there is nothing left for it to do here.
        """
        if self.settings.summarizer.strip() == EXTRACTIVE:
            return 0
        from holdfast.lifecycle.sessions import ConversationSummaries

        summaries = ConversationSummaries(self.services.tenant(tenant), self._summarizer)
        return summaries.refresh(limit)

    def _note_revoked(self, key_id: str) -> None:
        """Note outside of the store that a key was revoked: no backup of before makes it valid again."""
        self.state.prepare()
        self.state.put(f"{_REVOKED}{key_id}", b"")

    def is_revoked(self, key_id: str) -> bool:
        """Whether an API key was ever revoked."""
        return f"{_REVOKED}{key_id}" in self.state.names(_REVOKED)

    def erase(self, subject: Subject, progress: Callable[[int, str], None] = ignore) -> Erasure:
        """Erase a subject for good, in every place."""

        def prepare() -> None:
            self.check_state()
            self.certificates.prepare()  # what could not be certified is not begun
            self._find_parts(subject)

        erasure = self.eraser.erase(subject, prepare, progress)
        _erasures.info(
            "erased user %s for good: %s%s",
            name_in_logs(erasure.alias),
            {kind: count for kind, count in erasure.kinds.items() if count} or "no memories",
            f"; pending: {'; '.join(erasure.waiting_for)}" if erasure.pending else "",
        )
        return erasure

    def _find_parts(self, subject: Subject) -> None:
        """Let the store know all that parts hold for a subject: holds keep it, and its erasure is on the record. Where
        a part is away, someone of whom nothing is known may be in it.
        """
        try:
            self._parts_of(subject.tenant).refresh(user_id=subject.user_id)
        except StoreAwayError:
            self.services.subjects.make_known(subject)

    def close(self) -> None:
        """Close the store. What is called afterwards raises ``ClosedError``."""
        if self._is_checked and self.database.usable:
            self.note_data()
        self.database.close()
        self._parts.close()
        self.services.working.forget()
        self.services.recall.forget()


class TenantServices:
    """What one tenant of an open store has: each part is loaded and made when it is first used."""

    def __init__(self, base: Store, tenant: str) -> None:
        self._base, self.tenant, self.services = base, check_tenant(tenant), base.services
        self._mine = base.services.tenant(tenant)

    @cached_property
    def quotas(self) -> Quotas:
        """How much may be kept."""
        from holdfast.lifecycle.policies import Quotas

        return Quotas(self._mine)

    @cached_property
    def holds(self) -> Holds:
        """What must not go."""
        from holdfast.lifecycle.holds import Holds

        return Holds(self._mine)

    @cached_property
    def _sources(self) -> Sources:
        """What came from where."""
        from holdfast.lifecycle.bulk_delete import Sources

        return Sources(self._mine, self.refresh_entities)

    @cached_property
    def audit(self) -> Audit:
        """What happened."""
        from holdfast.lifecycle.audit import Audit

        return Audit(self._mine, self._base.state, self.services.trust.look)

    @cached_property
    def policies(self) -> Policies:
        """How long things live."""
        from holdfast.lifecycle.policies import Policies

        return Policies(self._mine)

    @cached_property
    def registry(self) -> Registry:
        """Agents and tools."""
        from holdfast.lifecycle.registry import Registry

        return Registry(self._mine)

    @cached_property
    def sessions(self) -> Sessions:
        """Conversations."""
        from holdfast.lifecycle.sessions import Sessions

        return Sessions(self._mine)

    @cached_property
    def memories(self) -> Memories:
        """All memories, whosever they are."""
        from holdfast.lifecycle.figures.memories import Memories

        return Memories(self._mine)

    @cached_property
    def parts(self) -> SessionParts:
        """What belongs to sessions and lies elsewhere."""
        from holdfast.lifecycle.session_parts import SessionParts

        return SessionParts(self._mine)

    @cached_property
    def domains(self) -> Domains:
        """A caller's own resources."""
        from holdfast.lifecycle.domains import Domains

        return Domains(self._mine, self._base.state, self.services.objects)

    @cached_property
    def maintenance(self) -> Maintenance:
        """Sweeps, and what is done beside them."""
        from holdfast.lifecycle.schedule.maintenance import Maintenance
        from holdfast.lifecycle.sweeping.sweep import Sweeper

        services, base = self.services, self._base
        erase, load = self.sessions.erase, base.settings.sweep_load
        sweeper = Sweeper(self._mine, services.archives, erase, self.refresh_entities, self.domains, load)
        return Maintenance(sweeper, services.leadership, services.trust, self.audit, base.finish_erasures)

    @cached_property
    def recycle(self) -> Recycle:
        """What was removed and can come back."""
        from holdfast.lifecycle.recycle_bin import Recycle

        return Recycle(self._mine, self.maintenance.empty_bin, self.refresh_entities)

    def refresh_entities(self, subject: Subject, ids: Sequence[str]) -> None:
        """Entities came back, or went: let those that are related to them tell what holds now."""
        from holdfast.memory.entity import refresh_entity_text

        refresh_entity_text(self.services, subject, ids)

    @cached_property
    def backups(self) -> Backups:
        """Of the whole store, whichever tenant asks."""
        from holdfast.backups.service import Backups

        base = self._base
        return Backups(base.rows, self.tenant, base.keys, base.backing_up, _BackupHost(base, self))


class _BackupHost:
    """The store as its backups see it."""

    def __init__(self, store: Store, tenant: TenantServices) -> None:
        self._store, self._tenant, self._services = store, tenant, store.services
        self.now, self.new_id, self.is_revoked = store.services.now, store.services.new_id, store.is_revoked
        self.kept_out = store.services.keep_out.notes
        self.open_backups, self.open_cold = partial(open_backups, store.settings), partial(open_cold, store.settings)

    def check_clock(self, now: int, *, confirm: bool) -> Belief:
        if confirm:
            self._services.trust.confirm(now, self._tenant.tenant)
        return self._services.trust.check(now)

    def check_state(self) -> None:
        self._store.check_state()
        self._store.keyring.claim()
        self._store.note_data()

    def settle(self, restored: Restored) -> None:
        restored.kept_out += (again := self._services.keep_out.replay(self.now()))
        restored.memories -= again
        if restored.whole:
            self._store.adopt_model()
            self._services.rules.adopt_defaults(now=self.now)
            self._store.schedule.enrol()
            self._store.eraser.replay()
            self._tenant.audit.seal(accept=f"backup {restored.backup_id} was restored")
        for subject, ids in restored.outdated.items():
            self._tenant.refresh_entities(subject, ids)
        self._services.history.follow_anew()  # what belongs to sessions lies elsewhere, and has gone on meanwhile


def _open_keys(
    settings: Settings, state: ObjectStore, bind: Callable[[str | None], None] = lambda _found: None
) -> KeysAndLedger:
    """The keys and the ledger that the settings name. Neither a key nor a folder is made."""
    keyring = Keyring(state, settings.master_key, settings.master_path(), bind)
    return KeysAndLedger(keyring, SigningKeys(state, keyring), Ledger(state))


def open_catalog(settings: Settings) -> Catalog:
    """The backups that the settings name, to be looked at: nothing is made, and no document is read."""
    from holdfast.backups.catalog import Catalog

    return Catalog(open_backups(settings), _open_keys(settings, open_keeping(settings)), lambda _alias: False)


def _describe_last(settings: Settings) -> str | None:
    from holdfast.backups.catalog import describe_last

    return describe_last(partial(open_catalog, settings))
