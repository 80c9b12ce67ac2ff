"""Errors of SQLite in Holdfast's words."""

from __future__ import annotations

from pathlib import Path

import apsw

from holdfast.core.errors import (
    NotAStoreError,
    StorageError,
    StoreBusyError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
)


def in_our_words(problem: apsw.Error, path: Path, busy_seconds: float) -> StorageError:
    """An error of SQLite as Holdfast says it."""
    match problem:
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusyError(f"{path} was kept busy by other writers for over {busy_seconds:g} s; try again")
        case apsw.FullError():
            return StoreFullError(f"no room to write {path}: the disk is full; free some space and try again")
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return StoreReadOnlyError(f"{path} cannot be written: {problem}; check the permissions of the folder")
        case apsw.NotADBError() | apsw.CorruptError():
            return NotAStoreError(
                f"{path} is not a Holdfast database, or is damaged ({problem}); "
                "name another file in HOLDFAST_URL or HOLDFAST_HOME, or restore a backup"
            )
        case apsw.CantOpenError():
            return StoreUnavailableError(f"cannot open {path}: {problem}; check that its folder can be written")
        case _:
            return StorageError(f"the store {path} failed: {problem}")
