"""The request that is being carried out, where it came with an idempotency key: it is done once, through any crash.

All that it writes joins one transaction, which is committed together with its reply. A verb that cannot be one
transaction, because it has an effect outside of the database or writes more than one transaction should hold, says so
before its first effect. What is asked for without a key has no such request, and pays nothing for it.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple, Protocol


class Claim(NamedTuple):
    """Who carries a request out."""

    row: bytes
    """Which idempotency key of which caller it is, hashed."""
    fingerprint: bytes
    """Which request it is, hashed."""
    token: bytes
    """Whose claim it is."""
    seed: bytes
    """What ids are made from; never stored, so that nobody can tell a reply from the ids of what it is about."""
    now: int
    old: int
    """What was claimed at or before this moment counts no more."""


class StoredReply(NamedTuple):
    """What is kept of a request under its idempotency key."""

    fingerprint: bytes
    """Which request it was."""
    claimed_at: int
    """When it was first begun."""
    claim: bytes
    """Whose claim it is: only that one may keep a reply, or give the claim back."""
    body: bytes | None
    """The reply, sealed; ``None`` while the request is at work."""
    is_leased: bool
    """Whether someone is at work on it: its lease has not run out."""


class ClaimedError(Exception):
    """Another has carried the request out, or is at it. No error of a caller's: it has an answer."""

    def __init__(self, found: StoredReply) -> None:
        super().__init__("the request was claimed by another")
        self.found = found


class OnceRequest(Protocol):
    """A request that is carried out once. One thread at a time uses it."""

    @property
    def began_at(self) -> int:
        """When it was first begun, maybe by a process that was cut short; known after ``begin_steps``."""

    @property
    def in_steps(self) -> bool:
        """Whether it takes several transactions."""

    def begin_steps(self) -> None:
        """From here on each transaction is committed by itself. The claim is committed first, under a lease that the
        process renews; when a crash cuts the request short, another may take it over once the lease has run out.

        ``ClaimedError`` if it is another's. Nothing may have been written before.
        """

    def join_rest(self) -> None:
        """All that is written from here on joins one transaction again, which is committed with the reply."""

    def new_ids(self, count: int) -> list[str]:
        """Ids that are the same whenever the request is carried out, in this order; for use after ``begin_steps``."""

    def keep(self, reply: bytes) -> None:
        """Commit what was written, together with the reply. ``ClaimedError`` if another has taken the request over."""

    def release(self) -> None:
        """Commit what was written (a refusal that is on the record), and give the claim back."""

    def abandon(self) -> None:
        """Undo what has not been committed. A second time does nothing."""


#: The request that is being carried out here; ``None`` where it need not be done once.
REQUEST: ContextVar[OnceRequest | None] = ContextVar("holdfast_request", default=None)


def begin_steps() -> OnceRequest | None:
    """Say that what follows takes several transactions, or has an effect outside of the database; the request that it
    belongs to, if it must be done once.
    """
    request = REQUEST.get()
    if request is not None:
        request.begin_steps()
    return request


def join_rest() -> None:
    """Say that what follows can be one transaction with the reply, if the request must be done once."""
    request = REQUEST.get()
    if request is not None:
        request.join_rest()
