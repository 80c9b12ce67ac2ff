"""Which version of Retain this is."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
SOFTWARE: Final = f"retain {VERSION}"
