"""What processes that share a store agree on: which store it is, the time, jobs and leases.

The ``IdentityStore``, ``ClockStore``, ``JobStore`` and ``LeaseStore`` of a relational engine.
"""

from __future__ import annotations

import os
import platform
import secrets
from typing import Any, Final

from holdfast.core.audit import Event
from holdfast.core.clock import Seen, sight
from holdfast.core.errors import LeaseLostError
from holdfast.core.records import Subject
from holdfast.core.values import SECOND, to_json
from holdfast.ports.coordination import Identity, JobRow, JobRun, Lease
from holdfast.storage.relational.audit import append
from holdfast.storage.relational.database import SqlStore, Transaction

_ALONE: Final = "identity"
#: A lease that goes on for longer than any clock may be wrong by was written before this clock was set back.
_MOST_SKEW: Final = 3_600 * SECOND
#: So many runs of each job are kept.
_MOST_RUNS: Final = 100
_AGAIN: Final = "cut short before it was finished; runs again"


class SqlIdentity(SqlStore):
    """The ``IdentityStore`` of the relational engines."""

    def read(self) -> Identity | None:
        return self._find(Identity, "coordination.identity")

    def make(self, store: str) -> Identity:
        known = self.read()
        if known is not None:
            return known
        with self._database.alone(_ALONE) as tx:
            tx.run("coordination.make", (store,))
            return tx.find(Identity, "coordination.identity") or Identity(store, None)

    def bind(self, keyring: str, *, replace: bool = False) -> str:
        with self._database.alone(_ALONE) as tx:
            known = tx.find(Identity, "coordination.identity")
            if known is not None and known.keyring is not None and not replace:
                return known.keyring
            tx.run("coordination.bind", (keyring,))
        return keyring

    def has_data(self) -> bool:
        return self._database.ask(int, "coordination.has_data") == [1]


class SqlClock(SqlStore):
    """The ``ClockStore`` of the relational engines: one row."""

    def seen(self) -> Seen | None:
        return self._find(Seen, "coordination.seen")

    def sight(self, now: int, tolerance: int, *, trusted: bool = False, doubted: bool = False) -> Seen:
        with self._database.alone("seen") as tx:
            before = tx.find(Seen, "coordination.seen")
            after = sight(before, now, tolerance, trusted=trusted, doubted=doubted)
            if after != before:
                tx.run("coordination.see", after)
        return after

    def accept(self, now: int, tenant: str, event: Event) -> None:
        with self._database.alone("seen") as tx:
            tx.run("coordination.see", Seen(now))
            append(tx, tx.number_for(Subject(tenant)), [event])


class SqlJobs(SqlStore):
    """The ``JobStore`` of the relational engines."""

    def enrol(self, name: str, *, now: int) -> None:
        self._change("coordination.enrol", name, now)

    def rows(self) -> list[JobRow]:
        return self._database.ask(JobRow, "coordination.jobs")

    def configure(self, name: str, *, cron: str | None, timezone: str | None, enabled: bool | None, now: int) -> None:
        with self._database.write() as tx:
            tx.run("coordination.enrol", (name, now))
            (old,) = tx.all(JobRow, "coordination.job", (name,))
            new = old._replace(
                cron=old.cron if cron is None else cron or None,
                timezone=old.timezone if timezone is None else timezone or None,
                enabled=old.enabled if enabled is None else enabled,
            )
            anew = new.enabled and (not old.enabled or (new.cron, new.timezone) != (old.cron, old.timezone))
            tx.run("coordination.configure", (name, new.cron, new.timezone, int(new.enabled), anew, now))

    def claim(self, name: str, slot: int, *, now: int, lease: Lease | None = None) -> bool:
        return self._run("claim", lease, (name, now, slot))

    def reclaim(self, name: str, slot: int, *, now: int, lease: Lease) -> bool:
        return self._run("reclaim", lease, (now, _AGAIN, name, slot))

    def finish(
        self,
        name: str,
        slot: int,
        *,
        now: int,
        result: dict[str, Any] | None,
        error: str | None,
        lease: Lease | None = None,
    ) -> bool:
        text = None if result is None else to_json(result)
        return self._run("finish", lease, (now, text, error, name, slot))

    def note(
        self,
        name: str,
        *,
        started: int,
        finished: int,
        result: dict[str, Any] | None,
        error: str | None,
        lease: Lease | None = None,
    ) -> bool:
        text = None if result is None else to_json(result)
        return self._run("note", lease, (name, started, finished, text, error))

    def keep_run(self, run: JobRun) -> None:
        with self._database.write() as tx:
            result = None if run.result is None else to_json(run.result)
            tx.run("coordination.keep_run", run._replace(result=result))  # type: ignore[arg-type]
            tx.run("coordination.forget_runs", (run.name, _MOST_RUNS))

    def runs(self, name: str | None) -> list[JobRun]:
        return self._database.ask(JobRun, "coordination.runs", (name,))

    def take_back(self, *, now: int, beyond: int, name: str | None = None) -> list[str]:
        with self._database.write() as tx:
            return sorted(tx.all(str, "coordination.take_back", (now, beyond, name)))

    def _run(self, statement: str, lease: Lease | None, bindings: tuple[Any, ...]) -> bool:
        """Whether the statement found the row as it must be, in the hands of the lease's holder."""
        with self._database.write() as tx:
            check_lease(tx, lease)
            return tx.find(int, f"coordination.{statement}", bindings) is not None


