"""Who may call, and what callers were told before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast.core.access import ApiKey
from holdfast.core.chain import Event
from holdfast.ports.requests import Claim, OnceRequest, StoredReply


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


class ReplyStore(Protocol):
    """Replies to requests that may come again. What is kept here is sealed and hashed by those who use it."""

    def find(self, row: bytes, *, old: int) -> StoredReply | None:
        """What is kept of a request; nothing, if it was begun at or before ``old``."""

    def begin(self, claim: Claim, leased: Callable[[Claim], None], *, joins: bool = True) -> OnceRequest:
        """A request that is to be carried out once. It is claimed with what it writes first, or with its reply; of any
        number of callers at once, one succeeds, and the others raise ``ClaimedError`` when they write.

        ``leased`` hears of a claim that needs renewing. Without ``joins`` the request takes several transactions to its
        end: ``join_rest`` does nothing.
        """

    def renew(self, claims: Sequence[Claim]) -> None:
        """Let claims that are still theirs stand for as long again."""

    def forget(self, old: int, *, limit: int) -> int:
        """Remove rows that were claimed at or before ``old``, at most ``limit``; how many went."""
