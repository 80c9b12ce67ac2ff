"""Whether an object store can be used: tried out, not guessed."""

from __future__ import annotations

import secrets
from typing import Final

from retain.core.errors import ObjectDamagedError, ObjectStoreError, StorageError
from retain.storage.objects import ObjectStore

FOLDER: Final = "check"


def try_out(store: ObjectStore) -> None:
    """Write, read, list and delete an object of a name that nothing else has; raise what goes wrong."""
    data = secrets.token_bytes(64)
    name = f"{FOLDER}/{secrets.token_hex(16)}"
    try:
        store.put(name, data)
        _find_again(store, name, data)
    except BaseException:
        _leave_nothing(store, name)
        raise
    store.delete([name])


def _find_again(store: ObjectStore, name: str, data: bytes) -> None:
    if store.get(name) != data:
        raise ObjectDamagedError(f"{store.url} does not give back what was written to it")
    if name not in store.names(FOLDER):
        raise ObjectStoreError(f"{store.url} does not list what was written to it")


def _leave_nothing(store: ObjectStore, name: str) -> None:
    try:
        store.delete([name])
    except StorageError:
        return  # what went wrong before says why
