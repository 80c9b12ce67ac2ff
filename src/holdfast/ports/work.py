"""Who does recurring work, and when."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from holdfast.core.audit import Event
from holdfast.core.clock import Seen


class Lease(NamedTuple):
    """The right to sweep, until it expires or is released."""

    name: str
    holder: str
    epoch: int
    """Counts the changes of hands; checked inside every batch."""
    expires_at: int
    """By the real time of the machine; a renewal moves it."""


class LeaseStore(Protocol):
    """Who may do what only one may do. Times are the machine's real ones, whatever the engine's clock says."""

    def acquire(self, name: str, holder: str, *, now: int, ttl: int) -> Lease | None:
        """The lease, until ``now + ttl``; ``None`` while another holder has it.

        Its holder gets it again, longer, with the same epoch. One that expired, was released, or belongs to a dead
        process of this host changes hands at once, and the epoch counts one more.
        """

    def renew(self, lease: Lease, *, now: int, ttl: int) -> bool:
        """Keep it until ``now + ttl``; ``False``, changing nothing, if it has changed hands."""

    def release(self, lease: Lease) -> None:
        """Give it back; nothing, if it has changed hands. The next to acquire it gets a new epoch."""

    def current(self, name: str, *, now: int) -> Lease | None:
        """The lease as it is held now; ``None`` if anyone may have it."""


class JobRow(NamedTuple):
    """What the store knows of a job."""

    name: str
    cron: str | None
    """``None``: the default; so with ``timezone``."""
    timezone: str | None
    enabled: bool
    since: int
    """Slots up to this moment are not missed ones."""
    slot: int | None
    """The last slot that was claimed."""
    started_at: int | None
    """When it last ran, be it for that slot or for none; so with how that went."""
    finished_at: int | None
    """``None`` while it runs, or if it was cut short."""
    result: dict[str, Any] | None
    error: str | None
    """Why it failed; of an unfinished slot: that it is on its second run."""


class JobStore(Protocol):
    """What is set about jobs, and how their last slot went."""

    def enrol(self, name: str, *, now: int) -> None:
        """Know a job from ``now`` on; nothing, if it is known already."""

    def rows(self) -> list[JobRow]:
        """Every job that is known, by name."""

    def configure(self, name: str, *, cron: str | None, timezone: str | None, enabled: bool | None, now: int) -> None:
        """Set what is given: ``None`` leaves it, an empty text goes back to the default.

        Where that gives a job new slots (another cron or zone, or enabled again), those up to ``now`` are not missed.
        """

    def claim(self, name: str, slot: int, *, now: int, lease: Lease | None = None) -> bool:
        """Begin a slot; ``False``, changing nothing, unless it is later than every slot claimed before.

        Of any number of callers exactly one is told ``True``. With a lease that changed hands: ``LeaseLostError``.
        """

    def reclaim(self, name: str, slot: int, *, now: int, lease: Lease) -> bool:
        """Begin the last slot again, because it was cut short; ``False`` if it was finished, or begun again before."""

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
        """Record how the last slot went; ``False``, changing nothing, if it is not the last, or finished already."""

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
        """Record how a run went that was for no slot; ``False``, changing nothing, while a slot is not finished."""

    def take_back(self, *, now: int, beyond: int, name: str | None = None) -> list[str]:
        """Let jobs (or one) whose latest slot lies ``beyond`` a moment go on from ``now``, as if they had run until
        then; their names.
        """


class ClockStore(Protocol):
    """What the store has seen of the time, whichever process it was that came with it."""

    def seen(self) -> Seen | None:
        """What it has seen; ``None`` of a store in which nothing was ever written."""

    def sight(self, now: int, tolerance: int, *, trusted: bool = False, doubted: bool = False) -> Seen:
        """Note that a process has come with a time, as ``core.clock.sight`` says; what the store has seen then."""

    def accept(self, now: int, tenant: str, event: Event) -> None:
        """Believe a time, be it earlier or far ahead, and forget what was sighted; the event is put on the tenant's
        audit chain.
        """
