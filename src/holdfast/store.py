"""What all tenants of an open store share: the database and its stores, recall, keys, the ledger, the schedule."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, Final

from holdfast.access.keys import Access
from holdfast.access.replies import Replies
from holdfast.backups.catalog import Catalog, describe_last
from holdfast.backups.lost_keys import Abandoned, LostKeys
from holdfast.backups.restore import Restored
from holdfast.backups.service import Backups, Places, backup_jobs
from holdfast.core.audit import PYTHON, Action, Event
from holdfast.core.clock import Belief
from holdfast.core.errors import (
    ConfirmationNeededError,
    LeaseLostError,
    ObjectStoreUnavailableError,
    StorageError,
    StoreReadOnlyError,
)
from holdfast.core.records import MemoryType, Subject
from holdfast.core.values import Clock, moment, name_in_logs
from holdfast.lifecycle.audit import Audit, begin_anew
from holdfast.lifecycle.clock import ClockTrust
from holdfast.lifecycle.domains import Domains
from holdfast.lifecycle.policies import Policies
from holdfast.lifecycle.previews import Previews
from holdfast.lifecycle.recycle_bin import Recycle
from holdfast.lifecycle.registry import Registry
from holdfast.lifecycle.schedule.leadership import Leadership
from holdfast.lifecycle.schedule.maintenance import Maintenance, runners
from holdfast.lifecycle.schedule.schedule import Schedule, take_back
from holdfast.lifecycle.sessions import Belongings, ConversationSummaries, Sessions
from holdfast.lifecycle.sweeping.sweep import Purge
from holdfast.memory.entity import refresh_entity_text
from holdfast.memory.services import Services
from holdfast.memory.working_store import WorkingStore
from holdfast.ports.feed import Embedder
from holdfast.ports.objects import ObjectStore
from holdfast.privacy.certificates.certificates import Certificates, Engines, find_erasure
from holdfast.privacy.erasure import Beside, Eraser, Erasure
from holdfast.privacy.keys.keyring import open_keyring
from holdfast.privacy.keys.signatures import SigningKeys
from holdfast.privacy.ledger import KeysAndLedger, Ledger
from holdfast.privacy.sealed_objects import SealedObjects
from holdfast.privacy.store_state import Purpose, StoreState
from holdfast.recall import terms
from holdfast.recall.embedders import open_embedder
from holdfast.recall.service import Recall
from holdfast.recall.summaries import EXTRACTIVE, open_summarizer
from holdfast.settings import Settings
from holdfast.storage.objects import open_backups, open_cold, open_keeping
from holdfast.storage.relational.coordination import new_holder
from holdfast.storage.stores import open_database, open_short_term, store_url, stores_over, witness_of
from holdfast.storage.transfer.stores import DatabaseRows

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
        self, settings: Settings, clock: Clock | None, tenant: str, purpose: Purpose = "use", author: str | None = None
    ) -> None:
        self.settings = settings
        self.tenants = {tenant}
        """Who it was opened for, beside those who have memories in it."""
        self._purpose = purpose
        self.embedder: Embedder = open_embedder(settings.embedder)
        self._summarizer = open_summarizer(settings.summarizer)
        self.state = open_keeping(settings)  # neither a key nor a folder is made before one is needed
        self.keyring = open_keyring(self.state, settings.master_key, settings.master_path(), self._bind_keyring)
        last_backup = partial(describe_last, partial(open_catalog, settings))
        self._store_state = StoreState(self.state, store_url(settings), last_backup)
        self._is_checked = False
        self.database = open_database(settings, self._check_absent)
        self.database.author = author or PYTHON
        try:
            self._assemble(clock)
        except BaseException:
            self.database.close()
            raise

    def _assemble(self, clock: Clock | None) -> None:
        settings, database = self.settings, self.database
        self._short_term_elsewhere = open_short_term(settings)
        self.stores = stores_over(database, self._short_term_elsewhere)
        self._rows = DatabaseRows(database)
        self.ledger = Ledger(self.state)
        self.keys = KeysAndLedger(self.keyring, SigningKeys(self.state, self.keyring), self.ledger)
        with suppress(StoreReadOnlyError):  # then what is of another model is found by its words
            self.stores.feed.adopt(f"{self.embedder.id}/{terms.VERSION}")
        self.recall = Recall(self.stores.feed, self.embedder, max_bytes=settings.index_bytes)
        self.leadership = Leadership(self.stores.leases, wall=_wall, holder=new_holder())
        self.trust = ClockTrust(
            self.stores.clock_store,
            lambda: moment((clock or system_clock)(), what="the clock's time"),
            tolerance=settings.clock_tolerance(),
            watched=clock is None,
        )
        database.on_commit = self.trust.note_write
        self.services = self._make_services(clock)
        self.access = Access(self.stores.keys, self.services.now, self.services.new_id, note=self._note_revoked)
        self.replies = Replies(
            self.stores.replies, self.services.now, erasures=lambda: (self.stores.subjects.ledger_seen() or (0, ""))[0]
        )
        self.certificates = self._make_certificates()
        self.eraser = self._make_eraser()
        self._open_state()
        with suppress(StoreReadOnlyError):  # nobody can find or read anything of what is being erased
            self.eraser.finish_unfinished()
        with suppress(StoreReadOnlyError):
            self.stores.rules.adopt_defaults(now=self.services.now)
        self._backing_up = Leadership(
            self.stores.leases, wall=_wall, holder=new_holder(), name="backups", doing="making or restoring a backup"
        )
        self._belongings = Belongings()
        self.schedule = self._make_schedule()
        with suppress(StoreReadOnlyError):
            self.schedule.enrol()

    # --- the store and its state ---------------------------------------------------------------------------------

    def _open_state(self) -> None:
        """Hold the store against its state: nobody reads what was erased, wherever this store comes from.

        Where the state store is away, a store goes without for now that is the very one that agreed with it before.
        """
        self._witness = witness_of(self.database)
        with suppress(StoreReadOnlyError):
            identity = self.stores.identity.make(secrets.token_hex(16))
            if self._purpose == "new" and self._store_state.begin_anew(identity, now=self.services.now()):
                for tenant in self.tenants:  # the note of the last checkpoint is of the store that was lost
                    begin_anew(self.audit(tenant))
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
            self._store_state.check_present(self.stores.identity)
        if self._purpose != "abandon":
            self._store_state.check_keyring(self.stores.identity, self.keyring)
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
            self._store_state.note_data(self.stores.identity, now=self.services.now())
        except StorageError as problem:
            _log.info("it could not be noted that the store holds data: %s", problem)

    def _check_absent(self) -> None:
        if self._purpose not in {"new", "restore"}:
            self._store_state.check_absent()

    def _bind_keyring(self, found: str | None) -> None:
        self._store_state.bind(self.stores.identity, found)

    def _go_on(self) -> int:
        """Go on with erasures that were cut short; what the state store is needed for waits while that is away."""
        try:
            self.check_state()
            self.note_data()
        except StorageError as problem:
            _log.warning("the store and its state cannot be compared just now: %s", problem)
            return self.eraser.finish_unfinished()
        return self.eraser.go_on()

    def _make_services(self, clock: Clock | None) -> Services:
        stores = self.stores
        return Services(
            **vars(stores),
            leadership=self.leadership,
            trust=self.trust,
            objects=cache(self._open_cold),
            erase=self.erase,
            recall=self.recall,
            working=WorkingStore(stores.subjects.erased_within, self.recall.forget_user),
            summarizer=self._summarizer,
            clock=clock or system_clock,
            check=self.database.check_usable,
            max_content_bytes=self.settings.max_content_bytes,
        )

    def _open_cold(self) -> ObjectStore:
        """Cold storage, in which everything is sealed under its user's key."""
        plain = open_cold(self.settings)
        return SealedObjects(plain, self.keyring, self.services.now, self.is_erased)

    def _make_certificates(self) -> Certificates:
        services, audit, dues = self.services, self.stores.audit, self.stores.dues
        return Certificates(
            self.state,
            self.keys.signing,
            Engines(self._rows.engine, has_short_term_server=self._short_term_elsewhere is not None),
            find_audit=lambda alias: find_erasure(audit, (*self.tenants, *dues.tenants()), alias),
            now=services.now,
            new_id=lambda: services.new_id(services.now()),
        )

    def _make_eraser(self) -> Eraser:
        def forget(subject: Subject) -> dict[str, int]:
            self.recall.forget_user(subject)
            return {MemoryType.WORKING.value: self.services.working.clear_user(subject)}

        return Eraser(
            self.stores.subjects,
            self.keys,
            self.services.objects,
            beside=Beside(forget, self._short_term_elsewhere),
            now=self.services.now,
            certify=self.certificates.certify,
        )

    def backups(self, tenant: str) -> Backups:
        """Backups of the whole store; single users are restored for a tenant."""
        return Backups(
            self._rows,
            tenant,
            Places(partial(open_backups, self.settings), partial(open_cold, self.settings)),
            state=self.keys,
            leadership=self._backing_up,
            host=_BackupHost(self, tenant),
        )

    def abandon_keys(self, tenant: str, *, confirm: bool) -> Abandoned:
        """Set the keys aside that the master key does not open, once that is confirmed."""
        self.check_state()
        with self._backing_up.held() as lease:
            if lease is None:
                raise LeaseLostError(f"nothing was done: {self._backing_up.other()}; try again when it is done")
            catalog = Catalog(open_backups(self.settings), self.keys, self.is_erased)
            cold = open_cold(self.settings)
            lost = LostKeys(catalog, cold, identity=self.stores.identity, is_erased=self.is_erased)
            found = lost.find()
            if found and not confirm:
                raise ConfirmationNeededError(f"{found.describe()}; nothing was changed", needs=("confirm",))
            if found:
                now = self.services.now()
                self.stores.audit.append(Subject(tenant), [Event(now, Action.KEYS_ABANDONED, None, found.as_dict())])
                lost.abandon(now=now)
            return found

    def is_erased(self, alias: str) -> bool:
        """Whether the erasure of a pseudonym was carried out."""
        return self.ledger.is_carried_out(alias)

    def _make_schedule(self) -> Schedule:
        jobs = runners(self.stores.dues, self.maintenance)
        jobs["daily"] = self._summarizing(jobs["daily"])
        jobs |= backup_jobs(self.backups(next(iter(self.tenants))))
        return Schedule(
            self.stores.jobs,
            self.leadership,
            jobs,
            clock=self.services.clock,
            timezone=self.settings.timezone,
            trust=self.trust,
        )

    def _summarizing(self, job: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
        """A job that then has idle conversations summarized, if the settings name a summarizer for that."""

        def run() -> dict[str, Any]:
            result = job()
            made = sum(self.summarize_conversations(tenant) for tenant in self.stores.dues.tenants())
            return {**result, "conversations_summarized": made} if made else result

        return run

    def summarize_conversations(self, tenant: str, limit: int = MOST_SUMMARIES) -> int:
        """Have the summarizer of the settings summarize a tenant's idle conversations; how many. The extractive one is
        at work while messages come, so that there is nothing left for it to do here.
        """
        if self.settings.summarizer.strip() == EXTRACTIVE:
            return 0
        summaries = ConversationSummaries(self.stores.history, self._summarizer, tenant, self.services.now)
        return summaries.refresh(limit)

    def _note_revoked(self, key_id: str) -> None:
        """Note outside of the store that a key was revoked: no backup of before makes it valid again."""
        self.state.prepare()
        self.state.put(f"{_REVOKED}{key_id}", b"")

    def is_revoked(self, key_id: str) -> bool:
        """Whether an API key was ever revoked."""
        return f"{_REVOKED}{key_id}" in self.state.names(_REVOKED)

    def erase(self, subject: Subject) -> Erasure:
        """Erase a subject for good, in every place."""

        def prepare() -> None:
            self.check_state()
            self.certificates.prepare()  # what could not be certified is not begun

        erasure = self.eraser.erase(subject, prepare)
        _erasures.info(
            "erased user %s for good: %s%s",
            name_in_logs(erasure.alias),
            {kind: count for kind, count in erasure.kinds.items() if count} or "no memories",
            f"; pending: {'; '.join(erasure.waiting_for)}" if erasure.pending else "",
        )
        return erasure

    def audit(self, tenant: str) -> Audit:
        """A tenant's audit chain."""
        return Audit(
            self.stores.audit, tenant, self.settings.home / "state", self.services.clock, believed=self.trust.look
        )

    def sessions(self, tenant: str) -> Sessions:
        """A tenant's sessions."""
        return Sessions(
            self.stores.history,
            self.stores.short_term,
            tenant=tenant,
            now=self.services.now,
            belongings=self._belongings,
        )

    def policies(self, tenant: str) -> Policies:
        """A tenant's rules."""
        now = self.services.now
        return Policies(self.stores.rules, Previews(self.stores, tenant, now), tenant, now, self.services.new_id)

    def registry(self, tenant: str) -> Registry:
        """A tenant's agents and tools."""
        return Registry(self.stores.registry, self.stores.short_term, tenant=tenant, now=self.services.now)

    def maintenance(self, tenant: str) -> Maintenance:
        """Sweeps a tenant."""
        refresh = partial(refresh_entity_text, self.services)
        domains = self.domains(tenant)
        registry = self.registry(tenant)
        purge = Purge(tenant, self.stores.dues, self.stores.history, registry)
        return Maintenance(
            tenant,
            self.services.sweeper(tenant, self.sessions(tenant).erase, refresh, domains.most_collected, purge.due),
            self.leadership,
            self.stores,
            purge=purge,
            policies=self.policies(tenant),
            registry=registry,
            audit=self.audit(tenant),
            now=self.services.now,
            trust=self.trust,
            load=self.settings.sweep_load,
            finish_erasures=self._go_on,
            domains=domains,
            shrink=self.stores.subjects.scrub,
            take_back=lambda: take_back(self.stores.jobs, self.services.now()),
        )

    def domains(self, tenant: str) -> Domains:
        """A tenant's retention domains."""
        return Domains(
            tenant,
            state=self.state,
            objects=self.services.objects,
            rules=self.stores.rules,
            dues=self.stores.dues,
            holds=self.stores.holds,
            now=self.services.now,
            new_id=self.services.new_id,
        )

    def recycle(self, tenant: str) -> Recycle:
        """A tenant's recycle bin."""
        return Recycle(
            self.stores,
            tenant,
            self.registry(tenant),
            now=self.services.now,
            purge=self.maintenance(tenant).empty_bin,
            refresh=partial(refresh_entity_text, self.services),
        )

    def close(self) -> None:
        """Close the store. What is called afterwards raises ``ClosedError``."""
        if self._is_checked and self.database.usable:
            self.note_data()
        self.database.close()
        self.services.working.forget()
        self.recall.forget()


class _BackupHost:
    """The store as its backups see it."""

    def __init__(self, store: Store, tenant: str) -> None:
        self._store = store
        self._tenant = tenant
        self.now = store.services.now
        self.new_id = store.services.new_id
        self.is_revoked = store.is_revoked

    def check_clock(self, now: int, *, confirm: bool) -> Belief:
        if confirm:
            self._store.trust.confirm(now, self._tenant)
        return self._store.trust.check(now)

    def check_state(self) -> None:
        self._store.check_state()
        self._store.keyring.claim_once()
        self._store.note_data()

    def settle(self, restored: Restored) -> None:
        store = self._store
        if restored.whole:
            store.stores.feed.adopt(f"{store.embedder.id}/{terms.VERSION}")
            store.stores.rules.adopt_defaults(now=store.services.now)
            store.schedule.enrol()
            store.eraser.replay()
            store.audit(self._tenant).seal(accept=f"backup {restored.backup_id} was restored")
        for subject, ids in restored.outdated.items():
            refresh_entity_text(store.services, subject, ids)


def open_keys(settings: Settings) -> KeysAndLedger:
    """The keys and the ledger that the settings name. Neither a key nor a folder is made."""
    state = open_keeping(settings)
    keyring = open_keyring(state, settings.master_key, settings.master_path())
    return KeysAndLedger(keyring, SigningKeys(state, keyring), Ledger(state))


def open_catalog(settings: Settings) -> Catalog:
    """The backups that the settings name, to be looked at: nothing is made, and no document is read."""
    return Catalog(open_backups(settings), open_keys(settings), lambda _alias: False)
