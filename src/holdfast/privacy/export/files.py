"""Files that people name to have something written to."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, TypeVar

from holdfast.core.errors import InvalidInputError
from holdfast.storage.objects.disk import sync_folder

_T = TypeVar("_T")


def check_target(path: Path, example: str) -> Path:
    """The file that a path leads to, through links, which stay. ``InvalidInputError`` for what is no place for a file:
    a folder, a file in a folder that is not there, or a device, a pipe or a socket, which a file would replace.
    """
    real = Path(os.path.realpath(path))
    if real.is_dir():
        raise InvalidInputError(f"{path} is a folder; name the file to write, such as {path / example}")
    if not real.parent.is_dir():
        raise InvalidInputError(f"there is no folder {real.parent} to write {real.name} to; make it first")
    if os.path.lexists(real) and not real.is_file():
        raise InvalidInputError(f"{path} is a device, a pipe or a socket, which a file would replace; name a file")
    return real


def write_whole(path: Path, write: Callable[[IO[bytes]], _T]) -> _T:
    """Write beside a path, then take its place: the whole file is there, durably, or nothing has changed."""
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:64]}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            written = write(file)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
    return written
