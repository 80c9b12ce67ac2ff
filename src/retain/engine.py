"""The engine: opens the store that the settings name and hands out memories. The only module that knows every part."""

from __future__ import annotations

import atexit
import logging
import math
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import Any

from retain import __version__
from retain.core.content import check_id, check_tenant
from retain.core.errors import InvalidInputError, told
from retain.core.records import Scope, Usage
from retain.core.times import Clock
from retain.core.types import DURABLE, MemoryType, kind_of
from retain.kinds.entity import retell_entities
from retain.kinds.latency import Latencies
from retain.kinds.parts import Parts
from retain.lifecycle.audit import Audit
from retain.lifecycle.holds import Holds
from retain.lifecycle.leadership import Leadership
from retain.lifecycle.metrics import Collector, exposition
from retain.lifecycle.plan import Plan, Report
from retain.lifecycle.policies import Policies
from retain.lifecycle.provenance import Sources
from retain.lifecycle.recycle import Recycle
from retain.lifecycle.registry import Registry
from retain.lifecycle.safety import ClockWatch
from retain.lifecycle.schedule import Schedule
from retain.lifecycle.sessions import Belongings, Sessions
from retain.lifecycle.upkeep import Upkeep, runners
from retain.manager import Memory, explain
from retain.ports import Embedder, ObjectStore, ShortTermStore, Summarizer
from retain.privacy.erasure import Eraser, Erasure
from retain.privacy.export import Target
from retain.privacy.issuing import Certificates, erasure_on
from retain.privacy.keyring import open_keyring
from retain.privacy.ledger import Ledger
from retain.privacy.sealed_objects import SealedObjects
from retain.privacy.signing import SigningKeys
from retain.recall import terms
from retain.recall.embedders import open_embedder
from retain.recall.service import Recall
from retain.recall.summaries import open_summarizer
from retain.settings import Settings, read_settings
from retain.storage.objects import open_objects
from retain.storage.relational.jobs import new_holder
from retain.storage.stores import Stores, large_scopes_in, open_database, open_short_term, stores_over

logging.getLogger("retain").addHandler(logging.NullHandler())  # heard by those who set up logging, by nobody else


def system_clock() -> datetime:
    """The present, by the machine's clock."""
    return datetime.now(UTC)


def _wall() -> int:
    """The machine's real time, in microseconds."""
    return time.time_ns() // 1_000


