"""SQL lives in ``.sql`` files beside its engine; each statement has a name above it."""

from __future__ import annotations

import re
from importlib import resources

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


def statements(package: str, file: str) -> dict[str, str]:
    """The statements of a file, by the ``-- name: …`` line above each."""
    text = resources.files(package).joinpath(file).read_text(encoding="utf-8")
    parts = _NAME.split(text)[1:]
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


def migrations(package: str) -> list[tuple[int, str]]:
    """The numbered migrations of an engine, in order."""
    folder = resources.files(package).joinpath("migrations")
    files = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    return [(int(name.split("_")[0]), folder.joinpath(name).read_text(encoding="utf-8")) for name in files]