class SqlLeases(SqlStore):
    """The ``LeaseStore`` of the relational engines."""

    def acquire(self, name: str, holder: str, *, now: int, ttl: int) -> Lease | None:
        if self._database.is_shared:
            return None  # nobody else would see it, and what is done under it relies on what is committed
        with self._database.alone("leases") as tx:
            held = tx.find(Lease, "coordination.lease", (name,))
            if held is not None and held.holder == holder:
                return tx.find(Lease, "coordination.extend", (now + ttl, *held[:3]))
            if held is None or _is_over(held, now):
                return tx.find(Lease, "coordination.take", (name, holder, now + ttl))
            return None

    def renew(self, lease: Lease, *, now: int, ttl: int) -> bool:
        with self._database.write() as tx:
            return tx.find(Lease, "coordination.extend", (now + ttl, *lease[:3])) is not None

    def release(self, lease: Lease) -> None:
        self._change("coordination.release", *lease[:3])

    def current(self, name: str, *, now: int) -> Lease | None:
        held = self._database.ask(Lease, "coordination.lease", (name,))
        return next((lease for lease in held if not _is_over(lease, now)), None)


def check_lease(tx: Transaction, lease: Lease | None) -> None:
    """Raise ``LeaseLostError`` if the lease has changed hands; for use inside the transaction that relies on it."""
    if lease is None:
        return
    held = tx.find(Lease, "coordination.lease_checked", (lease.name,))
    if held is None or (held.holder, held.epoch) != (lease.holder, lease.epoch):
        by = f"taken over by {held.holder}" if held is not None and held.holder else "released"
        raise LeaseLostError(f"the lease {lease.name!r} of {lease.holder} was {by}; this batch was not applied")


def new_holder() -> str:
    """A name for this process and this use of it: host, process id, and something random."""
    return f"{platform.node()}:{os.getpid()}:{secrets.token_hex(4)}"


def _is_over(lease: Lease, now: int) -> bool:
    """Whether anyone may take it: it expired, or its holder is known to be dead.

    Should this be wrong (clocks that disagree, a process of the same number elsewhere), then nothing is done twice:
    the next batch of the old holder finds the epoch changed.
    """
    return not now < lease.expires_at <= now + _MOST_SKEW or _is_dead(lease.holder)


def _is_dead(holder: str) -> bool:
    """Whether the holder was a process of this host that is no more; in doubt, it lives."""
    host, _, rest = holder.partition(":")
    pid = rest.partition(":")[0]
    if host != platform.node() or not pid.isdecimal() or os.name == "nt":  # where signal 0 is no mere question
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # someone else's process, or no number of a process
        return False
    return False
