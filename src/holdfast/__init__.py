"""Holdfast: memory for AI agents that knows when to let go.

from holdfast import MemoryManager

memory = MemoryManager(user_id="user_123", agent_id="travel_agent")
memory.add("User enjoys skiing and mountain views", "long_term")
memory.retrieve("a holiday in the mountains")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import (
    AgentRemovedError,
    ClockError,
    ClosedError,
    ConfirmationNeededError,
    ConflictError,
    EmbedderError,
    EmbedderUnavailableError,
    ForbiddenError,
    HeldError,
    HoldfastError,
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
from holdfast.core.records import MemoryType
from holdfast.core.rules import EpisodicRetentionPolicy
from holdfast.installation import VERSION

if TYPE_CHECKING:
    from holdfast.core.decisions import Hold
    from holdfast.core.records import Usage
    from holdfast.engine import Holdfast, MemoryManager
    from holdfast.lifecycle.audit import Verdict
    from holdfast.lifecycle.previews import Preview
    from holdfast.lifecycle.sweeping.plan import Plan, Report
    from holdfast.results import (
        AddManyResult,
        AddResult,
        DeleteResult,
        ExplainResult,
        GetResult,
        MemoryResult,
        RetrieveResult,
        SessionResult,
        UserResult,
    )

__version__ = VERSION

#: Loaded when they are first used, so that importing Holdfast costs next to nothing.
_LATER = {
    "Hold": "holdfast.core.decisions",
    "MemoryManager": "holdfast.engine",
    "Plan": "holdfast.lifecycle.sweeping.plan",
    "Preview": "holdfast.lifecycle.previews",
    "Report": "holdfast.lifecycle.sweeping.plan",
    "Holdfast": "holdfast.engine",
    "Usage": "holdfast.core.records",
    "Verdict": "holdfast.lifecycle.audit",
}
_LATER |= dict.fromkeys(
    (
        "AddManyResult",
        "AddResult",
        "DeleteResult",
        "ExplainResult",
        "GetResult",
        "MemoryResult",
        "RetrieveResult",
        "SessionResult",
        "UserResult",
    ),
    "holdfast.results",
)

__all__ = [
    "AddManyResult",
    "AddResult",
    "AgentRemovedError",
    "ClockError",
    "ClosedError",
    "ConfirmationNeededError",
    "ConflictError",
    "DeleteResult",
    "EmbedderError",
    "EmbedderUnavailableError",
    "EpisodicRetentionPolicy",
    "ExplainResult",
    "ForbiddenError",
    "GetResult",
    "HeldError",
    "Hold",
    "Holdfast",
    "HoldfastError",
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
    "MemoryResult",
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
    "RetrieveResult",
    "SchemaViolationError",
    "SessionResult",
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
    "UserResult",
    "Verdict",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value = getattr(import_module(_LATER[name]), name)
    globals()[name] = value
    return value
