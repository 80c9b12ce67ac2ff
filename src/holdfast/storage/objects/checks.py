"""What every object store checks: names, conditions of a write, and, on trial, whether the store can be used."""

from __future__ import annotations

import re
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from holdfast.core import errors
from holdfast.core.errors import quote

if TYPE_CHECKING:
    from holdfast.ports.objects import ObjectStore

MAX_NAME_CHARS: Final = 512
MAX_PART_CHARS: Final = 128
#: Lower case only: some file systems take ``A`` and ``a`` for the same name. A dot never leads or ends a part, so
#: that no part means a folder above, and what a store hides for itself (``.incoming``) is no object.
_PART: Final = re.compile(r"[0-9a-z](?:[0-9a-z._=-]*[0-9a-z])?")
#: The folder of the objects that a trial writes.
_TRIAL: Final = "check"


def is_name(text: str) -> bool:
    """Whether ``text`` can name an object."""
    parts = text.split("/")
    return len(text) <= MAX_NAME_CHARS and all(len(one) <= MAX_PART_CHARS and _PART.fullmatch(one) for one in parts)


def check_name(name: str) -> str:
    """``name`` itself, if it can name an object."""
    if not is_name(name):
        raise errors.InvalidInputError(
            f"{quote(name)} cannot name an object; write parts of lower-case letters, digits, '.', '_', '=' and '-' "
            f"with '/' between them, at most {MAX_PART_CHARS} characters each and {MAX_NAME_CHARS} in all"
        )
    return name


def check_prefix(prefix: str) -> str:
    """``prefix`` without its last slash, if it is empty or could be the first parts of a name."""
    return check_name(prefix.removesuffix("/")) if prefix else ""


def check_conditions(*, absent: bool, match: str | None) -> None:
    """Refuse conditions that no object could meet."""
    if absent and match is not None:
        raise errors.InvalidInputError("an object cannot be absent and match a tag; give one of the two")


def try_out(store: ObjectStore) -> tuple[str, list[str]]:
    """Write, read, list and delete an object with a name that nothing else has; raise what goes wrong.

    It gives the tag of what was written, and warnings about a store that works.
    """
    name = f"{_TRIAL}/{secrets.token_hex(16)}"
    try:
        found = _use(store, name, secrets.token_bytes(64))
    except BaseException:
        with suppress(errors.StorageError):  # the error from before says why
            store.delete([name])
        raise
    store.delete([name])
    with suppress(errors.ObjectMissingError):
        store.get(name)
        raise errors.ObjectStoreError(f"{store.url} deleted {name}, and still gives it back; delete it by hand")
    return found


def _use(store: ObjectStore, name: str, data: bytes) -> tuple[str, list[str]]:
    tag = store.put(name, data)
    if store.get(name) != data:
        raise errors.ObjectDamagedError(f"{store.url} does not give back what was written to it")
    if name not in store.names(_TRIAL):
        raise errors.ObjectStoreError(f"{store.url} does not list what was written to it")
    careless = f"{store.url} replaces objects even if it is told not to; let no two processes share it"
    return tag, [] if _keeps_conditions(store, name, data, tag) else [careless]


def _keeps_conditions(store: ObjectStore, name: str, data: bytes, tag: str) -> bool:
    """Whether a write that depends on what is there is refused when it should be, and only then."""
    changed = store.put(name, data[::-1], match=tag)
    for absent, match in ((True, None), (False, tag)):
        with suppress(errors.ConflictError):
            store.put(name, data, absent=absent, match=match)
            return False
    return store.get_with_tag(name) == (data[::-1], changed)