class Retain:
    """An open engine. Use it in a ``with`` block, or ``close()`` it; safe for many threads, starts none
    but one that keeps a sweep's lease while it sweeps."""

    def __init__(self, settings: Settings, *, tenant: str = "default", clock: Clock | None = None) -> None:
        if not isinstance(settings, Settings):
            raise InvalidInputError(f"Retain is opened with Retain.open({told(settings)}), not with Retain(...)")
        self.settings = settings
        self.tenant = check_tenant(tenant)
        if clock is not None and not callable(clock):
            raise InvalidInputError(f"clock must be a callable that returns an aware datetime, not {told(clock)}")
        self.embedder: Embedder = open_embedder(settings.embedder)
        summarizer = open_summarizer(settings.summarizer)
        self.database = open_database(settings)
        try:
            self._assemble(summarizer, clock)
        except BaseException:
            self.database.close()
            raise

    def _assemble(self, summarizer: Summarizer, clock: Clock | None) -> None:
        """Put the parts together."""
        database, settings, tenant = self.database, self.settings, self.tenant
        elsewhere = open_short_term(settings)
        stores = stores_over(database, elsewhere)
        self._open_state()
        feed = stores.feed
        feed.adopt(f"{self.embedder.id}/{terms.VERSION}")
        large = large_scopes_in(database, settings.index_records)
        self.recall = Recall(feed, self.embedder, max_bytes=settings.index_bytes, large=large)
        records, history, short_term = stores.records, stores.history, stores.short_term
        rules, holds, registered = stores.rules, stores.holds, stores.registry
        self.dues = stores.dues
        leadership = Leadership(stores.leases, wall=_wall, holder=new_holder())
        self._parts = Parts(
            records=records,
            provenance=stores.provenance,
            history=history,
            short_term=short_term,
            facts=stores.facts,
            schemas=stores.schemas,
            rules=rules,
            dues=self.dues,
            holds=holds,
            audit=stores.audit,
            packs=stores.packs,
            reader=stores.reader,
            leadership=leadership,
            objects=cache(self._open_cold),
            erase=self._erase,
            recall=self.recall,
            summarizer=summarizer,
            clock=clock or system_clock,
            check=database.check_usable,
            max_content_bytes=settings.max_content_bytes,
        )
        parts = self._parts
        self.eraser = self._make_eraser(stores, elsewhere)
        self.eraser.replay()  # nobody reads what was erased, wherever this store comes from
        self.eraser.finish_unfinished()
        self.quotas = Quotas(parts, tenant)
        self.holds = Holds(holds, tenant, parts.now, parts.new_id)
        self.audit = Audit(parts.audit, tenant, settings.home / "state", parts.clock)
        watch = ClockWatch(now=parts.now()) if clock is None else None
        belongings = Belongings()

        def upkeep_of(tenant: str) -> Upkeep:
            sessions = Sessions(history, short_term, tenant=tenant, now=parts.now, belongings=belongings)
            return Upkeep(
                tenant,
                parts.sweeper(tenant, sessions.erase, partial(retell_entities, parts)),
                leadership,
                dues=self.dues,
                rules=rules,
                history=history,
                short_term=short_term,
                policies=Policies(rules, self.dues, tenant, parts.now, parts.new_id),
                registry=Registry(registered, short_term, tenant=tenant, now=parts.now),
                audit=self.audit,
                now=parts.now,
                watch=watch,
                load=settings.sweep_load,
                finish_erasures=self.eraser.finish_unfinished,
            )

        self.sessions = Sessions(history, short_term, tenant=tenant, now=parts.now, belongings=belongings)
        self.policies = Policies(rules, self.dues, tenant, parts.now, parts.new_id)
        self.registry = Registry(registered, short_term, tenant=tenant, now=parts.now)
        self.agents, self.tools = self.registry.agents, self.registry.tools
        self.upkeep = upkeep_of(tenant)
        self.recycle = Recycle(
            tenant,
            records=records,
            history=history,
            dues=self.dues,
            registry=self.registry,
            registered=registered,
            now=parts.now,
            purge=self.upkeep.empty_bin,
            retell=partial(retell_entities, parts),
        )
        self._sources = Sources(
            tenant,
            records=records,
            provenance=stores.provenance,
            holds=holds,
            now=parts.now,
            retell=partial(retell_entities, parts),
        )
        jobs = runners(self.dues, upkeep_of)
        jobs["minutely"] = self._tending(jobs["minutely"])
        self.schedule = Schedule(
            stores.jobs,
            leadership,
            jobs,
            clock=parts.clock,
            timezone=settings.timezone,
        )
        self.schedule.enrol()

    def _open_state(self) -> None:
        """Keys and the ledger; neither a key nor a folder is made before one is needed."""
        setting, path = self.settings.master_key, self.settings.master_path()
        state = open_objects(self.settings.keeping_url())
        self.keyring = open_keyring(state, setting, path)
        self.ledger = Ledger(state)
        self._state = state

    def _open_cold(self) -> ObjectStore:
        """Cold storage, in which everything is sealed under its user's key."""
        plain = open_objects(self.settings.cold_url())
        return SealedObjects(plain, self.keyring, self._parts.now, lambda alias: self.ledger.find(alias) is not None)

    def _make_eraser(self, stores: Stores, elsewhere: ShortTermStore | None) -> Eraser:
        """``elsewhere`` is short-term memory that is not kept in the store."""

        def forget(subject: str) -> dict[str, int]:
            self.recall.forget_user(subject)
            return {MemoryType.WORKING.value: self._parts.working.clear_user(subject)}

        self.certificates = Certificates(
            self._state,
            SigningKeys(self._state, self.keyring),
            engine="sqlite" if self.settings.url.startswith("sqlite:") else "postgresql",
            short_term_elsewhere=elsewhere is not None,
            software=f"retain {__version__}",
            audited=lambda alias: erasure_on(stores.audit, (self.tenant, *self.dues.tenants()), alias),
            now=self._parts.now,
            new_id=lambda: self._parts.new_id(self._parts.now()),
        )
        return Eraser(
            stores.subjects,
            self.ledger,
            self.keyring,
            self._parts.objects,
            now=self._parts.now,
            forget=forget,
            short_term=elsewhere,
            certify=self.certificates.certify,
        )

    def _erase(self, subject: str) -> Erasure:
        self.certificates.prepare()  # what could not be certified is not begun
        return self.eraser.erase(subject)

    def _tending(self, job: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
        """A job that then makes large scopes ready to be searched."""

        def run() -> dict[str, Any]:
            result = job()
            made = sum(self.recall.tend(tenant, thorough=False) for tenant in self.dues.tenants())
            return {**result, "made_searchable": made} if made else result

        return run

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        home: str | Path | None = None,
        tenant: str = "default",
        clock: Clock | None = None,
    ) -> Retain:
        """Open the store at ``url`` (or the one that ``home``, the environment or ``retain.toml`` name).

        ``clock`` is a callable without arguments that returns an aware datetime; the system's clock by default.
        """
        return cls(read_settings(os.environ, url=url, home=home), tenant=tenant, clock=clock)

    def manager(
        self,
        user_id: str,
        agent_id: str,
        session_id: str | None = None,
        auto_prune: bool = False,  # noqa: FBT001
    ) -> MemoryManager:
        """The memory of a user as an agent sees it, in a session."""
        return MemoryManager(user_id, agent_id, session_id, auto_prune, engine=self)

    @property
    def parts(self) -> Parts:
        """What memories are made of."""
        return self._parts

    @property
    def latencies(self) -> Latencies:
        """How long operations took in this process."""
        return self._parts.latencies

    def reembed(self, progress: Callable[[int], None] = lambda _count: None) -> int:
        """Give every memory of the tenant vectors of the embedder in use; how many lacked them.

        Recall does this by itself, a little with each query; this does all of it now. Memories whose vectors are of
        another model are found by their words meanwhile, never by comparing vectors of two models.
        """
        return self.recall.reembed(self.tenant, progress, kinds=DURABLE)

    def sweep(
        self,
        *,
        dry_run: bool = False,
        at: datetime | float | str | None = None,
        digest: str | None = None,
        confirm: bool = False,
        progress: Callable[[int], None] = lambda _count: None,
    ) -> Plan | Report:
        """Archive, recycle and delete what is due; with ``dry_run``, say what that would be, now or ``at`` a moment.

        ``digest`` (of a plan) carries out that plan, or refuses if its records have changed since. ``confirm`` lets go
        who was set aside because they would lose much at once, and trusts a clock that leaped.
        """
        if dry_run:
            return self.upkeep.plan(at, confirm=confirm)
        return self.upkeep.sweep(at=at, digest=digest, confirm=confirm, progress=progress)

    def explain(self, memory_id: str, *, user_id: str | None = None) -> dict[str, Any]:
        """Which rules a memory lives under, what happens to it next and when, and what protects it; of one that is
        gone (with ``user_id``): when, why and under which rule it went.
        """
        subject = None if user_id is None else f"{self.tenant}/{check_id(user_id, 'user_id')}"
        return explain(self._parts, self.tenant, memory_id, subject)

    def export_user(
        self, user_id: str, to: Target | None = None, *, progress: Callable[[int], None] = lambda _count: None
    ) -> dict[str, Any]:
        """Everything that is held on a user, in whatever state and place: ``user_id``, ``export_date``, ``memories`` by
        kind, and beside them conversations, facts, rules, holds and what the audit chain says.

        With ``to`` (a path, or a binary stream) it is written there as a ZIP, in bounded memory, and the answer has
        counts where it would have lists. A path gets the whole file, or none. ``progress`` hears how much more was
        read.
        """
        return self._parts.exports.export(self.tenant, user_id, to, progress=progress)

    def gdpr_export_user_data(self, user_id: str) -> dict[str, Any]:
        """The same as ``export_user(user_id)``."""
        return self.export_user(user_id)

    def forget_source(self, source: str, user_id: str | None = None, *, dry_run: bool = False) -> dict[str, Any]:
        """Send all that came from a source, of a user or of everyone, and all that was derived from it, to the recycle
        bin for 15 days; how much that was. With ``dry_run``, how much it would be.

        ``memories`` counts what the source wrote, ``derived`` what others made of it, ``held`` what holds keep. All of
        it comes back with ``recycle.restore(bundle=...)``. ``HeldError`` if holds keep all there is.
        """
        return self._sources.forget(source, user_id, dry_run=dry_run)

    def erase_user(self, user_id: str) -> Erasure:
        """Erase a user for good: everything, in every place, past the recycle bin. What was found and removed where.

        It is in the ledger before anything goes, so that no copy of the store brings it back. ``HeldError``, audited,
        while a hold stands on anything of theirs. Where something is away just now, the answer says that it is
        pending, and the next sweep goes on with it; nobody can find or read anything of it from the beginning.
        """
        return self._erase(Scope.checked(self.tenant, user_id, "anyone").subject)

    def gdpr_delete_user_data(self, user_id: str) -> dict[str, int]:
        """Erase a user for good, as ``erase_user`` does; how many memories of each kind there were."""
        return dict(self.erase_user(user_id).kinds)

    def metrics(self) -> bytes:
        """All metrics in Prometheus' format."""
        return exposition(self.collector)

    @cached_property
    def collector(self) -> Collector:
        """What a Prometheus registry collects metrics from."""
        return Collector(self.dues, self.upkeep, self.schedule, self.latencies.summary, self._parts.now)

    def close(self) -> None:
        """Close the store. What is called afterwards raises ``ClosedError``."""
        self.database.close()
        self._parts.working.forget()
        self.recall.forget()

    def __enter__(self) -> Retain:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()


