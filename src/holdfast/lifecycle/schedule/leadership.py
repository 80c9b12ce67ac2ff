"""Leadership: one process at a time sweeps, under a lease that is kept up while it does."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from holdfast.core.errors import HoldfastError
from holdfast.core.values import SECOND

if TYPE_CHECKING:
    from holdfast.ports.coordination import Lease, LeaseStore

_log = logging.getLogger("holdfast.leadership")
#: The lease of whoever sweeps and runs jobs.
SWEEPER: Final = "sweeper"
#: How long the lease outlives a process that can no longer renew it.
LEASE_TTL: Final = 15 * SECOND


@dataclass(eq=False, repr=False)
class Leadership:
    """The lease, as one engine has it. ``wall`` is the machine's real time in microseconds."""

    leases: LeaseStore
    wall: Callable[[], int]
    holder: str
    ttl: int = LEASE_TTL
    name: str = SWEEPER
    doing: str = "sweeping"
    lease: Lease | None = field(default=None, init=False)
    """For batches to check; ``None`` while nothing sweeps here."""
    _turn: threading.Lock = field(default_factory=threading.Lock, init=False)
    _leader: int | None = field(default=None, init=False)

    @contextmanager
    def held(self) -> Iterator[Lease | None]:
        """The lease, kept up while the block runs and given back after it; ``None`` if someone else has it.

        A block within a block of the same thread goes on under the lease that is there.
        """
        if self._leader == threading.get_ident():
            yield self.lease
            return
        if not self._turn.acquire(blocking=False):
            yield None
            return
        try:
            lease = self.leases.acquire(self.name, self.holder, now=self.wall(), ttl=self.ttl)
            if lease is None:
                yield None
                return
            done = threading.Event()
            heart = threading.Thread(target=self._keep, args=(lease, done), name="holdfast-lease", daemon=True)
            heart.start()
            self.lease, self._leader = lease, threading.get_ident()
            try:
                yield lease
            finally:
                self.lease = self._leader = None
                done.set()
                heart.join()
                self.leases.release(lease)
        finally:
            self._turn.release()

    def other(self) -> str:
        """Who has it, in words."""
        held = self.leases.current(self.name, now=self.wall())
        if held is None:
            return f"someone else was {self.doing} just now"
        mine = " (another thread of this process)" if held.holder == self.holder else ""
        return f"{held.holder}{mine} is {self.doing}"

    def is_held(self) -> bool:
        """Whether this engine has the lease and nobody has taken it over meanwhile: a process may have stood still."""
        lease, current = self.lease, self.leases.current(self.name, now=self.wall())
        return lease is not None and current is not None and current[:3] == lease[:3]  # all but when it expires

    def is_taken(self) -> bool:
        """Whether anyone has it."""
        return self.leases.current(self.name, now=self.wall()) is not None

    def _keep(self, lease: Lease, done: threading.Event) -> None:
        while not done.wait(self.ttl / SECOND / 3):
            try:
                if not self.leases.renew(lease, now=self.wall(), ttl=self.ttl):
                    return  # the next batch finds it out
            except HoldfastError as problem:
                _log.warning("the lease of %s could not be renewed: %s", lease.holder, problem)


#: Half of what a process may give up: it still gets its share where nobody else wants it.
_NICER: Final = 10


def lower_priority() -> None:
    """Let other processes go first from now on. For processes whose only work is maintenance: a sweep, a backup, the
    schedule. Recall beside them is then about as quick as alone.
    """
    if hasattr(os, "nice"):
        with suppress(OSError):
            os.nice(_NICER)
