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
    ClosedError,
    ConflictError,
    EmbedderError,
    EmbedderUnavailableError,
    InvalidContentError,
    InvalidFilterError,
    InvalidInputError,
    InvalidKindError,
    InvalidMetadataError,
    InvalidScopeError,
    InvalidSettingsError,
    MissingExtraError,
    NotAStoreError,
    NotFoundError,
    QuotaExceededError,
    RetainError,
    SchemaViolationError,
    StaleError,
    StorageError,
    StoreBusyError,
    StoreFullError,
    StoreReadOnlyError,
    StoreTooNewError,
    StoreUnavailableError,
    SummarizerError,
    SummarizerUnavailableError,
)
from retain.core.types import MemoryType

if TYPE_CHECKING:
    from retain.engine import MemoryManager, Retain

__version__ = "0.1.0"

#: Loaded when they are first used, so that importing Retain costs next to nothing.
_LATER = {"MemoryManager": "retain.engine", "Retain": "retain.engine"}

__all__ = [
    "ClosedError",
    "ConflictError",
    "EmbedderError",
    "EmbedderUnavailableError",
    "InvalidContentError",
    "InvalidFilterError",
    "InvalidInputError",
    "InvalidKindError",
    "InvalidMetadataError",
    "InvalidScopeError",
    "InvalidSettingsError",
    "MemoryManager",
    "MemoryType",
    "MissingExtraError",
    "NotAStoreError",
    "NotFoundError",
    "QuotaExceededError",
    "Retain",
    "RetainError",
    "SchemaViolationError",
    "StaleError",
    "StorageError",
    "StoreBusyError",
    "StoreFullError",
    "StoreReadOnlyError",
    "StoreTooNewError",
    "StoreUnavailableError",
    "SummarizerError",
    "SummarizerUnavailableError",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'retain' has no attribute {name!r}")
    value = getattr(import_module(_LATER[name]), name)
    globals()[name] = value
    return value
