"""Who may call and what they reach: API keys, the gate in front of the engine, replies to requests that come again.

Keys and replies lie below the engine, the gate above it; hence each is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.core.access import LOCAL, ApiKey, Principal, Right

if TYPE_CHECKING:
    from holdfast.access.gate import Gate
    from holdfast.access.keys import Access
    from holdfast.access.replies import Once, Replies, Reply

_LATER = {
    "Access": "holdfast.access.keys",
    "Gate": "holdfast.access.gate",
    "Once": "holdfast.access.replies",
    "Replies": "holdfast.access.replies",
    "Reply": "holdfast.access.replies",
}

__all__ = ["LOCAL", "Access", "ApiKey", "Gate", "Once", "Principal", "Replies", "Reply", "Right"]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'holdfast.access' has no attribute {name!r}")
    value = getattr(import_module(_LATER[name]), name)
    globals()[name] = value
    return value
