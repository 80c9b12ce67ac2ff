"""Retain: memory for AI agents that knows when to forget.

from retain import MemoryManager

memory = MemoryManager(user_id="user_123", agent_id="travel_agent")
memory.add("User enjoys skiing and mountain views", "long_term")
memory.retrieve("a holiday in the mountains")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from retain.core.errors import (
    AgentRemovedError,
    ClockError,
    ClosedError,
    ConfirmationNeededError,
    ConflictError,
    EmbedderError,
    EmbedderUnavailableError,
    ForbiddenError,
    HeldError,
    IdempotencyKeyReusedError,
    InDoubtError,
    InvalidContentError,
    InvalidFilterError,
    InvalidInputError,
    InvalidKindError,
    InvalidMetadataError,
    InvalidRuleError,
    InvalidScopeError,
    InvalidSettingsError,
    KeyDestroyedError,
    KeyMissingError,
    KeyringError,
    LeaseLostError,
    LedgerError,
    MasterKeyError,
    MissingExtraError,
    NotAStoreError,
    NotFoundError,
    ObjectDamagedError,
    ObjectMissingError,
    ObjectStoreError,
    ObjectStoreUnavailableError,
    OtherKeyringError,
    PlanChangedError,
    QuotaExceededError,
    RateLimitedError,
    RequestInProgressError,
    RequestTimeoutError,
    RequestTooLargeError,
    RetainError,
    SchemaViolationError,
    StaleError,
    StorageError,
    StoreAwayError,
    StoreBusyError,
    StoreFullError,
    StoreLostError,
    StoreReadOnlyError,
    StoreTooNewError,
    StoreUnavailableError,
    SummarizerError,
    SummarizerUnavailableError,
    UnauthenticatedError,
)
from retain.core.rules import EpisodicRetentionPolicy
from retain.core.types import MemoryType
from retain.core.version import VERSION

if TYPE_CHECKING:
    from retain.core.holds import Hold
    from retain.core.records import Usage
    from retain.engine import MemoryManager, Retain
    from retain.lifecycle.audit import Verdict
    from retain.lifecycle.plan import Plan, Report
    from retain.lifecycle.previews import Preview

__version__ = VERSION

#: Loaded when they are first used, so that importing Retain costs next to nothing.
_LATER = {
    "Hold": "retain.core.holds",
    "MemoryManager": "retain.engine",
    "Plan": "retain.lifecycle.plan",
    "Preview": "retain.lifecycle.previews",
    "Report": "retain.lifecycle.plan",
    "Retain": "retain.engine",
    "Usage": "retain.core.records",
    "Verdict": "retain.lifecycle.audit",
}

__all__ = [
    "AgentRemovedError",
    "ClockError",
    "ClosedError",
    "ConfirmationNeededError",
    "ConflictError",
    "EmbedderError",
    "EmbedderUnavailableError",
    "EpisodicRetentionPolicy",
    "ForbiddenError",
    "HeldError",
    "Hold",
    "IdempotencyKeyReusedError",
    "InDoubtError",
    "InvalidContentError",
    "InvalidFilterError",
    "InvalidInputError",
    "InvalidKindError",
    "InvalidMetadataError",
    "InvalidRuleError",
    "InvalidScopeError",
    "InvalidSettingsError",
    "KeyDestroyedError",
    "KeyMissingError",
    "KeyringError",
    "LeaseLostError",
    "LedgerError",
    "MasterKeyError",
    "MemoryManager",
    "MemoryType",
    "MissingExtraError",
    "NotAStoreError",
    "NotFoundError",
    "ObjectDamagedError",
    "ObjectMissingError",
    "ObjectStoreError",
    "ObjectStoreUnavailableError",
    "OtherKeyringError",
    "Plan",
    "PlanChangedError",
    "Preview",
    "QuotaExceededError",
    "RateLimitedError",
    "Report",
    "RequestInProgressError",
    "RequestTimeoutError",
    "RequestTooLargeError",
    "Retain",
    "RetainError",
    "SchemaViolationError",
    "StaleError",
    "StorageError",
    "StoreAwayError",
    "StoreBusyError",
    "StoreFullError",
    "StoreLostError",
    "StoreReadOnlyError",
    "StoreTooNewError",
    "StoreUnavailableError",
    "SummarizerError",
    "SummarizerUnavailableError",
    "UnauthenticatedError",
    "Usage",
    "Verdict",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'retain' has no attribute {name!r}")
    value = getattr(import_module(_LATER[name]), name)
    globals()[name] = value
    return value
