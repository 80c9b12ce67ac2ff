"""The engine: what people call of an open store, for one tenant of it."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.core.audit import acting_as, check_author
from holdfast.core.errors import InvalidInputError, quote
from holdfast.core.records import DURABLE, Scope, Subject
from holdfast.core.values import Clock, check_count, check_id, check_tenant, iso
from holdfast.manager import Memory
from holdfast.memory.services import Latencies
from holdfast.privacy.erasure import ignore
from holdfast.settings import Settings, read_settings
from holdfast.store import Store, TenantServices

if TYPE_CHECKING:  # what a process does not ask for is not loaded
    from holdfast.access.keys import Access
    from holdfast.access.replies import Replies
    from holdfast.access.sign_ins import SignIns
    from holdfast.backups.lost_keys import Abandoned
    from holdfast.lifecycle.metrics import Collector, Sample
    from holdfast.lifecycle.registry import Roster
    from holdfast.lifecycle.sweeping.plan import Plan, Report
    from holdfast.ports.feed import Embedder
    from holdfast.privacy.certificates import Certificates
    from holdfast.privacy.erasure import Erasure
    from holdfast.privacy.export.export import Target
    from holdfast.privacy.store_state import Purpose
    from holdfast.results.figures import ForecastResult, OverviewResult, UserResult
    from holdfast.results.lifecycle import (
        ErasurePreviewResult,
        ExplainResult,
        ExportResult,
        ForgetResult,
        LifeStoryResult,
    )

logging.getLogger("holdfast").addHandler(logging.NullHandler())  # heard by those who set up logging, by nobody else
_MAX_USERS: Final = 100_000
#: Tenants of an open store whose engines are kept ready.
_MOST_TENANTS: Final = 1_000


class Holdfast(TenantServices):
    """An open engine. Use it in a ``with`` block, or ``close()`` it; safe for many threads, starts none
    but one that keeps a sweep's lease while it sweeps."""

    def __init__(
        self,
        settings: Settings,
        *,
        tenant: str = "default",
        clock: Clock | None = None,
        purpose: Purpose = "use",
        author: str | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        if not isinstance(settings, Settings):
            raise InvalidInputError(f"Holdfast is opened with Holdfast.open({quote(settings)}), not with Holdfast(...)")
        check_tenant(tenant)
        if clock is not None and not callable(clock):
            raise InvalidInputError(f"clock must be a callable that returns an aware datetime, not {quote(clock)}")
        self._bind(Store(settings, clock, tenant, purpose, check_author(author), embedder=embedder), tenant)

    def _bind(self, base: Store, tenant: str) -> None:
        """Take what is shared from the open store, and make what is the tenant's own."""
        super().__init__(base, tenant)
        self._others: dict[str, Holdfast] = {tenant: self}
        self.settings, self.database, self.embedder = base.settings, base.database, base.embedder
        self.recall, self.trust = base.services.recall, base.services.trust
        self.keyring, self.ledger, self.eraser = base.keyring, base.ledger, base.eraser
        self.schedule, self.telemetry = base.schedule, base.telemetry

    @property
    def certificates(self) -> Certificates:
        """Certificates of erasures."""
        return self._base.certificates

    @property
    def access(self) -> Access:
        """API keys."""
        return self._base.access

    @property
    def sign_ins(self) -> SignIns:
        """Whose browsers are signed in."""
        return self._base.sign_ins

    @property
    def replies(self) -> Replies:
        """What requests with an idempotency key were told."""
        return self._base.replies

    @cached_property
    def agents(self) -> Roster:
        """The tenant's agents."""
        return self.registry.agents

    @cached_property
    def tools(self) -> Roster:
        """The tenant's tools."""
        return self.registry.tools

    def of_tenant(self, tenant: str) -> Holdfast:
        """The same open store for another tenant: one database, one set of indexes and keys. Closing either closes
        both.
        """
        if tenant == self.tenant:
            return self
        others = self._others
        if (other := others.get(check_tenant(tenant))) is None:
            other = object.__new__(Holdfast)
            other._bind(self._base, tenant)
            if len(others) >= _MOST_TENANTS:
                others.clear()
            other._others, others[tenant] = others, other
        return other

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        home: str | Path | None = None,
        tenant: str = "default",
        clock: Clock | None = None,
        new_store: bool = False,
        author: str | None = None,
        embedder: Embedder | None = None,
    ) -> Holdfast:
        """Open the store at ``url`` (or the one that ``home``, the environment or ``holdfast.toml`` name).

        ``clock`` is a callable without arguments that returns an aware datetime; the system's clock by default.
        ``StoreLostError`` where a store held memories before and there is nothing now, unless ``new_store`` says to
        begin with an empty one. Audit entries name ``author`` as who did what; ``python`` by default. ``embedder``
        stands in for the one that the settings name.
        """
        settings = read_settings(os.environ, url=url, home=home)
        purpose: Purpose = "new" if new_store else "use"
        return cls(settings, tenant=tenant, clock=clock, purpose=purpose, author=author, embedder=embedder)

    def manager(
        self, user_id: str, agent_id: str, session_id: str | None = None, *, auto_prune: bool = False
    ) -> MemoryManager:
        """The memory of a user as an agent sees it, in a session."""
        return MemoryManager(user_id, agent_id, auto_prune, session_id=session_id, engine=self)

    @staticmethod
    def acting_as(author: str) -> AbstractContextManager[None]:
        """Within the block, and in the threads and tasks that it starts, audit entries name ``author``: a role or a
        program, never a user's id.
        """
        return acting_as(check_author(author))

    @property
    def latencies(self) -> Latencies:
        """How long operations took in this process."""
        return self.services.latencies

    def reembed(self, progress: Callable[[int], None] = lambda _count: None) -> int:
        """Give every memory of the tenant vectors of the embedder in use; how many lacked them.

        Recall does this by itself, a little with each query; this does all of it now. Memories whose vectors are of
        another model are found by their words meanwhile, never by comparing vectors of two models.
        """
        return self.recall.reembed(self.tenant, progress, kinds=DURABLE)

    def summarize_conversations(self) -> int:
        """Have the summarizer that the settings name summarize conversations that nobody has said anything in for an
        hour, as the daily job does; how many. Extractive summaries are made while messages come.
        """
        return self._base.summarize_conversations(self.tenant)

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
        who was set aside because they would lose much at once, and trusts a clock that leaped, that is behind what the
        store has seen, or far ahead of it: the time as it is now holds from then on, for sweeps and jobs alike. Without
        it, what cannot be undone waits while the clock is far ahead; ``waiting`` of the answer says what.
        """
        if dry_run and digest is not None:
            raise InvalidInputError(
                f"digest {quote(digest)} carries a plan out; leave dry_run out, or make a new plan without a digest"
            )
        if dry_run:
            return self.maintenance.plan(at, confirm=confirm, progress=progress)
        return self.maintenance.sweep(at=at, digest=digest, confirm=confirm, progress=progress)

    def forecast(
        self, days: int = 120, *, confirm: bool = False, progress: Callable[[int], None] = lambda _count: None
    ) -> ForecastResult:
        """What the rules will do, day by day: for now and each of the days to come, the figures that the plan for that
        moment has (``sweep(dry_run=True, at=…)``), and what is new on the day. Changes nothing. ``confirm`` counts in
        who would be set aside. ``progress`` hears how many records more were counted.
        """
        from holdfast.lifecycle.sweeping.forecast import MOST_DAYS

        check_count(days, "days", most=MOST_DAYS)
        found = self.maintenance.forecast(days, confirm=confirm, progress=progress)
        before = [None, *found[:-1]]
        return {"days": [one.to_dict(last) for one, last in zip(found, before, strict=True)]}

    def explain(self, memory_id: str, *, user_id: str | None = None) -> ExplainResult:
        """Which rules a memory lives under, what happens to it next and when, and what protects it; of one that is
        gone (with ``user_id``): when, why and under which rule it went.
        """
        from holdfast.memory.explain import explain

        subject = None if user_id is None else Subject.check(self.tenant, user_id)
        return explain(self.services, self.tenant, memory_id, subject)

    def life(self, user_id: str, memory_id: str) -> LifeStoryResult:
        """All that is known of a memory, whichever agent it is with and whatever state it is in: what it says and said,
        where it comes from and what was made of it, what happened to it (who, when, why, by which rule), what is to
        come, and what protects it; of one that is gone, what the audit chain says.
        """
        from holdfast.memory.explain import describe_life

        return describe_life(self.services, Subject.check(self.tenant, user_id), memory_id)

    def overview(self) -> OverviewResult:
        """The tenant at a glance, from counters and indexes: what is kept by kind and state, what is overdue, what the
        next sweep finds due, the recycle bin, holds, the last backup and its trial, how long erasures took, and what
        happened on each of the last 30 days.
        """
        from holdfast.lifecycle.figures.overview import Overview

        tenant, objective = self.services.tenant(self.tenant), self.settings.erasure_hours
        return Overview(tenant, self.schedule, self.backups.last, objective).read()

    def export_user(
        self, user_id: str, to: Target | None = None, *, progress: Callable[[int], None] = lambda _count: None
    ) -> ExportResult:
        """Everything that is held on a user, in whatever state and place: ``user_id``, ``export_date``, ``memories`` by
        kind, and beside them conversations, facts, rules, holds and what the audit chain says.

        With ``to`` (a path, or a binary stream) it is written there as a ZIP, in bounded memory, and the answer has
        counts where it would have lists. A path gets the whole file, or none. ``progress`` hears how much more was
        read.
        """
        return self.services.exports.export(self.tenant, user_id, to, progress=progress)

    def gdpr_export_user_data(self, user_id: str) -> ExportResult:
        """The same as ``export_user(user_id)``."""
        return self.export_user(user_id)

    def forget_source(self, source: str, user_id: str | None = None, *, dry_run: bool = False) -> ForgetResult:
        """Send all that came from a source, of a user or of everyone, and all that was derived from it, to the recycle
        bin for 15 days; how much that was. With ``dry_run``, how much it would be.

        ``memories`` counts what the source wrote, ``derived`` what others made of it, ``held`` what holds keep. All of
        it comes back with ``recycle.restore(bundle=...)``. ``HeldError`` if holds keep all there is.
        """
        return self._sources.forget(source, user_id, dry_run=dry_run)

    def users(self, *, after: str | None = None, limit: int = 100) -> list[UserResult]:
        """The users of the tenant of whom memories or conversations are kept, in whatever state, by their ids.

        Each has ``user_id``, ``memories`` (live ones), ``kinds`` (the same, kind by kind), ``sessions`` and
        ``last_active_at``. The next page begins after the last ``user_id``; a page with fewer than ``limit`` is the
        last one. Notes in working memory are not kept and do not count.
        """
        start = "" if after is None else check_id(after, "after")
        check_count(limit, "limit", most=_MAX_USERS)
        return [
            {
                "user_id": user.user_id,
                "memories": sum(user.memories.values()),
                "kinds": {kind.value: count for kind, count in user.memories.items()},
                "sessions": user.sessions,
                "last_active_at": iso(user.last_active_at),
            }
            for user in self.services.reader.users(self.tenant, after=start, limit=limit)
        ]

    def erase_user(self, user_id: str, *, progress: Callable[[int, str], None] = ignore) -> Erasure:
        """Erase a user for good: everything, in every place, past the recycle bin. What was found and removed where.

        It is in the ledger before anything goes, so that no copy of the store brings it back. ``HeldError``, audited,
        while a hold stands on anything of theirs. Where something is away just now, the answer says that it is
        pending, and the next sweep goes on with it; nobody can find or read anything of it from the beginning.
        ``progress`` hears of each step when it is reached, and how much was removed in it.
        """
        self._base.tenants.add(self.tenant)
        return self._base.erase(Scope.check(self.tenant, user_id, "anyone").subject, progress)

    def preview_erasure(self, user_id: str, *, progress: Callable[[int, str], None] = ignore) -> ErasurePreviewResult:
        """What erasing a user would remove from where, and the holds that would refuse it. Nothing is changed.
        ``progress`` hears of each step, and how much was found in it.
        """
        return self.eraser.preview(Subject.check(self.tenant, user_id), progress)

    def abandon_keys(self, *, confirm: bool = False) -> Abandoned:
        """After the master key was lost for good: set the keys aside that the present one does not open, so that others
        are made in their place. Backups and cold memories that were sealed under them cannot be read again.

        ``ConfirmationNeededError``, with how much that is, unless confirmed. They are kept under other names, and
        destroyed with a user who is erased; it is on the audit chain.
        """
        self._base.tenants.add(self.tenant)
        return self._base.abandon_keys(self.tenant, confirm=confirm)

    def gdpr_delete_user_data(self, user_id: str) -> dict[str, int]:
        """Erase a user for good, as ``erase_user`` does; how many memories of each kind there were."""
        return dict(self.erase_user(user_id).kinds)

    def metrics(self) -> bytes:
        """All metrics in Prometheus' format."""
        from holdfast.lifecycle.metrics import exposition

        return exposition(self.collector.collect)

    @cached_property
    def collector(self) -> Collector:
        """What a Prometheus registry collects metrics from."""
        from holdfast.lifecycle.metrics import Collector

        tenant, hours = self.services.tenant(self.tenant), self.settings.erasure_hours
        return Collector(tenant, self.trust, self.schedule, self.latencies.summary, self._measure, hours)

    def _measure(self) -> Iterator[Sample]:
        from holdfast.lifecycle.metrics import measure_process

        return measure_process(self.recall.measure(), self.database.count_connections(), self.replies.counts)

    def close(self) -> None:
        """Close the store. What is called afterwards raises ``ClosedError``."""
        self._base.close()

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(self, *_problem: object) -> None:
        self.close()


