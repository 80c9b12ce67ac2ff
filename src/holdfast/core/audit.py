"""What an audit entry says: what was done, to what, and who did it; and what is wrong with a chain of entries.

The actor is an ambient value. Each edge sets it with ``acting_as`` around what it does for a caller, and whoever writes
an entry reads it with ``current_actor``. Where no edge has set it, it is the author that the store was opened with.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from enum import StrEnum
from typing import Any, Final, NamedTuple

from holdfast.core.errors import InvalidInputError
from holdfast.core.values import check_id

#: In findings, in place of a chain: what is wrong with the checkpoints, or with the number of all entries.
CHECKPOINTS: Final = "checkpoints"
ALL_CHAINS: Final = "all chains"


class Event(NamedTuple):
    """Something that happened, to be put on a chain; it must not name the user."""

    at: int
    action: Action
    item: str | None
    """The record, session, rule, hold, agent or tool that it is about."""
    detail: dict[str, Any]
    """JSON values."""


class AuditEntry(NamedTuple):
    """An event as it stands on a chain."""

    chain: str
    """The subject's pseudonym, in hex."""
    seq: int
    """Its place in the chain. Events that share an entry have the same place, and the same hash."""
    at: int
    action: str
    actor: str
    """Who did it: see ``core.audit``."""
    item: str | None
    detail: dict[str, Any]
    hash: str


class Finding(NamedTuple):
    """Something wrong with the audit chain."""

    chain: str
    """Whose chain, by pseudonym; or ``CHECKPOINTS``, or ``ALL_CHAINS``."""
    seq: int
    """The place in the chain (or the checkpoint's number); 0 where it has none."""
    problem: str


class Checkpoint(NamedTuple):
    """The heads of all chains at one moment, under one hash."""

    no: int
    at: int
    chains: int
    entries: int
    root: bytes
    hash: bytes


class Sizes(NamedTuple):
    """How much there is to verify."""

    chains: int
    entries: int
    checkpoints: int


PYTHON: Final = "python"
CLI: Final = "cli"
REST: Final = "rest"
MCP: Final = "mcp"
CONSOLE: Final = "console"
SCHEDULE: Final = "schedule"
#: Actors that Holdfast names itself, each with its meaning.
ACTORS: Final = {
    "key:<id>": "The caller of the REST API, of MCP or of the console, by the id of its API key.",
    PYTHON: "A program that uses the library.",
    CLI: "The command line.",
    REST: "A caller of the REST API without a key, on the same machine.",
    MCP: "A caller of MCP without a key, on the same machine.",
    CONSOLE: "Who uses the console without a key, on the same machine.",
    SCHEDULE: "A job of the schedule.",
}
_KEY: Final = "key:"
_CURRENT: Final[ContextVar[str | None]] = ContextVar("actor", default=None)


def current_actor(default: str = PYTHON) -> str:
    """Who does what is done now; ``default`` where no edge has said so."""
    return _CURRENT.get() or default


class acting_as:  # noqa: N801 - it is used as a verb
    """Entries of the block, and of the tasks and worker threads it starts, name this actor; ``None``: as before."""

    __slots__ = ("_actor", "_token")

    def __init__(self, actor: str | None) -> None:
        self._actor = actor

    def __enter__(self) -> None:
        self._token = _CURRENT.set(self._actor or _CURRENT.get())

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._token)


def check_author(author: str | None) -> str | None:
    """The name that a caller gives for itself, or none; ``InvalidInputError`` for one that Holdfast gives."""
    if author is None:
        return None
    name = check_id(author, "author")
    if is_own_actor(name):
        raise InvalidInputError(f"author {name!r} is a name that Holdfast itself uses; give another, such as a role")
    return name


def is_own_actor(actor: str) -> bool:
    """Whether Holdfast itself gave the name; such a name never is a user's."""
    return actor in ACTORS or actor.startswith(_KEY)


def key_actor(key_id: str) -> str:
    """The actor that an API key stands for."""
    return f"{_KEY}{key_id}"


def names_user(actor: str, user_id: str) -> bool:
    """Whether an actor is, or has as a word in it, the id of a user. The audit chain outlives users: it must not."""
    return re.search(rf"(?<!\w){re.escape(user_id)}(?!\w)", actor, re.IGNORECASE) is not None


class Action(StrEnum):
    """Everything that an entry of the audit chain can say was done, each with its meaning."""

    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> Action:
        """An action by its name in the chain, and a sentence that says what it means."""
        action = str.__new__(cls, value)
        action._value_ = value
        action.meaning = meaning
        return action

    ARCHIVED = "archived", "A memory was archived: its summary stays, its content moved to cold storage or was cleared."
    RECYCLED = "recycled", "A memory, message, session, agent, tool or a part of a thread went to the recycle bin."
    RESTORED = "restored", "It came back from the recycle bin, or rows came back from a backup."
    REHYDRATED = "rehydrated", "An archived memory came back from cold storage."
    DELETING = "deleting", "Its deletion for good began; parts of it still lie in cold storage."
    DELETED = "deleted", "It was deleted for good."
    VERSIONS_DELETED = (
        "versions.deleted",
        "Ended versions of a memory were deleted, because its rule keeps no more: by a sweep, or by a correction.",
    )
    REFUSED = "refused", "It was not moved. The detail names the hold, or the reason."
    ERASED = "erased", "All data of a user was erased."
    REGISTERED = "registered", "An agent or a tool was made known."
    CHANGED = "changed", "The description or the metadata of an agent or a tool changed."
    RULE_CHANGED = "rule.changed", "A retention rule was set or removed."
    DEFAULTS_CHANGED = "defaults.changed", "A new version of Holdfast brought other default lifetimes."
    HOLD_ADDED = "hold.added", "A hold was placed."
    HOLD_RELEASED = "hold.released", "A hold was released."
    KEPT_OUT = "kept_out", "A text was deleted, and is not to come back."
    LIFTED = "kept_out.lifted", "A text that was kept out may come back."
    KEY_CREATED = "access_key.created", "An API key was made."
    KEY_REVOKED = "access_key.revoked", "An API key was revoked."
    KEYS_ABANDONED = "keys.abandoned", "Encryption keys that the master key does not open were set aside."
    AUDIT_CUT = "audit.cut", "Old entries at the beginning of this chain were removed."
    AUDIT_ACCEPTED = "audit.accepted", "A person accepted that the store and the note of its last checkpoint disagree."
    CLOCK_ACCEPTED = "clock.accepted", "A person confirmed the time of a clock that was in doubt."
