"""Which store it is, which keyring it belongs to, and whether it is still the one that was checked."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Identity(NamedTuple):
    """What a store knows of itself."""

    store: str
    """A random id that the store got when it was first opened. A copy has the same; a restored store has its own."""
    keyring: str | None
    """The id of the keyring that the store belongs to; ``None`` before anything was sealed or erased."""


class IdentityStore(Protocol):
    """What a store knows of itself."""

    def read(self) -> Identity | None:
        """The identity; ``None`` before it was made."""

    def make(self, store: str) -> Identity:
        """The identity, made with this id if there is none."""

    def bind(self, keyring: str, *, replace: bool = False) -> str:
        """The keyring that the store belongs to: this one, if it had none before (or is to ``replace`` it)."""

    def has_data(self) -> bool:
        """Whether anything was kept in the store, of a user or by an operator."""


class Witness(Protocol):
    """Knows whether a database was exchanged for another copy of it since it was last checked."""

    def confirm(self) -> None:
        """The database is up to date with the ledger of erasures as it is now."""

    def is_unbroken(self) -> bool:
        """Whether this is still the database that was confirmed, and no copy that was brought back since."""
