"""Objects as the files of a folder: for its owner's eyes only, whole, and on the disk when ``put`` returns."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from retain.core.errors import (
    ObjectMissingError,
    ObjectStoreError,
    ObjectStoreUnavailableError,
    StorageError,
    StoreFullError,
)
from retain.storage.objects.disk import is_left_behind, make_folder, remove_empty, sync_folder, write_synced
from retain.storage.objects.names import check_name, check_prefix, is_name
from retain.storage.objects.probe import try_out

#: Where objects are written before they have their name. A name has no leading dot, so none can be one of these.
INCOMING: Final = ".incoming"
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_REFUSED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
#: A share on the network that went away, or a process with too much open at once.
_PASSING: Final = frozenset(
    {errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENOTCONN, errno.EMFILE, errno.ENFILE}
)
_TRIES: Final = 5


class LocalObjects:
    """The object store of a folder, which is made at the first write.

    An object is written and synced under another name and then renamed: a crash leaves the old object or the new one,
    never a part. What a killed write leaves in ``.incoming`` goes at the next delete, or another process's first put.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._incoming = folder / INCOMING
        self._tidied = False

    @property
    def url(self) -> str:
        return self._folder.as_uri()

    def prepare(self) -> None:
        with self._translated(f"make {self._folder}"):
            for made in make_folder(self._folder):
                sync_folder(made.parent)

    def put(self, name: str, data: bytes) -> None:
        target = self._folder / check_name(name)
        with self._translated(f"write {target}"):
            if not self._tidied:
                self._clear_incoming()
                self._tidied = True
            for _ in range(_TRIES - 1):
                with suppress(FileNotFoundError):  # a delete removed a folder that it found empty: make it again
                    self._write(target, data)
                    return
            self._write(target, data)

    def get(self, name: str) -> bytes:
        source = self._folder / check_name(name)
        with self._translated(f"read {source}"):
            try:
                return source.read_bytes()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                self._require_folder()
        raise ObjectMissingError(f"there is no object {name} in {self._folder}; was it moved, or deleted by hand?")

    def delete(self, names: Sequence[str]) -> None:
        targets = [self._folder / check_name(name) for name in names]
        with self._translated(f"delete objects of {self._folder}"):
            if targets:
                self._require_folder()
            for target in targets:
                with suppress(FileNotFoundError, NotADirectoryError):
                    if not target.is_dir():
                        target.unlink()
            for folder in {target.parent for target in targets}:
                remove_empty(folder, below=self._folder)
            self._clear_incoming()

    def names(self, prefix: str = "") -> Iterator[str]:
        start = check_prefix(prefix)
        return self._walk(start)

    def check(self) -> None:
        new = [folder for folder in (self._folder, *self._folder.parents) if not folder.exists()]
        try:
            try_out(self)
        finally:
            for folder in new:
                with suppress(OSError):  # another process has begun to use it
                    folder.rmdir()

    # --- writing -----------------------------------------------------------------------------------------------

    def _write(self, target: Path, data: bytes) -> None:
        made = [*make_folder(target.parent), *make_folder(self._incoming)]
        part = self._incoming / secrets.token_hex(16)
        try:
            write_synced(part, data)
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        # All of them, not only those made here: another writer may have made one and not synced its entry yet.
        for folder in (target.parent, *target.parent.parents):
            if folder == self._folder.parent:
                break
            sync_folder(folder)
        for folder in {self._folder.parent, *(folder.parent for folder in made)}:
            with suppress(PermissionError):  # above our folder we may be allowed to make one and not to look
                sync_folder(folder)

    def _clear_incoming(self) -> None:
        """Remove what writers that are no more have left; what is being written stays."""
        with suppress(FileNotFoundError):
            for part in list(self._incoming.iterdir()):
                if is_left_behind(part):
                    part.unlink(missing_ok=True)
            remove_empty(self._incoming, below=self._folder)

    # --- reading -----------------------------------------------------------------------------------------------

    def _walk(self, name: str) -> Iterator[str]:
        """The names below a folder; what cannot be a name is someone else's, and passed over."""
        folder = self._folder / name
        with self._translated(f"list {folder}"):
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except (FileNotFoundError, NotADirectoryError):
                return
            found = [(entry.name, entry.is_dir()) for entry in entries if entry.is_dir() or entry.is_file()]
        for part, is_folder in found:
            inner = f"{name}/{part}" if name else part
            if is_name(inner) and is_folder:
                yield from self._walk(inner)
            elif is_name(inner):
                yield inner

    def _require_folder(self) -> None:
        if not self._folder.is_dir():
            raise ObjectStoreUnavailableError(
                f"the folder of the object store, {self._folder}, is not there; mount its disk, "
                "or create it if the archive is meant to be empty"
            )

    # --- errors ------------------------------------------------------------------------------------------------

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            raise _in_our_words(problem, doing) from problem


def _in_our_words(problem: OSError, doing: str) -> StorageError:
    why = problem.strerror or str(problem)
    if problem.errno in _NO_ROOM:
        return StoreFullError(f"cannot {doing}: the disk is full ({why}); free some space and try again")
    if problem.errno in _REFUSED:
        return ObjectStoreError(f"cannot {doing}: {why}; check the permissions of the folder")
    if problem.errno in _PASSING:
        return ObjectStoreUnavailableError(f"cannot {doing}: {why}; try again")
    return ObjectStoreError(f"cannot {doing}: {why}")
