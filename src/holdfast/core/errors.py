"""Every error that Holdfast raises, as one tree.

Each class has a stable ``code`` (what programs test, the same at every edge) and says whether the same call
may succeed later (``retryable``). A message says what is wrong, with the value, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar


def quote(value: object, most: int = 60) -> str:
    """A value as a message shows it: short, whatever it is."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, an object within itself
        text = f"<{type(value).__name__}>"
    return text if len(text) <= most else f"{text[: most - 1]}…"


class HoldfastError(Exception):
    """The root: catch this to catch everything that Holdfast raises on purpose.

    ``about`` names the parameter that is wrong, ``needs`` those that the same call needs to be accepted: as data, so
    that each edge can name its own option or field. ``str()`` speaks of Python's parameters.
    """

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(self, *args: object, about: str | None = None, needs: Sequence[str] = ()) -> None:
        super().__init__(*args)
        self.about = about
        self.needs = tuple(needs)

    def __str__(self) -> str:
        return self.explain(needs=lambda name: f"{name}=…" if name.endswith("_id") else f"{name}=True")

    @property
    def message(self) -> str:
        """What is wrong, without what is needed."""
        said = Exception.__str__(self)
        return said if self.about is None else f"{self.about} {said}"

    def explain(self, *, about: Callable[[str], str] = str, needs: Callable[[str], str]) -> str:
        """What is wrong, and what is needed: the functions give the names that parameters have for the reader."""
        said = Exception.__str__(self)
        if self.about is not None:
            said = f"{about(self.about)} {said}"
        return f"{said}: use {' and '.join(map(needs, self.needs))}" if self.needs else said


class InvalidInputError(HoldfastError, ValueError):
    """An argument was refused before anything was changed."""

    code = "invalid_input"


class InvalidContentError(InvalidInputError):
    """Content is empty, not text, too large, or cannot be stored as UTF-8 text."""

    code = "invalid_content"


class InvalidMetadataError(InvalidInputError):
    """Metadata is not a JSON object with text keys, or is too large."""

    code = "invalid_metadata"


class InvalidFilterError(InvalidInputError):
    """A filter has an unknown operator, or operands that make no sense."""

    code = "invalid_filter"


class InvalidKindError(InvalidInputError):
    """The kind of memory is unknown, or does not support what was asked of it."""

    code = "invalid_kind"


class InvalidScopeError(InvalidInputError):
    """A tenant, user, agent, session or record id is missing or malformed."""

    code = "invalid_scope"


class SchemaViolationError(InvalidInputError):
    """A structured document does not match the schema of its collection."""

    code = "schema_violation"


class InvalidSettingsError(InvalidInputError):
    """A setting (environment or ``holdfast.toml``) has a value that cannot be used."""

    code = "invalid_settings"


class InvalidRuleError(InvalidInputError):
    """A retention rule says nothing, contradicts itself, or is for something that has no rules."""

    code = "invalid_rule"


class NotFoundError(HoldfastError, LookupError):
    """No such record in this scope, or it is no longer visible."""

    code = "not_found"


class QuotaExceededError(HoldfastError):
    """The write would take a user over a quota; nothing was written."""

    code = "quota_exceeded"


class ConflictError(HoldfastError):
    """Its state does not allow what was asked, or its name or id is taken; nothing was changed."""

    code = "conflict"


class ExpiredError(ConflictError):
    """Its time in the recycle bin is over by the clock; it can no longer be restored."""

    code = "expired"


class StaleError(ConflictError):
    """Another writer changed the record since it was read; nothing was changed. Read it again and retry."""

    code = "stale"
    retryable = True


class LeaseLostError(StaleError):
    """Another process has taken over the work; what this one had not done yet is left to it."""

    code = "lease_lost"


class RulesChangedError(StaleError):
    """Rules were changed since it was decided what is due; nothing was changed. What is due is looked up anew."""

    code = "rules_changed"


class PlanChangedError(ConflictError):
    """What was planned is no longer what would be done; nothing was changed. Make a new plan and look at it."""

    code = "plan_changed"


class HeldError(HoldfastError):
    """A hold stands; nothing was removed. The refusal is in the audit chain."""

    code = "held"


class ConfirmationNeededError(HoldfastError):
    """It would remove more than is usual, or shorten retention; nothing was changed. Look, then confirm."""

    code = "confirmation_needed"


class ClockError(HoldfastError):
    """The clock leaped, is behind what the store has seen, or is days ahead of it. Check the clock, then confirm."""

    code = "clock"


class AgentRemovedError(ConflictError):
    """The agent is in the recycle bin; restore it to use it again."""

    code = "agent_removed"


