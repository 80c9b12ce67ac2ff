"""What a store knows of itself, in a relational engine: the ``IdentityStore``."""

from __future__ import annotations

from typing import Final

from holdfast.ports.access import Identity
from holdfast.storage.relational.database import Database, Names, Transaction

SQL: Final = Names("coordination")
_ALONE: Final = "identity"


class SqlIdentity:
    """The ``IdentityStore`` of the relational engines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self) -> Identity | None:
        with self._database.read() as tx:
            return _read(tx)

    def make(self, store: str) -> Identity:
        known = self.read()
        if known is not None:
            return known
        with self._database.alone(_ALONE) as tx:
            tx.run(SQL["make"], (store,))
            return _read(tx) or Identity(store, None)

    def bind(self, keyring: str, *, replace: bool = False) -> str:
        with self._database.alone(_ALONE) as tx:
            known = _read(tx)
            if known is not None and known.keyring is not None and not replace:
                return known.keyring
            tx.run(SQL["bind"], (keyring,))
        return keyring

    def has_data(self) -> bool:
        with self._database.read() as tx:
            return bool(tx.value(SQL["has_data"]))


def _read(tx: Transaction) -> Identity | None:
    row = tx.one(SQL["identity"])
    return None if row is None else Identity(*row)
