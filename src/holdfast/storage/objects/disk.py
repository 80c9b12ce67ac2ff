"""Files and folders that are on the disk for sure, and files whose writers are no more."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

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


if sys.platform != "win32":
    import fcntl

#: The system's ways to say that a disk is full: also, a user's share of it is used up, or a file may not grow.
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
#: Windows has no way to sync a folder, and does not let a file be deleted that someone has open.
_WINDOWS: Final = sys.platform == "win32"


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A new file that only its owner can read, claimed for as long as it is open: nobody takes it for left behind."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        _claim(file.fileno())
        if not _WINDOWS and not _is_named(file.fileno(), path):
            raise FileNotFoundError(f"{path} was removed before it was claimed; make it again")
        yield file


def write_synced(file: BinaryIO, chunks: Iterable[bytes]) -> None:
    """Write chunks to a file; they are on the disk when this returns."""
    for chunk in chunks:
        file.write(chunk)
    file.flush()
    _sync(file.fileno())


def name_file(file: BinaryIO, part: Path, target: Path) -> None:
    """Give a file that was written as ``part`` its name, in place of what had it before."""
    if _WINDOWS:
        file.close()  # there, no file is renamed that is open
    part.replace(target)


def remove_left_behind(path: Path) -> None:
    """Remove a file if it has no writer any more: if nobody holds the claim that ``new_file`` makes for its time.

    The claim is held until the file is gone, so that a writer who comes for it meanwhile finds it removed.
    """
    if sys.platform == "win32":
        path.unlink(missing_ok=True)  # if it has one, this fails
        return
    try:
        with path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_named(file.fileno(), path):  # it may have been renamed since it was opened
                path.unlink(missing_ok=True)
    except OSError:  # it is claimed, has just been renamed, or lies where there are no claims
        return


def make_folder(folder: Path) -> list[Path]:
    """Make a folder, and those above it, for the owner only; those that were not there before, from the top."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    missing.reverse()
    for new in missing:
        try:
            new.mkdir(mode=0o700)
        except FileExistsError:
            if new.is_dir():
                continue  # another writer was faster
            if new.exists():
                raise
            raise FileNotFoundError(f"{new} was removed meanwhile; make it again") from None
    return missing


def remove_empty(folder: Path, *, below: Path) -> None:
    """Remove a folder and those above it, up to ``below``, as far as they are empty; synced when this returns."""
    while folder != below:
        try:
            folder.rmdir()
        except FileNotFoundError:
            pass
        except OSError:  # it holds something
            break
        folder = folder.parent
    try:
        sync_folder(folder)
    except FileNotFoundError:  # another delete has removed it meanwhile
        if folder != below:
            remove_empty(folder.parent, below=below)


def sync_folder(folder: Path) -> None:
    """Bring the entries of a folder to the disk."""
    if _WINDOWS:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _sync(descriptor)
    finally:
        os.close(descriptor)


def _is_named(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _claim(descriptor: int) -> None:
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        return  # some network shares have no locks; there, nothing is ever taken for left behind


def _sync(descriptor: int) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # its fsync stops at the drive's own cache
    else:
        os.fsync(descriptor)