class UnauthenticatedError(HoldfastError):
    """No API key was given, or not one that is known and valid; nothing was looked at."""

    code = "unauthenticated"


class ForbiddenError(HoldfastError):
    """The caller's key does not allow this, or not here; nothing was looked at or changed."""

    code = "forbidden"


class RateLimitedError(HoldfastError):
    """Too many requests in a short time; nothing was changed. Wait a little, then try again."""

    code = "rate_limited"
    retryable = True


class RequestTooLargeError(InvalidInputError):
    """A request is larger than the service takes; nothing was changed."""

    code = "request_too_large"


class RequestTimeoutError(HoldfastError):
    """A request took longer than the service waits. It may have had its effect: retry with the same idempotency key."""

    code = "request_timeout"
    retryable = True


class RequestInProgressError(ConflictError):
    """The same request, by its idempotency key, is still at work. Ask again a little later."""

    code = "request_in_progress"
    retryable = True


class IdempotencyKeyReusedError(InvalidInputError):
    """An idempotency key was sent with another request than the one that it was first sent with."""

    code = "idempotency_key_reused"


class MissingExtraError(HoldfastError, ImportError):
    """A part that was asked for needs an optional dependency that is not installed."""

    code = "missing_extra"


class EmbedderError(HoldfastError):
    """The embedder gave no usable vectors."""

    code = "embedder"


class EmbedderUnavailableError(EmbedderError):
    """The embedder's service did not answer; the same call may succeed later."""

    code = "embedder_unavailable"
    retryable = True


class SummarizerError(HoldfastError):
    """The summarizer gave no usable summary."""

    code = "summarizer"


class SummarizerUnavailableError(SummarizerError):
    """The summarizer's service did not answer; the same call may succeed later."""

    code = "summarizer_unavailable"
    retryable = True


class StorageError(HoldfastError):
    """The store failed; the operation had no effect."""

    code = "storage"


class StoreBusyError(StorageError):
    """Other writers kept the store busy for longer than the time limit."""

    code = "store_busy"
    retryable = True


class StoreFullError(StorageError):
    """The disk (or the database's size limit) is full."""

    code = "store_full"
    retryable = True


class ObjectStoreError(StorageError):
    """The object store, which keeps archives, failed."""

    code = "object_store"


class ObjectStoreUnavailableError(ObjectStoreError):
    """The object store did not answer; the same call may succeed later."""

    code = "object_store_unavailable"
    retryable = True


class ObjectMissingError(ObjectStoreError, LookupError):
    """An object that should be in the object store is not there."""

    code = "object_missing"


class ObjectDamagedError(ObjectStoreError):
    """An object in the object store is not what was written."""

    code = "object_damaged"


class OtherKeyringError(ObjectDamagedError):
    """An object was sealed or signed under another keyring than the one that is there; it may well be whole."""

    code = "other_keyring"


class MasterKeyError(StorageError):
    """The master key is missing, or is not the one that keys were wrapped with."""

    code = "master_key"


class KeyDestroyedError(StorageError, LookupError):
    """What was sealed under a key that was destroyed cannot be read again; that is what it was destroyed for."""

    code = "key_destroyed"


class KeyMissingError(StorageError, LookupError):
    """A key is not in the keyring, and no erasure says that it was destroyed: it is elsewhere, or was lost."""

    code = "key_missing"


class KeyringError(StorageError):
    """The keyring that the settings name is not the one that the store belongs to; nothing was done."""

    code = "keyring"


class LedgerError(StorageError):
    """The ledger of erasures is not whole, or a store has not been held against it."""

    code = "ledger"


class StoreReadOnlyError(StorageError):
    """The store can be read but not written."""

    code = "store_read_only"


class StoreUnavailableError(StorageError):
    """The store cannot be opened or made where the settings say it is."""

    code = "store_unavailable"


class StoreLostError(StoreUnavailableError):
    """The store held memories when it was last used, and there is nothing now; nothing was made in its place."""

    code = "store_lost"


class StoreAwayError(StoreUnavailableError):
    """A server that holds memories does not answer, or broke off; it may be back soon."""

    code = "store_away"
    retryable = True


class InDoubtError(StoreAwayError):
    """A server broke off before it said whether a write was done: look whether it is there before it is tried again."""

    code = "in_doubt"
    retryable = False


class NotAStoreError(StorageError):
    """The file is not a Holdfast database, or is damaged."""

    code = "not_a_store"


class StoreTooNewError(StorageError):
    """The store was written by a newer version of Holdfast."""

    code = "store_too_new"


class ClosedError(StorageError):
    """The engine was closed, or belongs to the parent of a forked process."""

    code = "closed"
