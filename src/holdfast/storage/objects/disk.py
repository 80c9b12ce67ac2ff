"""Files and folders that are on the disk for sure, files without a writer, and one writer at a time in a folder."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final
from weakref import WeakValueDictionary

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

#: How a system says that a disk is full: also, a user's share of it is used up, or a file may not grow.
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
#: Windows has no way to sync a folder, and does not let a file be deleted that someone has open.
_WINDOWS: Final = sys.platform == "win32"
#: Where a folder itself cannot be locked (Windows, some network shares), this file in it can. No object has its name.
LOCK: Final = ".lock"
#: A lock is held for a rename, or to read what is replaced: whoever has it longer has been stopped, or hangs.
_WAIT_S: Final = 10.0
_PAUSE_S: Final = 0.002


# --- files ------------------------------------------------------------------------------------------------------------


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A new file that only its owner can read, claimed for as long as it is open: nobody takes it for left behind."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        if sys.platform != "win32":
            with suppress(OSError):  # some network shares have no locks; there, nothing is ever taken for left behind
                fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_named(file, path):
                raise FileNotFoundError(f"{path} was removed before it was claimed; make it again")
        yield file


def sync_file(file: BinaryIO) -> None:
    """Bring all that was written to a file to the disk."""
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
    with suppress(OSError), path.open("r+b") as file:  # it is claimed, was renamed, or lies where there are no claims
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_named(file, path):  # it may have been renamed since it was opened
            path.unlink(missing_ok=True)


def _is_named(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _sync(descriptor: int) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # its fsync stops at the drive's own cache
    else:
        os.fsync(descriptor)


# --- folders ----------------------------------------------------------------------------------------------------------


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


class _Turns:
    """Who brings the entries of a folder to the disk: one thread after the other."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.begun = self.done = 0


_TURNS: Final[WeakValueDictionary[Path, _Turns]] = WeakValueDictionary()
_TURNS_LOCK: Final = threading.Lock()


def sync_folder(folder: Path) -> None:
    """Bring the entries of a folder to the disk. Of the threads that come while one is at it, the next does it for all
    of them.
    """
    if _WINDOWS:
        return
    with _TURNS_LOCK:
        turns = _TURNS.setdefault(folder, _Turns())
    came = turns.begun
    with turns.lock:
        if turns.done > came:  # begun after this one came, and done
            return
        turns.begun += 1
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            _sync(descriptor)
        finally:
            os.close(descriptor)
        turns.done = turns.begun


# --- one writer at a time, among threads and processes ----------------------------------------------------------------


@contextmanager
def lock_folder(folder: Path, *, needed: bool) -> Iterator[None]:
    """Nobody else writes in a folder meanwhile. Where there are no locks, that matters only if they are ``needed``.

    ``TimeoutError`` if another has it for too long, ``OSError`` if one is needed and there is none.
    """
    with ExitStack() as stack:
        is_locked = not _WINDOWS and _lock(stack, folder, os.O_RDONLY)
        if needed and not is_locked and not _lock(stack, folder / LOCK, os.O_RDWR | os.O_CREAT):
            raise OSError(errno.ENOLCK, "the file system has no locks, and a write on a condition needs one")
        yield


def _lock(stack: ExitStack, path: Path, flags: int) -> bool:
    """Hold the lock of a file or a folder until the stack is left; whether there are locks here."""
    descriptor = os.open(path, flags, 0o600)
    stack.callback(os.close, descriptor)  # and with it goes the lock
    end = time.monotonic() + _WAIT_S
    while True:
        try:
            _try(descriptor)
        except (BlockingIOError, PermissionError):
            if time.monotonic() >= end:
                raise TimeoutError(errno.ETIMEDOUT, "another process has kept it locked for too long") from None
            time.sleep(_PAUSE_S)
        except OSError:
            return False
        else:
            return True


def _try(descriptor: int) -> None:
    """Take the lock, or raise at once (``BlockingIOError``; on Windows ``PermissionError``) if another has it."""
    if sys.platform == "win32":
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
