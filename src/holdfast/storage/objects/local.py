"""Objects as the files of a folder: for its owner's eyes only, whole, and on the disk when ``put`` returns."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from holdfast.core import errors
from holdfast.storage.objects import disk
from holdfast.storage.objects.checks import check_conditions, check_name, check_prefix, is_name, try_out

T = TypeVar("T")
#: Where objects are written before they have their name. A name has no leading dot, so none can be one of these.
INCOMING: Final = ".incoming"
_REFUSED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
#: A share on the network that went away, or a process with too much open at once.
_PASSING: Final = frozenset(
    {errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENOTCONN, errno.EMFILE, errno.ENFILE}
)
_TRIES: Final = 5


class LocalObjects:
    """The object store of a folder, which is made at the first write.

    An object is written and synced under another name and then renamed: a crash leaves the old object or the new one,
    never a part. Renames and deletes lock the folder, so that a write on a condition is exact among processes. What a
    killed write leaves in ``.incoming`` goes at the next delete, or another process's first put.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._incoming = folder / INCOMING
        self._tidied = self._is_noted = False

    @property
    def url(self) -> str:
        return self._folder.as_uri()

    def prepare(self) -> None:
        with _translate_errors(f"make {self._folder}"):
            for made in disk.make_folder(self._folder):
                disk.sync_folder(made.parent)

    def put(self, name: str, data: bytes, *, absent: bool = False, match: str | None = None) -> str:
        check_conditions(absent=absent, match=match)
        target = self._folder / check_name(name)
        with _translate_errors(f"write {target}"):
            if not self._tidied:
                self._clear_incoming()
                self._tidied = True
            made = self._write(target, data, absent=absent, match=match)
            # All of them, not only those made here: another writer may have made one and not synced its entry yet.
            own = [self._folder / above for above in Path(name).parents]
            for folder in own:
                disk.sync_folder(folder)
            new = {folder.parent for folder in made} | (set() if self._is_noted else {self._folder.parent})
            for folder in new.difference(own):
                with suppress(PermissionError):  # above our folder we may be allowed to make one and not to look
                    disk.sync_folder(folder)
            self._is_noted = True  # no delete removes our folder
        return _tag(data)

    def get(self, name: str) -> bytes:
        source = self._folder / check_name(name)
        with _translate_errors(f"read {source}"):
            try:
                return source.read_bytes()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                self._require_folder()
                raise errors.ObjectMissingError(
                    f"there is no object {name} in {self._folder}; was it moved, or deleted by hand?"
                ) from None

    def get_with_tag(self, name: str) -> tuple[bytes, str]:
        data = self.get(name)
        return data, _tag(data)

    def delete(self, names: Sequence[str]) -> None:
        targets = [self._folder / check_name(name) for name in names]
        with _translate_errors(f"delete objects of {self._folder}"):
            if targets:
                self._require_folder()
                with disk.lock_folder(self._folder, needed=False):
                    for target in targets:
                        with suppress(FileNotFoundError, NotADirectoryError):
                            if not target.is_dir():
                                target.unlink()
            for folder in {target.parent for target in targets}:
                disk.remove_empty(folder, below=self._folder)
            self._clear_incoming()

    def names(self, prefix: str = "") -> Iterator[str]:
        return (name for name, _ in self._walk(check_prefix(prefix)))

    def sizes(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        return self._measure(check_prefix(prefix))

    def check(self) -> Sequence[str]:
        new = [folder for folder in (self._folder, *self._folder.parents) if not folder.exists()]
        try:
            return try_out(self)[1]
        finally:
            for folder in new:
                with suppress(OSError):  # another process has begun to use it
                    folder.rmdir()

    # --- steps -------------------------------------------------------------------------------------------------

    def _write(self, target: Path, data: bytes, *, absent: bool, match: str | None) -> set[Path]:
        """Write and sync a file, then give it its name; the folders that were made for that."""
        made = set[Path]()
        part = self._incoming / secrets.token_hex(16)
        with ExitStack() as stack:
            stack.callback(part.unlink, missing_ok=True)
            file = _do_within(self._incoming, made, lambda: stack.enter_context(disk.new_file(part)))
            file.write(data)
            disk.sync_file(file)

            def give_name() -> None:
                with disk.lock_folder(self._folder, needed=absent or match is not None):
                    if absent and target.exists():
                        raise errors.ConflictError(f"there is an object {target} already; nothing was written")
                    if match is not None and match != (_tag(target.read_bytes()) if target.is_file() else None):
                        raise errors.StaleError(f"another writer has changed {target}; read it again and retry")
                    disk.name_file(file, part, target)

            _do_within(target.parent, made, give_name)
        return made

    def _clear_incoming(self) -> None:
        """Remove what writers that are no more have left; what is being written stays."""
        with suppress(FileNotFoundError):
            for part in list(self._incoming.iterdir()):
                disk.remove_left_behind(part)
            disk.remove_empty(self._incoming, below=self._folder)

    def _walk(self, name: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """What has names below a folder; what cannot be a name is someone else's, and passed over."""
        folder = self._folder / name
        with _translate_errors(f"list {folder}"):
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except (FileNotFoundError, NotADirectoryError):
                return
            found = [(entry, entry.is_dir()) for entry in entries if entry.is_dir() or entry.is_file()]
        for entry, is_folder in found:
            inner = f"{name}/{entry.name}" if name else entry.name
            if is_name(inner) and is_folder:
                yield from self._walk(inner)
            elif is_name(inner):
                yield inner, entry

    def _measure(self, name: str) -> Iterator[tuple[str, int]]:
        for inner, entry in self._walk(name):
            with _translate_errors(f"look at {self._folder / inner}"), suppress(FileNotFoundError):  # deleted meanwhile
                yield inner, entry.stat().st_size

    def _require_folder(self) -> None:
        if not self._folder.is_dir():
            raise errors.ObjectStoreUnavailableError(
                f"the folder of the object store, {self._folder}, is not there; mount its disk, "
                "or create it if the archive is meant to be empty"
            )


def _tag(data: bytes) -> str:
    """The tag of an object: the digest of its content."""
    return hashlib.sha256(data).hexdigest()


def _do_within(folder: Path, made: set[Path], act: Callable[[], T]) -> T:
    """Make a folder and do something in it; again, if a delete finds the folder empty meanwhile and removes it."""
    for _ in range(_TRIES - 1):
        with suppress(FileNotFoundError):
            made.update(disk.make_folder(folder))
            return act()
    made.update(disk.make_folder(folder))
    return act()


@contextmanager
def _translate_errors(doing: str) -> Iterator[None]:
    """Raise the errors of a file system in our words."""
    try:
        yield
    except OSError as problem:
        raise _in_our_words(problem, doing) from problem


def _in_our_words(problem: OSError, doing: str) -> errors.StorageError:
    why = problem.strerror or str(problem)
    if problem.errno in disk.NO_ROOM:
        return errors.StoreFullError(f"cannot {doing}: the disk is full ({why}); free some space and try again")
    if problem.errno in _REFUSED:
        return errors.ObjectStoreError(f"cannot {doing}: {why}; check the permissions of the folder")
    if problem.errno in _PASSING:
        return errors.ObjectStoreUnavailableError(f"cannot {doing}: {why}; try again")
    return errors.ObjectStoreError(f"cannot {doing}: {why}")
