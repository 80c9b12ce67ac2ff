"""How an SQLite file is opened: to write it, or only to read it; and what SQLite's errors mean."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import apsw

from holdfast.core import errors


def translate_error(problem: apsw.Error, path: Path, busy_seconds: float) -> errors.StorageError:
    """An error of SQLite as Holdfast says it."""
    match problem:
        case apsw.BusyError() | apsw.LockedError():
            return errors.StoreBusyError(
                f"{path} was kept busy by other writers for over {busy_seconds:g} s; try again"
            )
        case apsw.FullError():
            return errors.StoreFullError(f"no room to write {path}: the disk is full; free some space and try again")
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return errors.StoreReadOnlyError(
                f"{path} cannot be written: {problem}; check the permissions of the folder"
            )
        case apsw.NotADBError() | apsw.CorruptError():
            return errors.NotAStoreError(
                f"{path} is not a Holdfast database, or is damaged ({problem}); "
                "name another file in HOLDFAST_URL or HOLDFAST_HOME, or restore a backup"
            )
        case apsw.CantOpenError():
            return errors.StoreUnavailableError(f"cannot open {path}: {problem}; check that its folder can be written")
        case apsw.SQLError() if str(problem).startswith(("no such table", "no such column")):
            return errors.StorageError(
                f"{path} lacks what this version of Holdfast keeps there ({problem}): another version made it, or "
                "something was dropped; restore a backup, or name another store in HOLDFAST_URL or HOLDFAST_HOME"
            )
        case _:
            return errors.StorageError(f"the store {path} failed: {problem}")


class ReadOnlyFile:
    """Connections that read. ``configure`` is done to each."""

    def __init__(self, path: Path, configure: Callable[[apsw.Connection], None]) -> None:
        self._path = path
        self._configure = configure
        self._unchanging: tuple[int, int] | None = None

    def connect(self) -> apsw.Connection:
        """A connection that reads. Beside a log it needs the index of the log, which others have made, or which can be
        made; without a log SQLite is told that the file does not change, and ``has_changed`` says if it did.
        """
        try:
            return self._read_from(str(self._path))
        except (apsw.CantOpenError, apsw.ReadOnlyError) as problem:
            if has_log(self._path):
                raise errors.StoreReadOnlyError(
                    f"{self._path} has a log beside it that was not written into it, and cannot be written; copy both "
                    "files to a disk that can be written, and open it there"
                ) from problem
            self._unchanging = self._last_change()
            return self._read_from(f"{self._path.as_uri()}?immutable=1")

    def has_changed(self) -> bool:
        """Whether another has written the file since SQLite was told that it does not change: connections are to be
        made anew.
        """
        if self._unchanging is None or self._unchanging == self._last_change():
            return False
        self._unchanging = None
        return True

    def refuse(self) -> None:
        """Raise what is to be said to whoever would write."""
        raise errors.StoreReadOnlyError(
            f"{self._path} can be read, and not written; check the permissions of the file and of its folder, and "
            "whether the disk is mounted for reading only"
        )

    def _read_from(self, name: str) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(name, flags=flags, statementcachesize=256)
        try:
            self._configure(connection)
            connection.pragma("user_version")  # the file is opened when it is first read
        except BaseException:
            connection.close()
            raise
        return connection

    def _last_change(self) -> tuple[int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return 0, -1
        return found.st_mtime_ns, -1 if has_log(self._path) else found.st_size


def has_log(path: Path) -> bool:
    """Whether there is a log beside a file with something in it."""
    try:
        return Path(f"{path}-wal").stat().st_size > 0
    except OSError:
        return False


def is_empty(path: Path) -> bool:
    """Whether there is no file, or one with nothing in it."""
    try:
        return path.stat().st_size == 0
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


def is_writable(path: Path) -> bool:
    """Whether this process may write a file, and its log beside it."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)