class MemoryManager(Memory):
    """The memory of one user as one agent sees it; without an ``engine``, in the store that the settings name."""

    def __init__(
        self,
        user_id: str,
        agent_id: str,
        session_id: str | None = None,
        auto_prune: bool = False,  # noqa: FBT001 - the name and place people know
        *,
        engine: Retain | None = None,
    ) -> None:
        engine = engine or default_engine()
        scope = Scope.checked(engine.tenant, user_id, agent_id, session_id, everyone=True)
        super().__init__(engine.parts, scope, auto_prune=auto_prune)


class Quotas:
    """``retain.quotas``: how much of a kind a user may hold."""

    def __init__(self, parts: Parts, tenant: str) -> None:
        self._parts = parts
        self._tenant = tenant

    def set(
        self,
        kind: MemoryType | str,
        max_memories: float | None = None,
        max_bytes: float | None = None,
        user_id: str | None = None,
    ) -> None:
        """Set limits for a user, or for everyone who has none of their own. ``None`` leaves one as it is;
        ``math.inf`` takes it away. A lower limit removes nothing: it stops further writes.
        """
        row = kind_of(kind)
        if not row.durable:
            raise InvalidInputError(f"the size of {row.name} memory is fixed (max: {row.max_memories:,})")
        given = {"max_memories": max_memories, "max_bytes": max_bytes}
        limits = {name: _limit(name, value) for name, value in given.items() if value is not None}
        if not limits:
            raise InvalidInputError("give max_memories, max_bytes, or both")
        user = None if user_id is None else check_id(user_id, "user_id")
        self._parts.records.set_quota(self._tenant, user, row, limits)

    def get(self, kind: MemoryType | str, user_id: str) -> Usage:
        """What a user holds of a kind, and how much they may."""
        row = kind_of(kind)
        if not row.durable:
            raise InvalidInputError(
                f"{row.name} memory is counted where it is used: count_memories({row.name.value!r})"
            )
        return self._parts.records.usage(f"{self._tenant}/{check_id(user_id, 'user_id')}", row)


def _limit(name: str, value: float) -> int | None:
    if value == math.inf:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise InvalidInputError(
            f"{name} must be a whole number of at least 0, or math.inf for no limit, not {told(value)}"
        )
    return value


_defaults: dict[Settings, Retain] = {}
_defaults_lock = threading.Lock()


def _after_fork() -> None:
    """A forked process opens an engine of its own: its parent's, and the lock as it was, are of no use to it."""
    global _defaults_lock  # noqa: PLW0603
    _defaults.clear()
    _defaults_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def default_engine() -> Retain:
    """The engine of this process that the settings name, opened when it is first needed."""
    settings = read_settings(os.environ)
    with _defaults_lock:
        engine = _defaults.get(settings)
        if engine is None or not engine.database.usable:
            engine = _defaults[settings] = Retain(settings)
            atexit.register(engine.close)
        return engine
