"""One writer at a time in a folder, among threads and processes: for writes that depend on what is there."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

#: Where a folder itself cannot be locked (Windows, some network shares), this file in it can. No object has its name.
LOCK: Final = ".lock"
#: A lock is held for a rename, or to read what is replaced: whoever has it longer has been stopped, or hangs.
_WAIT_S: Final = 10.0
_PAUSE_S: Final = 0.002


@contextmanager
def locked(folder: Path, *, needed: bool) -> Iterator[None]:
    """Nobody else writes in a folder meanwhile. Where there are no locks, that matters only if they are ``needed``.

    ``TimeoutError`` if another has it for too long, ``OSError`` if one is needed and there is none.
    """
    descriptor = _lock_folder(folder)
    if descriptor is None and needed:
        descriptor = _lock_file(folder / LOCK)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)  # and with it goes the lock


def _lock_folder(folder: Path) -> int | None:
    """A descriptor that holds the lock of a folder; ``None`` where folders have none."""
    if sys.platform == "win32":
        return None
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _wait(descriptor, folder)
    except TimeoutError:
        os.close(descriptor)
        raise
    except OSError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock_file(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _wait(descriptor, path)
    except TimeoutError:
        os.close(descriptor)
        raise
    except OSError as problem:
        os.close(descriptor)
        raise OSError(
            problem.errno, "the file system has no locks, and a write on a condition needs one", str(path)
        ) from problem
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _wait(descriptor: int, path: Path) -> None:
    end = time.monotonic() + _WAIT_S
    while True:
        with suppress(BlockingIOError, PermissionError):
            _try(descriptor)
            return
        if time.monotonic() >= end:
            raise TimeoutError(errno.ETIMEDOUT, "another process has kept it locked for too long", str(path))
        time.sleep(_PAUSE_S)


def _try(descriptor: int) -> None:
    """Take the lock, or raise at once (``BlockingIOError``; on Windows ``PermissionError``) if another has it."""
    if sys.platform == "win32":
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
