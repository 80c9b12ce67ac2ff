"""Tags: which writing of an object it is, as its store tells it; and whether a put has conditions that make sense."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from holdfast.core.errors import InvalidInputError, quote


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
