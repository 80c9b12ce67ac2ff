"""Objects as the files of a folder: for its owner's eyes only, whole, and on the disk when ``put`` returns."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from holdfast.core.errors import (
    ConflictError,
    ObjectMissingError,
    ObjectStoreError,
    ObjectStoreUnavailableError,
    StaleError,
    StorageError,
    StoreFullError,
)
from holdfast.storage.objects.checks import check_conditions, check_name, check_prefix, is_name, tag_content, try_out
from holdfast.storage.objects.chunks import Source
from holdfast.storage.objects.disk import (
    NO_ROOM,
    locked,
    make_folder,
    name_file,
    new_file,
    remove_empty,
    remove_left_behind,
    sync_folder,
    write_synced,
)

#: Where objects are written before they have their name. A name has no leading dot, so none can be one of these.
INCOMING: Final = ".incoming"
_REFUSED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
#: A share on the network that went away, or a process with too much open at once.
_PASSING: Final = frozenset(
    {errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENOTCONN, errno.EMFILE, errno.ENFILE}
)
_TRIES: Final = 5
_CHUNK: Final = 1024 * 1024


class LocalObjects:
    """The object store of a folder, which is made at the first write.

    An object is written and synced under another name and then renamed: a crash leaves the old object or the new one,
    never a part. Renames and deletes lock the folder, so that a write on a condition is exact among processes. What a
    killed write leaves in ``.incoming`` goes at the next delete, or another process's first put.
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

    def put(self, name: str, data: bytes, *, absent: bool = False, match: str | None = None) -> str:
        check_conditions(absent=absent, match=match)
        target = self._folder / check_name(name)
        with self._translated(f"write {target}"):
            self._write(target, [data], absent=absent, match=match)
        return tag_content(data)

    def put_stream(self, name: str, chunks: Iterable[bytes]) -> tuple[int, bytes]:
        target = self._folder / check_name(name)
        source = Source(chunks)
        with self._translated(f"write {target}", source):
            self._write(target, source)
        return source.size, source.digest

    def get(self, name: str) -> bytes:
        source = self._folder / check_name(name)
        with self._translated(f"read {source}"), self._missed(name):
            return source.read_bytes()

    def get_with_tag(self, name: str) -> tuple[bytes, str]:
        data = self.get(name)
        return data, tag_content(data)

    def get_stream(self, name: str) -> Iterator[bytes]:
        source = self._folder / check_name(name)
        with self._translated(f"read {source}"), self._missed(name):
            if source.is_dir():
                raise IsADirectoryError
            source.stat()
        return self._chunks(name, source)

    def delete(self, names: Sequence[str]) -> None:
        targets = [self._folder / check_name(name) for name in names]
        with self._translated(f"delete objects of {self._folder}"):
            if targets:
                self._require_folder()
                with locked(self._folder, needed=False):
                    _unlink(targets)
            for folder in {target.parent for target in targets}:
                remove_empty(folder, below=self._folder)
            self._clear_incoming()

    def names(self, prefix: str = "") -> Iterator[str]:
        return (name for name, _ in self._walk(check_prefix(prefix)))

    def sizes(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        return self._sized(self._walk(check_prefix(prefix)))

    def check(self) -> Sequence[str]:
        new = [folder for folder in (self._folder, *self._folder.parents) if not folder.exists()]
        try:
            return try_out(self).warnings
        finally:
            for folder in new:
                with suppress(OSError):  # another process has begun to use it
                    folder.rmdir()

    # --- writing -----------------------------------------------------------------------------------------------

    def _write(self, target: Path, chunks: Iterable[bytes], *, absent: bool = False, match: str | None = None) -> None:
        if not self._tidied:
            self._clear_incoming()
            self._tidied = True
        made = set[Path]()
        with self._new_part(made) as (part, file):
            write_synced(file, chunks)
            self._name(file, part, target, made, absent=absent, match=match)
        # All of them, not only those made here: another writer may have made one and not synced its entry yet.
        for folder in (target.parent, *target.parent.parents):
            if folder == self._folder.parent:
                break
            sync_folder(folder)
        for folder in {self._folder.parent, *(folder.parent for folder in made)}:
            with suppress(PermissionError):  # above our folder we may be allowed to make one and not to look
                sync_folder(folder)

    @contextmanager
    def _new_part(self, made: set[Path]) -> Iterator[tuple[Path, BinaryIO]]:
        """A file to write to, which is gone in the end unless it was given a name."""
        part = self._incoming / secrets.token_hex(16)
        with ExitStack() as stack:
            stack.callback(part.unlink, missing_ok=True)
            for turn in range(_TRIES):
                made.update(make_folder(self._incoming))
                try:
                    file = stack.enter_context(new_file(part))
                    break
                except FileNotFoundError:  # a delete has just found the folder empty, or the file unclaimed
                    if turn == _TRIES - 1:
                        raise
            yield part, file

    def _name(
        self, file: BinaryIO, part: Path, target: Path, made: set[Path], *, absent: bool, match: str | None
    ) -> None:
        for turn in range(_TRIES):
            made.update(make_folder(target.parent))
            with locked(self._folder, needed=absent or match is not None):
                if absent and target.exists():
                    raise ConflictError(f"there is an object {target} already; nothing was written")
                if match is not None and self._tag(target) != match:
                    raise StaleError(f"the object {target} was changed by another writer; read it again and retry")
                try:
                    name_file(file, part, target)
                except FileNotFoundError:  # a delete removed a folder that it found empty: make it again
                    if turn == _TRIES - 1:
                        raise
                else:
                    return

    def _tag(self, target: Path) -> str | None:
        try:
            return tag_content(target.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _clear_incoming(self) -> None:
        """Remove what writers that are no more have left; what is being written stays."""
        with suppress(FileNotFoundError):
            for part in list(self._incoming.iterdir()):
                remove_left_behind(part)
            remove_empty(self._incoming, below=self._folder)

    # --- reading -----------------------------------------------------------------------------------------------

    def _chunks(self, name: str, source: Path) -> Iterator[bytes]:
        with self._translated(f"read {source}"), self._missed(name), source.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk

    def _walk(self, name: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """What has names below a folder; what cannot be a name is someone else's, and passed over."""
        folder = self._folder / name
        with self._translated(f"list {folder}"):
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

    def _sized(self, found: Iterable[tuple[str, os.DirEntry[str]]]) -> Iterator[tuple[str, int]]:
        for name, entry in found:
            with self._translated(f"look at {self._folder / name}"):
                try:
                    size = entry.stat().st_size
                except FileNotFoundError:  # deleted meanwhile
                    continue
            yield name, size

    def _require_folder(self) -> None:
        if not self._folder.is_dir():
            raise ObjectStoreUnavailableError(
                f"the folder of the object store, {self._folder}, is not there; mount its disk, "
                "or create it if the archive is meant to be empty"
            )

    # --- errors ------------------------------------------------------------------------------------------------

    @contextmanager
    def _translated(self, doing: str, source: Source | None = None) -> Iterator[None]:
        """Errors in our words, but for those of where the chunks come from."""
        try:
            yield
        except OSError as problem:
            if source is not None and source.trouble is problem:
                raise
            raise _in_our_words(problem, doing) from problem

    @contextmanager
    def _missed(self, name: str) -> Iterator[None]:
        """A file that is not there is a missing object, if there is a folder that it could be in."""
        try:
            yield
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            self._require_folder()
            raise ObjectMissingError(
                f"there is no object {name} in {self._folder}; was it moved, or deleted by hand?"
            ) from None


def _unlink(targets: Sequence[Path]) -> None:
    for target in targets:
        with suppress(FileNotFoundError, NotADirectoryError):
            if not target.is_dir():
                target.unlink()


def _in_our_words(problem: OSError, doing: str) -> StorageError:
    why = problem.strerror or str(problem)
    if problem.errno in NO_ROOM:
        return StoreFullError(f"cannot {doing}: the disk is full ({why}); free some space and try again")
    if problem.errno in _REFUSED:
        return ObjectStoreError(f"cannot {doing}: {why}; check the permissions of the folder")
    if problem.errno in _PASSING:
        return ObjectStoreUnavailableError(f"cannot {doing}: {why}; try again")
    return ObjectStoreError(f"cannot {doing}: {why}")
