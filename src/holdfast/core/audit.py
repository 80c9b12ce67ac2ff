"""What an audit entry can say was done."""

from __future__ import annotations

from enum import StrEnum


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
    RECYCLED = "recycled", "A memory, message, session, agent or tool went to the recycle bin."
    RESTORED = "restored", "It came back from the recycle bin, or rows came back from a backup."
    REHYDRATED = "rehydrated", "An archived memory came back from cold storage."
    DELETING = "deleting", "Its deletion for good began; parts of it still lie in cold storage."
    DELETED = "deleted", "It was deleted for good."
    REFUSED = "refused", "It was not moved. The detail names the hold, or the reason."
    ERASED = "erased", "All data of a user was erased."
    REGISTERED = "registered", "An agent or a tool was made known."
    CHANGED = "changed", "The description or the metadata of an agent or a tool changed."
    RULE_CHANGED = "rule.changed", "A retention rule was set or removed."
    DEFAULTS_CHANGED = "defaults.changed", "A new version of Holdfast brought other default lifetimes."
    HOLD_ADDED = "hold.added", "A hold was placed."
    HOLD_RELEASED = "hold.released", "A hold was released."
    KEY_CREATED = "access_key.created", "An API key was made."
    KEY_REVOKED = "access_key.revoked", "An API key was revoked."
    KEYS_ABANDONED = "keys.abandoned", "Encryption keys that the master key does not open were set aside."
    AUDIT_CUT = "audit.cut", "Old entries at the beginning of this chain were removed."
    AUDIT_ACCEPTED = "audit.accepted", "A person accepted that the store and the note of its last checkpoint disagree."
    CLOCK_ACCEPTED = "clock.accepted", "A person confirmed the time of a clock that was in doubt."
