"""Every error that Holdfast raises, as one tree.

Each class has a stable ``code`` (what programs test, the same at every edge): its name in lower case, without "Error",
its words joined by "_". It says whether the same call may succeed later (``retryable``), as its parent does if it does
not. A message says what is wrong, with the value, and what to do about it.
"""

from __future__ import annotations

import re
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

    def __init_subclass__(cls, *, retryable: bool | None = None) -> None:
        super().__init_subclass__()
        cls.code = re.sub(r"(?<=.)(?=[A-Z])", "_", cls.__name__.removesuffix("Error")).lower()
        if retryable is not None:
            cls.retryable = retryable

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


class InvalidContentError(InvalidInputError):
    """Content is empty, not text, too large, or cannot be stored as UTF-8 text."""


class InvalidMetadataError(InvalidInputError):
    """Metadata is not a JSON object with text keys, or is too large."""


class InvalidFilterError(InvalidInputError):
    """A filter has an unknown operator, or operands that make no sense."""


class InvalidKindError(InvalidInputError):
    """The kind of memory is unknown, or does not support what was asked of it."""


class InvalidScopeError(InvalidInputError):
    """A tenant, user, agent, session or record id is missing or malformed."""


class SchemaViolationError(InvalidInputError):
    """A structured document does not match the schema of its collection."""


class InvalidSettingsError(InvalidInputError):
    """A setting (environment or ``holdfast.toml``) has a value that cannot be used."""


class InvalidRuleError(InvalidInputError):
    """A retention rule says nothing, contradicts itself, or is for something that has no rules."""


class NotFoundError(HoldfastError, LookupError):
    """No such record in this scope, or it is no longer visible."""


class QuotaExceededError(HoldfastError):
    """The write would take a user over a quota; nothing was written."""


class ConflictError(HoldfastError):
    """Its state does not allow what was asked, or its name or id is taken; nothing was changed."""


class ExpiredError(ConflictError):
    """Its time is over by the clock: it can no longer be restored, or is too old to be added."""


class StaleError(ConflictError, retryable=True):
    """Another writer changed the record since it was read; nothing was changed. Read it again and retry."""


class LeaseLostError(StaleError):
    """Another process has taken over the work; what this one had not done yet is left to it."""


class RulesChangedError(StaleError):
    """Rules were changed since it was decided what is due; nothing was changed. What is due is looked up anew."""


class PlanChangedError(ConflictError):
    """What was planned is no longer what would be done; nothing was changed. Make a new plan and look at it."""


class HeldError(HoldfastError):
    """A hold stands; nothing was removed. The refusal is in the audit chain."""


class ConfirmationNeededError(HoldfastError):
    """It would remove more than is usual, or shorten retention; nothing was changed. Look, then confirm."""


class ClockError(HoldfastError):
    """The clock leaped, is behind what the store has seen, or is days ahead of it. Check the clock, then confirm."""


class AgentRemovedError(ConflictError):
    """The agent is in the recycle bin; restore it to use it again."""


class KeptOutError(HoldfastError):
    """The text is kept out: someone deleted it and asked that it does not come back."""


class UnauthenticatedError(HoldfastError):
    """No API key was given, or not one that is known and valid; nothing was looked at."""


class ForbiddenError(HoldfastError):
    """The caller's key does not allow this, or not here; nothing was looked at or changed."""


class RateLimitedError(HoldfastError, retryable=True):
    """Too many requests in a short time; nothing was changed. Wait a little, then try again."""


class RequestTooLargeError(InvalidInputError):
    """A request is larger than the service takes; nothing was changed."""


class RequestTimeoutError(HoldfastError, retryable=True):
    """A request took longer than the service waits. It may have had its effect: retry with the same idempotency key."""


class RequestInProgressError(ConflictError, retryable=True):
    """The same request, by its idempotency key, is still at work. Ask again a little later."""


class IdempotencyKeyReusedError(InvalidInputError):
    """An idempotency key was sent with another request than the one that it was first sent with."""


class MissingExtraError(HoldfastError, ImportError):
    """A part that was asked for needs an optional dependency that is not installed."""


class EmbedderError(HoldfastError):
    """The embedder gave no usable vectors."""


class EmbedderUnavailableError(EmbedderError, retryable=True):
    """The embedder's service did not answer; the same call may succeed later."""


class SummarizerError(HoldfastError):
    """The summarizer gave no usable summary."""


class SummarizerUnavailableError(SummarizerError, retryable=True):
    """The summarizer's service did not answer; the same call may succeed later."""


class StorageError(HoldfastError):
    """The store failed; the operation had no effect."""


class StoreBusyError(StorageError, retryable=True):
    """Other writers kept the store busy for longer than the time limit."""


class StoreFullError(StorageError, retryable=True):
    """The disk (or the database's size limit) is full."""


class ObjectStoreError(StorageError):
    """The object store, which keeps archives, failed."""


class ObjectStoreUnavailableError(ObjectStoreError, retryable=True):
    """The object store did not answer; the same call may succeed later."""


class ObjectMissingError(ObjectStoreError, LookupError):
    """An object that should be in the object store is not there."""


class ObjectDamagedError(ObjectStoreError):
    """An object in the object store is not what was written."""


class OtherKeyringError(ObjectDamagedError):
    """An object was sealed or signed under another keyring than the one that is there; it may well be whole."""


class MasterKeyError(StorageError):
    """The master key is missing, or is not the one that keys were wrapped with."""


class KeyDestroyedError(StorageError, LookupError):
    """What was sealed under a key that was destroyed cannot be read again; that is what it was destroyed for."""


class KeyMissingError(StorageError, LookupError):
    """A key is not in the keyring, and no erasure says that it was destroyed: it is elsewhere, or was lost."""


class KeyringError(StorageError):
    """The keyring that the settings name is not the one that the store belongs to; nothing was done."""


class LedgerError(StorageError):
    """The ledger of erasures is not whole, or a store has not been held against it."""


class StoreReadOnlyError(StorageError):
    """The store can be read but not written."""


class StoreUnavailableError(StorageError):
    """The store cannot be opened or made where the settings say it is."""


class StoreLostError(StoreUnavailableError):
    """The store held memories when it was last used, and there is nothing now; nothing was made in its place."""


class StoreAwayError(StoreUnavailableError, retryable=True):
    """A server that holds memories does not answer, or broke off; it may be back soon."""


class InDoubtError(StoreAwayError, retryable=False):
    """A server broke off before it said whether a write was done: look whether it is there before it is tried again."""


class NotAStoreError(StorageError):
    """The file is not a Holdfast database, or is damaged."""


class StoreTooNewError(StorageError):
    """The store was written by a newer version of Holdfast."""


class ClosedError(StorageError):
    """The engine was closed, or belongs to the parent of a forked process."""
