"""SQL lives in ``.sql`` files beside its engine; each statement has a name above it."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


@cache
def statements(package: str) -> dict[str, str]:
    """The statements of an engine, by their file and the ``-- name: …`` line above each: ``records.insert``."""
    found: dict[str, str] = {}
    for file in resources.files(package).iterdir():
        if file.name.endswith(".sql"):
            parts = _NAME.split(file.read_text(encoding="utf-8"))[1:]
            stem = file.name.removesuffix(".sql")
            found |= {f"{stem}.{name}": body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}
    return found


@cache
def migrations(package: str) -> list[tuple[int, str]]:
    """The numbered migrations of an engine, in order."""
    folder = resources.files(package).joinpath("migrations")
    files = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    return [(int(name.split("_")[0]), folder.joinpath(name).read_text(encoding="utf-8")) for name in files]
