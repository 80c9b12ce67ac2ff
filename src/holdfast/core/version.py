"""Which version of Holdfast this is."""

from __future__ import annotations

import re
from typing import Final

VERSION: Final = "0.1.0"
SOFTWARE: Final = f"holdfast {VERSION}"


def is_newer(version: str) -> bool:
    """Whether a version of Holdfast is newer than this one."""
    return _parts(version) > _parts(VERSION)


def _parts(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)[:3]]
