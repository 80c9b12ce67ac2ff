"""Who may call, and what callers were told before."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from retain.core.access import ApiKey
from retain.core.chain import Event


class KeyStore(Protocol):
    """API keys of all tenants. A secret never comes here, only its hash."""

    def add(self, key: ApiKey, hashed: bytes, event: Event) -> None:
        """Let a key stand, and write the event into the audit chain of its tenant (an operator's: of ``default``)."""

    def get(self, key_id: str) -> tuple[ApiKey, bytes] | None:
        """A key and the hash of its secret, be it valid or not."""

    def list(self, tenant: str | None = None) -> list[ApiKey]:
        """The keys of a tenant, or all of them, oldest first, with those that were revoked or are over."""

    def revoke(self, key_id: str, *, now: int, event: Event) -> ApiKey | None:
        """Let a key stand no longer; ``None``, changing nothing, if there is no such key standing."""

    def note_use(self, key_id: str, *, now: int) -> None:
        """Note that a key was used; an older moment changes nothing."""

    def any(self, *, now: int) -> bool:
        """Whether any key lets anyone in."""


class StoredReply(NamedTuple):
    """What is kept of a request under its idempotency key."""

    fingerprint: bytes
    """Which request it was."""
    claimed_at: int
    claim: bytes
    """Whose claim it is: only that one may keep a reply, or give the claim back."""
    body: bytes | None
    """The reply, sealed; ``None`` while the request is at work."""


class ReplyStore(Protocol):
    """Replies to requests that may come again. What is kept here is sealed and hashed by those who use it."""

    def claim(self, row: bytes, fingerprint: bytes, claim: bytes, *, now: int, stale: int, old: int) -> StoredReply:
        """Note that a request is at work, unless there is a row already; the row as it is afterwards.

        A row without a reply that was claimed at or before ``stale``, and any that was claimed at or before ``old``,
        is claimed anew. Of any number of callers at once, one finds its own claim in the answer.
        """

    def keep(self, row: bytes, claim: bytes, body: bytes) -> bool:
        """Keep a reply; ``False``, changing nothing, if the claim is another's by now."""

    def release(self, row: bytes, claim: bytes) -> bool:
        """Forget a claim without a reply; ``False``, changing nothing, if it is another's, or has one."""

    def forget(self, old: int, *, limit: int) -> int:
        """Remove rows that were claimed at or before ``old``, at most ``limit``; how many went."""
