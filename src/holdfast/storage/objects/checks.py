"""Whether an object store can be used: tried out, not guessed."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from typing import Any, Final, NamedTuple

from holdfast.core.errors import (
    ConflictError,
    InvalidInputError,
    ObjectDamagedError,
    ObjectMissingError,
    ObjectStoreError,
    StorageError,
    quote,
)
from holdfast.storage.objects import ObjectStore


def tag_content(data: bytes) -> str:
    """The tag of an object in a folder: what it holds."""
    return hashlib.sha256(data).hexdigest()


def make_tag(found: Any) -> str:
    """The tag of an object in a bucket. Some clouds go by its ETag, others by its version: it has both."""
    return json.dumps([found["e_tag"], found["version"]])


def read_tag(tag: str) -> dict[str, str]:
    """What a bucket compares, out of a tag of ``make_tag``."""
    try:
        found = dict(zip(("e_tag", "version"), json.loads(tag), strict=True))
    except (TypeError, ValueError):
        raise InvalidInputError(f"{quote(tag)} is no tag of an object in a bucket; take it from get_with_tag") from None
    return {part: value for part, value in found.items() if isinstance(value, str)}


def check_conditions(*, absent: bool, match: str | None) -> None:
    """Refuse conditions that no object could meet."""
    if absent and match is not None:
        raise InvalidInputError("an object cannot be absent and match a tag; give one of the two")


MAX_NAME_CHARS: Final = 512
MAX_PART_CHARS: Final = 128
#: Lower case only: some file systems take ``A`` and ``a`` for the same name. A dot never leads or ends a part, so
#: that no part means a folder above, and what a store hides for itself (``.incoming``) is no object.
_PART: Final = re.compile(r"[0-9a-z](?:[0-9a-z._=-]*[0-9a-z])?")


def is_name(text: str) -> bool:
    """Whether ``text`` can name an object."""
    return len(text) <= MAX_NAME_CHARS and all(
        len(part) <= MAX_PART_CHARS and _PART.fullmatch(part) for part in text.split("/")
    )


def check_name(name: str) -> str:
    """``name`` itself, if it can name an object."""
    if not is_name(name):
        raise InvalidInputError(
            f"{quote(name)} cannot name an object; write parts of lower-case letters, digits, '.', '_', '=' and '-' "
            f"with '/' between them, at most {MAX_PART_CHARS} characters each and {MAX_NAME_CHARS} in all"
        )
    return name


def check_prefix(prefix: str) -> str:
    """``prefix`` without its last slash, if it is empty or could be the first parts of a name."""
    folder = prefix.removesuffix("/")
    return check_name(folder) if prefix else ""


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
