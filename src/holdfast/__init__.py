"""Holdfast: memory for AI agents that knows when to let go.

from holdfast import MemoryManager

memory = MemoryManager(user_id="user_123", agent_id="travel_agent")
memory.add("User enjoys skiing and mountain views", "long_term")
memory.retrieve("a holiday in the mountains")
"""

# ruff: noqa: F403, F405 - every error and every result is exported by its own name
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import *
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
    from holdfast.results import *

__version__ = VERSION

__all__ = ["EpisodicRetentionPolicy", "Hold", "Holdfast", "MemoryManager", "MemoryType", "Plan", "Preview", "Report"]
__all__ += ["Usage", "Verdict"]
__all__ += ["AddManyResult", "AddResult", "DeleteResult", "ExplainResult", "GetResult", "MemoryResult"]
__all__ += ["RetrieveResult", "SessionResult", "UserResult"]
__all__ += ["AgentRemovedError", "ClockError", "ClosedError", "ConfirmationNeededError", "ConflictError"]
__all__ += ["EmbedderError", "EmbedderUnavailableError", "ForbiddenError", "HeldError", "HoldfastError"]
__all__ += ["IdempotencyKeyReusedError", "InDoubtError", "InvalidContentError", "InvalidFilterError"]
__all__ += ["InvalidInputError", "InvalidKindError", "InvalidMetadataError", "InvalidRuleError", "InvalidScopeError"]
__all__ += ["InvalidSettingsError", "KeyDestroyedError", "KeyMissingError", "KeyringError", "LeaseLostError"]
__all__ += ["LedgerError", "MasterKeyError", "MissingExtraError", "NotAStoreError", "NotFoundError"]
__all__ += ["ObjectDamagedError", "ObjectMissingError", "ObjectStoreError", "ObjectStoreUnavailableError"]
__all__ += ["OtherKeyringError", "PlanChangedError", "QuotaExceededError", "RateLimitedError", "RequestInProgressError"]
__all__ += ["RequestTimeoutError", "RequestTooLargeError", "SchemaViolationError", "StaleError", "StorageError"]
__all__ += ["StoreAwayError", "StoreBusyError", "StoreFullError", "StoreLostError", "StoreReadOnlyError"]
__all__ += ["StoreTooNewError", "StoreUnavailableError", "SummarizerError", "SummarizerUnavailableError"]
__all__ += ["UnauthenticatedError"]

#: Where names are that are loaded when they are first used, so that importing Holdfast costs next to nothing. Results
#: are in ``holdfast.results``.
_LATER = {
    "Hold": "core.decisions",
    "Holdfast": "engine",
    "MemoryManager": "engine",
    "Plan": "lifecycle.sweeping.plan",
    "Preview": "lifecycle.previews",
    "Report": "lifecycle.sweeping.plan",
    "Usage": "core.records",
    "Verdict": "lifecycle.audit",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"holdfast.{_LATER.get(name, 'results')}"), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
