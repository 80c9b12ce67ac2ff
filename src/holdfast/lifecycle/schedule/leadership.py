"""Leadership: one process at a time sweeps, under a lease that is kept up while it does."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from holdfast.core.errors import HoldfastError
from holdfast.core.values import SECOND
from holdfast.ports.coordination import Lease, LeaseStore

_log = logging.getLogger("holdfast.leadership")
#: The lease of whoever sweeps and runs jobs.
SWEEPER: Final = "sweeper"
#: How long the lease outlives a process that can no longer renew it.
LEASE_TTL: Final = 15 * SECOND


class Leadership:
    """The lease, as one engine has it. ``wall`` is the machine's real time in microseconds."""

    def __init__(
        self,
        leases: LeaseStore,
        *,
        wall: Callable[[], int],
        holder: str,
        ttl: int = LEASE_TTL,
        name: str = SWEEPER,
        doing: str = "sweeping",
    ) -> None:
        self._leases = leases
        self._name = name
        self._doing = doing
        self._wall = wall
        self._holder = holder
        self._ttl = ttl
        self._turn = threading.Lock()
        self._leader: int | None = None
        self._lease: Lease | None = None

    @property
    def lease(self) -> Lease | None:
        """The lease, for batches to check; ``None`` while nothing sweeps here."""
        return self._lease

    @contextmanager
    def held(self) -> Iterator[Lease | None]:
        """The lease, kept up while the block runs and given back after it; ``None`` if someone else has it.

        A block within a block of the same thread goes on under the lease that is there.
        """
        if self._leader == threading.get_ident():
            yield self._lease
            return
        if not self._turn.acquire(blocking=False):
            yield None
            return
        try:
            lease = self._leases.acquire(self._name, self._holder, now=self._wall(), ttl=self._ttl)
            if lease is None:
                yield None
                return
            done = threading.Event()
            heart = threading.Thread(target=self._keep, args=(lease, done), name="holdfast-lease", daemon=True)
            heart.start()
            self._lease, self._leader = lease, threading.get_ident()
            try:
                yield lease
            finally:
                self._lease = self._leader = None
                done.set()
                heart.join()
                self._leases.release(lease)
        finally:
            self._turn.release()

    def other(self) -> str:
        """Who has it, in words."""
        held = self._leases.current(self._name, now=self._wall())
        if held is None:
            return f"someone else was {self._doing} just now"
        mine = " (another thread of this process)" if held.holder == self._holder else ""
        return f"{held.holder}{mine} is {self._doing}"

    def is_held(self) -> bool:
        """Whether this engine has the lease and nobody has taken it over meanwhile: a process may have stood still."""
        lease, current = self._lease, self._leases.current(self._name, now=self._wall())
        return lease is not None and current is not None and current[:3] == lease[:3]  # all but when it expires

    def is_taken(self) -> bool:
        """Whether anyone has it."""
        return self._leases.current(self._name, now=self._wall()) is not None

    def _keep(self, lease: Lease, done: threading.Event) -> None:
        while not done.wait(self._ttl / SECOND / 3):
            try:
                if not self._leases.renew(lease, now=self._wall(), ttl=self._ttl):
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