class MemoryManager(Memory):
    """The memory of one user as one agent sees it; without an ``engine``, in the store that the settings name."""

    def __init__(
        self,
        user_id: str,
        agent_id: str,
        auto_prune: bool = False,  # noqa: FBT001 - the name and place people know
        *,
        session_id: str | None = None,
        engine: Holdfast | None = None,
    ) -> None:
        """``auto_prune``: whether ``add`` makes room at the quota by recycling the oldest tenth of the kind."""
        if not isinstance(auto_prune, bool):
            raise TypeError(
                f"auto_prune must be True or False, not {quote(auto_prune)}; a session is named with session_id="
            )
        engine = engine or default_engine()
        scope = Scope.check(engine.tenant, user_id, agent_id, session_id, everyone=True)
        super().__init__(engine.services, scope, auto_prune=auto_prune)


_defaults: dict[Settings, Holdfast] = {}
_defaults_lock = threading.Lock()


def _after_fork() -> None:
    """A forked process opens an engine of its own: its parent's, and the lock as it was, are of no use to it."""
    global _defaults_lock  # noqa: PLW0603
    _defaults.clear()
    _defaults_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def default_engine() -> Holdfast:
    """The engine of this process that the settings name, opened when it is first needed."""
    settings = read_settings(os.environ)
    with _defaults_lock:
        engine = _defaults.get(settings)
        if engine is None or not engine.database.usable:
            engine = _defaults[settings] = Holdfast(settings)
            atexit.register(engine.close)
        return engine
