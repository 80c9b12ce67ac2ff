"""Scheduled jobs and leases in a relational engine: the ``JobStore`` and the ``LeaseStore``."""

from __future__ import annotations

import os
import secrets
import socket
from typing import Any, Final

from holdfast.core.content import parse_json_object, to_json
from holdfast.core.errors import LeaseLostError
from holdfast.core.times import SECOND
from holdfast.ports.work import JobRow, Lease
from holdfast.storage.relational.database import Database, Names, Transaction

SQL: Final = Names("coordination")
#: A lease that goes on for longer than any clock may be wrong by was written before this clock was set back.
_MOST_SKEW: Final = 3_600 * SECOND
_AGAIN: Final = "cut short before it was finished; runs again"


class SqlJobs:
    """The ``JobStore`` of the relational engines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def enrol(self, name: str, *, now: int) -> None:
        with self._database.write() as tx:
            tx.run(SQL["enrol"], (name, now))

    def rows(self) -> list[JobRow]:
        with self._database.read() as tx:
            return [_job(row) for row in tx.rows(SQL["jobs"])]

    def configure(self, name: str, *, cron: str | None, timezone: str | None, enabled: bool | None, now: int) -> None:
        with self._database.write() as tx:
            tx.run(SQL["enrol"], (name, now))
            row = tx.one(SQL["job"], (name,))
            assert row is not None  # noqa: S101 - it was enrolled in this transaction
            old = _job(row)
            new = old._replace(
                cron=old.cron if cron is None else cron or None,
                timezone=old.timezone if timezone is None else timezone or None,
                enabled=old.enabled if enabled is None else enabled,
            )
            anew = new.enabled and (not old.enabled or (new.cron, new.timezone) != (old.cron, old.timezone))
            tx.run(SQL["configure"], (name, new.cron, new.timezone, int(new.enabled), anew, now))

    def claim(self, name: str, slot: int, *, now: int, lease: Lease | None = None) -> bool:
        return self._change("claim", lease, (name, now, slot))

    def reclaim(self, name: str, slot: int, *, now: int, lease: Lease) -> bool:
        return self._change("reclaim", lease, (now, _AGAIN, name, slot))

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
        return self._change("finish", lease, (now, text, error, name, slot))

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
        return self._change("note", lease, (name, started, finished, text, error))

    def take_back(self, *, now: int, beyond: int, name: str | None = None) -> list[str]:
        with self._database.write() as tx:
            return sorted(row[0] for row in tx.rows(SQL["take_back"], (now, beyond, name)))

    def _change(self, statement: str, lease: Lease | None, bindings: tuple[Any, ...]) -> bool:
        """Whether the statement found the row as it must be, in the hands of the lease's holder."""
        with self._database.write() as tx:
            check_lease(tx, lease)
            return tx.one(SQL[statement], bindings) is not None


class SqlLeases:
    """The ``LeaseStore`` of the relational engines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def acquire(self, name: str, holder: str, *, now: int, ttl: int) -> Lease | None:
        if self._database.is_shared:
            return None  # nobody else would see it, and what is done under it relies on what is committed
        with self._database.alone("leases") as tx:
            row = tx.one(SQL["lease"], (name,))
            held = None if row is None else Lease(*row)
            if held is not None and held.holder == holder:
                row = tx.one(SQL["extend"], (now + ttl, *held[:3]))
            elif held is None or _is_over(held, now):
                row = tx.one(SQL["take"], (name, holder, now + ttl))
            else:
                return None
            return None if row is None else Lease(*row)

    def renew(self, lease: Lease, *, now: int, ttl: int) -> bool:
        with self._database.write() as tx:
            return tx.one(SQL["extend"], (now + ttl, *lease[:3])) is not None

    def release(self, lease: Lease) -> None:
        with self._database.write() as tx:
            tx.run(SQL["release"], lease[:3])

    def current(self, name: str, *, now: int) -> Lease | None:
        with self._database.read() as tx:
            row = tx.one(SQL["lease"], (name,))
        held = None if row is None else Lease(*row)
        return held if held is not None and not _is_over(held, now) else None


def check_lease(tx: Transaction, lease: Lease | None) -> None:
    """Raise ``LeaseLostError`` if the lease has changed hands; for use inside the transaction that relies on it."""
    if lease is None:
        return
    row = tx.one(SQL["lease_checked"], (lease.name,))
    held = None if row is None else Lease(*row)
    if held is None or (held.holder, held.epoch) != (lease.holder, lease.epoch):
        by = f"taken over by {held.holder}" if held is not None and held.holder else "released"
        raise LeaseLostError(f"the lease {lease.name!r} of {lease.holder} was {by}; this batch was not applied")


def new_holder() -> str:
    """A name for this process and this use of it: host, process id, and something random."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


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
    if host != socket.gethostname() or not pid.isdecimal() or os.name == "nt":  # where signal 0 is no mere question
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # someone else's process, or no number of a process
        return False
    return False


def _job(row: tuple[Any, ...]) -> JobRow:
    job = JobRow(*row)
    return job._replace(enabled=bool(job.enabled), result=None if row[8] is None else parse_json_object(row[8]))
