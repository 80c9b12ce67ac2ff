"""Names of objects: the same in every store, on every file system, and never a way out of a folder."""

from __future__ import annotations

import re
from typing import Final

from holdfast.core.errors import InvalidInputError, quote

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
