"""Whether an object store can be used: tried out, not guessed."""

from __future__ import annotations

import secrets
from typing import Final, NamedTuple

from holdfast.core.errors import ConflictError, ObjectDamagedError, ObjectMissingError, ObjectStoreError, StorageError
from holdfast.storage.objects import ObjectStore

FOLDER: Final = "check"
_CARELESS: Final = "{} writes over what is there even if it is told not to; let no two processes share it"


class Trial(NamedTuple):
    """What was found out about a store that works: the tag of what was written to it, and what is to be known."""

    tag: str
    warnings: list[str]


def try_out(store: ObjectStore) -> Trial:
    """Write, read, list and delete an object of a name that nothing else has; raise what goes wrong."""
    data = secrets.token_bytes(64)
    name = f"{FOLDER}/{secrets.token_hex(16)}"
    try:
        tag = store.put(name, data)
        _find_again(store, name, data)
        warnings = [] if _keeps_conditions(store, name, data, tag) else [_CARELESS.format(store.url)]
    except BaseException:
        _leave_nothing(store, name)
        raise
    store.delete([name])
    _find_no_more(store, name)
    return Trial(tag, warnings)


def _find_again(store: ObjectStore, name: str, data: bytes) -> None:
    if store.get(name) != data:
        raise ObjectDamagedError(f"{store.url} does not give back what was written to it")
    if name not in store.names(FOLDER):
        raise ObjectStoreError(f"{store.url} does not list what was written to it")


def _keeps_conditions(store: ObjectStore, name: str, data: bytes, tag: str) -> bool:
    """Whether a write that depends on what is there is refused when it should be, and only then."""
    changed = store.put(name, data[::-1], match=tag)
    for absent, match in ((True, None), (False, tag)):
        try:
            store.put(name, data, absent=absent, match=match)
        except ConflictError:
            continue
        return False
    return store.get_with_tag(name) == (data[::-1], changed)


def _find_no_more(store: ObjectStore, name: str) -> None:
    try:
        store.get(name)
    except ObjectMissingError:
        return
    raise ObjectStoreError(f"{store.url} says that {name} was deleted, and still gives it back; delete it by hand")


def _leave_nothing(store: ObjectStore, name: str) -> None:
    try:
        store.delete([name])
    except StorageError:
        return  # what went wrong before says why
